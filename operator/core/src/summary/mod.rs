//! Conditions, counts and bounded blockers for a whole cluster, and the `Ready` condition of one node.
//!
//! Everything here is a function of what was decided, without a clock: equal input gives equal text, so that a status at rest
//! is never written. Texts are grouped by reason, name at most three nodes of a group, and stay under 2 KiB; the counts hold
//! the rest. Reasons of conditions come from closed lists: those of this file, and for `Degraded` and for one node the names
//! of [`Reason`].

mod exemplars;
mod picture;
mod text;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use exemplars::exemplars;
use picture::Picture;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::blocker::{Blocker, Kind, Reason, bounded_bytes};
use crate::intent::Intent;
use crate::rollout::is_pace;
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
    /// The cohort's selector matches. Without it the node is on its way out.
    pub matched: bool,
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

impl TenureOutcome {
    /// What to say about the node: why it does not go on, or else why it is left out.
    #[must_use]
    pub fn why(&self) -> Option<&Blocker> {
        self.blocker.as_ref().or(self.excluded.as_ref())
    }
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
    /// Nodes on their way from one owner to the next, to their first, or to none. The next three overlap with this one: a node
    /// that drains waits for its workloads.
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
    /// Per cohort: counts and conditions, in the intent's order. Names that the intent does not have are cohorts that were
    /// removed while nodes still carry them (the empty name where not even the label is left).
    pub cohorts: BTreeMap<String, (Counts, Vec<Condition>)>,
    /// At most 20 exemplars, one per reason first, then oldest first.
    pub blockers: Vec<BlockerExemplar>,
    /// How many nodes or objects each reason concerns, exemplars included.
    pub blocker_counts: BTreeMap<Reason, usize>,
}

/// At most this many exemplars go into status.
pub const MAX_EXEMPLARS: usize = 20;
/// Longest message of a condition, in bytes.
pub const MAX_CONDITION_MESSAGE: usize = 2048;

/// Sums up. `cluster_wide` holds blockers that concern no node (name taken, CRD outdated, …) with their start times; `known` is
/// false while the caches are still filling, and then nothing is said to be Ready.
#[must_use]
pub fn summarize(
    intent: &Intent,
    outcomes: &[TenureOutcome],
    cluster_wide: &[(Blocker, i64)],
    known: bool,
) -> Summary {
    let mut by_cohort: BTreeMap<&str, Vec<&TenureOutcome>> = intent
        .cohorts
        .keys()
        .map(|name| (name.as_str(), Vec::new()))
        .collect();
    for outcome in outcomes
        .iter()
        .filter(|outcome| outcome.cohort.is_some() || outcome.step != Step::None)
    {
        by_cohort
            .entry(outcome.cohort.as_deref().unwrap_or_default())
            .or_default()
            .push(outcome);
    }
    let everywhere: Vec<&TenureOutcome> = by_cohort.values().flatten().copied().collect();
    let cluster_wide_blockers: Vec<&Blocker> =
        cluster_wide.iter().map(|(blocker, _)| blocker).collect();

    let mut conditions = Picture::of(&everywhere, &cluster_wide_blockers).conditions(known);
    conditions.push(Condition {
        kind: SPEC_VALID,
        status: Truth::True,
        reason: "Accepted",
        message: format!("{} cohort(s) accepted.", intent.cohorts.len()),
    });
    let cohorts = by_cohort
        .into_iter()
        .map(|(name, outcomes)| {
            let picture = Picture::of(&outcomes, &[]);
            (
                name.to_owned(),
                (picture.counts.clone(), picture.conditions(known)),
            )
        })
        .collect();
    Summary {
        conditions,
        cohorts,
        blockers: exemplars(&everywhere, cluster_wide),
        blocker_counts: everywhere
            .iter()
            .filter_map(|outcome| why(outcome))
            .chain(cluster_wide_blockers.iter().copied())
            .fold(BTreeMap::new(), |mut counts, blocker| {
                *counts.entry(blocker.reason).or_insert(0) += 1;
                counts
            }),
    }
}

/// What is said about a resource that cannot be understood: nothing changes until it can, and nothing is claimed about it.
#[must_use]
pub fn invalid(problems: &str) -> Vec<Condition> {
    let condition = |kind, status, message: &str| Condition {
        kind,
        status,
        reason: "SpecInvalid",
        message: bounded_bytes(message.to_owned(), MAX_CONDITION_MESSAGE),
    };
    let kept = "The spec is not valid (see SpecValid): every node keeps what it has until it is.";
    vec![
        condition(READY, Truth::Unknown, kept),
        condition(PROGRESSING, Truth::False, kept),
        condition(DEGRADED, Truth::True, kept),
        condition(SPEC_VALID, Truth::False, problems),
    ]
}

/// The `Ready` condition of one AcceleratorNode, over its vendors.
#[must_use]
pub fn node_condition(outcomes: &[&TenureOutcome]) -> Condition {
    let condition = |status, reason, message: String| Condition {
        kind: READY,
        status,
        reason,
        message: bounded_bytes(message.trim_end().to_owned(), MAX_CONDITION_MESSAGE),
    };
    let Some(worst) = outcomes
        .iter()
        .min_by_key(|outcome| (severity(outcome), outcome.vendor))
    else {
        return condition(
            Truth::Unknown,
            "NotObserved",
            "Nothing is known about this node yet.".to_owned(),
        );
    };
    let said: Vec<String> = outcomes
        .iter()
        .map(|outcome| text::of_tenure(outcome))
        .collect();
    let message = said.join(" ");
    match (is_ready(worst), why(worst), is_moving(worst.step)) {
        (true, _, _) => condition(Truth::True, "OwnerReady", message),
        (false, Some(blocker), _) => condition(Truth::False, blocker.reason.name(), message),
        (false, None, true) => condition(Truth::False, "HandoverUnderWay", message),
        (false, None, false) => condition(Truth::False, "NotOwned", message),
    }
}

const READY: &str = "Ready";
const PROGRESSING: &str = "Progressing";
const DEGRADED: &str = "Degraded";
const SPEC_VALID: &str = "SpecValid";

/// Why an outcome is not what is wanted, exclusions included.
fn why(outcome: &TenureOutcome) -> Option<&Blocker> {
    outcome.excluded.as_ref().or(outcome.blocker.as_ref())
}

/// How its blocker counts. A reason to leave a node alone is one for a person where the node is owned.
fn kind(outcome: &TenureOutcome) -> Option<Kind> {
    if outcome.excluded.is_some() {
        return Some(Kind::Excluded);
    }
    outcome
        .blocker
        .as_ref()
        .map(|blocker| match blocker.reason.kind() {
            Kind::Excluded | Kind::Blocked => Kind::Blocked,
            Kind::Waiting => Kind::Waiting,
            Kind::Conflicted => Kind::Conflicted,
        })
}

/// The owner holds the node and advertises what it should.
fn is_ready(outcome: &TenureOutcome) -> bool {
    outcome.excluded.is_none()
        && outcome.owner.is_some()
        && outcome.step == Step::Held
        && outcome
            .blocker
            .as_ref()
            .is_none_or(|blocker| is_pace(blocker.reason))
}

/// On its way to another owner, to its first, or to none.
const fn is_moving(step: Step) -> bool {
    match step {
        Step::Discover
        | Step::Fence
        | Step::Drain
        | Step::Attest
        | Step::Revoke
        | Step::Vacate
        | Step::Reshape
        | Step::HandWord
        | Step::Grant
        | Step::Verify
        | Step::Unfence => true,
        Step::None | Step::Held | Step::Hold => false,
    }
}

/// Worst first.
fn severity(outcome: &TenureOutcome) -> u8 {
    match kind(outcome) {
        _ if is_ready(outcome) => 5,
        Some(kind) => severity_of(kind),
        None => 3,
    }
}

const fn severity_of(kind: Kind) -> u8 {
    match kind {
        Kind::Conflicted => 0,
        Kind::Blocked => 1,
        Kind::Waiting => 2,
        Kind::Excluded => 4,
    }
}
