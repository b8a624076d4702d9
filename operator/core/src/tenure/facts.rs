//! Everything [`super::step`] may look at.

use std::collections::BTreeMap;

use super::{Contended, Rest};
use crate::blocker::Blocker;
use crate::expect::Expected;
use crate::intent::{DrainPolicy, Layout};
use crate::report::NodeReport;
use crate::vendor::{Owner, Vendor};

/// Facts about one vendor on one node. Durations are seconds since the fact began to hold without a break, as the caller saw
/// it; a restarted caller starts counting anew, which only ever waits longer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Facts {
    /// The vendor.
    pub vendor: Vendor,
    /// What the intent wants here.
    pub want: Want,
    /// The Node object.
    pub node: NodeFacts,
    /// The vendor's part of the AcceleratorNode's spec; `None` while the object (or the part) does not exist.
    pub record: Option<RecordFacts>,
    /// The agent's report; `None` while there is none.
    pub report: Option<NodeReport>,
    /// Our own operand pods of this vendor on this node, of either owner, terminating ones included.
    pub operands: Vec<OperandPod>,
    /// ResourceSlices of the vendor's allocating driver for this node's pool.
    pub slices: SliceFacts,
    /// Consumers as the API sees them, read from the API server after everything else here; `None` when not read. They
    /// are read only on request, see [`super::Decision::needs_fresh`].
    pub consumers: Option<Vec<Consumer>>,
    /// Evidence of another owner.
    pub foreign: Vec<ForeignOwner>,
    /// Whether Node, AcceleratorNode and consumers were just read from the API server rather than from a cache.
    pub fresh: bool,
    /// Whether the rollout lets a new handover start here now.
    pub may_start: Result<(), Blocker>,
    /// A place in the budget is claimed for this very version of the Node.
    pub claimed: bool,
    /// Others keep changing our marks here, and the pause after their last change is not over.
    pub contended: Option<Contended>,
    /// A drain for the same aim was given up, and the rest before the next try is not over.
    pub resting: Option<Rest>,
    /// The whole resource is being deleted: a drain is not given up.
    pub tearing_down: bool,
    /// How consumers leave.
    pub drain: DrainPolicy,
    /// Clock readings and limits.
    pub timing: Timing,
}

/// What the intent wants for one vendor on one node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Want {
    /// No owner: the node left its cohort, or the whole resource is being deleted.
    Nothing,
    /// This owner in this configuration.
    Owner(Box<Target>),
    /// Unclear or not possible: keep what is, start nothing, say why.
    Hold(Blocker),
}

/// Owner and configuration wanted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    /// Cohort.
    pub cohort: String,
    /// Owner.
    pub owner: Owner,
    /// Geometry, if the cohort sets one.
    pub layout: Option<Layout>,
    /// Hash of what is advertised; compare with [`OperandPod::shape`].
    pub shape: String,
    /// Hash of the pod template; compare with [`OperandPod::template`].
    pub template: String,
    /// What must be advertised, or why that cannot be told.
    pub expected: Result<Expected, Blocker>,
}

/// The Node object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NodeFacts {
    /// UID.
    pub uid: String,
    /// `status.nodeInfo.bootID`; empty while unknown.
    pub boot_id: String,
    /// Kubelet heartbeats arrive (`Ready` is True).
    pub ready: bool,
    /// Our owner label; `Err` holds a value that is not an owner.
    pub owner: Option<Result<Owner, String>>,
    /// Our cohort label.
    pub cohort: Option<String>,
    /// Term in the fence taint's value, while the fence is up. A value that is no number reads as term 0.
    pub fence: Option<i64>,
    /// The alias label (`key=value`), where its value is no owner: somebody else uses the key.
    pub foreign_alias: Option<String>,
    /// Allocatable of the vendor's extended resources, by name, zeros included.
    pub allocatable: Allocatable,
}

/// Resource name → allocatable count.
pub type Allocatable = BTreeMap<String, i64>;

/// The vendor's part of an AcceleratorNode's spec.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RecordFacts {
    /// UID of the Node that the object was made for.
    pub node_uid: String,
    /// Cohort.
    pub cohort: Option<String>,
    /// Owner word ordered.
    pub owner: Option<Owner>,
    /// Term; only grows.
    pub term: i64,
    /// Layout ordered.
    pub layout: Option<Layout>,
    /// Cohort under which the DRA driver last owned the node. When a claim is found that only that driver can unprepare, the
    /// node goes back to it.
    pub dra_cohort: Option<String>,
}

/// One of our operand pods.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OperandPod {
    /// Namespace-less name; the namespace is always ours.
    pub name: String,
    /// UID.
    pub uid: String,
    /// Owner that it implements.
    pub owner: Owner,
    /// Cohort it was made for.
    pub cohort: String,
    /// Every container runs and is ready.
    pub ready: bool,
    /// It has a deletion timestamp.
    pub terminating: bool,
    /// Hash of what it advertises.
    pub shape: String,
    /// Hash of its template.
    pub template: String,
    /// Why it does not run, if the kubelet says (`Init:0/1`, `CrashLoopBackOff`, `ImagePullBackOff`, …).
    pub waiting: Option<String>,
}

/// ResourceSlices of one pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SliceFacts {
    /// Slices that exist, of any generation.
    pub count: usize,
    /// Devices in the slices of the newest generation.
    pub devices: usize,
    /// Of these, MIG devices.
    pub mig_devices: usize,
    /// All slices of the newest generation are there (`resourceSliceCount`).
    pub complete: bool,
}

/// Somebody who uses, or may come to use, the vendor's devices on this node.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Consumer {
    /// `namespace/name` of the pod or claim.
    pub name: String,
    /// UID.
    pub uid: String,
    /// What it is.
    pub kind: ConsumerKind,
    /// It has a deletion timestamp.
    pub terminating: bool,
    /// `namespace/name` of the DaemonSet that would bring it back.
    pub daemon_set: Option<String>,
    /// An eviction was refused, with the API server's words (it names the PodDisruptionBudget).
    pub refused: Option<String>,
    /// That was a moment ago: its eviction is not asked for again yet.
    pub asked_lately: bool,
}

/// Kinds of [`Consumer`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ConsumerKind {
    /// A pod that asks for an extended resource served by the device plugin.
    PluginPod,
    /// A pod with a claim (or DRA-backed extended resource) on the vendor's driver.
    ClaimPod,
    /// An allocated claim without a live pod.
    Claim,
}

/// Evidence that another party hands out the vendor's devices on this node.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ForeignOwner {
    /// Who, as precisely as the evidence allows: `DaemonSet gpu-operator/nvidia-device-plugin-daemonset`, `EKS Auto Mode`, …
    pub who: String,
    /// What was seen, e.g. `allocatable nvidia.com/gpu=8 without an operand pod of ours`.
    pub evidence: String,
    /// A device plugin that no DaemonSet accounts for: most likely the host's image runs it.
    pub host_plugin: bool,
}

/// Clock readings, in seconds, and the limits they are held against.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Timing {
    /// How long the fence in [`NodeFacts::fence`] has been seen.
    pub fence_seen_s: u64,
    /// How long the current step has lasted (from the persisted status).
    pub step_s: u64,
    /// How long the advertisement (allocatable and slices) has been as it is.
    pub advert_stable_s: u64,
    /// Settle time for schedulers that had not seen the taint.
    pub settle_s: u64,
    /// How long an advertisement must hold to count.
    pub stable_s: u64,
    /// Deadline of a drain.
    pub drain_timeout_s: u64,
    /// Deadline after which any other step that does not move is a blocker rather than a wait.
    pub patience_s: u64,
}
