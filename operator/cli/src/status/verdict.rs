//! One sentence about the whole cluster, and the exit code that goes with it.

use freehold_core::vendor::Vendor;
use jiff::Timestamp;
use serde::Serialize;

use crate::exit::Exit;
use crate::fleet::{Fleet, Place};
use crate::health::Health;

/// How the cluster is doing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Verdict {
    /// One sentence.
    pub(crate) sentence: String,
    pub(crate) exit: Exit,
    /// What limits the verdict, or would surprise a reader who does not know it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) notes: Vec<String>,
    /// The controller has looked at the last edit.
    #[serde(skip)]
    pub(crate) observed: bool,
}

impl Verdict {
    /// Judges by what the controller published. What is not known is never called ready.
    pub(crate) fn new(fleet: &Fleet, now: Timestamp) -> Self {
        let Fleet {
            cluster,
            places,
            controller,
            gone,
        } = fleet;
        if *gone {
            let sentence = "The AcceleratorCluster is gone; no node is owned any more.".to_owned();
            return Self {
                sentence,
                exit: Exit::Fine,
                notes: Vec::new(),
                observed: true,
            };
        }
        let published = cluster.status.as_ref();
        let condition = |kind: &str| {
            published.and_then(|status| status.conditions.iter().find(|c| c.type_ == kind))
        };
        let mut notes = Vec::new();
        let mut exit = worst(places);

        let cluster_wide = published
            .into_iter()
            .flat_map(|status| &status.blockers)
            .filter(|b| b.node.is_none());
        let cluster_wide: Vec<Health> = cluster_wide
            .map(|blocker| Health::of_reason(blocker.reason))
            .collect();
        exit = cluster_wide
            .iter()
            .fold(exit, |exit, health| exit.worse(health.exit()));

        let tearing_down = cluster.metadata.deletion_timestamp.is_some();
        let observed = published.and_then(|status| status.observed_generation);
        let generation = cluster.metadata.generation;
        match observed {
            None => {
                exit = exit.worse(Exit::Undetermined);
                notes.push("The controller has not reported on this resource yet.".to_owned());
            }
            Some(observed) if generation.is_some_and(|generation| observed < generation) => {
                exit = exit.worse(Exit::Waiting);
                let generation = generation.unwrap_or_default();
                notes.push(format!("The last edit (generation {generation}) has not been looked at yet; this is about generation {observed}."));
            }
            Some(_) => {}
        }
        if let Some(note) = controller.note(now) {
            exit = exit.worse(controller.exit());
            notes.push(note);
        }
        if cluster.spec.rollout.paused {
            notes.push(
                "The rollout is paused: no new handover starts (spec.rollout.paused).".to_owned(),
            );
        }
        let invalid = condition("SpecValid").filter(|c| c.status == "False");
        if let Some(invalid) = invalid {
            exit = exit.worse(Exit::Findings);
            notes.push(format!(
                "The resource is not valid, nodes keep what they have: {}",
                invalid.message
            ));
        }
        let not_ready = condition("Ready").filter(|c| c.status != "True");
        if exit == Exit::Fine
            && let Some(ready) = not_ready
        {
            // The status of the cluster is written a little after that of its nodes.
            exit = Exit::Waiting;
            notes.push(format!(
                "The cluster's Ready condition is {} ({}): {}",
                ready.status, ready.reason, ready.message
            ));
        }
        let sentence = if tearing_down {
            let left = places.iter().filter(|place| place.owner.is_some()).count();
            exit = exit.worse(Exit::Waiting);
            format!("Being deleted: {} still to hand back.", nodes(left))
        } else {
            sentence(places, exit)
        };
        Self {
            sentence,
            exit,
            notes,
            observed: observed.is_some() && observed >= generation,
        }
    }
}

fn sentence(places: &[Place], exit: Exit) -> String {
    let of = |health: Health| places.iter().filter(|place| place.health == health).count();
    let excluded = of(Health::Excluded);
    let concerned = places.len() - excluded - of(Health::Unowned);
    let ready = of(Health::Ready);
    let head = match exit {
        Exit::Fine => "Ready",
        Exit::Waiting => "Under way",
        Exit::Findings => "Not ready",
        Exit::Undetermined | Exit::Usage | Exit::TimedOut | Exit::Interrupted => "Not known",
    };
    let mut parts: Vec<String> = [
        (Health::Conflicted, "claimed by two parties"),
        (Health::Blocked, "blocked"),
        (Health::Unknown, "without a word from the controller"),
        (Health::Waiting, "waiting"),
        (Health::Moving, "moving"),
    ]
    .into_iter()
    .filter(|(health, _)| of(*health) > 0)
    .map(|(health, word)| format!("{} {word}", of(health)))
    .collect();
    parts.push(match (concerned, ready) {
        (0, _) => "no node has devices to own".to_owned(),
        (1, 1) => "the one node is owned and advertises what it should".to_owned(),
        (all, ready) if all == ready => {
            format!("all {all} nodes are owned and advertise what they should")
        }
        (all, ready) => format!("{ready} of {all} nodes ready"),
    });
    if excluded > 0 {
        parts.push(format!("{excluded} left alone"));
    }
    format!("{head}: {}.", parts.join(", "))
}

/// A number of nodes in words.
pub(crate) fn nodes(count: usize) -> String {
    if count == 1 {
        "1 node".to_owned()
    } else {
        format!("{count} nodes")
    }
}

fn worst(places: &[Place]) -> Exit {
    places
        .iter()
        .map(|place| place.health.exit())
        .fold(Exit::Fine, Exit::worse)
}

/// Names a place; the vendor only where the node has places of both.
pub(crate) fn place_name(place: &Place, places: &[Place]) -> String {
    let both = Vendor::ALL.into_iter().all(|vendor| {
        places
            .iter()
            .any(|p| p.node == place.node && p.vendor == vendor)
    });
    if both {
        format!("{} ({})", place.node, place.vendor)
    } else {
        place.node.clone()
    }
}
