//! What [`super::step`] may answer.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::blocker::Blocker;
use crate::intent::Layout;
use crate::vendor::Owner;

/// Where a tenure stands, for people. Derived, never relied upon.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
pub enum Step {
    /// No owner and none wanted.
    None,
    /// Facts are gathered: the agent has not reported yet.
    Discover,
    /// The fence goes up.
    Fence,
    /// Consumers leave.
    Drain,
    /// The agent attests that nothing is in use.
    Attest,
    /// The old owner's labels go.
    Revoke,
    /// The old operand and everything it advertised go; second attestation.
    Vacate,
    /// The wanted geometry is made.
    Reshape,
    /// The owner word is handed to the node.
    HandWord,
    /// The new owner's labels are set.
    Grant,
    /// What is advertised is compared with what should be.
    Verify,
    /// The fence comes down.
    Unfence,
    /// The owner holds the node and advertises what it should.
    Held,
    /// The node keeps what it has; nothing is started. The blocker says why.
    Hold,
}

/// The answer for one vendor on one node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Decision {
    /// At most one write, guarded by the resourceVersion of the object it was decided on.
    pub write: Option<Write>,
    /// The answer would be a step that may only be taken on fresh reads: read Node, AcceleratorNode, pods and claims from the
    /// API server, and ask again with [`super::Facts::fresh`] set. `write` is `None` then.
    pub needs_fresh: bool,
    /// The answer would be a fence on an owned node: claim a place in the budget for this very version of the Node (see
    /// [`crate::rollout::claim`]), and ask again with [`super::Facts::claimed`] set. `write` is `None` then.
    pub needs_claim: bool,
    /// Where the tenure stands.
    pub step: Step,
    /// Why it does not go on.
    pub blocker: Option<Blocker>,
    /// Look again after so many seconds even if nothing changes; `None` when only a change can matter.
    pub wake_s: Option<u64>,
}

/// One guarded write.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Write {
    /// To the AcceleratorNode's spec.
    Record(RecordWrite),
    /// To the Node's labels and taints.
    Node(NodeWrite),
    /// To a pod.
    Pod(PodWrite),
}

/// Writes to this vendor's part of an AcceleratorNode's spec.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum RecordWrite {
    /// Make the object, or this vendor's part of it, with term 1 and no owner. Also replaces an object made for another node
    /// UID (which is deleted first: its precondition is that object's UID).
    Create {
        /// Cohort that asks for it, where one is known.
        cohort: Option<String>,
    },
    /// Raise the term: asks the agent for an attestation.
    RaiseTerm {
        /// New term: the fence's value, or one above it for the second attestation.
        term: i64,
    },
    /// Raise the term and withdraw the ordered layout in one: the report that answers the term tells whether the node has let
    /// go of the order, which it would carry out at every boot otherwise.
    Withdraw {
        /// New term.
        term: i64,
    },
    /// Order a layout.
    Layout {
        /// The layout; `None` leaves the geometry as it is.
        layout: Option<Layout>,
    },
    /// Order the owner word. The term grows with it, so that the report that confirms it is younger than the order.
    HandWord {
        /// Cohort.
        cohort: String,
        /// New owner.
        owner: Owner,
        /// New term, higher than every term and fence before.
        term: i64,
        /// Cohort to go back to should a prepared claim turn up: the last one under DRA. Kept as
        /// [`super::RecordFacts::dra_cohort`].
        dra_cohort: Option<String>,
    },
    /// Remove this vendor's part: nothing is owned and nothing wanted.
    Clear,
}

/// Writes to a Node. Each carries the resourceVersion it was decided on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum NodeWrite {
    /// Put the fence taint up with this term as its value, and the label that keeps the agent here.
    Fence {
        /// The term.
        term: i64,
    },
    /// Set owner and cohort labels (and the alias label).
    Grant {
        /// Cohort.
        cohort: String,
        /// Owner.
        owner: Owner,
    },
    /// Remove owner and cohort labels (and the alias label).
    Revoke,
    /// Remove the fence taint and the label that keeps the agent here.
    Unfence,
}

/// Writes to pods.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PodWrite {
    /// Evict a consumer through the eviction API.
    Evict {
        /// `namespace/name`.
        name: String,
        /// UID precondition.
        uid: String,
    },
    /// Delete one of our own operand pods so that its DaemonSet makes it anew from the current template.
    Restart {
        /// Name in our namespace.
        name: String,
        /// UID precondition.
        uid: String,
    },
}
