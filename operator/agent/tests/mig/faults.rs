//! What drivers refuse, and what comes of it.

use freehold_agent::shape::engine::Engine as _;
use freehold_core::report::ShapingOutcome;
use freehold_fake_nvml::Board;

use super::{Node, SEVEN, SEVEN_IDS, all, some};

const DESTROY: &str = "nvmlGpuInstanceDestroy";
const DESTROY_COMPUTE: &str = "nvmlComputeInstanceDestroy";
const CREATE: &str = "nvmlDeviceCreateGpuInstanceWithPlacement";
const CREATE_COMPUTE: &str = "nvmlGpuInstanceCreateComputeInstance";
const SET_MODE: &str = "nvmlDeviceSetMigMode";

#[test]
fn a_change_that_is_refused_midway_is_taken_back_whatever_the_call() {
    // Which call, how many succeed before, the answer; the outcome.
    let cases = [
        (DESTROY, 0, 19, ShapingOutcome::Busy),
        (DESTROY, 6, 19, ShapingOutcome::Busy),
        (DESTROY_COMPUTE, 3, 19, ShapingOutcome::Busy),
        (CREATE, 0, 23, ShapingOutcome::Failed),
        (CREATE, 1, 23, ShapingOutcome::Failed),
        (CREATE, 1, 999, ShapingOutcome::Failed),
        (CREATE_COMPUTE, 0, 23, ShapingOutcome::Failed),
        (CREATE_COMPUTE, 1, 4, ShapingOutcome::Failed),
        (CREATE, 0, 16, ShapingOutcome::ResetRequired),
    ];
    for (function, after, code, outcome) in cases {
        let mut node = Node::new(&[Board::A100x40]);
        node.fake.carve(0, &SEVEN_IDS).unwrap();
        node.fake.fail(function, after, code).unwrap();
        let layout = all(&[("3g.20gb", 1), ("4g.20gb", 1)]);
        let seen = node.shape(&layout);
        node.says(
            seen,
            outcome,
            &[
                "GPU 0",
                function,
                &format!("({code})"),
                "what it carried before was restored",
            ],
        );
        node.carries(&[&SEVEN]);
        assert!(!node.directory().join("journal").exists());
        // The next try finds the driver willing.
        node.makes(&layout, &[&[("4g.20gb", 0), ("3g.20gb", 4)]]);
    }
}

#[test]
fn a_gpu_that_had_no_mig_has_none_after_a_failure() {
    for board in [Board::A100x40, Board::H100] {
        let mut node = Node::new(&[board]);
        node.fake.fail(CREATE_COMPUTE, 1, 23).unwrap();
        let seen = node.shape(&all(&[("1g.1/8", 7)]));
        node.says(seen, ShapingOutcome::Failed, &["was restored"]);
        node.carries(&[&[]]);
        let gpu = &node.fake.state().unwrap().gpus[0];
        assert!(!gpu.mig && !gpu.pending, "MIG on and empty is no rest");
    }
}

#[test]
fn where_restoring_fails_too_it_is_said_what_is_left_and_the_next_try_mends_it() {
    let mut node = Node::new(&[Board::A100x40]);
    node.fake.carve(0, &SEVEN_IDS).unwrap();
    // The second creation, and the fifth of those that restore.
    node.fake.fail(CREATE, 1, 23).unwrap();
    node.fake.fail(CREATE, 4, 999).unwrap();
    let layout = all(&[("3g.20gb", 1), ("4g.20gb", 1)]);
    let seen = node.shape(&layout);
    node.says(
        seen,
        ShapingOutcome::Failed,
        &[
            "(23)",
            "restoring what it carried failed too",
            "(999)",
            "GPU 0 now carries",
            "1g.5gb",
        ],
    );
    assert!(node.directory().join("journal").exists());
    let seen = node.look(&layout);
    node.says(seen, ShapingOutcome::Working, &["broken off"]);
    node.restart();
    node.makes(&layout, &[&[("4g.20gb", 0), ("3g.20gb", 4)]]);
}

#[test]
fn a_change_broken_off_is_taken_back_when_it_cannot_be_finished() {
    let mut node = Node::new(&[Board::A100x40]);
    node.fake.carve(0, &SEVEN_IDS).unwrap();
    node.fake.fail(CREATE, 0, 23).unwrap();
    node.fake.fail(CREATE, 4, 999).unwrap();
    let seen = node.shape(&all(&[("7g.40gb", 1)]));
    node.says(seen, ShapingOutcome::Failed, &["failed too"]);
    node.restart();
    let seen = node.engine.look(None);
    node.says(seen, ShapingOutcome::Working, &["GPU 0 was broken off"]);
    // The order is replaced by one that this board cannot have.
    let seen = node.shape(&all(&[("7g.80gb", 1)]));
    node.says(seen, ShapingOutcome::Infeasible, &["7g.80gb"]);
    node.carries(&[&SEVEN]);
    assert!(!node.directory().join("journal").exists());
}

#[test]
fn a_change_broken_off_is_taken_back_when_no_layout_is_wanted_any_more() {
    let mut node = Node::new(&[Board::A100x40]);
    node.fake.carve(0, &SEVEN_IDS).unwrap();
    node.fake.fail(CREATE, 0, 23).unwrap();
    node.fake.fail(CREATE, 4, 999).unwrap();
    node.shape(&all(&[("7g.40gb", 1)]));
    node.restart();
    node.fake.fail(CREATE, 0, 999).unwrap();
    let seen = node.engine.settle();
    node.says(seen, ShapingOutcome::Failed, &["GPU 0", "failed too"]);
    assert!(node.directory().join("journal").exists());
    let seen = node.engine.settle();
    node.says(seen, ShapingOutcome::Idle, &[]);
    node.carries(&[&SEVEN]);
    assert!(!node.directory().join("journal").exists());
    node.writes();
    let seen = node.engine.settle();
    node.says(seen, ShapingOutcome::Idle, &[]);
    node.rests();
}

#[test]
fn an_instance_that_somebody_leaked_blocks_and_everything_else_comes_back() {
    let mut node = Node::new(&[Board::A100x40]);
    node.fake.carve(0, &SEVEN_IDS).unwrap();
    node.fake
        .change_gpu(0, |gpu| gpu.instances[4].held = true)
        .unwrap();
    let seen = node.shape(&all(&[("7g.40gb", 1)]));
    node.says(
        seen,
        ShapingOutcome::Busy,
        &["GPU 0", "whom the driver does not list", "was restored"],
    );
    node.carries(&[&SEVEN]);
}

#[test]
fn a_lost_gpu_is_named_and_the_others_go_on() {
    let mut node = Node::new(&[Board::H100, Board::H100, Board::H100]);
    node.fake.change_gpu(1, |gpu| gpu.lost = true).unwrap();
    let layout = all(&[("3g.40gb", 2)]);
    let seen = node.look(&layout);
    node.says(seen, ShapingOutcome::Working, &["GPU 0, 2"]);
    let seen = node.shape(&layout);
    let seen = node.says(
        seen,
        ShapingOutcome::Failed,
        &["NVML index 1", "fell off the bus"],
    );
    assert_eq!(seen.instances.keys().copied().collect::<Vec<_>>(), [0, 2]);
    node.writes();
    let seen = node.look(&layout);
    node.says(seen, ShapingOutcome::Failed, &["NVML index 1"]);
    node.rests();
}

#[test]
fn a_gpu_lost_on_the_way_does_not_stop_the_next() {
    let mut node = Node::new(&[Board::H100, Board::H100]);
    node.fake.fail_times(CREATE, 1, 1, 15).unwrap();
    node.fake.fail_times(DESTROY, 0, 1, 15).unwrap();
    let layout = all(&[("3g.40gb", 2)]);
    let seen = node.shape(&layout);
    let seen = node.says(seen, ShapingOutcome::Failed, &["GPU 0 fell off the bus"]);
    assert_eq!(seen.instances[&1].len(), 2);
}

#[test]
fn a_shaper_without_privileges_says_what_it_lacks() {
    let mut node = Node::new(&[Board::H100]);
    node.fake.change(|state| state.privileged = false).unwrap();
    let seen = node.shape(&all(&[("7g.80gb", 1)]));
    node.says(
        seen,
        ShapingOutcome::Failed,
        &["GPU 0", "NO_PERMISSION (4)", "privileged"],
    );
}

#[test]
fn a_node_without_a_driver_says_so() {
    let mut node = Node::new(&[Board::H100]);
    let library = "usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1";
    std::fs::remove_file(node.driver.path().join(library)).unwrap();
    let seen = node.look(&all(&[("7g.80gb", 1)]));
    node.says(seen, ShapingOutcome::Failed, &["libnvidia-ml.so.1"]);
}

#[test]
fn nothing_is_changed_that_cannot_be_put_on_record() {
    let mut node = Node::new(&[Board::H100]);
    let layout = all(&[("7g.80gb", 1)]);
    let draft = node.directory().join(".journal.new");
    std::os::unix::fs::symlink("/dev/full", &draft).unwrap();
    let seen = node.shape(&layout);
    node.says(seen, ShapingOutcome::Failed, &["journal", "No space left"]);
    node.rests();
    std::fs::write(node.directory().join("journal"), "{").unwrap();
    let seen = node.shape(&layout);
    node.says(seen, ShapingOutcome::Failed, &["journal"]);
    node.rests();
}

#[test]
fn a_mode_that_the_driver_refuses_outright_is_a_failure() {
    let mut node = Node::new(&[Board::H100, Board::H100]);
    node.fake.fail(SET_MODE, 0, 999).unwrap();
    let seen = node.shape(&some(&[(&[0], &[("7g.80gb", 1)])]));
    node.says(seen, ShapingOutcome::Failed, &["GPU 0", SET_MODE, "(999)"]);
    let gpu = &node.fake.state().unwrap().gpus[0];
    assert!(!gpu.mig && !gpu.pending);
}

#[test]
fn a_failure_of_any_single_call_ends_in_the_wanted_layout_or_the_old_one() {
    let before: [(u32, u32); 2] = [(9, 0), (9, 4)];
    let old: [(&str, u32); 2] = [("3g.40gb", 0), ("3g.40gb", 4)];
    let goal: [(&str, u32); 2] = [("4g.40gb", 0), ("3g.40gb", 4)];
    let layout = all(&[("4g.40gb", 1), ("3g.40gb", 1)]);
    let mut node = Node::new(&[Board::H100]);
    node.fake.carve(0, &before).unwrap();
    let calls = node.fake.calls().unwrap();
    assert!(node.shape(&layout).is_in_force());
    let calls = node.fake.calls().unwrap() - calls;

    let (mut wanted, mut restored) = (0, 0);
    for call in 0..calls {
        // "Somebody uses it", or an answer that means nothing.
        let code = if call % 2 == 0 { 19 } else { 999 };
        node.fake
            .change_gpu(0, |gpu| gpu.instances.clear())
            .unwrap();
        node.fake.carve(0, &before).unwrap();
        node.fake.fail_any(call, code).unwrap();
        let seen = node.shape(&layout);
        node.fake
            .change(|state| {
                state.faults.clear();
                state.writes.clear();
            })
            .unwrap();
        let carried = node.fake.instances(0).unwrap();
        let is = |expected: &[(&str, u32)]| {
            carried
                .iter()
                .map(|(name, start)| (name.as_str(), *start))
                .eq(expected.iter().copied())
        };
        if is(&goal) {
            wanted += 1;
        } else {
            assert!(
                is(&old),
                "after call {call}: {carried:?}, {:?}",
                seen.shaping
            );
            assert!(!seen.is_in_force());
            restored += 1;
        }
        assert!(
            !node.directory().join("journal").exists(),
            "after call {call}: {:?}",
            seen.shaping
        );
    }
    println!("{calls} calls: {wanted} ended in the wanted layout, {restored} in the old one");
    assert!(wanted > 0 && restored > 0);
}
