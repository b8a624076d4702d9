//! I6: status never says Ready about what is not known, or not so.
//!
//! A status may lag behind the truth for a moment, never longer.

use std::time::Duration;

use freehold_core::names;
use freehold_core::vendor::Vendor;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::{Findings, Limits};
use crate::monitor::world::World;

pub(super) fn told(world: &World, now: Duration, limits: &Limits, findings: &mut Findings) {
    let stale = |since: &Duration| now.saturating_sub(*since) > limits.status_lag;
    for record in world.records().filter(|record| {
        record
            .status
            .as_ref()
            .is_some_and(|status| says_ready(&status.conditions))
    }) {
        let name = record.metadata.name.as_deref().unwrap_or_default();
        let Some(status) = &record.status else {
            continue;
        };
        for vendor in Vendor::ALL {
            let Some(tenure) = status.tenures.vendor(vendor) else {
                continue;
            };
            if let Some(since) = world
                .missing
                .get(&(name.to_owned(), vendor))
                .filter(|since| stale(since))
            {
                let what = format!(
                    "{vendor}: {:?} by {:?}, but what it must advertise ({}) is not there since {:.3} s",
                    tenure.step,
                    tenure.owner,
                    world
                        .node(name)
                        .and_then(|node| world.expected(node, vendor))
                        .map_or_else(
                            || "anything".to_owned(),
                            |devices| format!("{devices} devices")
                        ),
                    since.as_secs_f64()
                );
                findings.add("I6", "Ready without an advertisement", now, name, what);
            }
            if tenure.owner.is_some()
                && status
                    .report
                    .as_ref()
                    .is_none_or(|report| report.vendor(vendor).is_none())
            {
                findings.add(
                    "I6",
                    "Ready without a report",
                    now,
                    name,
                    format!("{vendor}: the agent has said nothing about it"),
                );
            }
        }
    }
    let ready = world
        .cluster()
        .and_then(|cluster| cluster.status.as_ref())
        .is_some_and(|status| says_ready(&status.conditions));
    if ready
        && let Some(((node, vendor), since)) = world.missing.iter().find(|(_, since)| stale(since))
    {
        let what = format!(
            "{node} does not advertise what it must of {vendor} since {:.3} s",
            since.as_secs_f64()
        );
        findings.add(
            "I6",
            "cluster Ready without an advertisement",
            now,
            names::SINGLETON,
            what,
        );
    }
}

fn says_ready(conditions: &[Condition]) -> bool {
    conditions
        .iter()
        .any(|condition| condition.type_ == "Ready" && condition.status == "True")
}
