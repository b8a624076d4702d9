//! Every object of the fixture, whole. A change here is a change on every cluster: read it before accepting it.

mod support;

use support::{daemon_set, rendered, rendered_with};

#[test]
fn operands_of_every_kind_and_variant() {
    let rendered = rendered();
    for operand in &rendered.operands {
        insta::assert_yaml_snapshot!(
            format!("operand-{}", operand.cohort),
            daemon_set(&rendered, &operand.cohort)
        );
    }
}

#[test]
fn agents_for_all_of_them() {
    insta::assert_yaml_snapshot!("agent", rendered().agent);
}

#[test]
fn shapers_for_each_vendor() {
    for shaper in rendered().shapers {
        insta::assert_yaml_snapshot!(support::name(&shaper).to_owned(), shaper);
    }
}

#[test]
fn classes_with_the_extended_resource_omitted() {
    insta::assert_yaml_snapshot!("device-classes", rendered().device_classes);
}

#[test]
fn the_gpu_class_alone_publishes_the_extended_resource() {
    let publish = "dra: {extendedResourceName: Publish, featureGates";
    let both = support::SPEC
        .replace(
            "rack: r6}}",
            "rack: r6}}\n  nvidia: {dra: {extendedResourceName: Publish}}",
        )
        .replace("dra: {featureGates", publish);
    let published = freehold_render::render(&support::plan(&both), &support::settings());
    let names: Vec<(&str, Option<&str>)> = published
        .device_classes
        .iter()
        .map(|class| {
            (
                class.metadata.name.as_deref().expect("a name"),
                class.spec.extended_resource_name.as_deref(),
            )
        })
        .collect();
    assert_eq!(
        names,
        [
            ("acme-big-gpu", None),
            ("acme-neuron-lnc2", None),
            ("gpu.nvidia.com", Some("nvidia.com/gpu")),
            ("mig.nvidia.com", None),
            ("neuron.aws.com", None),
            ("vfio.gpu.nvidia.com", None),
        ]
    );
}

#[test]
fn claim_templates() {
    insta::assert_yaml_snapshot!("claim-templates", rendered().claim_templates);
}

#[test]
fn vendors_without_a_cohort_under_dra_have_no_class() {
    let without_nvidia = support::SPEC.replace("owner: DRA", "owner: DevicePlugin").replace(
        "dra: {featureGates: {TimeSlicingSettings: false, PassthroughSupport: true, DeviceMetadata: true}}",
        "acceptUnknownDriver: true",
    );
    let rendered = freehold_render::render(&support::plan(&without_nvidia), &support::settings());
    let names: Vec<&str> = rendered
        .device_classes
        .iter()
        .filter_map(|class| class.metadata.name.as_deref())
        .collect();
    assert_eq!(names, ["acme-big-gpu", "acme-neuron-lnc2"]);
    // Nothing else went with them.
    assert_eq!(
        rendered.claim_templates,
        rendered_with("acme-pull-2", "acme-pull-3").claim_templates
    );
}
