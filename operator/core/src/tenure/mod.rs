//! The ownership protocol as one pure function.
//!
//! [`step`] looks at [`Facts`] about one vendor on one node and answers with at most one guarded write, the status to show
//! and when to look again. It keeps no position of its own: where a handover stands is read off the world every time, so
//! that a crash between any two writes resumes by itself.
//!
//! # Where a handover stands
//!
//! Three things tell it: whether the Node carries an owner label, whether the fence is up with which value `F`, and the term
//! `T` in the AcceleratorNode.
//!
//! | owner label | fence | term | position | file |
//! |---|---|---|---|---|
//! | – | – | any | nothing owned, or a first ownership under way | `first` |
//! | set | – | any | held | `held` |
//! | any | up | `T < F` | the fence went up, its term has not reached the agent yet: drain, then the raise | `raise` |
//! | set | up | `T = F` | (drain,) attest, revoke | `handover` |
//! | – | up | `T = F` | revoked: the old operand goes; then the term is raised, and where nobody follows the layout withdrawn | `vacated` |
//! | – | up | `T = F + 1` | vacate, reshape, hand the word | `vacated` |
//! | – | up | `T = F + 2` | the word was handed: grant | `vacated` |
//! | set | up | `T > F` | granted: verify, unfence | `handover` |
//!
//! # Two objects, no transaction
//!
//! A write is guarded by the resourceVersion of the one object it goes to; the other object may change meanwhile. Two
//! rules close what that leaves open:
//! - A fence's value is used once, and only the raise that was decided when this fence was seen can make the term equal to
//!   it: the value is two above a term that was read fresh, every other write raises the term by one, and a fence never comes
//!   down before the term has reached its value. So `T = F` can only mean that the term was raised *after* this fence went
//!   up.
//! - An order that was given (`T = F + 2`) is not replaced in place: a change of mind first puts a new fence value on the
//!   Node, and with that refuses every grant decided before it.

mod advert;
mod change;
mod consumers;
mod contention;
mod decision;
mod facts;
mod first;
mod given_up;
mod goal;
mod handover;
mod held;
mod layout;
mod proofs;
mod raise;
mod shaping;
mod step;
mod unmet;
mod vacated;

#[cfg(test)]
mod tests;

pub use change::{Change, Current, change};
pub use contention::{Contended, Contention, ForeignChange};
pub use decision::{Decision, NodeWrite, PodWrite, RecordWrite, Step, Write};
pub use facts::{
    Allocatable, Consumer, ConsumerKind, Facts, ForeignOwner, NodeFacts, OperandPod, RecordFacts,
    SliceFacts, Target, Timing, Want,
};
pub use given_up::{Aim, GivenUp, Rest};
pub use layout::layout_in_force;
pub use shaping::layout_stands;
pub use step::step;
