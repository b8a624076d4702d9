//! The agent's token, stolen.

use std::collections::BTreeSet;

use freehold_core::names::{AGENT_SERVICE_ACCOUNT, OPERAND_NAMESPACE};
use serde_json::{Value, json};

use crate::{
    attempt::{
        Answer, Expect, NODES, SLICES, apply, ask, attempt, create, delete, get, merge, replace,
        try_all,
    },
    stage::{INTENT, OTHER, OWN, REPORTS, Stage},
    world::{changed, world, writables},
};

const BOUNDS: &str = "freehold-agent-report";
const SEATS: &str = "freehold-node-orders";

fn report(uid: &str) -> Value {
    json!({"status": {"report": {"nodeUID": uid, "bootID": "b-17", "agentVersion": "v9"}}})
}

#[tokio::test]
async fn a_stolen_agent_token_changes_exactly_one_report() {
    let stage = Stage::set("stolen-agent").await;
    let uid = stage.node_uid(OWN).await;
    let agent = stage.agent(OWN).await;
    let (own, other) = (format!("{REPORTS}/{OWN}"), format!("{REPORTS}/{OTHER}"));
    let (own_status, other_status) = (format!("{own}/status"), format!("{other}/status"));
    let condition = json!([{"type": "Ready", "status": "True", "reason": "Forged", "message": "",
        "lastTransitionTime": "2026-02-03T04:05:06Z"}]);
    let tenure =
        json!({"nvidia": {"step": "Held", "owner": "DRA", "since": "2026-02-03T04:05:06Z"}});
    let pods = format!("/api/v1/namespaces/{OPERAND_NAMESPACE}/pods");

    let before = world(&stage.cluster).await;
    try_all(&agent, vec![
        attempt("another node's report", merge(&other_status, &report(&uid)),
            Expect::Policy(BOUNDS, "the agent on node alder may not write about node birch")),
        attempt("another node's report, applied", apply(&other_status, &json!({
            "apiVersion": "freehold.dev/v1alpha1", "kind": "AcceleratorNode", "status": report(&uid)["status"],
        })), Expect::Policy(BOUNDS, "the agent on node alder may not write about node birch")),
        attempt("a report for another node's UID", merge(&own_status, &report("7d1c-other")),
            Expect::Policy(BOUNDS, "the UID of node alder in the agent's token")),
        attempt("its own conditions", merge(&own_status, &json!({"status": {"conditions": condition}})),
            Expect::Policy(SEATS, "only the Freehold controller writes the status of AcceleratorNode alder")),
        attempt("its own tenures", merge(&own_status, &json!({"status": {"tenures": tenure}})),
            Expect::Policy(SEATS, "only the Freehold controller writes the status of AcceleratorNode alder")),
        attempt("its own spec", merge(&own, &json!({"spec": {"nvidia": {"term": 99}}})),
            Expect::NotAllowed("patch resource \"acceleratornodes\"")),
        attempt("its own finalizers", merge(&own, &json!({"metadata": {"finalizers": ["x.example/y"]}})),
            Expect::NotAllowed("patch resource \"acceleratornodes\"")),
        attempt("replacing its own status", replace(&own_status, &json!({})),
            Expect::NotAllowed("update resource \"acceleratornodes/status\"")),
        attempt("a third AcceleratorNode", create(REPORTS, &json!({"metadata": {"name": "cedar"}})),
            Expect::NotAllowed("create resource \"acceleratornodes\"")),
        attempt("deleting its own AcceleratorNode", delete(&own), Expect::NotAllowed("delete resource \"acceleratornodes\"")),
        attempt("the intent", merge(INTENT, &json!({"spec": {"cohorts": []}})),
            Expect::NotAllowed("patch resource \"acceleratorclusters\"")),
        attempt("reading the intent", get(INTENT), Expect::NotAllowed("get resource \"acceleratorclusters\"")),
        attempt("its own Node", merge(&format!("{NODES}/{OWN}"), &json!({"metadata": {"labels": {"a": "b"}}})),
            Expect::NotAllowed("patch resource \"nodes\"")),
        attempt("reading its own Node", get(&format!("{NODES}/{OWN}")), Expect::NotAllowed("get resource \"nodes\"")),
        attempt("reading pods", get(&pods), Expect::NotAllowed("list resource \"pods\"")),
        attempt("reading secrets", get("/api/v1/secrets"), Expect::NotAllowed("list resource \"secrets\"")),
        attempt("reading claims", get("/apis/resource.k8s.io/v1/resourceclaims"),
            Expect::NotAllowed("list resource \"resourceclaims\"")),
        attempt("reading slices", get(SLICES), Expect::NotAllowed("list resource \"resourceslices\"")),
        attempt("a new token for itself", create(
            &format!("/api/v1/namespaces/{OPERAND_NAMESPACE}/serviceaccounts/{AGENT_SERVICE_ACCOUNT}/token"), &json!({})),
            Expect::NotAllowed("create resource \"serviceaccounts/token\"")),
        // Everything but the status is dropped by the API server from a status patch; the report goes through.
        attempt("its own report, with metadata smuggled along", merge(&own_status, &json!({
            "metadata": {"labels": {"a": "b"}, "finalizers": ["x.example/y"], "ownerReferences": []},
            "spec": {"nvidia": {"term": 99}},
            "status": report(&uid)["status"],
        })), Expect::Done),
    ])
    .await;

    let mut allowed = BTreeSet::new();
    for target in writables(&stage.cluster, OPERAND_NAMESPACE).await {
        let object = format!("{}/{OTHER}{}", target.collection, target.subresource);
        for verb in &target.verbs {
            let request = match verb.as_str() {
                "create" if target.subresource.is_empty() => {
                    create(&target.collection, &json!({"metadata": {"name": OTHER}}))
                }
                "create" => create(&object, &json!({})),
                "update" => replace(&object, &json!({"metadata": {"name": OTHER}})),
                "patch" => merge(&object, &json!({"metadata": {"labels": {"stolen": "yes"}}})),
                "delete" => delete(&object),
                "deletecollection" => delete(&target.collection),
                other => panic!("an unknown verb {other}"),
            };
            match ask(&agent, request).await {
                Err(Answer::Refused(403, _)) => {}
                answer => {
                    allowed.insert(format!(
                        "{verb} {}: {}",
                        target.name,
                        if answer.is_ok() {
                            "done"
                        } else {
                            "not refused"
                        }
                    ));
                }
            }
        }
    }
    let questions_about_oneself = BTreeSet::from(
        [
            "create authentication.k8s.io/selfsubjectreviews: done",
            "create authorization.k8s.io/selfsubjectaccessreviews: not refused",
            "create authorization.k8s.io/selfsubjectrulesreviews: not refused",
        ]
        .map(str::to_owned),
    );
    assert_eq!(
        allowed, questions_about_oneself,
        "nothing may be written but answers to questions about oneself"
    );

    let after = world(&stage.cluster).await;
    let key = format!("AcceleratorNode//{OWN}");
    assert_eq!(
        changed(&before, &after),
        BTreeSet::from([key.clone()]),
        "exactly one object changed"
    );
    let (mut old, mut new) = (before[&key].clone(), after[&key].clone());
    assert_eq!(new["status"]["report"]["bootID"], "b-17");
    for object in [&mut old, &mut new] {
        let status = object
            .as_object_mut()
            .unwrap()
            .remove("status")
            .unwrap_or_default();
        assert!(
            status["conditions"].is_null()
                && status["tenures"]
                    .as_object()
                    .is_none_or(serde_json::Map::is_empty)
        );
    }
    assert_eq!(old, new, "nothing changed in it but status.report");
}

#[tokio::test]
async fn a_token_without_a_node_writes_no_report() {
    let stage = Stage::set("nodeless-agent").await;
    let agent = stage.unbound_token(AGENT_SERVICE_ACCOUNT).await;
    let uid = stage.node_uid(OWN).await;
    try_all(
        &agent,
        vec![attempt(
            "a report",
            merge(&format!("{REPORTS}/{OWN}/status"), &report(&uid)),
            Expect::Policy(BOUNDS, "this token is bound to no node"),
        )],
    )
    .await;
}

#[tokio::test]
async fn an_agent_goes_on_reporting_beside_what_the_controller_writes() {
    let stage = Stage::set("reporting-agent").await;
    let uid = stage.node_uid(OWN).await;
    let (agent, controller) = (stage.agent(OWN).await, stage.controller().await);
    let status = format!("{REPORTS}/{OWN}/status");
    let tenure = json!({"status": {
        "tenures": {"nvidia": {"step": "Drain", "owner": "DevicePlugin", "since": "2026-02-03T04:05:06Z"}},
        "conditions": [{"type": "Ready", "status": "False", "reason": "Draining", "message": "m",
            "lastTransitionTime": "2026-02-03T04:05:06Z"}],
    }});
    try_all(&agent, vec![attempt("the first report, applied", apply(&status, &json!({
        "apiVersion": "freehold.dev/v1alpha1", "kind": "AcceleratorNode", "status": report(&uid)["status"],
    })), Expect::Done)])
    .await;
    try_all(&controller, vec![
        attempt("tenures and conditions", merge(&status, &tenure), Expect::Done),
        attempt("a forged report", merge(&status, &json!({"status": {"report": {"bootID": "forged"}}})),
            Expect::Policy(SEATS, "status.report of AcceleratorNode alder is the statement of the agent on that node")),
    ])
    .await;
    try_all(
        &agent,
        vec![
            attempt(
                "a second report",
                merge(&status, &json!({"status": {"report": {"bootID": "b-18"}}})),
                Expect::Done,
            ),
            attempt(
                "wiping the conditions",
                merge(&status, &json!({"status": {"conditions": null}})),
                Expect::Policy(SEATS, "only the Freehold controller writes the status"),
            ),
            attempt(
                "wiping the tenures",
                merge(&status, &json!({"status": {"tenures": {"nvidia": null}}})),
                Expect::Policy(SEATS, "only the Freehold controller writes the status"),
            ),
        ],
    )
    .await;
    let object = ask(&stage.cluster.admin(), get(&format!("{REPORTS}/{OWN}")))
        .await
        .unwrap();
    assert_eq!(object["status"]["report"]["bootID"], "b-18");
    assert_eq!(object["status"]["tenures"]["nvidia"]["step"], "Drain");
}
