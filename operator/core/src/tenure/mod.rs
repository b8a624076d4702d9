//! The ownership protocol as one pure function.
//!
//! [`step`] looks at [`Facts`] about one vendor on one node and answers with at most one guarded write, the status to show
//! and when to look again. It keeps no position of its own: where a handover stands is read off the world every time, so
//! that a crash between any two writes resumes by itself.

mod decision;
mod facts;

pub use decision::{Decision, NodeWrite, PodWrite, RecordWrite, Step, Write, step};
pub use facts::{
    Allocatable, Consumer, ConsumerKind, Facts, ForeignOwner, NodeFacts, OperandPod, RecordFacts,
    SliceFacts, Target, Timing, Want,
};
