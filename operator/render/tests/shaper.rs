//! The DaemonSets that make layouts.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "what cannot be read ends the test"
)]

mod support;

use freehold_core::vendor::Vendor;
use freehold_render::{render, shaper_name, shaper_of};
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Container, SecurityContext};
use support::{SPEC, container, containers, daemon_set, name, plan, pod, rendered, settings};

fn shaper(spec: &str, wanted: &str) -> Option<DaemonSet> {
    let shapers = render(&plan(spec), &settings()).shapers;
    shapers.into_iter().find(|set| name(set) == wanted)
}

fn only_container(set: &DaemonSet) -> Container {
    let mut all: Vec<_> = containers(set).cloned().collect();
    assert_eq!(all.len(), 1);
    all.remove(0)
}

fn writable(container: &Container) -> Vec<&str> {
    let mounts = container.volume_mounts.iter().flatten();
    mounts
        .filter(|mount| mount.read_only != Some(true))
        .map(|mount| mount.mount_path.as_str())
        .collect()
}

#[test]
fn there_is_one_for_each_cohort_with_a_layout_and_no_other() {
    let rendered = rendered();
    let names: Vec<&str> = rendered.shapers.iter().map(name).collect();
    assert_eq!(names, ["neuron-shaper-aspen", "nvidia-shaper-cut"]);
    assert!(render(&plan("cohorts: []"), &settings()).shapers.is_empty());
}

#[test]
fn its_name_tells_vendor_and_cohort_and_no_other_name_does() {
    assert_eq!(shaper_name(Vendor::Nvidia, "cut"), "nvidia-shaper-cut");
    assert_eq!(
        shaper_of("neuron-shaper-a-b"),
        Some((Vendor::Neuron, "a-b"))
    );
    for other in [
        "nvidia-device-plugin-shaper-x",
        "nvidia-dra-x",
        "nvidia-shaper",
        "freehold-agent",
        "amd-shaper-x",
    ] {
        assert_eq!(shaper_of(other), None, "{other}");
    }
}

#[test]
fn exactly_the_operands_that_want_a_layout_wait_for_it() {
    let rendered = rendered();
    for operand in &rendered.operands {
        let command = container(daemon_set(&rendered, &operand.cohort), "interlock")
            .command
            .clone()
            .expect("a command");
        assert_eq!(
            command.contains(&"--shaped".to_owned()),
            ["aspen", "cut"].contains(&operand.cohort.as_str()),
            "{}",
            operand.cohort
        );
    }
}

#[test]
fn it_runs_before_ownership_and_where_the_cohort_is_still_the_owner() {
    let set = shaper(SPEC, "nvidia-shaper-cut").expect("rendered");
    let affinity = pod(&set)
        .affinity
        .clone()
        .and_then(|affinity| affinity.node_affinity)
        .and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution)
        .expect("required");
    let terms: Vec<Vec<String>> = affinity
        .node_selector_terms
        .iter()
        .map(|term| {
            let all = term.match_expressions.iter().flatten();
            all.map(|expression| {
                let values = expression.values.clone().unwrap_or_default().join("|");
                format!("{} {} {values}", expression.key, expression.operator)
            })
            .collect()
        })
        .collect();
    assert_eq!(terms.len(), 2, "{terms:#?}");
    for expected in [
        "rack In r5",
        "tier NotIn cold|frozen",
        "eks.amazonaws.com/compute-type NotIn auto|fargate",
    ] {
        assert!(terms[0].contains(&expected.to_owned()), "{terms:#?}");
    }
    assert_eq!(
        terms[1],
        ["freehold.node-restriction.kubernetes.io/nvidia-cohort In cut"]
    );
    assert!(pod(&set).node_selector.is_none());
}

#[test]
fn none_has_a_credential_or_the_host_s_network() {
    for set in rendered().shapers {
        let pod = pod(&set);
        assert_eq!(pod.automount_service_account_token, Some(false));
        // NVML shows who uses an instance only to those who share the host's PIDs.
        let host_pid = name(&set).starts_with("nvidia-").then_some(true);
        assert_eq!((pod.host_network, pod.host_pid), (None, host_pid));
        let projected = pod
            .volumes
            .iter()
            .flatten()
            .any(|volume| volume.projected.is_some() || volume.secret.is_some());
        assert!(!projected, "{}", name(&set));
    }
}

#[test]
fn for_neuron_it_has_no_capability_and_writes_two_directories() {
    let container = only_container(&shaper(SPEC, "neuron-shaper-aspen").expect("rendered"));
    assert_eq!(
        writable(&container),
        ["/var/lib/freehold/neuron", "/host/opt/aws/neuron"]
    );
    let SecurityContext {
        privileged,
        capabilities,
        read_only_root_filesystem,
        ..
    } = container.security_context.expect("set");
    assert_eq!(privileged, Some(false));
    assert_eq!(read_only_root_filesystem, Some(true));
    assert_eq!(
        capabilities.and_then(|capabilities| capabilities.drop),
        Some(vec!["ALL".to_owned()])
    );
}

#[test]
fn for_nvidia_it_is_privileged_and_reads_the_driver_where_the_cohort_has_it() {
    let set = shaper(SPEC, "nvidia-shaper-cut").expect("rendered");
    let container = only_container(&set);
    assert_eq!(
        writable(&container),
        ["/var/lib/freehold/nvidia", "/dev", "/host/dev"]
    );
    let privileged = container.security_context.clone().expect("set").privileged;
    assert_eq!(privileged, Some(true));
    let command = container.command.expect("a command");
    let nvml = command.iter().position(|part| part == "--nvml");
    assert_eq!(command[nvml.expect("given") + 1], "/driver-root");
    let root = pod(&set)
        .volumes
        .iter()
        .flatten()
        .find(|volume| volume.name == "driver-root")
        .and_then(|volume| volume.host_path.clone())
        .expect("mounted");
    assert_eq!(root.path, "/opt/drv");
}
