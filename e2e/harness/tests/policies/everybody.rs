//! Cluster administrators, kubelets and controllers of Kubernetes itself.

use freehold_e2e::cluster::{Options, TestCluster, eventually};
use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use kube::{Api, api::ListParams};
use serde_json::{Value, json};
use std::{collections::BTreeSet, time::Duration};

use crate::{
    attempt::{Expect, NODES, ask, attempt, create, delete, get, merge, try_all},
    stage::{INTENT, OTHER, OWN, REPORTS, Stage, repository},
};

const MARKS: &str = "freehold-node-marks";
const OWNER: &str = "freehold.node-restriction.kubernetes.io/nvidia-owner";

fn label(key: &str, value: &Value) -> Value {
    json!({"metadata": {"labels": {key: value}}})
}

fn taint(key: &str) -> Value {
    json!({"spec": {"taints": [{"key": key, "value": "5", "effect": "NoSchedule"}]}})
}

#[tokio::test]
async fn the_intent_is_deleted_in_the_background_or_not_at_all() {
    let stage = Stage::set("deletion").await;
    let admin = stage.cluster.admin();
    let policy = "freehold-cluster-deletion";
    let with = |how: &str| delete(&format!("{INTENT}?{how}"));
    try_all(
        &admin,
        vec![
            attempt(
                "foreground",
                with("propagationPolicy=Foreground"),
                Expect::Policy(policy, "under running workloads"),
            ),
            attempt(
                "orphan",
                with("propagationPolicy=Orphan"),
                Expect::Policy(policy, "nobody would keep them"),
            ),
            attempt(
                "orphan, as it was said before",
                with("orphanDependents=true"),
                Expect::Policy(policy, "--cascade=background"),
            ),
            attempt(
                "background",
                with("propagationPolicy=Background"),
                Expect::Done,
            ),
        ],
    )
    .await;
}

#[tokio::test]
async fn not_even_a_cluster_administrator_changes_marks_or_orders() {
    let stage = Stage::set("administrator").await;
    let admin = stage.cluster.admin();
    let (node, status) = (format!("{NODES}/{OWN}"), format!("{NODES}/{OWN}/status"));
    let marked = |name: &str| json!({"metadata": {"name": name, "labels": {OWNER: "dra"}}});
    try_all(&admin, vec![
        attempt("an owner label", merge(&node, &label(OWNER, &json!("dra"))),
            Expect::Policy(MARKS, "change the AcceleratorCluster instead")),
        attempt("an owner label through the status", merge(&status, &label(OWNER, &json!("dra"))),
            Expect::Policy(MARKS, "say who hands out the devices of node alder")),
        attempt("an agent label", merge(&node, &label("freehold.node-restriction.kubernetes.io/agent", &json!("x"))),
            Expect::Policy(MARKS, "say who hands out the devices of node alder")),
        attempt("a Node born with an owner label", create(NODES, &marked("cedar")),
            Expect::Policy(MARKS, "say who hands out the devices of node cedar")),
        attempt("a Neuron fence", merge(&node, &taint("freehold.dev/neuron-handover")),
            Expect::Policy(MARKS, "fence node alder during a handover")),
        attempt("a label of its own", merge(&node, &label("pool", &json!("y"))), Expect::Done),
        attempt("a taint of its own", merge(&node, &taint("other.example/maintenance")), Expect::Done),
        attempt("a Node without marks", create(NODES, &json!({"metadata": {"name": "dogwood"}})), Expect::Done),
        attempt("an order", merge(&format!("{REPORTS}/{OWN}"), &json!({"spec": {"nvidia": {"term": 12}}})),
            Expect::Policy("freehold-node-orders", "AcceleratorNode alder is made and its spec written by the Freehold controller only")),
        attempt("an AcceleratorNode", create(REPORTS, &json!({"apiVersion": "freehold.dev/v1alpha1", "kind": "AcceleratorNode",
            "metadata": {"name": "dogwood"}, "spec": {"nodeUID": "u-1"}})),
            Expect::Policy("freehold-node-orders", "is made and its spec written by the Freehold controller only")),
        attempt("a report", merge(&format!("{REPORTS}/{OWN}/status"), &json!({"status": {"report":
            {"nodeUID": "u-1", "bootID": "b", "agentVersion": "v"}}})),
            Expect::Policy("freehold-node-orders", "is the statement of the agent on that node")),
        attempt("a note on an AcceleratorNode", merge(&format!("{REPORTS}/{OWN}"), &label("team", &json!("z"))), Expect::Done),
        attempt("the intent", merge(INTENT, &json!({"spec": {"rollout": {"paused": true}}})), Expect::Done),
    ])
    .await;

    // What the controller wrote stays as well: neither changed nor removed.
    let controller = stage.controller().await;
    let fence = json!({"spec": {"taints": [
        {"key": "other.example/maintenance", "value": "5", "effect": "NoSchedule"},
        {"key": "freehold.dev/nvidia-handover", "value": "5", "effect": "NoSchedule"},
    ]}});
    try_all(
        &controller,
        vec![
            attempt(
                "owner",
                merge(&node, &label(OWNER, &json!("dra"))),
                Expect::Done,
            ),
            attempt("fence", merge(&node, &fence), Expect::Done),
        ],
    )
    .await;
    try_all(&admin, vec![
        attempt("another owner", merge(&node, &label(OWNER, &json!("device-plugin"))), Expect::Policy(MARKS, "node alder")),
        attempt("no owner", merge(&node, &label(OWNER, &Value::Null)), Expect::Policy(MARKS, "node alder")),
        attempt("no fence", merge(&node, &taint("other.example/maintenance")), Expect::Policy(MARKS, "fence node alder")),
        attempt("another term", merge(&node, &json!({"spec": {"taints": [
            {"key": "freehold.dev/nvidia-handover", "value": "6", "effect": "NoSchedule"}]}})),
            Expect::Policy(MARKS, "fence node alder")),
        attempt("a label beside them", merge(&node, &label("pool", &json!("w"))), Expect::Done),
        attempt("removing the Node", delete(&node), Expect::Done),
        // The way out after an uninstall, as the message says.
        attempt("removing the binding", delete(
            "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/freehold-node-marks"), Expect::Done),
    ])
    .await;
    let other = format!("{NODES}/{OTHER}");
    eventually(
        "the policy to be gone",
        Duration::from_secs(30),
        async || {
            Ok(ask(&admin, merge(&other, &label(OWNER, &json!("x"))))
                .await
                .ok())
        },
    )
    .await
    .unwrap();
}

#[tokio::test]
async fn a_kubelet_cannot_forge_an_owner_and_keeps_its_node_alive_under_the_policies() {
    let stage = Stage::set("kubelet").await;
    let kubelet = stage
        .cluster
        .client_for_user(&format!("system:node:{OWN}"), Some("system:nodes"))
        .unwrap();
    let (node, status) = (format!("{NODES}/{OWN}"), format!("{NODES}/{OWN}/status"));
    let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True", "reason": "r", "message": "m"}],
        "allocatable": {"nvidia.com/gpu": "8"}, "capacity": {"nvidia.com/gpu": "8"}}});
    try_all(
        &kubelet,
        vec![
            attempt(
                "an owner label",
                merge(&node, &label(OWNER, &json!("dra"))),
                Expect::NodeRestriction,
            ),
            attempt(
                "an owner label through the status",
                merge(&status, &label(OWNER, &json!("dra"))),
                Expect::NodeRestriction,
            ),
            attempt("its status", merge(&status, &ready), Expect::Done),
            attempt(
                "a label of its own",
                merge(&node, &label("topology.example/rack", &json!("r7"))),
                Expect::Done,
            ),
        ],
    )
    .await;

    // Once marked, the node is still the kubelet's to update.
    try_all(
        &stage.controller().await,
        vec![attempt(
            "owner",
            merge(&node, &label(OWNER, &json!("dra"))),
            Expect::Done,
        )],
    )
    .await;
    try_all(
        &kubelet,
        vec![
            attempt(
                "its status again",
                merge(
                    &status,
                    &json!({"status": {"allocatable": {"nvidia.com/gpu": "0"}}}),
                ),
                Expect::Done,
            ),
            attempt(
                "removing the owner",
                merge(&node, &label(OWNER, &Value::Null)),
                Expect::NodeRestriction,
            ),
            attempt(
                "a report",
                merge(&format!("{REPORTS}/{OWN}/status"), &json!({"status": {}})),
                Expect::NotAllowed("patch resource \"acceleratornodes/status\""),
            ),
        ],
    )
    .await;
    let node = ask(&stage.cluster.admin(), get(&node)).await.unwrap();
    assert_eq!(node["metadata"]["labels"][OWNER], "dra");
    assert_eq!(node["status"]["allocatable"]["nvidia.com/gpu"], "0");
}

#[tokio::test]
async fn every_policy_is_well_typed_fails_closed_and_is_in_force() {
    // The controller manager checks policies' types against the schemas of what they match.
    let cluster = TestCluster::start(Options {
        scheduler: false,
        ..Options::named("policy-types").unwrap()
    })
    .await
    .unwrap();
    cluster.apply_dir(repository("crds")).await.unwrap();
    cluster
        .apply_dir(repository("config/install"))
        .await
        .unwrap();
    cluster
        .apply_dir(repository("config/optional"))
        .await
        .unwrap();
    let policies = Api::<ValidatingAdmissionPolicy>::all(cluster.admin());
    let bindings = Api::<ValidatingAdmissionPolicyBinding>::all(cluster.admin());
    let bound: BTreeSet<_> = bindings
        .list(&ListParams::default())
        .await
        .unwrap()
        .into_iter()
        .map(|binding| {
            let spec = binding.spec;
            assert_eq!(spec.validation_actions, ["Deny"], "{:?}", spec.policy_name);
            assert!(
                spec.match_resources.is_none() && spec.param_ref.is_none(),
                "{:?} binds everywhere",
                spec.policy_name
            );
            spec.policy_name
        })
        .collect();
    let listed = eventually(
        "the policies to be type-checked",
        Duration::from_secs(60),
        async || {
            let listed = policies.list(&ListParams::default()).await?.items;
            let checked = listed.iter().all(|policy| {
                policy
                    .status
                    .as_ref()
                    .is_some_and(|status| status.observed_generation == policy.metadata.generation)
            });
            Ok(checked.then_some(listed))
        },
    )
    .await
    .unwrap();
    assert_eq!(
        listed.len(),
        12,
        "a new policy needs its attempts in these tests"
    );
    for policy in listed {
        let name = policy.metadata.name.unwrap();
        assert!(bound.contains(&name), "{name} is bound to nothing");
        let spec = policy.spec.unwrap();
        assert_eq!(spec.failure_policy.as_deref(), Some("Fail"), "{name}");
        assert!(
            spec.param_kind.is_none(),
            "{name}: a policy whose parameter kind is missing refuses every matching write"
        );
        for validation in spec.validations.unwrap() {
            assert_eq!(
                validation.reason.as_deref(),
                Some("Forbidden"),
                "{name}: {}",
                validation.expression
            );
        }
        let warnings = policy
            .status
            .and_then(|status| status.type_checking)
            .and_then(|types| types.expression_warnings);
        assert_eq!(warnings.unwrap_or_default(), vec![], "{name}");
    }
}
