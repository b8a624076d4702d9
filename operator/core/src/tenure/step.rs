//! The entry: which part of the protocol a node is in.

use super::unmet::blocker;
use super::{
    Decision, Facts, NodeFacts, RecordFacts, RecordWrite, Step, Want, first, handover, held,
    vacated,
};
use crate::blocker::{Blocker, Reason};
use crate::vendor::Owner;

/// Decides the next step for one vendor on one node.
#[must_use]
pub fn step(facts: &Facts) -> Decision {
    let decision = undisturbed(facts);
    match &facts.contended {
        None => decision,
        Some(contended) => contended.over(decision),
    }
}

fn undisturbed(facts: &Facts) -> Decision {
    let record = match &facts.record {
        Some(record) if record.node_uid == facts.node.uid => record,
        other => return without_record(facts, other.as_ref()),
    };
    let owner = match &facts.node.owner {
        None => None,
        Some(Ok(owner)) => Some(*owner),
        Some(Err(value)) => return Decision::at(Step::Hold).because(strange_label(facts, value)),
    };
    match (owner, facts.node.fence) {
        (None, None) => first::step(facts, record),
        (Some(owner), None) => held::step(facts, record, owner),
        (Some(owner), Some(fence)) => handover::step(facts, record, owner, fence),
        (None, Some(fence)) => vacated::step(facts, record, fence),
    }
}

/// What stops every write on a node: an unclear intent, or another party.
pub(super) fn standstill(facts: &Facts) -> Option<Decision> {
    if let Want::Hold(blocker) = &facts.want {
        return Some(Decision::at(Step::Hold).because(blocker.clone()));
    }
    // The host's own plugin has another remedy than a DaemonSet, where the devices are to go to DRA.
    let for_dra = matches!(&facts.want, Want::Owner(target) if target.owner == Owner::Dra);
    let first = facts
        .foreign
        .iter()
        .min_by_key(|foreign| (foreign.host_plugin, *foreign));
    first.map(|foreign| {
        Decision::at(Step::Hold).because(blocker(
            if foreign.host_plugin && for_dra {
                Reason::HostPluginActive
            } else {
                Reason::ForeignOwner
            },
            format!(
                "{} hands out, or is set up to hand out, {} devices on this node: {}",
                foreign.who, facts.vendor, foreign.evidence
            ),
        ))
    })
}

/// The AcceleratorNode is the seat of the conversation; without one for this very node nothing can be asked or told.
fn without_record(facts: &Facts, other: Option<&RecordFacts>) -> Decision {
    let NodeFacts {
        uid,
        boot_id: _,
        ready: _,
        owner,
        cohort,
        fence,
        foreign_alias: _,
        allocatable: _,
    } = &facts.node;
    let untouched = owner.is_none() && fence.is_none();
    let (step, blocker_, cohort) = match &facts.want {
        Want::Nothing if untouched => {
            let decision = Decision::at(Step::None);
            // A record for a node that is gone, and nothing is wanted of its successor.
            return if other.is_some() {
                decision.write_fresh(facts, RecordWrite::Clear)
            } else {
                decision
            };
        }
        Want::Nothing => (Step::Discover, None, cohort.clone()),
        Want::Owner(target) => (Step::Discover, None, Some(target.cohort.clone())),
        Want::Hold(blocker) => (Step::Hold, Some(blocker.clone()), cohort.clone()),
    };
    let mut decision = Decision::at(step);
    decision.blocker = blocker_;
    let create = RecordWrite::Create { cohort };
    match other {
        None => decision.write(create),
        // Only a fresh read can tell a new node from an old picture of one.
        Some(other) => decision
            .because(blocker(
                Reason::NodeReplaced,
                format!(
                    "the AcceleratorNode was made for Node UID {}, the Node now has UID {uid}",
                    other.node_uid
                ),
            ))
            .write_fresh(facts, create),
    }
}

fn strange_label(facts: &Facts, value: &str) -> Blocker {
    blocker(
        Reason::LabelContention,
        format!(
            "label {} has the value {value:?}, expected device-plugin or dra: somebody else changed it",
            crate::names::owner_label(facts.vendor)
        ),
    )
}
