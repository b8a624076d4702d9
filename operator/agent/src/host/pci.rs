//! Accelerators on the PCI bus, with or without a driver.

use freehold_core::catalogue::pci_vendor;
use freehold_core::vendor::PerVendor;

use super::{Host, ReadError};

const DEVICES: &str = "/sys/bus/pci/devices";

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
        if let Some(vendor) = pci_vendor(maker, device, class) {
            let count: &mut i32 = counts.get_mut(vendor);
            *count = count.saturating_add(1);
        }
    }
    Ok(counts)
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
