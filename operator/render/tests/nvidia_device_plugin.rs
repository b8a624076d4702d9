//! What the NVIDIA device plugin's pod depends on.

mod support;

use freehold_render::render;
use support::{
    annotation, container, containers, daemon_set, env, mounts, operand, pod, rendered,
    rendered_with, settings,
};

#[test]
fn the_privileges_of_the_device_plugin_follow_what_it_has_to_do() {
    let rendered = rendered();
    for (cohort, privileged, sys_admin) in [
        ("plain", false, false),
        ("sliced", false, false),
        ("shared-mps", false, true),
        ("own-file", false, true),
        ("cut", true, false),
    ] {
        let context = container(daemon_set(&rendered, cohort), "nvidia-device-plugin")
            .security_context
            .clone()
            .expect("set");
        assert_eq!(
            context.privileged.unwrap_or_default(),
            privileged,
            "{cohort}"
        );
        let added = context
            .capabilities
            .and_then(|capabilities| capabilities.add)
            .unwrap_or_default();
        assert_eq!(added == ["SYS_ADMIN"], sys_admin, "{cohort}: {added:?}");
    }
    for (from, to) in [
        (
            "nvidia: {runtimeClassName: acme-rt}",
            "nvidia: {devicePlugin: {migStrategy: Single}}",
        ),
        (
            "nvidia: {runtimeClassName: acme-rt}",
            "nvidia: {devicePlugin: {deviceListStrategy: [VolumeMounts]}}",
        ),
    ] {
        let rendered = rendered_with(from, to);
        let context = container(daemon_set(&rendered, "plain"), "nvidia-device-plugin")
            .security_context
            .clone()
            .expect("set");
        assert_eq!(
            context
                .capabilities
                .and_then(|capabilities| capabilities.add),
            Some(vec!["SYS_ADMIN".to_owned()]),
            "{to}"
        );
    }
}

#[test]
fn the_driver_root_is_mounted_only_where_no_runtime_brings_the_driver() {
    for (settings_of_plain, expected) in [
        ("nvidia: {runtimeClassName: acme-rt}", None),
        ("nvidia: {driverRoot: /}", Some("/")),
        (
            "nvidia: {driverRoot: /opt/odd, runtimeClassName: acme-rt}",
            Some("/opt/odd"),
        ),
    ] {
        let rendered = rendered_with("nvidia: {runtimeClassName: acme-rt}", settings_of_plain);
        let daemon_set = daemon_set(&rendered, "plain");
        let plugin = container(daemon_set, "nvidia-device-plugin");
        assert_eq!(
            env(plugin, "NVIDIA_DRIVER_ROOT"),
            expected,
            "{settings_of_plain}"
        );
        assert_eq!(
            mounts(plugin, "driver-root"),
            expected.is_some(),
            "{settings_of_plain}"
        );
        let path = pod(daemon_set)
            .volumes
            .iter()
            .flatten()
            .find(|volume| volume.name == "driver-root");
        assert_eq!(
            path.and_then(|volume| volume.host_path.as_ref())
                .map(|host| host.path.as_str()),
            expected
        );
    }
}

#[test]
fn sharing_reaches_the_plugin_as_a_file_in_its_own_pod() {
    let rendered = rendered();
    for (cohort, expected) in [
        (
            "sliced",
            serde_json::json!({"version": "v1", "sharing": {"timeSlicing": {
                "renameByDefault": true, "failRequestsGreaterThanOne": false,
                "resources": [{"name": "nvidia.com/gpu", "replicas": 5}]}}}),
        ),
        (
            "shared-mps",
            serde_json::json!({"version": "v1", "sharing": {"mps": {
                "renameByDefault": false, "failRequestsGreaterThanOne": true,
                "resources": [{"name": "nvidia.com/gpu", "replicas": 6}]}}}),
        ),
    ] {
        let daemon_set = daemon_set(&rendered, cohort);
        let file = annotation(daemon_set, "freehold.dev/device-plugin-config").expect("the file");
        assert_eq!(
            serde_json::from_str::<serde_json::Value>(file).expect("JSON"),
            expected
        );
        assert_eq!(
            env(container(daemon_set, "nvidia-device-plugin"), "CONFIG_FILE"),
            Some("/config/config.yaml")
        );
        assert!(mounts(
            container(daemon_set, "nvidia-device-plugin"),
            "config"
        ));
    }
    assert_eq!(
        annotation(
            daemon_set(&rendered, "plain"),
            "freehold.dev/device-plugin-config"
        ),
        None
    );
}

#[test]
fn no_default_of_ours_defeats_a_flag_in_the_users_own_file() {
    let rendered = rendered();
    let daemon_set = daemon_set(&rendered, "own-file");
    assert_eq!(
        annotation(daemon_set, "freehold.dev/device-plugin-config"),
        Some(support::USER_FILE)
    );
    let plugin = container(daemon_set, "nvidia-device-plugin");
    for flag in [
        "MIG_STRATEGY",
        "FAIL_ON_INIT_ERROR",
        "PASS_DEVICE_SPECS",
        "DEVICE_LIST_STRATEGY",
    ] {
        assert_eq!(env(plugin, flag), None, "{flag} would win over the file");
    }
    // What the user wrote down beside the file wins over it.
    assert_eq!(env(plugin, "DEVICE_ID_STRATEGY"), Some("index"));
    assert_eq!(env(plugin, "NVIDIA_MIG_MONITOR_DEVICES"), Some("all"));
}

#[test]
fn a_cohort_whose_file_is_missing_keeps_what_runs() {
    let mut without = settings();
    without.plugin_configs.clear();
    let missing = render(&support::plan(support::SPEC), &without);
    assert_eq!(operand(&missing, "own-file").daemon_set, None);
    let shape = &missing.intent.cohorts["own-file"].shape;
    assert_ne!(shape, &rendered().intent.cohorts["own-file"].shape);
    assert!(!shape.is_empty());
    // The others are not concerned.
    assert_eq!(operand(&missing, "sliced"), operand(&rendered(), "sliced"));
}

#[test]
fn the_mps_daemon_runs_only_where_it_was_asked_for_and_in_the_plugins_pod() {
    let rendered = rendered();
    for operand in &rendered.operands {
        let daemon_set = daemon_set(&rendered, &operand.cohort);
        let daemon = containers(daemon_set).any(|container| container.name == "mps-control-daemon");
        assert_eq!(daemon, operand.cohort == "shared-mps", "{}", operand.cohort);
        assert_eq!(
            pod(daemon_set).host_pid.unwrap_or_default(),
            daemon,
            "{}",
            operand.cohort
        );
    }
}
