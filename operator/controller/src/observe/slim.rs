//! The few fields of foreign objects that decisions need. A full `Node` costs the controller some 40 KiB, one of these well under
//! one: what is not named here is skipped while it is parsed.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::resource::v1::ResourceSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::{Deserialize, Serialize};

/// A Node.
#[derive(Resource, Clone, Debug, Default, Serialize, Deserialize)]
#[resource(inherit = Node)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct SlimNode {
    pub(crate) metadata: ObjectMeta,
    pub(crate) spec: SlimNodeSpec,
    pub(crate) status: SlimNodeStatus,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct SlimNodeSpec {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) taints: Vec<SlimTaint>,
}

/// A taint with every field, since the fence is written as a whole list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct SlimTaint {
    pub(crate) key: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) value: Option<String>,
    pub(crate) effect: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) time_added: Option<String>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct SlimNodeStatus {
    pub(crate) allocatable: BTreeMap<String, String>,
    pub(crate) conditions: Vec<SlimCondition>,
    pub(crate) node_info: SlimNodeInfo,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct SlimCondition {
    #[serde(rename = "type")]
    pub(crate) type_: String,
    pub(crate) status: String,
    pub(crate) reason: String,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct SlimNodeInfo {
    #[serde(rename = "bootID")]
    pub(crate) boot_id: String,
    pub(crate) kubelet_version: String,
}

/// A pod, for our own operands and agents, and for consumers when a node's pods are read.
#[derive(Resource, Clone, Debug, Default, Serialize, Deserialize)]
#[resource(inherit = Pod)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct SlimPod {
    pub(crate) metadata: ObjectMeta,
    pub(crate) spec: SlimPodSpec,
    pub(crate) status: SlimPodStatus,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct SlimPodSpec {
    pub(crate) node_name: String,
    pub(crate) containers: Vec<SlimContainer>,
    pub(crate) init_containers: Vec<SlimContainer>,
    pub(crate) ephemeral_containers: Vec<SlimContainer>,
    pub(crate) volumes: Vec<SlimVolume>,
    pub(crate) resource_claims: Vec<SlimPodClaim>,
    pub(crate) affinity: SlimAffinity,
    pub(crate) node_selector: BTreeMap<String, String>,
}

impl SlimPodSpec {
    /// The node that the pod is bound to, or else the one that its DaemonSet made it for: the DaemonSet controller names it in
    /// a required match of `metadata.name`.
    pub(crate) fn node(&self) -> &str {
        if !self.node_name.is_empty() {
            return &self.node_name;
        }
        let required = &self
            .affinity
            .node_affinity
            .required_during_scheduling_ignored_during_execution;
        let fields = required
            .node_selector_terms
            .iter()
            .flat_map(|term| &term.match_fields);
        fields
            .into_iter()
            .find(|field| field.key == "metadata.name")
            .and_then(|field| field.values.first())
            .map_or("", String::as_str)
    }
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct SlimAffinity {
    pub(crate) node_affinity: SlimNodeAffinity,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct SlimNodeAffinity {
    pub(crate) required_during_scheduling_ignored_during_execution: SlimNodeSelector,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct SlimNodeSelector {
    pub(crate) node_selector_terms: Vec<SlimNodeSelectorTerm>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct SlimNodeSelectorTerm {
    pub(crate) match_expressions: Vec<SlimRequirement>,
    pub(crate) match_fields: Vec<SlimRequirement>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct SlimRequirement {
    pub(crate) key: String,
    pub(crate) operator: String,
    pub(crate) values: Vec<String>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct SlimContainer {
    pub(crate) name: String,
    pub(crate) image: String,
    pub(crate) resources: SlimResources,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct SlimResources {
    pub(crate) limits: BTreeMap<String, String>,
    pub(crate) requests: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct SlimVolume {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) host_path: Option<SlimHostPath>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct SlimHostPath {
    pub(crate) path: String,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct SlimPodClaim {
    pub(crate) name: String,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct SlimPodStatus {
    pub(crate) phase: String,
    pub(crate) conditions: Vec<SlimCondition>,
    pub(crate) container_statuses: Vec<SlimContainerStatus>,
    pub(crate) init_container_statuses: Vec<SlimContainerStatus>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) extended_resource_claim_status: Option<SlimExtendedClaim>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct SlimExtendedClaim {
    pub(crate) resource_claim_name: String,
    pub(crate) request_mappings: Vec<SlimRequestMapping>,
}

/// Which container's extended resource a claim backs.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct SlimRequestMapping {
    pub(crate) container_name: String,
    pub(crate) resource_name: String,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct SlimContainerStatus {
    pub(crate) name: String,
    pub(crate) ready: bool,
    pub(crate) started: Option<bool>,
    pub(crate) state: SlimContainerState,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct SlimContainerState {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) waiting: Option<SlimWaiting>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct SlimWaiting {
    pub(crate) reason: String,
}

/// A ResourceSlice: who publishes how much, not what.
#[derive(Resource, Clone, Debug, Default, Serialize, Deserialize)]
#[resource(inherit = ResourceSlice)]
#[serde(default)]
pub(crate) struct SlimSlice {
    pub(crate) metadata: ObjectMeta,
    pub(crate) spec: SlimSliceSpec,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct SlimSliceSpec {
    pub(crate) driver: String,
    pub(crate) node_name: String,
    pub(crate) pool: SlimPool,
    pub(crate) devices: Vec<SlimDevice>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct SlimPool {
    pub(crate) name: String,
    pub(crate) generation: i64,
    pub(crate) resource_slice_count: i64,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct SlimDevice {
    pub(crate) name: String,
}

/// A DaemonSet: whose it is and whether it looks like a vendor's plugin.
#[derive(Resource, Clone, Debug, Default, Serialize, Deserialize)]
#[resource(inherit = DaemonSet)]
#[serde(default)]
pub(crate) struct SlimDaemonSet {
    pub(crate) metadata: ObjectMeta,
    pub(crate) spec: SlimDaemonSetSpec,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct SlimDaemonSetSpec {
    pub(crate) template: SlimPodTemplate,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct SlimPodTemplate {
    pub(crate) spec: SlimPodSpec,
}
