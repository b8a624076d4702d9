//! A condition that does not hold yet, and what that means for the answer.

use super::{Decision, Facts, PodWrite, Step, Write};
use crate::blocker::{Blocker, Reason};

/// How often consumers are read again while they stand in the way, in seconds: soon at first, since those that end do so within
/// moments, and then at a quarter of the time that has passed, up to a limit. They are not watched: a watch on every pod of a
/// cluster is what makes other controllers large.
const CONSUMER_POLL_FIRST_S: u64 = 2;
/// The limit.
const CONSUMER_POLL_S: u64 = 10;
/// When to look again after an eviction while more consumers are left, in seconds.
const NEXT_EVICTION_S: u64 = 1;
/// Longest message the API takes.
const MESSAGE_CHARS: usize = 512;

/// Builds a blocker whose message fits the API.
pub(super) fn blocker(reason: Reason, message: impl Into<String>) -> Blocker {
    let message: String = message.into();
    if message.chars().count() <= MESSAGE_CHARS {
        return Blocker { reason, message };
    }
    let mut short: String = message.chars().take(MESSAGE_CHARS - 1).collect();
    short.push('…');
    Blocker {
        reason,
        message: short,
    }
}

/// What is missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Unmet {
    /// It can only be judged on fresh reads.
    Fresh,
    /// Time has to pass: so many seconds more.
    Time(u64),
    /// The world has to change, and a watch tells when it does. A blocker from the start if `at_once`, else when patience
    /// runs out.
    Change {
        /// Why.
        blocker: Blocker,
        /// Say so from the start.
        at_once: bool,
    },
    /// Consumers have to go; nobody watches them, so they are read again after a while.
    Consumers {
        /// Which.
        blocker: Blocker,
        /// One that may be evicted.
        evict: Option<PodWrite>,
    },
}

impl Unmet {
    /// Something that usually comes by itself.
    pub(super) fn soon(reason: Reason, message: impl Into<String>) -> Self {
        Self::Change {
            blocker: blocker(reason, message),
            at_once: false,
        }
    }

    /// Something worth saying from the start.
    pub(super) fn at_once(reason: Reason, message: impl Into<String>) -> Self {
        Self::Change {
            blocker: blocker(reason, message),
            at_once: true,
        }
    }

    /// The answer while this is missing at `step`.
    pub(super) fn decide(self, facts: &Facts, step: Step) -> Decision {
        let mut decision = Decision::at(step);
        match self {
            Self::Fresh => decision.needs_fresh = true,
            Self::Time(seconds) => decision.wake_s = Some(seconds),
            Self::Change {
                blocker,
                at_once: true,
            } => decision.blocker = Some(blocker),
            Self::Change {
                blocker,
                at_once: false,
            } => {
                let left = facts.timing.patience_s.saturating_sub(facts.timing.step_s);
                if left == 0 {
                    decision.blocker = Some(blocker);
                } else {
                    decision.wake_s = Some(left);
                }
            }
            Self::Consumers { blocker, evict } => {
                decision.blocker = Some(blocker);
                decision.wake_s = Some(if evict.is_some() {
                    NEXT_EVICTION_S
                } else {
                    (facts.timing.step_s / 4).clamp(CONSUMER_POLL_FIRST_S, CONSUMER_POLL_S)
                });
                decision.write = evict.map(Write::Pod);
            }
        }
        decision
    }
}

impl Decision {
    /// An answer that only says where things stand.
    pub(super) const fn at(step: Step) -> Self {
        Self {
            write: None,
            needs_fresh: false,
            needs_claim: false,
            step,
            blocker: None,
            wake_s: None,
        }
    }

    /// With this write.
    pub(super) fn write(mut self, write: impl Into<Write>) -> Self {
        self.write = Some(write.into());
        self
    }

    /// With this write once Node, AcceleratorNode and consumers were read fresh; until then, with the request to do so.
    pub(super) fn write_fresh(self, facts: &Facts, write: impl Into<Write>) -> Self {
        if facts.fresh {
            self.write(write)
        } else {
            self.fresh()
        }
    }

    /// With the request for fresh reads.
    pub(super) const fn fresh(mut self) -> Self {
        self.needs_fresh = true;
        self
    }

    /// With this blocker.
    pub(super) fn because(mut self, blocker: Blocker) -> Self {
        self.blocker = Some(blocker);
        self
    }
}

impl From<super::RecordWrite> for Write {
    fn from(write: super::RecordWrite) -> Self {
        Self::Record(write)
    }
}

impl From<super::NodeWrite> for Write {
    fn from(write: super::NodeWrite) -> Self {
        Self::Node(write)
    }
}

impl From<PodWrite> for Write {
    fn from(write: PodWrite) -> Self {
        Self::Pod(write)
    }
}
