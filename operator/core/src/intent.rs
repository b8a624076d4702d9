//! What the administrator wants, parsed once from the `AcceleratorCluster` into types that cannot be wrong.
//!
//! This is the part of the resource that decisions need. What only ends up in a pod template (images, resources, pull
//! secrets) stays in the `api` crate's validated plan and reaches decisions as two hashes, [`Cohort::shape`] and
//! [`Cohort::template`].

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::report::MigProfileCount;
use crate::vendor::{Owner, Vendor};

/// The whole validated intent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Intent {
    /// Cohorts by name.
    pub cohorts: BTreeMap<String, Cohort>,
    /// Alias label for workloads' node selectors, kept equal to the owner.
    pub owner_alias: Option<String>,
    /// Cluster-wide rollout rules.
    pub rollout: Rollout,
}

/// A named set of nodes of one vendor with one owner and one configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cohort {
    /// Its name: a DNS label of at most 63 characters.
    pub name: String,
    /// Whose devices.
    pub vendor: Vendor,
    /// Who hands them out.
    pub owner: Owner,
    /// Which nodes.
    pub selector: Selector,
    /// Taints that the operand tolerates beyond the vendor's defaults.
    pub tolerations: Vec<Toleration>,
    /// What makes up the advertised names and counts.
    pub sharing: Sharing,
    /// How MIG devices are named by the device plugin. `None` for Neuron and under DRA.
    pub mig_strategy: Option<MigStrategy>,
    /// Wanted node-side geometry; `None` leaves it as it is.
    pub layout: Option<Layout>,
    /// RuntimeClass the operand needs, if any.
    pub runtime_class: Option<String>,
    /// `name` and `key` of a user's ConfigMap with a device-plugin configuration.
    pub config_map: Option<(String, String)>,
    /// Whether the MPS control daemon was asked for.
    pub mps: bool,
    /// Whether a driver version that cannot be read is accepted (an explicit opt-out of the floor).
    pub accept_unknown_driver: bool,
    /// What the DRA driver's settings mean to decisions; all false under the device plugin.
    pub dra: DraTraits,
    /// Hash over everything that changes what is advertised (names, counts). Never empty.
    pub shape: String,
    /// Hash over the whole pod template. Never empty.
    pub template: String,
    /// Budget of this cohort, below the cluster's.
    pub max_unavailable: Option<Budget>,
}

/// The settings of a DRA driver that decisions depend on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct DraTraits {
    /// The driver publishes devices beyond the host's geometry (NVIDIA's gates `DynamicMIG`, one device for each possible
    /// placement, and `PassthroughSupport`, one more for each GPU), so that only a lowest count is known.
    pub open_device_list: bool,
    /// The class also answers plain extended-resource requests (`extendedResourceName: Publish`).
    pub publishes_extended_resource: bool,
}

/// A label selector: all terms must hold. The empty selector matches nothing (a cohort must say what it wants).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector {
    /// Terms, ANDed.
    pub terms: Vec<SelectorTerm>,
}

/// One term of a [`Selector`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SelectorTerm {
    /// The label exists with one of the values.
    In(String, BTreeSet<String>),
    /// The label is absent or has none of the values.
    NotIn(String, BTreeSet<String>),
    /// The label exists.
    Exists(String),
    /// The label is absent.
    DoesNotExist(String),
}

impl Selector {
    /// Whether a label set satisfies every term.
    #[must_use]
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        !self.terms.is_empty()
            && self.terms.iter().all(|term| match term {
                SelectorTerm::In(key, values) => {
                    labels.get(key).is_some_and(|value| values.contains(value))
                }
                SelectorTerm::NotIn(key, values) => {
                    labels.get(key).is_none_or(|value| !values.contains(value))
                }
                SelectorTerm::Exists(key) => labels.contains_key(key),
                SelectorTerm::DoesNotExist(key) => !labels.contains_key(key),
            })
    }
}

/// A toleration, as Kubernetes defines it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Toleration {
    /// Taint key; `None` with `Exists` tolerates everything.
    pub key: Option<String>,
    /// Value for `Equal`; `None` means `Exists`.
    pub value: Option<String>,
    /// Effect; `None` means all effects.
    pub effect: Option<String>,
}

/// A taint on a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Taint {
    /// Key.
    pub key: String,
    /// Value; empty when absent.
    pub value: String,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    pub effect: String,
}

impl Toleration {
    /// Whether this toleration covers a taint.
    #[must_use]
    pub fn tolerates(&self, taint: &Taint) -> bool {
        self.effect
            .as_ref()
            .is_none_or(|effect| *effect == taint.effect)
            && self.key.as_ref().is_none_or(|key| *key == taint.key)
            && self
                .value
                .as_ref()
                .is_none_or(|value| *value == taint.value)
    }
}

/// How the device plugin multiplies devices. Only `TimeSlicing` and `Mps` rename or multiply.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Sharing {
    /// One device, one consumer.
    #[default]
    Exclusive,
    /// Time-slicing replicas, by resource name.
    TimeSlicing {
        /// Whether the shared resource is called `<name>.shared`.
        rename: bool,
        /// Resource name → replicas (at least 2).
        replicas: BTreeMap<String, u32>,
    },
    /// MPS replicas, by resource name.
    Mps {
        /// Whether the shared resource is called `<name>.shared`.
        rename: bool,
        /// Resource name → replicas (at least 2).
        replicas: BTreeMap<String, u32>,
    },
    /// A configuration in the user's own ConfigMap: what it advertises cannot be computed from the resource.
    UserConfig,
}

/// How the device plugin names MIG devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MigStrategy {
    /// MIG is ignored: physical GPUs are advertised.
    None,
    /// All instances are alike and advertised as `nvidia.com/gpu`.
    Single,
    /// Instances are advertised as `nvidia.com/mig-<profile>`.
    Mixed,
}

/// Wanted node-side geometry.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Layout {
    /// MIG instances for GPUs. Later entries win where two name the same GPU, as in the order written.
    Mig(Vec<MigLayout>),
    /// Logical NeuronCore setting, 1 or 2.
    LogicalNeuronCore(u8),
}

/// MIG instances wanted on some GPUs.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MigLayout {
    /// GPU minor numbers; `None` is every GPU of the node.
    pub gpus: Option<BTreeSet<u32>>,
    /// Instances per GPU. Empty: MIG off.
    pub instances: Vec<MigProfileCount>,
}

/// How fast nodes may change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rollout {
    /// Nodes that may be in handover at once.
    pub max_unavailable: Budget,
    /// Nodes that go first; 0 for none.
    pub canary_nodes: u32,
    /// How long canaries must hold before the rest follows, in seconds.
    pub canary_soak_s: u64,
    /// How consumers leave.
    pub drain: DrainPolicy,
    /// How long a drain may take before it is a blocker, in seconds.
    pub drain_timeout_s: u64,
    /// No new handover starts; those under way finish.
    pub paused: bool,
}

/// A number of nodes or a share of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Budget {
    /// So many nodes.
    Nodes(u32),
    /// So many per cent of the nodes concerned, rounded up to at least one.
    Percent(u32),
}

impl Budget {
    /// How many nodes of `total`.
    #[must_use]
    pub fn of(self, total: usize) -> usize {
        match self {
            Self::Nodes(nodes) => nodes as usize,
            Self::Percent(percent) => (total * percent as usize).div_ceil(100).max(1),
        }
    }
}

/// How consumers leave a fenced node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DrainPolicy {
    /// They end by themselves.
    Wait,
    /// They are evicted through the eviction API; PodDisruptionBudgets are respected.
    Evict,
}
