//! The whole truth about a board, found without the solver: every set of placements that do not overlap.

use std::collections::{BTreeMap, BTreeSet};

use freehold_core::catalogue::PublishedBoard;
use freehold_core::geometry::{Instance, Placement, Profile, Refusal, feasible, plan};
use freehold_core::report::MigProfileCount;

/// Instances by row of the table and first unit, in that order.
pub type Arrangement = Vec<(usize, u8)>;
/// Instances by row of the table.
pub type Counts = Vec<u8>;

/// A board with all that it can carry.
pub struct Truth {
    pub profiles: Vec<Profile>,
    /// Every arrangement, by how many instances of which row it holds.
    pub arrangements: BTreeMap<Counts, Vec<Arrangement>>,
}

/// How often solver and truth said the same.
#[derive(Debug, Default)]
pub struct Agreement {
    /// Multisets within the rows' highest counts, without the empty one.
    pub multisets: usize,
    /// Of these, those that some arrangement holds.
    pub feasible: usize,
    /// Arrangements of the board.
    pub arrangements: usize,
}

impl Truth {
    pub fn of(board: &PublishedBoard) -> Self {
        let profiles = board.profiles();
        let places: Vec<(usize, u8)> = profiles
            .iter()
            .enumerate()
            .flat_map(|(row, profile)| profile.starts.iter().map(move |&start| (row, start)))
            .collect();
        let mut truth = Self {
            arrangements: BTreeMap::new(),
            profiles,
        };
        truth.grow(&places, &mut Vec::new(), 0);
        truth
    }

    /// Adds every way to go on with the places that are left.
    fn grow(&mut self, places: &[(usize, u8)], chosen: &mut Arrangement, taken: u128) {
        let counts = self.counts(chosen);
        if self.is_allowed(&counts) {
            self.arrangements
                .entry(counts)
                .or_default()
                .push(chosen.clone());
        }
        for (index, &(row, start)) in places.iter().enumerate() {
            let units = ((1_u128 << self.profiles[row].size) - 1) << start;
            if units & taken == 0 {
                chosen.push((row, start));
                self.grow(&places[index + 1..], chosen, taken | units);
                chosen.pop();
            }
        }
    }

    pub fn counts(&self, arrangement: &Arrangement) -> Counts {
        let mut counts = vec![0; self.profiles.len()];
        for &(row, _) in arrangement {
            counts[row] += 1;
        }
        counts
    }

    /// The rules that are not about places.
    fn is_allowed(&self, counts: &Counts) -> bool {
        let rows = || {
            self.profiles
                .iter()
                .zip(counts)
                .filter(|(_, count)| **count > 0)
        };
        let all_media = rows().any(|(row, _)| row.name.ends_with("+me.all"));
        let others = rows()
            .filter(|(row, _)| !row.name.ends_with("+me.all") && !row.name.ends_with("-me"))
            .count();
        let all_media_rows = rows()
            .filter(|(row, _)| row.name.ends_with("+me.all"))
            .count();
        rows().all(|(row, count)| *count <= row.max)
            && !(all_media && (others > 0 || all_media_rows > 1))
    }

    /// Every multiset within the rows' highest counts.
    pub fn multisets(&self) -> Vec<Counts> {
        self.profiles.iter().fold(vec![Vec::new()], |all, row| {
            all.iter()
                .flat_map(|counts| {
                    (0..=row.max).map(|count| {
                        let mut counts = counts.clone();
                        counts.push(count);
                        counts
                    })
                })
                .collect()
        })
    }

    /// A multiset as it is asked for.
    pub fn asked(&self, counts: &Counts) -> Vec<MigProfileCount> {
        self.profiles
            .iter()
            .zip(counts)
            .filter(|(_, count)| **count > 0)
            .map(|(row, count)| MigProfileCount {
                profile: row.name.clone(),
                count: i32::from(*count),
            })
            .collect()
    }

    /// An arrangement as a driver lists it; the instances in `busy` (by position) are in use.
    pub fn live(&self, arrangement: &Arrangement, busy: u32) -> Vec<Instance> {
        (1..)
            .zip(arrangement)
            .map(|(id, &(row, start))| Instance {
                id,
                profile: self.profiles[row].id,
                placement: Placement {
                    start,
                    size: self.profiles[row].size,
                },
                busy: busy >> (id - 1) & 1 == 1,
            })
            .collect()
    }

    /// Compares the solver's word on every multiset.
    ///
    /// # Panics
    /// Where they differ.
    pub fn agreement(&self) -> Agreement {
        let mut found = Agreement {
            arrangements: self.arrangements.values().map(Vec::len).sum(),
            ..Agreement::default()
        };
        for counts in self.multisets() {
            if counts.iter().all(|count| *count == 0) {
                continue;
            }
            let truth = self.arrangements.contains_key(&counts);
            let said = feasible(0, &self.profiles, &self.asked(&counts));
            assert_eq!(said.is_ok(), truth, "{:?}: {said:?}", self.asked(&counts));
            found.multisets += 1;
            found.feasible += usize::from(truth);
        }
        found
    }

    /// Compares one plan with the best that any arrangement allows, and looks whether it does what it says.
    ///
    /// # Panics
    /// Where it does not.
    pub fn check_plan(&self, from: &Arrangement, busy: u32, to: &Counts) {
        let live = self.live(from, busy);
        let planned = plan(0, &self.profiles, &live, &self.asked(to));
        let Some(ways) = self.arrangements.get(to) else {
            assert!(
                matches!(planned, Err(Refusal::Infeasible(_))),
                "{planned:?}"
            );
            return;
        };
        // Busy instances that can stay, then all that can.
        let best = ways
            .iter()
            .map(|way| {
                let stays = |index: &usize| way.contains(&from[*index]);
                let kept = (0..from.len()).filter(stays);
                let busy_kept = kept.clone().filter(|index| busy >> index & 1 == 1).count();
                (busy_kept, kept.count())
            })
            .max()
            .expect("a way");
        let busy_count = live.iter().filter(|instance| instance.busy).count();
        match planned {
            Err(Refusal::Blocked { instances, .. }) => {
                assert!(busy_count > best.0, "not needed: {live:?} to {to:?}");
                assert_eq!(instances.len(), busy_count - best.0, "{live:?} to {to:?}");
                assert!(instances.iter().all(|one| one.busy && live.contains(one)));
            }
            Err(Refusal::Infeasible(proof)) => panic!("{proof}, yet {ways:?}"),
            Ok(plan) => {
                assert_eq!(busy_count, best.0, "{live:?} to {to:?}");
                assert_eq!(plan.keep.len(), best.1, "{live:?} to {to:?}: {plan:?}");
                assert!(plan.destroy.iter().all(|instance| !instance.busy));
                let both: BTreeSet<&Instance> = plan.keep.iter().chain(&plan.destroy).collect();
                assert_eq!(both, live.iter().collect());
                assert_eq!(both.len(), plan.keep.len() + plan.destroy.len());
                self.check_result(&plan.keep, &plan.create, to);
            }
        }
    }

    fn check_result(&self, keep: &[Instance], create: &[(u32, Placement)], to: &Counts) {
        let kept = keep
            .iter()
            .map(|instance| (instance.profile, instance.placement));
        let mut result: Arrangement = kept
            .chain(create.iter().copied())
            .map(|(id, placement)| {
                let row = self
                    .profiles
                    .iter()
                    .position(|row| row.id == id)
                    .expect("a row");
                assert_eq!(placement.size, self.profiles[row].size);
                (row, placement.start)
            })
            .collect();
        result.sort_unstable();
        let ways = self.arrangements.get(to).expect("a feasible target");
        assert!(
            ways.contains(&result),
            "{result:?} is no arrangement of {to:?}"
        );
    }
}
