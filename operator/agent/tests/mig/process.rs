//! The shaper as a real process.

use freehold_agent::interlock::lock::Lock;
use freehold_agent::interlock::order::Outcome;
use freehold_agent::shape::order::{LayoutOrder, obey};
use freehold_agent::shape::shaped;
use freehold_core::report::ShapingOutcome;
use freehold_fake_nvml::Board;

use super::support::{Agent, eventually};
use super::{Node, all};

fn shaper(node: &Node) -> Agent {
    let directory = node.directory();
    Agent::start(&[
        "shaper",
        "--vendor",
        "nvidia",
        "--state-dir",
        directory.to_str().unwrap(),
        "--host-root",
        node.tree.root().to_str().unwrap(),
        "--nvml",
        node.driver.path().to_str().unwrap(),
    ])
}

fn until(node: &Node, outcome: ShapingOutcome) -> shaped::Shaped {
    let read = || shaped::read(&node.directory()).ok().flatten();
    eventually(
        || read().is_some_and(|said| said.shaping.outcome == outcome),
        || format!("{outcome:?}, found {:?}", read()),
    );
    read().unwrap()
}

#[test]
fn an_order_is_carried_out_once_no_operand_is_alive_and_again_after_a_reboot() {
    let node = Node::new(&[Board::H100, Board::H100]);
    let order = LayoutOrder {
        object_uid: "an-1".into(),
        generation: 1,
        layout: Some(all(&[("1g.10gb", 7)])),
    };
    let operand = Lock::try_take(&node.directory()).unwrap().unwrap();
    assert_eq!(obey(&node.directory(), &order, true), Outcome::InForce);
    let mut first = shaper(&node);
    until(&node, ShapingOutcome::Busy);
    node.rests();
    drop(operand);
    let said = until(&node, ShapingOutcome::InForce);
    assert_eq!(said.instances[&1].len(), 7);
    assert_eq!(said.boards[0].gpus, [0, 1]);
    assert!(!node.writes().is_empty());
    first.signal("KILL");
    first.ends();

    node.fake.reboot().unwrap();
    node.tree
        .file("/proc/sys/kernel/random/boot_id", "another-boot\n");
    let _second = shaper(&node);
    eventually(
        || {
            let said = shaped::read(&node.directory()).ok().flatten();
            said.is_some_and(|said| {
                said.boot_id == "another-boot" && said.shaping.outcome == ShapingOutcome::InForce
            })
        },
        || "the layout in force again".to_owned(),
    );
    assert_eq!(node.fake.instances(0).unwrap().len(), 7);

    // Somebody destroys an instance by hand: seen, and repaired under the lock.
    node.writes();
    node.fake
        .change_gpu(0, |gpu| gpu.instances.pop().map(|_| ()))
        .unwrap();
    eventually(
        || node.fake.instances(0).unwrap().len() == 7,
        || "the seventh again".to_owned(),
    );
}
