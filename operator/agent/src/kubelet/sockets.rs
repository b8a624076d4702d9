//! Plugin sockets and driver registrations, by the names that the vendors' programs give them.

use freehold_core::vendor::{PerVendor, Vendor};

use super::DEVICE_PLUGINS;
use crate::host::{Host, ReadError};

/// Most sockets named: the API's bound.
const MAX_SOCKETS: usize = 8;
/// Longest name: the API's bound.
const MAX_NAME: usize = 128;

/// Sockets of each vendor in the kubelet's device-plugin directory.
///
/// # Errors
/// When the directory is there and cannot be read.
pub fn plugins(host: &Host) -> Result<PerVendor<Vec<String>>, ReadError> {
    let names = host.names(DEVICE_PLUGINS)?.unwrap_or_default();
    Ok(PerVendor::from_fn(|vendor| {
        let ours = names.iter().filter(|name| is_plugin_socket(name, vendor));
        ours.take(MAX_SOCKETS)
            .map(|name| name.chars().take(MAX_NAME).collect())
            .collect()
    }))
}

/// NVIDIA's plugin makes `nvidia-<resource>.sock` (GKE's builds `nvidiaGPU-<time>.sock`), Neuron's makes
/// `neuron-devplugin.sock` and `neuroncore-devplugin.sock`.
fn is_plugin_socket(name: &str, vendor: Vendor) -> bool {
    name.strip_suffix(".sock")
        .is_some_and(|stem| stem.to_ascii_lowercase().starts_with(vendor.key()))
}

/// Whether the vendor's DRA driver is registered, or about to be, with the kubelet of one of these roots.
///
/// # Errors
/// When a registry is there and cannot be read.
pub fn dra_registered(host: &Host, roots: &[String]) -> Result<PerVendor<bool>, ReadError> {
    let mut registered = PerVendor::<bool>::default();
    for root in roots {
        for name in host
            .names(&format!("{root}/plugins_registry"))?
            .unwrap_or_default()
        {
            for vendor in Vendor::ALL {
                *registered.get_mut(vendor) |= is_registration(&name, vendor);
            }
        }
    }
    Ok(registered)
}

/// `<driver>-reg.sock`, or `<driver>-<pod UID>-reg.sock` for drivers that overlap during an update.
fn is_registration(name: &str, vendor: Vendor) -> bool {
    name.strip_prefix(vendor.dra_driver())
        .is_some_and(|rest| rest.starts_with('-') && rest.ends_with("-reg.sock"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_are_known_by_their_vendors_names() {
        for name in [
            "nvidia-gpu.sock",
            "nvidia-mig-1g.5gb.sock",
            "nvidiaGPU-1700000000.sock",
        ] {
            assert!(
                is_plugin_socket(name, Vendor::Nvidia) && !is_plugin_socket(name, Vendor::Neuron),
                "{name}"
            );
        }
        for name in ["neuron-devplugin.sock", "neuroncore-devplugin.sock"] {
            assert!(
                is_plugin_socket(name, Vendor::Neuron) && !is_plugin_socket(name, Vendor::Nvidia),
                "{name}"
            );
        }
        for name in [
            "kubelet.sock",
            "kubelet_internal_checkpoint",
            "efa-k8s.sock",
            "nvidia-gpu.sock.old",
        ] {
            assert!(
                !Vendor::ALL
                    .into_iter()
                    .any(|vendor| is_plugin_socket(name, vendor)),
                "{name}"
            );
        }
    }

    #[test]
    fn registrations_are_known_by_the_driver_s_full_name() {
        assert!(is_registration("gpu.nvidia.com-reg.sock", Vendor::Nvidia));
        assert!(is_registration(
            "neuron.aws.com-0b5d8d2e-6a0c-reg.sock",
            Vendor::Neuron
        ));
        assert!(!is_registration(
            "compute-domain.nvidia.com-reg.sock",
            Vendor::Nvidia
        ));
        assert!(!is_registration(
            "gpu.nvidia.com.example-reg.sock",
            Vendor::Nvidia
        ));
    }
}
