//! Where a node without an owner is headed.

use super::{Facts, RecordFacts, Target, Want, proofs};
use crate::vendor::Owner;

/// Who is to own the node next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Goal<'a> {
    /// Nobody.
    Nothing,
    /// Whom the intent wants.
    Wanted(&'a Target),
    /// The DRA driver once more, under its last cohort: something is prepared, or about to be, that only it can unprepare.
    BackToDra(&'a str),
}

impl<'a> Goal<'a> {
    /// The goal, as far as the facts at hand tell. Without consumers it may turn into [`Goal::BackToDra`] on a fresh read, so
    /// whoever writes on a goal reads fresh first.
    pub(super) fn of(facts: &'a Facts, record: &'a RecordFacts) -> Self {
        let dra_in_use = proofs::dra_holders(facts)
            || facts
                .consumers
                .iter()
                .flatten()
                .any(super::consumers::is_dra);
        match (last_dra_cohort(record), &facts.want) {
            (Some(cohort), _) if dra_in_use => Self::BackToDra(cohort),
            (_, Want::Owner(target)) => Self::Wanted(target),
            // A standstill is dealt with before anybody asks for a goal.
            (_, Want::Nothing | Want::Hold(_)) => Self::Nothing,
        }
    }

    /// Owner and cohort, unless nobody is to own the node.
    pub(super) fn owner(self) -> Option<(Owner, &'a str)> {
        match self {
            Self::Nothing => None,
            Self::Wanted(target) => Some((target.owner, &target.cohort)),
            Self::BackToDra(cohort) => Some((Owner::Dra, cohort)),
        }
    }
}

/// The cohort under which DRA owns or last owned the node. Only a node that we gave to DRA can go *back* to it: what others
/// left prepared on a node is theirs.
pub(super) fn last_dra_cohort(record: &RecordFacts) -> Option<&str> {
    match record.owner {
        Some(Owner::Dra) => record.cohort.as_deref(),
        Some(Owner::DevicePlugin) | None => record.dra_cohort.as_deref(),
    }
}
