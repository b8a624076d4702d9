//! A fenced node without an owner label: the old owner has lost it, nobody has it yet.

use super::first::{grant, hand_word, ordered};
use super::goal::Goal;
use super::step::standstill;
use super::unmet::blocker;
use super::{Decision, Facts, NodeWrite, RecordFacts, RecordWrite, Step, proofs, raise};
use crate::blocker::Reason;

pub(super) fn step(facts: &Facts, record: &RecordFacts, fence: i64) -> Decision {
    if let Some(decision) = standstill(facts) {
        return decision;
    }
    if let Some(decision) = raise::catch_up(facts, record, fence) {
        return decision;
    }
    let raised = fence.saturating_add(1);
    let handed = fence.saturating_add(2);
    if record.term == fence {
        return second_raise(facts, record, raised);
    }
    let goal = Goal::of(facts, record);
    if goal == Goal::Nothing {
        return leave(facts, record);
    }
    if record.term == raised {
        return match proofs::vacated(facts, record, goal) {
            Ok(()) => say_back(hand_word(facts, record, goal), facts, goal),
            Err(unmet) => unmet.decide(facts, Step::Vacate),
        };
    }
    if record.term == handed && ordered(record, goal) {
        return say_back(grant(facts, record, goal), facts, goal);
    }
    // The word was handed to somebody who is not to have it. See the module documentation: a new fence value first, which
    // refuses every grant decided on the old one.
    raise::fence(facts, record, Step::Vacate)
}

/// Asks for the second attestation once the old operand is seen gone: only then can it say that nobody was let in after the
/// first one. Where nobody is to follow, the ordered layout is withdrawn with it: the agent is here as long as the fence is.
fn second_raise(facts: &Facts, record: &RecordFacts, term: i64) -> Decision {
    let write = if record.layout.is_some() && Goal::of(facts, record) == Goal::Nothing {
        RecordWrite::Withdraw { term }
    } else {
        RecordWrite::RaiseTerm { term }
    };
    match proofs::no_operand(facts) {
        Ok(()) => Decision::at(Step::Vacate).write(write),
        Err(unmet) => unmet.decide(facts, Step::Vacate),
    }
}

/// Nobody is to own the node: the fence comes down on the same proof that a next owner would need, and when the node keeps no
/// order about its geometry either.
fn leave(facts: &Facts, record: &RecordFacts) -> Decision {
    if record.layout.is_some() {
        // Ordered for an owner who is not to come any more. Withdrawn where the term is raised for the second time.
        return raise::fence(facts, record, Step::Vacate);
    }
    let free = proofs::vacated(facts, record, Goal::Nothing)
        .and_then(|()| proofs::withdrawn(facts, record));
    match free {
        Ok(()) => Decision::at(Step::Unfence).write_fresh(facts, NodeWrite::Unfence),
        Err(unmet) => unmet.decide(facts, Step::Vacate),
    }
}

/// On the way back, people are told why.
fn say_back(mut decision: Decision, facts: &Facts, goal: Goal<'_>) -> Decision {
    if let Goal::BackToDra(cohort) = goal
        && decision.blocker.is_none()
    {
        let found = facts
            .consumers
            .iter()
            .flatten()
            .filter(|consumer| super::consumers::is_dra(consumer))
            .min();
        let who = found.map_or_else(
            || "a prepared claim".to_owned(),
            |consumer| consumer.name.clone(),
        );
        decision.blocker = Some(blocker(
            Reason::DevicesInUse,
            format!(
                "{who} turned up after the DRA driver had left; only the driver can unprepare it, so the node goes back to cohort {cohort}"
            ),
        ));
    }
    decision
}
