//! MIG mode: now, later, or not by itself.

use freehold_core::report::ShapingOutcome;
use freehold_fake_nvml::Board;
use freehold_fake_nvml::state::ModeChange;

use super::support::BOOT;
use super::{Node, all, some};

const REBOOT: &str = "/proc/sys/kernel/random/boot_id";

fn waiting(change: ModeChange) -> Node {
    let node = Node::new(&[Board::A100x40, Board::A100x40]);
    node.fake
        .change_gpu(1, |gpu| gpu.mode_change = change)
        .unwrap();
    node
}

#[test]
fn a_mode_that_waits_for_a_reset_is_named_and_the_other_gpu_goes_on() {
    let mut node = waiting(ModeChange::Waits);
    let layout = all(&[("7g.40gb", 1)]);
    let seen = node.shape(&layout);
    let seen = node.says(
        seen,
        ShapingOutcome::ResetRequired,
        &["GPU 1", "nvidia-smi --gpu-reset"],
    );
    assert!(seen.instances[&0].len() == 1 && !seen.instances.contains_key(&1));
    node.writes();
    // It waits in peace.
    for _ in 0..2 {
        let seen = node.look(&layout);
        node.says(seen, ShapingOutcome::ResetRequired, &["GPU 1"]);
    }
    node.rests();
    node.fake.reset(1).unwrap();
    let seen = node.look(&layout);
    node.says(seen, ShapingOutcome::Working, &["GPU 1"]);
    node.makes(&layout, &[&[("7g.40gb", 0)], &[("7g.40gb", 0)]]);
}

#[test]
fn h50_a_mode_that_waits_for_a_restart_is_said_so_and_goes_on_after_it() {
    let mut node = waiting(ModeChange::NeedsReboot);
    let layout = some(&[(&[1], &[("3g.20gb", 2)])]);
    let said = ["GPU 1", "restart of the host", "16"];
    let seen = node.shape(&layout);
    node.says(seen, ShapingOutcome::RebootRequired, &said);
    let seen = node.look(&layout);
    node.says(seen, ShapingOutcome::RebootRequired, &said);
    let asked = node.writes();
    assert_eq!(
        asked,
        ["GPU 1: nvmlDeviceSetMigMode mode 1 = 0"],
        "asked once, and nothing restarted"
    );
    // Another shaper asks again: nobody told it what the driver had said.
    node.restart();
    let seen = node.look(&layout);
    node.says(seen, ShapingOutcome::Working, &[]);
    let seen = node.shape(&layout);
    node.says(seen, ShapingOutcome::RebootRequired, &said);
    // The host restarts, by whose hand ever.
    node.fake.reboot().unwrap();
    node.tree.file(REBOOT, "another-boot\n");
    node.restart();
    node.makes(&layout, &[&[], &[("3g.20gb", 0), ("3g.20gb", 4)]]);
    assert_ne!(BOOT, "another-boot");
}

#[test]
fn a_guest_whose_gpu_cannot_be_reset_is_told_what_that_is() {
    let mut node = waiting(ModeChange::NotSupported);
    let layout = some(&[(&[1], &[("7g.40gb", 1)])]);
    for shapes in [true, false] {
        let seen = if shapes {
            node.shape(&layout)
        } else {
            node.look(&layout)
        };
        node.says(
            seen,
            ShapingOutcome::Failed,
            &["GPU 1", "passed through to a virtual machine"],
        );
    }
}

#[test]
fn a_mode_change_that_somebody_is_in_the_way_of_leaves_no_trace() {
    let mut node = Node::new(&[Board::A100x40]);
    let layout = all(&[("7g.40gb", 1)]);
    // A process: seen before anything is asked.
    node.fake
        .change_gpu(0, |gpu| {
            gpu.processes.push(freehold_fake_nvml::state::Process {
                pid: 77,
                instance: None,
            });
        })
        .unwrap();
    let seen = node.shape(&layout);
    node.says(seen, ShapingOutcome::Busy, &["GPU 0", "process 77"]);
    node.rests();
    node.fake.end(77).unwrap();
    // A client that nobody lists: the driver says so when asked.
    node.fake
        .change_gpu(0, |gpu| gpu.unseen_client = true)
        .unwrap();
    let seen = node.shape(&layout);
    node.says(
        seen,
        ShapingOutcome::Busy,
        &["GPU 0", "whom the driver does not list"],
    );
    let gpu = &node.fake.state().unwrap().gpus[0];
    assert!(!gpu.mig && !gpu.pending, "no mode is left pending");
    node.fake
        .change_gpu(0, |gpu| gpu.unseen_client = false)
        .unwrap();
    node.makes(&layout, &[&[("7g.40gb", 0)]]);
}

#[test]
fn leaving_mig_may_be_refused_too_and_then_the_instances_come_back() {
    let mut node = Node::new(&[Board::A100x40]);
    node.fake.carve(0, &[(9, 4), (5, 0)]).unwrap();
    node.fake
        .change_gpu(0, |gpu| gpu.unseen_client = true)
        .unwrap();
    let off = all(&[]);
    let seen = node.shape(&off);
    node.says(
        seen,
        ShapingOutcome::Busy,
        &["leaving MIG mode", "was restored"],
    );
    node.carries(&[&[("4g.20gb", 0), ("3g.20gb", 4)]]);
    assert!(!node.directory().join("journal").exists());
    node.fake
        .change_gpu(0, |gpu| gpu.unseen_client = false)
        .unwrap();
    node.makes(&off, &[&[]]);
}

#[test]
fn a_mode_pending_by_another_hand_is_cancelled() {
    let mut node = Node::new(&[Board::A100x40]);
    node.fake.carve(0, &[(0, 0)]).unwrap();
    node.fake.change_gpu(0, |gpu| gpu.pending = false).unwrap();
    node.makes(&all(&[("7g.40gb", 1)]), &[&[("7g.40gb", 0)]]);
    assert_eq!(node.writes(), ["GPU 0: nvmlDeviceSetMigMode mode 1 = 0"]);
}

#[test]
fn mode_and_instances_lost_in_a_reboot_are_made_again() {
    for (board, mode_stays) in [(Board::H100, false), (Board::A100x80, true)] {
        let mut node = Node::new(&[board]);
        let layout = all(&[("1g.10gb", 7)]);
        assert!(node.shape(&layout).is_in_force());
        node.fake.reboot().unwrap();
        node.tree.file(REBOOT, "another-boot\n");
        assert_eq!(node.fake.state().unwrap().gpus[0].mig, mode_stays);
        let seen = node.look(&layout);
        node.says(seen, ShapingOutcome::Working, &["GPU 0"]);
        node.restart();
        assert!(node.shape(&layout).is_in_force());
        assert_eq!(node.fake.instances(0).unwrap().len(), 7);
    }
}
