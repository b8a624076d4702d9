//! Another writer that changes our marks on a node: met less and less often, and told of by name.
//!
//! What somebody changed once is put right at once. Whoever does it again is waited out, each time twice as long, so that two
//! controllers that undo one another cost a bounded number of writes. The memory of it is one small value for a node, and it
//! goes when the marks have been left alone for long enough.

use super::unmet::blocker;
use super::{Decision, Step};
use crate::blocker::{Blocker, Reason};

/// Pause after the second change, in seconds; doubled with each one that follows.
const FIRST_HOLD_S: u64 = 10;
/// Longest pause, in seconds.
const LONGEST_HOLD_S: u64 = 30 * 60;
/// Changes are forgotten when none has followed for twice the last pause, and not before this, in seconds.
const LEAST_MEMORY_S: u64 = 10 * 60;
/// So many changes are a contest and no longer single events: told of in the same words until the pause is over, whatever
/// the mark says in between.
const CONTEST: u32 = 10;
/// Longest name of a field manager, as the API server has it.
const MANAGER_CHARS: usize = 128;

/// A change of one of our marks (labels and fence of one vendor) that we did not make.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ForeignChange {
    /// What was changed: `label <key>` or `taint <key>`.
    pub mark: String,
    /// Its value now; `None` when it was removed.
    pub value: Option<String>,
    /// The field manager that did it, where the API server keeps it; it does not for what was removed.
    pub manager: Option<String>,
}

/// Changes that others made to our marks on one node, one after the other.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Contention {
    first_mark: String,
    last: ForeignChange,
    times: u32,
    last_s: i64,
}

/// A pause that is not over.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Contended {
    /// Who and what.
    pub blocker: Blocker,
    /// Seconds left.
    pub left_s: u64,
    /// Said even while the marks happen to be as they should.
    pub steady: bool,
}

impl Contention {
    /// With one more change at `now_s` (seconds since the Unix epoch).
    #[must_use]
    pub fn with(before: Option<Self>, mut change: ForeignChange, now_s: i64) -> Self {
        if let Some(manager) = &mut change.manager {
            *manager = manager.chars().take(MANAGER_CHARS).collect();
        }
        match before.filter(|before| !before.is_over(now_s)) {
            None => Self {
                first_mark: change.mark.clone(),
                last: change,
                times: 1,
                last_s: now_s,
            },
            Some(before) => {
                // Whoever sets a mark and removes it again is known by the former.
                change.manager = before.last.manager.or(change.manager);
                Self {
                    first_mark: before.first_mark,
                    last: change,
                    times: before.times.saturating_add(1),
                    last_s: now_s,
                }
            }
        }
    }

    /// The marks have been left alone for long enough to forget it.
    #[must_use]
    pub fn is_over(&self, now_s: i64) -> bool {
        self.age_s(now_s) >= self.hold_s().saturating_mul(2).max(LEAST_MEMORY_S)
    }

    /// The pause, if it is not over. The first change has none.
    #[must_use]
    pub fn contended(&self, now_s: i64) -> Option<Contended> {
        let left_s = self.hold_s().saturating_sub(self.age_s(now_s));
        (left_s > 0).then(|| Contended {
            blocker: self.blocker(),
            left_s,
            steady: self.times >= CONTEST,
        })
    }

    fn age_s(&self, now_s: i64) -> u64 {
        u64::try_from(now_s.saturating_sub(self.last_s)).unwrap_or(0)
    }

    fn hold_s(&self) -> u64 {
        let Some(doublings) = self.times.checked_sub(2) else {
            return 0;
        };
        1_u64
            .checked_shl(doublings)
            .and_then(|factor| FIRST_HOLD_S.checked_mul(factor))
            .map_or(LONGEST_HOLD_S, |hold| hold.min(LONGEST_HOLD_S))
    }

    fn blocker(&self) -> Blocker {
        let by = self.last.manager.as_ref().map_or_else(
            || "somebody (the API server does not keep who removes a field)".to_owned(),
            |manager| format!("manager={manager}"),
        );
        let message = if self.times >= CONTEST {
            format!(
                "{} is changed again and again, {CONTEST} times and more, by {by}",
                self.first_mark
            )
        } else {
            let now = self.last.value.as_ref().map_or_else(
                || "was removed".to_owned(),
                |value| format!("was changed to {value:?}"),
            );
            format!(
                "{} {now} by {by}, the {}. change of this kind; nothing is written here for {} s after it",
                self.last.mark,
                self.times,
                self.hold_s()
            )
        };
        blocker(Reason::LabelContention, message)
    }
}

impl Contended {
    /// What a decision becomes while the pause lasts: nothing is written, and what needs nothing written stays as it is.
    pub(super) fn over(&self, decision: Decision) -> Decision {
        let acts = decision.write.is_some() || decision.needs_fresh || decision.needs_claim;
        let unclear = decision
            .blocker
            .as_ref()
            .is_some_and(|blocker| blocker.reason == Reason::LabelContention);
        if !acts && !unclear && !self.steady {
            return decision;
        }
        let mut held = Decision::at(Step::Hold).because(self.blocker.clone());
        held.wake_s = Some(self.left_s);
        held
    }
}
