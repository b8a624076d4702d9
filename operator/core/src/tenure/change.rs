//! How much a change of intent takes: decided here and nowhere else.

use super::{Facts, Target, shaping::layout_stands};
use crate::vendor::Owner;

/// Classes of change, in the order of what they take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Change {
    /// Nothing that concerns the node: metadata.
    None,
    /// The pod template differs (image, resources): the operand's pod is made anew, in a rollout. Consumers stay.
    Restart,
    /// What is advertised differs (sharing, MIG strategy, layout, LNC, another cohort's DaemonSet): fence and drain first.
    Reshape,
    /// Another owner, or none: fence and drain first.
    Handover,
}

/// What is in force on a node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Current {
    /// Owner.
    pub owner: Owner,
    /// Cohort; `None` when the label is gone.
    pub cohort: Option<String>,
    /// Whether the geometry that the target asks for (if any) was ordered and is in force, or is the node's shaper's to make
    /// without a drain (see [`super::layout_stands`]).
    pub layout_in_force: bool,
    /// What the running operand advertises, by hash; `None` while none runs.
    pub shape: Option<String>,
    /// The running operand's template, by hash; `None` while none runs.
    pub template: Option<String>,
}

/// What it takes to get from what is in force to what is wanted.
#[must_use]
pub fn change(current: &Current, target: &Target) -> Change {
    let Current {
        owner,
        cohort,
        layout_in_force,
        shape,
        template,
    } = current;
    if *owner != target.owner {
        Change::Handover
    } else if cohort.as_ref() != Some(&target.cohort)
        || !layout_in_force
        || shape.as_ref().is_some_and(|shape| *shape != target.shape)
    {
        Change::Reshape
    } else if template
        .as_ref()
        .is_some_and(|template| *template != target.template)
    {
        Change::Restart
    } else {
        Change::None
    }
}

/// Reads off what is in force on a node that carries `owner`'s label.
pub(super) fn current(facts: &Facts, owner: Owner, target: &Target) -> Current {
    let ordered = facts
        .record
        .as_ref()
        .and_then(|record| record.layout.as_ref());
    let in_force = match &target.layout {
        None => true,
        // Without a valid report the order has to do: a report that is merely missing is no reason to drain a node.
        Some(layout) => {
            ordered == Some(layout)
                && super::proofs::report(facts).map_or(true, |report| layout_stands(layout, report))
        }
    };
    let cohort = facts.node.cohort.clone();
    let mut pods: Vec<_> = facts
        .operands
        .iter()
        .filter(|pod| {
            pod.owner == owner && cohort.as_ref() == Some(&pod.cohort) && !pod.terminating
        })
        .collect();
    // Should there be two, the one that differs counts.
    pods.sort_by_key(|pod| (pod.shape == target.shape, pod.template == target.template));
    let pod = pods.first();
    Current {
        owner,
        layout_in_force: in_force,
        shape: pod.map(|pod| pod.shape.clone()),
        template: pod.map(|pod| pod.template.clone()),
        cohort,
    }
}
