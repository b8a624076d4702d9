//! Layouts on boards.

use freehold_core::report::ShapingOutcome;
use freehold_fake_nvml::Board;

use super::{Node, SEVEN, SEVEN_IDS, all, some};

#[test]
fn uniform_layouts_are_made_on_every_board() {
    // Board, the smallest profile and how many fit, where they lie.
    let cases: [(Board, &str, &[u32]); 7] = [
        (Board::A30, "1g.6gb", &[0, 1, 2, 3]),
        (Board::A100x40, "1g.5gb", &[0, 1, 2, 3, 4, 5, 6]),
        (Board::A100x80, "1g.20gb", &[0, 2, 4, 6]),
        (Board::H100, "1g.10gb", &[0, 1, 2, 3, 4, 5, 6]),
        (Board::H200, "3g.71gb", &[0, 4]),
        (Board::B200, "2g.45gb", &[0, 2, 4]),
        (Board::RtxPro6000, "1g.24gb", &[0, 3, 6, 9]),
    ];
    for (board, profile, starts) in cases {
        let mut node = Node::new(&[board, board]);
        let expected: Vec<(&str, u32)> = starts.iter().map(|start| (profile, *start)).collect();
        let count = i32::try_from(starts.len()).unwrap();
        node.makes(&all(&[(profile, count)]), &[&expected, &expected]);
    }
}

#[test]
fn mixed_layouts_are_made_where_the_driver_s_own_choice_would_fail() {
    let mut a100 = Node::new(&[Board::A100x40]);
    let mixed = [("1g.5gb", 2), ("2g.10gb", 1), ("3g.20gb", 1)];
    let seen = a100.shape(&all(&mixed));
    assert!(seen.is_in_force(), "{:?}", seen.shaping);

    let mut h100 = Node::new(&[Board::H100]);
    h100.makes(
        &all(&[("3g.40gb", 1), ("2g.20gb", 2)]),
        &[&[("2g.20gb", 0), ("2g.20gb", 2), ("3g.40gb", 4)]],
    );
    // From there to another mix, by what stays.
    h100.makes(
        &all(&[("3g.40gb", 1), ("4g.40gb", 1)]),
        &[&[("4g.40gb", 0), ("3g.40gb", 4)]],
    );

    let mut rtx = Node::new(&[Board::RtxPro6000]);
    rtx.makes(
        &all(&[("2g.48gb", 1), ("1g.24gb+gfx", 1), ("1g.24gb+me", 1)]),
        &[&[("1g.24gb+gfx", 0), ("1g.24gb+me", 3), ("2g.48gb", 6)]],
    );
}

#[test]
fn a_layout_by_shares_is_the_same_on_every_board() {
    for (board, name) in [
        (Board::A100x40, "3g.20gb"),
        (Board::H200, "3g.71gb"),
        (Board::B200, "3g.90gb"),
    ] {
        let mut node = Node::new(&[board]);
        node.makes(&all(&[("3g.1/2", 2)]), &[&[(name, 0), (name, 4)]]);
    }
}

#[test]
fn gpus_that_no_entry_names_have_mig_off() {
    let mut node = Node::new(&[Board::H100, Board::H100, Board::H100]);
    node.fake.carve(0, &[(19, 3)]).unwrap();
    // On and empty: of use to nobody.
    node.fake
        .change_gpu(2, |gpu| (gpu.mig, gpu.pending) = (true, true))
        .unwrap();
    let layout = some(&[(&[1], &[("7g.80gb", 1)])]);
    node.makes(&layout, &[&[], &[("7g.80gb", 0)], &[]]);
    let seen = node.look(&layout);
    assert_eq!(seen.mig_enabled, [1]);
    assert_eq!(seen.boards.len(), 1);
    assert_eq!(seen.boards[0].gpus, [0, 1, 2]);
    assert_eq!(seen.mig()["1"][0].profile, "7g.80gb");

    let off = some(&[(&[1], &[])]);
    node.makes(&off, &[&[], &[], &[]]);
    assert_eq!(node.look(&off).mig_enabled, [0_u32; 0]);
}

#[test]
fn boards_of_different_kinds_each_follow_their_own_table() {
    // Both offer a name with 24 in it, under IDs that mean something else on the other.
    let mut node = Node::new(&[Board::A30, Board::RtxPro6000]);
    node.fake.change_gpu(1, |gpu| gpu.minor = 5).unwrap();
    let layout = some(&[
        (&[0], &[("1g.6gb", 2), ("2g.12gb", 1)]),
        (&[5], &[("4g.96gb", 1)]),
    ]);
    let seen = node.shape(&layout);
    assert!(seen.is_in_force(), "{:?}", seen.shaping);
    assert_eq!(seen.boards.len(), 2);
    assert_eq!(node.fake.instances(5).unwrap(), [("4g.96gb".to_owned(), 0)]);
    assert_eq!(node.fake.instances(0).unwrap().len(), 3);
}

#[test]
fn h55_an_unchanged_layout_writes_nothing() {
    let mut node = Node::new(&[Board::A100x40, Board::RtxPro6000]);
    let layout = some(&[
        (&[0], &[("3g.20gb", 1), ("1g.5gb", 3)]),
        (&[1], &[("1g.24gb", 4)]),
    ]);
    assert!(node.shape(&layout).is_in_force());
    assert!(!node.writes().is_empty());
    for _ in 0..2 {
        assert!(node.look(&layout).is_in_force());
        assert!(node.shape(&layout).is_in_force());
        node.restart();
    }
    // The same in other words, and in another order.
    let same = some(&[
        (&[1], &[("1g.1/4", 4)]),
        (&[0], &[("1g.5gb", 2), ("3g.1/2", 1), ("1g.1/8", 1)]),
    ]);
    assert!(node.shape(&same).is_in_force());
    node.rests();
}

#[test]
fn instances_that_stay_are_not_touched() {
    let mut node = Node::new(&[Board::A100x40]);
    node.fake.carve(0, &SEVEN_IDS).unwrap();
    let id_at = |node: &Node, start: u32| {
        let gpus = node.fake.state().unwrap().gpus;
        let mut instances = gpus[0].instances.iter();
        instances
            .find(|instance| instance.start == start)
            .unwrap()
            .id
    };
    let kept = id_at(&node, 5);
    node.fake.occupy(0, kept, 4242).unwrap();
    node.makes(
        &all(&[("4g.20gb", 1), ("1g.5gb", 3)]),
        &[&[("4g.20gb", 0), ("1g.5gb", 4), ("1g.5gb", 5), ("1g.5gb", 6)]],
    );
    assert_eq!(id_at(&node, 5), kept);
    let touched: Vec<String> = node
        .writes()
        .into_iter()
        .filter(|write| write.contains("Destroy"))
        .collect();
    assert_eq!(
        touched.len(),
        8,
        "four instances with their compute instances: {touched:#?}"
    );
}

#[test]
fn a_busy_instance_in_the_way_is_named_and_nothing_is_destroyed() {
    let mut node = Node::new(&[Board::A100x40, Board::A100x40]);
    node.fake.carve(0, &SEVEN_IDS).unwrap();
    node.fake.occupy(0, 9, 4242).unwrap();
    node.tree.file("/proc/4242/comm", "python\n");
    node.tree.file(
        "/proc/4242/cgroup",
        "0::/kubepods/burstable/pod0c9f3b1e-7a43-4d16-9a5e-0123456789ab/c1\n",
    );
    let layout = all(&[("3g.20gb", 1), ("4g.20gb", 1)]);
    let said = [
        "GPU 0",
        "instance 9 (1g.5gb at 2)",
        "process 4242 (python, pod 0c9f3b1e-7a43-4d16-9a5e-0123456789ab)",
    ];
    for shapes in [false, true] {
        let seen = if shapes {
            node.shape(&layout)
        } else {
            node.look(&layout)
        };
        node.says(seen, ShapingOutcome::Busy, &said);
    }
    node.carries(&[&SEVEN, &[]]);
    node.rests();
    node.fake.end(4242).unwrap();
    let expected: &[(&str, u32)] = &[("4g.20gb", 0), ("3g.20gb", 4)];
    node.makes(&layout, &[expected, expected]);
}

#[test]
fn what_one_board_cannot_have_changes_no_other() {
    let mut node = Node::new(&[Board::H100, Board::A30]);
    node.fake.carve(0, &[(19, 0)]).unwrap();
    let cases = [
        (all(&[("1g.10gb", 7)]), "GPU 1"),
        (all(&[("3g.1/2", 2)]), "GPU 1"),
        (some(&[(&[0], &[("1g.10gb", 8)])]), "1g.10gb"),
        (
            some(&[(&[0], &[("4g.40gb", 1), ("2g.20gb", 2), ("1g.10gb", 1)])]),
            "GPU 0",
        ),
        (some(&[(&[3], &[("1g.10gb", 1)])]), "names GPU 3"),
        (
            freehold_core::intent::Layout::LogicalNeuronCore(2),
            "Logical NeuronCore",
        ),
    ];
    for (layout, said) in cases {
        let seen = node.shape(&layout);
        node.says(seen, ShapingOutcome::Infeasible, &[said]);
        let seen = node.look(&layout);
        node.says(seen, ShapingOutcome::Infeasible, &[said]);
    }
    node.carries(&[&[("1g.10gb", 0)], &[]]);
    node.rests();
}

#[test]
fn h45_boards_are_known_by_what_their_driver_says_and_never_guessed() {
    // No table of models exists to be out of date: two boards of the newest kinds.
    let mut node = Node::new(&[Board::H200, Board::B200]);
    let layout = some(&[(&[0], &[("1g.18gb", 7)]), (&[1], &[("1g.23gb", 7)])]);
    assert!(node.shape(&layout).is_in_force());
    assert!(node.shape(&some(&[(&[7], &[])])).shaping.message.is_some());
    let off = all(&[]);
    assert!(node.shape(&off).is_in_force());
    node.writes();
    // A driver that keeps its table to itself while MIG is off.
    node.fake
        .change(|state| state.profiles_while_off = false)
        .unwrap();
    let seen = node.shape(&layout);
    let seen = node.says(
        seen,
        ShapingOutcome::Failed,
        &["GPU 0: driver 580.95.05 does not say what the board offers"],
    );
    assert!(seen.boards.is_empty());
    node.rests();
    assert!(node.shape(&off).is_in_force());
}

#[test]
fn broken_instances_are_found_and_repaired() {
    let mut node = Node::new(&[Board::H100]);
    node.fake.carve(0, &[(9, 4), (14, 0), (19, 3)]).unwrap();
    node.fake
        .change_gpu(0, |gpu| {
            // One lost its compute instance, one has two thirds of one.
            gpu.instances[1].compute.clear();
            let compute = &mut gpu.instances[0].compute[0];
            (compute.profile, compute.slices) = (1, 2);
        })
        .unwrap();
    let layout = all(&[("3g.40gb", 1), ("2g.20gb", 1), ("1g.10gb", 1)]);
    let seen = node.look(&layout);
    node.says(
        seen,
        ShapingOutcome::Working,
        &["1×3g.40gb without its whole compute instance"],
    );
    node.makes(
        &layout,
        &[&[("2g.20gb", 0), ("1g.10gb", 3), ("3g.40gb", 4)]],
    );
    let created = node.writes();
    assert!(
        created
            .iter()
            .all(|write| !write.contains("GpuInstanceWithPlacement")),
        "the GPU instances themselves stay: {created:#?}"
    );
}
