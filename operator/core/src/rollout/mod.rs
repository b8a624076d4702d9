//! Which nodes may start a change now.
//!
//! [`admit`] looks at where every tenure stands and answers with the ones that may start; nobody else may. It remembers
//! nothing: who is under way is read off the nodes, so that a restarted controller neither forgets a place that is taken nor
//! gives one away twice. The caller counts a node as under way from the moment it decided to write, and no fence goes up on an
//! owned node before its place is claimed where every controller sees it, see [`claim`].
//!
//! | rule | why so |
//! |---|---|
//! | places are counted in nodes, cluster-wide and per cohort | two vendors on one node are one node that workloads miss |
//! | a first ownership takes no place | nothing is taken away: the node offered no devices before |
//! | a handover waits for fenced nodes; a restart waits for those and for restarting ones | a restart interrupts no workload, and nodes that join verify their first owner all the time: they must not starve handovers |
//! | whoever asked first goes first | a newcomer with an earlier name must not take the place of one that is about to write |
//! | canaries first: until so many nodes of the cohort have held for the soak time, no more than so many may be on the way | a bad image or layout shows on one node |
//! | a node that fails *after* its change halts its cohort | the next one would fail likewise |
//! | a node that is stuck *before* its change leaves the window, as long as no more are stuck than the budget | one stuck node must not hold the fleet, and many stuck nodes must not eat it: each is fenced |
//! | paused: nothing starts, what is under way finishes | |
//! | giving up more than half of what is owned waits for a person | a selector or label that vanished looks the same as an order |
//!
//! While the whole resource is being deleted, only the budget counts: the person has said what is meant.

mod claims;
mod cohort;
mod mass;
mod stage;
mod window;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use cohort::CohortPace;
use window::Window;

pub use claims::{Claim, MAX_CLAIMS, claim};
pub use mass::{Confirmation, MASS_CHANGE_MIN_NODES, MASS_CHANGE_PERCENT};
pub use stage::{Stage, Standing, is_pace};

use crate::blocker::{Blocker, Reason};
use crate::intent::Intent;
use crate::vendor::Vendor;

/// What the pace depends on beside the nodes.
#[derive(Clone, Copy, Debug)]
pub struct Rules<'a> {
    /// Budgets, canaries, pause.
    pub intent: &'a Intent,
    /// Generation of the spec that the intent was parsed from.
    pub generation: i64,
    /// The person's confirmation, if any.
    pub confirmed: Option<Confirmation>,
    /// The resource is being deleted.
    pub tearing_down: bool,
    /// Seconds since the Unix epoch.
    pub now_s: i64,
}

/// Who may start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Admission {
    starts: BTreeSet<(String, Vendor)>,
    /// Why the others of a cohort (`None`: of those to be given up) wait.
    refusals: BTreeMap<Option<String>, Blocker>,
    /// When the answer may change by time alone, in seconds from `now`.
    pub wake_s: Option<u64>,
}

impl Admission {
    /// The tenures that may start, to look at them again.
    pub fn starts(&self) -> impl Iterator<Item = (&str, Vendor)> {
        self.starts
            .iter()
            .map(|(node, vendor)| (node.as_str(), *vendor))
    }

    /// Whether one may. `cohort` is the wanted one, `None` for a node that is to be given up. A node that has not asked yet
    /// is refused: it is asked for by its outcome, and admitted in order.
    ///
    /// # Errors
    /// Why not (yet).
    pub fn may_start(
        &self,
        node: &str,
        vendor: Vendor,
        cohort: Option<&str>,
    ) -> Result<(), Blocker> {
        // A lookup by reference needs an owned key here; the node's name is short.
        if self.starts.contains(&(node.to_owned(), vendor)) {
            return Ok(());
        }
        let refusal = self.refusals.get(&cohort.map(str::to_owned)).cloned();
        Err(refusal
            .unwrap_or_else(|| Blocker::new(Reason::BudgetExhausted, "its turn has not come yet")))
    }
}

/// Decides who may start.
#[must_use]
pub fn admit(rules: &Rules<'_>, standings: &[Standing]) -> Admission {
    let fleet = Window::cluster(rules.intent, standings);
    let mut pace = Pace {
        rules,
        mass_change: mass::mass_change(rules, standings),
        cohorts: rules
            .intent
            .cohorts
            .values()
            .map(|cohort| {
                (
                    cohort.name.as_str(),
                    CohortPace::of(cohort, rules, standings),
                )
            })
            .collect(),
        fleet,
    };
    let mut asking: Vec<&Standing> = standings
        .iter()
        .filter(|standing| matches!(standing.stage, Stage::AsksHandover | Stage::AsksRestart))
        .collect();
    asking.sort_by_key(|standing| (standing.since_s, &standing.node, standing.vendor));

    let mut admission = Admission::default();
    for standing in asking {
        match pace.check(standing) {
            Ok(()) => {
                pace.take(standing);
                admission
                    .starts
                    .insert((standing.node.clone(), standing.vendor));
            }
            Err(why) => {
                admission
                    .refusals
                    .entry(standing.cohort.clone())
                    .or_insert(why);
            }
        }
    }
    admission.wake_s = pace
        .cohorts
        .values()
        .filter_map(|cohort| cohort.soak_left_s)
        .min();
    admission
}

struct Pace<'a> {
    rules: &'a Rules<'a>,
    mass_change: Option<Blocker>,
    cohorts: BTreeMap<&'a str, CohortPace>,
    fleet: Window,
}

impl Pace<'_> {
    fn check(&self, standing: &Standing) -> Result<(), Blocker> {
        let restart = standing.stage == Stage::AsksRestart;
        if !self.rules.tearing_down {
            if self.rules.intent.rollout.paused {
                return Err(Blocker::new(
                    Reason::Paused,
                    "rollout.paused is true: no change starts",
                ));
            }
            if let (None, Some(why)) = (&standing.cohort, &self.mass_change) {
                return Err(why.clone());
            }
        }
        if let Some(name) = &standing.cohort
            && let Some(cohort) = self.cohorts.get(name.as_str())
        {
            cohort.check(name, &standing.node, restart, &self.rules.intent.rollout)?;
        }
        if self.fleet.has_room(&standing.node, restart) {
            return Ok(());
        }
        Err(self.fleet.full("of the cluster"))
    }

    fn take(&mut self, standing: &Standing) {
        self.fleet.take(standing);
        if let Some(cohort) = standing
            .cohort
            .as_deref()
            .and_then(|name| self.cohorts.get_mut(name))
        {
            cohort.window.take(standing);
            cohort.canaries_on_the_way += 1;
        }
    }
}
