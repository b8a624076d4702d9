//! Fencing: a taint whose value is the new term, then that term into the AcceleratorNode.

use super::{Decision, Facts, NodeWrite, RecordFacts, RecordWrite, Step, proofs};

/// Puts the fence up, or gives a fence that is up a new value, so that everything starts over from the drain. The value is
/// one above a term that was just read: a fence value that was in use before would let an old attestation pass for one that
/// was given behind this fence.
pub(super) fn fence(facts: &Facts, record: &RecordFacts, step: Step) -> Decision {
    let term = record
        .term
        .max(facts.node.fence.unwrap_or(0))
        .saturating_add(1);
    Decision::at(step).write_fresh(facts, NodeWrite::Fence { term })
}

/// Raises the term to the fence's value, if it is not there yet.
pub(super) fn catch_up(facts: &Facts, record: &RecordFacts, fence: i64) -> Option<Decision> {
    if record.term >= fence {
        return None;
    }
    // A record that was made anew counts from 1 while the fence is far ahead. A report left over from its predecessor could
    // name the term to come; once the agent has answered the present one, that report is gone.
    if record.term.saturating_add(1) < fence
        && let Err(unmet) = proofs::answer(facts, record)
    {
        return Some(unmet.decide(facts, Step::Fence));
    }
    Some(Decision::at(Step::Fence).write(RecordWrite::RaiseTerm { term: fence }))
}
