//! The controller's token, stolen: what it could do to Nodes and to objects that are not Freehold's.

use freehold_core::names::{CONTROLLER_SERVICE_ACCOUNT, OPERAND_NAMESPACE, SYSTEM_NAMESPACE};
use serde_json::{Value, json};

use crate::{
    attempt::{Expect, NODES, SLICES, ask, attempt, create, delete, get, merge, replace, try_all},
    stage::{INTENT, OWN, REPORTS, Stage},
};

const NODE_BOUNDS: &str = "freehold-controller-nodes";
const OBJECT_BOUNDS: &str = "freehold-controller-objects";
const POD_BOUNDS: &str = "freehold-controller-pods";
const INTENT_BOUNDS: &str = "freehold-controller-intent";

const OWNER: &str = "freehold.node-restriction.kubernetes.io/neuron-owner";
const ALIAS: &str = "workload.example.com/gpu-allocation";

fn labels(pairs: &Value) -> Value {
    json!({"metadata": {"labels": pairs}})
}

fn taints(list: &[(&str, &str, &str)]) -> Value {
    let list: Vec<_> = list
        .iter()
        .map(|(key, value, effect)| json!({"key": key, "value": value, "effect": effect}))
        .collect();
    json!({"spec": {"taints": list}})
}

#[tokio::test]
async fn on_nodes_the_controller_sets_its_marks_and_nothing_else() {
    let stage = Stage::set("controller-nodes").await;
    let node = format!("{NODES}/{OWN}");
    let foreign = ("other.example/maintenance", "x", "NoSchedule");
    let admin = stage.cluster.admin();
    let prepared = json!({
        "metadata": {
            "labels": {"by.hand/allocation": "dra", "team.example/stage": "blue"},
            "annotations": {"NEURON_DEV_USAGE_MAP": "0:1", "other.example/note": "keep"},
        },
        "spec": {"taints": [{"key": foreign.0, "value": foreign.1, "effect": foreign.2}]},
    });
    ask(&admin, merge(&node, &prepared)).await.unwrap();
    let fence = ("freehold.dev/neuron-handover", "5", "NoSchedule");
    let not_this_label = |key| Expect::Policy(NODE_BOUNDS, key);
    try_all(
        &stage.controller().await,
        vec![
            attempt(
                "fence",
                merge(&node, &taints(&[fence, foreign])),
                Expect::Done,
            ),
            attempt(
                "owner, cohort and alias",
                merge(
                    &node,
                    &labels(&json!({OWNER: "dra",
            "freehold.node-restriction.kubernetes.io/neuron-cohort": "maple", ALIAS: "dra"})),
                ),
                Expect::Done,
            ),
            attempt("unfence", merge(&node, &taints(&[foreign])), Expect::Done),
            attempt(
                "another owner",
                merge(
                    &node,
                    &labels(&json!({OWNER: "device-plugin", ALIAS: "device-plugin"})),
                ),
                Expect::Done,
            ),
            attempt(
                "no owner",
                merge(&node, &labels(&json!({OWNER: null, ALIAS: null}))),
                Expect::Done,
            ),
            attempt(
                "removing a stale usage map",
                merge(
                    &node,
                    &json!({"metadata": {"annotations": {"NEURON_DEV_USAGE_MAP": null}}}),
                ),
                Expect::Done,
            ),
            attempt(
                "a foreign label",
                merge(&node, &labels(&json!({"pool": "y"}))),
                not_this_label("not: pool"),
            ),
            attempt(
                "removing a foreign label",
                merge(&node, &labels(&json!({"team.example/stage": null}))),
                not_this_label("not: team.example/stage"),
            ),
            attempt(
                "a foreign label, to an owner",
                merge(&node, &labels(&json!({"team.example/stage": "dra"}))),
                not_this_label("not: team.example/stage"),
            ),
            attempt(
                "a role label",
                merge(
                    &node,
                    &labels(&json!({"node-role.kubernetes.io/control-plane": "dra"})),
                ),
                not_this_label("not: node-role.kubernetes.io/control-plane"),
            ),
            attempt(
                "an annotation",
                merge(
                    &node,
                    &json!({"metadata": {"annotations": {"other.example/note": null}}}),
                ),
                Expect::Policy(
                    NODE_BOUNDS,
                    "not change the annotations: other.example/note",
                ),
            ),
            attempt(
                "setting a usage map",
                merge(
                    &node,
                    &json!({"metadata": {"annotations": {"NEURON_CORE_USAGE_MAP": "1"}}}),
                ),
                Expect::Policy(
                    NODE_BOUNDS,
                    "not change the annotations: NEURON_CORE_USAGE_MAP",
                ),
            ),
            attempt(
                "a foreign taint",
                merge(
                    &node,
                    &taints(&[foreign, ("other.example/b", "", "NoSchedule")]),
                ),
                Expect::Policy(NODE_BOUNDS, "and no other taint"),
            ),
            attempt(
                "removing a foreign taint",
                merge(&node, &taints(&[])),
                Expect::Policy(NODE_BOUNDS, "and no other taint"),
            ),
            attempt(
                "a fence that evicts",
                merge(&node, &taints(&[foreign, (fence.0, "5", "NoExecute")])),
                Expect::Policy(NODE_BOUNDS, "and no other taint"),
            ),
            attempt(
                "cordon",
                merge(&node, &json!({"spec": {"unschedulable": true}})),
                Expect::Policy(
                    NODE_BOUNDS,
                    "nothing in the spec of node alder but its two fence taints",
                ),
            ),
            attempt(
                "a provider ID",
                merge(&node, &json!({"spec": {"providerID": "aws:///x"}})),
                Expect::Policy(NODE_BOUNDS, "nothing in the spec of node alder"),
            ),
            attempt(
                "a finalizer",
                merge(
                    &node,
                    &json!({"metadata": {"finalizers": ["freehold.dev/x"]}}),
                ),
                Expect::Policy(NODE_BOUNDS, "finalizers or ownerReferences"),
            ),
            attempt(
                "its status",
                merge(
                    &format!("{node}/status"),
                    &json!({"status": {"capacity": {"nvidia.com/gpu": "9"}}}),
                ),
                Expect::NotAllowed("patch resource \"nodes/status\""),
            ),
            attempt(
                "deleting it",
                delete(&node),
                Expect::NotAllowed("delete resource \"nodes\""),
            ),
            attempt(
                "a Node",
                create(NODES, &json!({"metadata": {"name": "cedar"}})),
                Expect::NotAllowed("create resource \"nodes\""),
            ),
        ],
    )
    .await;
    let after = ask(&admin, get(&node)).await.unwrap();
    assert_eq!(after["metadata"]["labels"]["by.hand/allocation"], "dra");
    assert_eq!(
        after["metadata"]["annotations"],
        json!({"other.example/note": "keep"})
    );
    assert_eq!(after["spec"]["taints"][0]["key"], foreign.0);
}

#[tokio::test]
async fn the_controller_keeps_its_own_objects_and_leaves_everybody_elses_alone() {
    let stage = Stage::set("controller-objects").await;
    let admin = stage.cluster.admin();
    let uid = ask(&admin, get(INTENT)).await.unwrap()["metadata"]["uid"]
        .as_str()
        .unwrap()
        .to_owned();
    let ours = json!([{"apiVersion": "freehold.dev/v1alpha1", "kind": "AcceleratorCluster", "name": "cluster", "uid": uid,
        "controller": true, "blockOwnerDeletion": true}]);
    let daemon_set = |name: &str, owners: &Value| {
        json!({
            "metadata": {"name": name, "ownerReferences": owners, "labels": {"app.kubernetes.io/managed-by": "freehold"}},
            "spec": {
                "selector": {"matchLabels": {"app": "any"}},
                "template": {
                    "metadata": {"labels": {"app": "any"}},
                    "spec": {"containers": [{"name": "main", "image": "registry.example.invalid/none:1"}]},
                },
            },
        })
    };
    let class = |name: &str, owners: &Value| json!({"metadata": {"name": name, "ownerReferences": owners}, "spec": {}});
    let template = |name: &str, owners: &Value| {
        json!({"metadata": {"name": name, "ownerReferences": owners}, "spec": {"spec": {"devices": {"requests":
            [{"name": "g", "exactly": {"deviceClassName": "maple.example"}}]}}}})
    };
    let sets = format!("/apis/apps/v1/namespaces/{OPERAND_NAMESPACE}/daemonsets");
    let elsewhere = "/apis/apps/v1/namespaces/default/daemonsets";
    let classes = "/apis/resource.k8s.io/v1/deviceclasses";
    let templates = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaimtemplates";
    let none = json!([]);
    // Somebody else's objects, labels copied and all.
    ask(&admin, create(&sets, &daemon_set("theirs", &none)))
        .await
        .unwrap();
    ask(&admin, create(classes, &class("theirs.example", &none)))
        .await
        .unwrap();
    ask(&admin, create(templates, &template("theirs", &none)))
        .await
        .unwrap();

    let theirs = Expect::Policy(OBJECT_BOUNDS, "is not Freehold's");
    let unowned = Expect::Policy(OBJECT_BOUNDS, "names none in its ownerReferences");
    let named = |object: &Value, name: &str| {
        let mut object = object.clone();
        object["metadata"]["name"] = json!(name);
        object["metadata"]["annotations"] = json!({"freehold.dev/applied": "h-2"});
        object
    };
    let mut attempts = Vec::new();
    for (collection, ours, stray, foreign) in [
        (
            sets.as_str(),
            daemon_set("ours", &ours),
            daemon_set("stray", &none),
            "theirs",
        ),
        (
            classes,
            class("ours.example", &ours),
            class("stray.example", &none),
            "theirs.example",
        ),
        (
            templates,
            template("ours", &ours),
            template("stray", &none),
            "theirs",
        ),
    ] {
        let name = ours["metadata"]["name"].as_str().unwrap().to_owned();
        let (mine, other) = (
            format!("{collection}/{name}"),
            format!("{collection}/{foreign}"),
        );
        attempts.extend([
            attempt("making one", create(collection, &ours), Expect::Done),
            attempt(
                "changing it",
                replace(&mine, &named(&ours, &name)),
                Expect::Done,
            ),
            attempt(
                "disowning it",
                replace(&mine, &named(&stray, &name)),
                unowned,
            ),
            attempt("deleting it", delete(&mine), Expect::Done),
            attempt("one that nobody owns", create(collection, &stray), unowned),
            attempt(
                "changing theirs",
                replace(&other, &named(&stray, foreign)),
                unowned,
            ),
            attempt(
                "adopting theirs",
                replace(&other, &named(&ours, foreign)),
                theirs,
            ),
            attempt("deleting theirs", delete(&other), theirs),
        ]);
    }
    attempts.push(attempt(
        "a DaemonSet in another namespace",
        create(elsewhere, &daemon_set("ours", &ours)),
        Expect::NotAllowed("create resource \"daemonsets\""),
    ));
    try_all(&stage.controller().await, attempts).await;
}

#[tokio::test]
async fn the_controller_restarts_its_operands_and_evicts_but_deletes_nobody_elses_pods() {
    let stage = Stage::set("controller-pods").await;
    let admin = stage.cluster.admin();
    let pods = format!("/api/v1/namespaces/{OPERAND_NAMESPACE}/pods");
    stage.token_on("nvidia-dra-driver", OWN).await;
    let stray = json!({"metadata": {"name": "stray"}, "spec": {"nodeName": OWN, "serviceAccountName": "nvidia-dra-driver",
        "containers": [{"name": "main", "image": "registry.example.invalid/none:1"}]}});
    ask(&admin, create(&pods, &stray)).await.unwrap();
    try_all(
        &stage.controller().await,
        vec![
            attempt(
                "an operand",
                delete(&format!("{pods}/nvidia-dra-driver-{OWN}")),
                Expect::Done,
            ),
            attempt(
                "a pod beside it",
                delete(&format!("{pods}/stray")),
                Expect::Policy(POD_BOUNDS, "freehold-operands/stray is none of them"),
            ),
            attempt(
                "a pod elsewhere",
                delete("/api/v1/namespaces/default/pods/somebody"),
                Expect::NotAllowed("delete resource \"pods\""),
            ),
            attempt(
                "evicting",
                create(
                    &format!("{pods}/stray/eviction"),
                    &json!({"apiVersion": "policy/v1", "kind": "Eviction",
            "metadata": {"name": "stray"}}),
                ),
                Expect::Done,
            ),
            attempt(
                "a pod",
                create(&pods, &stray),
                Expect::NotAllowed("create resource \"pods\""),
            ),
        ],
    )
    .await;
}

#[tokio::test]
async fn the_controller_edits_no_intent_grants_nothing_and_reads_no_secrets() {
    let stage = Stage::set("controller-rest").await;
    let role = json!({"metadata": {"name": "x"}, "rules": []});
    let token = format!(
        "/api/v1/namespaces/{SYSTEM_NAMESPACE}/serviceaccounts/{CONTROLLER_SERVICE_ACCOUNT}/token"
    );
    try_all(&stage.controller().await, vec![
        attempt("its finalizer", merge(INTENT, &json!({"metadata": {"finalizers": ["freehold.dev/teardown"]}})), Expect::Done),
        attempt("the status", merge(&format!("{INTENT}/status"), &json!({"status": {"observedGeneration": 1}})), Expect::Done),
        attempt("the intent", merge(INTENT, &json!({"spec": {"rollout": {"paused": true}}})),
            Expect::Policy(INTENT_BOUNDS, "nothing of an AcceleratorCluster but the finalizer")),
        attempt("a foreign finalizer", merge(INTENT, &json!({"metadata": {"finalizers": ["x.example/y"]}})),
            Expect::Policy(INTENT_BOUNDS, "nothing of an AcceleratorCluster but the finalizer")),
        attempt("removing its finalizer", merge(INTENT, &json!({"metadata": {"finalizers": null}})), Expect::Done),
        attempt("an order", merge(&format!("{REPORTS}/{OWN}"), &json!({"spec": {"nvidia": {"term": 7}}})), Expect::Done),
        attempt("a slice", create(SLICES, &json!({"metadata": {"name": "x"}})),
            Expect::NotAllowed("create resource \"resourceslices\"")),
        attempt("a ClusterRole", create("/apis/rbac.authorization.k8s.io/v1/clusterroles", &role),
            Expect::NotAllowed("create resource \"clusterroles\"")),
        attempt("a token", create(&token, &json!({})), Expect::NotAllowed("create resource \"serviceaccounts/token\"")),
        attempt("secrets", get("/api/v1/secrets"), Expect::NotAllowed("list resource \"secrets\"")),
        attempt("secrets of its namespace", get(&format!("/api/v1/namespaces/{SYSTEM_NAMESPACE}/secrets")),
            Expect::NotAllowed("list resource \"secrets\"")),
        attempt("a policy", delete("/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/freehold-controller-nodes"),
            Expect::NotAllowed("delete resource \"validatingadmissionpolicies\"")),
    ])
    .await;
}
