//! Whether an operand whose cohort wants a layout may start.

use std::path::Path;

use freehold_core::report::ShapingOutcome;

use super::{order, shaped};

/// Whether the ordered layout is in force, verified in the present boot.
///
/// # Errors
/// What it waits for, in words.
pub fn verified(directory: &Path, boot_id_file: &Path) -> Result<(), String> {
    let at = directory.display();
    let boot_id = std::fs::read_to_string(boot_id_file)
        .map_err(|error| format!("the boot ID in {}: {error}", boot_id_file.display()))?;
    let boot_id = boot_id.trim();
    let order = order::read(directory)
        .map_err(|error| format!("the ordered layout in {at}: {error}"))?
        .and_then(|order| order.layout)
        .ok_or_else(|| "no layout is ordered on this node yet".to_owned())?;
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
