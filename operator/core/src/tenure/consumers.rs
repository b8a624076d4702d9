//! Draining: who still uses the devices as the API sees it, and what is done about it.

use super::unmet::{Unmet, blocker};
use super::{Consumer, ConsumerKind, Facts, PodWrite};
use crate::blocker::{Blocker, Reason};
use crate::intent::DrainPolicy;

/// Whether a consumer is served by the DRA driver.
pub(super) const fn is_dra(consumer: &Consumer) -> bool {
    match consumer.kind {
        ConsumerKind::PluginPod => false,
        ConsumerKind::ClaimPod | ConsumerKind::Claim => true,
    }
}

/// No consumer is left; with `but_dra`, none of the device plugin's.
pub(super) fn gone(facts: &Facts, but_dra: bool) -> Result<(), Unmet> {
    let (true, Some(consumers)) = (facts.fresh, &facts.consumers) else {
        return Err(Unmet::Fresh);
    };
    let mut left: Vec<&Consumer> = consumers
        .iter()
        .filter(|consumer| !(but_dra && is_dra(consumer)))
        .collect();
    if left.is_empty() {
        return Ok(());
    }
    left.sort();
    let evict = match facts.drain {
        DrainPolicy::Wait => None,
        DrainPolicy::Evict => left.iter().find(|consumer| evictable(consumer)),
    };
    Err(Unmet::Consumers {
        blocker: worst(facts, &left),
        evict: evict.map(|consumer| PodWrite::Evict {
            name: consumer.name.clone(),
            uid: consumer.uid.clone(),
        }),
    })
}

/// A DaemonSet's pod comes back at once (it tolerates the fence), a refused one waits for its budget, a claim is no pod.
fn evictable(consumer: &Consumer) -> bool {
    let Consumer {
        name: _,
        uid: _,
        kind,
        terminating,
        daemon_set,
        refused: _,
        asked_lately,
    } = consumer;
    *kind != ConsumerKind::Claim && !terminating && daemon_set.is_none() && !asked_lately
}

/// The consumer that most needs a person, as a blocker.
fn worst(facts: &Facts, left: &[&Consumer]) -> Blocker {
    let timing = &facts.timing;
    if let Some((consumer, set)) = left
        .iter()
        .find_map(|consumer| consumer.daemon_set.as_ref().map(|set| (consumer, set)))
    {
        return blocker(
            Reason::DaemonSetConsumer,
            format!(
                "{}, and DaemonSet {set} brings it back whenever it goes",
                describe(facts, consumer)
            ),
        );
    }
    if timing.step_s >= timing.patience_s
        && let Some(claim) = left
            .iter()
            .find(|consumer| consumer.kind == ConsumerKind::Claim && consumer.terminating)
    {
        return blocker(
            Reason::StuckClaim,
            format!(
                "ResourceClaim {} (UID {}) is being deleted, still allocated, and does not go",
                claim.name, claim.uid
            ),
        );
    }
    if let Some((consumer, words)) = left
        .iter()
        .find_map(|consumer| consumer.refused.as_ref().map(|words| (consumer, words)))
    {
        return blocker(
            Reason::DisruptionBudget,
            format!(
                "{}; its eviction was refused: {words}",
                describe(facts, consumer)
            ),
        );
    }
    let reason = if timing.step_s >= timing.drain_timeout_s {
        Reason::DrainTimeout
    } else {
        Reason::ConsumersRemain
    };
    let message = left.first().map_or_else(String::new, |consumer| {
        let others = if left.len() > 1 {
            ", and others do too"
        } else {
            ""
        };
        format!("{}{others}", describe(facts, consumer))
    });
    blocker(reason, message)
}

fn describe(facts: &Facts, consumer: &Consumer) -> String {
    let Consumer {
        name,
        uid,
        kind,
        terminating,
        daemon_set: _,
        refused: _,
        asked_lately: _,
    } = consumer;
    let ending = if *terminating { " (ending)" } else { "" };
    match kind {
        ConsumerKind::PluginPod => {
            format!(
                "Pod {name}{ending} (UID {uid}) uses extended resources of {} on this node",
                facts.vendor
            )
        }
        ConsumerKind::ClaimPod => {
            format!(
                "Pod {name}{ending} (UID {uid}) uses a claim on driver {} on this node",
                facts.vendor.dra_driver()
            )
        }
        ConsumerKind::Claim => {
            format!(
                "ResourceClaim {name}{ending} (UID {uid}) is allocated from driver {} on this node",
                facts.vendor.dra_driver()
            )
        }
    }
}
