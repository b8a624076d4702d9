//! The solver against the whole truth about every published board, and what it promises whatever it is given.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "clippy's allowance for tests does not reach helper functions of an integration test"
)]

mod brute;

use brute::{Arrangement, Truth};
use freehold_core::catalogue::{PUBLISHED_BOARDS, published_board};
use freehold_core::geometry::{Placement, Profile, plan};
use proptest::prelude::*;
use proptest::sample::Index;

fn truth(board: &str) -> Truth {
    Truth::of(published_board(board).expect(board))
}

#[test]
fn the_solver_says_what_brute_force_says_on_every_published_board() {
    let mut all = 0;
    for board in PUBLISHED_BOARDS {
        let found = Truth::of(board).agreement();
        println!(
            "{:<13} {:>6} multisets, {:>4} of them feasible, over {:>5} arrangements: all agree",
            board.name, found.multisets, found.feasible, found.arrangements
        );
        assert!(found.feasible > 0 && found.feasible < found.multisets);
        all += found.multisets;
    }
    println!("{all} answers compared with brute force, 0 differ");
}

#[test]
fn every_change_on_an_a30_keeps_as_much_as_any_arrangement_allows() {
    let a30 = truth("A30");
    let mut compared = 0;
    for from in a30.arrangements.values().flatten() {
        for to in a30.multisets() {
            for busy in 0..1_u32 << from.len() {
                a30.check_plan(from, busy, &to);
                compared += 1;
            }
        }
    }
    println!("A30: {compared} plans compared with the best arrangement, all agree");
    assert!(compared > 10_000);
}

#[test]
fn every_change_of_an_idle_h100_keeps_as_much_as_any_arrangement_allows() {
    let h100 = truth("H100-80");
    let mut compared = 0;
    for from in h100.arrangements.values().flatten() {
        for to in h100.arrangements.keys() {
            h100.check_plan(from, 0, to);
            compared += 1;
        }
    }
    println!("H100-80: {compared} plans compared with the best arrangement, all agree");
    assert!(compared > 10_000);
}

/// What the driver does when it is not told where: the highest free start, in the order of creation.
fn driver_chosen(profiles: &[Profile], order: &[u32]) -> Option<Vec<(u32, u8)>> {
    let mut taken = 0;
    order
        .iter()
        .map(|&id| {
            let row = profiles.iter().find(|row| row.id == id)?;
            let (start, mask) = row.starts.iter().rev().find_map(|&start| {
                let mask = Placement {
                    start,
                    size: row.size,
                }
                .mask()?;
                (mask & taken == 0).then_some((start, mask))
            })?;
            taken |= mask;
            Some((id, start))
        })
        .collect()
}

#[test]
fn explicit_places_carry_what_the_drivers_own_choice_cannot() {
    let a100 = published_board("A100-40").expect("A100-40").profiles();
    // From NVIDIA's user guide: the first order fails with insufficient resources, the second works.
    assert_eq!(driver_chosen(&a100, &[19, 19, 14, 9]), None);
    assert!(driver_chosen(&a100, &[9, 19, 14, 19]).is_some());
    let mut wanted = truth("A100-40").asked(&vec![0, 0, 1, 1, 0, 2, 0]);
    wanted.sort();
    assert_eq!(
        wanted
            .iter()
            .map(|one| one.profile.as_str())
            .collect::<Vec<_>>(),
        ["1g.5gb", "2g.10gb", "3g.20gb"]
    );
    let made = plan(0, &a100, &[], &wanted).expect("it fits").create;
    let places: Vec<(u32, u8)> = made.iter().map(|(id, place)| (*id, place.start)).collect();
    assert_eq!(places, [(19, 0), (19, 1), (14, 2), (9, 4)]);
}

#[test]
fn the_highest_start_first_never_goes_back_on_an_empty_h100_and_the_lowest_does() {
    let h100 = truth("H100-80");
    let greedy = |lowest: bool, counts: &brute::Counts| {
        let mut items: Vec<&Profile> = h100
            .profiles
            .iter()
            .zip(counts)
            .flat_map(|(row, &count)| std::iter::repeat_n(row, usize::from(count)))
            .collect();
        items.sort_by_key(|row| std::cmp::Reverse(row.size));
        let mut taken = 0_u64;
        items.iter().all(|row| {
            let mut starts = row.starts.clone();
            if !lowest {
                starts.reverse();
            }
            let free = starts
                .iter()
                .filter_map(|&start| {
                    Placement {
                        start,
                        size: row.size,
                    }
                    .mask()
                })
                .find(|mask| mask & taken == 0);
            taken |= free.unwrap_or(0);
            free.is_some()
        })
    };
    let failing = |lowest: bool| {
        let all = h100.arrangements.keys();
        all.filter(|counts| !greedy(lowest, counts)).count()
    };
    assert_eq!(failing(false), 0);
    assert!(failing(true) > 0);
}

/// A board, something on it, who uses it, something wanted.
fn change() -> impl Strategy<Value = (&'static str, Index, u32, Index, bool)> {
    let boards = prop::sample::select(vec!["A30", "A100-40", "H200", "GB200-189", "RTX-PRO-6000"]);
    (
        boards,
        any::<Index>(),
        any::<u32>(),
        any::<Index>(),
        any::<bool>(),
    )
}

thread_local! {
    static TRUTHS: std::collections::BTreeMap<&'static str, (Truth, Vec<Arrangement>)> = PUBLISHED_BOARDS
        .iter()
        .map(|board| {
            let truth = Truth::of(board);
            let all = truth.arrangements.values().flatten().cloned().collect();
            (board.name, (truth, all))
        })
        .collect();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn whatever_is_in_use_a_plan_keeps_it_and_changes_the_least(
        (board, from, busy, to, anything) in change()
    ) {
        TRUTHS.with(|truths| {
            let (truth, all) = &truths[board];
            let from = from.get(all);
            let to = if anything {
                let multisets = truth.profiles.iter().map(|row| usize::from(row.max) + 1);
                let mut pick = to.index(multisets.clone().product());
                multisets.map(|base| {
                    let digit = pick % base;
                    pick /= base;
                    u8::try_from(digit).expect("a count")
                }).collect()
            } else {
                truth.counts(to.get(all))
            };
            truth.check_plan(from, busy & ((1 << from.len()) - 1), &to);
        });
    }

    #[test]
    fn the_order_of_rows_instances_and_requests_decides_nothing(
        (board, from, busy, to, _) in change(),
        shuffle in any::<[u8; 32]>(),
    ) {
        TRUTHS.with(|truths| {
            let (truth, all) = &truths[board];
            let mut live = truth.live(from.get(all), busy);
            let mut wanted = truth.asked(&truth.counts(to.get(all)));
            let mut profiles = truth.profiles.clone();
            let before = plan(5, &profiles, &live, &wanted);
            let key = |index: usize| shuffle[index % shuffle.len()].rotate_left(index as u32 / 32);
            let mut index = 0;
            profiles.sort_by_cached_key(|_| { index += 1; key(index) });
            live.sort_by_cached_key(|_| { index += 1; key(index) });
            wanted.sort_by_cached_key(|_| { index += 1; key(index) });
            // Two keys that mean one profile are one request.
            if let Some(first) = wanted.first_mut().filter(|first| first.count > 1) {
                first.count -= 1;
                let mut twin = first.clone();
                twin.count = 1;
                wanted.push(twin);
            }
            prop_assert_eq!(plan(5, &profiles, &live, &wanted), before);
            Ok(())
        })?;
    }
}
