//! In which order nodes would go: the rollout's own rules, played forward as if every change succeeded.

use std::collections::{BTreeMap, BTreeSet};

use freehold_core::blocker::Blocker;
use freehold_core::intent::{Budget, DrainPolicy, Intent};
use freehold_core::rollout::{Confirmation, Rules, Stage, Standing, admit};
use freehold_core::vendor::Vendor;

use super::World;
use super::moves::{Class, Move, Settled, Stay};
use crate::age;

/// Waves played. What comes later is said to come later.
const WAVES: usize = 100;

/// What the pace depends on.
pub(super) struct Pace<'a> {
    pub(super) intent: &'a Intent,
    pub(super) generation: i64,
    pub(super) confirmed: Option<Confirmation>,
    pub(super) tearing_down: bool,
    pub(super) now_s: i64,
}

/// Gives every move its wave, and every one that may not start the reason.
pub(super) fn assign(
    moves: &mut [Move],
    world: &World,
    stays: &[Stay],
    settled: &[Settled],
    pace: &Pace<'_>,
) {
    let mut now_s = pace.now_s;
    let since = |node: &str, vendor: Vendor| {
        let tenure = world
            .records
            .get(node)
            .and_then(|record| record.status.as_ref()?.tenures.vendor(vendor));
        tenure.map_or(0, |tenure| tenure.since.0.as_second())
    };
    let mut standings: BTreeMap<(String, Vendor), Standing> = BTreeMap::new();
    let mut stand =
        |node: &str, vendor: Vendor, cohort: Option<String>, stage: Stage, since_s: i64| {
            standings.insert(
                (node.to_owned(), vendor),
                Standing {
                    node: node.to_owned(),
                    vendor,
                    cohort,
                    stage,
                    since_s,
                },
            );
        };
    for place in settled {
        stand(
            &place.node,
            place.vendor,
            Some(place.cohort.clone()),
            Stage::Settled,
            since(&place.node, place.vendor),
        );
    }
    for stay in stays {
        let stage = if stay.owner.is_some() {
            Stage::Still
        } else {
            Stage::Unowned
        };
        stand(
            &stay.node,
            stay.vendor,
            stay.cohort.clone(),
            stage,
            since(&stay.node, stay.vendor),
        );
    }
    for move_ in moves.iter_mut() {
        let stage = match move_.class {
            _ if move_.under_way => Stage::UnderWay,
            Class::FirstOwner => Stage::Unowned,
            Class::Restart => Stage::AsksRestart,
            Class::Reshape | Class::Handover | Class::Release => Stage::AsksHandover,
        };
        // A first ownership takes no place, and what is under way goes on.
        if matches!(stage, Stage::UnderWay | Stage::Unowned) {
            move_.wave = Some(1);
        }
        stand(
            &move_.node,
            move_.vendor,
            move_.to_cohort.clone(),
            stage,
            now_s,
        );
    }
    for wave in 1..=WAVES {
        let list: Vec<Standing> = standings.values().cloned().collect();
        let rules = Rules {
            intent: pace.intent,
            generation: pace.generation,
            confirmed: pace.confirmed,
            tearing_down: pace.tearing_down,
            now_s,
        };
        let admission = admit(&rules, &list);
        let starts: BTreeSet<(String, Vendor)> = admission
            .starts()
            .map(|(node, vendor)| (node.to_owned(), vendor))
            .collect();
        let going: BTreeSet<(String, Vendor)> = list
            .iter()
            .filter(|standing| standing.stage == Stage::UnderWay)
            .map(|standing| (standing.node.clone(), standing.vendor))
            .collect();
        if starts.is_empty() && going.is_empty() {
            // Nothing moves by itself any more: say why of those that still ask.
            for move_ in moves.iter_mut().filter(|move_| move_.wave.is_none()) {
                if let Err(why) =
                    admission.may_start(&move_.node, move_.vendor, move_.to_cohort.as_deref())
                {
                    push(&mut move_.blockers, why);
                }
            }
            return;
        }
        for move_ in moves.iter_mut().filter(|move_| move_.wave.is_none()) {
            if starts.contains(&(move_.node.clone(), move_.vendor)) {
                move_.wave = Some(wave);
            }
        }
        now_s += i64::try_from(pace.intent.rollout.canary_soak_s).unwrap_or(i64::MAX / 4) + 1;
        for key in starts.union(&going) {
            if let Some(standing) = standings.get_mut(key) {
                // Settled for as long as canaries have to soak; a released node is owned by nobody.
                standing.stage = if standing.cohort.is_some() {
                    Stage::Settled
                } else {
                    Stage::Unowned
                };
                standing.since_s =
                    now_s - i64::try_from(pace.intent.rollout.canary_soak_s).unwrap_or(0) - 1;
            }
        }
    }
}

fn push(blockers: &mut Vec<Blocker>, blocker: Blocker) {
    if !blockers.contains(&blocker) {
        blockers.push(blocker);
    }
}

/// The pace in words.
pub(super) fn words(intent: &Intent) -> Vec<String> {
    let rollout = &intent.rollout;
    let seconds = |seconds: u64| age::short(i64::try_from(seconds).unwrap_or(i64::MAX));
    let mut words = vec![format!(
        "At most {} in handover at once.",
        budget(rollout.max_unavailable)
    )];
    for cohort in intent.cohorts.values() {
        if let Some(own) = cohort.max_unavailable {
            words.push(format!(
                "At most {} of cohort {}.",
                budget(own),
                cohort.name
            ));
        }
    }
    if rollout.canary_nodes > 0 {
        words.push(format!(
            "{} of each cohort first, for {}.",
            nodes(rollout.canary_nodes),
            seconds(rollout.canary_soak_s)
        ));
    }
    words.push(match rollout.drain {
        DrainPolicy::Wait => format!(
            "Consumers end by themselves; after {} a drain is reported.",
            seconds(rollout.drain_timeout_s)
        ),
        DrainPolicy::Evict => format!(
            "Consumers are evicted, PodDisruptionBudgets respected; after {} a drain is reported.",
            seconds(rollout.drain_timeout_s)
        ),
    });
    if rollout.paused {
        words.push("Paused: nothing new starts.".to_owned());
    }
    words
}

fn budget(budget: Budget) -> String {
    match budget {
        Budget::Nodes(count) => nodes(count),
        Budget::Percent(percent) => format!("{percent}% of the nodes"),
    }
}

fn nodes(count: u32) -> String {
    if count == 1 {
        "1 node".to_owned()
    } else {
        format!("{count} nodes")
    }
}
