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
    let absent = plugin.expect(&["plan", "-f", "/nowhere.yaml"], 2);
    assert!(absent.err.contains("/nowhere.yaml"), "{}", absent.err);
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
