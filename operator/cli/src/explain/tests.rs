use freehold_core::blocker::Reason;
use freehold_core::tenure::Step;
use freehold_core::vendor::Owner;
use k8s_openapi::api::core::v1::{Event, Pod};
use serde_json::{Value, json};

use super::*;
use crate::explain::evidence::Facts;
use crate::testing::{at, cluster, node, observed, plain};

fn kube_node(uid: &str) -> Node {
    serde_json::from_value(json!({
        "metadata": {"name": "w21", "uid": uid, "labels": {
            "p": "b",
            "freehold.node-restriction.kubernetes.io/nvidia-owner": "device-plugin",
            "freehold.node-restriction.kubernetes.io/nvidia-cohort": "green-plugin"}},
        "spec": {"taints": [{"key": "freehold.dev/nvidia-handover", "value": "3", "effect": "NoSchedule"}]},
        "status": {
            "allocatable": {"cpu": "8", "nvidia.com/gpu": "8"},
            "conditions": [{"type": "Ready", "status": "True"}],
            "nodeInfo": {"architecture": "", "bootID": "boot-1", "containerRuntimeVersion": "", "kernelVersion": "", "kubeProxyVersion": "",
                "kubeletVersion": "v1.34.2", "machineID": "", "operatingSystem": "", "osImage": "", "systemUUID": ""}}}))
    .expect("a node")
}

fn trainer(name: &str) -> Pod {
    serde_json::from_value(json!({"metadata": {"name": name, "namespace": "ml", "uid": name},
        "spec": {"nodeName": "w21", "containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]}}))
    .expect("a pod")
}

fn plugin() -> Pod {
    serde_json::from_value(json!({"metadata": {"name": "nvidia-device-plugin-green-plugin-x", "namespace": "freehold-operands", "labels": {
            "freehold.dev/component": "operand", "freehold.dev/vendor": "nvidia", "freehold.dev/owner": "device-plugin", "freehold.dev/cohort": "green-plugin"}},
        "spec": {"containers": []}, "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}))
    .expect("a pod")
}

fn event(kind: &str, note: &str) -> Event {
    serde_json::from_value(json!({"metadata": {"name": kind.to_lowercase()}, "involvedObject": {"kind": kind, "name": "w21"}, "type": "Normal",
        "reason": "ConsumersRemain", "message": note, "eventTime": "2027-01-15T07:58:20.000000Z", "reportingComponent": "freehold-controller"}))
    .expect("an event")
}

fn facts(node: Option<Node>) -> Facts {
    Facts {
        node: Ok(node),
        pods: Ok(["fit-0", "fit-1", "fit-2", "fit-3"]
            .map(trainer)
            .into_iter()
            .chain([plugin()])
            .collect()),
        slices: Ok(Vec::new()),
        claims: Ok(Vec::new()),
        events: Ok(vec![
            event("Node", "NVIDIA of cohort blue-dra under DevicePlugin"),
            event(
                "AcceleratorNode",
                "NVIDIA of cohort blue-dra under DevicePlugin",
            ),
        ]),
    }
}

fn draining() -> AcceleratorNode {
    let trouble = (
        Reason::ConsumersRemain,
        "Pod ml/fit-0 (UID 7) uses extended resources of NVIDIA on this node, and others do too",
    );
    let mut record = node(
        "w21",
        "blue-dra",
        Some(Owner::DevicePlugin),
        Step::Drain,
        Some(trouble),
        200,
    );
    record.spec.node_uid = "uid-w21".into();
    let report: Value = json!({
        "nodeUID": "uid-w21", "bootID": "boot-1", "agentVersion": "0.1.0",
        "nvidia": {
            "observedTerm": 1, "pciDevices": 8, "word": "DevicePlugin", "wordTerm": 1, "pluginSockets": ["nvidia-gpu.sock"],
            "inventory": {"driverVersion": "575.57.08", "devices": 8, "models": [{"name": "NVIDIA H100 80GB HBM3", "count": 8, "memoryMib": 81559}]},
            "inUse": {"devicePlugin": 4, "dra": 0, "holders": ["pod 7"]}}});
    record.status.as_mut().expect("a status").report =
        Some(serde_json::from_value(report).expect("a report"));
    record
}

fn explanation(record: Option<&AcceleratorNode>, facts: Facts) -> Explanation {
    let evidence = Evidence::of("w21", record, facts);
    Explanation::new(
        "w21",
        &cluster(&observed()),
        record,
        &Controller::Alive,
        evidence,
        at(0),
    )
}

#[test]
fn a_draining_node_is_told_from_verdict_to_evidence() {
    let explanation = explanation(Some(&draining()), facts(Some(kube_node("uid-w21"))));
    assert_eq!(explanation.exit, Exit::Waiting);
    insta::assert_snapshot!(explanation.text(plain(false)));
}

#[test]
fn what_cannot_be_read_is_said_and_the_rest_is_told_all_the_same() {
    let blind = Facts {
        pods: Err("forbidden: pods".into()),
        events: Err("forbidden: events".into()),
        ..facts(Some(kube_node("uid-w21")))
    };
    let explanation = explanation(Some(&draining()), blind);
    let text = explanation.text(plain(false));
    for part in [
        "forbidden: pods",
        "forbidden: events",
        "Unreadable",
        "ConsumersRemain (FH402)",
        "575.57.08",
    ] {
        assert!(text.contains(part), "{part:?} is missing:\n{text}");
    }
    let json = serde_json::to_value(&explanation).expect("JSON");
    assert_eq!(
        json["evidence"]["events"]["unreadable"],
        "forbidden: events"
    );
    assert_eq!(json["stories"][0]["wanted"], "DRA");
}

#[test]
fn a_node_that_no_cohort_selects_is_none_of_our_business() {
    let mut stranger = kube_node("u");
    stranger.metadata.labels = None;
    let explanation = explanation(None, facts(Some(stranger)));
    assert_eq!(explanation.exit, Exit::Fine);
    assert!(
        explanation.sentence.contains("no cohort selects this node"),
        "{}",
        explanation.sentence
    );
}

#[test]
fn a_selected_node_without_a_record_waits_for_the_controller() {
    let explanation = explanation(None, facts(Some(kube_node("u"))));
    assert_eq!(explanation.exit, Exit::Waiting);
    assert!(
        explanation.sentence.contains("selected by blue-dra"),
        "{}",
        explanation.sentence
    );
}

#[test]
fn a_replaced_machine_is_noticed() {
    let explanation = explanation(Some(&draining()), facts(Some(kube_node("uid-of-another"))));
    assert!(
        explanation
            .notes
            .iter()
            .any(|note| note.contains("was replaced")),
        "{:?}",
        explanation.notes
    );
    assert!(
        explanation.text(plain(false)).contains("void"),
        "the report is about another machine"
    );
}

#[test]
fn a_held_node_has_nothing_left_to_do() {
    let held = node(
        "w21",
        "green-plugin",
        Some(Owner::DevicePlugin),
        Step::Held,
        None,
        9000,
    );
    let explanation = explanation(Some(&held), facts(Some(kube_node("uid-w21"))));
    assert_eq!(explanation.exit, Exit::Fine);
    assert_eq!(explanation.stories[0].by_itself, "Nothing; it stays so.");
    assert!(
        explanation.stories[0].by_hand.is_empty() && explanation.stories[0].consumers.is_empty()
    );
}

#[test]
fn a_layout_is_told_with_what_the_shaper_says_and_what_the_boards_can_carry() {
    let mut record = draining();
    let report = record
        .status
        .as_mut()
        .and_then(|status| status.report.as_mut());
    let part = report
        .and_then(|report| report.nvidia.as_mut())
        .expect("a part");
    part.layout = serde_json::from_value(json!({
        "migEnabledGpus": 1, "mig": {"3": [{"profile": "3g.71gb", "count": 2}]},
        "boards": [{"gpus": [1, 3], "profiles": [
            {"name": "7g.141gb", "id": 0, "slices": 7, "size": 8, "starts": [0], "max": 1},
            {"name": "3g.71gb", "id": 9, "slices": 3, "size": 4, "starts": [0, 4], "max": 2}]}],
        "shaping": {"outcome": "RebootRequired", "message": "GPU 1: MIG is Disabled, pending Enabled"}}))
    .expect("a layout");
    let text = explanation(Some(&record), facts(Some(kube_node("uid-w21")))).text(plain(false));
    for part in [
        "MIG on for 1 GPUs; GPU 3: 2 × 3g.71gb",
        "shaper: a change of MIG mode waits for a restart of the host: GPU 1: MIG is Disabled, pending Enabled",
        "GPU 1, 3 can carry 3g.71gb ×2, 7g.141gb ×1",
    ] {
        assert!(text.contains(part), "{part:?} is missing:\n{text}");
    }
}
