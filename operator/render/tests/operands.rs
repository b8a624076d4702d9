//! What must hold for every operand, and what tells them apart.

mod support;

use std::collections::BTreeSet;

use freehold_core::names;
use support::{
    container, containers, daemon_set, daemon_sets, env, env_vars, mounts, name, pod, rendered,
};

/// Volume of the API credential.
const TOKEN: &str = "api-token";

#[test]
fn nothing_of_an_operand_runs_before_the_interlock_holds() {
    let rendered = rendered();
    for operand in &rendered.operands {
        let daemon_set = daemon_set(&rendered, &operand.cohort);
        let cohort = &rendered.intent.cohorts[&operand.cohort];
        let first = containers(daemon_set).next().expect("a first container");
        assert_eq!(first.name, "interlock", "{}", operand.cohort);
        assert_eq!(
            first.restart_policy.as_deref(),
            Some("Always"),
            "{}",
            operand.cohort
        );
        assert_eq!(
            first.image.as_deref(),
            Some("mirror.acme.example/node-agent:odd-9")
        );
        let dir = format!("/var/lib/freehold/{}", cohort.vendor.key());
        let command = first.command.clone().unwrap_or_default().join(" ");
        let shaped = if cohort.layout.is_some() {
            " --shaped"
        } else {
            ""
        };
        let expected = format!(
            "freehold-agent hold --vendor {} --owner {} --state-dir {dir} --started /run/freehold/held{shaped}",
            cohort.vendor.key(),
            cohort.owner.word()
        );
        assert_eq!(command, expected);
        let probe = first.startup_probe.as_ref().expect("a startup probe");
        assert_eq!(
            (probe.period_seconds, probe.failure_threshold),
            (Some(1), Some(i32::MAX))
        );
        let host_paths: Vec<&str> = pod(daemon_set)
            .volumes
            .iter()
            .flatten()
            .filter(|volume| mounts(first, &volume.name))
            .filter_map(|volume| volume.host_path.as_ref().map(|host| host.path.as_str()))
            .collect();
        assert_eq!(
            host_paths,
            [dir],
            "the sidecar sees one directory of the host"
        );
    }
}

#[test]
fn only_the_containers_that_call_the_api_hold_the_credential() {
    let rendered = rendered();
    let mut holders = BTreeSet::new();
    for daemon_set in daemon_sets(&rendered) {
        assert_eq!(
            pod(daemon_set).automount_service_account_token,
            Some(false),
            "{}",
            name(daemon_set)
        );
        for container in containers(daemon_set).filter(|container| mounts(container, TOKEN)) {
            holders.insert(container.name.clone());
        }
    }
    assert_eq!(
        holders.into_iter().collect::<Vec<_>>(),
        [
            "gpus",
            "neuron-device-plugin",
            "neuron-dra-driver",
            "report"
        ]
    );
}

#[test]
fn each_operand_has_its_own_service_account_name_and_place() {
    let rendered = rendered();
    for (cohort, set, account) in [
        (
            "plain",
            "nvidia-device-plugin-plain",
            "nvidia-device-plugin",
        ),
        ("quartz", "nvidia-dra-quartz", "nvidia-dra-driver"),
        (
            "birch",
            "neuron-device-plugin-birch",
            "neuron-device-plugin",
        ),
        ("aspen", "neuron-dra-aspen", "neuron-dra-driver"),
    ] {
        let daemon_set = daemon_set(&rendered, cohort);
        assert_eq!(name(daemon_set), set);
        assert_eq!(
            daemon_set.metadata.namespace.as_deref(),
            Some("freehold-operands")
        );
        assert_eq!(
            pod(daemon_set).service_account_name.as_deref(),
            Some(account)
        );
        let vendor = rendered.intent.cohorts[cohort].vendor;
        let place = pod(daemon_set).node_selector.clone().unwrap_or_default();
        assert_eq!(place.len(), 2, "owner and cohort decide alone: {place:?}");
        assert_eq!(
            place[&names::owner_label(vendor)],
            rendered.intent.cohorts[cohort].owner.word()
        );
        assert_eq!(place[&names::cohort_label(vendor)], cohort);
        let strategy = daemon_set
            .spec
            .as_ref()
            .and_then(|spec| spec.update_strategy.as_ref());
        assert_eq!(
            strategy.and_then(|strategy| strategy.type_.as_deref()),
            Some("OnDelete")
        );
    }
}

#[test]
fn no_selector_matches_the_pods_of_another_daemon_set() {
    let rendered = rendered();
    let sets = daemon_sets(&rendered);
    for one in &sets {
        let selector = one
            .spec
            .as_ref()
            .and_then(|spec| spec.selector.match_labels.clone())
            .expect("a selector");
        for other in &sets {
            let labels = other
                .spec
                .as_ref()
                .and_then(|spec| spec.template.metadata.as_ref()?.labels.clone())
                .expect("labels");
            let matches = selector
                .iter()
                .all(|(key, value)| labels.get(key) == Some(value));
            assert_eq!(
                matches,
                name(one) == name(other),
                "{} selects pods of {}",
                name(one),
                name(other)
            );
        }
    }
}

#[test]
fn every_object_is_marked_as_ours_and_carries_the_hash_of_what_was_rendered() {
    let rendered = rendered();
    let metadata = daemon_sets(&rendered)
        .into_iter()
        .map(|object| &object.metadata);
    let metadata = metadata.chain(
        rendered
            .device_classes
            .iter()
            .map(|object| &object.metadata),
    );
    let metadata = metadata.chain(
        rendered
            .claim_templates
            .iter()
            .map(|object| &object.metadata),
    );
    for metadata in metadata {
        let owner = &metadata.owner_references.as_ref().expect("an owner")[0];
        assert_eq!(
            (owner.kind.as_str(), owner.uid.as_str()),
            ("AcceleratorCluster", "8c7d-odd-uid")
        );
        let labels = metadata.labels.clone().unwrap_or_default();
        assert_eq!(
            labels
                .get("app.kubernetes.io/managed-by")
                .map(String::as_str),
            Some("freehold")
        );
        let applied = metadata
            .annotations
            .as_ref()
            .and_then(|annotations| annotations.get(names::APPLIED_ANNOTATION));
        assert_eq!(applied.map(String::len), Some(16), "{metadata:?}");
    }
}

/// Every variable that a vendor's chart can set is either set or named here as left out; and none is made up.

#[test]
fn every_variable_of_the_charts_is_set_or_left_out_on_purpose() {
    let rendered = rendered();
    for (container_name, cohorts, known, left_out) in [
        (
            "nvidia-device-plugin",
            &["plain", "sliced", "shared-mps", "own-file", "cut"][..],
            &[
                "MPS_ROOT",
                "MIG_STRATEGY",
                "FAIL_ON_INIT_ERROR",
                "PASS_DEVICE_SPECS",
                "DEVICE_LIST_STRATEGY",
                "DEVICE_ID_STRATEGY",
                "NVIDIA_DRIVER_ROOT",
                "NVIDIA_DEV_ROOT",
                "NVIDIA_CDI_HOOK_PATH",
                "CDI_FEATURE_FLAGS",
                "GDRCOPY_ENABLED",
                "GDS_ENABLED",
                "MOFED_ENABLED",
                "CONFIG_FILE",
                "NVIDIA_MIG_MONITOR_DEVICES",
                "DEVICE_DISCOVERY_STRATEGY",
                "NVIDIA_VISIBLE_DEVICES",
                "NVIDIA_DRIVER_CAPABILITIES",
            ][..],
            &[
                "NVIDIA_DEV_ROOT",
                "NVIDIA_CDI_HOOK_PATH",
                "CDI_FEATURE_FLAGS",
                "GDRCOPY_ENABLED",
                "GDS_ENABLED",
                "MOFED_ENABLED",
                "DEVICE_DISCOVERY_STRATEGY",
            ][..],
        ),
        (
            "mps-control-daemon",
            &["shared-mps"],
            &[
                "NODE_NAME",
                "MIG_STRATEGY",
                "CONFIG_FILE",
                "NVIDIA_MIG_MONITOR_DEVICES",
                "NVIDIA_VISIBLE_DEVICES",
                "NVIDIA_DRIVER_CAPABILITIES",
            ],
            // The plugin refuses MPS on MIG devices.
            &["NVIDIA_MIG_MONITOR_DEVICES"],
        ),
        (
            "init-container",
            &["quartz", "basalt"],
            &[
                "NVIDIA_DRIVER_ROOT",
                "NVIDIA_VISIBLE_DEVICES",
                "KUBELET_REGISTRAR_DIRECTORY_PATH",
                "KUBELET_PLUGINS_DIRECTORY_PATH",
            ],
            &[],
        ),
        (
            "gpus",
            &["quartz", "basalt"],
            &[
                "HTTP_ENDPOINT",
                "METRICS_PATH",
                "LOG_VERBOSITY",
                "MASK_NVIDIA_DRIVER_PARAMS",
                "NVIDIA_DRIVER_ROOT",
                "NVIDIA_VISIBLE_DEVICES",
                "CDI_ROOT",
                "HOST_ROOT",
                "NVIDIA_MIG_CONFIG_DEVICES",
                "NODE_NAME",
                "NAMESPACE",
                "SERVICE_ACCOUNT_NAME",
                "IMAGE_NAME",
                "IMAGE_PULL_SECRETS",
                "IMAGE_PULL_POLICY",
                "NVIDIA_CDI_HOOK_PATH",
                "CONSUMABLE_SHARES",
                "FEATURE_GATES",
                "KUBELET_REGISTRAR_DIRECTORY_PATH",
                "KUBELET_PLUGINS_DIRECTORY_PATH",
                "HEALTHCHECK_PORT",
            ],
            &[
                "MASK_NVIDIA_DRIVER_PARAMS",
                "NVIDIA_CDI_HOOK_PATH",
                "CONSUMABLE_SHARES",
            ],
        ),
        (
            "neuron-device-plugin",
            &["birch"],
            &["KUBECONFIG", "NODE_NAME"],
            &[],
        ),
        (
            "neuron-dra-driver",
            &["aspen"],
            &[
                "NODE_NAME",
                "POD_UID",
                "CDI_ROOT",
                "KUBELET_REGISTRAR_DIRECTORY_PATH",
                "KUBELET_PLUGINS_DIRECTORY_PATH",
                "HEALTHCHECK_PORT",
            ],
            &[],
        ),
    ] {
        let set: BTreeSet<&str> = cohorts
            .iter()
            .flat_map(|cohort| env_vars(container(daemon_set(&rendered, cohort), container_name)))
            .map(|var| var.name.as_str())
            .collect();
        let expected: BTreeSet<&str> = known
            .iter()
            .copied()
            .filter(|name| !left_out.contains(name))
            .collect();
        assert_eq!(set, expected, "{container_name}");
    }
}

#[test]
fn no_variable_is_given_twice() {
    let rendered = rendered();
    for daemon_set in daemon_sets(&rendered) {
        for container in containers(daemon_set) {
            let mut seen = BTreeSet::new();
            for var in env_vars(container) {
                assert!(
                    seen.insert(&var.name),
                    "{} {} {}",
                    name(daemon_set),
                    container.name,
                    var.name
                );
            }
        }
    }
}

#[test]
fn the_kubelet_root_moves_the_dra_directories_and_not_the_plugin_socket() {
    let rendered = rendered();
    let moved = container(daemon_set(&rendered, "basalt"), "gpus");
    assert_eq!(
        env(moved, "KUBELET_PLUGINS_DIRECTORY_PATH"),
        Some("/srv/kubelet/plugins")
    );
    assert_eq!(
        env(moved, "KUBELET_REGISTRAR_DIRECTORY_PATH"),
        Some("/srv/kubelet/plugins_registry")
    );
    let neuron = container(daemon_set(&rendered, "aspen"), "neuron-dra-driver");
    assert_eq!(
        env(neuron, "KUBELET_PLUGINS_DIRECTORY_PATH"),
        Some("/srv/kubelet/plugins")
    );
    let mut paths = pod(daemon_set(&rendered, "cut"))
        .volumes
        .iter()
        .flatten()
        .filter_map(|volume| volume.host_path.as_ref());
    assert!(
        paths.any(|host| host.path == "/var/lib/kubelet/device-plugins"),
        "the kubelet fixes this one"
    );
    assert_eq!(
        freehold_render::kubelet_root(daemon_set(&rendered, "cut")),
        Some("/srv/kubelet")
    );
}

#[test]
fn feature_gates_are_passed_sorted_and_as_given() {
    let rendered = rendered();
    let gates = env(
        container(daemon_set(&rendered, "basalt"), "gpus"),
        "FEATURE_GATES",
    );
    assert_eq!(
        gates,
        Some("DeviceMetadata=true,PassthroughSupport=true,TimeSlicingSettings=false")
    );
    assert_eq!(
        env(
            container(daemon_set(&rendered, "quartz"), "gpus"),
            "FEATURE_GATES"
        ),
        None
    );
}

#[test]
fn images_secrets_resources_and_tolerations_are_the_users_where_given() {
    let rendered = rendered();
    let cut = daemon_set(&rendered, "cut");
    let plugin = container(cut, "nvidia-device-plugin");
    let digest = format!(
        "mirror.acme.example:5000/gpu-plug@sha256:{}",
        "1".repeat(64)
    );
    assert_eq!(plugin.image.as_deref(), Some(digest.as_str()));
    let secrets: Vec<&str> = pod(cut)
        .image_pull_secrets
        .iter()
        .flatten()
        .map(|secret| secret.name.as_str())
        .collect();
    assert_eq!(secrets, ["acme-agent-pull", "acme-pull", "acme-pull-2"]);
    let resources = plugin.resources.clone().expect("resources");
    assert_eq!(resources.requests.expect("requests")["cpu"].0, "25m");
    assert_eq!(
        resources
            .limits
            .expect("limits")
            .into_values()
            .map(|value| value.0)
            .collect::<Vec<_>>(),
        ["96Mi"]
    );
    let keys: Vec<&str> = pod(cut)
        .tolerations
        .iter()
        .flatten()
        .filter_map(|toleration| toleration.key.as_deref())
        .collect();
    assert_eq!(
        keys,
        [
            "CriticalAddonsOnly",
            "nvidia.com/gpu",
            "freehold.dev/nvidia-handover",
            "freehold.dev/neuron-handover",
            "acme.example/batch"
        ],
        "a toleration that is there already is not added again"
    );
    assert_eq!(
        container(daemon_set(&rendered, "plain"), "nvidia-device-plugin")
            .image
            .as_deref(),
        Some("nvcr.io/nvidia/k8s-device-plugin:v0.20.0")
    );
}
