//! Simulated nodes against a real control plane: what they do must be what a kubelet and the vendors' operands do.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "helpers of tests, outside test functions"
)]

use std::time::{Duration, Instant};

use freehold_e2e::cluster::{Options, TestCluster};
use freehold_e2e::install::Programs;
use freehold_e2e::sim::{Fleet, FleetOptions, NodeHandle, Shape, Tree, wait_for};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, ListParams};
use kube::{Client, ResourceExt as _};
use serde_json::json;

const SOON: Duration = Duration::from_secs(30);
/// Ten times as fast as a real node: slices are wiped after 3 s.
const SCALE: f64 = 0.1;

fn plugin_daemon_set(pool: &str) -> String {
    json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": format!("plugin-{pool}"), "namespace": "lodge"},
        "spec": {"selector": {"matchLabels": {"app": format!("plugin-{pool}")}}, "template": {
            "metadata": {"labels": {"app": format!("plugin-{pool}")}},
            "spec": {"nodeSelector": {"pool": pool}, "terminationGracePeriodSeconds": 2, "containers": [{
                "name": "plugin", "image": "mirror.example.com/nvidia/k8s-device-plugin:v9.9.9", "command": ["nvidia-device-plugin"],
            }]},
        }},
    })
    .to_string()
}

fn dra_daemon_set(pool: &str) -> String {
    json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": format!("dra-{pool}"), "namespace": "lodge"},
        "spec": {"selector": {"matchLabels": {"app": format!("dra-{pool}")}}, "template": {
            "metadata": {"labels": {"app": format!("dra-{pool}")}},
            "spec": {"nodeSelector": {"pool": pool}, "serviceAccountName": "dra", "terminationGracePeriodSeconds": 2,
                "initContainers": [{"name": "wait", "image": "mirror.example.com/dra-driver-nvidia-gpu:v9", "command": ["bash", "/usr/bin/prestart.sh"]}],
                "containers": [{"name": "gpus", "image": "mirror.example.com/dra-driver-nvidia-gpu:v9", "command": ["gpu-kubelet-plugin", "-v", "4"]}]},
        }},
    })
    .to_string()
}

const SETUP: &str = r#"
apiVersion: v1
kind: Namespace
metadata: {name: lodge}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: dra, namespace: lodge}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: lodge-dra}
rules:
- {apiGroups: [resource.k8s.io], resources: [resourceslices], verbs: [get, list, watch, create, update, delete]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: lodge-dra}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: lodge-dra}
subjects: [{kind: ServiceAccount, name: dra, namespace: lodge}]
---
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: whole-gpu}
spec: {extendedResourceName: lodge.example.com/gpu, selectors: [{cel: {expression: "device.driver == 'gpu.nvidia.com' && device.attributes['gpu.nvidia.com'].type == 'gpu'"}}]}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: two, namespace: lodge}
spec: {spec: {devices: {requests: [{name: r, exactly: {deviceClassName: whole-gpu, count: 2}}]}}}
"#;

fn plugin_pod(name: &str, resource: &str, count: u32) -> String {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "lodge"},
        "spec": {"terminationGracePeriodSeconds": 2, "containers": [{"name": "main", "image": "registry.example.com/train:v1",
            "resources": {"limits": {resource: count.to_string()}}}]}})
    .to_string()
}

fn claim_pod(name: &str, pool: &str) -> String {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "lodge"},
        "spec": {"terminationGracePeriodSeconds": 2, "nodeSelector": {"pool": pool},
            "resourceClaims": [{"name": "gpus", "resourceClaimTemplateName": "two"}],
            "containers": [{"name": "main", "image": "registry.example.com/train:v1", "resources": {"claims": [{"name": "gpus"}]}}]}})
    .to_string()
}

fn pods(client: &Client) -> Api<Pod> {
    Api::namespaced(client.clone(), "lodge")
}

async fn wait_for_phase(client: &Client, name: &str, phase: &str) -> Pod {
    wait_for(&format!("pod {name} {phase}"), SOON, async || {
        let pod = pods(client).get(name).await?;
        let found = pod
            .status
            .as_ref()
            .and_then(|status| status.phase.clone())
            .unwrap_or_default();
        Ok(if found == phase {
            Ok(pod)
        } else {
            Err(format!("{found}: {}", serde_json::to_string(&pod.status)?))
        })
    })
    .await
    .unwrap()
}

async fn wait_until_gone(client: &Client, name: &str) {
    wait_for(&format!("pod {name} to be gone"), SOON, async || {
        Ok(pods(client).get_opt(name).await?.map_or(Ok(()), |pod| {
            Err(format!("{:?}", pod.status.and_then(|status| status.phase)))
        }))
    })
    .await
    .unwrap();
}

fn checkpoint(node: &NodeHandle) -> String {
    node.tree(|tree| {
        Ok(std::fs::read_to_string(tree.path(
            "/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint",
        ))?)
    })
    .unwrap()
}

fn exists(node: &NodeHandle, path: impl Fn(&Tree) -> std::path::PathBuf) -> bool {
    node.tree(|tree| Ok(path(tree).exists())).unwrap()
}

fn claim_state(node: &NodeHandle) -> String {
    node.tree(|tree| Ok(std::fs::read_to_string(tree.kubelet("dra_manager_state"))?))
        .unwrap()
}

async fn delete_daemon_set(client: &Client, name: &str) {
    let api = Api::<k8s_openapi::api::apps::v1::DaemonSet>::namespaced(client.clone(), "lodge");
    api.delete(name, &DeleteParams::default()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn simulated_nodes_behave_as_real_ones() {
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .with_test_writer()
        .init();
    let programs = Programs::build().unwrap();
    let cluster = TestCluster::start(Options {
        node_lifecycle: true,
        ..Options::named("sim").unwrap()
    })
    .await
    .unwrap();
    cluster.apply_yaml(SETUP).await.unwrap();
    let nodes = vec![
        (
            "granite-1".to_owned(),
            Shape::h100().with_label("pool", "a"),
        ),
        (
            "granite-2".to_owned(),
            Shape::h100().with_label("pool", "b"),
        ),
        (
            "granite-3".to_owned(),
            Shape::h100_without_driver().with_label("pool", "c"),
        ),
        ("granite-4".to_owned(), Shape::eks_auto_mode()),
    ];
    let options = FleetOptions {
        scale: SCALE,
        agent: Some(programs.agent),
        ..FleetOptions::default()
    };
    let fleet = Fleet::start(&cluster, options, nodes).await.unwrap();
    let client = fleet.admin();

    nodes_are_large_and_ready(&fleet).await;
    an_auto_mode_node_advertises_by_itself(&fleet).await;
    a_device_plugin_serves_pods_and_leaves_a_zero_behind(&cluster, &fleet, &client).await;
    a_claim_is_allocated_prepared_and_needs_its_driver_to_go(&cluster, &fleet, &client).await;
    a_plain_request_can_be_served_by_a_claim(&cluster, &fleet, &client).await;
    a_force_deleted_pod_can_leave_a_holder(&cluster, &fleet, &client).await;
    a_driver_waits_for_the_kernel_driver_without_an_error(&cluster, &fleet, &client).await;
    a_reboot_and_a_replacement_are_seen(&fleet).await;
    an_operand_starts_only_once_the_real_interlock_holds(&cluster, &fleet, &client).await;

    fleet.stop().await;
    cluster.stop().unwrap();
}

async fn nodes_are_large_and_ready(fleet: &Fleet) {
    for node in fleet.nodes() {
        let object = node.object().await.unwrap();
        assert!(freehold_e2e::sim::is_ready(&object));
        assert!(
            object.spec.as_ref().unwrap().taints.is_none(),
            "{:?}",
            object.spec
        );
        let size = serde_json::to_string(&object).unwrap().len();
        assert!(
            (20_000..60_000).contains(&size),
            "{} has {size} bytes",
            node.name()
        );
        assert!(
            object.labels().len() >= 40,
            "{} labels",
            object.labels().len()
        );
    }
}

async fn an_auto_mode_node_advertises_by_itself(fleet: &Fleet) {
    let node = fleet.node("granite-4").unwrap();
    node.wait_for_allocatable("nvidia.com/gpu", Some(4), SOON)
        .await
        .unwrap();
    assert_eq!(
        pods(&fleet.admin())
            .list(&ListParams::default())
            .await
            .unwrap()
            .items
            .len(),
        0
    );
}

async fn a_device_plugin_serves_pods_and_leaves_a_zero_behind(
    cluster: &TestCluster,
    fleet: &Fleet,
    client: &Client,
) {
    let node = fleet.node("granite-1").unwrap();
    assert_eq!(node.allocatable("nvidia.com/gpu").await.unwrap(), None);
    cluster.apply_yaml(&plugin_daemon_set("a")).await.unwrap();
    node.wait_for_allocatable("nvidia.com/gpu", Some(8), SOON)
        .await
        .unwrap();
    assert!(exists(&node, |tree| tree
        .path("/var/lib/kubelet/device-plugins/nvidia-gpu.sock")));

    cluster
        .apply_yaml(&plugin_pod("train", "nvidia.com/gpu", 6))
        .await
        .unwrap();
    let pod = wait_for_phase(client, "train", "Running").await;
    assert_eq!(
        pod.spec.as_ref().unwrap().node_name.as_deref(),
        Some("granite-1")
    );
    let uid = pod.uid().unwrap();
    assert!(checkpoint(&node).contains(&uid));
    assert!(exists(&node, |tree| tree.pod_dir(&uid)));

    pods(client)
        .delete("train", &DeleteParams::default())
        .await
        .unwrap();
    wait_until_gone(client, "train").await;
    assert!(!exists(&node, |tree| tree.pod_dir(&uid)));
    assert!(
        checkpoint(&node).contains(&uid),
        "the entry stays until the next allocation"
    );

    delete_daemon_set(client, "plugin-a").await;
    node.wait_for_allocatable("nvidia.com/gpu", Some(0), SOON)
        .await
        .unwrap();
    let capacity = node
        .object()
        .await
        .unwrap()
        .status
        .unwrap()
        .capacity
        .unwrap();
    assert_eq!(
        capacity["nvidia.com/gpu"].0, "8",
        "capacity stays for five minutes"
    );
    assert!(!exists(&node, |tree| tree
        .path("/var/lib/kubelet/device-plugins/nvidia-gpu.sock")));
}

async fn a_claim_is_allocated_prepared_and_needs_its_driver_to_go(
    cluster: &TestCluster,
    fleet: &Fleet,
    client: &Client,
) {
    let node = fleet.node("granite-2").unwrap();
    cluster.apply_yaml(&dra_daemon_set("b")).await.unwrap();
    node.wait_for_devices("gpu.nvidia.com", 8, SOON)
        .await
        .unwrap();

    cluster.apply_yaml(&claim_pod("infer", "b")).await.unwrap();
    let pod = wait_for_phase(client, "infer", "Running").await;
    let uid = pod.uid().unwrap();
    assert!(claim_state(&node).contains(&uid));
    let prepared = node
        .tree(|tree| {
            Ok(tree
                .read_driver_checkpoint("gpu.nvidia.com")?
                .prepared_claims
                .len())
        })
        .unwrap();
    assert_eq!(prepared, 1);

    delete_daemon_set(client, "dra-b").await;
    wait_for("the driver to be unregistered", SOON, async || {
        Ok(if node.kubelet(|state| state.drivers.is_empty())? {
            Ok(())
        } else {
            Err("still registered".to_owned())
        })
    })
    .await
    .unwrap();
    let left = Instant::now();
    assert_eq!(
        node.slices("gpu.nvidia.com").await.unwrap().len(),
        1,
        "slices outlive their driver"
    );
    node.wait_for_devices("gpu.nvidia.com", 0, SOON)
        .await
        .unwrap();
    assert!(
        left.elapsed() > Duration::from_secs_f64(25.0 * SCALE),
        "wiped after {:?}",
        left.elapsed()
    );

    pods(client)
        .delete("infer", &DeleteParams::default())
        .await
        .unwrap();
    tokio::time::sleep(Duration::from_secs(4)).await;
    let hanging = pods(client).get("infer").await.unwrap();
    assert!(
        hanging.metadata.deletion_timestamp.is_some(),
        "it hangs in Terminating"
    );
    assert!(claim_state(&node).contains(&uid));
    cluster.apply_yaml(&dra_daemon_set("b")).await.unwrap();
    wait_until_gone(client, "infer").await;
    assert!(!claim_state(&node).contains(&uid));
    node.wait_for_devices("gpu.nvidia.com", 8, SOON)
        .await
        .unwrap();
}

async fn a_plain_request_can_be_served_by_a_claim(
    cluster: &TestCluster,
    fleet: &Fleet,
    client: &Client,
) {
    if cluster.version().starts_with("v1.34") {
        return;
    }
    let node = fleet.node("granite-2").unwrap();
    cluster
        .apply_yaml(&plugin_pod("plain", "lodge.example.com/gpu", 1))
        .await
        .unwrap();
    let pod = wait_for_phase(client, "plain", "Running").await;
    assert!(
        pod.status
            .as_ref()
            .unwrap()
            .extended_resource_claim_status
            .is_some()
    );
    assert!(claim_state(&node).contains(&pod.uid().unwrap()));
    assert!(
        !checkpoint(&node).contains(&pod.uid().unwrap()),
        "no device plugin gave it anything"
    );
    pods(client)
        .delete("plain", &DeleteParams::default())
        .await
        .unwrap();
    wait_until_gone(client, "plain").await;
}

async fn a_force_deleted_pod_can_leave_a_holder(
    cluster: &TestCluster,
    fleet: &Fleet,
    client: &Client,
) {
    let node = fleet.node("granite-2").unwrap();
    cluster.apply_yaml(&claim_pod("stuck", "b")).await.unwrap();
    let uid = wait_for_phase(client, "stuck", "Running")
        .await
        .uid()
        .unwrap();
    node.force_delete_pod_keep_holder("lodge", "stuck", Duration::from_secs(3))
        .await
        .unwrap();
    wait_until_gone(client, "stuck").await;
    assert!(
        claim_state(&node).contains(&uid),
        "the API is clean, the node is not"
    );
    assert!(exists(&node, |tree| tree.pod_dir(&uid)));
    wait_for("the node to be clean", SOON, async || {
        let gone = node.tree(|tree| Ok(!tree.pod_dir(&uid).exists()))?;
        Ok(if gone {
            Ok(())
        } else {
            Err("the pod's directory".to_owned())
        })
    })
    .await
    .unwrap();
    assert!(!claim_state(&node).contains(&uid));
}

async fn a_driver_waits_for_the_kernel_driver_without_an_error(
    cluster: &TestCluster,
    fleet: &Fleet,
    client: &Client,
) {
    let node = fleet.node("granite-3").unwrap();
    cluster.apply_yaml(&dra_daemon_set("c")).await.unwrap();
    let waiting = wait_for("the init container to run", SOON, async || {
        let found = pods(client)
            .list(&ListParams::default().labels("app=dra-c"))
            .await?
            .items
            .pop();
        let init = found.and_then(|pod| pod.status?.init_container_statuses?.pop());
        Ok(init
            .filter(|init| {
                init.state
                    .as_ref()
                    .is_some_and(|state| state.running.is_some())
            })
            .ok_or_else(|| "not yet".to_owned()))
    })
    .await
    .unwrap();
    assert_eq!(waiting.restart_count, 0);
    assert!(node.slices("gpu.nvidia.com").await.unwrap().is_empty());
    node.load_driver("580.95.05").unwrap();
    node.wait_for_devices("gpu.nvidia.com", 8, SOON)
        .await
        .unwrap();
}

async fn a_reboot_and_a_replacement_are_seen(fleet: &Fleet) {
    let node = fleet.node("granite-2").unwrap();
    let before = node.object().await.unwrap();
    node.reboot().await.unwrap();
    node.wait_for_devices("gpu.nvidia.com", 8, SOON)
        .await
        .unwrap();
    let after = node.object().await.unwrap();
    let boot = |node: &k8s_openapi::api::core::v1::Node| {
        node.status
            .as_ref()
            .unwrap()
            .node_info
            .as_ref()
            .unwrap()
            .boot_id
            .clone()
    };
    assert_ne!(boot(&before), boot(&after));
    wait_for("the driver's pod to show its restart", SOON, async || {
        let found = pods(&fleet.admin())
            .list(&ListParams::default().labels("app=dra-b"))
            .await?
            .items
            .pop();
        let statuses = found
            .and_then(|pod| pod.status?.container_statuses)
            .unwrap_or_default();
        let restarted = statuses
            .iter()
            .any(|status| status.ready && status.restart_count == 1);
        Ok(if restarted {
            Ok(())
        } else {
            Err(format!("{statuses:?}"))
        })
    })
    .await
    .unwrap();
    assert_eq!(before.uid(), after.uid());

    node.stop_slices("gpu.nvidia.com").await.unwrap();
    node.wait_for_devices("gpu.nvidia.com", 0, SOON)
        .await
        .unwrap();
    node.hold_slices(false).unwrap();
    node.wait_for_devices("gpu.nvidia.com", 8, SOON)
        .await
        .unwrap();

    node.delete().await.unwrap();
    node.recreate_same_name(Some(Shape::trn2_48xlarge()))
        .await
        .unwrap();
    let replaced = node.object().await.unwrap();
    assert_ne!(replaced.uid(), after.uid());
    assert_eq!(
        replaced.labels()["node.kubernetes.io/instance-type"],
        "trn2.48xlarge"
    );
}

/// A device plugin behind the interlock's sidecar, as the controller renders it.
fn guarded_daemon_set(pool: &str) -> String {
    let agent = "mirror.example.com/freehold-agent:v7";
    json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "guarded", "namespace": "lodge"},
        "spec": {"selector": {"matchLabels": {"app": "guarded"}}, "template": {
            "metadata": {"labels": {"app": "guarded"}},
            "spec": {
                "nodeSelector": {"pool": pool}, "terminationGracePeriodSeconds": 5,
                "initContainers": [{
                    "name": "interlock", "image": agent, "restartPolicy": "Always",
                    "command": ["freehold-agent", "hold", "--vendor", "nvidia", "--owner", "device-plugin",
                        "--state-dir", "/var/lib/freehold/nvidia", "--started", "/run/freehold/held"],
                    "startupProbe": {"exec": {"command": ["freehold-agent", "held", "--started", "/run/freehold/held"]}, "periodSeconds": 1},
                    "volumeMounts": [{"name": "state", "mountPath": "/var/lib/freehold/nvidia"}, {"name": "mark", "mountPath": "/run/freehold"}],
                }],
                "containers": [{"name": "plugin", "image": "mirror.example.com/k8s-device-plugin:v9", "command": ["nvidia-device-plugin"]}],
                "volumes": [
                    {"name": "state", "hostPath": {"path": "/var/lib/freehold/nvidia", "type": "DirectoryOrCreate"}},
                    {"name": "mark", "emptyDir": {"medium": "Memory"}},
                ],
            },
        }},
    })
    .to_string()
}

async fn an_operand_starts_only_once_the_real_interlock_holds(
    cluster: &TestCluster,
    fleet: &Fleet,
    client: &Client,
) {
    let node = fleet.node("granite-1").unwrap();
    let lock_is_free = || {
        node.tree(|tree| {
            let file = std::fs::File::open(tree.path("/var/lib/freehold/nvidia/lock"))?;
            Ok(file.try_lock().is_ok())
        })
    };
    cluster.apply_yaml(&guarded_daemon_set("a")).await.unwrap();
    let sidecar = async || {
        let pod = pods(client)
            .list(&ListParams::default().labels("app=guarded"))
            .await?
            .items
            .pop();
        let statuses = pod
            .and_then(|pod| pod.status?.init_container_statuses)
            .unwrap_or_default();
        anyhow::Ok(statuses.into_iter().next())
    };
    wait_for("the sidecar to run", SOON, async || {
        let running = sidecar()
            .await?
            .is_some_and(|status| status.state.is_some_and(|state| state.running.is_some()));
        Ok(if running {
            Ok(())
        } else {
            Err("not yet".to_owned())
        })
    })
    .await
    .unwrap();
    // Long enough for an operand that does not wait to have registered.
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(sidecar().await.unwrap().unwrap().started, Some(false));
    assert_eq!(
        node.allocatable("nvidia.com/gpu").await.unwrap(),
        Some(0),
        "still what the last plugin left behind"
    );

    node.tree(|tree| tree.write("/var/lib/freehold/nvidia/owner", "device-plugin\n"))
        .unwrap();
    node.wait_for_allocatable("nvidia.com/gpu", Some(8), SOON)
        .await
        .unwrap();
    assert!(
        !lock_is_free().unwrap(),
        "the sidecar holds the lock for as long as the pod lives"
    );

    delete_daemon_set(client, "guarded").await;
    node.wait_for_allocatable("nvidia.com/gpu", Some(0), SOON)
        .await
        .unwrap();
    wait_for("the lock to be free", SOON, async || {
        Ok(if lock_is_free()? {
            Ok(())
        } else {
            Err("held".to_owned())
        })
    })
    .await
    .unwrap();
}
