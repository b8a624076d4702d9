//! What changes on each node, and what stays.

use freehold_api::LayoutSpec;
use freehold_core::assign::{Assignment, NodeView, assign};
use freehold_core::blocker::{Blocker, Reason};
use freehold_core::intent::Intent;
use freehold_core::names;
use freehold_core::tenure::{Change, Current, Target, Want, change, layout_stands};
use freehold_core::vendor::{Owner, Vendor};
use serde::Serialize;

use super::World;
use crate::seen::Consumer;

/// What a change takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(super) enum Class {
    /// A first owner: nothing is taken away from anybody.
    FirstOwner,
    /// The operand's pod is made anew; consumers stay.
    Restart,
    /// Other names or counts are advertised: fenced and drained first.
    Reshape,
    /// Another owner: fenced and drained first.
    Handover,
    /// No owner any more: fenced and drained first.
    Release,
}

impl Class {
    /// Whether consumers have to leave.
    pub(super) const fn fences(self) -> bool {
        match self {
            Self::FirstOwner | Self::Restart => false,
            Self::Reshape | Self::Handover | Self::Release => true,
        }
    }

    /// The steps, in order.
    pub(super) const fn steps(self) -> &'static [&'static str] {
        match self {
            Self::FirstOwner => &[
                "the agent reports",
                "make the layout, if one is wanted",
                "hand the owner word",
                "grant the labels",
                "verify what is advertised",
            ],
            Self::Restart => &["delete the operand's pod", "verify what is advertised"],
            Self::Reshape | Self::Handover => &[
                "fence",
                "drain",
                "attest",
                "revoke the labels",
                "vacate",
                "make the layout, if one is wanted",
                "hand the owner word",
                "grant the labels",
                "verify what is advertised",
                "unfence",
            ],
            Self::Release => &[
                "fence",
                "drain",
                "attest",
                "revoke the labels",
                "vacate",
                "unfence",
            ],
        }
    }
}

/// One vendor on one node that changes.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Move {
    pub(super) node: String,
    pub(super) vendor: Vendor,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) from: Option<Owner>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) from_cohort: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) to: Option<Owner>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) to_cohort: Option<String>,
    pub(super) class: Class,
    /// The fence is up already.
    pub(super) under_way: bool,
    /// Who has to leave first; absent where nobody has to, or nobody looked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) consumers: Option<Vec<Consumer>>,
    /// What stands in the way now.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) blockers: Vec<Blocker>,
    /// Place in the order, from 1; absent when it may not start as things are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) wave: Option<usize>,
}

/// One vendor on one node that stays as it is, though something is wanted.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Stay {
    pub(super) node: String,
    pub(super) vendor: Vendor,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) owner: Option<Owner>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cohort: Option<String>,
    /// Not ours to own.
    pub(super) excluded: bool,
    pub(super) reason: Reason,
    pub(super) id: &'static str,
    pub(super) message: String,
    pub(super) next_step: String,
}

/// One vendor on one node that is as wanted.
#[derive(Clone, Debug)]
pub(super) struct Settled {
    pub(super) node: String,
    pub(super) vendor: Vendor,
    pub(super) cohort: String,
}

/// Decides every vendor on every node.
pub(super) fn all(
    world: &World,
    intent: &Intent,
    tearing_down: bool,
) -> (Vec<Move>, Vec<Stay>, Vec<Settled>) {
    let (mut moves, mut stays, mut settled) = (Vec::new(), Vec::new(), Vec::new());
    for node in &world.nodes {
        for vendor in Vendor::ALL {
            match one(world, intent, tearing_down, node, vendor) {
                Outcome::Nothing => {}
                Outcome::Move(move_) => moves.push(*move_),
                Outcome::Stay(stay) => stays.push(stay),
                Outcome::Settled(place) => settled.push(place),
            }
        }
    }
    (moves, stays, settled)
}

enum Outcome {
    Nothing,
    Move(Box<Move>),
    Stay(Stay),
    Settled(Settled),
}

fn one(
    world: &World,
    intent: &Intent,
    tearing_down: bool,
    node: &NodeView,
    vendor: Vendor,
) -> Outcome {
    let record = world.records.get(&node.name);
    let report = record.and_then(|record| record.status.as_ref()?.report.as_ref());
    let mut assignment = assign(vendor, node, report, &world.view, intent);
    if tearing_down {
        assignment = Assignment {
            cohort: None,
            excluded: None,
            want: Want::Nothing,
        };
    }
    let owner = node
        .labels
        .get(&names::owner_label(vendor))
        .and_then(|word| Owner::from_word(word));
    let from_cohort = node.labels.get(&names::cohort_label(vendor)).cloned();
    let under_way = node
        .taints
        .iter()
        .any(|taint| taint.key == names::fence_taint(vendor));
    let excluded = assignment.excluded.is_some();
    let stay = |why: Blocker| Stay {
        node: node.name.clone(),
        vendor,
        owner,
        cohort: assignment.cohort.clone(),
        excluded,
        reason: why.reason,
        id: why.reason.id(),
        next_step: why.reason.next_step().replace("<node>", &node.name),
        message: why.message,
    };
    if let Some(why) = assignment.excluded.clone() {
        return Outcome::Stay(stay(why));
    }
    let moved = |class: Class, target: Option<&Target>| {
        Outcome::Move(Box::new(Move {
            node: node.name.clone(),
            vendor,
            from: owner,
            from_cohort: from_cohort.clone(),
            to: target.map(|target| target.owner),
            to_cohort: target.map(|target| target.cohort.clone()),
            class,
            under_way,
            consumers: None,
            blockers: target
                .and_then(|target| target.expected.clone().err())
                .into_iter()
                .collect(),
            wave: None,
        }))
    };
    match (&assignment.want, owner) {
        (Want::Hold(why), _) => Outcome::Stay(stay(why.clone())),
        (Want::Nothing, None) if under_way => moved(Class::Release, None),
        (Want::Nothing, None) => Outcome::Nothing,
        (Want::Nothing, Some(_)) => moved(Class::Release, None),
        // Behind a fence without a label: the old owner is gone and the new one comes.
        (Want::Owner(target), None) if under_way => moved(Class::Handover, Some(target)),
        (Want::Owner(target), None) => moved(Class::FirstOwner, Some(target)),
        (Want::Owner(target), Some(owner)) => {
            match change(&current(world, node, vendor, owner, target), target) {
                Change::None => Outcome::Settled(Settled {
                    node: node.name.clone(),
                    vendor,
                    cohort: target.cohort.clone(),
                }),
                Change::Restart => moved(Class::Restart, Some(target)),
                Change::Reshape => moved(Class::Reshape, Some(target)),
                Change::Handover => moved(Class::Handover, Some(target)),
            }
        }
    }
}

/// Reads off what is in force, as the controller does.
fn current(
    world: &World,
    node: &NodeView,
    vendor: Vendor,
    owner: Owner,
    target: &Target,
) -> Current {
    let record = world.records.get(&node.name);
    let order = record
        .and_then(|record| record.spec.vendor(vendor)?.layout.as_ref())
        .and_then(LayoutSpec::to_layout);
    let report = record.and_then(|record| record.status.as_ref()?.report.as_ref());
    let report = report.filter(|report| {
        report.node_uid == node.uid && (node.boot_id.is_empty() || report.boot_id == node.boot_id)
    });
    let report = report.and_then(|report| report.vendor(vendor));
    let in_force = match &target.layout {
        None => true,
        Some(layout) => {
            order.as_ref() == Some(layout)
                && report.is_none_or(|report| layout_stands(layout, report))
        }
    };
    let cohort = node.labels.get(&names::cohort_label(vendor)).cloned();
    let mut operands: Vec<_> = world
        .pods
        .get(&node.name)
        .into_iter()
        .flatten()
        .filter(|pod| !pod.ending)
        .filter_map(|pod| pod.operand.as_ref())
        .filter(|operand| {
            operand.vendor == vendor
                && operand.owner == owner
                && Some(&operand.cohort) == cohort.as_ref()
        })
        .collect();
    // Should there be two, the one that differs counts.
    operands.sort_by_key(|operand| {
        (
            operand.shape == target.shape,
            operand.template == target.template,
        )
    });
    let operand = operands.first();
    Current {
        owner,
        cohort,
        layout_in_force: in_force,
        shape: operand.map(|operand| operand.shape.clone()),
        template: operand.map(|operand| operand.template.clone()),
    }
}
