//! Exact placement: where each wanted instance goes, or the proof that they cannot all be had.
//!
//! The items are placed by depth-first search with backtracking, memory size descending and *highest start first*. The order is
//! what makes the search short: on an empty 7-slice board size-descending with the highest start never has to go back, while
//! the lowest start fails for mixes such as 3g+2g+2g (2g has no start 6). Equal instances are interchangeable, so only
//! descending starts are tried among them. A search that finds nothing has looked at every arrangement.

use std::collections::BTreeMap;

use super::{Placement, Profile};

/// Placements tried before a search gives up. On every published board the worst answer takes less than a hundredth of it; it
/// bounds what a broken table could cost.
pub const MAX_TRIES: u32 = 200_000;

/// Why instances cannot be placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Impossible {
    /// Every arrangement was looked at.
    NoArrangement,
    /// [`MAX_TRIES`] placements were tried without an answer: nothing is known.
    Undecided,
}

impl Placement {
    /// The units as a bit mask, or `None` when they lie beyond the 64th or are none.
    #[must_use]
    pub fn mask(self) -> Option<u64> {
        let Self { start, size } = self;
        if size == 0 || u32::from(start) + u32::from(size) > u64::BITS {
            return None;
        }
        Some((u64::MAX >> (u64::BITS - u32::from(size))) << start)
    }
}

/// Places `wanted` (index into `profiles` → count) around the units in `occupied`. `tries` counts down from [`MAX_TRIES`].
///
/// # Errors
/// No arrangement exists, or none was found within the bound.
pub(super) fn place(
    profiles: &[Profile],
    occupied: u64,
    wanted: &BTreeMap<usize, u32>,
    tries: &mut u32,
) -> Result<Vec<(u32, Placement)>, Impossible> {
    let mut items: Vec<Item<'_>> = wanted
        .iter()
        .filter_map(|(&index, &count)| Some(Item::of(profiles.get(index)?, count)))
        .collect();
    items.sort_by_key(|item| {
        let Item { profile, slots, .. } = item;
        (
            std::cmp::Reverse(profile.size),
            slots.len(),
            profile.id,
            &profile.name,
        )
    });
    let mut found = Vec::new();
    let mut search = Search {
        items: &items,
        tries,
        found: &mut found,
    };
    search.from(0, 0, 0, occupied)?;
    Ok(found)
}

/// Equal instances to place.
struct Item<'a> {
    profile: &'a Profile,
    count: u32,
    /// Placements with their masks, highest start first.
    slots: Vec<(Placement, u64)>,
}

impl<'a> Item<'a> {
    fn of(profile: &'a Profile, count: u32) -> Self {
        let mut slots: Vec<(Placement, u64)> = profile
            .starts
            .iter()
            .filter_map(|&start| {
                let placement = Placement {
                    start,
                    size: profile.size,
                };
                Some((placement, placement.mask()?))
            })
            .collect();
        slots.sort_by_key(|(placement, _)| std::cmp::Reverse(placement.start));
        slots.dedup();
        Self {
            profile,
            count,
            slots,
        }
    }
}

struct Search<'a> {
    items: &'a [Item<'a>],
    tries: &'a mut u32,
    found: &'a mut Vec<(u32, Placement)>,
}

impl Search<'_> {
    /// Places everything from instance `nth` of item `index` on, whose slots before `slot` are spent.
    fn from(
        &mut self,
        index: usize,
        nth: u32,
        slot: usize,
        occupied: u64,
    ) -> Result<(), Impossible> {
        let Some(item) = self.items.get(index) else {
            return Ok(());
        };
        if nth == item.count {
            return self.from(index + 1, 0, 0, occupied);
        }
        for (at, &(placement, mask)) in item.slots.iter().enumerate().skip(slot) {
            *self.tries = self.tries.checked_sub(1).ok_or(Impossible::Undecided)?;
            if mask & occupied != 0 {
                continue;
            }
            self.found.push((item.profile.id, placement));
            match self.from(index, nth + 1, at + 1, occupied | mask) {
                Err(Impossible::NoArrangement) => {
                    self.found.pop();
                }
                done @ (Ok(()) | Err(Impossible::Undecided)) => return done,
            }
        }
        Err(Impossible::NoArrangement)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::PUBLISHED_BOARDS;

    #[test]
    fn a_placement_is_a_mask_of_its_units_up_to_the_64th() {
        let mask = |start, size| Placement { start, size }.mask();
        assert_eq!(mask(0, 1), Some(1));
        assert_eq!(mask(4, 4), Some(0b1111_0000));
        assert_eq!(mask(0, 64), Some(u64::MAX));
        assert_eq!(mask(63, 1), Some(1 << 63));
        assert_eq!((mask(63, 2), mask(0, 65), mask(3, 0)), (None, None, None));
    }

    /// Every multiset within the rows' highest counts.
    fn multisets(profiles: &[Profile]) -> Vec<BTreeMap<usize, u32>> {
        let start = vec![BTreeMap::new()];
        profiles
            .iter()
            .enumerate()
            .fold(start, |all, (row, profile)| {
                let with = |set: &BTreeMap<usize, u32>, count: u32| {
                    let mut set = set.clone();
                    set.extend((count > 0).then_some((row, count)));
                    set
                };
                let counts = 0..=u32::from(profile.max);
                all.iter()
                    .flat_map(|set| counts.clone().map(|count| with(set, count)))
                    .collect()
            })
    }

    #[test]
    fn the_bound_is_a_hundred_times_what_any_published_board_needs() {
        let mut worst = 0;
        for board in PUBLISHED_BOARDS {
            let profiles = board.profiles();
            for wanted in multisets(&profiles) {
                let mut tries = MAX_TRIES;
                let answer = place(&profiles, 0, &wanted, &mut tries);
                assert_ne!(answer, Err(Impossible::Undecided), "{}", board.name);
                worst = worst.max(MAX_TRIES - tries);
            }
        }
        println!("the longest search over every published board takes {worst} tries");
        assert!(worst * 100 < MAX_TRIES, "{worst}");
    }
}
