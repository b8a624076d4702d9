//! Every invariant, planted and found; and a whole handover in which nothing is found.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use freehold_api::{AcceleratorCluster, AcceleratorNode};
use freehold_core::vendor::{Owner, Vendor};
use serde_json::{Value, json};

use super::facts::{
    ClaimSeen, Fact, History, KeptSeen, NodeSeen, NodeTruth, Object, PodSeen, SliceSeen, Truth,
    WriteSeen,
};
use super::{Limits, check};

const NODE: &str = "quince-1";
const NODE_UID: &str = "uid-of-quince-1";
const BOOT: &str = "boot-of-tuesday";
const CLUSTER_UID: &str = "uid-of-the-intent";
const OLD_POD: &str = "uid-of-old-operand";
const NEW_POD: &str = "uid-of-new-operand";

/// A history in the making: one fact a second, versions far enough apart to put others between.
#[derive(Default)]
struct Script {
    history: History,
    node: NodeSeen,
    record: Value,
}

impl Script {
    /// A node that the device plugin owns, with everything as it should be.
    fn held() -> Self {
        let node = NodeSeen {
            name: NODE.into(),
            uid: NODE_UID.into(),
            boot_id: BOOT.into(),
            labels: BTreeMap::from([("pool".into(), "quinces".into())]),
            ..NodeSeen::default()
        };
        let record = json!({
            "apiVersion": "freehold.dev/v1alpha1", "kind": "AcceleratorNode",
            "metadata": {"name": NODE, "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": NODE, "uid": NODE_UID}]},
            "spec": {"nodeUID": NODE_UID, "nvidia": {"cohort": "amber", "owner": "DevicePlugin", "term": 2}},
            "status": {"tenures": {}, "report": {"nodeUID": NODE_UID, "bootID": BOOT, "agentVersion": "v0", "nvidia": {
                "observedTerm": 2, "pciDevices": 4, "inventory": {"devices": 4}, "inUse": {"devicePlugin": 0, "dra": 0}}}},
        });
        let mut script = Self {
            history: History::default(),
            node,
            record,
        };
        script.cluster(&json!(1), &["freehold.dev/teardown"]);
        script.own("device-plugin", "amber");
        script.node.allocatable.insert("nvidia.com/gpu".into(), 4);
        script.see_node();
        script.see_record();
        script.truth(|truth| {
            truth.operands =
                BTreeSet::from([(Vendor::Nvidia, Owner::DevicePlugin, OLD_POD.into())]);
        });
        script
    }

    fn now(&self) -> Duration {
        Duration::from_secs(self.history.facts.len() as u64 + self.history.truths.len() as u64)
    }

    fn see(&mut self, object: Object, gone: bool) {
        let fact = Fact {
            at: self.now(),
            version: 10 * (1 + self.history.facts.len() as u64),
            object,
            gone,
        };
        self.history.facts.push(fact);
    }

    fn see_node(&mut self) {
        self.see(Object::Node(self.node.clone()), false);
    }

    fn see_record(&mut self) {
        let record: AcceleratorNode = serde_json::from_value(self.record.clone()).unwrap();
        self.see(Object::Record(Box::new(record)), false);
    }

    fn cluster(&mut self, budget: &Value, finalizers: &[&str]) {
        let cluster: AcceleratorCluster = serde_json::from_value(json!({
            "apiVersion": "freehold.dev/v1alpha1", "kind": "AcceleratorCluster",
            "metadata": {"name": "cluster", "uid": CLUSTER_UID, "finalizers": finalizers},
            "spec": {"cohorts": [], "rollout": {"maxUnavailable": budget}},
        }))
        .unwrap();
        self.see(Object::Cluster(Box::new(cluster)), false);
    }

    fn own(&mut self, owner: &str, cohort: &str) {
        self.node.labels.insert(
            "freehold.node-restriction.kubernetes.io/nvidia-owner".into(),
            owner.into(),
        );
        self.node.labels.insert(
            "freehold.node-restriction.kubernetes.io/nvidia-cohort".into(),
            cohort.into(),
        );
    }

    fn disown(&mut self) {
        self.node
            .labels
            .retain(|key, _| !key.starts_with("freehold."));
    }

    fn fence(&mut self, term: Option<i64>) {
        self.node.taints.clear();
        if let Some(term) = term {
            self.node.taints.insert((
                "freehold.dev/nvidia-handover".into(),
                term.to_string(),
                "NoSchedule".into(),
            ));
        }
    }

    fn term(&mut self, term: i64) {
        self.record["spec"]["nvidia"]["term"] = json!(term);
        self.see_record();
    }

    fn attest(&mut self, term: i64) {
        self.record["status"]["report"]["nvidia"]["observedTerm"] = json!(term);
        self.see_record();
    }

    fn ready(&mut self, ready: bool) {
        let status = if ready { "True" } else { "False" };
        self.record["status"]["conditions"] = json!([{
            "type": "Ready", "status": status, "reason": "R", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
        self.record["status"]["tenures"] =
            json!({"nvidia": {"owner": "DRA", "step": "Held", "since": "2026-01-01T00:00:00Z"}});
        self.see_record();
    }

    fn slices(&mut self, devices: usize) {
        let slice = SliceSeen {
            name: "slice-a".into(),
            driver: "gpu.nvidia.com".into(),
            node: Some(NODE.into()),
            devices,
        };
        self.see(Object::Slice(slice), devices == 0);
    }

    fn truth(&mut self, change: impl FnOnce(&mut NodeTruth)) {
        let mut state = self
            .history
            .truths
            .last()
            .map(|truth| truth.state.clone())
            .unwrap_or_default();
        change(&mut state);
        let at = self.now();
        self.history.truths.push(Truth {
            at,
            node: NODE.into(),
            state,
        });
    }

    fn up_to_attested(&mut self) {
        self.fence(Some(4));
        self.see_node();
        self.term(4);
        self.attest(4);
    }

    fn revoke(&mut self) {
        self.disown();
        self.see_node();
    }

    fn kept(&mut self, kind: &'static str, owner: Option<&str>, gone: bool) {
        let labels = [
            ("freehold.dev/vendor", "nvidia"),
            ("freehold.dev/owner", "device-plugin"),
            ("freehold.dev/cohort", "amber"),
        ];
        let kept = KeptSeen {
            kind,
            namespace: "freehold-operands".into(),
            name: "thing".into(),
            owner: owner.map(str::to_owned),
            written_by_controller: true,
            labels: labels
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .into(),
            template: Some("template-1".into()),
        };
        self.see(Object::Kept(kept), gone);
    }

    fn wrote(&mut self, by_agent: bool, verb: &str, resource: &str, name: &str) {
        let at = self.now();
        self.history.writes.push(WriteSeen {
            at,
            by_agent,
            token_node: by_agent.then(|| NODE.to_owned()),
            verb: verb.into(),
            resource: resource.into(),
            namespace: "freehold-operands".into(),
            name: name.into(),
        });
    }

    /// Which invariants did not hold, each with its rule.
    fn found(mut self) -> Vec<String> {
        self.history.end = self.now();
        let limits = Limits {
            status_lag: Duration::from_secs(3),
            ..Limits::default()
        };
        let violations = check(&self.history, &limits);
        violations
            .iter()
            .map(|v| {
                format!(
                    "{} {}",
                    v.invariant,
                    v.what.split(':').next().unwrap_or_default()
                )
            })
            .collect()
    }
}

#[test]
fn a_whole_handover_by_the_rules_finds_nothing() {
    let mut script = Script::held();
    script.up_to_attested();
    script.revoke();
    script.truth(|truth| truth.operands.clear());
    script.node.allocatable.insert("nvidia.com/gpu".into(), 0);
    script.see_node();
    script.term(5);
    script.attest(5);
    script.term(6);
    script.attest(6);
    script.own("dra", "violet");
    script.see_node();
    script.truth(|truth| {
        truth.operands = BTreeSet::from([(Vendor::Nvidia, Owner::Dra, NEW_POD.into())]);
    });
    script.slices(4);
    script.fence(None);
    script.see_node();
    script.ready(true);
    assert_eq!(script.found(), Vec::<String>::new());
}

#[test]
fn two_running_operands_are_found() {
    let mut script = Script::held();
    script.truth(|truth| {
        truth
            .operands
            .insert((Vendor::Nvidia, Owner::Dra, NEW_POD.into()));
    });
    assert_eq!(script.found(), ["I1 two operands run"]);
}

#[test]
fn operands_of_two_vendors_are_no_violation() {
    let mut script = Script::held();
    script.truth(|truth| {
        truth
            .operands
            .insert((Vendor::Neuron, Owner::Dra, NEW_POD.into()));
    });
    assert_eq!(script.found(), Vec::<String>::new());
}

#[test]
fn devices_advertised_in_both_ways_are_found() {
    let mut script = Script::held();
    script.slices(4);
    assert_eq!(script.found(), ["I1 advertised twice"]);
}

#[test]
fn a_device_handed_out_by_both_is_found() {
    let mut script = Script::held();
    script.truth(|truth| {
        truth.given.insert((Vendor::Nvidia, "uid-of-a-pod".into()));
        truth
            .claims
            .insert((Vendor::Nvidia, "uid-of-a-claim".into()));
    });
    assert_eq!(script.found(), ["I1 handed out by both"]);
}

#[test]
fn our_operand_started_beside_a_stranger_is_found_and_a_stranger_who_comes_later_is_not_our_doing()
{
    let mut script = Script::held();
    script.truth(|truth| {
        truth.strangers.insert(Vendor::Nvidia);
    });
    script.truth(|truth| truth.operands.clear());
    script.truth(|truth| {
        truth
            .operands
            .insert((Vendor::Nvidia, Owner::DevicePlugin, NEW_POD.into()));
    });
    assert_eq!(script.found(), ["I1 started beside a stranger"]);
}

#[test]
fn an_operand_deselected_without_a_fence_is_found() {
    let mut script = Script::held();
    script.revoke();
    assert_eq!(script.found(), ["I2 deselected without a fence"]);
}

#[test]
fn an_operand_deselected_on_an_attestation_of_another_term_boot_or_node_is_found() {
    type Spoil = fn(&mut Script);
    let spoils: [Spoil; 4] = [
        |script| script.attest(3),
        |script| {
            script.node.boot_id = "boot-of-wednesday".into();
            script.see_node();
        },
        |script| {
            script.record["status"]["report"]["nodeUID"] = json!("uid-of-its-predecessor");
            script.see_record();
        },
        |script| {
            script.record["status"]["report"]["nvidia"]["inUse"]["dra"] = json!(1);
            script.see_record();
        },
    ];
    for spoil in spoils {
        let mut script = Script::held();
        script.up_to_attested();
        spoil(&mut script);
        script.revoke();
        assert_eq!(script.found(), ["I2 deselected without an attestation"]);
    }
}

#[test]
fn a_term_that_ran_ahead_of_the_fence_is_found() {
    let mut script = Script::held();
    script.up_to_attested();
    script.term(5);
    script.attest(5);
    script.revoke();
    assert_eq!(
        script.found(),
        ["I2 deselected at another term than the fence's"]
    );
}

#[test]
fn an_operand_deselected_over_a_pod_or_a_claim_is_found() {
    let pod = PodSeen {
        namespace: "ml".into(),
        name: "training".into(),
        node: Some(NODE.into()),
        asks_plugin: BTreeSet::from(["nvidia.com/gpu".into()]),
        ..PodSeen::default()
    };
    let claim = ClaimSeen {
        namespace: "ml".into(),
        name: "training".into(),
        allocated: BTreeSet::from([("gpu.nvidia.com".into(), NODE.into())]),
        ..ClaimSeen::default()
    };
    for consumer in [Object::Pod(pod.clone()), Object::Claim(claim)] {
        let mut script = Script::held();
        script.see(consumer.clone(), false);
        script.up_to_attested();
        script.revoke();
        assert_eq!(script.found(), ["I2 deselected over a consumer"]);
        // Gone before the attestation, it is no longer in the way.
        let mut script = Script::held();
        script.see(consumer.clone(), false);
        script.see(consumer, true);
        script.up_to_attested();
        script.revoke();
        assert_eq!(script.found(), Vec::<String>::new());
    }
    // One that ended holds nothing.
    let mut script = Script::held();
    script.see(Object::Pod(PodSeen { ended: true, ..pod }), false);
    script.up_to_attested();
    script.revoke();
    assert_eq!(script.found(), Vec::<String>::new());
}

#[test]
fn an_attestation_that_the_node_itself_belies_is_found() {
    let mut script = Script::held();
    script.truth(|truth| {
        truth
            .claims
            .insert((Vendor::Nvidia, "uid-of-a-claim".into()));
    });
    script.up_to_attested();
    script.revoke();
    assert_eq!(script.found(), ["I2 deselected while in use on the node"]);
}

#[test]
fn a_daemon_set_deleted_under_its_nodes_is_found() {
    let mut script = Script::held();
    script.kept("DaemonSet", Some(CLUSTER_UID), false);
    script.kept("DaemonSet", Some(CLUSTER_UID), true);
    assert_eq!(script.found(), ["I2 DaemonSet deleted under its nodes"]);
}

#[test]
fn a_current_operand_deleted_by_the_controller_is_found_and_an_outdated_one_may_go() {
    for (template, expected) in [
        (
            "template-1",
            vec!["I2 operand deleted though it was current"],
        ),
        ("template-0", vec![]),
    ] {
        let labels = [
            ("freehold.dev/component", "operand"),
            ("freehold.dev/vendor", "nvidia"),
            ("freehold.dev/owner", "device-plugin"),
            ("freehold.dev/cohort", "amber"),
        ];
        let pod = PodSeen {
            namespace: "freehold-operands".into(),
            name: "amber-x".into(),
            node: Some(NODE.into()),
            labels: labels
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .into(),
            template: Some(template.into()),
            ..PodSeen::default()
        };
        let mut script = Script::held();
        script.kept("DaemonSet", Some(CLUSTER_UID), false);
        script.see(Object::Pod(pod.clone()), false);
        script.see(Object::Pod(pod), true);
        script.wrote(false, "delete", "pods", "amber-x");
        assert_eq!(script.found(), expected);
    }
}

#[test]
fn a_finalizer_that_does_not_go_last_is_found() {
    let mut script = Script::held();
    script.cluster(&json!(1), &[]);
    assert_eq!(script.found(), ["I3 finalizer gone first"]);
}

#[test]
fn a_class_that_goes_before_its_nodes_is_found() {
    let mut script = Script::held();
    script.node.allocatable.clear();
    script.kept("DeviceClass", Some(CLUSTER_UID), false);
    script.up_to_attested();
    script.own("dra", "violet");
    script.see_node();
    script.kept("DeviceClass", Some(CLUSTER_UID), true);
    assert_eq!(script.found(), ["I3 class gone before its nodes"]);
}

#[test]
fn a_write_to_what_is_not_ours_is_found() {
    type Plant = fn(&mut Script);
    let plants: [(Plant, &str); 7] = [
        (
            |script| script.kept("DaemonSet", None, false),
            "I4 the controller wrote an object of somebody else",
        ),
        (
            |script| {
                script.see(
                    Object::Kept(KeptSeen {
                        kind: "DeviceClass",
                        name: "theirs".into(),
                        ..KeptSeen::default()
                    }),
                    true,
                );
                script.wrote(false, "delete", "deviceclasses.resource.k8s.io", "theirs");
            },
            "I4 a foreign object was deleted",
        ),
        (
            |script| script.wrote(false, "patch", "configmaps", "theirs"),
            "I4 unexpected write",
        ),
        (
            |script| {
                script.wrote(
                    true,
                    "patch",
                    "acceleratornodes.freehold.dev/status",
                    "quince-2",
                );
            },
            "I4 an agent wrote what is not its own",
        ),
        (
            |script| {
                script
                    .node
                    .controller_fields
                    .insert("f:metadata/f:labels/f:pool".into());
                script.see_node();
            },
            "I4 the controller wrote a foreign field",
        ),
        (
            |script| {
                script.fence(Some(4));
                script.node.labels.remove("pool");
                script.see_node();
            },
            "I4 a write of ours changed a foreign mark",
        ),
        (
            |script| {
                script.record["metadata"]["ownerReferences"][0]["uid"] =
                    json!("uid-of-its-predecessor");
                script.see_record();
            },
            "I4 a record of another node",
        ),
    ];
    for (plant, expected) in plants {
        let mut script = Script::held();
        plant(&mut script);
        assert_eq!(script.found(), [expected]);
    }
}

#[test]
fn our_own_writes_are_no_violation() {
    let mut script = Script::held();
    script
        .node
        .controller_fields
        .insert("f:spec/f:taints".into());
    script
        .node
        .controller_fields
        .insert("f:metadata/f:labels/f:freehold.node-restriction.kubernetes.io/agent".into());
    script.fence(Some(4));
    script.see_node();
    script.kept("ResourceClaimTemplate", Some(CLUSTER_UID), false);
    script.kept("ResourceClaimTemplate", Some(CLUSTER_UID), true);
    script.wrote(
        false,
        "delete",
        "resourceclaimtemplates.resource.k8s.io",
        "thing",
    );
    script.wrote(true, "patch", "acceleratornodes.freehold.dev/status", NODE);
    assert_eq!(script.found(), Vec::<String>::new());
}

/// Fences owned nodes besides the first; `stuck` of them have a status that asks for a person.
fn fenced_nodes(budget: &Value, moving: usize, stuck: usize) -> Vec<String> {
    let mut script = Script::held();
    script.cluster(budget, &["freehold.dev/teardown"]);
    script.node.allocatable.clear();
    for index in 0..moving + stuck {
        let name = format!("quince-{}", index + 2);
        script.node.name.clone_from(&name);
        script.node.uid = format!("uid-of-{name}");
        script.fence(None);
        script.see_node();
        let is_stuck = index < stuck;
        let record = json!({
            "apiVersion": "freehold.dev/v1alpha1", "kind": "AcceleratorNode",
            "metadata": {"name": name, "ownerReferences": [
                {"apiVersion": "v1", "kind": "Node", "name": name, "uid": script.node.uid}]},
            "spec": {"nodeUID": script.node.uid, "nvidia": {"term": 4}},
            "status": {"tenures": {"nvidia": {"step": "Drain", "since": "2026-01-01T00:00:00Z",
                "reason": is_stuck.then_some("DaemonSetConsumer")}}},
        });
        script.history.started_s = 1_767_225_600; // 2026-01-01
        script.fence(Some(4));
        script.see_node();
        script.see(
            Object::Record(Box::new(serde_json::from_value(record).unwrap())),
            false,
        );
    }
    let found = script.found();
    found
        .into_iter()
        .filter(|found| found.starts_with("I5"))
        .collect()
}

#[test]
fn more_nodes_in_handover_than_the_budget_are_found() {
    assert_eq!(fenced_nodes(&json!(2), 2, 0), Vec::<String>::new());
    assert_eq!(fenced_nodes(&json!(2), 3, 0), ["I5 over budget"]);
    // Four nodes are owned: half of them are two.
    assert_eq!(fenced_nodes(&json!("50%"), 2, 0), Vec::<String>::new());
    assert_eq!(fenced_nodes(&json!("10%"), 2, 0), ["I5 over budget"]);
}

#[test]
fn stuck_nodes_leave_the_window_up_to_the_budget_and_hold_places_beyond() {
    assert_eq!(fenced_nodes(&json!(1), 1, 1), Vec::<String>::new());
    assert_eq!(fenced_nodes(&json!(1), 1, 2), ["I5 over budget"]);
    assert_eq!(fenced_nodes(&json!(2), 2, 2), Vec::<String>::new());
}

#[test]
fn a_status_that_says_ready_about_what_is_not_advertised_is_found() {
    let mut script = Script::held();
    script.ready(true);
    script.node.allocatable.insert("nvidia.com/gpu".into(), 0);
    script.see_node();
    let told = |seconds: usize, script: &mut Script| {
        for _ in 0..seconds {
            script.truth(|_| ());
        }
    };
    // It may lag behind for a moment.
    told(2, &mut script);
    script.ready(false);
    told(9, &mut script);
    script.node.allocatable.insert("nvidia.com/gpu".into(), 4);
    script.see_node();
    script.ready(true);
    assert_eq!(script.found(), Vec::<String>::new());

    let mut script = Script::held();
    script.ready(true);
    script.node.allocatable.insert("nvidia.com/gpu".into(), 0);
    script.see_node();
    told(9, &mut script);
    assert_eq!(script.found(), ["I6 Ready without an advertisement"]);
}

#[test]
fn a_status_that_says_ready_without_a_report_is_found() {
    let mut script = Script::held();
    script.record["status"]["report"] = Value::Null;
    script.ready(true);
    assert_eq!(script.found(), ["I6 Ready without a report"]);
}
