//! Whether an operand whose cohort wants a layout may start.

use std::path::Path;

use freehold_core::report::ShapingOutcome;

use super::{order, shaped};

/// Whether the ordered layout is in force, verified in the present boot. An order to leave the geometry as it is has nothing to
/// be verified: the operand is of a cohort whose layout was just withdrawn here, and may be what its own claims wait for.
///
/// # Errors
/// What it waits for, in words.
pub fn verified(directory: &Path, boot_id: &str) -> Result<(), String> {
    let at = directory.display();
    let order = order::read(directory)
        .map_err(|error| format!("the ordered layout in {at}: {error}"))?
        .ok_or_else(|| "no layout is ordered on this node yet".to_owned())?;
    let Some(order) = order.layout else {
        return Ok(());
    };
    let shaped = shaped::read(directory)
        .map_err(|error| format!("what the shaper says in {at}: {error}"))?
        .ok_or_else(|| "the node's shaper has not looked at the layout yet".to_owned())?;
    if shaped.has_in_force(&order, boot_id) {
        return Ok(());
    }
    if shaped.boot_id != boot_id {
        return Err("the node's shaper has not looked at the layout in this boot yet".to_owned());
    }
    if shaped.layout() != Some(&order) {
        return Err("the node's shaper has not looked at the layout ordered last yet".to_owned());
    }
    let message = shaped
        .shaping
        .message
        .map(|message| format!(": {message}"))
        .unwrap_or_default();
    let state = match shaped.shaping.outcome {
        ShapingOutcome::InForce | ShapingOutcome::Idle | ShapingOutcome::Working => "is being made",
        ShapingOutcome::Busy => "is not in force, and an operand or a process holds the devices",
        ShapingOutcome::Infeasible => "cannot be had on this hardware",
        ShapingOutcome::ResetRequired => "waits for a GPU reset",
        ShapingOutcome::RebootRequired => "waits for the host to restart",
        ShapingOutcome::Failed => "could not be made",
    };
    Err(format!("the ordered layout {state}{message}"))
}
