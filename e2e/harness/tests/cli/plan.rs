//! `plan` on live nodes and with a file laid over them.

use freehold_e2e::cluster::TestCluster;
use k8s_openapi::api::core::v1::{Node, Pod, ServiceAccount};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::plugin::Plugin;
/// Labels as the controller would have set them; there is no admission policy yet that keeps the test from it.
pub(super) async fn own(cluster: &TestCluster, node: &str, owner: &str, cohort: &str) {
    let prefix = "freehold.node-restriction.kubernetes.io";
    let patch = json!({"metadata": {"labels": {format!("{prefix}/nvidia-owner"): owner, format!("{prefix}/nvidia-cohort"): cohort}}});
    Api::<Node>::all(cluster.admin())
        .patch(node, &PatchParams::default(), &Patch::Merge(patch))
        .await
        .unwrap();
}

pub(super) async fn plan_tells_what_would_change(cluster: &TestCluster, plugin: &Plugin) {
    own(cluster, "reed-1", "device-plugin", "marsh-plugin").await;
    own(cluster, "reed-2", "device-plugin", "marsh-plugin").await;
    own(cluster, "reed-3", "device-plugin", "marsh-plugin").await;
    let trainer: Pod = serde_json::from_value(json!({"metadata": {"name": "fit-0", "namespace": "ml"}, "spec": {"nodeName": "reed-3",
        "automountServiceAccountToken": false, "containers": [{"name": "c", "image": "registry.example.com/fit:v1", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]}}))
    .unwrap();
    // Without the controller manager there is no service account by itself.
    let account: ServiceAccount =
        serde_json::from_value(json!({"metadata": {"name": "default"}})).unwrap();
    Api::namespaced(cluster.admin(), "ml")
        .create(&PostParams::default(), &account)
        .await
        .unwrap();
    Api::namespaced(cluster.admin(), "ml")
        .create(&PostParams::default(), &trainer)
        .await
        .unwrap();

    let plan = plugin.expect(&["plan"], 0);
    assert!(
        plan.out.starts_with("Changes: 1 handover; 2 as wanted."),
        "{}",
        plan.out
    );
    let json = plugin
        .expect(&["plan", "--exit-code", "-o", "json"], 3)
        .json();
    let moves = json["moves"].as_array().unwrap();
    assert_eq!(moves.len(), 1, "{json}");
    assert_eq!(
        (
            &moves[0]["node"],
            &moves[0]["from"],
            &moves[0]["to"],
            &moves[0]["wave"]
        ),
        (
            &json!("reed-3"),
            &json!("DevicePlugin"),
            &json!("DRA"),
            &json!(1)
        )
    );
    assert_eq!(moves[0]["consumers"][0]["name"], "ml/fit-0");
    assert_eq!(
        moves[0]["blockers"],
        Value::Null,
        "nothing but the trainer is in the way: {json}"
    );

    let file = cluster.folder().join("intent.yaml");
    let intent = "apiVersion: freehold.dev/v1alpha1\nkind: AcceleratorCluster\nmetadata: {name: cluster}\nspec:\n  cohorts:\n  - {name: marsh-dra, vendor: NVIDIA, owner: DRA, nodeSelector: {matchExpressions: [{key: bank, operator: Exists}]}}\n  rollout: {maxUnavailable: 2, canary: {nodes: 0}}\n";
    std::fs::write(&file, intent).unwrap();
    let file = file.display().to_string();
    let overlaid = plugin.expect(&["plan", "-f", &file], 0);
    assert!(
        overlaid
            .out
            .starts_with("Changes: 3 handovers; 0 as wanted."),
        "{}",
        overlaid.out
    );
    std::fs::write(&file, intent.replace("owner: DRA", "owner: dra")).unwrap();
    let wrong = plugin.expect(&["plan", "-f", &file], 2);
    assert!(
        wrong.err.contains("intent.yaml") && wrong.err.contains("dra"),
        "{}",
        wrong.err
    );
    layouts_are_drawn_on_a_published_board(cluster, plugin, intent);
    who_still_asks_for_what_goes_is_told(cluster, plugin).await;
    let absent = plugin.expect(&["plan", "-f", "/nowhere.yaml"], 2);
    assert!(absent.err.contains("/nowhere.yaml"), "{}", absent.err);
}

/// Workloads that ask for the resource of a node that goes to DRA, of several kinds, and a queue that gives out quota of it.
const ASKERS: &str = r"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: clusterqueues.kueue.x-k8s.io, annotations: {api-approved.kubernetes.io: 'https://github.com/kubernetes-sigs/kueue'}}
spec:
  group: kueue.x-k8s.io
  scope: Cluster
  names: {kind: ClusterQueue, plural: clusterqueues, singular: clusterqueue}
  versions:
  - {name: v1beta1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: serve, namespace: ml}
spec:
  replicas: 0
  selector: {matchLabels: {app: serve}}
  template:
    metadata: {labels: {app: serve}}
    spec: {containers: [{name: c, image: 'registry.example.com/serve:v1', resources: {limits: {nvidia.com/gpu: 1}}}]}
---
apiVersion: batch/v1
kind: CronJob
metadata: {name: nightly, namespace: ml}
spec:
  schedule: '0 3 * * *'
  jobTemplate:
    spec:
      template:
        spec:
          restartPolicy: Never
          initContainers: [{name: c, image: 'registry.example.com/fit:v1', resources: {limits: {nvidia.com/gpu: 2}}}]
          containers: [{name: d, image: 'registry.example.com/fit:v1'}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: plain, namespace: ml}
spec:
  selector: {matchLabels: {app: plain}}
  template:
    metadata: {labels: {app: plain}}
    spec: {containers: [{name: c, image: 'registry.example.com/plain:v1', resources: {limits: {cpu: 1}}}]}
";

const QUEUES: &str = r"
apiVersion: kueue.x-k8s.io/v1beta1
kind: ClusterQueue
metadata: {name: gpus}
spec: {resourceGroups: [{coveredResources: [cpu, nvidia.com/gpu], flavors: []}]}
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: ClusterQueue
metadata: {name: cpus}
spec: {resourceGroups: [{coveredResources: [cpu], flavors: []}]}
";

/// H110: before the move, and not when quota no longer holds.
async fn who_still_asks_for_what_goes_is_told(cluster: &TestCluster, plugin: &Plugin) {
    let nodes = Api::<Node>::all(cluster.admin());
    let advertise = async |node: &str, count: Value| {
        let resources = json!({"nvidia.com/gpu": count});
        let status = json!({"status": {"capacity": resources, "allocatable": resources}});
        nodes
            .patch_status(node, &PatchParams::default(), &Patch::Merge(status))
            .await
            .unwrap();
    };
    advertise("reed-1", json!("8")).await;
    advertise("reed-3", json!("8")).await;
    cluster.apply_yaml(ASKERS).await.unwrap();
    cluster.apply_yaml(QUEUES).await.unwrap();
    let json = plugin.expect(&["plan", "-o", "json"], 0).json();
    let expected = json!([{"resource": "nvidia.com/gpu", "nodes": 1, "elsewhere": 1, "askedBy":
        ["ClusterQueue gpus", "CronJob ml/nightly", "Deployment ml/serve", "Pod ml/fit-0"]}]);
    assert_eq!(json["impact"], expected, "{json}");
    let text = plugin.expect(&["plan"], 0).out;
    assert!(
        text.contains("ConsumerImpact: 1 node(s) stop offering nvidia.com/gpu")
            && text.contains("Deployment ml/serve"),
        "{text}"
    );
    advertise("reed-1", Value::Null).await;
    advertise("reed-3", Value::Null).await;
    let json = plugin.expect(&["plan", "-o", "json"], 0).json();
    assert_eq!(json["impact"], Value::Null, "nothing goes: {json}");
}

/// Nothing of it asks a cluster.
fn layouts_are_drawn_on_a_published_board(cluster: &TestCluster, plugin: &Plugin, intent: &str) {
    let with = |instances: &str| {
        let file = cluster.folder().join("layouts.yaml");
        let layout = format!(
            "owner: DRA, nvidia: {{mig: {{layouts: [{{gpus: All, instances: {{{instances}}}}}]}}}}"
        );
        std::fs::write(&file, intent.replace("owner: DRA", &layout)).unwrap();
        file.display().to_string()
    };
    let nowhere = ["--kubeconfig", "/nowhere.kubeconfig"];
    let plan = |file: &str, board: &str, exit| {
        let asked = ["plan", "-f", file, "--board", board, "--gpus", "2"];
        plugin.expect(&[&asked[..], &nowhere].concat(), exit)
    };
    let fits = plan(&with("3g.1/2: 2"), "H200", 0);
    assert!(
        fits.out.contains("GPU 0-1: creates 2") && fits.out.contains("│+3g.71gb"),
        "{}",
        fits.out
    );
    assert!(
        fits.out
            .contains("publishes 4 device(s), 4 of them MIG devices"),
        "{}",
        fits.out
    );
    let refused = plan(&with("3g.1/2: 3"), "H200", 3);
    assert!(
        refused.out.contains("at most 2 of 3g.71gb"),
        "{}",
        refused.out
    );
    let unknown = plan(&with("3g.1/2: 2"), "H2000", 2);
    assert!(
        unknown.err.contains("H2000") && unknown.err.contains("GH200-144"),
        "{}",
        unknown.err
    );
}
