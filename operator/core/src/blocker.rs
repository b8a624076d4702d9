//! Why a node is not (yet) what its cohort wants: a closed list of reasons, each with an ID, a kind and the next human step.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A named reason. CamelCase in the API; the numeric ID never changes its meaning.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
pub enum Reason {
    /// The provider hands out this node's devices itself, or no pod can be placed there (EKS Auto Mode, Fargate, …).
    ExcludedByProvider,
    /// The node matches a cohort, but its host has no device of the vendor.
    NoHardware,
    /// Devices are on the PCI bus, but no driver serves them.
    DriverMissing,
    /// The driver is older than the owner needs.
    DriverTooOld,
    /// The driver's version cannot be read.
    VersionUnknown,
    /// The node's kubelet is older than the owner needs.
    KubeletTooOld,
    /// The API server is older than the owner needs.
    ControlPlaneTooOld,
    /// `resource.k8s.io/v1` is not served.
    DraApiUnavailable,
    /// Two cohorts of one vendor claim this node.
    CohortOverlap,
    /// Somebody else hands out, or is set up to hand out, this vendor's devices here.
    ForeignOwner,
    /// A device plugin of the host itself stays active under a DRA cohort.
    HostPluginActive,
    /// A taint keeps the operand away.
    UntoleratedTaint,
    /// The RuntimeClass that the operand needs does not exist.
    RuntimeClassMissing,
    /// The ConfigMap, or its key, that the cohort names does not exist.
    ConfigNotFound,
    /// `nvidia.com/mps.capable=true` on a node whose cohort did not ask for MPS.
    UnexpectedMps,
    /// No report from the node's agent, or one that is void.
    AgentSilent,
    /// The agent could not read a record, so it cannot attest.
    AttestationUnknown,
    /// Holders on the node itself.
    DevicesInUse,
    /// Pods or claims, as the API sees them, still use the devices.
    ConsumersRemain,
    /// Consumers that a DaemonSet brings back; they never drain.
    DaemonSetConsumer,
    /// A PodDisruptionBudget refuses an eviction.
    DisruptionBudget,
    /// A claim with a deletion timestamp that does not go.
    StuckClaim,
    /// The drain took longer than the policy allows.
    DrainTimeout,
    /// The old operand's pod does not end.
    OperandLingers,
    /// Slices or allocatable resources of the old owner do not go.
    AdvertisementLingers,
    /// A socket of the old owner is still there.
    SocketLingers,
    /// The owner word on the node is not yet what was ordered.
    WordPending,
    /// The operand's pod does not run.
    OperandNotRunning,
    /// What is advertised differs from inventory × layout (× replicas).
    AdvertisementMismatch,
    /// What was advertised went away though the operand runs.
    AdvertisementLost,
    /// Two owners advertise this vendor's devices at once.
    DualAdvertisement,
    /// The node's geometry differs from the wanted layout.
    LayoutMismatch,
    /// The wanted layout cannot be had on this hardware.
    LayoutInfeasible,
    /// The Logical NeuronCore setting cannot be changed on this instance type.
    LncNotConfigurable,
    /// GPU model whose geometry is not known and not discovered.
    UnknownGeometry,
    /// The node is not Ready (kubelet silent).
    NodeNotReady,
    /// Waiting for a place in the rollout budget.
    BudgetExhausted,
    /// The rollout is paused.
    Paused,
    /// Somebody else keeps changing our labels on this node.
    LabelContention,
    /// An object with the name we need exists and is not ours.
    NameTaken,
    /// A mass change was held back.
    MassChange,
    /// The installed CRD is older than this operator.
    CrdOutdated,
    /// The node was replaced under the same name; starting over.
    NodeReplaced,
}

/// How a reason counts in a cohort's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Not ours to own: listed, never an error.
    Excluded,
    /// Time or workloads will resolve it.
    Waiting,
    /// A person must act.
    Blocked,
    /// Two parties claim the node.
    Conflicted,
}

/// A reason on one node (or on none, for cluster-wide ones), with what was found and what to do.
#[derive(
    Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "camelCase")]
pub struct Blocker {
    /// Why.
    pub reason: Reason,
    /// The object concerned, e.g. `Pod ml/trainer-0`, with what was found and what was expected. Deterministic: no elapsed
    /// times, no counters that move by themselves. At most 512 characters.
    #[schemars(length(max = 512))]
    pub message: String,
}
