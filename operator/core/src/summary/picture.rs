//! What conditions are made of: numbers and groups of tenures, and the conditions themselves.

use std::collections::{BTreeMap, BTreeSet};

use super::text;
use super::{
    Condition, Counts, DEGRADED, MAX_CONDITION_MESSAGE, PROGRESSING, READY, TenureOutcome, Truth,
    is_moving, is_ready, kind, severity_of, why,
};
use crate::blocker::{Blocker, Kind, Reason, bounded_bytes};
use crate::rollout::is_pace;

/// Nodes that share a reason.
pub(super) struct Group<'a> {
    pub(super) kind: Kind,
    pub(super) reason: Reason,
    /// Sorted, each once. Empty for what concerns the cluster as a whole.
    pub(super) nodes: BTreeSet<&'a str>,
    /// What was found, if it is the same everywhere.
    pub(super) message: Option<&'a str>,
}

/// Numbers and groups of some outcomes: all that conditions are made of.
pub(super) struct Picture<'a> {
    pub(super) counts: Counts,
    /// Nodes that are not excluded and not ready.
    unready: usize,
    /// Nodes on their way that need no person to go on.
    advancing: usize,
    /// Nodes that are not excluded, on their way out included.
    concerned: usize,
    /// Worst first, then the larger, then by reason.
    groups: Vec<Group<'a>>,
}

impl<'a> Picture<'a> {
    pub(super) fn of(outcomes: &[&'a TenureOutcome], cluster_wide: &[&'a Blocker]) -> Self {
        let mut counts = Counts::default();
        let (mut unready, mut advancing, mut concerned) = (0, 0, 0);
        let mut groups: BTreeMap<(Kind, Reason), Group<'a>> = BTreeMap::new();
        let mut collect = |kind: Kind, blocker: &'a Blocker, node: Option<&'a str>| {
            let group = groups
                .entry((kind, blocker.reason))
                .or_insert_with(|| Group {
                    kind,
                    reason: blocker.reason,
                    nodes: BTreeSet::new(),
                    message: Some(&blocker.message),
                });
            group.message = group.message.filter(|message| *message == blocker.message);
            group.nodes.extend(node);
        };
        for blocker in cluster_wide {
            collect(blocker.reason.kind(), blocker, None);
        }
        for outcome in outcomes {
            let kind = kind(outcome);
            counts.matched += i32::from(outcome.matched);
            counts.owned += i32::from(outcome.owner.is_some());
            counts.ready += i32::from(is_ready(outcome));
            counts.migrating += i32::from(is_moving(outcome.step));
            let needs_person = matches!(kind, Some(Kind::Blocked | Kind::Conflicted));
            advancing += usize::from(is_moving(outcome.step) && !needs_person);
            match kind {
                None => {}
                Some(Kind::Excluded) => counts.excluded += 1,
                Some(Kind::Waiting) => counts.waiting += 1,
                Some(Kind::Blocked) => counts.blocked += 1,
                Some(Kind::Conflicted) => counts.conflicted += 1,
            }
            if outcome.excluded.is_none() {
                concerned += 1;
                unready += usize::from(!is_ready(outcome));
            }
            if let (Some(kind), Some(blocker)) = (kind, why(outcome)) {
                collect(kind, blocker, Some(&outcome.node));
            }
        }
        let mut groups: Vec<Group<'a>> = groups.into_values().collect();
        groups.sort_by_key(|group| {
            (
                severity_of(group.kind),
                std::cmp::Reverse(group.nodes.len()),
                group.reason,
            )
        });
        Self {
            counts,
            unready,
            advancing,
            concerned,
            groups,
        }
    }

    /// The groups of these kinds, worst first.
    fn groups(&self, kinds: &'static [Kind]) -> impl Iterator<Item = &Group<'a>> {
        self.groups
            .iter()
            .filter(|group| kinds.contains(&group.kind))
    }

    /// `Ready`, `Progressing` and `Degraded`.
    pub(super) fn conditions(&self, known: bool) -> Vec<Condition> {
        [
            (READY, self.ready()),
            (PROGRESSING, self.progressing()),
            (DEGRADED, self.degraded()),
        ]
        .into_iter()
        .map(|(kind, (status, reason, message))| {
            let (status, reason, message) = if known {
                (status, reason, message)
            } else {
                (
                    Truth::Unknown,
                    "NotObserved",
                    "The controller is still reading the cluster.".to_owned(),
                )
            };
            Condition {
                kind,
                status,
                reason,
                message: bounded_bytes(message.trim_end().to_owned(), MAX_CONDITION_MESSAGE),
            }
        })
        .collect()
    }

    fn ready(&self) -> (Truth, &'static str, String) {
        let trouble =
            self.groups(&[Kind::Conflicted, Kind::Blocked])
                .next()
                .map(|group| match group.kind {
                    Kind::Conflicted => "Conflicted",
                    Kind::Excluded | Kind::Waiting | Kind::Blocked => "Blocked",
                });
        let waiting = self
            .groups(&[Kind::Waiting])
            .any(|group| !is_pace(group.reason));
        let others =
            || text::groups(self.groups(&[Kind::Conflicted, Kind::Blocked, Kind::Waiting]));
        let so_far = format!(
            "{} of {} nodes ready{}.",
            self.counts.ready,
            self.concerned,
            text::excluded(&self.counts)
        );
        match trouble {
            Some(reason) => (Truth::False, reason, format!("{so_far} {}", others())),
            None if self.concerned == 0 && self.counts.excluded > 0 => {
                let excluded = text::groups(self.groups(&[Kind::Excluded]));
                (
                    Truth::False,
                    "OnlyExcludedNodes",
                    format!("Every node that matches is excluded. {excluded}"),
                )
            }
            None if self.concerned == 0 => {
                let message = "No node matches. Nodes are taken in as soon as one does.";
                (Truth::False, "NoMatchingNodes", message.to_owned())
            }
            None if self.unready > 0 && (waiting || self.advancing == 0) => {
                (Truth::False, "Waiting", format!("{so_far} {}", others()))
            }
            None if self.unready > 0 => {
                let moving = self.advancing;
                let message = format!(
                    "{so_far} {moving} on the way to what is wanted. {}",
                    others()
                );
                (Truth::False, "HandoverUnderWay", message)
            }
            None => (Truth::True, "AllNodesReady", so_far),
        }
    }

    fn progressing(&self) -> (Truth, &'static str, String) {
        let waiting = || text::groups(self.groups(&[Kind::Waiting]));
        let paused = self
            .groups(&[Kind::Waiting])
            .any(|group| group.reason == Reason::Paused);
        let moving = self.advancing;
        let waits_for_more = self
            .groups(&[Kind::Waiting])
            .any(|group| group.reason != Reason::Paused);
        if moving > 0 {
            (
                Truth::True,
                "HandoverUnderWay",
                format!(
                    "{moving} node(s) on the way to what is wanted. {}",
                    waiting()
                ),
            )
        } else if waits_for_more {
            (Truth::True, "Waiting", waiting())
        } else if paused {
            (Truth::False, "RolloutPaused", waiting())
        } else if self.unready > 0 {
            (
                Truth::False,
                "Standstill",
                "Nothing moves until a person acts, see Degraded.".to_owned(),
            )
        } else {
            (
                Truth::False,
                "Settled",
                "Every node is as wanted; nothing is under way.".to_owned(),
            )
        }
    }

    fn degraded(&self) -> (Truth, &'static str, String) {
        let troubles = || self.groups(&[Kind::Conflicted, Kind::Blocked]);
        match troubles().next() {
            None => (
                Truth::False,
                "AsExpected",
                "Nothing needs a person.".to_owned(),
            ),
            Some(worst) => {
                let message = format!(
                    "{} Next: {}",
                    text::groups(troubles()),
                    worst.reason.next_step()
                );
                (Truth::True, worst.reason.name(), message)
            }
        }
    }
}
