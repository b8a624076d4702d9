//! Sizes: ResourceClaimTemplates and DeviceClasses under the names that ML engineers use.

use freehold_api::plan::{SizeCount, SizePlan, SizeVendor};
use freehold_core::vendor::Vendor;
use k8s_openapi::api::resource::v1::{
    DeviceClaim, DeviceClaimConfiguration, DeviceClass, DeviceClassConfiguration, DeviceClassSpec,
    DeviceConstraint, DeviceRequest, ExactDeviceRequest, OpaqueDeviceConfiguration,
    ResourceClaimSpec, ResourceClaimTemplate, ResourceClaimTemplateSpec,
};
use k8s_openapi::apimachinery::pkg::runtime::RawExtension;
use serde_json::json;

use crate::classes::{self, base_class, base_expression, selector};
use crate::{Settings, meta};

/// Value of the component label.
const COMPONENT: &str = "size";

/// Classes of the sizes that name one: the vendor's selector and the size's own.
pub(crate) fn device_classes(sizes: &[SizePlan], settings: &Settings) -> Vec<DeviceClass> {
    sizes
        .iter()
        .filter_map(|size| {
            let name = size.device_class.as_ref()?;
            let own = size.selectors.iter().map(String::as_str);
            let spec = DeviceClassSpec {
                selectors: Some(
                    std::iter::once(base_expression(size.devices))
                        .chain(own)
                        .map(selector)
                        .collect(),
                ),
                // A setting of the class holds for every claim on it, whoever writes the claim.
                config: opaque(size).map(|opaque| {
                    vec![DeviceClassConfiguration {
                        opaque: Some(opaque),
                    }]
                }),
                extended_resource_name: None,
            };
            Some(classes::class(name, COMPONENT, spec, settings))
        })
        .collect()
}

/// A template in each of a size's namespaces.
pub(crate) fn claim_templates(
    sizes: &[SizePlan],
    settings: &Settings,
) -> Vec<ResourceClaimTemplate> {
    let mut templates: Vec<ResourceClaimTemplate> = sizes
        .iter()
        .flat_map(|size| {
            size.namespaces.iter().map(|namespace| {
                meta::seal(ResourceClaimTemplate {
                    metadata: meta::object(
                        &size.name,
                        Some(namespace),
                        meta::map([(meta::APP_COMPONENT, COMPONENT)]),
                        settings,
                    ),
                    spec: ResourceClaimTemplateSpec {
                        metadata: None,
                        spec: claim(size),
                    },
                })
            })
        })
        .collect();
    templates.sort_by(|a, b| {
        (&a.metadata.namespace, &a.metadata.name).cmp(&(&b.metadata.namespace, &b.metadata.name))
    });
    templates
}

fn claim(size: &SizePlan) -> ResourceClaimSpec {
    let SizePlan {
        name: _,
        devices,
        namespaces: _,
        device_class,
        request,
        count,
        align_by,
        selectors,
    } = size;
    let requests = Some(vec![request.clone()]);
    let (allocation_mode, count) = match count {
        SizeCount::Exactly(count) => ("ExactCount", Some(i64::from(*count))),
        SizeCount::All => ("All", None),
    };
    // A class of the size's own carries its selectors and settings already.
    let (class, selectors, config) = match device_class {
        Some(class) => (class.as_str(), None, None),
        None => {
            let own: Vec<_> = selectors.iter().map(String::as_str).map(selector).collect();
            let config = opaque(size).map(|opaque| {
                vec![DeviceClaimConfiguration {
                    requests: requests.clone(),
                    opaque: Some(opaque),
                }]
            });
            (
                base_class(*devices),
                (!own.is_empty()).then_some(own),
                config,
            )
        }
    };
    let exactly = ExactDeviceRequest {
        device_class_name: class.into(),
        selectors,
        allocation_mode: Some(allocation_mode.into()),
        count,
        ..ExactDeviceRequest::default()
    };
    let constraint = |attribute: &String| {
        vec![DeviceConstraint {
            requests: requests.clone(),
            match_attribute: Some(attribute.clone()),
            distinct_attribute: None,
        }]
    };
    ResourceClaimSpec {
        devices: Some(DeviceClaim {
            requests: Some(vec![DeviceRequest {
                name: request.clone(),
                exactly: Some(exactly),
                first_available: None,
            }]),
            constraints: align_by.as_ref().map(constraint),
            config,
        }),
    }
}

/// The Logical NeuronCore setting as the Neuron DRA driver takes it. It decodes strictly: a misspelt field keeps pods from
/// starting.
fn opaque(size: &SizePlan) -> Option<OpaqueDeviceConfiguration> {
    let SizeVendor::Neuron {
        logical_neuron_core: Some(value),
    } = size.devices
    else {
        return None;
    };
    Some(OpaqueDeviceConfiguration {
        driver: Vendor::Neuron.dra_driver().into(),
        parameters: RawExtension(json!({
            "apiVersion": "neuron.aws.com/v1",
            "kind": "NeuronConfig",
            "logicalNeuronCore": value,
        })),
    })
}
