//! Equal input gives equal bytes, and each hash moves with what it stands for.

#![allow(clippy::expect_used, reason = "what cannot be read ends the test")]

mod support;

use freehold_core::names;
use freehold_render::{Rendered, render};
use support::{SPEC, annotation, daemon_set, operand, plan, rendered, rendered_with, settings};

fn bytes(rendered: &Rendered) -> String {
    let mut all = vec![serde_json::to_string(&rendered.agent).expect("JSON")];
    all.extend(
        rendered
            .operands
            .iter()
            .map(|operand| serde_json::to_string(&operand.daemon_set).expect("JSON")),
    );
    all.extend(
        rendered
            .device_classes
            .iter()
            .map(|class| serde_json::to_string(class).expect("JSON")),
    );
    all.extend(
        rendered
            .claim_templates
            .iter()
            .map(|template| serde_json::to_string(template).expect("JSON")),
    );
    all.join("\n")
}

#[test]
fn equal_input_gives_the_same_bytes() {
    assert_eq!(bytes(&rendered()), bytes(&rendered()));
}

#[test]
fn the_order_of_cohorts_sizes_labels_and_namespaces_does_not_matter() {
    let (cohorts, sizes) = SPEC.split_once("sizes:\n").expect("both lists");
    let reversed = |list: &str| {
        let mut items: Vec<String> = list
            .split("\n- ")
            .map(|item| item.trim_end().to_owned())
            .collect();
        items.reverse();
        items.join("\n- ")
    };
    let cohorts = cohorts
        .trim_start()
        .strip_prefix("cohorts:\n- ")
        .expect("cohorts");
    let sizes = sizes.strip_prefix("- ").expect("sizes");
    let shuffled = format!(
        "cohorts:\n- {}\nsizes:\n- {}\n",
        reversed(cohorts),
        reversed(sizes)
    )
    .replace("[team-b, team-a]", "[team-a, team-b]")
    .replace("[frozen, cold]", "[cold, frozen]");
    assert_ne!(shuffled.trim(), SPEC.trim());
    assert_eq!(
        bytes(&render(&plan(&shuffled), &settings())),
        bytes(&rendered())
    );
}

#[test]
fn the_hashes_on_the_pods_are_those_that_decisions_take() {
    let rendered = rendered();
    for operand in &rendered.operands {
        let daemon_set = daemon_set(&rendered, &operand.cohort);
        let cohort = &rendered.intent.cohorts[&operand.cohort];
        assert!(!cohort.shape.is_empty() && !cohort.template.is_empty());
        assert_eq!(
            (&cohort.shape, &cohort.template),
            (&operand.shape, &operand.template)
        );
        assert_eq!(
            annotation(daemon_set, names::SHAPE_ANNOTATION),
            Some(cohort.shape.as_str())
        );
        assert_eq!(
            annotation(daemon_set, names::TEMPLATE_ANNOTATION),
            Some(cohort.template.as_str())
        );
    }
}

#[test]
fn each_change_moves_the_hashes_of_its_class_and_of_its_cohort_alone() {
    let before = rendered();
    for (from, to, cohort, shape, template) in [
        // Restarts.
        (
            "driverRoot: /opt/drv",
            "driverRoot: /opt/drive",
            "cut",
            false,
            true,
        ),
        (
            "requests: {cpu: 25m}",
            "requests: {cpu: 26m}",
            "cut",
            false,
            true,
        ),
        (
            "failRequestsGreaterThanOne: false",
            "failRequestsGreaterThanOne: true",
            "sliced",
            false,
            true,
        ),
        ("gpu-dra:odd-2", "gpu-dra:odd-3", "basalt", false, true),
        // Reshapes.
        ("replicas: 5", "replicas: 7", "sliced", true, true),
        ("{2g.20gb: 3}", "{2g.20gb: 2}", "cut", true, false),
        (
            "DeviceMetadata: true",
            "DeviceMetadata: false",
            "basalt",
            true,
            true,
        ),
        ("replicas: 6", "replicas: 8", "shared-mps", true, true),
        // The daemon's clients end with its pod, so no template of it is replaced under them.
        (
            "name: shared-mps\n  vendor: NVIDIA",
            "name: shared-mps\n  image: mirror.acme.example/x:1\n  vendor: NVIDIA",
            "shared-mps",
            true,
            true,
        ),
        // Nothing on the node.
        ("{rack: r9}", "{rack: r10}", "aspen", false, false),
        (
            "sizes:",
            "rollout: {paused: true}\nsizes:",
            "aspen",
            false,
            false,
        ),
    ] {
        let after = rendered_with(from, to);
        for operand_before in &before.operands {
            let operand_after = operand(&after, &operand_before.cohort);
            let concerned = operand_before.cohort == cohort;
            let what = format!("{from} -> {to}, {}", operand_before.cohort);
            assert_eq!(
                operand_before.shape != operand_after.shape,
                concerned && shape,
                "shape: {what}"
            );
            assert_eq!(
                operand_before.template != operand_after.template,
                concerned && template,
                "template: {what}"
            );
        }
    }
}

#[test]
fn a_change_in_the_users_own_file_is_a_reshape() {
    let before = rendered();
    let mut edited = settings();
    for content in edited.plugin_configs.values_mut() {
        content.push_str("  failOnInitError: false\n");
    }
    let after = render(&plan(SPEC), &edited);
    assert_ne!(
        operand(&before, "own-file").shape,
        operand(&after, "own-file").shape
    );
    assert_ne!(
        operand(&before, "own-file").template,
        operand(&after, "own-file").template
    );
    assert_eq!(operand(&before, "cut"), operand(&after, "cut"));
}

#[test]
fn a_new_agent_image_restarts_operands_without_a_drain_but_for_mps() {
    let before = rendered();
    let mut newer = settings();
    newer.agent_image = "mirror.acme.example/node-agent:odd-10".into();
    let after = render(&plan(SPEC), &newer);
    for operand_before in &before.operands {
        let operand_after = operand(&after, &operand_before.cohort);
        assert_ne!(
            operand_before.template, operand_after.template,
            "{}",
            operand_before.cohort
        );
        let reshaped = operand_before.shape != operand_after.shape;
        assert_eq!(
            reshaped,
            operand_before.cohort == "shared-mps",
            "{}",
            operand_before.cohort
        );
    }
}
