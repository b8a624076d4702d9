//! Whether a node's boards can carry the cohort's MIG layout, by what their own driver offers. Found out before anything
//! changes: a layout that cannot be had never raises a fence.

use std::collections::BTreeMap;

use crate::blocker::{Blocker, Reason};
use crate::geometry::{Request, feasible, profiles_of, wanted_on};
use crate::intent::{Cohort, MigLayout};
use crate::report::{MigProfileCount, Shaping, ShapingOutcome, VendorReport};
use crate::tenure::layout_in_force;

/// `under_way`: the cohort has the node, or a handover has begun. Then a shaper that has not looked in this boot yet is the
/// tenure's to wait for.
pub(super) fn fits(
    cohort: &Cohort,
    layouts: &[MigLayout],
    part: &VendorReport,
    under_way: bool,
) -> Result<(), Blocker> {
    let name = &cohort.name;
    let wanted = wanted_on(layouts, part).map_err(|gone| {
        Blocker::new(
            Reason::LayoutInfeasible,
            format!("the layout of cohort {name} names {gone}"),
        )
    })?;
    if !under_way {
        has_looked(cohort, part)?;
    }
    let boards = &part.layout.boards;
    if boards.is_empty() {
        return without_tables(cohort, &wanted, part);
    }
    for (gpu, instances) in &wanted {
        let profiles = profiles_of(boards, *gpu).unwrap_or_default();
        if profiles.is_empty() {
            return Err(unknown(cohort, &format!("GPU {gpu}"), part));
        }
        feasible(*gpu, profiles, instances).map_err(|proof| {
            Blocker::new(Reason::LayoutInfeasible, format!("{proof} (cohort {name})"))
        })?;
    }
    Ok(())
}

/// No table is known: nothing can be said about a layout that would have to be made.
fn without_tables(
    cohort: &Cohort,
    wanted: &BTreeMap<u32, Vec<MigProfileCount>>,
    part: &VendorReport,
) -> Result<(), Blocker> {
    let by_share = wanted
        .values()
        .flatten()
        .any(|one| matches!(one.profile.parse(), Ok(Request::Symbolic(_))));
    if is_there(cohort, part) && !by_share {
        return Ok(());
    }
    shaper_spoke(cohort, part)?;
    match &part.layout.shaping {
        // Said before where nothing is under way.
        Some(Shaping {
            outcome: ShapingOutcome::Working,
            message: _,
        }) => Ok(()),
        Some(_) | None if part.layout.boards_left_out => Err(left_out(cohort)),
        Some(_) | None => Err(unknown(cohort, "any GPU", part)),
    }
}

/// What boards offer is the shaper's word, and while it has yet to look in this boot, or is at work, that is a word of the past.
/// A layout that is there anyhow needs none.
fn has_looked(cohort: &Cohort, part: &VendorReport) -> Result<(), Blocker> {
    match &part.layout.shaping {
        Some(Shaping {
            outcome: ShapingOutcome::Working,
            message,
        }) if !is_there(cohort, part) => Err(Blocker::new(
            Reason::ShaperSilent,
            message.clone().unwrap_or_else(|| {
                "the node's shaper has not said yet what its boards offer".to_owned()
            }),
        )),
        Some(_) | None => Ok(()),
    }
}

fn is_there(cohort: &Cohort, part: &VendorReport) -> bool {
    cohort
        .layout
        .as_ref()
        .is_some_and(|layout| layout_in_force(layout, part))
}

/// Whether the node has a shaper that could make a layout.
pub(super) fn shaper_spoke(cohort: &Cohort, part: &VendorReport) -> Result<(), Blocker> {
    if part.layout.shaping.is_some() {
        return Ok(());
    }
    Err(Blocker::new(
        Reason::ShaperSilent,
        format!(
            "the node's shaper, which would make the layout of cohort {}, has not said anything yet",
            cohort.name
        ),
    ))
}

fn left_out(cohort: &Cohort) -> Blocker {
    Blocker::new(
        Reason::UnknownGeometry,
        format!(
            "this node's report is so long that it has no room for its boards' MIG profiles, so whether they can carry the layout \
             of cohort {} cannot be told before it is made",
            cohort.name
        ),
    )
}

fn unknown(cohort: &Cohort, gpu: &str, part: &VendorReport) -> Blocker {
    let models: Vec<&str> = part
        .inventory
        .models
        .iter()
        .map(|model| model.name.as_str())
        .collect();
    let models = if models.is_empty() {
        "of unknown model".to_owned()
    } else {
        models.join(", ")
    };
    let version = part.inventory.driver_version.as_deref().unwrap_or_default();
    let said = part
        .layout
        .shaping
        .as_ref()
        .and_then(|shaping| shaping.message.as_ref())
        .map(|message| format!("; the node's shaper says: {message}"))
        .unwrap_or_default();
    Blocker::new(
        Reason::UnknownGeometry,
        format!(
            "the driver {version} offers no MIG profile on {gpu} of this node ({models}), so the layout of cohort {} cannot be made{said}",
            cohort.name
        ),
    )
}
