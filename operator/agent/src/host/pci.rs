//! Accelerators on the PCI bus, with or without a driver.

use freehold_core::vendor::{PerVendor, Vendor};

use super::{Host, ReadError};

const DEVICES: &str = "/sys/bus/pci/devices";

const NVIDIA: u32 = 0x10de;
const AMAZON: u32 = 0x1d0f;

/// Neuron functions of Amazon's PCI vendor ID, which EFA, ENA and NVMe share: Inf1, Trn1, Inf2, Trn2, Trn3 (aws-neuron-driver
/// 2.24, and the newer file for Trn3).
const NEURON_DEVICES: [u32; 9] = [
    0x7064, 0x7065, 0x7066, 0x7067, 0x7164, 0x7264, 0x7364, 0x7564, 0x7565,
];

/// PCI class codes (base and sub-class) of a GPU: VGA controller and 3D controller. An NVIDIA board also shows audio, USB and
/// bridge functions, and NVSwitches are bridges.
const GPU_CLASSES: [u32; 2] = [0x0300, 0x0302];

/// Counts the vendors' devices on the bus.
///
/// # Errors
/// When the bus, or one function's identity, cannot be read.
pub fn count(host: &Host) -> Result<PerVendor<i32>, ReadError> {
    let mut counts = PerVendor::default();
    let names = host
        .names(DEVICES)?
        .ok_or_else(|| ReadError::new(DEVICES, "no such directory"))?;
    for name in names {
        let directory = format!("{DEVICES}/{name}");
        // Virtual functions of an SR-IOV GPU belong to guests, not to this node.
        if host.exists(&format!("{directory}/physfn"))? {
            continue;
        }
        let (Some(maker), Some(device), Some(class)) = (
            hex(host, &directory, "vendor")?,
            hex(host, &directory, "device")?,
            hex(host, &directory, "class")?,
        ) else {
            continue;
        };
        if let Some(vendor) = classify(maker, device, class) {
            let count: &mut i32 = counts.get_mut(vendor);
            *count = count.saturating_add(1);
        }
    }
    Ok(counts)
}

fn classify(maker: u32, device: u32, class: u32) -> Option<Vendor> {
    if maker == NVIDIA && GPU_CLASSES.contains(&(class >> 8)) {
        Some(Vendor::Nvidia)
    } else if maker == AMAZON && NEURON_DEVICES.contains(&device) {
        Some(Vendor::Neuron)
    } else {
        None
    }
}

/// One identity file, such as `0x10de`. A function that vanished between listing and reading is no device.
fn hex(host: &Host, directory: &str, file: &str) -> Result<Option<u32>, ReadError> {
    let path = format!("{directory}/{file}");
    let Some(text) = host.text(&path)? else {
        return Ok(None);
    };
    match u32::from_str_radix(text.trim_start_matches("0x"), 16) {
        Ok(value) => Ok(Some(value)),
        Err(error) => Err(ReadError::new(
            path,
            format_args!("{text:?} is not a hexadecimal number: {error}"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpu_is_told_from_the_other_functions_of_its_board() {
        assert_eq!(classify(0x10de, 0x2330, 0x03_02_00), Some(Vendor::Nvidia));
        assert_eq!(classify(0x10de, 0x2684, 0x03_00_00), Some(Vendor::Nvidia));
        assert_eq!(classify(0x10de, 0x22ba, 0x04_03_00), None, "audio");
        assert_eq!(classify(0x10de, 0x22a3, 0x06_80_00), None, "NVSwitch");
    }

    #[test]
    fn a_neuron_device_is_told_from_the_other_amazon_devices() {
        assert_eq!(classify(0x1d0f, 0x7364, 0x08_80_00), Some(Vendor::Neuron));
        assert_eq!(classify(0x1d0f, 0xefa2, 0x02_00_00), None, "EFA");
        assert_eq!(classify(0x1d0f, 0x8061, 0x01_08_02), None, "NVMe");
        assert_eq!(
            classify(0x8086, 0x7364, 0x08_80_00),
            None,
            "another maker's device of the same number"
        );
    }
}
