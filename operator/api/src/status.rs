//! Status of an `AcceleratorCluster`.

use freehold_core::blocker::Reason as BlockReason;
use freehold_core::summary::Counts;
use freehold_core::vendor::{Owner, Vendor};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::KubeSchema;
use serde::{Deserialize, Serialize};

/// What is known about the cluster. Bounded: counts, and at most 20 blockers as exemplars.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AcceleratorClusterStatus {
    /// Generation of the spec that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "int64"))]
    pub observed_generation: Option<i64>,
    /// `Ready`, `Progressing`, `Degraded`, `SpecValid`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
    /// Numbers over all cohorts.
    #[serde(default)]
    pub nodes: Counts,
    /// Numbers and conditions of each cohort.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub cohorts: Vec<CohortStatus>,
    /// Examples of what stands in the way; the counts hold the rest.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 20))]
    pub blockers: Vec<BlockerStatus>,
    /// Places in the budget that are claimed for handovers which start at this moment: a fence goes up on an owned node only
    /// under a claim for the version of the Node that it is written on. Claims that are spent go with the next status.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub starting: Vec<StartingStatus>,
}

/// A claimed place in the budget.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StartingStatus {
    /// The node.
    #[schemars(length(max = 253))]
    pub node: String,
    /// The vendor whose devices change hands.
    pub vendor: Vendor,
    /// `metadata.resourceVersion` of the Node that the claim is good for.
    #[schemars(length(max = 32))]
    pub resource_version: String,
}

/// One cohort's status.
#[derive(KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CohortStatus {
    /// The cohort.
    #[schemars(length(max = 63))]
    pub name: String,
    /// Its vendor.
    pub vendor: Vendor,
    /// Its owner.
    pub owner: Owner,
    /// Its numbers.
    pub nodes: Counts,
    /// `Ready`, `Progressing`, `Degraded`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
}

/// One thing that stands in the way, with its age and the next human step.
#[derive(KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BlockerStatus {
    /// Node concerned; absent for cluster-wide ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub node: Option<String>,
    /// Cohort concerned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub cohort: Option<String>,
    /// Vendor concerned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vendor: Option<Vendor>,
    /// Why.
    pub reason: BlockReason,
    /// What was found and what was expected.
    #[schemars(length(max = 512))]
    pub message: String,
    /// What a person does next.
    #[schemars(length(max = 512))]
    pub next_step: String,
    /// Since when.
    pub since: Time,
    /// How many nodes this reason concerns, this one included.
    #[schemars(range(min = 1))]
    pub count: i32,
}
