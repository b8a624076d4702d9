//! `AcceleratorCluster`.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::{CustomResource, KubeSchema, core::Duration};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Cohort, Size, status::AcceleratorClusterStatus};

/// Which nodes are owned by what: the whole intent of a platform team, edited in place, watched through its status.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "freehold.dev",
    version = "v1alpha1",
    kind = "AcceleratorCluster",
    plural = "acceleratorclusters",
    singular = "acceleratorcluster",
    shortname = "acc",
    category = "freehold",
    status = "AcceleratorClusterStatus",
    derive = "PartialEq",
    validation = Rule::new("self.metadata.name == 'cluster'")
        .message("metadata.name must be 'cluster': one AcceleratorCluster holds the intent of the whole cluster; rename this one, or add its cohorts to the existing one"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].status"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].reason"),
    printcolumn(name = "Matched", type_ = "integer", json_path = ".status.nodes.matched"),
    printcolumn(name = "Owned", type_ = "integer", json_path = ".status.nodes.owned"),
    printcolumn(name = "Nodes Ready", type_ = "integer", json_path = ".status.nodes.ready"),
    printcolumn(name = "Excluded", type_ = "integer", json_path = ".status.nodes.excluded"),
    printcolumn(name = "Blocked", type_ = "integer", json_path = ".status.nodes.blocked"),
    printcolumn(name = "Conflicted", type_ = "integer", json_path = ".status.nodes.conflicted"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Message", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].message", priority = 1)
)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[x_kube(
    validation = Rule::new("self.cohorts.filter(c, c.vendor == 'NVIDIA' && c.owner == 'DRA').all(c, (has(c.nvidia) && has(c.nvidia.dra) && has(c.nvidia.dra.extendedResourceName) && c.nvidia.dra.extendedResourceName == 'Publish') == self.cohorts.exists(d, d.vendor == 'NVIDIA' && d.owner == 'DRA' && has(d.nvidia) && has(d.nvidia.dra) && has(d.nvidia.dra.extendedResourceName) && d.nvidia.dra.extendedResourceName == 'Publish'))")
        .message("nvidia.dra.extendedResourceName must be the same in every NVIDIA cohort with owner DRA: it is a field of the one DeviceClass gpu.nvidia.com that they share; set Publish in all of them or in none"),
    validation = Rule::new("!has(self.ownerLabel) || self.cohorts.all(c, (!has(c.nodeSelector.matchLabels) || !(self.ownerLabel in c.nodeSelector.matchLabels)) && (!has(c.nodeSelector.matchExpressions) || c.nodeSelector.matchExpressions.all(e, e.key != self.ownerLabel)))")
        .message("ownerLabel must not be used in a cohort's nodeSelector: it says who owns a node, so that a handover would take the node out of its cohort; select nodes by a label of your own")
)]
pub struct AcceleratorClusterSpec {
    /// Label that workloads select nodes by, e.g. `workload.example.com/gpu-allocation`. Kept equal to `device-plugin` or `dra` on
    /// every owned node, beside Freehold's own labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 317))]
    #[x_kube(
        validation = Rule::new("self.matches('^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$')")
            .message("ownerLabel must be a label key: an optional DNS prefix and '/', then at most 63 letters, digits, '-', '_' or '.'; e.g. workload.example.com/gpu-allocation"),
        validation = Rule::new("!self.contains('kubernetes.io/') && !self.contains('k8s.io/') && !self.startsWith('freehold.dev/')")
            .message("ownerLabel must not use a prefix that Kubernetes or Freehold reserves (kubernetes.io, k8s.io, freehold.dev); use a domain of your own")
    )]
    pub owner_label: Option<String>,

    /// Named sets of nodes, each of one vendor with one owner and one configuration. A node may be in one cohort of each vendor.
    #[schemars(length(max = 32))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub cohorts: Vec<Cohort>,

    /// Names that ML engineers use for what they need: ResourceClaimTemplates and DeviceClasses kept for them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    #[x_kube(
        merge_strategy = ListMerge::Map(vec!["name".into()]),
        validation = Rule::new("self.filter(s, has(s.deviceClassName)).all(s, self.exists_one(t, has(t.deviceClassName) && t.deviceClassName == s.deviceClassName))")
            .message("deviceClassName must differ from size to size: each keeps its own DeviceClass; rename one, or remove it from all but one")
    )]
    pub sizes: Vec<Size>,

    /// How fast nodes may change.
    #[serde(default)]
    pub rollout: Rollout,
}

/// How fast nodes may change.
#[derive(KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Rollout {
    /// Nodes that may be in handover at once: a number of at least 1, or a percentage of the owned nodes such as `10%`.
    #[x_kube(validation = Rule::new("type(self) == int ? self >= 1 : self.matches('^([1-9][0-9]?|100)%$')")
        .message("maxUnavailable must be a number of at least 1 or a percentage from 1% to 100%; to stop handovers set rollout.paused"))]
    #[serde(default = "default_max_unavailable")]
    pub max_unavailable: IntOrString,
    /// Nodes that go first.
    #[serde(default)]
    pub canary: Canary,
    /// How consumers leave a node before its owner changes.
    #[serde(default)]
    pub drain: Drain,
    /// No new handover starts; those under way finish.
    #[serde(default)]
    pub paused: bool,
}

impl Default for Rollout {
    fn default() -> Self {
        Self {
            max_unavailable: default_max_unavailable(),
            canary: Canary::default(),
            drain: Drain::default(),
            paused: false,
        }
    }
}

/// Nodes that go first in each cohort.
#[derive(KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Canary {
    /// How many; 0 for none.
    #[schemars(range(min = 0, max = 100))]
    #[serde(default = "default_canary_nodes")]
    pub nodes: i32,
    /// How long they must hold before the rest follows.
    #[schemars(with = "String", length(max = 32))]
    #[x_kube(validation = Rule::new("self.matches('^([0-9]+(h|m|s|ms))+$')")
        .message("soak must be a duration such as 10m or 1h30m"))]
    #[serde(default = "default_soak")]
    pub soak: Duration,
}

impl Default for Canary {
    fn default() -> Self {
        Self {
            nodes: default_canary_nodes(),
            soak: default_soak(),
        }
    }
}

/// How consumers leave.
#[derive(KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Drain {
    /// Whether to wait for consumers to end by themselves or to evict them.
    #[serde(default)]
    pub policy: DrainPolicy,
    /// How long until a drain that does not finish is reported as overdue. With Wait the node keeps its owner and its fence, and
    /// goes on as soon as the last consumer has left, or back when the change is taken back. With Evict the fence comes down, the
    /// node serves its owner's workloads again, and is tried again after this long, then after twice that, and so on up to a
    /// day, or at once with the next change of this resource. While the resource is being deleted no drain is given up.
    #[schemars(with = "String", length(max = 32))]
    #[x_kube(validation = Rule::new("self.matches('^([0-9]+(h|m|s|ms))+$')")
        .message("timeout must be a duration such as 1h or 90m"))]
    #[serde(default = "default_drain_timeout")]
    pub timeout: Duration,
}

impl Default for Drain {
    fn default() -> Self {
        Self {
            policy: DrainPolicy::Wait,
            timeout: default_drain_timeout(),
        }
    }
}

/// How consumers leave a fenced node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DrainPolicy {
    /// They end by themselves.
    #[default]
    Wait,
    /// They are evicted through the eviction API, so that PodDisruptionBudgets are respected.
    Evict,
}

const fn default_max_unavailable() -> IntOrString {
    IntOrString::Int(1)
}

const fn default_canary_nodes() -> i32 {
    1
}

fn default_soak() -> Duration {
    std::time::Duration::from_secs(10 * 60).into()
}

fn default_drain_timeout() -> Duration {
    std::time::Duration::from_secs(60 * 60).into()
}
