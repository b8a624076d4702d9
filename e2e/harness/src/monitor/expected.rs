//! What a node must advertise, worked out anew from the hardware that its agent reports: where a cohort asks for nothing that
//! changes names or counts, one advertised device for each device of the host. Other cohorts are judged by whether anything is
//! advertised at all.

use freehold_api::{AcceleratorCluster, Cohort, DevicePlugin, Dra, MigStrategy, Nvidia};
use freehold_core::report::VendorReport;
use freehold_core::vendor::Vendor;

/// The extended resource that stands for one whole device.
pub(super) const fn whole_device(vendor: Vendor) -> &'static str {
    match vendor {
        Vendor::Nvidia => "nvidia.com/gpu",
        Vendor::Neuron => "aws.amazon.com/neuron",
    }
}

/// How many devices a node of this cohort must advertise; `None` where that takes more than counting.
pub(super) fn devices(
    cluster: &AcceleratorCluster,
    cohort: &str,
    vendor: Vendor,
    report: &VendorReport,
) -> Option<u64> {
    let mut cohorts = cluster.spec.cohorts.iter();
    let cohort = cohorts.find(|known| known.name == cohort && known.vendor == vendor)?;
    let devices = u64::try_from(report.inventory.devices).ok()?;
    (is_plain(cohort) && report.layout.mig_enabled_gpus == 0 && devices > 0).then_some(devices)
}

fn is_plain(cohort: &Cohort) -> bool {
    let nvidia = cohort.nvidia.as_ref().is_none_or(|nvidia| {
        let Nvidia {
            device_plugin,
            dra,
            mig,
            ..
        } = nvidia;
        mig.is_none()
            && device_plugin.as_ref().is_none_or(shares_nothing)
            && dra
                .as_ref()
                .is_none_or(|Dra { feature_gates, .. }| feature_gates.is_empty())
    });
    nvidia && cohort.image.is_none()
}

fn shares_nothing(plugin: &DevicePlugin) -> bool {
    let DevicePlugin {
        mig_strategy,
        time_slicing,
        mps,
        config,
        ..
    } = plugin;
    *mig_strategy == MigStrategy::None
        && time_slicing.is_none()
        && mps.is_none()
        && config.is_none()
}
