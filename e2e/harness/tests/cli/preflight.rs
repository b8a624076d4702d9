//! `preflight` before, during and after an installation.

use freehold_e2e::cluster::TestCluster;
use freehold_e2e::install::{self, repository};
use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicyBinding;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::plugin::Plugin;
/// The demo fleet, as a file.
pub(super) fn sample() -> String {
    repository()
        .join("config/samples/acceleratorcluster.yaml")
        .display()
        .to_string()
}

pub(super) fn a_bare_cluster_is_ready_for_an_installation_and_can_be_planned_for(plugin: &Plugin) {
    let bare = plugin.expect(&["preflight"], 0);
    assert!(
        bare.out.contains("Ready for an installation"),
        "{}",
        bare.out
    );
    assert!(
        bare.out
            .contains("accepts this version's custom resource definitions (by a dry run)"),
        "{}",
        bare.out
    );
    let plan = plugin.expect(&["plan", "-f", &sample(), "--exit-code"], 3);
    assert!(
        plan.out.contains("+ DaemonSet freehold-agent")
            && plan.out.contains("+ DeviceClass gpu.nvidia.com"),
        "{}",
        plan.out
    );
}

/// The outcome of one check in the answer.
pub(super) fn outcome(answer: &Value, id: &str) -> String {
    let finding = answer["findings"]
        .as_array()
        .unwrap()
        .iter()
        .find(|finding| finding["id"] == id);
    finding.unwrap_or_else(|| panic!("{id} is missing: {answer}"))["outcome"]
        .as_str()
        .unwrap()
        .to_owned()
}

pub(super) async fn half_an_installation_is_told_from_a_whole_one(
    cluster: &TestCluster,
    plugin: &Plugin,
) {
    let half = plugin.expect(&["preflight", "-o", "json"], 3).json();
    for (id, expected) in [
        ("FH1101", "Pass"),
        ("FH1102", "Pass"),
        ("FH1104", "Fail"),
        ("FH1105", "Fail"),
        ("FH1201", "Pass"),
        ("FH1204", "Pass"),
    ] {
        assert_eq!(outcome(&half, id), expected, "{id}: {half}");
    }

    install::install(cluster).await.unwrap();
    let whole = plugin.expect(&["preflight"], 0);
    assert!(whole.out.contains("All is in order"), "{}", whole.out);

    let bindings = Api::<ValidatingAdmissionPolicyBinding>::all(cluster.admin());
    bindings
        .delete("freehold-node-marks", &DeleteParams::default())
        .await
        .unwrap();
    let roles = Api::<ClusterRole>::all(cluster.admin());
    roles
        .patch(
            "freehold-agent",
            &PatchParams::default(),
            &Patch::Merge(json!({"rules": []})),
        )
        .await
        .unwrap();
    let rival: DaemonSet = serde_json::from_value(json!({"metadata": {"name": "plugin", "namespace": "ml"}, "spec": {
        "selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}}, "spec": {
            "containers": [{"name": "c", "image": "mirror.example.com/nvidia/k8s-device-plugin:v0.17.0"}],
            "volumes": [{"name": "d", "hostPath": {"path": "/var/lib/kubelet/device-plugins"}}]}}}}))
    .unwrap();
    Api::namespaced(cluster.admin(), "ml")
        .create(&PostParams::default(), &rival)
        .await
        .unwrap();
    let allocatable = json!({"status": {"allocatable": {"nvidia.com/gpu": "8"}, "capacity": {"nvidia.com/gpu": "8"}}});
    let node: Node =
        serde_json::from_value(json!({"metadata": {"name": "reed-4", "labels": {"bank": "left"}}}))
            .unwrap();
    let nodes = Api::<Node>::all(cluster.admin());
    nodes.create(&PostParams::default(), &node).await.unwrap();
    nodes
        .patch_status(
            "reed-4",
            &PatchParams::default(),
            &Patch::Merge(allocatable),
        )
        .await
        .unwrap();
    let broken = plugin.expect(&["preflight"], 3);
    for part in [
        "ValidatingAdmissionPolicyBinding freehold-node-marks: it does not exist",
        "ServiceAccount freehold-operands/freehold-agent: it may not get acceleratornodes.freehold.dev",
        "DaemonSet ml/plugin: it is a NVIDIA device plugin",
        "Node reed-4: NVIDIA devices are handed out by a device plugin that is not Freehold's",
    ] {
        assert!(
            broken.out.contains(part),
            "{part:?} is missing: {}",
            broken.out
        );
    }
    let file = cluster.folder().join("refused.yaml");
    std::fs::write(&file, "apiVersion: freehold.dev/v1alpha1\nkind: AcceleratorCluster\nmetadata: {name: cluster}\nspec: {cohorts: [{name: Fen, vendor: NVIDIA, owner: DRA, nodeSelector: {matchLabels: {a: b}}}]}\n").unwrap();
    let refused = plugin.expect(&["preflight", "-f", &file.display().to_string()], 2);
    assert!(refused.err.contains("Fen"), "{}", refused.err);
}
