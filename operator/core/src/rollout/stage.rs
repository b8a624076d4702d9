//! Where a tenure stands as far as the pace is concerned.

use crate::blocker::{Kind, Reason};
use crate::summary::TenureOutcome;
use crate::tenure::Step;
use crate::vendor::Vendor;

/// Where a tenure stands as far as the pace is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Nothing is owned here, or it is on its way to its first owner.
    Unowned,
    /// Held, and as the cohort wants it.
    Settled,
    /// Owned, and standing still for a reason of its own.
    Still,
    /// Would start a handover or reshape if it were let.
    AsksHandover,
    /// Would restart its operand if it were let.
    AsksRestart,
    /// Behind a fence.
    UnderWay,
    /// Owned, without a fence, and not advertising what it should (yet): restarting, or just granted for the first time.
    Verifying,
    /// Behind a fence and not moving, its old owner still there or going.
    Stuck,
    /// Changed, and not advertising what it should: a person must look.
    Failed(Reason),
}

/// One tenure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Node.
    pub node: String,
    /// Vendor.
    pub vendor: Vendor,
    /// Cohort that is wanted; `None` when the node is to be given up.
    pub cohort: Option<String>,
    /// Where it stands.
    pub stage: Stage,
    /// Since when, in seconds since the Unix epoch.
    pub since_s: i64,
}

impl Standing {
    /// Reads it off an outcome. `fenced`: the vendor's fence is up on the node. `stuck_after_s`: how long a step may last
    /// before its node no longer counts as moving.
    #[must_use]
    pub fn of(outcome: &TenureOutcome, fenced: bool, now_s: i64, stuck_after_s: u64) -> Self {
        let TenureOutcome {
            node,
            vendor,
            cohort,
            matched,
            owner,
            excluded: _,
            step,
            blocker,
            since_s,
        } = outcome;
        let pace = blocker
            .as_ref()
            .is_some_and(|blocker| is_pace(blocker.reason));
        let needs_person = blocker
            .as_ref()
            .is_some_and(|blocker| match blocker.reason.kind() {
                Kind::Blocked | Kind::Conflicted | Kind::Excluded => true,
                Kind::Waiting => false,
            });
        let overdue =
            now_s.saturating_sub(*since_s) > i64::try_from(stuck_after_s).unwrap_or(i64::MAX);
        let changed = match step {
            Step::Reshape | Step::HandWord | Step::Grant | Step::Verify => true,
            Step::None
            | Step::Discover
            | Step::Fence
            | Step::Drain
            | Step::Attest
            | Step::Revoke
            | Step::Vacate
            | Step::Unfence
            | Step::Held
            | Step::Hold => false,
        };
        let stage = match (owner, fenced, blocker) {
            (_, true, Some(blocker)) if needs_person && changed => Stage::Failed(blocker.reason),
            (_, true, _) if needs_person || overdue => Stage::Stuck,
            (_, true, _) => Stage::UnderWay,
            (None, false, _) => Stage::Unowned,
            (Some(_), false, Some(_)) if pace && *step == Step::Held => Stage::AsksRestart,
            (Some(_), false, Some(_)) if pace => Stage::AsksHandover,
            (Some(_), false, Some(blocker)) if needs_person && changed => {
                Stage::Failed(blocker.reason)
            }
            (Some(_), false, _) if changed => Stage::Verifying,
            (Some(_), false, None) if *step == Step::Held => Stage::Settled,
            (Some(_), false, _) => Stage::Still,
        };
        let cohort = cohort.clone().filter(|_| *matched);
        Self {
            node: node.clone(),
            vendor: *vendor,
            cohort,
            stage,
            since_s: *since_s,
        }
    }
}

/// Whether a reason is one of this module's: it goes when the node's turn comes.
#[must_use]
pub const fn is_pace(reason: Reason) -> bool {
    matches!(
        reason,
        Reason::BudgetExhausted | Reason::Paused | Reason::RolloutHalted | Reason::MassChange
    )
}

/// Whether something is owned there, or on its way from one owner to the next.
pub(super) const fn is_owned(stage: Stage) -> bool {
    !matches!(stage, Stage::Unowned)
}
