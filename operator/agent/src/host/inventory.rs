//! What both vendors' inventories share.

use freehold_core::report::{Inventory, LayoutReport};
use freehold_core::vendor::{PerVendor, Vendor};

use super::mig::MigProfiles;
use super::{Host, ReadError, mig, neuron, nvidia, pci};

/// Longest instance type kept: the API's bound.
const MAX_INSTANCE_TYPE: usize = 64;

/// Devices of one vendor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Devices {
    /// On the bus, served or not.
    pub pci: i32,
    /// Served by a driver.
    pub inventory: Inventory,
    /// Their geometry.
    pub layout: LayoutReport,
}

impl Devices {
    /// Whether the host has hardware or a driver of the vendor.
    #[must_use]
    pub const fn any(&self) -> bool {
        self.pci > 0 || self.inventory.devices > 0 || self.inventory.driver_version.is_some()
    }
}

/// Both vendors' devices, MIG instances named by `profiles`. What cannot be read is left empty and named in `errors`.
pub fn devices(
    host: &Host,
    profiles: &dyn MigProfiles,
    errors: &mut Vec<ReadError>,
) -> PerVendor<Devices> {
    let pci = noted(errors, PerVendor::default(), || pci::count(host));
    PerVendor::from_fn(|vendor| {
        let (inventory, layout) = match vendor {
            Vendor::Nvidia => {
                let inventory = nvidia::inventory(host, errors);
                let layout = noted(errors, LayoutReport::default(), || {
                    mig::layout(host, profiles)
                });
                (inventory, layout)
            }
            Vendor::Neuron => neuron::inventory(host, errors),
        };
        Devices {
            pci: *pci.get(vendor),
            inventory,
            layout,
        }
    })
}

/// The instance type as the firmware says it.
///
/// # Errors
/// When the file is there and cannot be read.
pub fn instance_type(host: &Host) -> Result<Option<String>, ReadError> {
    let text = host.text("/sys/devices/virtual/dmi/id/product_name")?;
    Ok(text
        .filter(|name| !name.is_empty())
        .map(|name| name.chars().take(MAX_INSTANCE_TYPE).collect()))
}

/// The value, or `otherwise` with the error noted.
pub(super) fn noted<T>(
    errors: &mut Vec<ReadError>,
    otherwise: T,
    read: impl FnOnce() -> Result<T, ReadError>,
) -> T {
    read().unwrap_or_else(|error| {
        errors.push(error);
        otherwise
    })
}
