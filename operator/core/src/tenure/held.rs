//! A node with an owner label and no fence.

use super::change::{Change, change, current};
use super::step::standstill;
use super::unmet::{Unmet, blocker};
use super::{
    Decision, Facts, OperandPod, PodWrite, RecordFacts, RecordWrite, Step, Target, Want, advert,
    first, layout_stands, proofs, raise, shaping,
};
use crate::blocker::Reason;
use crate::vendor::Owner;

pub(super) fn step(facts: &Facts, record: &RecordFacts, owner: Owner) -> Decision {
    if let Some(decision) = standstill(facts) {
        return decision;
    }
    if record.owner != Some(owner) {
        return restate(facts, record, owner);
    }
    let Want::Owner(target) = &facts.want else {
        return start(facts, record);
    };
    match change(&current(facts, owner, target), target) {
        Change::Reshape | Change::Handover => start(facts, record),
        Change::Restart => restart(facts, target),
        Change::None if target.layout.is_none() && record.layout.is_some() => {
            // No layout means: leave the geometry as it is. That needs no drain.
            Decision::at(Step::Held).write(RecordWrite::Layout { layout: None })
        }
        Change::None => match advert::verified(facts, target) {
            // Nobody renews what the API shows of a node whose kubelet is silent: the owner stays, and Ready is not said.
            Ok(()) if !facts.node.ready => Decision::at(Step::Held).because(blocker(
                Reason::NodeNotReady,
                "the Node is not Ready: what it advertises is as it was when its kubelet fell silent",
            )),
            Ok(()) => match &facts.node.foreign_alias {
                None => Decision::at(Step::Held),
                Some(alias) => Decision::at(Step::Held).because(blocker(
                    Reason::LabelContention,
                    format!(
                        "spec.ownerLabel names a label that somebody else uses on this node: it is {alias}, expected {} or none",
                        owner.word()
                    ),
                )),
            },
            Err(unmet) => unmet.decide(facts, Step::Verify),
        },
    }
}

/// The label is the truth about who owns the node; a record that says otherwise was lost and made anew. Read fresh, so that
/// an old picture of the Node does not undo an order, and one term is skipped so that this order cannot be taken for the
/// raise that belongs to a fence.
fn restate(facts: &Facts, record: &RecordFacts, owner: Owner) -> Decision {
    let wanted = match &facts.want {
        Want::Owner(target) => Some(&target.cohort),
        Want::Nothing | Want::Hold(_) => None,
    };
    let Some(cohort) = facts.node.cohort.as_ref().or(wanted) else {
        return Decision::at(Step::Hold).because(blocker(
            Reason::LabelContention,
            format!(
                "the Node has the owner label {} but no cohort label {}: somebody else changed it",
                owner.word(),
                crate::names::cohort_label(facts.vendor)
            ),
        ));
    };
    if let Some(decision) = restate_layout(facts, record, owner, cohort) {
        return decision;
    }
    Decision::at(Step::HandWord).write_fresh(
        facts,
        first::order(record, owner, cohort, record.term.saturating_add(1)),
    )
}

/// The layout that the node has, and is to have, is ordered again before the owner is: an owner without a layout would have the
/// node forget its order, and a healthy node drained for one.
fn restate_layout(
    facts: &Facts,
    record: &RecordFacts,
    owner: Owner,
    cohort: &String,
) -> Option<Decision> {
    let Want::Owner(target) = &facts.want else {
        return None;
    };
    let layout = target.layout.as_ref()?;
    if target.owner != owner || target.cohort != *cohort || record.layout.as_ref() == Some(layout) {
        return None;
    }
    let decision = Decision::at(Step::HandWord);
    Some(match proofs::answer(facts, record) {
        Err(unmet) => unmet.decide(facts, Step::HandWord),
        Ok(report) if !layout_stands(layout, report) => return None,
        Ok(_) => decision.write_fresh(
            facts,
            RecordWrite::Layout {
                layout: Some(layout.clone()),
            },
        ),
    })
}

/// Starts a handover, if one may start. A node whose agent cannot attest is left alone: behind a fence it could only wait.
fn start(facts: &Facts, record: &RecordFacts) -> Decision {
    if !facts.node.ready {
        let message = "the Node is not Ready: its owner stays until its kubelet is back";
        return Decision::at(Step::Hold).because(blocker(Reason::NodeNotReady, message));
    }
    if let Some(rest) = &facts.resting {
        return rest.decide();
    }
    if let (Err(blocker), false) = (&facts.may_start, facts.claimed) {
        return Decision::at(Step::Hold).because(blocker.clone());
    }
    if let Err(unmet) = proofs::answer(facts, record) {
        return unmet.decide(facts, Step::Hold);
    }
    if let Want::Owner(target) = &facts.want
        && let Err(unmet) = shaping::has_looked(facts, target)
    {
        return unmet.decide(facts, Step::Hold);
    }
    if !facts.claimed {
        let mut decision = Decision::at(Step::Fence);
        decision.needs_claim = true;
        return decision;
    }
    raise::fence(facts, record, Step::Fence)
}

/// Has the operand made anew from the current template, if the rollout allows.
fn restart(facts: &Facts, target: &Target) -> Decision {
    if let Err(blocker) = &facts.may_start {
        return Decision::at(Step::Held).because(blocker.clone());
    }
    renew(facts, target)
}

/// Deletes the operand pod that has another template; its DaemonSet makes it anew. One at a time, and only when its successor
/// could start: claims of a DRA driver that waits for its layout cannot end.
pub(super) fn renew(facts: &Facts, target: &Target) -> Decision {
    let ours = |pod: &&OperandPod| pod.owner == target.owner && pod.cohort == target.cohort;
    if facts
        .operands
        .iter()
        .filter(ours)
        .any(|pod| pod.terminating)
    {
        return Unmet::soon(
            Reason::OperandNotRunning,
            "the operand's former pod is still ending",
        )
        .decide(facts, Step::Verify);
    }
    let outdated = facts
        .operands
        .iter()
        .filter(ours)
        .filter(|pod| pod.template != target.template)
        .min();
    let Some(pod) = outdated else {
        return Decision::at(Step::Verify);
    };
    match shaping::verified(facts, target) {
        Ok(()) => Decision::at(Step::Verify).write(PodWrite::Restart {
            name: pod.name.clone(),
            uid: pod.uid.clone(),
        }),
        Err(unmet) => unmet.decide(facts, Step::Verify),
    }
}
