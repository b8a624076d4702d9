//! A node's host file tree below a directory: what procfs, sysfs, `/dev`, the kubelet's root and the CDI directory hold on a
//! machine of this shape. The real agent reads it; the simulated kubelet and operands write it.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::Context as _;

use super::checkpoint::{self, ClaimInfo, DriverState2, PodDevices};
use super::shapes::{Gpu, MigInstance, NeuronHardware, NvidiaHardware, Shape, uuid};

/// Where the kubelet keeps device-plugin sockets and its checkpoint of them, whatever its root directory is.
pub const DEVICE_PLUGINS: &str = "/var/lib/kubelet/device-plugins";
/// Where CDI files of dynamically prepared devices live.
pub const CDI: &str = "/var/run/cdi";

/// The tree of one node.
#[derive(Debug)]
pub struct Tree {
    root: PathBuf,
    node: String,
    kubelet_root: String,
    hardware: Mutex<Hardware>,
}

/// What can change about the hardware while the node lives.
#[derive(Debug)]
struct Hardware {
    nvidia: Option<NvidiaHardware>,
    neuron: Option<NeuronHardware>,
    boots: u32,
    boot_id: String,
}

impl Tree {
    /// Builds the tree of a freshly booted machine below `root`.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn create(root: &Path, node: &str, shape: &Shape) -> anyhow::Result<Self> {
        let tree = Self {
            root: root.to_owned(),
            node: node.to_owned(),
            kubelet_root: shape.kubelet_root.clone(),
            hardware: Mutex::new(Hardware {
                nvidia: shape.nvidia.clone(),
                neuron: shape.neuron.clone(),
                boots: 0,
                boot_id: String::new(),
            }),
        };
        for dir in [
            "/proc/sys/kernel/random",
            "/sys/bus/pci/devices",
            "/sys/module",
            "/sys/fs/cgroup/kubepods.slice",
        ] {
            tree.make_dir(dir)?;
        }
        for dir in ["/dev", "/opt/aws/neuron", "/etc", "/run", DEVICE_PLUGINS] {
            tree.make_dir(dir)?;
        }
        for dir in ["pods", "plugins", "plugins_registry"] {
            tree.make_dir(&format!("{}/{dir}", tree.kubelet_root))?;
        }
        // `/var/run` is a link to `/run` on every distribution that EKS runs on.
        symlink("../run", tree.path("/var/run")).context("link /var/run")?;
        tree.make_dir(CDI)?;
        tree.write(
            "/sys/devices/virtual/dmi/id/product_name",
            &format!("{}\n", shape.instance_type),
        )?;
        tree.write_pci(shape)?;
        tree.boot()?;
        tree.write_device_manager(&[], &BTreeMap::new())?;
        tree.write_dra_manager(&[])?;
        if let Some(version) = shape
            .nvidia
            .as_ref()
            .and_then(|hardware| hardware.driver.clone())
        {
            tree.load_nvidia_driver(&version)?;
        }
        if let Some(version) = shape
            .neuron
            .as_ref()
            .and_then(|hardware| hardware.driver.clone())
        {
            tree.load_neuron_driver(&version)?;
        }
        Ok(tree)
    }

    fn hardware(&self) -> MutexGuard<'_, Hardware> {
        self.hardware.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// EC2 instance type, as the firmware says it.
    #[must_use]
    pub fn instance_type(&self) -> String {
        let text = fs::read_to_string(self.path("/sys/devices/virtual/dmi/id/product_name"))
            .unwrap_or_default();
        text.trim().to_owned()
    }

    /// The directory that stands for `/`.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Where an absolute host path lies on this machine.
    #[must_use]
    pub fn path(&self, host: &str) -> PathBuf {
        self.root.join(host.trim_start_matches('/'))
    }

    /// The kubelet's root directory as the host names it.
    #[must_use]
    pub fn kubelet_root(&self) -> &str {
        &self.kubelet_root
    }

    /// A path below the kubelet's root directory.
    #[must_use]
    pub fn kubelet(&self, below: &str) -> PathBuf {
        self.path(&self.kubelet_root).join(below)
    }

    /// A pod's directory.
    #[must_use]
    pub fn pod_dir(&self, uid: &str) -> PathBuf {
        self.kubelet("pods").join(uid)
    }

    fn pod_cgroup(&self, uid: &str) -> PathBuf {
        self.path(&format!(
            "/sys/fs/cgroup/kubepods.slice/kubepods-pod{}.slice",
            uid.replace('-', "_")
        ))
    }

    /// Makes a pod's directory and cgroup, as the kubelet does before anything of the pod runs.
    ///
    /// # Errors
    /// When a directory cannot be made.
    pub fn add_pod(&self, uid: &str) -> anyhow::Result<()> {
        for dir in ["volumes", "containers", "plugins"] {
            make_dir_at(&self.pod_dir(uid).join(dir))?;
        }
        make_dir_at(&self.pod_cgroup(uid))
    }

    /// Removes a pod's cgroup and directory, the last traces of it.
    ///
    /// # Errors
    /// When they exist and cannot be removed.
    pub fn remove_pod(&self, uid: &str) -> anyhow::Result<()> {
        remove_dir_all(&self.pod_cgroup(uid))?;
        remove_dir_all(&self.pod_dir(uid))
    }

    /// What the kubelet leaves of a pod that ended but whose object still exists: its directory, without volumes or cgroup.
    ///
    /// # Errors
    /// When something cannot be removed.
    pub fn empty_pod(&self, uid: &str) -> anyhow::Result<()> {
        remove_dir_all(&self.pod_cgroup(uid))?;
        remove_dir_all(&self.pod_dir(uid).join("volumes"))?;
        make_dir_at(&self.pod_dir(uid).join("volumes"))
    }

    /// A new boot: new boot ID; cgroups, `/run` and with it the CDI files are gone. What lies on disk stays.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn boot(&self) -> anyhow::Result<()> {
        let boot_id = {
            let mut hardware = self.hardware();
            hardware.boots += 1;
            hardware.boot_id = uuid(
                "",
                &format!(
                    "boot/{}/{}/{}",
                    self.root.display(),
                    self.node,
                    hardware.boots
                ),
            );
            hardware.boot_id.clone()
        };
        for volatile in ["/sys/fs/cgroup/kubepods.slice", "/run"] {
            remove_dir_all(&self.path(volatile))?;
            self.make_dir(volatile)?;
        }
        self.make_dir(CDI)?;
        self.write("/proc/sys/kernel/random/boot_id", &format!("{boot_id}\n"))
    }

    /// The present boot ID.
    #[must_use]
    pub fn boot_id(&self) -> String {
        self.hardware().boot_id.clone()
    }

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
        self.write_mig_capabilities(&hardware)
    }

    /// Takes the NVIDIA driver away, as an unloaded or broken module does. The PCI functions stay.
    ///
    /// # Errors
    /// When a file cannot be removed.
    pub fn lose_nvidia_driver(&self) -> anyhow::Result<()> {
        if let Some(nvidia) = &mut self.hardware().nvidia {
            nvidia.driver = None;
        }
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

    /// GPUs and driver as they are now.
    #[must_use]
    pub fn nvidia(&self) -> Option<NvidiaHardware> {
        self.hardware().nvidia.clone()
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

    /// Sets MIG mode and instances of one GPU.
    ///
    /// # Errors
    /// When there is no such GPU or a file cannot be written.
    pub fn set_mig(
        &self,
        minor: u32,
        enabled: bool,
        instances: Vec<MigInstance>,
    ) -> anyhow::Result<()> {
        let hardware = {
            let mut hardware = self.hardware();
            let nvidia = hardware.nvidia.as_mut().context("no NVIDIA hardware")?;
            let gpu: &mut Gpu = nvidia
                .gpus
                .iter_mut()
                .find(|gpu| gpu.minor == minor)
                .context("no such GPU")?;
            gpu.mig_enabled = enabled;
            gpu.mig = instances;
            nvidia.clone()
        };
        if hardware.driver.is_some() {
            self.write_mig_capabilities(&hardware)
        } else {
            Ok(())
        }
    }

    fn write_mig_capabilities(&self, hardware: &NvidiaHardware) -> anyhow::Result<()> {
        let access = |minor: u32| {
            format!("DeviceFileMinor: {minor}\nDeviceFileMode: 292\nDeviceFileModify: 1\n")
        };
        self.write("/proc/driver/nvidia/capabilities/mig/config", &access(1))?;
        self.write("/proc/driver/nvidia/capabilities/mig/monitor", &access(2))?;
        for gpu in &hardware.gpus {
            let dir = format!("/proc/driver/nvidia/capabilities/gpu{}/mig", gpu.minor);
            remove_dir_all(&self.path(&dir))?;
            for instance in &gpu.mig {
                let minor = 3 + gpu.minor * 135 + instance.gi * 9;
                self.write(&format!("{dir}/gi{}/access", instance.gi), &access(minor))?;
                self.write(
                    &format!("{dir}/gi{}/ci0/access", instance.gi),
                    &access(minor + 1),
                )?;
            }
        }
        Ok(())
    }

    fn write_pci(&self, shape: &Shape) -> anyhow::Result<()> {
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

    /// Replaces the kubelet's record of devices given out by device plugins.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write_device_manager(
        &self,
        entries: &[PodDevices],
        registered: &BTreeMap<String, Vec<String>>,
    ) -> anyhow::Result<()> {
        self.write(
            &format!("{DEVICE_PLUGINS}/kubelet_internal_checkpoint"),
            &checkpoint::device_manager(entries, registered)?,
        )
    }

    /// Replaces the kubelet's record of prepared claims.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write_dra_manager(&self, claims: &[ClaimInfo]) -> anyhow::Result<()> {
        self.write(
            &format!("{}/dra_manager_state", self.kubelet_root),
            &checkpoint::dra_manager(claims)?,
        )
    }

    fn driver_checkpoint(&self, driver: &str) -> String {
        format!("{}/plugins/{driver}/checkpoint.json", self.kubelet_root)
    }

    /// Replaces a DRA driver's own record.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write_driver_checkpoint(
        &self,
        driver: &str,
        state: &DriverState2,
    ) -> anyhow::Result<()> {
        self.write(
            &self.driver_checkpoint(driver),
            &checkpoint::dra_driver(state)?,
        )
    }

    /// Reads a DRA driver's own record; a missing file is an empty one.
    ///
    /// # Errors
    /// When the file is corrupt.
    pub fn read_driver_checkpoint(&self, driver: &str) -> anyhow::Result<DriverState2> {
        match fs::read_to_string(self.path(&self.driver_checkpoint(driver))) {
            Ok(text) => checkpoint::read_dra_driver(&text),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                Ok(DriverState2::default())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Listens on a Unix socket at a host path, replacing what lies there.
    ///
    /// # Errors
    /// When the path is too long for a socket or its directory cannot be made.
    pub fn listen(&self, host: &str) -> anyhow::Result<UnixListener> {
        let path = self.path(host);
        if let Some(parent) = path.parent() {
            make_dir_at(parent)?;
        }
        remove_file(&path)?;
        UnixListener::bind(&path).with_context(|| format!("listen on {}", path.display()))
    }

    /// Removes a file at a host path, if it is there.
    ///
    /// # Errors
    /// When it is there and cannot be removed.
    pub fn remove(&self, host: &str) -> anyhow::Result<()> {
        remove_file(&self.path(host))
    }

    /// Makes a directory at a host path.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn make_dir(&self, host: &str) -> anyhow::Result<()> {
        make_dir_at(&self.path(host))
    }

    /// Replaces a file at a host path by rename, so that readers see the old or the new content and nothing between.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, host: &str, content: &str) -> anyhow::Result<()> {
        write_atomically(&self.path(host), content)
    }
}

fn make_dir_at(path: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(path).with_context(|| format!("make {}", path.display()))
}

/// Replaces a file by rename.
pub(super) fn write_atomically(path: &Path, content: &str) -> anyhow::Result<()> {
    let parent = path.parent().context("a file has a parent directory")?;
    make_dir_at(parent)?;
    let mut file = tempfile::NamedTempFile::new_in(parent)
        .with_context(|| format!("write {}", path.display()))?;
    file.write_all(content.as_bytes())?;
    file.as_file()
        .set_permissions(fs::Permissions::from_mode(0o644))?;
    file.persist(path)
        .with_context(|| format!("write {}", path.display()))?;
    Ok(())
}

/// Removes a directory tree, if it is there.
pub(super) fn remove_dir_all(path: &Path) -> anyhow::Result<()> {
    gone_is_fine(fs::remove_dir_all(path)).with_context(|| format!("remove {}", path.display()))
}

/// Removes a file, if it is there.
pub(super) fn remove_file(path: &Path) -> anyhow::Result<()> {
    gone_is_fine(fs::remove_file(path)).with_context(|| format!("remove {}", path.display()))
}

fn gone_is_fine(result: std::io::Result<()>) -> std::io::Result<()> {
    match result {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(shape: &Shape) -> (tempfile::TempDir, Tree) {
        let dir = tempfile::tempdir().unwrap();
        let tree = Tree::create(dir.path(), "basalt-7", shape).unwrap();
        (dir, tree)
    }

    fn entries(tree: &Tree, host: &str) -> usize {
        fs::read_dir(tree.path(host)).map_or(0, Iterator::count)
    }

    #[test]
    fn a_lost_driver_leaves_the_pci_functions_and_comes_back_whole() {
        let (_dir, tree) = tree(&Shape::h100());
        assert_eq!(entries(&tree, "/proc/driver/nvidia/gpus"), 8);
        let functions = entries(&tree, "/sys/bus/pci/devices");
        tree.lose_nvidia_driver().unwrap();
        assert!(!tree.path("/proc/driver/nvidia/version").exists());
        assert!(!tree.path("/dev/nvidia0").exists());
        assert_eq!(entries(&tree, "/sys/bus/pci/devices"), functions);
        tree.load_nvidia_driver("590.11.03").unwrap();
        assert!(
            fs::read_to_string(tree.path("/proc/driver/nvidia/version"))
                .unwrap()
                .contains("590.11.03")
        );
    }

    #[test]
    fn hardware_without_driver_is_on_the_bus_only() {
        let (_dir, tree) = tree(&Shape::h100_without_driver());
        assert!(!tree.path("/proc/driver/nvidia").exists());
        assert_eq!(entries(&tree, "/sys/bus/pci/devices"), 10);
    }

    #[test]
    fn mig_instances_show_as_capabilities() {
        let (_dir, tree) = tree(&Shape::a100_mig());
        assert_eq!(
            entries(&tree, "/proc/driver/nvidia/capabilities/gpu0/mig"),
            7
        );
        assert_eq!(
            entries(&tree, "/proc/driver/nvidia/capabilities/gpu7/mig"),
            4
        );
        tree.set_mig(0, false, Vec::new()).unwrap();
        assert_eq!(
            entries(&tree, "/proc/driver/nvidia/capabilities/gpu0/mig"),
            0
        );
    }

    #[test]
    fn a_reboot_changes_the_boot_id_and_forgets_only_what_is_volatile() {
        let (_dir, tree) = tree(&Shape::trn2_48xlarge());
        tree.write("/var/lib/freehold/neuron/owner", "dra\n")
            .unwrap();
        tree.write(&format!("{CDI}/claim.yaml"), "x").unwrap();
        tree.add_pod("u-1").unwrap();
        let before = fs::read_to_string(tree.path("/proc/sys/kernel/random/boot_id")).unwrap();
        tree.boot().unwrap();
        let after = fs::read_to_string(tree.path("/proc/sys/kernel/random/boot_id")).unwrap();
        assert_ne!(before, after);
        assert_eq!(after.trim(), tree.boot_id());
        assert!(tree.path("/var/lib/freehold/neuron/owner").exists());
        assert!(tree.pod_dir("u-1").exists());
        assert!(!tree.pod_cgroup("u-1").exists());
        assert!(!tree.path(&format!("{CDI}/claim.yaml")).exists());
    }

    #[test]
    fn the_lnc_file_decides_where_the_family_has_a_choice() {
        let (_dir, trn2) = tree(&Shape::trn2_3xlarge());
        assert_eq!(trn2.logical_neuron_core(), Some(2));
        trn2.write(
            "/opt/aws/neuron/logical_nc_config",
            "NEURON_LOGICAL_NC_CONFIG=1\n",
        )
        .unwrap();
        assert_eq!(trn2.logical_neuron_core(), Some(1));
        let (_dir, trn1) = tree(&Shape::trn1_2xlarge());
        trn1.write(
            "/opt/aws/neuron/logical_nc_config",
            "NEURON_LOGICAL_NC_CONFIG=2\n",
        )
        .unwrap();
        assert_eq!(trn1.logical_neuron_core(), Some(1));
    }

    #[test]
    fn a_relocated_kubelet_root_moves_everything_but_the_device_plugin_directory() {
        let (_dir, tree) = tree(&Shape::h100().with_kubelet_root("/mnt/state/kubelet"));
        assert!(tree.path("/mnt/state/kubelet/dra_manager_state").exists());
        assert!(!tree.path("/var/lib/kubelet/dra_manager_state").exists());
        assert!(
            tree.path("/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint")
                .exists()
        );
    }
}
