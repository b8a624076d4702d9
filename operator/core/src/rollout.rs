//! Which nodes may start a change now.
//!
//! [`admit`] looks at where every tenure stands and answers with the ones that may start; nobody else may. It remembers
//! nothing: who is under way is read off the nodes, so that a restarted controller neither forgets a place that is taken nor
//! gives one away twice. The caller counts a node as under way from the moment it decided to write.
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

use std::collections::{BTreeMap, BTreeSet};

use crate::blocker::{Blocker, Kind, Reason};
use crate::intent::{Cohort, Intent};
use crate::names;
use crate::summary::TenureOutcome;
use crate::tenure::Step;
use crate::vendor::Vendor;

/// A change that gives up fewer nodes than this is never held back: a person who empties a small pool means it.
pub const MASS_CHANGE_MIN_NODES: usize = 5;
/// A change that gives up more than this share of the owned nodes, in per cent, waits for confirmation.
pub const MASS_CHANGE_PERCENT: usize = 50;

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

/// A person's word that a mass change is meant: the value of the annotation [`names::CONFIRM_ANNOTATION`] on the
/// AcceleratorCluster, `<generation>/<nodes>`. It covers that generation of the spec and no more than so many nodes, so that
/// it cannot wave through the next accident.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Confirmation {
    /// Generation of the spec.
    pub generation: i64,
    /// Most nodes that may be given up.
    pub nodes: usize,
}

impl Confirmation {
    /// Reads the annotation. `None` when it is not of this form, which confirms nothing.
    #[must_use]
    pub fn parse(value: &str) -> Option<Self> {
        let (generation, nodes) = value.trim().split_once('/')?;
        Some(Self {
            generation: generation.parse().ok()?,
            nodes: nodes.parse().ok()?,
        })
    }
}

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
        mass_change: mass_change(rules, standings),
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

/// Places for nodes.
struct Window {
    budget: usize,
    /// Nodes behind a fence that move.
    under_way: BTreeSet<String>,
    /// Nodes whose operand restarts, or that just got their first.
    verifying: BTreeSet<String>,
    /// Nodes behind a fence that do not move.
    stuck: BTreeSet<String>,
}

impl Window {
    fn cluster(intent: &Intent, standings: &[Standing]) -> Self {
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

    fn of<'a>(budget: usize, standings: impl Iterator<Item = &'a Standing>) -> Self {
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
    fn has_room(&self, node: &str, restart: bool) -> bool {
        let beyond = self.stuck.len().saturating_sub(self.budget);
        // A restart cannot be told from a first verification, and those come and go with autoscaling.
        let restarting = if restart {
            self.verifying.difference(&self.under_way).count()
        } else {
            0
        };
        self.under_way.contains(node) || self.under_way.len() + restarting + beyond < self.budget
    }

    fn take(&mut self, standing: &Standing) {
        let set = if standing.stage == Stage::AsksRestart {
            &mut self.verifying
        } else {
            &mut self.under_way
        };
        set.insert(standing.node.clone());
    }

    fn full(&self, of: &str) -> Blocker {
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

struct CohortPace {
    window: Window,
    /// A node that failed after its change, and why.
    halted_by: Option<(String, Reason)>,
    /// How many canaries have to soak before the rest may follow; 0 when they have.
    canaries_wanted: usize,
    /// Nodes that changed and soak, and nodes on their way.
    canaries_on_the_way: usize,
    /// Time until the soak may be over.
    soak_left_s: Option<u64>,
}

impl CohortPace {
    fn of(cohort: &Cohort, rules: &Rules<'_>, standings: &[Standing]) -> Self {
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

    fn check(
        &self,
        name: &str,
        node: &str,
        restart: bool,
        rollout: &crate::intent::Rollout,
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

const fn is_owned(stage: Stage) -> bool {
    !matches!(stage, Stage::Unowned)
}

/// Why nodes may not be given up, when too many ask for it at once and nobody has confirmed.
fn mass_change(rules: &Rules<'_>, standings: &[Standing]) -> Option<Blocker> {
    let nodes = |leaving: bool| {
        let counts = |standing: &&Standing| {
            is_owned(standing.stage)
                && (!leaving
                    || (standing.cohort.is_none() && standing.stage == Stage::AsksHandover))
        };
        standings
            .iter()
            .filter(counts)
            .map(|standing| standing.node.as_str())
            .collect::<BTreeSet<_>>()
            .len()
    };
    let (owned, leaving) = (nodes(false), nodes(true));
    let confirmed = rules.confirmed.is_some_and(|confirmed| {
        confirmed.generation == rules.generation && leaving <= confirmed.nodes
    });
    if leaving < MASS_CHANGE_MIN_NODES || leaving * 100 <= owned * MASS_CHANGE_PERCENT || confirmed
    {
        return None;
    }
    Some(Blocker::new(
        Reason::MassChange,
        format!(
            "{leaving} of {owned} owned nodes would be given up at once, which is more than {MASS_CHANGE_PERCENT} %; to confirm: \
             kubectl annotate acceleratorcluster {} {}={}/{leaving} --overwrite",
            names::SINGLETON,
            names::CONFIRM_ANNOTATION,
            rules.generation
        ),
    ))
}

#[cfg(test)]
#[path = "rollout_tests.rs"]
mod tests;
