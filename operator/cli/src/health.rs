//! How one vendor's tenure on one node is doing, in one word.

use freehold_api::TenureStatus;
use freehold_core::blocker::{Kind, Reason};
use freehold_core::tenure::Step;
use serde::Serialize;

use crate::exit::Exit;
use crate::style::Style;

/// One word for people, worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, clap::ValueEnum)]
pub(crate) enum Health {
    /// Two parties claim the node.
    Conflicted,
    /// A person must act.
    Blocked,
    /// Nobody has said anything about it yet.
    Unknown,
    /// Time or workloads will move it on.
    Waiting,
    /// On its way.
    Moving,
    /// The owner holds it and advertises what it should.
    Ready,
    /// It has no owner, and none is wanted.
    Unowned,
    /// Matched, but not ours to own.
    Excluded,
}

impl Health {
    /// Reads it off what the controller published.
    pub(crate) const fn of(tenure: &TenureStatus) -> Self {
        match (tenure.reason, tenure.step) {
            (Some(reason), _) => Self::of_reason(reason),
            (None, Step::Held) => Self::Ready,
            (None, Step::None) => Self::Unowned,
            // A hold always has a reason; one without says nothing that can be relied on.
            (None, Step::Hold) => Self::Unknown,
            (
                None,
                Step::Discover
                | Step::Fence
                | Step::Drain
                | Step::Attest
                | Step::Revoke
                | Step::Vacate
                | Step::Reshape
                | Step::HandWord
                | Step::Grant
                | Step::Verify
                | Step::Unfence,
            ) => Self::Moving,
        }
    }

    /// What a reason makes of a node.
    pub(crate) const fn of_reason(reason: Reason) -> Self {
        match reason.kind() {
            Kind::Excluded => Self::Excluded,
            Kind::Waiting => Self::Waiting,
            Kind::Blocked => Self::Blocked,
            Kind::Conflicted => Self::Conflicted,
        }
    }

    /// As it is printed.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Conflicted => "conflicted",
            Self::Blocked => "blocked",
            Self::Unknown => "unknown",
            Self::Waiting => "waiting",
            Self::Moving => "moving",
            Self::Ready => "ready",
            Self::Unowned => "unowned",
            Self::Excluded => "excluded",
        }
    }

    /// A mark that tells them apart without colour.
    pub(crate) const fn glyph(self) -> &'static str {
        match self {
            Self::Conflicted => "‼",
            Self::Blocked => "✗",
            Self::Unknown => "?",
            Self::Waiting => "…",
            Self::Moving => "→",
            Self::Ready => "✓",
            Self::Unowned | Self::Excluded => "-",
        }
    }

    /// Colours text by it. Waiting is neither red nor green.
    pub(crate) fn paint(self, style: Style, text: &str) -> String {
        match self {
            Self::Conflicted | Self::Blocked => style.bad(text),
            Self::Unknown | Self::Waiting | Self::Moving => style.waiting(text),
            Self::Ready => style.good(text),
            Self::Unowned | Self::Excluded => style.dim(text),
        }
    }

    /// What it means for the exit code.
    pub(crate) const fn exit(self) -> Exit {
        match self {
            Self::Conflicted | Self::Blocked => Exit::Findings,
            Self::Unknown => Exit::Undetermined,
            Self::Waiting | Self::Moving => Exit::Waiting,
            Self::Ready | Self::Unowned | Self::Excluded => Exit::Fine,
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;

    fn tenure(step: Step, reason: Option<Reason>) -> TenureStatus {
        TenureStatus {
            cohort: None,
            owner: None,
            step,
            since: Time(jiff::Timestamp::UNIX_EPOCH),
            reason,
            message: None,
            next_step: None,
        }
    }

    #[test]
    fn a_reason_outweighs_the_step() {
        assert_eq!(Health::of(&tenure(Step::Held, None)), Health::Ready);
        assert_eq!(
            Health::of(&tenure(Step::Held, Some(Reason::Paused))),
            Health::Waiting
        );
        assert_eq!(
            Health::of(&tenure(Step::Hold, Some(Reason::ForeignOwner))),
            Health::Conflicted
        );
        assert_eq!(
            Health::of(&tenure(Step::Hold, Some(Reason::NoHardware))),
            Health::Excluded
        );
        assert_eq!(Health::of(&tenure(Step::Drain, None)), Health::Moving);
        assert_eq!(Health::of(&tenure(Step::None, None)), Health::Unowned);
    }

    #[test]
    fn a_hold_without_a_reason_is_never_taken_for_ready() {
        assert_eq!(Health::of(&tenure(Step::Hold, None)), Health::Unknown);
    }
}
