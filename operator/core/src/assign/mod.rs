//! Which cohort, if any, a node belongs to for a vendor, and what stands in the way.
//!
//! Two rules carry this file. **What is owned is never taken away by a precondition**: a node that carries our label, or a
//! fence, and now fails a check is held as it is ([`Want::Hold`]); only leaving every cohort means [`Want::Nothing`]. **What
//! is not known decides nothing**: hardware, driver and geometry come from the agent alone, labels of discovery tools are
//! hints for messages, and without a valid report the wanted owner stands with its expectation unknown, so that the node
//! waits for its agent (or is held, where another owner has it).
//!
//! Checks run from the cheapest to change to the dearest, and an exclusion before an error: a CPU node that some selector
//! catches is listed as such, and not as a node with a taint or an old kubelet.

mod fit;
mod mig;
mod reach;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

pub use reach::{Reach, ReachTerm};

use crate::blocker::{Blocker, Reason};
use crate::catalogue;
use crate::expect;
use crate::intent::{Cohort, Intent, Taint};
use crate::names;
use crate::report::{NodeReport, VendorReport};
use crate::tenure::{Target, Want};
use crate::vendor::Vendor;

/// What assignment may know about a Node object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeView {
    /// Name.
    pub name: String,
    /// UID.
    pub uid: String,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Taints, ours included.
    pub taints: Vec<Taint>,
    /// `status.nodeInfo.kubeletVersion`, e.g. `v1.34.2-eks-abc`.
    pub kubelet_version: String,
    /// `status.nodeInfo.bootID`.
    pub boot_id: String,
    /// The `Ready` condition is True.
    pub ready: bool,
    /// Extended resources of either vendor in `status.allocatable`.
    pub allocatable: BTreeMap<String, i64>,
}

/// What assignment may know about the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterView {
    /// The API server's `gitVersion`, e.g. `v1.36.3`.
    pub server_version: String,
    /// Whether `resource.k8s.io/v1` is served.
    pub dra_api: bool,
    /// Names of RuntimeClasses.
    pub runtime_classes: BTreeSet<String>,
    /// ConfigMaps in the operand namespace: name → keys.
    pub config_maps: BTreeMap<String, BTreeSet<String>>,
}

/// What a vendor's intent comes to on one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// The cohort concerned; `None` when no cohort's selector matches the node. With an overlap, the first by name.
    pub cohort: Option<String>,
    /// The node counts as excluded, and why. Never set for a node that is owned: there it is a blocker of the hold. `want` is
    /// [`Want::Nothing`] where a label excludes the node. Where its agent does (no hardware), it is a hold, so that the
    /// agent's report, which is the reason, stays.
    pub excluded: Option<Blocker>,
    /// What is wanted.
    pub want: Want,
}

/// Whether the agent should run on a node: some cohort's selector matches, and the provider does not exclude it.
#[must_use]
pub fn is_candidate(node: &NodeView, intent: &Intent) -> bool {
    Vendor::ALL.into_iter().any(|vendor| {
        catalogue::exclusion(vendor, &node.labels).is_none()
            && matching(vendor, node, intent).next().is_some()
    })
}

/// Assigns one vendor on one node.
#[must_use]
pub fn assign(
    vendor: Vendor,
    node: &NodeView,
    report: Option<&NodeReport>,
    cluster: &ClusterView,
    intent: &Intent,
) -> Assignment {
    let mut cohorts = matching(vendor, node, intent);
    let Some(cohort) = cohorts.next() else {
        return Assignment {
            cohort: None,
            excluded: None,
            want: Want::Nothing,
        };
    };
    let answer = |excluded: Option<Blocker>, want: Want| Assignment {
        cohort: Some(cohort.name.clone()),
        excluded,
        want,
    };
    let ours = is_ours(vendor, node);

    if let Some(row) = catalogue::exclusion(vendor, &node.labels) {
        let why = Blocker::new(
            Reason::ExcludedByProvider,
            format!("{} {}", row.who, row.reason),
        );
        return if ours {
            answer(None, Want::Hold(why))
        } else {
            answer(Some(why), Want::Nothing)
        };
    }
    let report = valid(report, node);
    if let Ok(report) = &report
        && let Some(why) = no_hardware(vendor, node, report)
    {
        let excluded = (!ours && why.reason == Reason::NoHardware).then(|| why.clone());
        return answer(excluded, Want::Hold(why));
    }
    let others: Vec<&str> = cohorts.map(|other| other.name.as_str()).collect();
    if !others.is_empty() {
        return answer(None, Want::Hold(overlap(vendor, cohort, &others)));
    }
    match wanted(cohort, node, report, cluster) {
        Ok(target) => answer(None, Want::Owner(Box::new(target))),
        Err(why) => answer(None, Want::Hold(why)),
    }
}

/// Cohorts of a vendor whose selector matches, by name.
fn matching<'a>(
    vendor: Vendor,
    node: &'a NodeView,
    intent: &'a Intent,
) -> impl Iterator<Item = &'a Cohort> {
    intent
        .cohorts
        .values()
        .filter(move |cohort| cohort.vendor == vendor && cohort.selector.matches(&node.labels))
}

/// Whether something of ours is on the node for this vendor: an owner label, or the fence of a handover under way.
fn is_ours(vendor: Vendor, node: &NodeView) -> bool {
    node.labels.contains_key(&names::owner_label(vendor)) || is_fenced(vendor, node)
}

/// Whether a handover is under way.
fn is_fenced(vendor: Vendor, node: &NodeView) -> bool {
    let fence = names::fence_taint(vendor);
    node.taints.iter().any(|taint| taint.key == fence)
}

/// Whether the node's labels say that it is owned, and not by this cohort in this way.
fn held_by_another(cohort: &Cohort, node: &NodeView) -> bool {
    let owner = node.labels.get(&names::owner_label(cohort.vendor));
    let held_cohort = node.labels.get(&names::cohort_label(cohort.vendor));
    owner.is_some_and(|owner| owner != cohort.owner.word() || held_cohort != Some(&cohort.name))
}

/// The report, if it speaks of this machine in this boot.
fn valid<'a>(
    report: Option<&'a NodeReport>,
    node: &NodeView,
) -> Result<&'a NodeReport, &'static str> {
    let report = report.ok_or("has not reported yet")?;
    if report.node_uid != node.uid {
        return Err("last reported for an earlier machine of this name");
    }
    if !node.boot_id.is_empty() && report.boot_id != node.boot_id {
        return Err("last reported before the host restarted");
    }
    Ok(report)
}

/// No device of the vendor, or none that can be told.
fn no_hardware(vendor: Vendor, node: &NodeView, report: &NodeReport) -> Option<Blocker> {
    let found = report
        .vendor(vendor)
        .is_some_and(|part| part.pci_devices > 0 || part.inventory.devices > 0);
    if found {
        return None;
    }
    if let Some(error) = report.errors.first() {
        return Some(Blocker::new(
            Reason::AttestationUnknown,
            format!("the agent sees no {vendor} device, but could not read everything: {error}"),
        ));
    }
    let hint = catalogue::evidence_label(vendor, &node.labels)
        .map(|label| format!(", although the label {label} suggests one"))
        .unwrap_or_default();
    Some(Blocker::new(
        Reason::NoHardware,
        format!("the agent finds no {vendor} device on the host{hint}"),
    ))
}

fn overlap(vendor: Vendor, first: &Cohort, others: &[&str]) -> Blocker {
    Blocker::new(
        Reason::CohortOverlap,
        format!(
            "selected for {vendor} by cohort {} and by {}; exactly one may be",
            first.name,
            others.join(", ")
        ),
    )
}

/// The target, or the first precondition that fails.
fn wanted(
    cohort: &Cohort,
    node: &NodeView,
    report: Result<&NodeReport, &'static str>,
    cluster: &ClusterView,
) -> Result<Target, Blocker> {
    let operand = catalogue::operand(cohort.vendor, cohort.owner);
    fit::cluster(cohort, operand, cluster)?;
    let expected = match report {
        // Silence of a node that another owner or cohort holds: a change would raise a fence that nobody can answer.
        Err(silence) if held_by_another(cohort, node) => {
            return Err(silent(cohort.vendor, node, silence));
        }
        Err(silence) => Err(silent(cohort.vendor, node, silence)),
        Ok(report) => {
            fit::node(cohort, operand, node)?;
            let nothing = VendorReport::default();
            let part = report.vendor(cohort.vendor).unwrap_or(&nothing);
            fit::driver(cohort, operand, part)?;
            fit::layout(cohort, node, part)?;
            Ok(expect::expected(cohort, part)?)
        }
    };
    Ok(Target {
        cohort: cohort.name.clone(),
        owner: cohort.owner,
        layout: cohort.layout.clone(),
        shape: cohort.shape.clone(),
        template: cohort.template.clone(),
        expected,
    })
}

fn silent(vendor: Vendor, node: &NodeView, silence: &str) -> Blocker {
    let hint = catalogue::evidence_label(vendor, &node.labels)
        .map(|label| {
            format!(
                " (the label {label} suggests {vendor} hardware, the agent's inventory decides)"
            )
        })
        .unwrap_or_default();
    Blocker::new(
        Reason::AgentSilent,
        format!("the node's agent {silence}{hint}"),
    )
}
