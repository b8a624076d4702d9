//! The agents' DaemonSet.

#![allow(clippy::expect_used, reason = "what cannot be read ends the test")]

mod support;

use freehold_render::render;
use k8s_openapi::api::core::v1::NodeSelectorTerm;
use support::{SPEC, container, containers, plan, pod, rendered, settings};

/// A term as `key operator values`, one expression a line.
fn lines(term: &NodeSelectorTerm) -> Vec<String> {
    let expressions = term.match_expressions.iter().flatten();
    expressions
        .map(|expression| {
            let values = expression.values.clone().unwrap_or_default().join("|");
            format!("{} {} {values}", expression.key, expression.operator)
                .trim_end()
                .to_owned()
        })
        .collect()
}

fn terms(spec: &str) -> Vec<Vec<String>> {
    let agent = render(&plan(spec), &settings()).agent;
    let affinity = pod(&agent)
        .affinity
        .clone()
        .and_then(|affinity| affinity.node_affinity)
        .expect("node affinity");
    let required = affinity
        .required_during_scheduling_ignored_during_execution
        .expect("required");
    required.node_selector_terms.iter().map(lines).collect()
}

#[test]
fn it_runs_where_a_cohort_selects_and_no_provider_keeps_the_node_and_where_something_is_held() {
    let terms = terms(SPEC);
    assert_eq!(terms.len(), 9 + 3);
    let cut = terms
        .iter()
        .find(|term| term.contains(&"rack In r5".to_owned()))
        .expect("the cohort's term");
    for expected in [
        "tier NotIn cold|frozen",
        "drained DoesNotExist",
        "burnt-in Exists",
    ] {
        assert!(cut.contains(&expected.to_owned()), "{cut:#?}");
    }
    assert!(
        cut.contains(&"eks.amazonaws.com/compute-type NotIn auto|fargate".to_owned()),
        "{cut:#?}"
    );
    let neuron = terms
        .iter()
        .find(|term| term.contains(&"rack In r9".to_owned()))
        .expect("the cohort's term");
    assert!(
        neuron.contains(&"eks.amazonaws.com/compute-type NotIn auto|fargate|hybrid".to_owned()),
        "{neuron:#?}"
    );
    let held = &terms[9..];
    let prefix = "freehold.node-restriction.kubernetes.io";
    let expected = ["nvidia-owner", "neuron-owner", "agent"]
        .map(|name| vec![format!("{prefix}/{name} Exists")]);
    assert_eq!(held, expected);
}

#[test]
fn without_cohorts_it_stays_where_something_is_held() {
    assert_eq!(terms("cohorts: []").len(), 3);
}

#[test]
fn no_container_has_both_a_credential_and_a_look_into_the_host() {
    let rendered = rendered();
    for container in containers(&rendered.agent) {
        let volumes: Vec<&str> = container
            .volume_mounts
            .iter()
            .flatten()
            .map(|mount| mount.name.as_str())
            .collect();
        let of_host =
            pod(&rendered.agent).volumes.iter().flatten().any(|volume| {
                volume.host_path.is_some() && volumes.contains(&volume.name.as_str())
            });
        assert_ne!(
            of_host,
            volumes.contains(&"api-token"),
            "{}: {volumes:?}",
            container.name
        );
    }
}

#[test]
fn the_witness_can_write_its_own_directory_and_nothing_else_of_the_host() {
    let rendered = rendered();
    let witness = container(&rendered.agent, "witness");
    let writable: Vec<&str> = witness
        .volume_mounts
        .iter()
        .flatten()
        .filter(|mount| mount.read_only != Some(true))
        .map(|mount| mount.mount_path.as_str())
        .collect();
    assert_eq!(writable, ["/host/var/lib/freehold", "/run/freehold"]);
    let context = witness.security_context.clone().expect("set");
    assert_eq!(
        (context.run_as_user, context.privileged),
        (Some(0), Some(false))
    );
    assert_eq!(
        context
            .capabilities
            .and_then(|capabilities| capabilities.drop),
        Some(vec!["ALL".to_owned()])
    );
    let report = container(&rendered.agent, "report")
        .security_context
        .clone()
        .expect("set");
    assert_eq!(
        (report.run_as_user, report.run_as_non_root),
        (Some(65532), Some(true))
    );
}

#[test]
fn every_kubelet_root_is_seen_also_of_cohorts_that_are_gone() {
    let roots = |spec: &str, beyond: &[&str]| {
        let mut settings = settings();
        settings.kubelet_roots = beyond.iter().map(|root| (*root).to_owned()).collect();
        let agent = render(&plan(spec), &settings).agent;
        let command = container(&agent, "witness")
            .command
            .clone()
            .unwrap_or_default();
        let mounted: Vec<String> = container(&agent, "witness")
            .volume_mounts
            .iter()
            .flatten()
            .map(|mount| mount.mount_path.clone())
            .collect();
        let roots: Vec<String> = command
            .windows(2)
            .filter(|pair| pair[0] == "--kubelet-root")
            .map(|pair| pair[1].clone())
            .collect();
        for root in &roots {
            assert!(
                mounted.contains(&format!("/host{root}")),
                "{root} is not mounted: {mounted:?}"
            );
        }
        (
            roots,
            mounted.contains(&"/host/var/lib/kubelet/device-plugins".to_owned()),
        )
    };
    assert_eq!(
        roots(SPEC, &[]),
        (
            vec!["/srv/kubelet".into(), "/var/lib/kubelet".into()],
            false
        )
    );
    assert_eq!(
        roots(SPEC, &["/gone/kubelet"]).0,
        ["/gone/kubelet", "/srv/kubelet", "/var/lib/kubelet"]
    );
    assert_eq!(
        roots("cohorts: []", &[]),
        (vec!["/var/lib/kubelet".into()], false)
    );
    // The plugin directory does not move with the root.
    assert_eq!(
        roots("cohorts: []", &["/gone/kubelet"]),
        (vec!["/gone/kubelet".into()], true)
    );
}
