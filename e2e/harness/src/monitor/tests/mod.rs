//! Every invariant, planted and found; and a whole handover in which nothing is found.

mod others;
mod owners;

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
        let spec = json!({"cohorts": [], "rollout": {"maxUnavailable": budget}});
        self.cluster_of(&spec, finalizers);
    }

    fn cluster_of(&mut self, spec: &Value, finalizers: &[&str]) {
        let cluster: AcceleratorCluster = serde_json::from_value(json!({
            "apiVersion": "freehold.dev/v1alpha1", "kind": "AcceleratorCluster",
            "metadata": {"name": "cluster", "uid": CLUSTER_UID, "finalizers": finalizers},
            "spec": spec,
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
        self.wrote(false, "patch", "nodes", NODE);
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
