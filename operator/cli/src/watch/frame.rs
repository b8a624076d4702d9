//! What is on the screen at one moment, made to fit it.

use freehold_core::vendor::Owner;
use jiff::Timestamp;

use crate::age;
use crate::fleet::{Fleet, Place};
use crate::health::Health;
use crate::status::place_name;

/// Nodes are shown however low the terminal is.
const LEAST_DETAILS: usize = 3;
/// Lines for the verdict, the gap below it, and the line that counts the rest.
const AROUND: usize = 3;

/// One picture.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) cohorts: Vec<Bar>,
    /// Nodes that need a look, the worst first.
    pub(super) details: Vec<(Health, String)>,
    /// Nodes that need a look and did not fit.
    pub(super) more: usize,
}

/// One cohort's bar.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Bar {
    pub(super) name: String,
    /// Nodes that are where they should be, or left alone.
    pub(super) done: usize,
    pub(super) all: usize,
    pub(super) text: String,
}

impl Frame {
    /// The picture for a terminal of so many rows.
    pub(super) fn new(fleet: &Fleet, now: Timestamp, rows: usize) -> Self {
        let mut cohorts: Vec<Bar> = fleet
            .cluster
            .spec
            .cohorts
            .iter()
            .map(|cohort| {
                let own: Vec<&Place> = fleet
                    .places
                    .iter()
                    .filter(|place| {
                        place.vendor == cohort.vendor && place.cohort.as_ref() == Some(&cohort.name)
                    })
                    .collect();
                bar(&cohort.name, cohort.owner.name(), &own)
            })
            .collect();
        let leaving: Vec<&Place> = fleet
            .places
            .iter()
            .filter(|place| {
                !fleet
                    .cluster
                    .spec
                    .cohorts
                    .iter()
                    .any(|cohort| place.cohort.as_ref() == Some(&cohort.name))
            })
            .collect();
        if !leaving.is_empty() {
            cohorts.push(bar("(no cohort)", "none", &leaving));
        }
        let mut noteworthy: Vec<&Place> = fleet
            .places
            .iter()
            .filter(|place| {
                matches!(
                    place.health,
                    Health::Conflicted
                        | Health::Blocked
                        | Health::Unknown
                        | Health::Waiting
                        | Health::Moving
                )
            })
            .collect();
        // Of equal health, what changed last is on top.
        noteworthy.sort_by_key(|place| (place.health, std::cmp::Reverse(place.since)));
        let room = rows
            .saturating_sub(cohorts.len() + AROUND)
            .max(LEAST_DETAILS);
        let more = noteworthy.len().saturating_sub(room);
        let details = noteworthy
            .into_iter()
            .take(room)
            .map(|place| (place.health, detail(place, fleet, now)))
            .collect();
        Self {
            cohorts,
            details,
            more,
        }
    }
}

fn bar(name: &str, owner: &str, places: &[&Place]) -> Bar {
    let of = |health: Health| places.iter().filter(|place| place.health == health).count();
    let excluded = of(Health::Excluded);
    let all = places.len() - excluded;
    let done = of(Health::Ready) + of(Health::Unowned);
    let mut parts = vec![format!("{done}/{all} {owner}")];
    for health in [
        Health::Moving,
        Health::Waiting,
        Health::Blocked,
        Health::Conflicted,
        Health::Unknown,
    ] {
        let count = of(health);
        if count > 0 {
            parts.push(format!("{count} {}", health.word()));
        }
    }
    Bar {
        name: name.to_owned(),
        done,
        all,
        text: parts.join(", "),
    }
}

fn detail(place: &Place, fleet: &Fleet, now: Timestamp) -> String {
    let name = place_name(place, &fleet.places);
    let step = place
        .step
        .map_or_else(|| "-".to_owned(), |step| format!("{step:?}"));
    let age = place
        .since
        .map_or_else(String::new, |since| age::since(since, now));
    let owner = place.owner.map_or("none", Owner::name);
    let why = match (place.reason, place.id) {
        (Some(reason), Some(id)) => {
            let message = place.message.as_deref().unwrap_or_default();
            let message = message
                .strip_prefix(&format!("Node {}: ", place.node))
                .unwrap_or(message);
            format!("  {} ({id}): {message}", reason.name())
        }
        _ => String::new(),
    };
    format!(
        "{} {name}  {step}  {age}  {owner}{why}",
        place.health.glyph()
    )
}
