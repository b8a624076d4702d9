//! Which cohort, if any, a node belongs to for a vendor, and what stands in the way.

use std::collections::{BTreeMap, BTreeSet};

use crate::blocker::Blocker;
use crate::intent::{Intent, Taint};
use crate::report::NodeReport;
use crate::tenure::Want;
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
    /// The node counts as excluded, and why. `want` is [`Want::Nothing`] then.
    pub excluded: Option<Blocker>,
    /// What is wanted.
    pub want: Want,
}

/// Whether the agent should run on a node: some cohort's selector matches, and the provider does not exclude it.
#[must_use]
pub fn is_candidate(node: &NodeView, intent: &Intent) -> bool {
    let _ = (node, intent);
    unimplemented!()
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
    let _ = (vendor, node, report, cluster, intent);
    unimplemented!()
}
