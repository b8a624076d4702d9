//! Fencing: a taint whose value is the new term, then that term into the AcceleratorNode.

use super::{Decision, Facts, NodeWrite, RecordFacts, RecordWrite, Step, proofs};

/// Puts the fence up, or gives a fence that is up a new value, so that everything starts over from the drain.
///
/// The value is two above a term that was just read. Every other write raises the term by one, so a write still under way
/// cannot make the term equal to the value; only the raise can that is decided when this fence is seen. Otherwise an
/// attestation from before this fence could pass for one given behind it (the model finds that in 39 steps).
pub(super) fn fence(facts: &Facts, record: &RecordFacts, step: Step) -> Decision {
    let term = record
        .term
        .max(facts.node.fence.unwrap_or(0))
        .saturating_add(2);
    Decision::at(step).write_fresh(facts, NodeWrite::Fence { term })
}

/// Raises the term to the fence's value, if it is not there yet. The agent answers the present term first: a record that was
/// made anew counts from 1 again, and a report left over from its predecessor could name the term to come.
pub(super) fn catch_up(facts: &Facts, record: &RecordFacts, fence: i64) -> Option<Decision> {
    if record.term >= fence {
        return None;
    }
    Some(match proofs::answer(facts, record) {
        Ok(_) => Decision::at(Step::Fence).write(RecordWrite::RaiseTerm { term: fence }),
        Err(unmet) => unmet.decide(facts, Step::Fence),
    })
}
