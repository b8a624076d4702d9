use super::*;
use crate::catalogue::published_board;

fn table(board: &str) -> Vec<Profile> {
    published_board(board).expect(board).profiles()
}

fn asked(wanted: &[(&str, i32)]) -> Vec<MigProfileCount> {
    wanted
        .iter()
        .map(|&(profile, count)| MigProfileCount {
            profile: profile.into(),
            count,
        })
        .collect()
}

/// Live instances by name and start, IDs from 1 on; a name that begins with `!` is busy.
fn live(profiles: &[Profile], instances: &[(&str, u8)]) -> Vec<Instance> {
    (1..)
        .zip(instances)
        .map(|(id, &(name, start))| {
            let row = profiles
                .iter()
                .find(|row| row.name == name.trim_start_matches('!'))
                .expect(name);
            Instance {
                id,
                profile: row.id,
                placement: Placement {
                    start,
                    size: row.size,
                },
                busy: name.starts_with('!'),
            }
        })
        .collect()
}

fn ids(instances: &[Instance]) -> Vec<u32> {
    instances.iter().map(|instance| instance.id).collect()
}

fn created(plan: &Plan, profiles: &[Profile]) -> Vec<(String, u8)> {
    plan.create
        .iter()
        .map(|(id, placement)| {
            let row = profiles.iter().find(|row| row.id == *id).expect("a row");
            assert_eq!(row.size, placement.size);
            (row.name.clone(), placement.start)
        })
        .collect()
}

#[test]
fn an_empty_gpu_is_filled_from_the_highest_starts_down() {
    let h100 = table("H100-80");
    let wanted = asked(&[("2g.20gb", 2), ("3g.40gb", 1)]);
    let plan = plan(0, &h100, &[], &wanted).expect("3g+2g+2g fits");
    let places = [("2g.20gb", 0), ("2g.20gb", 2), ("3g.40gb", 4)].map(|(n, s)| (n.to_owned(), s));
    assert_eq!(created(&plan, &h100), places);
    assert!(plan.keep.is_empty() && plan.destroy.is_empty());
}

#[test]
fn what_is_there_already_is_left_alone() {
    let a100 = table("A100-40");
    let there = live(&a100, &[("1g.5gb", 3), ("!3g.20gb", 4)]);
    for wanted in [
        asked(&[("3g.20gb", 1), ("1g.5gb", 1)]),
        asked(&[("1g.1/8", 1), ("3g.1/2", 1)]),
    ] {
        let plan = plan(0, &a100, &there, &wanted).expect("it is there");
        assert!(plan.is_empty());
        assert_eq!(ids(&plan.keep), [1, 2]);
    }
}

#[test]
fn a_busy_instance_stays_and_the_rest_goes_around_it() {
    let h100 = table("H100-80");
    let there = live(
        &h100,
        &[
            ("1g.10gb", 0),
            ("1g.10gb", 1),
            ("1g.10gb", 2),
            ("1g.10gb", 3),
            ("1g.10gb", 4),
            ("!1g.10gb", 5),
            ("1g.10gb", 6),
        ],
    );
    let plan = plan(0, &h100, &there, &asked(&[("4g.40gb", 1), ("1g.10gb", 3)])).expect("room");
    assert_eq!(ids(&plan.keep), [5, 6, 7]);
    assert_eq!(ids(&plan.destroy), [1, 2, 3, 4]);
    assert_eq!(created(&plan, &h100), [("4g.40gb".to_owned(), 0)]);
}

#[test]
fn a_layout_that_needs_the_place_of_a_busy_instance_is_blocked_and_names_it_alone() {
    let h100 = table("H100-80");
    let sevens = live(
        &h100,
        &[
            ("1g.10gb", 0),
            ("1g.10gb", 1),
            ("!1g.10gb", 2),
            ("1g.10gb", 3),
            ("1g.10gb", 4),
            ("1g.10gb", 5),
            ("1g.10gb", 6),
        ],
    );
    let wanted = asked(&[("3g.40gb", 1), ("4g.40gb", 1)]);
    let Err(Refusal::Blocked { message, instances }) = plan(3, &h100, &sevens, &wanted) else {
        panic!("3g+4g takes every unit");
    };
    assert_eq!(ids(&instances), [3]);
    assert_eq!(
        message,
        "GPU 3 cannot be changed to 1×3g.40gb + 1×4g.40gb while in use: instance 3 (1g.10gb at 2) would have to go"
    );

    // Both are wanted, but two 3g need both halves, and one of the 1g sits in each.
    let scattered = live(&h100, &[("!1g.10gb", 0), ("!1g.10gb", 6)]);
    let wanted = asked(&[("3g.40gb", 1), ("2g.20gb", 1), ("1g.10gb", 2)]);
    let Err(Refusal::Blocked { instances, .. }) = plan(0, &h100, &scattered, &wanted) else {
        panic!("no aligned half is free");
    };
    assert_eq!(instances.len(), 1, "one of the two may stay: {instances:?}");
}

#[test]
fn nothing_wanted_means_that_everything_idle_goes() {
    let a30 = table("A30");
    let there = live(&a30, &[("1g.6gb", 0), ("2g.12gb", 2)]);
    let plan_ = plan(0, &a30, &there, &[]).expect("idle");
    assert_eq!((ids(&plan_.destroy), plan_.keep.len()), (vec![1, 2], 0));
    let busy = live(&a30, &[("1g.6gb", 0), ("!2g.12gb", 2)]);
    let refused = plan(0, &a30, &busy, &[]).expect_err("busy");
    assert!(
        refused.message().contains("changed to no instance"),
        "{refused:?}"
    );
}

#[test]
fn an_instance_of_a_profile_that_the_table_lacks_goes_or_blocks() {
    let a30 = table("A30");
    let mut there = live(&a30, &[("1g.6gb", 0)]);
    there[0].profile = 99;
    let wanted = asked(&[("1g.6gb", 4)]);
    let made = plan(0, &a30, &there, &wanted).expect("idle");
    assert_eq!((ids(&made.destroy), made.create.len()), (vec![1], 4));
    there[0].busy = true;
    let refused = plan(0, &a30, &there, &wanted).expect_err("busy");
    assert!(
        refused.message().contains("instance 1 (profile 99 at 0)"),
        "{refused:?}"
    );
}

#[test]
fn what_a_board_lacks_is_refused_with_its_own_list() {
    let gb200 = table("GB200-189");
    let refused = plan(2, &gb200, &[], &asked(&[("1g.23gb", 7)])).expect_err("other driver");
    assert_eq!(
        refused,
        Refusal::Infeasible(
            "GPU 2 cannot carry 1g.23gb: this board has no such profile; it offers 1g.24gb ×7, 1g.24gb+me ×1, 1g.47gb ×4, \
             2g.47gb ×3, 3g.95gb ×2, 4g.95gb ×1, 7g.189gb ×1"
                .into()
        )
    );
}

#[test]
fn too_many_of_one_profile_are_refused_even_where_two_keys_mean_it() {
    let h100 = table("H100-80");
    let refused = feasible(0, &h100, &asked(&[("1g.10gb", 4), ("1g.1/8", 4)])).expect_err("8 of 7");
    assert!(
        refused.starts_with(
            "GPU 0 cannot carry 8×1g.10gb: the board carries at most 7 of 1g.10gb; it offers"
        ),
        "{refused}"
    );
}

#[test]
fn what_does_not_fit_together_is_refused_with_the_sum_or_the_places() {
    let h100 = table("H100-80");
    let sum = feasible(0, &h100, &asked(&[("3g.40gb", 2), ("2g.20gb", 1)])).expect_err("10 of 8");
    assert!(
        sum.contains("1×2g.20gb + 2×3g.40gb: together they need 10 memory units of the board's 8;"),
        "{sum}"
    );
    // 7 one-unit instances and a two-unit one need 9; 4g at 0 and 3 double ones need 10. Within the sum, only places decide.
    let a_board = vec![
        Profile {
            name: "2g.20gb".into(),
            id: 14,
            slices: 2,
            size: 2,
            starts: vec![1, 3],
            max: 2,
        },
        Profile {
            name: "4g.40gb".into(),
            id: 5,
            slices: 4,
            size: 4,
            starts: vec![0, 4],
            max: 1,
        },
    ];
    let places =
        feasible(0, &a_board, &asked(&[("2g.20gb", 2), ("4g.40gb", 1)])).expect_err("odd starts");
    assert!(
        places.contains(
            "no arrangement on the board's 8 memory units exists (2g.20gb covers 2 from 1/3, 4g.40gb covers 4 from 0/4);"
        ),
        "{places}"
    );
}

#[test]
fn all_media_engines_leave_room_for_profiles_without_any() {
    let pro = table("RTX-PRO-6000");
    feasible(0, &pro, &asked(&[("1g.24gb+me.all", 1), ("1g.24gb-me", 3)])).expect("-me is allowed");
    for other in ["1g.24gb", "1g.24gb+me", "1g.24gb+gfx", "2g.48gb+me.all"] {
        let refused = feasible(0, &pro, &asked(&[("1g.24gb+me.all", 1), (other, 1)]))
            .expect_err("media are taken");
        assert!(
            refused.contains("takes all media engines"),
            "{other}: {refused}"
        );
    }
}

#[test]
fn a_gpu_without_a_table_can_carry_nothing_but_nothing() {
    assert_eq!(plan(0, &[], &[], &[]), Ok(Plan::default()));
    let refused = feasible(0, &[], &asked(&[("1g.10gb", 1)])).expect_err("no table");
    assert!(refused.ends_with("it offers no MIG profile"), "{refused}");
}

#[test]
fn a_refusal_fits_the_api_whatever_is_asked() {
    let pro = table("RTX-PRO-6000");
    let everything: Vec<MigProfileCount> = pro
        .iter()
        .map(|row| MigProfileCount {
            profile: row.name.clone(),
            count: 64,
        })
        .collect();
    let refused = feasible(1023, &pro, &everything).expect_err("far too many");
    assert!(refused.chars().count() <= MAX_MESSAGE, "{refused}");
    let long = asked(&[("x".repeat(2000).as_str(), 1)]);
    let refused = feasible(0, &pro, &long).expect_err("no profile");
    assert_eq!(refused.chars().count(), MAX_MESSAGE);
}

#[test]
fn a_broken_table_costs_a_bounded_search_and_is_not_called_a_proof() {
    // Eight times eight units have to tile all 64 of them, and none may start at 0.
    let broken: Vec<Profile> = (0..8)
        .map(|id| Profile {
            name: format!("1g.{id}gb"),
            id,
            slices: 1,
            size: 8,
            starts: (1..=56).collect(),
            max: 1,
        })
        .collect();
    let wanted: Vec<MigProfileCount> = broken
        .iter()
        .map(|row| MigProfileCount {
            profile: row.name.clone(),
            count: 1,
        })
        .collect();
    let refused = feasible(0, &broken, &wanted).expect_err("it gives up");
    assert!(
        refused.contains("no arrangement was found in 200000 tries"),
        "{refused}"
    );
}
