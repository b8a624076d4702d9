//! One vendor's tenure on the node, told for people.

use freehold_api::{AcceleratorCluster, DrainPolicy};
use freehold_core::tenure::Step;
use freehold_core::vendor::Owner;
use serde::Serialize;

use super::evidence::{Consumer, Evidence};
use crate::fleet::Place;
use crate::health::Health;

/// Consumers named; the rest is counted.
const NAMED: usize = 3;

/// What is, what comes, and what a person can do.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Story {
    #[serde(flatten)]
    pub(super) place: Place,
    /// Owner that the cohort wants.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) wanted: Option<Owner>,
    /// Part of the verdict.
    pub(super) sentence: String,
    /// Consumers that stand in the way, put together by kind.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) consumers: Vec<String>,
    /// What happens next without anybody doing anything.
    pub(super) by_itself: &'static str,
    /// What a person can do.
    pub(super) by_hand: Vec<String>,
}

impl Story {
    pub(super) fn new(place: Place, cluster: &AcceleratorCluster, evidence: &Evidence) -> Self {
        let wanted = place
            .cohort
            .as_ref()
            .and_then(|name| {
                cluster
                    .spec
                    .cohorts
                    .iter()
                    .find(|cohort| cohort.name == *name && cohort.vendor == place.vendor)
            })
            .map(|cohort| cohort.owner)
            .filter(|_| cluster.metadata.deletion_timestamp.is_none());
        let evicting = cluster.spec.rollout.drain.policy == DrainPolicy::Evict;
        let in_the_way = place.step.is_some_and(before_grant) && place.owner.or(wanted).is_some();
        let consumers = match (&evidence.consumers, in_the_way) {
            (Ok(consumers), true) => grouped(
                consumers
                    .iter()
                    .filter(|consumer| consumer.vendor == place.vendor),
            ),
            (Ok(_) | Err(_), _) => Vec::new(),
        };
        Self {
            wanted,
            sentence: sentence(&place, wanted),
            consumers,
            by_itself: by_itself(&place, wanted, evicting),
            by_hand: by_hand(&place, wanted),
            place,
        }
    }
}

fn owner(owner: Option<Owner>) -> &'static str {
    owner.map_or("nobody", Owner::name)
}

fn sentence(place: &Place, wanted: Option<Owner>) -> String {
    let vendor = place.vendor;
    let step = place
        .step
        .map_or_else(|| "an unknown step".to_owned(), |step| format!("{step:?}"));
    let why = place
        .reason
        .map_or_else(String::new, |reason| format!(" ({reason:?})"));
    match place.health {
        Health::Ready => format!(
            "{vendor} devices are handed out by {}, as they should be",
            owner(place.owner)
        ),
        Health::Unowned => format!("{vendor} devices have no owner, and none is wanted"),
        Health::Excluded => format!("{vendor} devices are left alone{why}"),
        Health::Unknown => format!("nothing is known about {vendor} devices"),
        Health::Conflicted => {
            format!("two parties claim the {vendor} devices{why}; nothing is changed")
        }
        Health::Blocked => {
            format!("{vendor} devices are blocked at {step}{why}; somebody has to act")
        }
        Health::Waiting => format!("{vendor} devices wait at {step}{why}"),
        Health::Moving if place.owner == wanted => format!(
            "{vendor} devices stay with {} and are at {step}",
            owner(wanted)
        ),
        Health::Moving => format!(
            "{vendor} devices are on their way from {} to {}, at {step}",
            owner(place.owner),
            owner(wanted)
        ),
    }
}

/// Whether consumers still stand in the way of this step.
const fn before_grant(step: Step) -> bool {
    match step {
        Step::Fence
        | Step::Drain
        | Step::Attest
        | Step::Revoke
        | Step::Vacate
        | Step::Reshape
        | Step::HandWord => true,
        Step::None
        | Step::Discover
        | Step::Grant
        | Step::Verify
        | Step::Unfence
        | Step::Held
        | Step::Hold => false,
    }
}

fn by_itself(place: &Place, wanted: Option<Owner>, evicting: bool) -> &'static str {
    let Some(step) = place.step else {
        return "The controller takes the node in as soon as it runs.";
    };
    if matches!(place.health, Health::Conflicted | Health::Blocked) {
        return match step {
            Step::Held => {
                "The owner keeps the node as it is. Once the reason is gone, it goes on by itself."
            }
            Step::None
            | Step::Discover
            | Step::Fence
            | Step::Drain
            | Step::Attest
            | Step::Revoke
            | Step::Vacate
            | Step::Reshape
            | Step::HandWord
            | Step::Grant
            | Step::Verify
            | Step::Unfence
            | Step::Hold => {
                "Nothing until the reason is gone; then it goes on from here by itself."
            }
        };
    }
    match step {
        Step::None => "Nothing; no owner is wanted.",
        Step::Discover => {
            "The agent starts on the node and reports what is there; then the first owner is settled."
        }
        Step::Fence => {
            "The fence keeps new consumers away; once schedulers have had time to see it, those that are there drain."
        }
        Step::Drain if evicting => {
            "Consumers are evicted one by one, as their PodDisruptionBudgets allow; then the agent attests that nothing is in use."
        }
        Step::Drain => {
            "When the last consumer has ended by itself, the agent attests that nothing is in use."
        }
        Step::Attest => "The agent attests that nothing is in use; then the old owner's labels go.",
        Step::Revoke => "The old owner's labels go, and with them its operand.",
        Step::Vacate => {
            "The old operand and all that it advertised go, the agent attests once more, and the new owner's turn comes."
        }
        Step::Reshape => "The agent makes the wanted geometry and reads it back.",
        Step::HandWord => {
            "The agent puts the new owner word in force; no operand of another owner can start after that."
        }
        Step::Grant => "The new owner's labels are set, and its operand starts.",
        Step::Verify => "Once the operand advertises all devices steadily, the fence comes down.",
        Step::Unfence => "The fence comes down, and the node takes workloads.",
        Step::Held if place.reason.is_some() => {
            "The owner keeps the node; the change that is wanted starts when the reason is gone."
        }
        Step::Held => "Nothing; it stays so.",
        Step::Hold if place.health == Health::Excluded => "Nothing; the node is left alone.",
        Step::Hold if wanted.is_none() => "Nothing is started here.",
        Step::Hold => {
            "Nothing is started here until the reason is gone; then it goes on by itself."
        }
    }
}

fn by_hand(place: &Place, wanted: Option<Owner>) -> Vec<String> {
    let mut steps: Vec<String> = place.next_step.iter().cloned().collect();
    let unrevoked = matches!(place.step, Some(Step::Fence | Step::Drain | Step::Attest));
    let said = steps
        .iter()
        .any(|step| step.contains("take the change back"));
    if let (true, false, Some(owner)) = (unrevoked, said, place.owner)
        && wanted != Some(owner)
    {
        steps.push(format!("To keep {owner}: take the change back; until the old labels go, the node is unfenced at once."));
    }
    steps
}

/// `3 pods use extended resources: a/b, a/c, a/d and 2 more`.
fn grouped<'a>(consumers: impl Iterator<Item = &'a Consumer>) -> Vec<String> {
    let mut groups: Vec<(&str, Vec<&str>)> = Vec::new();
    for consumer in consumers {
        match groups.iter_mut().find(|(how, _)| *how == consumer.how) {
            Some((_, names)) => names.push(&consumer.name),
            None => groups.push((consumer.how, vec![&consumer.name])),
        }
    }
    groups
        .into_iter()
        .map(|(how, names)| {
            let rest = names.len().saturating_sub(NAMED);
            let rest = if rest > 0 {
                format!(" and {rest} more")
            } else {
                String::new()
            };
            let named: Vec<&str> = names.iter().take(NAMED).copied().collect();
            format!("{} {how}: {}{rest}", names.len(), named.join(", "))
        })
        .collect()
}
