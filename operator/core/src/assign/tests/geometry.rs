//! Layouts that a node can or cannot have, found out before anything changes.

use super::*;
use crate::catalogue::published_board;
use crate::geometry::Board;
use crate::intent::MigLayout;
use crate::report::{MigProfileCount, Shaping, ShapingOutcome};

const DRIVER: Option<&str> = Some("570.158.01");

/// GPUs from which to the last, and what each carries.
type Entry<'a> = (Option<&'a [u32]>, &'a [(&'a str, i32)]);

fn instances(wanted: &[(&str, i32)]) -> Vec<MigProfileCount> {
    wanted
        .iter()
        .map(|&(profile, count)| MigProfileCount {
            profile: profile.into(),
            count,
        })
        .collect()
}

fn mig(strategy: MigStrategy, entries: &[Entry<'_>]) -> Cohort {
    let mut cohort = cohort("jade", Vendor::Nvidia, Owner::DevicePlugin);
    cohort.mig_strategy = Some(strategy);
    cohort.layout = Some(Layout::Mig(
        entries
            .iter()
            .map(|(gpus, wanted)| MigLayout {
                gpus: gpus.map(|gpus| gpus.iter().copied().collect()),
                instances: instances(wanted),
            })
            .collect(),
    ));
    cohort
}

fn shaping(outcome: ShapingOutcome) -> Option<Shaping> {
    Some(Shaping {
        outcome,
        message: None,
    })
}

/// A node with these boards, whose shaper waits for an order.
fn boards(devices: i32, boards: &[(&str, &[u32])]) -> VendorReport {
    let mut part = gpus(devices, DRIVER);
    part.layout.shaping = shaping(ShapingOutcome::Idle);
    part.layout.boards = boards
        .iter()
        .map(|&(board, gpus)| Board {
            gpus: gpus.to_vec(),
            profiles: published_board(board).expect(board).profiles(),
        })
        .collect();
    part
}

fn assigned(cohort: Cohort, part: VendorReport) -> Assignment {
    assign(
        Vendor::Nvidia,
        &node(&[("pool", "jade")]),
        Some(&report(Some(part), None)),
        &cluster(),
        &intent([cohort]),
    )
}

#[test]
fn a_layout_that_fits_every_board_is_wanted_and_expected_by_its_literal_names() {
    let part = boards(2, &[("H200", &[0]), ("GB200-189", &[1])]);
    let cohort = mig(
        MigStrategy::Mixed,
        &[(None, &[("3g.1/2", 1), ("1g.1/8+me", 1)])],
    );
    let Want::Owner(target) = assigned(cohort, part).want else {
        panic!("it fits");
    };
    let expected = [
        ("nvidia.com/mig-1g.18gb.me", 1),
        ("nvidia.com/mig-1g.24gb.me", 1),
        ("nvidia.com/mig-3g.71gb", 1),
        ("nvidia.com/mig-3g.95gb", 1),
    ];
    let expected = expected
        .map(|(name, count)| (name.to_owned(), count))
        .into();
    assert_eq!(target.expected, Ok(Expected::Resources(expected)));
}

#[test]
fn a_layout_that_does_not_fit_is_refused_with_the_proof_and_the_boards_own_list() {
    let part = boards(2, &[("H200", &[0, 1])]);
    let cohort = mig(
        MigStrategy::Mixed,
        &[
            (None, &[("1g.18gb", 7)]),
            (Some(&[1]), &[("3g.71gb", 2), ("1g.18gb", 1)]),
        ],
    );
    let assignment = assigned(cohort, part);
    assert_eq!(reason(&assignment), Some(Reason::LayoutInfeasible));
    assert_eq!(
        message(&assignment),
        "GPU 1 cannot carry 1×1g.18gb + 2×3g.71gb: together they need 9 memory units of the board's 8; it offers 1g.18gb ×7, \
         1g.18gb+me ×1, 1g.35gb ×4, 2g.35gb ×3, 3g.71gb ×2, 4g.71gb ×1, 7g.141gb ×1 (cohort jade)"
    );
}

#[test]
fn a_gpu_that_the_node_lacks_is_refused_by_its_minor_number() {
    let part = boards(2, &[("H200", &[1, 6])]);
    let cohort = mig(MigStrategy::Mixed, &[(Some(&[0]), &[("7g.141gb", 1)])]);
    let assignment = assigned(cohort, part);
    assert_eq!(reason(&assignment), Some(Reason::LayoutInfeasible));
    assert_eq!(
        message(&assignment),
        "the layout of cohort jade names GPU 0, but this node has 2 (minor 1, 6)"
    );
}

/// H45: a board that its driver does not know is not guessed at.
#[test]
fn a_board_for_which_the_driver_offers_nothing_is_unknown_geometry_and_named() {
    let cohort = mig(MigStrategy::Mixed, &[(None, &[("1g.18gb", 7)])]);
    let mut failing = boards(1, &[]);
    failing.layout.shaping = Some(Shaping {
        outcome: ShapingOutcome::Failed,
        message: Some("libnvidia-ml.so.1 not found".into()),
    });
    for part in [boards(1, &[]), boards(2, &[("H200", &[0])]), failing] {
        let said = part
            .layout
            .shaping
            .as_ref()
            .and_then(|shaping| shaping.message.clone());
        let assignment = assigned(cohort.clone(), part);
        assert_eq!(reason(&assignment), Some(Reason::UnknownGeometry));
        let message = message(&assignment);
        assert!(
            message.contains("NVIDIA H200") && message.contains("jade"),
            "{message}"
        );
        assert!(message.contains(&said.unwrap_or_default()), "{message}");
    }
    let partial = mig(MigStrategy::Mixed, &[(Some(&[0]), &[("1g.18gb", 7)])]);
    let assignment = assigned(partial, boards(2, &[("H200", &[0])]));
    assert_eq!(
        reason(&assignment),
        None,
        "nothing is asked of the other GPU"
    );
}

#[test]
fn without_a_word_of_the_shaper_nothing_starts() {
    let cohort = mig(MigStrategy::Mixed, &[(None, &[("1g.18gb", 7)])]);
    for said in [None, shaping(ShapingOutcome::Working)] {
        let mut part = gpus(2, DRIVER);
        part.layout.shaping = said;
        let assignment = assigned(cohort.clone(), part);
        assert_eq!(reason(&assignment), Some(Reason::ShaperSilent));
        assert_eq!(Reason::ShaperSilent.kind(), crate::blocker::Kind::Waiting);
    }
}

#[test]
fn a_layout_that_is_there_already_needs_no_shaper_unless_only_a_table_can_name_it() {
    let mut part = gpus(1, DRIVER);
    part.layout.mig_enabled_gpus = 1;
    part.layout.mig = [("0".to_owned(), instances(&[("1g.18gb", 7)]))].into();
    let literal = mig(MigStrategy::Mixed, &[(None, &[("1g.18gb", 7)])]);
    assert_eq!(reason(&assigned(literal, part.clone())), None);
    part.layout.mig = [("0".to_owned(), instances(&[("unknown", 7)]))].into();
    let share = mig(MigStrategy::Mixed, &[(None, &[("1g.1/8", 7)])]);
    assert_eq!(reason(&assigned(share, part)), Some(Reason::ShaperSilent));
}

#[test]
fn a_table_from_before_the_host_restarted_is_not_judged_by() {
    let mut part = boards(1, &[("H200", &[0])]);
    part.layout.shaping = Some(Shaping {
        outcome: ShapingOutcome::Working,
        message: Some("the node's shaper has not looked in this boot yet".into()),
    });
    let cohort = mig(MigStrategy::Mixed, &[(None, &[("1g.1/8", 7)])]);
    let assignment = assigned(cohort.clone(), part.clone());
    assert_eq!(reason(&assignment), Some(Reason::ShaperSilent));
    assert!(
        message(&assignment).contains("in this boot"),
        "{assignment:?}"
    );
    part.layout.mig = [("0".to_owned(), instances(&[("1g.18gb", 7)]))].into();
    assert_eq!(reason(&assigned(cohort, part)), None, "it is there");
}

#[test]
fn a_layout_in_force_needs_no_table_even_where_only_a_table_could_name_it() {
    let share = mig(MigStrategy::Mixed, &[(None, &[("1g.1/8", 7)])]);
    let mut part = gpus(1, DRIVER);
    part.layout.boards_left_out = true;
    part.layout.shaping = shaping(ShapingOutcome::InForce);
    part.layout.mig = [("0".to_owned(), instances(&[("1g.18gb", 7)]))].into();
    let Want::Owner(target) = assigned(share, part.clone()).want else {
        panic!("it is in force");
    };
    let expected = [("nvidia.com/mig-1g.18gb".to_owned(), 7)].into();
    assert_eq!(target.expected, Ok(Expected::Resources(expected)));
    let another = mig(MigStrategy::Mixed, &[(None, &[("3g.1/2", 2)])]);
    let assignment = assigned(another, part);
    assert_eq!(reason(&assignment), Some(Reason::UnknownGeometry));
    assert!(
        message(&assignment).contains("no room") && message(&assignment).contains("jade"),
        "{assignment:?}"
    );
}

#[test]
fn a_node_that_the_cohort_has_is_not_held_because_its_shaper_has_yet_to_look_in_this_boot() {
    let cohort = mig(MigStrategy::Mixed, &[(None, &[("1g.18gb", 7)])]);
    let mut part = gpus(2, DRIVER);
    part.layout.shaping = shaping(ShapingOutcome::Working);
    let owner = names::owner_label(Vendor::Nvidia);
    let held = names::cohort_label(Vendor::Nvidia);
    for (owned_by, of, expected) in [
        ("device-plugin", "jade", None),
        ("device-plugin", "opal", Some(Reason::ShaperSilent)),
        ("dra", "jade", Some(Reason::ShaperSilent)),
    ] {
        let assignment = assign(
            Vendor::Nvidia,
            &node(&[("pool", "jade"), (&owner, owned_by), (&held, of)]),
            Some(&report(Some(part.clone()), None)),
            &cluster(),
            &intent([cohort.clone()]),
        );
        assert_eq!(reason(&assignment), expected, "{owned_by} {of}");
    }
}

#[test]
fn strategy_single_needs_one_uniform_type_on_every_gpu_by_the_names_that_they_have() {
    let uniform = boards(2, &[("H200", &[0, 1])]);
    let different = boards(2, &[("H200", &[0]), ("GB200-189", &[1])]);
    let all: &[Entry<'_>] = &[(None, &[("1g.1/8", 7)])];
    let one: &[Entry<'_>] = &[(Some(&[1]), &[("1g.1/8", 7)])];
    let Want::Owner(target) = assigned(mig(MigStrategy::Single, all), uniform.clone()).want else {
        panic!("14 alike");
    };
    let gpus = [("nvidia.com/gpu".to_owned(), 14)].into();
    assert_eq!(target.expected, Ok(Expected::Resources(gpus)));
    for (entries, part, why) in [
        (all, different, "all instances must be alike"),
        (one, uniform, "MIG must be on for all GPUs or for none"),
    ] {
        let assignment = assigned(mig(MigStrategy::Single, entries), part);
        assert_eq!(reason(&assignment), Some(Reason::LayoutInfeasible));
        assert!(message(&assignment).contains(why), "{assignment:?}");
    }
}

#[test]
fn the_logical_core_setting_waits_for_a_shaper_only_where_it_has_to_change() {
    let mut cohort = cohort("copper", Vendor::Neuron, Owner::DevicePlugin);
    cohort.layout = Some(Layout::LogicalNeuronCore(1));
    for (found, said, expected) in [
        (2, None, Some(Reason::ShaperSilent)),
        (2, shaping(ShapingOutcome::Idle), None),
        (2, shaping(ShapingOutcome::Working), None),
        (1, None, None),
    ] {
        let mut part = chips("Trainium2", "trn2.48xlarge", 16, 128);
        part.layout.logical_neuron_core = Some(found);
        part.layout.shaping = said.clone();
        let assignment = assign(
            Vendor::Neuron,
            &node(&[("pool", "copper")]),
            Some(&report(None, Some(part))),
            &cluster(),
            &intent([cohort.clone()]),
        );
        assert_eq!(reason(&assignment), expected, "{found} {said:?}");
    }
}
