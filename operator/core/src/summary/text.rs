//! The words of conditions.

use super::picture::Group;
use super::{Counts, TenureOutcome, is_moving, is_ready, why};

/// Groups that a message names; the rest is counted.
const GROUPS: usize = 5;
/// Nodes that a group names; the rest is counted.
const NAMES: usize = 3;

/// `DriverTooOld on 5 nodes (a, b, c and 2 more): the NVIDIA driver is …. NameTaken: ….`
pub(super) fn groups<'a, 'b: 'a>(groups: impl Iterator<Item = &'a Group<'b>>) -> String {
    let groups: Vec<&Group<'_>> = groups.collect();
    let mut sentences: Vec<String> = groups
        .iter()
        .take(GROUPS)
        .map(|group| sentence(group))
        .collect();
    if let Some(more) = groups.len().checked_sub(GROUPS).filter(|more| *more > 0) {
        sentences.push(format!("And {more} more reason(s)."));
    }
    sentences.join(" ")
}

fn sentence(group: &Group<'_>) -> String {
    let Group {
        kind: _,
        reason,
        nodes,
        message,
    } = group;
    let named: Vec<&str> = nodes.iter().take(NAMES).copied().collect();
    let names = named.join(", ");
    let on = match (nodes.len(), nodes.len().saturating_sub(NAMES)) {
        (0, _) => String::new(),
        (1, _) => format!(" on {names}"),
        (count, 0) => format!(" on {count} nodes ({names})"),
        (count, more) => format!(" on {count} nodes ({names} and {more} more)"),
    };
    let found = message
        .map(|message| format!(": {}", message.trim_end_matches('.')))
        .unwrap_or_default();
    format!("{reason}{on}{found}.")
}

/// `; 3 excluded`, or nothing.
pub(super) fn excluded(counts: &Counts) -> String {
    match counts.excluded {
        0 => String::new(),
        excluded => format!("; {excluded} excluded"),
    }
}

/// One vendor's tenure on one node.
pub(super) fn of_tenure(outcome: &TenureOutcome) -> String {
    let TenureOutcome {
        node: _,
        vendor,
        cohort,
        matched: _,
        owner,
        excluded,
        step,
        blocker: _,
        since_s: _,
    } = outcome;
    let cohort = cohort
        .as_ref()
        .map(|cohort| format!(" of cohort {cohort}"))
        .unwrap_or_default();
    let owned = match owner {
        Some(owner) => format!("{vendor}{cohort}: owner {owner}"),
        None => format!("{vendor}{cohort}: no owner"),
    };
    let found = why(outcome).map(|blocker| {
        format!(
            ", {}: {}",
            blocker.reason,
            blocker.message.trim_end_matches('.')
        )
    });
    match found {
        Some(found) if excluded.is_some() => format!("{owned}; left alone{found}."),
        Some(found) if is_ready(outcome) => format!("{owned} advertises what it should{found}."),
        Some(found) if is_moving(*step) => format!("{owned}, step {step:?}{found}."),
        Some(found) => format!("{owned}{found}."),
        None if is_ready(outcome) => format!("{owned} advertises what it should."),
        None if is_moving(*step) => format!("{owned}, step {step:?}."),
        None => format!("{owned}, none wanted."),
    }
}
