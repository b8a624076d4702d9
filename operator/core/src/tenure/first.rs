//! A node without owner label and fence: nothing is owned, or a first ownership is under way.
//!
//! A first ownership needs no fence, since nothing is advertised, but it demands the same proofs as every other.

use super::goal::{Goal, last_dra_cohort};
use super::step::standstill;
use super::unmet::Unmet;
use super::{
    Decision, Facts, NodeWrite, RecordFacts, RecordWrite, Step, Target, Want, proofs, raise,
    shaping,
};
use crate::vendor::Owner;

pub(super) fn step(facts: &Facts, record: &RecordFacts) -> Decision {
    if facts.want == Want::Nothing {
        if holds_order(facts, record) {
            // Behind a fence, since the agent that takes orders back may have left with the node's cohort, and the label that
            // comes with a fence brings it here.
            return standstill(facts).unwrap_or_else(|| raise::fence(facts, record, Step::Fence));
        }
        // Read fresh: an old picture of the Node could hide a grant that has landed.
        return Decision::at(Step::None).write_fresh(facts, RecordWrite::Clear);
    }
    if let Some(decision) = standstill(facts) {
        return decision;
    }
    let goal = Goal::of(facts, record);
    match (record.owner, goal) {
        (None, Goal::Wanted(target)) => hand_first_word(facts, record, target),
        (Some(_), _) if ordered(record, goal) => grant(facts, record, goal),
        // The word was handed to somebody else. See the module documentation: orders are replaced behind a fence only.
        (Some(_), _) | (None, Goal::Nothing | Goal::BackToDra(_)) => {
            raise::fence(facts, record, Step::Fence)
        }
    }
}

/// Whether a layout is ordered, or lies on the node as an order. Left there, the next shaper on this node would carry it out,
/// whoever uses the devices by then.
fn holds_order(facts: &Facts, record: &RecordFacts) -> bool {
    record.layout.is_some() || proofs::report(facts).is_ok_and(|report| report.layout.ordered)
}

fn hand_first_word(facts: &Facts, record: &RecordFacts, target: &Target) -> Decision {
    if let Err(unmet) = proofs::vacated(facts, record, Goal::Wanted(target)) {
        return unmet.decide(facts, Step::Discover);
    }
    hand_word(facts, record, Goal::Wanted(target))
}

/// Orders the layout, waits for it, and hands the word. The caller has the vacate proof on fresh reads.
pub(super) fn hand_word(facts: &Facts, record: &RecordFacts, goal: Goal<'_>) -> Decision {
    match goal {
        Goal::Wanted(target) if record.layout != target.layout => {
            return Decision::at(Step::Reshape).write_fresh(
                facts,
                RecordWrite::Layout {
                    layout: target.layout.clone(),
                },
            );
        }
        Goal::Wanted(target) => {
            if let Err(unmet) = proofs::layout(facts, record, target.layout.as_ref()) {
                return unmet.decide(facts, Step::Reshape);
            }
        }
        // The driver has to start whatever became of the layout: it is here to unprepare.
        Goal::BackToDra(_) if shaping::bars_operands(facts, record) => {
            return Decision::at(Step::Reshape)
                .write_fresh(facts, RecordWrite::Layout { layout: None });
        }
        Goal::BackToDra(_) | Goal::Nothing => {}
    }
    let Some((owner, cohort)) = goal.owner() else {
        return Decision::at(Step::None);
    };
    Decision::at(Step::HandWord).write_fresh(
        facts,
        order(record, owner, cohort, record.term.saturating_add(1)),
    )
}

/// The order that hands the word.
pub(super) fn order(record: &RecordFacts, owner: Owner, cohort: &str, term: i64) -> RecordWrite {
    let dra_cohort = match owner {
        Owner::Dra => Some(cohort.to_owned()),
        Owner::DevicePlugin => last_dra_cohort(record).map(str::to_owned),
    };
    RecordWrite::HandWord {
        cohort: cohort.to_owned(),
        owner,
        term,
        dra_cohort,
    }
}

/// Whether the order given is the one that the goal needs.
pub(super) fn ordered(record: &RecordFacts, goal: Goal<'_>) -> bool {
    let same_layout = match goal {
        Goal::Nothing => return false,
        Goal::Wanted(target) => record.layout == target.layout,
        Goal::BackToDra(_) => true,
    };
    same_layout && goal.owner() == record.owner.zip(record.cohort.as_deref())
}

/// Sets the labels, once the word is confirmed and the node is (still) free.
pub(super) fn grant(facts: &Facts, record: &RecordFacts, goal: Goal<'_>) -> Decision {
    let Some((owner, cohort)) = goal.owner() else {
        return Decision::at(Step::None);
    };
    match ready_to_grant(facts, record, goal, owner) {
        Ok(()) => Decision::at(Step::Grant).write_fresh(
            facts,
            NodeWrite::Grant {
                cohort: cohort.to_owned(),
                owner,
            },
        ),
        Err(unmet) => unmet.decide(facts, Step::HandWord),
    }
}

fn ready_to_grant(
    facts: &Facts,
    record: &RecordFacts,
    goal: Goal<'_>,
    owner: Owner,
) -> Result<(), Unmet> {
    proofs::no_operand(facts)?;
    proofs::word(facts, record, owner)?;
    if let Goal::Wanted(target) = goal {
        match &target.layout {
            Some(layout) => proofs::layout(facts, record, Some(layout))?,
            None => proofs::withdrawn(facts, record)?,
        }
    }
    proofs::vacated(facts, record, goal)
}
