//! The vendors' own DeviceClasses.

use std::collections::BTreeMap;

use freehold_api::DeviceType;
use freehold_api::plan::{CohortPlan, SizeVendor};
use freehold_core::vendor::{Owner, Vendor};
use k8s_openapi::api::resource::v1::{
    CELDeviceSelector, DeviceClass, DeviceClassSpec, DeviceSelector,
};

use crate::{Settings, meta};

/// Resource name that the GPU class answers to when asked to.
const GPU_RESOURCE: &str = "nvidia.com/gpu";

/// The classes of every vendor that has a cohort under DRA. They are shared by its cohorts.
pub(crate) fn render(
    cohorts: &[CohortPlan],
    publish_extended_resource: bool,
    settings: &Settings,
) -> Vec<DeviceClass> {
    let under_dra = |vendor: Vendor| {
        cohorts
            .iter()
            .any(|plan| plan.cohort.vendor == vendor && plan.cohort.owner == Owner::Dra)
    };
    let mut classes = Vec::new();
    if under_dra(Vendor::Nvidia) {
        classes.extend(
            [DeviceType::Gpu, DeviceType::Mig, DeviceType::Vfio].map(|kind| {
                // Only whole GPUs: the name means them to everybody who asks for it.
                let extended_resource_name = match kind {
                    DeviceType::Gpu => publish_extended_resource.then(|| GPU_RESOURCE.to_owned()),
                    DeviceType::Mig | DeviceType::Vfio => None,
                };
                let devices = SizeVendor::Nvidia(kind);
                let spec = DeviceClassSpec {
                    selectors: Some(vec![selector(base_expression(devices))]),
                    extended_resource_name,
                    config: None,
                };
                class(base_class(devices), "vendor-class", spec, settings)
            }),
        );
    }
    if under_dra(Vendor::Neuron) {
        let devices = SizeVendor::Neuron {
            logical_neuron_core: None,
        };
        let spec = DeviceClassSpec {
            selectors: Some(vec![selector(base_expression(devices))]),
            ..DeviceClassSpec::default()
        };
        classes.push(class(base_class(devices), "vendor-class", spec, settings));
    }
    classes
}

pub(crate) fn class(
    name: &str,
    component: &str,
    spec: DeviceClassSpec,
    settings: &Settings,
) -> DeviceClass {
    let labels: BTreeMap<String, String> = meta::map([(meta::APP_COMPONENT, component)]);
    meta::seal(DeviceClass {
        metadata: meta::object(name, None, labels, settings),
        spec,
    })
}

pub(crate) fn selector(expression: impl Into<String>) -> DeviceSelector {
    DeviceSelector {
        cel: Some(CELDeviceSelector {
            expression: expression.into(),
        }),
    }
}

/// The vendor's class for a kind of device.
pub(crate) const fn base_class(devices: SizeVendor) -> &'static str {
    match devices {
        SizeVendor::Nvidia(DeviceType::Gpu) => "gpu.nvidia.com",
        SizeVendor::Nvidia(DeviceType::Mig) => "mig.nvidia.com",
        SizeVendor::Nvidia(DeviceType::Vfio) => "vfio.gpu.nvidia.com",
        SizeVendor::Neuron {
            logical_neuron_core: _,
        } => "neuron.aws.com",
    }
}

/// Its selector, as in the charts of the NVIDIA DRA driver 0.5.0 and of Neuron 1.10.0.
pub(crate) const fn base_expression(devices: SizeVendor) -> &'static str {
    match devices {
        SizeVendor::Nvidia(DeviceType::Gpu) => {
            "device.driver == 'gpu.nvidia.com' && device.attributes['gpu.nvidia.com'].type == 'gpu'"
        }
        SizeVendor::Nvidia(DeviceType::Mig) => {
            "device.driver == 'gpu.nvidia.com' && device.attributes['gpu.nvidia.com'].type == 'mig'"
        }
        SizeVendor::Nvidia(DeviceType::Vfio) => {
            "device.driver == 'gpu.nvidia.com' && device.attributes['gpu.nvidia.com'].type == 'vfio'"
        }
        SizeVendor::Neuron {
            logical_neuron_core: _,
        } => "device.driver == 'neuron.aws.com'",
    }
}
