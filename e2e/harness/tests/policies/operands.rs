//! The vendors' operands: each bound to its own node, whatever RBAC has to leave open.

use freehold_core::names::OPERAND_NAMESPACE;
use kube::Client;
use serde_json::{Value, json};

use crate::{
    attempt::{
        Answer, Expect, NODES, SLICES, ask, attempt, create, delete, get, merge, replace, try_all,
    },
    stage::{OTHER, OWN, Stage, repository},
};

const SLICE_BOUNDS: &str = "freehold-operand-slices";
const NODE_BOUNDS: &str = "freehold-operand-nodes";
const POD_BOUNDS: &str = "freehold-operand-pods";

fn slice(name: &str, driver: &str, node: &str, pool: &str) -> Value {
    json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": name},
        "spec": {"driver": driver, "nodeName": node, "pool": {"name": pool, "generation": 9, "resourceSliceCount": 1},
            "devices": [{"name": "d-0"}]},
    })
}

#[tokio::test]
async fn a_dra_driver_publishes_for_its_own_node_only() {
    let stage = Stage::set("operand-slices").await;
    let admin = stage.cluster.admin();
    for (account, driver, foreign_driver) in [
        ("nvidia-dra-driver", "gpu.nvidia.com", "neuron.aws.com"),
        ("neuron-dra-driver", "neuron.aws.com", "gpu.nvidia.com"),
    ] {
        let neighbour = format!("birch-{driver}");
        ask(
            &admin,
            create(SLICES, &slice(&neighbour, driver, OTHER, OTHER)),
        )
        .await
        .unwrap();
        let neighbour = format!("{SLICES}/{neighbour}");
        let mut everywhere = slice("x", driver, OWN, OWN);
        everywhere["spec"]
            .as_object_mut()
            .unwrap()
            .remove("nodeName");
        everywhere["spec"]["allNodes"] = json!(true);
        let own = format!("{SLICES}/own-{driver}");
        let with_version = |path: &str, version: &Value| {
            let mut body = slice(path, driver, OWN, OWN);
            body["metadata"]["resourceVersion"] = version.clone();
            body
        };
        let driver_client = stage.token_on(account, OWN).await;
        try_all(&driver_client, vec![
            attempt("its own", create(SLICES, &slice(&format!("own-{driver}"), driver, OWN, OWN)), Expect::Done),
            attempt("for another node", create(SLICES, &slice("x", driver, OTHER, OTHER)),
                Expect::Policy(SLICE_BOUNDS, "a driver on node alder may write ResourceSlices with that spec.nodeName only")),
            attempt("for every node", create(SLICES, &everywhere),
                Expect::Policy(SLICE_BOUNDS, "may write ResourceSlices with that spec.nodeName only")),
            attempt("in another node's pool", create(SLICES, &slice("x", driver, OWN, OTHER)),
                Expect::Policy(SLICE_BOUNDS, "may write ResourceSlices of the pool of that name only")),
            attempt("of the other vendor", create(SLICES, &slice("x", foreign_driver, OWN, OWN)),
                Expect::Policy(SLICE_BOUNDS, "may write ResourceSlices of driver")),
            attempt("deleting another node's", delete(&neighbour),
                Expect::Policy(SLICE_BOUNDS, "may write ResourceSlices with that spec.nodeName only")),
        ])
        .await;
        let current = ask(&admin, get(&own)).await.unwrap()["metadata"]["resourceVersion"].clone();
        let mut hijack = slice(&format!("birch-{driver}"), driver, OTHER, OTHER);
        hijack["metadata"]["resourceVersion"] =
            ask(&admin, get(&neighbour)).await.unwrap()["metadata"]["resourceVersion"].clone();
        hijack["spec"]["devices"] = json!([]);
        try_all(
            &driver_client,
            vec![
                attempt(
                    "replacing its own",
                    replace(&own, &with_version(&format!("own-{driver}"), &current)),
                    Expect::Done,
                ),
                attempt(
                    "emptying another node's",
                    replace(&neighbour, &hijack),
                    Expect::Policy(
                        SLICE_BOUNDS,
                        "may write ResourceSlices with that spec.nodeName only",
                    ),
                ),
                attempt("deleting its own", delete(&own), Expect::Done),
                attempt(
                    "deleting all",
                    delete(SLICES),
                    Expect::NotAllowed("deletecollection resource \"resourceslices\""),
                ),
            ],
        )
        .await;
        try_all(
            &stage.unbound_token(account).await,
            vec![attempt(
                "without a node in the token",
                create(SLICES, &slice("x", driver, OWN, OWN)),
                Expect::Policy(SLICE_BOUNDS, "this token is bound to no node"),
            )],
        )
        .await;
    }
}

#[tokio::test]
async fn deleting_many_slices_at_once_is_asked_about_each() {
    let stage = Stage::set("operand-deletecollection").await;
    // A right that no operand has, so that the policy is what is left.
    stage
        .cluster
        .apply_yaml(
            r#"
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: too-much}
rules: [{apiGroups: [resource.k8s.io], resources: [resourceslices], verbs: [deletecollection]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: too-much}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: too-much}
subjects: [{kind: ServiceAccount, name: nvidia-dra-driver, namespace: freehold-operands}]
"#,
        )
        .await
        .unwrap();
    let admin = stage.cluster.admin();
    ask(
        &admin,
        create(SLICES, &slice("a-of-birch", "gpu.nvidia.com", OTHER, OTHER)),
    )
    .await
    .unwrap();
    ask(
        &admin,
        create(SLICES, &slice("b-of-alder", "gpu.nvidia.com", OWN, OWN)),
    )
    .await
    .unwrap();
    let driver = stage.token_on("nvidia-dra-driver", OWN).await;
    try_all(
        &driver,
        vec![
            attempt(
                "all slices",
                delete(SLICES),
                Expect::Policy(SLICE_BOUNDS, "with that spec.nodeName only"),
            ),
            attempt(
                "all of its node",
                delete(&format!("{SLICES}?fieldSelector=spec.nodeName%3D{OWN}")),
                Expect::Done,
            ),
        ],
    )
    .await;
    ask(&admin, get(&format!("{SLICES}/a-of-birch")))
        .await
        .expect("the other node's slice is still there");
}

#[tokio::test]
async fn an_operand_marks_no_node_but_its_own_and_there_only_with_its_vendors_labels() {
    let stage = Stage::set("operand-nodes").await;
    let (own, other) = (format!("{NODES}/{OWN}"), format!("{NODES}/{OTHER}"));
    let label = |key: &str, value: &Value| json!({"metadata": {"labels": {key: value}}});
    let mode = label("neuron.amazonaws.com/ultraserver-mode", &json!("1_2_4"));
    let owner = label(
        "freehold.node-restriction.kubernetes.io/neuron-owner",
        &json!("dra"),
    );
    let usage = json!({"metadata": {"annotations": {"NEURON_DEV_USAGE_MAP": "0"}}});
    let not_own = Expect::Policy(
        NODE_BOUNDS,
        "an operand on node alder may update that Node only, not birch",
    );
    let vendors_only = Expect::Policy(
        NODE_BOUNDS,
        "may set labels of its vendor on node alder; not:",
    );

    let driver = stage.token_on("neuron-dra-driver", OWN).await;
    try_all(
        &driver,
        vec![
            attempt("a vendor's label", merge(&own, &mode), Expect::Done),
            attempt("on another node", merge(&other, &mode), not_own),
            attempt(
                "a foreign label",
                merge(&own, &label("pool", &json!("y"))),
                vendors_only,
            ),
            attempt(
                "EKS's compute type",
                merge(
                    &own,
                    &label("eks.amazonaws.com/compute-type", &json!("auto")),
                ),
                vendors_only,
            ),
            attempt(
                "an alias",
                merge(
                    &own,
                    &label("workload.example.com/gpu-allocation", &json!("dra")),
                ),
                vendors_only,
            ),
            attempt(
                "an owner",
                merge(&own, &owner),
                Expect::OneOf(&[NODE_BOUNDS, "freehold-node-marks"]),
            ),
            attempt(
                "a taint",
                merge(&own, &json!({"spec": {"taints": []}})),
                Expect::Policy(NODE_BOUNDS, "may not change spec (taints included)"),
            ),
            attempt(
                "cordon",
                merge(&own, &json!({"spec": {"unschedulable": true}})),
                Expect::Policy(NODE_BOUNDS, "may not change spec"),
            ),
            attempt(
                "a finalizer",
                merge(&own, &json!({"metadata": {"finalizers": ["x.example/y"]}})),
                Expect::Policy(NODE_BOUNDS, "finalizers or ownerReferences of node alder"),
            ),
            attempt(
                "deleting it",
                delete(&own),
                Expect::NotAllowed("delete resource \"nodes\""),
            ),
        ],
    )
    .await;
    let plugin = stage.token_on("neuron-device-plugin", OWN).await;
    try_all(
        &plugin,
        vec![
            attempt(
                "through the status",
                merge(&format!("{own}/status"), &usage),
                Expect::Done,
            ),
            attempt(
                "another node's status",
                merge(&format!("{other}/status"), &usage),
                not_own,
            ),
            attempt(
                "an owner through the status",
                merge(&format!("{own}/status"), &owner),
                Expect::OneOf(&[NODE_BOUNDS, "freehold-node-marks"]),
            ),
            attempt(
                "not through the status",
                merge(&own, &mode),
                Expect::NotAllowed("patch resource \"nodes\""),
            ),
            attempt(
                "the kubelet's API",
                get(&format!("{own}/proxy/pods")),
                Expect::NotAllowed("get resource \"nodes/proxy\""),
            ),
        ],
    )
    .await;
    try_all(
        &stage.unbound_token("neuron-device-plugin").await,
        vec![attempt(
            "without a node in the token",
            merge(&format!("{own}/status"), &usage),
            Expect::Policy(NODE_BOUNDS, "this token is bound to no node"),
        )],
    )
    .await;
    try_all(
        &stage.token_on("nvidia-dra-driver", OWN).await,
        vec![attempt(
            "NVIDIA's driver needs no Node write",
            merge(&own, &mode),
            Expect::NotAllowed("patch resource \"nodes\""),
        )],
    )
    .await;
}

#[tokio::test]
async fn the_neuron_plugin_annotates_pods_of_its_node_and_changes_nothing_else_in_them() {
    let stage = Stage::set("operand-pods").await;
    let admin = stage.cluster.admin();
    for node in [OWN, OTHER] {
        stage.token_on("nvidia-dra-driver", node).await;
    }
    let pods = format!("/api/v1/namespaces/{OPERAND_NAMESPACE}/pods");
    let (here, there) = (
        format!("{pods}/nvidia-dra-driver-{OWN}"),
        format!("{pods}/nvidia-dra-driver-{OTHER}"),
    );
    let ids = json!({"metadata": {"annotations": {"AWS_NEURON_IDS": "0,1"}}});
    let deadline = json!({"spec": {"activeDeadlineSeconds": 1}});
    let annotations_only = Expect::Policy(
        POD_BOUNDS,
        "may change annotations of pod freehold-operands/nvidia-dra-driver-alder",
    );
    try_all(
        &stage.token_on("neuron-device-plugin", OWN).await,
        vec![
            attempt("device ids", merge(&here, &ids), Expect::Done),
            attempt(
                "on another node",
                merge(&there, &ids),
                Expect::Policy(POD_BOUNDS, "may annotate pods of that node only"),
            ),
            attempt(
                "a deadline, which would end it",
                merge(&here, &deadline),
                annotations_only,
            ),
            attempt(
                "a label",
                merge(&here, &json!({"metadata": {"labels": {"app": "x"}}})),
                annotations_only,
            ),
            attempt(
                "deleting it",
                delete(&here),
                Expect::NotAllowed("delete resource \"pods\""),
            ),
        ],
    )
    .await;
    let pod = ask(&admin, get(&here)).await.unwrap();
    assert_eq!(pod["metadata"]["annotations"]["AWS_NEURON_IDS"], "0,1");
}

#[tokio::test]
async fn nvidias_driver_runs_mps_daemons_on_its_own_node_where_that_was_asked_for() {
    let stage = Stage::set("operand-mps").await;
    let deployments = format!("/apis/apps/v1/namespaces/{OPERAND_NAMESPACE}/deployments");
    let daemon = |name: &str, node: &str| {
        json!({"metadata": {"name": name}, "spec": {"selector": {"matchLabels": {"app": name}}, "template": {
            "metadata": {"labels": {"app": name}},
            "spec": {"nodeName": node, "containers": [{"name": "main", "image": "registry.example.invalid/none:1"}]},
        }}})
    };
    let driver = stage.token_on("nvidia-dra-driver", OWN).await;
    try_all(
        &driver,
        vec![attempt(
            "by default",
            create(&deployments, &daemon("mps-1", OWN)),
            Expect::NotAllowed("create resource \"deployments\""),
        )],
    )
    .await;
    stage
        .cluster
        .apply_dir(repository("config/optional"))
        .await
        .unwrap();
    let elsewhere = daemon("mps-2", OTHER);
    await_refusal(&driver, &deployments, &elsewhere).await;
    let bounds = Expect::Policy("freehold-operand-deployments", "pinned to that node only");
    let mut anywhere = daemon("mps-3", OWN);
    anywhere["spec"]["template"]["spec"]
        .as_object_mut()
        .unwrap()
        .remove("nodeName");
    try_all(
        &driver,
        vec![
            attempt(
                "on its node",
                create(&deployments, &daemon("mps-1", OWN)),
                Expect::Done,
            ),
            attempt("on another", create(&deployments, &elsewhere), bounds),
            attempt("anywhere", create(&deployments, &anywhere), bounds),
            attempt(
                "deleting it",
                delete(&format!("{deployments}/mps-1")),
                Expect::Done,
            ),
        ],
    )
    .await;
}

async fn await_refusal(client: &Client, collection: &str, body: &Value) {
    let path = format!("{collection}?dryRun=All");
    freehold_e2e::cluster::eventually(
        "the policy to be in force",
        std::time::Duration::from_secs(60),
        async || {
            Ok(match ask(client, create(&path, body)).await {
                Err(Answer::Refused(_, message))
                    if message.contains("ValidatingAdmissionPolicy") =>
                {
                    Some(())
                }
                Ok(_) | Err(Answer::Done | Answer::Refused(..)) => None,
            })
        },
    )
    .await
    .unwrap();
}
