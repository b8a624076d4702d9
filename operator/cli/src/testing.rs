//! Fixtures of this crate's tests.

use freehold_api::{AcceleratorCluster, AcceleratorNode, AcceleratorNodeStatus, TenureStatus};
use freehold_core::blocker::Reason;
use freehold_core::tenure::Step;
use freehold_core::vendor::Owner;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;

use crate::output::Look;
use crate::style::Style;

/// Now, in every test.
pub(crate) const NOW: i64 = 1_800_000_000;

pub(crate) fn at(seconds_ago: i64) -> Timestamp {
    Timestamp::from_second(NOW - seconds_ago).expect("a time")
}

pub(crate) fn cluster(status: &serde_json::Value) -> AcceleratorCluster {
    serde_json::from_value(json!({
        "apiVersion": "freehold.dev/v1alpha1", "kind": "AcceleratorCluster",
        "metadata": {"name": "cluster", "generation": 4},
        "spec": {"cohorts": [
            {"name": "green-plugin", "vendor": "NVIDIA", "owner": "DevicePlugin", "nodeSelector": {"matchLabels": {"p": "g"}}},
            {"name": "blue-dra", "vendor": "NVIDIA", "owner": "DRA", "nodeSelector": {"matchLabels": {"p": "b"}}},
        ]},
        "status": status,
    }))
    .expect("a cluster")
}

pub(crate) fn observed() -> serde_json::Value {
    json!({"observedGeneration": 4, "nodes": {"matched": 0, "excluded": 0, "owned": 0, "ready": 0, "migrating": 0, "waiting": 0, "blocked": 0, "conflicted": 0}})
}

pub(crate) fn node(
    name: &str,
    cohort: &str,
    owner: Option<Owner>,
    step: Step,
    trouble: Option<(Reason, &str)>,
    seconds_ago: i64,
) -> AcceleratorNode {
    let mut node: AcceleratorNode = serde_json::from_value(json!({
        "apiVersion": "freehold.dev/v1alpha1", "kind": "AcceleratorNode", "metadata": {"name": name},
        "spec": {"nodeUID": format!("uid-{name}"), "nvidia": {"cohort": cohort, "term": 2}},
    }))
    .expect("a record");
    let mut status = AcceleratorNodeStatus::default();
    status.tenures.nvidia = Some(TenureStatus {
        cohort: Some(cohort.into()),
        owner,
        step,
        since: Time(at(seconds_ago)),
        reason: trouble.map(|(reason, _)| reason),
        message: trouble.map(|(_, message)| message.to_owned()),
        next_step: trouble.map(|(reason, _)| reason.next_step().to_owned()),
    });
    node.status = Some(status);
    node
}

/// Text without colour.
pub(crate) const fn plain(wide: bool) -> Look {
    Look {
        style: Style { colour: false },
        wide,
        no_headers: false,
    }
}
