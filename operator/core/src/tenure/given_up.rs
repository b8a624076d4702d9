//! Drains that were given up: the node went back to its owner, and is tried again after twice as long as the last time.
//!
//! With policy `Evict` a drain has a deadline: past it the fence comes down again, so that a consumer that nobody may evict does
//! not cost the node for nothing. With `Wait` a person decides, and the node stays fenced.

use super::unmet::blocker;
use super::{Decision, Step};
use crate::blocker::{Blocker, Reason};

/// Longest rest before the next try, in seconds.
const LONGEST_REST_S: u64 = 24 * 60 * 60;

/// What a drain was started for; another one is another try.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Aim {
    /// Generation of the `AcceleratorCluster`.
    pub generation: i64,
    /// Cohort wanted; `None` when the node is to be given up.
    pub cohort: Option<String>,
}

/// Drains of one node that were given up, one after the other.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct GivenUp {
    aim: Aim,
    /// Value of the fence that came down last: a try is counted once, however often its write is repeated.
    fence: Option<i64>,
    times: u32,
    at_s: i64,
    why: String,
}

/// The rest between two tries, while it lasts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Rest {
    /// Who did not leave.
    pub blocker: Blocker,
    /// Seconds left.
    pub left_s: u64,
}

impl GivenUp {
    /// With one more, at `at_s` (seconds since the Unix epoch), behind this fence and because of `why`.
    #[must_use]
    pub fn with(
        before: Option<Self>,
        aim: Aim,
        fence: Option<i64>,
        at_s: i64,
        why: &Blocker,
    ) -> Self {
        let before = before.filter(|before| before.aim == aim);
        let times = match &before {
            None => 1,
            Some(before) if before.fence == fence => before.times,
            Some(before) => before.times.saturating_add(1),
        };
        Self {
            aim,
            fence,
            times,
            at_s,
            why: why.message.clone(),
        }
    }

    /// As a former controller told it: how many tries there were is not known any more. `observed` is the generation that it
    /// looked at last; what it gave up before another generation is not this aim.
    #[must_use]
    pub fn told(aim: Aim, observed: Option<i64>, at_s: i64, why: String) -> Option<Self> {
        (observed == Some(aim.generation)).then_some(Self {
            aim,
            fence: None,
            times: 1,
            at_s,
            why,
        })
    }

    /// The rest, if it is not over. `timeout_s` is the deadline that a drain has; another aim ends the rest at once.
    #[must_use]
    pub fn rest(&self, aim: &Aim, now_s: i64, timeout_s: u64) -> Option<Rest> {
        if self.aim != *aim {
            return None;
        }
        let age_s = u64::try_from(now_s.saturating_sub(self.at_s)).unwrap_or(0);
        let left_s = self.rest_s(timeout_s).saturating_sub(age_s);
        (left_s > 0).then(|| Rest {
            blocker: blocker(Reason::DrainTimeout, self.why.clone()),
            left_s,
        })
    }

    fn rest_s(&self, timeout_s: u64) -> u64 {
        let doublings = self.times.saturating_sub(1);
        1_u64
            .checked_shl(doublings)
            .and_then(|factor| timeout_s.checked_mul(factor))
            .map_or(LONGEST_REST_S, |rest| rest.min(LONGEST_REST_S))
    }
}

impl Rest {
    /// The answer meanwhile: nothing starts.
    pub(super) fn decide(&self) -> Decision {
        let mut decision = Decision::at(Step::Hold).because(self.blocker.clone());
        decision.wake_s = Some(self.left_s);
        decision
    }
}
