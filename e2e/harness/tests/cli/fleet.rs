//! A small fleet, with the controller's and the agents' parts written by the test.

use freehold_api::{AcceleratorCluster, AcceleratorNode};
use freehold_e2e::cluster::TestCluster;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Namespace, Node};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};

/// Two cohorts; `reed-1` and `reed-2` held by the device plugin, `reed-3` on its way to DRA with a trainer in the way.
pub(super) async fn a_fleet(cluster: &TestCluster) {
    let admin = cluster.admin();
    let intent: AcceleratorCluster = serde_json::from_value(json!({
        "apiVersion": "freehold.dev/v1alpha1", "kind": "AcceleratorCluster", "metadata": {"name": "cluster"},
        "spec": {"cohorts": [
            {"name": "marsh-plugin", "vendor": "NVIDIA", "owner": "DevicePlugin", "nodeSelector": {"matchLabels": {"bank": "left"}}},
            {"name": "marsh-dra", "vendor": "NVIDIA", "owner": "DRA", "nodeSelector": {"matchLabels": {"bank": "right"}}},
        ]}}))
    .unwrap();
    Api::all(admin.clone())
        .create(&PostParams::default(), &intent)
        .await
        .unwrap();
    for name in ["freehold-system", "freehold-operands", "ml"] {
        let namespace: Namespace =
            serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
        Api::all(admin.clone())
            .create(&PostParams::default(), &namespace)
            .await
            .unwrap();
    }
    for (name, bank, owner, cohort, step) in [
        ("reed-1", "left", "DevicePlugin", "marsh-plugin", "Held"),
        ("reed-2", "left", "DevicePlugin", "marsh-plugin", "Held"),
        ("reed-3", "right", "DevicePlugin", "marsh-dra", "Drain"),
    ] {
        let node: Node =
            serde_json::from_value(json!({"metadata": {"name": name, "labels": {"bank": bank}}}))
                .unwrap();
        let node = Api::all(admin.clone())
            .create(&PostParams::default(), &node)
            .await
            .unwrap();
        let record: AcceleratorNode = serde_json::from_value(json!({
            "apiVersion": "freehold.dev/v1alpha1", "kind": "AcceleratorNode", "metadata": {"name": name},
            "spec": {"nodeUID": node.metadata.uid, "nvidia": {"cohort": cohort, "owner": owner, "term": 2}}}))
        .unwrap();
        Api::all(admin.clone())
            .create(&PostParams::default(), &record)
            .await
            .unwrap();
        report(cluster, &node).await;
        tell(cluster, name, &json!({"cohort": cohort, "owner": owner, "step": step, "since": "2026-11-30T12:00:00Z"})).await;
    }
    tell(
        cluster,
        "reed-3",
        &json!({"reason": "ConsumersRemain", "message": "Pod ml/fit-0 (UID 7) uses extended resources of NVIDIA on this node",
            "nextStep": "Wait for the workloads on <node> to end."}),
    )
    .await;
}

/// Reports eight GPUs, as the agent does, on a node whose kubelet is new enough for either owner.
pub(super) async fn report(cluster: &TestCluster, node: &Node) {
    let name = node.metadata.name.as_deref().unwrap();
    let info = json!({"architecture": "amd64", "bootID": "boot-1", "containerRuntimeVersion": "containerd://2.1.0",
        "kernelVersion": "6.12.0", "kubeProxyVersion": "", "kubeletVersion": "v1.34.2", "machineID": "m",
        "operatingSystem": "linux", "osImage": "test", "systemUUID": "s"});
    Api::<Node>::all(cluster.admin())
        .patch_status(
            name,
            &PatchParams::default(),
            &Patch::Merge(json!({"status": {"nodeInfo": info}})),
        )
        .await
        .unwrap();
    let part = json!({"observedTerm": 2, "pciDevices": 8, "inUse": {"devicePlugin": 0, "dra": 0},
        "inventory": {"driverVersion": "580.65.06", "devices": 8, "models": [{"name": "NVIDIA H100 80GB HBM3", "count": 8}]}});
    let report = json!({"nodeUID": node.metadata.uid, "bootID": "boot-1", "agentVersion": "0.1.0", "nvidia": part});
    Api::<AcceleratorNode>::all(cluster.admin())
        .patch_status(
            name,
            &PatchParams::default(),
            &Patch::Merge(json!({"status": {"report": report}})),
        )
        .await
        .unwrap();
}

/// Publishes a tenure, as the controller does.
pub(super) async fn tell(cluster: &TestCluster, node: &str, tenure: &Value) {
    let patch = json!({"status": {"tenures": {"nvidia": tenure}}});
    Api::<AcceleratorNode>::all(cluster.admin())
        .patch_status(node, &PatchParams::default(), &Patch::Merge(patch))
        .await
        .unwrap();
}

/// Publishes that the controller has looked at the resource.
pub(super) async fn observe(cluster: &TestCluster, generation: i64, ready: &str) {
    let patch = json!({"status": {"observedGeneration": generation, "nodes":
        {"matched": 3, "excluded": 0, "owned": 3, "ready": 2, "migrating": 0, "waiting": 1, "blocked": 0, "conflicted": 0},
        "conditions": [{"type": "Ready", "status": ready, "reason": "Told", "message": "told by the test", "lastTransitionTime": "2026-11-30T12:00:00Z"}]}});
    Api::<AcceleratorCluster>::all(cluster.admin())
        .patch_status("cluster", &PatchParams::default(), &Patch::Merge(patch))
        .await
        .unwrap();
}

pub(super) async fn renew_lease(cluster: &TestCluster) {
    let lease: Lease = serde_json::from_value(json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "freehold-operator"},
        "spec": {"holderIdentity": "replica-1", "leaseDurationSeconds": 3600, "renewTime": jiff::Timestamp::now().to_string()}}))
    .unwrap();
    Api::<Lease>::namespaced(cluster.admin(), "freehold-system")
        .patch(
            "freehold-operator",
            &PatchParams::apply("test").force(),
            &Patch::Apply(lease),
        )
        .await
        .unwrap();
}
