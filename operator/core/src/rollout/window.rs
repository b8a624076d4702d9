//! Places for nodes that are unavailable at once.

use std::collections::BTreeSet;

use super::stage::is_owned;
use super::{Stage, Standing};
use crate::blocker::{Blocker, Reason};
use crate::intent::Intent;

/// Places for nodes.
pub(super) struct Window {
    budget: usize,
    /// Nodes behind a fence that move.
    under_way: BTreeSet<String>,
    /// Nodes whose operand restarts, or that just got their first.
    verifying: BTreeSet<String>,
    /// Nodes behind a fence that do not move.
    stuck: BTreeSet<String>,
}

impl Window {
    pub(super) fn cluster(intent: &Intent, standings: &[Standing]) -> Self {
        let owned: BTreeSet<&str> = standings
            .iter()
            .filter(|standing| is_owned(standing.stage))
            .map(|standing| standing.node.as_str())
            .collect();
        Self::of(
            intent.rollout.max_unavailable.of(owned.len()),
            standings.iter(),
        )
    }

    pub(super) fn of<'a>(budget: usize, standings: impl Iterator<Item = &'a Standing>) -> Self {
        let mut window = Self {
            budget,
            under_way: BTreeSet::new(),
            verifying: BTreeSet::new(),
            stuck: BTreeSet::new(),
        };
        for standing in standings {
            let set = match standing.stage {
                Stage::UnderWay => &mut window.under_way,
                Stage::Verifying => &mut window.verifying,
                // A failed node is as unavailable as a stuck one.
                Stage::Stuck | Stage::Failed(_) => &mut window.stuck,
                Stage::Unowned
                | Stage::Settled
                | Stage::Still
                | Stage::AsksHandover
                | Stage::AsksRestart => continue,
            };
            set.insert(standing.node.clone());
        }
        window
    }

    /// Stuck nodes are free of charge up to the budget; beyond it they hold places.
    pub(super) fn has_room(&self, node: &str, restart: bool) -> bool {
        let beyond = self.stuck.len().saturating_sub(self.budget);
        // A restart cannot be told from a first verification, and those come and go with autoscaling.
        let restarting = if restart {
            self.verifying.difference(&self.under_way).count()
        } else {
            0
        };
        self.under_way.contains(node) || self.under_way.len() + restarting + beyond < self.budget
    }

    pub(super) fn take(&mut self, standing: &Standing) {
        let set = if standing.stage == Stage::AsksRestart {
            &mut self.verifying
        } else {
            &mut self.under_way
        };
        set.insert(standing.node.clone());
    }

    pub(super) fn full(&self, of: &str) -> Blocker {
        let stuck = if self.stuck.len() > self.budget {
            ", and more nodes than that are stuck"
        } else {
            ""
        };
        Blocker::new(
            Reason::BudgetExhausted,
            format!(
                "waiting for a place: at most {} node(s) {of} may be unavailable at once{stuck}",
                self.budget
            ),
        )
    }
}
