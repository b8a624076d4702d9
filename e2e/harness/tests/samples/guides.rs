//! The manifests that the two guides print, against what the samples make.

use kube::ResourceExt as _;
use serde_json::json;

use crate::rendered_file;

/// The guide's own manifests, against what the sample makes of them.
#[test]
fn the_gpu_guides_classes_and_template_come_out_as_printed() {
    let (_, rendered) = rendered_file("gpu-server-integration");
    let whole =
        r#"device.driver == "gpu.nvidia.com" && device.attributes["gpu.nvidia.com"].type == "gpu""#;
    let large = format!(
        r#"{whole} && device.capacity["gpu.nvidia.com"].memory.isGreaterThan(quantity("40Gi"))"#
    );
    for (name, expression) in [
        ("hybrid-full-gpu", whole),
        ("hybrid-large-gpu", large.as_str()),
    ] {
        let class = rendered
            .device_classes
            .iter()
            .find(|class| class.name_any() == name)
            .expect(name);
        let selectors: Vec<_> = class
            .spec
            .selectors
            .iter()
            .flatten()
            .filter_map(|s| Some(s.cel.as_ref()?.expression.as_str()))
            .collect();
        assert!(selectors.contains(&expression), "{name}: {selectors:?}");
        assert_eq!(class.spec.extended_resource_name, None, "{name}");
    }
    let template = &rendered.claim_templates[0];
    assert_eq!(
        (
            template.namespace().as_deref(),
            template.name_any().as_str()
        ),
        (Some("ai-workloads"), "single-large-gpu")
    );
    assert_eq!(
        serde_json::to_value(&template.spec).unwrap(),
        json!({"spec": {"devices": {"requests": [{
            "name": "gpu",
            "exactly": {"deviceClassName": "hybrid-large-gpu", "allocationMode": "ExactCount", "count": 1},
        }]}}})
    );
}

#[test]
fn the_neuron_write_ups_templates_come_out_as_printed() {
    let (_, rendered) = rendered_file("neuron-dra-on-eks");
    let spec = |name: &str| {
        let template = rendered
            .claim_templates
            .iter()
            .find(|template| template.name_any() == name)
            .expect(name);
        serde_json::to_value(&template.spec.spec).unwrap()
    };
    let selector = |expression: &str| json!([{"cel": {"expression": expression}}]);
    assert_eq!(
        spec("single-neuron-device"),
        json!({"devices": {"requests": [{"name": "neurons", "exactly": {
            "deviceClassName": "neuron.aws.com", "allocationMode": "ExactCount", "count": 1,
            "selectors": selector("device.attributes['neuron.aws.com'].instanceType == 'trn1.2xlarge'"),
        }}]}})
    );
    assert_eq!(
        spec("neuron-with-driver-version")["devices"]["requests"][0]["exactly"]["selectors"],
        selector(
            "device.attributes['neuron.aws.com'].instanceType == 'trn1.2xlarge' && \
         device.attributes['neuron.aws.com'].neuronDriverVersion == '2.26.5.0'"
        )
    );
    assert_eq!(
        spec("neuron-lnc-1"),
        json!({"devices": {
            "requests": [{"name": "neurons", "exactly": {
                "deviceClassName": "neuron.aws.com", "allocationMode": "All",
                "selectors": selector("device.attributes['neuron.aws.com'].instanceType == 'trn2.48xlarge'"),
            }}],
            "config": [{"requests": ["neurons"], "opaque": {"driver": "neuron.aws.com", "parameters": {
                "apiVersion": "neuron.aws.com/v1", "kind": "NeuronConfig", "logicalNeuronCore": 1,
            }}}],
        }})
    );
}
