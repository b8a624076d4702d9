//! The interlock with real processes: sidecars of two owners, kills, and orders in between.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "what fails here fails a test"
)]

mod support;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use freehold_agent::interlock::lock::Lock;
use freehold_agent::interlock::order::{Order, Outcome, obey};
use freehold_core::vendor::{Owner, Vendor};
use support::{Agent, Tree, eventually};

/// One vendor's directory and two pods' marks.
struct Node {
    tree: Tree,
}

impl Node {
    fn new() -> Self {
        Self { tree: Tree::new() }
    }

    fn directory(&self) -> PathBuf {
        self.tree.at("/var/lib/freehold/nvidia")
    }

    fn mark(&self, pod: &str) -> PathBuf {
        self.tree.at(&format!("/pods/{pod}/held"))
    }

    fn pod(&self, name: &str, owner: &str) -> Agent {
        let (directory, mark) = (self.directory(), self.mark(name));
        let (directory, mark) = (directory.to_str().unwrap(), mark.to_str().unwrap());
        Agent::start(&[
            "hold",
            "--vendor",
            "nvidia",
            "--owner",
            owner,
            "--state-dir",
            directory,
            "--started",
            mark,
        ])
    }

    fn order(&self, owner: Owner, generation: i64) -> Outcome {
        obey(
            &self.directory(),
            &Order {
                vendor: Vendor::Nvidia,
                owner,
                object_uid: "an-7".into(),
                object_created: 0,
                generation,
            },
        )
    }
}

/// What the startup probe finds.
fn probe(mark: &Path) -> bool {
    let status = Command::new(support::program())
        .args(["held", "--started"])
        .arg(mark)
        .status()
        .unwrap();
    match status.code() {
        Some(0) => true,
        Some(1) => false,
        other => panic!("held ended with {other:?}"),
    }
}

fn becomes_held(mark: &Path) {
    eventually(|| probe(mark), || format!("{} is held", mark.display()));
}

#[test]
fn of_two_owners_only_the_one_with_the_word_starts() {
    let node = Node::new();
    node.tree.word("nvidia", "dra");
    let plugin = node.pod("plugin", "device-plugin");
    plugin.says("waiting: the owner word of nvidia is dra, this pod is device-plugin");
    let dra = node.pod("dra", "dra");
    dra.says("holding nvidia for dra");
    becomes_held(&node.mark("dra"));
    assert!(!probe(&node.mark("plugin")));
    assert_eq!(
        plugin.said().len(),
        1,
        "a reason is said once: {:?}",
        plugin.said()
    );
}

#[test]
fn a_second_pod_of_the_same_owner_waits_until_the_first_is_gone() {
    let node = Node::new();
    node.tree.word("nvidia", "device-plugin");
    let mut old = node.pod("old", "device-plugin");
    becomes_held(&node.mark("old"));
    let new = node.pod("new", "device-plugin");
    new.says("waiting: another process of this node holds the lock of nvidia");
    assert!(old.stops() < Duration::from_secs(2));
    assert!(!probe(&node.mark("old")));
    becomes_held(&node.mark("new"));
}

#[test]
fn nobody_starts_without_a_word_and_the_word_s_owner_does_once_it_comes() {
    let node = Node::new();
    let plugin = node.pod("plugin", "device-plugin");
    let dra = node.pod("dra", "dra");
    plugin.says("waiting: there is no owner word of nvidia yet, this pod is device-plugin");
    dra.says("waiting: there is no owner word of nvidia yet, this pod is dra");
    assert_eq!(
        node.order(Owner::Dra, 1),
        Outcome::InForce,
        "waiting pods do not stand in an order's way"
    );
    becomes_held(&node.mark("dra"));
    plugin.says("waiting: the owner word of nvidia is dra");
    assert!(!probe(&node.mark("plugin")));
}

#[test]
fn the_word_is_not_changed_while_an_operand_holds_and_is_after_a_kill() {
    let node = Node::new();
    assert_eq!(node.order(Owner::DevicePlugin, 1), Outcome::InForce);
    let mut plugin = node.pod("plugin", "device-plugin");
    becomes_held(&node.mark("plugin"));
    let dra = node.pod("dra", "dra");
    dra.says("waiting: the owner word of nvidia is device-plugin");
    assert_eq!(node.order(Owner::Dra, 2), Outcome::Busy);
    assert_eq!(node.tree.read_word("nvidia").unwrap(), "device-plugin\n");
    plugin.signal("KILL");
    assert_eq!(plugin.ends(), None, "killed");
    assert!(
        !probe(&node.mark("plugin")),
        "the mark outlives its maker and must not count"
    );
    assert_eq!(node.order(Owner::Dra, 2), Outcome::InForce);
    becomes_held(&node.mark("dra"));
    // The killed sidecar's container starts again.
    let again = node.pod("plugin", "device-plugin");
    again.says("waiting: the owner word of nvidia is dra");
    assert!(!probe(&node.mark("plugin")));
}

#[test]
fn a_damaged_word_stops_everybody_and_says_so() {
    let node = Node::new();
    node.tree.file("/var/lib/freehold/nvidia/owner", "dra");
    let dra = node.pod("dra", "dra");
    dra.says("holds \"dra\", which is no owner word");
    node.tree.word("nvidia", "dra");
    becomes_held(&node.mark("dra"));
}

#[test]
fn without_room_for_the_mark_nothing_is_held() {
    let node = Node::new();
    node.tree.word("nvidia", "dra");
    node.tree.dir("/pods/dra");
    std::os::unix::fs::symlink("/dev/full", node.tree.at("/pods/dra/.held.new")).unwrap();
    // The first try fails, and clears away its draft; the next finds room.
    let dra = node.pod("dra", "dra");
    dra.says("No space left on device");
    becomes_held(&node.mark("dra"));
    dra.says("holding nvidia for dra");
}

#[test]
fn a_holder_takes_the_lock_again_that_somebody_removed() {
    let node = Node::new();
    node.tree.word("nvidia", "dra");
    let _dra = node.pod("dra", "dra");
    becomes_held(&node.mark("dra"));
    node.tree.remove("/var/lib/freehold/nvidia/lock");
    let directory = node.directory();
    let is_locked =
        || directory.join("lock").exists() && Lock::try_take(&directory).unwrap().is_none();
    eventually(is_locked, || "the new lock file is locked".to_owned());
    assert!(probe(&node.mark("dra")));
}

#[test]
fn a_word_written_by_hand_does_not_let_a_second_owner_in() {
    let node = Node::new();
    node.tree.word("nvidia", "dra");
    let dra = node.pod("dra", "dra");
    becomes_held(&node.mark("dra"));
    node.tree.word("nvidia", "device-plugin");
    let plugin = node.pod("plugin", "device-plugin");
    plugin.says("waiting: another process of this node holds the lock of nvidia");
    dra.says(
        "holding nvidia for dra, but the owner word of nvidia is device-plugin, this pod is dra",
    );
    assert!(!probe(&node.mark("plugin")) && probe(&node.mark("dra")));
}

#[test]
fn a_sidecar_is_small_and_sleeps() {
    let node = Node::new();
    node.tree.word("nvidia", "dra");
    let holding = node.pod("dra", "dra");
    becomes_held(&node.mark("dra"));
    let waiting = node.pod("plugin", "device-plugin");
    waiting.says("waiting:");
    for (name, pod) in [("holding", &holding), ("waiting", &waiting)] {
        let (memory, before) = (
            support::resident_kib(pod.pid()),
            support::cpu_ticks(pod.pid()),
        );
        std::thread::sleep(Duration::from_secs(3));
        let ticks = support::cpu_ticks(pod.pid()) - before;
        println!(
            "hold, {name}: {memory} KiB RSS, {} ms of processor time in 3 s",
            ticks * 10
        );
        assert!(ticks <= 3, "{name}: {ticks} ticks of 10 ms in 3 s");
        assert!(
            !support::is_release() || memory <= 6 << 10,
            "{name}: {memory} KiB"
        );
    }
}

#[test]
fn a_waiting_pod_stops_when_asked() {
    let node = Node::new();
    let mut dra = node.pod("dra", "dra");
    dra.says("waiting:");
    assert!(dra.stops() < Duration::from_secs(2));
}
