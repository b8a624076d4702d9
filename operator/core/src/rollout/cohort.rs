//! One cohort's pace: its own budget, its canaries, and the halt after a failure.

use super::stage::is_owned;
use super::window::Window;
use super::{Rules, Stage, Standing};
use crate::blocker::{Blocker, Reason};
use crate::intent::{Cohort, Rollout};

/// How far one cohort's roll is.
pub(super) struct CohortPace {
    pub(super) window: Window,
    /// A node that failed after its change, and why.
    halted_by: Option<(String, Reason)>,
    /// How many canaries have to soak before the rest may follow; 0 when they have.
    canaries_wanted: usize,
    /// Nodes that changed and soak, and nodes on their way.
    pub(super) canaries_on_the_way: usize,
    /// Time until the soak may be over.
    pub(super) soak_left_s: Option<u64>,
}

impl CohortPace {
    pub(super) fn of(cohort: &Cohort, rules: &Rules<'_>, standings: &[Standing]) -> Self {
        let ours = || {
            standings.iter().filter(|standing| {
                standing.cohort.as_deref() == Some(cohort.name.as_str())
                    && standing.vendor == cohort.vendor
            })
        };
        let owned = ours().filter(|standing| is_owned(standing.stage)).count();
        let budget = cohort
            .max_unavailable
            .map_or(usize::MAX, |budget| budget.of(owned));
        let asking_since = ours()
            .filter(|standing| matches!(standing.stage, Stage::AsksHandover | Stage::AsksRestart))
            .map(|standing| standing.since_s)
            .min();
        // One that was broken before this change began says nothing about the change.
        let halted_by = ours()
            .filter(|standing| asking_since.is_some_and(|asking| standing.since_s >= asking))
            .filter_map(|standing| match standing.stage {
                Stage::Failed(reason) => Some((standing.node.clone(), reason)),
                Stage::Unowned
                | Stage::Settled
                | Stage::Still
                | Stage::AsksHandover
                | Stage::AsksRestart
                | Stage::UnderWay
                | Stage::Verifying
                | Stage::Stuck => None,
            })
            .min();
        let soak_s = i64::try_from(rules.intent.rollout.canary_soak_s).unwrap_or(i64::MAX);
        let soak_left = |standing: &Standing| {
            soak_s
                .saturating_sub(rules.now_s.saturating_sub(standing.since_s))
                .max(0)
        };
        let (soaked, soaking): (Vec<&Standing>, Vec<&Standing>) = ours()
            .filter(|standing| standing.stage == Stage::Settled)
            .partition(|standing| soak_left(standing) == 0);
        let wanted = (rules.intent.rollout.canary_nodes as usize).min(owned);
        let open = soaked.len() >= wanted || rules.tearing_down;
        let moving = ours()
            .filter(|standing| matches!(standing.stage, Stage::UnderWay | Stage::Verifying))
            .count();
        Self {
            window: Window::of(budget, ours()),
            halted_by: halted_by.filter(|_| !rules.tearing_down),
            canaries_wanted: if open { 0 } else { wanted },
            canaries_on_the_way: soaked.len() + soaking.len() + moving,
            soak_left_s: if open || asking_since.is_none() {
                None
            } else {
                soaking
                    .into_iter()
                    .filter_map(|standing| u64::try_from(soak_left(standing)).ok())
                    .min()
            },
        }
    }

    pub(super) fn check(
        &self,
        name: &str,
        node: &str,
        restart: bool,
        rollout: &Rollout,
    ) -> Result<(), Blocker> {
        if let Some((failed, reason)) = &self.halted_by {
            return Err(Blocker::new(
                Reason::RolloutHalted,
                format!(
                    "cohort {name} is halted: node {failed} failed after its change ({reason})"
                ),
            ));
        }
        if self.canaries_wanted > 0 && self.canaries_on_the_way >= self.canaries_wanted {
            return Err(Blocker::new(
                Reason::BudgetExhausted,
                format!(
                    "waiting for {} canary node(s) of cohort {name} to hold for {} s",
                    self.canaries_wanted, rollout.canary_soak_s
                ),
            ));
        }
        if self.window.has_room(node, restart) {
            return Ok(());
        }
        Err(self.window.full(&format!("of cohort {name}")))
    }
}
