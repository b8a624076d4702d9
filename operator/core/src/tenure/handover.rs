//! A fenced node that carries an owner label: on its way out of one tenure, or just into one.

use super::change::{Change, change, current};
use super::step::standstill;
use super::unmet::Unmet;
use super::{
    Decision, Facts, NodeWrite, RecordFacts, Step, Want, advert, consumers, held, proofs, raise,
};
use crate::vendor::Owner;

pub(super) fn step(facts: &Facts, record: &RecordFacts, owner: Owner, fence: i64) -> Decision {
    if let Some(decision) = standstill(facts) {
        return decision;
    }
    // Even when the mind has changed: a fence comes down only after the term has reached its value, so that the value is
    // never used again.
    if let Some(decision) = raise::catch_up(facts, record, fence) {
        return decision;
    }
    let wanted = match &facts.want {
        Want::Owner(target) => match change(&current(facts, owner, target), target) {
            kept @ (Change::None | Change::Restart) => Some((target, kept)),
            Change::Reshape | Change::Handover => None,
        },
        Want::Nothing | Want::Hold(_) => None,
    };
    match (record.term == fence, wanted) {
        (true, None) => drain(facts, record),
        // A change of mind before revoke: everything is as it was.
        (true, Some(_)) => Decision::at(Step::Unfence).write(NodeWrite::Unfence),
        // Granted to somebody who is no longer wanted, or only to let claims be unprepared: drain (again).
        (false, None) => raise::fence(facts, record, Step::Fence),
        (false, Some(_)) if record.owner != Some(owner) => raise::fence(facts, record, Step::Fence),
        (false, Some((target, Change::Restart))) => held::renew(facts, target),
        (false, Some((target, _))) => match advert::verified_and_stable(facts, target) {
            Ok(()) => Decision::at(Step::Unfence).write(NodeWrite::Unfence),
            Err(unmet) => unmet.decide(facts, Step::Verify),
        },
    }
}

/// Drain, attest, revoke: consumers first, so that people see the names of pods rather than of holders.
fn drain(facts: &Facts, record: &RecordFacts) -> Decision {
    let settle = facts
        .timing
        .settle_s
        .saturating_sub(facts.timing.fence_seen_s);
    if settle > 0 {
        return Unmet::Time(settle).decide(facts, Step::Drain);
    }
    if let Err(unmet) = consumers::gone(facts, false) {
        return unmet.decide(facts, Step::Drain);
    }
    if let Err(unmet) = proofs::attested(facts, record) {
        return unmet.decide(facts, Step::Attest);
    }
    Decision::at(Step::Revoke).write_fresh(facts, NodeWrite::Revoke)
}
