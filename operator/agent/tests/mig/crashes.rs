//! The real shaper, killed after each call of a change.

use freehold_agent::interlock::order::Outcome;
use freehold_agent::shape::order::{LayoutOrder, Moment, obey};
use freehold_core::intent::Layout;
use freehold_fake_nvml::{Board, KILL_VARIABLE};

use super::support::Agent;
use super::{Node, SEVEN, SEVEN_IDS, all};

/// Starts the shaper of a node, to be killed after so many calls of its own.
fn shaper(node: &Node, last_call: Option<u64>) -> Agent {
    let root = node.tree.root().to_str().unwrap();
    let directory = node.directory();
    let last = last_call.map(|call| call.to_string());
    let environment: Vec<(&str, &str)> = last
        .iter()
        .map(|call| (KILL_VARIABLE, call.as_str()))
        .collect();
    Agent::start_with(
        &[
            "shaper",
            "--vendor",
            "nvidia",
            "--state-dir",
            directory.to_str().unwrap(),
            "--host-root",
            root,
            "--nvml",
            node.driver.path().to_str().unwrap(),
        ],
        &environment,
    )
}

fn order(node: &Node, layout: &Layout) {
    let order = LayoutOrder {
        object_uid: "an-1".into(),
        object_created: 0,
        generation: 1,
        layout: Some(layout.clone()),
    };
    assert_eq!(
        obey(&node.directory(), &order, Moment::Idle),
        Outcome::InForce
    );
}

/// Seven instances and nothing on record.
fn begin(node: &mut Node, layout: &Layout) {
    node.fake
        .change_gpu(0, |gpu| {
            gpu.instances.clear();
            gpu.processes.clear();
        })
        .unwrap();
    node.fake.carve(0, &SEVEN_IDS).unwrap();
    for file in ["journal", "shaped"] {
        let _ = std::fs::remove_file(node.directory().join(file));
    }
    node.fake
        .change(|state| {
            state.calls.clear();
            state.processes.clear();
            state.writes.clear();
        })
        .unwrap();
    node.restart();
    order(node, layout);
}

#[test]
fn killed_after_any_call_of_a_change_it_ends_in_the_wanted_layout_or_the_old_one() {
    let layout = all(&[("3g.20gb", 1), ("4g.20gb", 1)]);
    let goal: [(&str, u32); 2] = [("4g.20gb", 0), ("3g.20gb", 4)];
    let mut node = Node::new(&[Board::A100x40]);

    // Where the first and the last call that change something are, among all calls of one run.
    begin(&mut node, &layout);
    let mut whole = shaper(&node, None);
    whole.says("is in force");
    let (mut first, mut last) = (None, 0);
    let numbered = node.fake.state().unwrap().writes;
    for write in &numbered {
        first.get_or_insert(write.at);
        last = write.at;
    }
    let first = first.unwrap();
    whole.signal("KILL");
    whole.ends();
    node.carries(&[&goal]);

    let (mut points, mut forward, mut back) = (0, 0, 0);
    for call in (first - 1)..=(last + 1) {
        begin(&mut node, &layout);
        let mut killed = shaper(&node, Some(call));
        assert_eq!(killed.ends(), None, "killed after call {call}");
        points += 1;

        // Somebody takes one of the old instances that are left: every other time there is no way forward.
        let left = node.fake.state().unwrap().gpus[0].instances.clone();
        let old = left
            .iter()
            .find(|instance| instance.profile == 19 && instance.compute.len() == 1);
        let is_blocked = call % 2 == 0 && old.is_some();
        if is_blocked {
            node.fake.occupy(0, old.unwrap().id, 4711).unwrap();
        }
        let seen = node.shape(&layout);
        if is_blocked {
            assert!(!seen.is_in_force());
            node.carries(&[&SEVEN]);
            back += 1;
        } else {
            assert!(seen.is_in_force(), "after call {call}: {:?}", seen.shaping);
            node.carries(&[&goal]);
            forward += 1;
        }
        assert!(
            !node.directory().join("journal").exists(),
            "after call {call}"
        );
    }
    println!("{points} points: {forward} ended in the wanted layout, {back} in the old one");
    assert!(points > 100 && forward > 0 && back > 0);
}
