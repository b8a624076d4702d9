//! Where the node's shaper stands with the ordered layout, and what that means here.
//!
//! | outcome | while held | in the Reshape step |
//! |---|---|---|
//! | `InForce` | the read-back decides | the read-back decides |
//! | `Idle` | the read-back decides | wait: the order is on its way to the shaper |
//! | `Working` | wait: a layout is made anew after each boot, without a drain | wait |
//! | `Busy` | the geometry was changed under a running operand: fence, drain, repair | somebody unseen holds the devices |
//! | `Infeasible`, `ResetRequired`, `RebootRequired`, `Failed` | a person must act; a fence would change nothing | the same |
//!
//! A node without a shaper is judged by the read-back alone.

use super::layout::layout_in_force;
use super::unmet::Unmet;
use super::{Facts, RecordFacts, Target, proofs};
use crate::blocker::Reason;
use crate::intent::Layout;
use crate::report::{Shaping, ShapingOutcome, VendorReport};

/// Whether the ordered layout is in force, or will be without anybody leaving the node: made anew after a boot, or once a
/// person has done what the shaper asks for.
#[must_use]
pub fn layout_stands(layout: &Layout, report: &VendorReport) -> bool {
    layout_in_force(layout, report)
        || report.layout.shaping.as_ref().is_some_and(|shaping| {
            shaping.outcome == ShapingOutcome::Working || trouble(shaping).is_some()
        })
}

/// What a held node waits for before its operand can advertise the ordered layout, if it is the shaper.
pub(super) fn pending(facts: &Facts, target: &Target) -> Option<Pending> {
    let layout = target.layout.as_ref()?;
    let report = proofs::report(facts).ok()?;
    let shaping = report.layout.shaping.as_ref()?;
    let unmet = match shaping.outcome {
        ShapingOutcome::Working => Unmet::at_once(
            Reason::LayoutPending,
            said(shaping, "the layout is being made in this boot"),
        ),
        ShapingOutcome::Idle
        | ShapingOutcome::InForce
        | ShapingOutcome::Busy
        | ShapingOutcome::Infeasible
        | ShapingOutcome::ResetRequired
        | ShapingOutcome::RebootRequired
        | ShapingOutcome::Failed => trouble(shaping)?,
    };
    Some(Pending {
        unmet,
        read_back: layout_in_force(layout, report),
    })
}

/// Whether the node's shaper has looked in this boot, and is done with what it was ordered before. Until then nobody knows whether
/// the boards can carry another layout, or whether anybody is there to make it, and a fence might be for nothing.
pub(super) fn has_looked(facts: &Facts, target: &Target) -> Result<(), Unmet> {
    let shaping = proofs::report(facts)?.layout.shaping.as_ref();
    match shaping.filter(|shaping| shaping.outcome == ShapingOutcome::Working) {
        Some(shaping) if target.layout.is_some() => Err(Unmet::at_once(
            Reason::ShaperSilent,
            said(
                shaping,
                "a change waits until the node's shaper can tell what it finds",
            ),
        )),
        Some(_) | None => Ok(()),
    }
}

/// Whether an operand that waits for a verified layout would be let start, were it made anew now: asked before a running one is
/// taken away.
pub(super) fn verified(facts: &Facts, target: &Target) -> Result<(), Unmet> {
    if target.layout.is_none() {
        return Ok(());
    }
    let Some(shaping) = &proofs::report(facts)?.layout.shaping else {
        return Err(Unmet::soon(
            Reason::ShaperSilent,
            "the node's shaper, which lets the operand start, has not said anything yet; the one that runs is kept",
        ));
    };
    match shaping.outcome {
        ShapingOutcome::InForce => Ok(()),
        ShapingOutcome::Idle | ShapingOutcome::Working => Err(Unmet::soon(
            Reason::LayoutPending,
            said(
                shaping,
                "the operand is made anew once the layout is verified",
            ),
        )),
        ShapingOutcome::Busy
        | ShapingOutcome::Infeasible
        | ShapingOutcome::ResetRequired
        | ShapingOutcome::RebootRequired
        | ShapingOutcome::Failed => Err(trouble(shaping).unwrap_or_else(|| {
            Unmet::at_once(
                Reason::DevicesInUse,
                said(shaping, "a process holds the devices"),
            )
        })),
    }
}

/// Whether an operand that waits for the ordered layout would wait for ever, or for a person. An operand of the same cohort
/// starts on an order that leaves the geometry as it is.
pub(super) fn bars_operands(facts: &Facts, record: &RecordFacts) -> bool {
    record.layout.is_some()
        && outcome(facts).is_some_and(|outcome| match outcome {
            ShapingOutcome::InForce | ShapingOutcome::Idle => false,
            ShapingOutcome::Working
            | ShapingOutcome::Busy
            | ShapingOutcome::Infeasible
            | ShapingOutcome::ResetRequired
            | ShapingOutcome::RebootRequired
            | ShapingOutcome::Failed => true,
        })
}

/// What the node's shaper says, if it has one.
pub(super) fn outcome(facts: &Facts) -> Option<ShapingOutcome> {
    let report = proofs::report(facts).ok()?;
    report
        .layout
        .shaping
        .as_ref()
        .map(|shaping| shaping.outcome)
}

/// What the shaper of a held node has to say.
pub(super) struct Pending {
    /// In words.
    pub(super) unmet: Unmet,
    /// The geometry read back is the wanted one all the same.
    pub(super) read_back: bool,
}

/// In the Reshape step: what the shaper says against going on. `read_back`: the geometry is the ordered one.
pub(super) fn objection(report: &VendorReport, read_back: bool) -> Option<Unmet> {
    let shaping = report.layout.shaping.as_ref()?;
    // While a shaper changes instances, some have no name yet, and their number may be right by chance. Where none has ever
    // looked, and for Logical NeuronCores, which are a number, the read-back is all there is and enough.
    let is_enough = read_back && report.layout.boards.is_empty();
    match shaping.outcome {
        ShapingOutcome::InForce => None,
        ShapingOutcome::Idle | ShapingOutcome::Working if is_enough => None,
        ShapingOutcome::Idle => Some(Unmet::soon(
            Reason::LayoutPending,
            "the order has not reached the node's shaper yet",
        )),
        ShapingOutcome::Working => Some(Unmet::soon(
            Reason::LayoutPending,
            said(shaping, "the layout is being made"),
        )),
        ShapingOutcome::Busy => Some(Unmet::at_once(
            Reason::DevicesInUse,
            said(shaping, "a process holds the devices"),
        )),
        ShapingOutcome::Infeasible
        | ShapingOutcome::ResetRequired
        | ShapingOutcome::RebootRequired
        | ShapingOutcome::Failed => trouble(shaping),
    }
}

/// What only a person can resolve.
fn trouble(shaping: &Shaping) -> Option<Unmet> {
    let (reason, what) = match shaping.outcome {
        ShapingOutcome::Infeasible => (
            Reason::LayoutInfeasible,
            "the board cannot have this layout",
        ),
        ShapingOutcome::ResetRequired => (
            Reason::RebootRequired,
            "a change of MIG mode waits for a reset of the GPU",
        ),
        ShapingOutcome::RebootRequired => (
            Reason::RebootRequired,
            "a change of MIG mode waits for a restart of the host",
        ),
        ShapingOutcome::Failed => (Reason::LayoutFailed, "the layout could not be made"),
        ShapingOutcome::Idle
        | ShapingOutcome::InForce
        | ShapingOutcome::Working
        | ShapingOutcome::Busy => return None,
    };
    Some(Unmet::at_once(reason, said(shaping, what)))
}

fn said(shaping: &Shaping, what: &str) -> String {
    shaping.message.as_ref().map_or_else(
        || what.to_owned(),
        |message| format!("{what}; the node's shaper says: {message}"),
    )
}
