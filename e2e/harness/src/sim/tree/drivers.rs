//! Hardware and kernel drivers in the tree: procfs, sysfs, device nodes, the LNC setting.

use std::fs;
use std::os::unix::fs::symlink;

use super::super::shapes::{MigInstance, NeuronHardware, Shape, uuid};
use super::{Tree, remove_dir_all};

impl Tree {
    /// Loads the NVIDIA driver: procfs entries, device nodes, MIG capabilities.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn load_nvidia_driver(&self, version: &str) -> anyhow::Result<()> {
        let Some(hardware) = ({
            let mut hardware = self.hardware();
            if let Some(nvidia) = &mut hardware.nvidia {
                nvidia.driver = Some(version.to_owned());
            }
            hardware.nvidia.clone()
        }) else {
            anyhow::bail!("{} has no NVIDIA hardware to load a driver for", self.node);
        };
        self.write(
            "/proc/driver/nvidia/version",
            &format!(
                "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {version}  Release Build  (dvs-builder@U22-I3)\n\
                 GCC version:  gcc version 11.5.0 20240719 (Red Hat 11.5.0-5) (GCC) \n"
            ),
        )?;
        self.write("/sys/module/nvidia/version", &format!("{version}\n"))?;
        for name in [
            "nvidiactl",
            "nvidia-uvm",
            "nvidia-uvm-tools",
            "nvidia-modeset",
        ] {
            self.write(&format!("/dev/{name}"), "")?;
        }
        for gpu in &hardware.gpus {
            let uuid = self.gpu_uuid(gpu.minor);
            self.write(
                &format!("/proc/driver/nvidia/gpus/{}/information", gpu.bdf),
                &format!(
                    "Model: \t\t {}\nIRQ:   \t\t {}\nGPU UUID: \t {uuid}\nVideo BIOS: \t 96.00.74.00.1a\nBus Type: \t PCIe\n\
                     DMA Size: \t 52 bits\nDMA Mask: \t 0xfffffffffffff\nBus Location: \t {}\nDevice Minor: \t {}\n\
                     GPU Firmware: \t {version}\nGPU Excluded:\t No\n",
                    hardware.board.product(),
                    68 + gpu.minor,
                    gpu.bdf,
                    gpu.minor,
                ),
            )?;
            self.write(&format!("/dev/nvidia{}", gpu.minor), "")?;
        }
        self.install_nvml(&hardware)
    }

    /// Takes the NVIDIA driver away, as an unloaded or broken module does. The PCI functions stay.
    ///
    /// # Errors
    /// When a file cannot be removed.
    pub fn lose_nvidia_driver(&self) -> anyhow::Result<()> {
        if let Some(nvidia) = &mut self.hardware().nvidia {
            nvidia.driver = None;
        }
        self.lose_nvml()?;
        remove_dir_all(&self.path("/proc/driver/nvidia"))?;
        remove_dir_all(&self.path("/sys/module/nvidia"))?;
        self.remove_devices("nvidia")
    }

    /// Loads the Neuron module: sysfs entries and device nodes.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn load_neuron_driver(&self, version: &str) -> anyhow::Result<()> {
        let Some(hardware) = ({
            let mut hardware = self.hardware();
            if let Some(neuron) = &mut hardware.neuron {
                neuron.driver = Some(version.to_owned());
            }
            hardware.neuron.clone()
        }) else {
            anyhow::bail!("{} has no Neuron hardware to load a driver for", self.node);
        };
        let family = hardware.family;
        self.write("/sys/module/neuron/version", &format!("{version}\n"))?;
        self.make_dir("/sys/class/neuron_device")?;
        for device in 0..hardware.devices {
            let below =
                |path: &str| format!("/sys/devices/virtual/neuron_device/neuron{device}/{path}");
            self.write(&below("core_count"), &family.cores().to_string())?;
            let neighbours: Vec<_> = hardware
                .neighbours(device)
                .iter()
                .map(u32::to_string)
                .collect();
            self.write(
                &below("connected_devices"),
                &format!("{}\n", neighbours.join(", ")),
            )?;
            self.write(&below("reset"), "1\n")?;
            self.write(
                &below("info/serial_number"),
                &format!("{}\n", self.serial(device)),
            )?;
            self.write(
                &below("info/architecture/arch_type"),
                &format!("{}\n", family.device_arch()),
            )?;
            self.write(
                &below("info/architecture/instance_type"),
                &format!("{}\n", family.instance_family()),
            )?;
            self.write(
                &below("info/architecture/device_name"),
                &format!("{}\n", family.device_name()),
            )?;
            for core in 0..family.cores() {
                let path = below(&format!("neuron_core{core}/info/architecture/arch_type"));
                self.write(&path, &format!("{}\n", family.core_arch()))?;
            }
            self.write(&format!("/dev/neuron{device}"), "")?;
            symlink(
                format!("../../devices/virtual/neuron_device/neuron{device}"),
                self.path(&format!("/sys/class/neuron_device/neuron{device}")),
            )
            .or_else(|error| {
                if error.kind() == std::io::ErrorKind::AlreadyExists {
                    Ok(())
                } else {
                    Err(error)
                }
            })?;
        }
        Ok(())
    }

    /// Takes the Neuron module away. The PCI functions stay.
    ///
    /// # Errors
    /// When a file cannot be removed.
    pub fn lose_neuron_driver(&self) -> anyhow::Result<()> {
        if let Some(neuron) = &mut self.hardware().neuron {
            neuron.driver = None;
        }
        for dir in [
            "/sys/module/neuron",
            "/sys/devices/virtual/neuron_device",
            "/sys/class/neuron_device",
        ] {
            remove_dir_all(&self.path(dir))?;
        }
        self.remove_devices("neuron")
    }

    fn remove_devices(&self, prefix: &str) -> anyhow::Result<()> {
        for entry in fs::read_dir(self.path("/dev"))? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with(prefix) {
                fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    }

    /// Neuron devices and driver as they are now.
    #[must_use]
    pub fn neuron(&self) -> Option<NeuronHardware> {
        self.hardware().neuron.clone()
    }

    /// UUID of a GPU on this node.
    #[must_use]
    pub fn gpu_uuid(&self, minor: u32) -> String {
        uuid("GPU-", &format!("{}/gpu/{minor}", self.node))
    }

    /// UUID of a MIG instance on this node.
    #[must_use]
    pub fn mig_uuid(&self, minor: u32, instance: &MigInstance) -> String {
        uuid(
            "MIG-",
            &format!(
                "{}/gpu/{minor}/{}/{}",
                self.node, instance.profile.name, instance.start
            ),
        )
    }

    /// Serial number of a Neuron device.
    #[must_use]
    pub fn serial(&self, device: u32) -> String {
        uuid("", &format!("{}/neuron/{device}", self.node))
            .replace('-', "")
            .get(..16)
            .unwrap_or_default()
            .to_owned()
    }

    /// Physical cores per logical NeuronCore now in force: the node's file, else the family's default.
    #[must_use]
    pub fn logical_neuron_core(&self) -> Option<u32> {
        let family = self.neuron()?.family;
        let text =
            fs::read_to_string(self.path("/opt/aws/neuron/logical_nc_config")).unwrap_or_default();
        let set = text.lines().rev().find_map(|line| {
            line.trim()
                .strip_prefix("NEURON_LOGICAL_NC_CONFIG=")?
                .parse()
                .ok()
        });
        Some(
            set.filter(|_| family.lnc_configurable())
                .unwrap_or_else(|| family.default_lnc()),
        )
    }

    pub(super) fn write_pci(&self, shape: &Shape) -> anyhow::Result<()> {
        let function = |bdf: &str, vendor: u16, device: u16, class: u32, numa: u32| {
            let below = |file: &str| format!("/sys/bus/pci/devices/{bdf}/{file}");
            self.write(&below("vendor"), &format!("{vendor:#06x}\n"))?;
            self.write(&below("device"), &format!("{device:#06x}\n"))?;
            self.write(&below("class"), &format!("{class:#08x}\n"))?;
            self.write(&below("numa_node"), &format!("{numa}\n"))
        };
        // Amazon's network and disk controllers share their vendor with Neuron devices: readers must match device ids.
        function("0000:00:05.0", 0x1d0f, 0xec20, 0x02_0000, 0)?;
        function("0000:00:04.0", 0x1d0f, 0x8061, 0x01_0802, 0)?;
        if let Some(hardware) = &shape.nvidia {
            for gpu in &hardware.gpus {
                function(
                    &gpu.bdf,
                    0x10de,
                    hardware.board.pci_device(),
                    0x03_0200,
                    gpu.numa,
                )?;
            }
        }
        if let Some(hardware) = &shape.neuron {
            for device in 0..hardware.devices {
                let numa = u32::from(device >= hardware.devices.div_ceil(2));
                function(
                    &hardware.bdf(device),
                    0x1d0f,
                    hardware.family.pci_device(),
                    0x08_8000,
                    numa,
                )?;
                if let Some(efa) = hardware.device_group(device, 1) {
                    function(&efa, 0x1d0f, 0xefa2, 0x02_0000, numa)?;
                }
            }
        }
        Ok(())
    }
}
