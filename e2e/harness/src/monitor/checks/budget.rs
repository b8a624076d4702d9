//! I5: no more nodes than the budget are in handover.
//!
//! Counted when a fence goes up on a node that is owned: the nodes fenced by then hold places, except that those which are stuck
//! are free of charge up to the budget (they left the window, and many of them still must not eat the fleet).

use std::time::Duration;

use freehold_api::{Cohort, NodeSelector, SelectorOperator};
use freehold_core::blocker::Kind;
use freehold_core::vendor::Vendor;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::{Findings, Moment};
use crate::monitor::facts::{NodeSeen, Object};

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
    let everybody = |node: &NodeSeen| node.is_owned() || node.is_fenced();
    if let Some(found) = over(moment, after, None, everybody) {
        findings.add("I5", "over budget", moment.fact.at, &after.name, found);
    }
    let cohorts = moment.world.cluster().map(|cluster| &cluster.spec.cohorts);
    for cohort in cohorts.into_iter().flatten().filter(|cohort| {
        cohort.rollout.is_some() && after.fence(cohort.vendor).is_some() && wants(cohort, after)
    }) {
        let members = |node: &NodeSeen| {
            wants(cohort, node)
                && (node.owner(cohort.vendor).is_some() || node.fence(cohort.vendor).is_some())
        };
        if let Some(found) = over(moment, after, Some(cohort), members) {
            let what = format!("cohort {}: {found}", cohort.name);
            findings.add(
                "I5",
                "over a cohort's budget",
                moment.fact.at,
                &after.name,
                what,
            );
        }
    }
}

/// Whether a cohort selects a node.
fn wants(cohort: &Cohort, node: &NodeSeen) -> bool {
    let NodeSelector {
        match_labels,
        match_expressions,
    } = &cohort.node_selector;
    match_labels
        .iter()
        .all(|(key, value)| node.labels.get(key) == Some(value))
        && match_expressions.iter().all(|expression| {
            let value = node.labels.get(&expression.key);
            let among = value.is_some_and(|value| expression.values.contains(value));
            match expression.operator {
                SelectorOperator::In => among,
                SelectorOperator::NotIn => !among,
                SelectorOperator::Exists => value.is_some(),
                SelectorOperator::DoesNotExist => value.is_none(),
            }
        })
}

/// Too many of these nodes in handover, with the one whose fence just went up.
fn over(
    moment: &Moment<'_>,
    after: &NodeSeen,
    cohort: Option<&Cohort>,
    among: impl Fn(&NodeSeen) -> bool,
) -> Option<String> {
    let nodes = || moment.world.nodes().filter(|node| among(node));
    let budget = budget(moment, cohort, nodes().count())?;
    let (mut moving, mut stuck) = (vec![after.name.as_str()], Vec::new());
    for node in nodes().filter(|node| {
        let fenced = cohort.map_or_else(
            || node.is_fenced(),
            |cohort| node.fence(cohort.vendor).is_some(),
        );
        fenced && node.name != after.name
    }) {
        if is_stuck(moment, &node.name) {
            stuck.push(node.name.as_str());
        } else {
            moving.push(node.name.as_str());
        }
    }
    (moving.len() + stuck.len().saturating_sub(budget) > budget)
        .then(|| format!("budget {budget}, in handover {moving:?}, stuck {stuck:?}"))
}

/// The largest budget in force lately, of the cluster or of one cohort. A cohort that had none lately has none.
fn budget(moment: &Moment<'_>, cohort: Option<&Cohort>, owned: usize) -> Option<usize> {
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
    let budgets: Option<Vec<usize>> = lately
        .map(|(_, (_, cluster))| {
            let given = match cohort {
                None => &cluster.spec.rollout.max_unavailable,
                Some(cohort) => {
                    let mut known = cluster.spec.cohorts.iter();
                    let known = known.find(|known| known.name == cohort.name)?;
                    &known.rollout.as_ref()?.max_unavailable
                }
            };
            Some(match given {
                IntOrString::Int(count) => usize::try_from(*count).unwrap_or(0),
                IntOrString::String(text) => {
                    let percent: usize = text.trim_end_matches('%').parse().unwrap_or(0);
                    (owned * percent).div_ceil(100).max(1)
                }
            })
        })
        .collect();
    budgets?.into_iter().max()
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
