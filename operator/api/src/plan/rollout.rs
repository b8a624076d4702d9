//! Rollout rules.

use freehold_core::intent::{Budget, DrainPolicy, Rollout};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::core::Duration;

use super::check::{Checker, quoted};
use crate::cluster::{Canary, Drain};

/// Most nodes that can go first; the schema's bound.
const MAX_CANARIES: u32 = 100;

pub(super) fn parse(checker: &mut Checker, raw: &crate::Rollout) -> Rollout {
    let crate::Rollout {
        max_unavailable,
        canary: Canary { nodes, soak },
        drain: Drain { policy, timeout },
        paused,
    } = raw;
    Rollout {
        max_unavailable: budget(checker, "spec.rollout.maxUnavailable", max_unavailable),
        canary_nodes: checker.count("spec.rollout.canary.nodes", *nodes, 0, MAX_CANARIES),
        canary_soak_s: seconds(checker, "spec.rollout.canary.soak", *soak),
        drain: match policy {
            crate::DrainPolicy::Wait => DrainPolicy::Wait,
            crate::DrainPolicy::Evict => DrainPolicy::Evict,
        },
        drain_timeout_s: seconds(checker, "spec.rollout.drain.timeout", *timeout),
        paused: *paused,
    }
}

pub(super) fn budget(checker: &mut Checker, field: &str, value: &IntOrString) -> Budget {
    let expected = "a number of at least 1, or a percentage from 1% to 100%; to stop handovers set rollout.paused";
    let (found, budget) = match value {
        IntOrString::Int(nodes) => (
            nodes.to_string(),
            u32::try_from(*nodes)
                .ok()
                .filter(|nodes| *nodes >= 1)
                .map(Budget::Nodes),
        ),
        IntOrString::String(text) => {
            let percent = text
                .strip_suffix('%')
                .filter(|digits| digits.chars().all(|c| c.is_ascii_digit()));
            let percent = percent
                .and_then(|digits| digits.parse().ok())
                .filter(|percent| (1..=100).contains(percent));
            (quoted(text), percent.map(Budget::Percent))
        }
    };
    budget.unwrap_or_else(|| {
        checker.problem(field, found, expected);
        Budget::Nodes(1)
    })
}

/// Whole seconds, rounded up: a wait never gets shorter than asked for.
fn seconds(checker: &mut Checker, field: &str, value: Duration) -> u64 {
    if value.is_negative() {
        checker.problem(
            field,
            format!("'{value:?}'"),
            "a duration that is not negative, e.g. 10m",
        );
    }
    let value = std::time::Duration::from(value);
    value.as_secs() + u64::from(value.subsec_nanos() > 0)
}
