//! The test cluster itself: what the other tests rely on.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "clippy.toml frees only functions marked as tests"
)]

use std::{collections::BTreeMap, time::Duration};

use freehold_e2e::cluster::{Component, Filter, Options, TestCluster, eventually};
use k8s_openapi::api::{
    apps::v1::DaemonSet,
    authentication::v1::SelfSubjectReview,
    core::v1::{ConfigMap, Node, Pod},
};
use kube::{
    Api,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::json;

const LIMIT: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread")]
async fn a_whole_control_plane_starts_works_and_recovers() {
    let cluster = TestCluster::start(Options::named("whole").unwrap())
        .await
        .unwrap();
    println!(
        "Kubernetes {} was ready after {:.1} s",
        cluster.version(),
        cluster.started_in().as_secs_f64()
    );

    daemon_sets_get_pods_on_nodes_that_were_only_declared(&cluster).await;
    a_token_bound_to_a_pod_carries_its_node(&cluster).await;
    the_api_server_comes_back_with_its_data(&cluster).await;
    a_paused_scheduler_binds_nothing_until_it_is_resumed(&cluster).await;

    cluster.stop().unwrap();
}

async fn daemon_sets_get_pods_on_nodes_that_were_only_declared(cluster: &TestCluster) {
    cluster
        .apply_yaml(
            r"
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: sample, namespace: lodge}
spec:
  selector: {matchLabels: {app: sample}}
  template:
    metadata: {labels: {app: sample}}
    spec: {containers: [{name: main, image: registry.example.com/sample:v1}]}
---
apiVersion: v1
kind: Namespace
metadata: {name: lodge}
---
apiVersion: v1
kind: Node
metadata: {name: sim-7}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: porter, namespace: lodge}
",
        )
        .await
        .unwrap();
    play_the_kubelet(cluster, "sim-7").await;
    let pods = Api::<Pod>::namespaced(cluster.admin(), "lodge");
    let pod = eventually("the DaemonSet's pod to be bound", LIMIT, async || {
        let pods = pods
            .list(&ListParams::default().labels("app=sample"))
            .await?
            .items;
        Ok(pods.into_iter().find(|pod| {
            pod.spec
                .as_ref()
                .is_some_and(|spec| spec.node_name.is_some())
        }))
    })
    .await
    .unwrap();
    assert_eq!(pod.spec.unwrap().node_name.as_deref(), Some("sim-7"));
    assert!(
        Api::<DaemonSet>::namespaced(cluster.admin(), "lodge")
            .get("sample")
            .await
            .is_ok()
    );
}

/// Room for pods, and no taint of a new node.
async fn play_the_kubelet(cluster: &TestCluster, node: &str) {
    let nodes = Api::<Node>::all(cluster.admin());
    let ready = json!({"status": {
        "conditions": [{"type": "Ready", "status": "True", "reason": "Simulated", "message": "",
                        "lastHeartbeatTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
        "allocatable": {"pods": "10", "cpu": "4", "memory": "8Gi"}, "capacity": {"pods": "10", "cpu": "4", "memory": "8Gi"},
    }});
    nodes
        .patch_status(node, &PatchParams::default(), &Patch::Merge(&ready))
        .await
        .unwrap();
    nodes
        .patch(
            node,
            &PatchParams::default(),
            &Patch::Merge(json!({"spec": {"taints": null}})),
        )
        .await
        .unwrap();
}

async fn a_token_bound_to_a_pod_carries_its_node(cluster: &TestCluster) {
    let pods = Api::<Pod>::namespaced(cluster.admin(), "lodge");
    let pod = serde_json::from_value(json!({
        "metadata": {"name": "bell"},
        "spec": {"nodeName": "sim-7", "serviceAccountName": "porter", "containers": [{"name": "main", "image": "sample:v1"}]},
    }))
    .unwrap();
    pods.create(&PostParams::default(), &pod).await.unwrap();

    let token = cluster
        .service_account_token("lodge", "porter", Some("bell"))
        .await
        .unwrap();
    let reviews = Api::<SelfSubjectReview>::all(cluster.client_for_token(&token).unwrap());
    let review = reviews
        .create(&PostParams::default(), &SelfSubjectReview::default())
        .await
        .unwrap();
    let user = review.status.unwrap().user_info.unwrap();
    assert_eq!(
        user.username.as_deref(),
        Some("system:serviceaccount:lodge:porter")
    );
    assert_eq!(
        user.extra.unwrap()["authentication.kubernetes.io/node-name"],
        ["sim-7"]
    );

    let kubeconfig = cluster.kubeconfig_with_token("porter", &token).unwrap();
    let output = cluster
        .kubectl_with(&kubeconfig)
        .args(["auth", "whoami", "-o", "name"])
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

async fn the_api_server_comes_back_with_its_data(cluster: &TestCluster) {
    cluster.restart_apiserver().await.unwrap();
    assert!(Api::<Node>::all(cluster.admin()).get("sim-7").await.is_ok());

    cluster.kill(Component::ApiServer).unwrap();
    assert!(
        Api::<Node>::all(cluster.admin())
            .get("sim-7")
            .await
            .is_err()
    );
    cluster.start_component(Component::ApiServer).await.unwrap();
    assert!(Api::<Node>::all(cluster.admin()).get("sim-7").await.is_ok());
}

async fn a_paused_scheduler_binds_nothing_until_it_is_resumed(cluster: &TestCluster) {
    cluster.pause(Component::Scheduler).unwrap();
    let pods = Api::<Pod>::namespaced(cluster.admin(), "lodge");
    let pod = serde_json::from_value(json!({
        "metadata": {"name": "guest"}, "spec": {"containers": [{"name": "main", "image": "sample:v1"}]},
    }))
    .unwrap();
    pods.create(&PostParams::default(), &pod).await.unwrap();
    let bound = async || {
        let pod = pods.get("guest").await?;
        Ok(pod.spec.and_then(|spec| spec.node_name))
    };
    assert!(
        eventually("a binding", Duration::from_secs(2), bound)
            .await
            .is_err(),
        "a paused scheduler bound a pod"
    );
    cluster.resume(Component::Scheduler).unwrap();
    assert_eq!(
        eventually("the pod to be bound", LIMIT, bound)
            .await
            .unwrap(),
        "sim-7"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn clusters_run_side_by_side_and_know_nothing_of_each_other() {
    let options = || Options::named("twin").unwrap().api_server_only();
    let (left, right) =
        tokio::try_join!(TestCluster::start(options()), TestCluster::start(options())).unwrap();
    println!(
        "API servers alone were ready after {:.1} s",
        left.started_in().max(right.started_in()).as_secs_f64()
    );

    left.apply_yaml("{apiVersion: v1, kind: Namespace, metadata: {name: attic}}")
        .await
        .unwrap();
    let output = left
        .kubectl()
        .args(["get", "namespace", "attic", "-o", "name"])
        .output()
        .unwrap();
    assert_eq!(
        String::from_utf8_lossy(&output.stdout).trim(),
        "namespace/attic"
    );
    let output = right
        .kubectl()
        .args(["get", "namespace", "attic"])
        .output()
        .unwrap();
    assert!(String::from_utf8_lossy(&output.stderr).contains("not found"));

    the_audit_log_counts_writes_by_user_verb_and_resource(&left).await;
}

async fn the_audit_log_counts_writes_by_user_verb_and_resource(cluster: &TestCluster) {
    let kubelet = cluster
        .client_for_user("system:node:sim-3", Some("system:nodes"))
        .unwrap();
    let audit = cluster.audit();
    let mark = audit.mark().await.unwrap();

    let node = serde_json::from_value(json!({"metadata": {"name": "sim-3"}})).unwrap();
    Api::<Node>::all(kubelet.clone())
        .create(&PostParams::default(), &node)
        .await
        .unwrap();
    let forged = json!({"metadata": {"labels": {"freehold.node-restriction.kubernetes.io/nvidia-owner": "dra"}}});
    let refused = Api::<Node>::all(kubelet)
        .patch("sim-3", &PatchParams::default(), &Patch::Merge(forged))
        .await;
    assert!(
        refused
            .unwrap_err()
            .to_string()
            .contains("is not allowed to modify labels")
    );

    let maps = Api::<ConfigMap>::namespaced(cluster.admin(), "attic");
    for name in ["lamp", "trunk"] {
        let map = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
        maps.create(&PostParams::default(), &map).await.unwrap();
    }
    maps.delete("lamp", &DeleteParams::default()).await.unwrap();
    maps.list(&ListParams::default()).await.unwrap();

    let by = |user: &str| Filter::all().user(user).without_leases();
    let writes = audit.writes_since(mark, &by("test-admin")).await.unwrap();
    let expected = BTreeMap::from([
        (
            ("test-admin".into(), "create".into(), "configmaps".into()),
            2,
        ),
        (
            ("test-admin".into(), "delete".into(), "configmaps".into()),
            1,
        ),
    ]);
    assert_eq!(writes.by_user_verb_resource(), expected, "{writes}");

    let tried = audit
        .writes_since(mark, &by("system:node:sim-3"))
        .await
        .unwrap();
    assert_eq!(tried.count(), 2, "{tried}");
    let done = audit
        .writes_since(mark, &by("system:node:sim-3").successful())
        .await
        .unwrap();
    assert_eq!(
        done.count_by(|event| event.verb.clone()),
        BTreeMap::from([("create".into(), 1)]),
        "{done}"
    );

    let later = audit.mark().await.unwrap();
    assert_eq!(
        audit
            .writes_since(later, &by("test-admin"))
            .await
            .unwrap()
            .count(),
        0
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_of_a_cluster_survives_it() {
    let cluster = TestCluster::start(Options::named("brief").unwrap().api_server_only())
        .await
        .unwrap();
    let folder = cluster.folder().to_owned();
    assert!(processes_that_mention(&folder) > 0);
    drop(cluster);
    assert_eq!(processes_that_mention(&folder), 0);
    assert!(
        folder.join("kube-apiserver.log").exists(),
        "logs stay for an hour"
    );
    assert!(!folder.join("etcd").exists(), "data does not");
}

fn processes_that_mention(folder: &std::path::Path) -> usize {
    let needle = folder.to_str().unwrap();
    std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| std::fs::read(entry.ok()?.path().join("cmdline")).ok())
        .filter(|line| String::from_utf8_lossy(line).contains(needle))
        .count()
}
