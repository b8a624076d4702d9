//! Who may start a change now: asked of `core` whenever what it depends on changed.

use std::time::{Duration, Instant};

use freehold_api::AcceleratorCluster;
use freehold_core::blocker::Blocker;
use freehold_core::names;
use freehold_core::rollout::{self, Admission, Confirmation, Rules, Stage, Standing};
use freehold_core::tenure::Step;
use freehold_core::vendor::Vendor;
use jiff::Timestamp;

use super::Engine;
use crate::wanted::Wanted;

/// Least time between two answers: a fleet that changes all the time is paced by the look that follows.
const INTERVAL: Duration = Duration::from_millis(250);

/// What is remembered about the pace; all of it follows from outcomes.
pub(super) struct Pacer {
    admission: Admission,
    changed: bool,
    /// Earliest next answer. A moment in the past at first, so that what is due can be told before it is asked for.
    not_before: Instant,
    /// When the answer changes by time alone (canaries soak).
    due: Option<Instant>,
}

impl Default for Pacer {
    fn default() -> Self {
        Self {
            admission: Admission::default(),
            changed: false,
            not_before: Instant::now(),
            due: None,
        }
    }
}

impl Pacer {
    /// Something that the pace depends on changed.
    pub(super) const fn something_changed(&mut self) {
        self.changed = true;
    }

    pub(super) fn due(&self) -> Option<Instant> {
        let asked = self.changed.then_some(self.not_before);
        [asked, self.due].into_iter().flatten().min()
    }
}

impl Engine {
    /// Whether a handover or restart may start here. A node that has not asked yet is refused, and with that asks.
    pub(super) fn may_start(
        &self,
        name: &str,
        vendor: Vendor,
        cohort: Option<&str>,
    ) -> Result<(), Blocker> {
        self.place_asked(name, vendor)
            .unwrap_or_else(|| self.pacer.admission.may_start(name, vendor, cohort))
    }

    /// Where every tenure stands.
    pub(super) fn standings(&self, now_s: i64) -> Vec<Standing> {
        let (world, stuck_after_s) = (&self.world, self.limits.patience_s);
        self.nodes
            .iter()
            .flat_map(|(name, state)| {
                let node = world.nodes.get(name);
                Vendor::ALL.into_iter().filter_map(move |vendor| {
                    let outcome = state.outcomes.get(vendor).as_ref()?;
                    // A node whose fence was decided on counts as fenced, though the write is still under way.
                    let fenced = outcome.step == Step::Fence
                        || node.is_some_and(|node| node.fence(vendor).is_some());
                    Some(Standing::of(outcome, fenced, now_s, stuck_after_s))
                })
            })
            .collect()
    }

    /// What the pace depends on beside the nodes.
    pub(super) fn rules<'a>(
        cluster: &AcceleratorCluster,
        wanted: &'a Wanted,
        now_s: i64,
    ) -> Rules<'a> {
        let confirmed = cluster
            .metadata
            .annotations
            .as_ref()
            .and_then(|annotations| annotations.get(names::CONFIRM_ANNOTATION));
        Rules {
            intent: &wanted.intent,
            generation: cluster.metadata.generation.unwrap_or_default(),
            confirmed: confirmed.and_then(|value| Confirmation::parse(value)),
            tearing_down: wanted.tearing_down,
            now_s,
        }
    }

    /// Asks `core` anew if anything changed, and has the nodes concerned looked at again.
    pub(super) fn pace(&mut self, now: Instant) {
        if self.pacer.due().is_none_or(|due| due > now) {
            return;
        }
        self.pacer.changed = false;
        self.pacer.due = None;
        self.pacer.not_before = now + INTERVAL;
        let (Some(wanted), Some(cluster)) = (self.wanted.clone(), self.world.cluster()) else {
            return;
        };
        let now_s = Timestamp::now().as_second();
        let stuck_after_s = self.limits.patience_s;
        let standings = self.standings(now_s);
        let asking = |standing: &&Standing| {
            matches!(standing.stage, Stage::AsksHandover | Stage::AsksRestart)
        };
        if !standings.iter().any(|standing| asking(&standing)) {
            self.pacer.admission = Admission::default();
            return;
        }
        let rules = Self::rules(cluster, &wanted, now_s);
        let admission = rollout::admit(&rules, &standings);
        // A node under way counts as stuck by time alone.
        let overdue_s = standings
            .iter()
            .filter(|standing| standing.stage == Stage::UnderWay)
            .filter_map(|standing| {
                let passed = u64::try_from(now_s.saturating_sub(standing.since_s)).unwrap_or(0);
                stuck_after_s.saturating_add(1).checked_sub(passed)
            })
            .min();
        self.pacer.due = [admission.wake_s, overdue_s]
            .into_iter()
            .flatten()
            .min()
            .map(|seconds| now + Duration::from_secs(seconds.max(1)));
        if admission != self.pacer.admission {
            let asking = standings
                .iter()
                .filter(asking)
                .filter(|standing| {
                    let answer = |of: &Admission| {
                        of.may_start(&standing.node, standing.vendor, standing.cohort.as_deref())
                    };
                    answer(&admission) != answer(&self.pacer.admission)
                })
                .map(|standing| standing.node.clone());
            self.world.dirty.nodes.extend(asking);
            self.pacer.admission = admission;
        }
    }
}
