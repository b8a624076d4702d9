//! Conditions, counts and bounded blockers for a whole cluster.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::blocker::{Blocker, Reason};
use crate::intent::Intent;
use crate::tenure::Step;
use crate::vendor::{Owner, Vendor};

/// What came of one vendor on one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TenureOutcome {
    /// Node name.
    pub node: String,
    /// Vendor.
    pub vendor: Vendor,
    /// Cohort that matches or holds the node; `None` for a node on its way out of every cohort.
    pub cohort: Option<String>,
    /// Owner whose labels the node carries.
    pub owner: Option<Owner>,
    /// The node is listed as excluded for this reason.
    pub excluded: Option<Blocker>,
    /// Where it stands.
    pub step: Step,
    /// Why it does not go on.
    pub blocker: Option<Blocker>,
    /// Since when the blocker (or, without one, the step) holds: seconds since the Unix epoch.
    pub since_s: i64,
}

/// One cohort's numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Counts {
    /// Nodes whose labels match the selector.
    pub matched: i32,
    /// Of these, nodes that are not ours to own (no hardware, Auto Mode, …).
    pub excluded: i32,
    /// Nodes that carry this cohort's owner label.
    pub owned: i32,
    /// Owned nodes that advertise what they should.
    pub ready: i32,
    /// Nodes on their way from one owner to the next, or to their first.
    pub migrating: i32,
    /// Nodes that time or workloads will move on.
    pub waiting: i32,
    /// Nodes where a person must act.
    pub blocked: i32,
    /// Nodes that two parties claim.
    pub conflicted: i32,
}

/// `True`, `False` or `Unknown`, as Kubernetes conditions have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Truth {
    /// It is so.
    True,
    /// It is not so.
    False,
    /// It cannot be told.
    Unknown,
}

/// A condition without its timestamps: the caller merges those.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// `Ready`, `Progressing`, `Degraded` or `SpecValid`.
    pub kind: &'static str,
    /// Its value.
    pub status: Truth,
    /// CamelCase, from a closed list.
    pub reason: &'static str,
    /// One or two sentences; at most 2 KiB; no elapsed times.
    pub message: String,
}

/// One exemplar of a blocker, for status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockerExemplar {
    /// Node; `None` for cluster-wide ones.
    pub node: Option<String>,
    /// Cohort concerned.
    pub cohort: Option<String>,
    /// Vendor concerned.
    pub vendor: Option<Vendor>,
    /// Why.
    pub reason: Reason,
    /// What was found and expected.
    pub message: String,
    /// What a person does next.
    pub next_step: &'static str,
    /// Since when: seconds since the Unix epoch.
    pub since_s: i64,
}

/// The whole summary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Cluster-wide conditions: Ready, Progressing, Degraded, SpecValid.
    pub conditions: Vec<Condition>,
    /// Per cohort: counts and conditions, in the intent's order.
    pub cohorts: BTreeMap<String, (Counts, Vec<Condition>)>,
    /// At most 20 exemplars, one per reason first, then oldest first.
    pub blockers: Vec<BlockerExemplar>,
    /// How many nodes or objects each reason concerns, exemplars included.
    pub blocker_counts: BTreeMap<Reason, usize>,
}

/// At most this many exemplars go into status.
pub const MAX_EXEMPLARS: usize = 20;

/// Sums up. `cluster_wide` holds blockers that concern no node (name taken, CRD outdated, …) with their start times; `known` is
/// false while the caches are still filling, and then nothing is said to be Ready.
#[must_use]
pub fn summarize(
    intent: &Intent,
    outcomes: &[TenureOutcome],
    cluster_wide: &[(Blocker, i64)],
    known: bool,
) -> Summary {
    let _ = (intent, outcomes, cluster_wide, known);
    unimplemented!()
}
