//! I5: no more nodes than the budget are in handover.
//!
//! Counted when a fence goes up on a node that is owned: the nodes fenced by then hold places, except that those which are stuck
//! are free of charge up to the budget (they left the window, and many of them still must not eat the fleet).

use std::time::Duration;

use freehold_core::blocker::Kind;
use freehold_core::vendor::Vendor;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::{Findings, Moment};
use crate::monitor::facts::Object;

/// A controller may act on the budget that was in force until a moment ago.
const SPEC_LAG: Duration = Duration::from_secs(5);
/// A node counts as stuck from the decision on; the status that says so is written when the node has come to rest.
const TOLD_LATER: Duration = Duration::from_secs(5);

pub(super) fn check(moment: &Moment<'_>, findings: &mut Findings) {
    let (Object::Node(after), Some(Object::Node(before))) = (&moment.fact.object, &moment.before)
    else {
        return;
    };
    if moment.fact.gone
        || before.uid != after.uid
        || before.is_fenced()
        || !after.is_fenced()
        || !after.is_owned()
    {
        return;
    }
    let world = moment.world;
    let owned = world
        .nodes()
        .filter(|node| node.is_owned() || node.is_fenced())
        .count();
    let Some(budget) = budget(moment, owned) else {
        return;
    };
    let (mut moving, mut stuck) = (vec![after.name.as_str()], Vec::new());
    for node in world
        .nodes()
        .filter(|node| node.is_fenced() && node.name != after.name)
    {
        if is_stuck(moment, &node.name) {
            stuck.push(node.name.as_str());
        } else {
            moving.push(node.name.as_str());
        }
    }
    if moving.len() + stuck.len().saturating_sub(budget) > budget {
        let what = format!("budget {budget}, in handover {moving:?}, stuck {stuck:?}");
        findings.add("I5", "over budget", moment.fact.at, &after.name, what);
    }
}

/// The largest budget in force lately.
fn budget(moment: &Moment<'_>, owned: usize) -> Option<usize> {
    let now = moment.fact.at;
    let earlier = moment
        .history
        .facts
        .iter()
        .filter(|fact| fact.version <= moment.fact.version);
    let specs: Vec<_> = earlier
        .filter_map(|fact| {
            if let Object::Cluster(cluster) = &fact.object {
                Some((fact.at, cluster))
            } else {
                None
            }
        })
        .collect();
    // One spec is in force until the next one comes.
    let ended = |index: usize| specs.get(index + 1).map_or(now, |(at, _)| *at);
    let lately = specs
        .iter()
        .enumerate()
        .filter(|(index, _)| now.saturating_sub(ended(*index)) <= SPEC_LAG);
    lately
        .map(
            |(_, (_, cluster))| match &cluster.spec.rollout.max_unavailable {
                IntOrString::Int(count) => usize::try_from(*count).unwrap_or(0),
                IntOrString::String(text) => {
                    let percent: usize = text.trim_end_matches('%').parse().unwrap_or(0);
                    (owned * percent).div_ceil(100).max(1)
                }
            },
        )
        .max()
}

/// The node's status says, or is about to say, that a person must act, or its step lasts longer than the patience.
fn is_stuck(moment: &Moment<'_>, node: &str) -> bool {
    let now = moment.fact.at;
    let now_s = moment
        .history
        .started_s
        .saturating_add(i64::try_from(now.as_secs()).unwrap_or(i64::MAX));
    let records = moment.history.facts.iter();
    let records = records.filter_map(|fact| {
        if let Object::Record(record) = &fact.object {
            Some((fact.at, record))
        } else {
            None
        }
    });
    let states = records.filter(|(_, record)| record.metadata.name.as_deref() == Some(node));
    let (past, future): (Vec<_>, Vec<_>) = states
        .filter(|(at, _)| *at <= now + TOLD_LATER)
        .partition(|(at, _)| *at <= now);
    past.last().into_iter().chain(&future).any(|(_, record)| {
        let tenures = record.status.as_ref().map(|status| &status.tenures);
        Vendor::ALL
            .into_iter()
            .filter_map(|vendor| tenures?.vendor(vendor))
            .any(|tenure| {
                let person = tenure.reason.is_some_and(|reason| match reason.kind() {
                    Kind::Blocked | Kind::Conflicted | Kind::Excluded => true,
                    Kind::Waiting => false,
                });
                let patience = i64::try_from(moment.limits.patience.as_secs()).unwrap_or(i64::MAX);
                person || now_s.saturating_sub(tenure.since.0.as_second()) >= patience
            })
    })
}
