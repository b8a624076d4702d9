//! The shaper as a real process, between a real witness and an operand's lock.

use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use freehold_agent::interlock::lock::Lock;
use freehold_agent::protocol::{Reading, Request};
use freehold_agent::shape::order::LayoutOrder;
use freehold_core::report::{MigProfileCount, ShapingOutcome};
use freehold_core::vendor::PerVendor;
use freehold_fake_nvml::Board;

use super::support::{Agent, ask, eventually};
use super::{Node, all};

/// A node with its witness.
struct Host {
    node: Node,
    socket: PathBuf,
    _witness: Agent,
}

impl Host {
    fn new(boards: &[Board]) -> Self {
        let node = Node::new(boards);
        let count = u32::try_from(boards.len()).unwrap();
        node.tree.gpus(count, "NVIDIA H100 80GB HBM3", "580.95.05");
        node.tree.dir("/run");
        let socket = node.tree.at("/run/witness.sock");
        let witness = Agent::start(&[
            "witness",
            "--host-root",
            node.tree.root().to_str().unwrap(),
            "--socket",
            socket.to_str().unwrap(),
        ]);
        eventually(
            || UnixStream::connect(&socket).is_ok(),
            || format!("a witness: {:?}", witness.said()),
        );
        Self {
            node,
            socket,
            _witness: witness,
        }
    }

    fn shaper(&self) -> Agent {
        Agent::start(&[
            "shaper",
            "--vendor",
            "nvidia",
            "--state-dir",
            self.node.directory().to_str().unwrap(),
            "--host-root",
            self.node.tree.root().to_str().unwrap(),
            "--nvml",
            self.node.driver.path().to_str().unwrap(),
        ])
    }

    /// Orders seven instances on each GPU as the agent does, and reads what there is.
    fn seven(&self) -> Reading {
        let order = LayoutOrder {
            object_uid: "an-1".into(),
            object_created: 0,
            generation: 1,
            layout: Some(all(&[("1g.10gb", 7)])),
        };
        let request = Request {
            layouts: PerVendor {
                nvidia: Some(order),
                neuron: None,
            },
            ..Request::default()
        };
        ask(&self.socket, &request)
    }

    /// Waits until the witness tells this outcome.
    fn tells(&self, outcome: ShapingOutcome) -> Reading {
        let told = |reading: &Reading| {
            let shaping = reading.nvidia.report.layout.shaping.clone();
            shaping.map(|shaping| shaping.outcome)
        };
        let mut reading = self.seven();
        eventually(
            || {
                reading = self.seven();
                told(&reading) == Some(outcome)
            },
            || format!("{outcome:?}: {:?}", self.seven().nvidia.report.layout),
        );
        reading
    }
}

#[test]
fn an_order_is_carried_out_once_no_operand_is_alive_and_again_after_a_reboot() {
    let host = Host::new(&[Board::H100, Board::H100]);
    let node = &host.node;
    host.tells(ShapingOutcome::Working);
    let operand = Lock::try_take(&node.directory()).unwrap().unwrap();
    let mut first = host.shaper();
    host.tells(ShapingOutcome::Busy);
    node.rests();
    drop(operand);
    let layout = host.tells(ShapingOutcome::InForce).nvidia.report.layout;
    let seven = [MigProfileCount {
        profile: "1g.10gb".into(),
        count: 7,
    }];
    assert!(
        layout.mig.len() == 2 && layout.mig.values().all(|gpu| *gpu == seven),
        "counted by the host, named by the shaper: {layout:?}"
    );
    assert_eq!(layout.mig_enabled_gpus, 2);
    assert_eq!(layout.boards.len(), 1);
    assert_eq!(layout.boards[0].gpus, [0, 1]);
    assert!(!node.writes().is_empty());
    first.signal("KILL");
    first.ends();

    node.fake.reboot().unwrap();
    node.tree
        .file("/proc/sys/kernel/random/boot_id", "another-boot\n");
    let layout = host.tells(ShapingOutcome::Working).nvidia.report.layout;
    assert!(layout.mig.is_empty(), "{layout:?}");
    let _second = host.shaper();
    let layout = host.tells(ShapingOutcome::InForce).nvidia.report.layout;
    assert!(layout.mig.values().all(|gpu| *gpu == seven), "{layout:?}");

    // Somebody destroys an instance by hand while a pod is on another: seen, and repaired once that has ended.
    node.tree.dir("/var/lib/kubelet/pods/pod-a");
    node.tree
        .plugin_checkpoint(&[("pod-a", "nvidia.com/mig-1g.10gb")]);
    node.writes();
    node.fake
        .change_gpu(0, |gpu| gpu.instances.pop().map(|_| ()))
        .unwrap();
    host.tells(ShapingOutcome::Busy);
    assert_eq!(host.seven().nvidia.report.in_use.device_plugin, 1);
    node.rests();
    node.tree.remove("/var/lib/kubelet/pods/pod-a");
    node.tree.plugin_checkpoint(&[]);
    host.tells(ShapingOutcome::InForce);
    assert_eq!(node.fake.instances(0).unwrap().len(), 7);
    let repairs = node.writes();
    assert_eq!(
        repairs.len(),
        2,
        "one instance and its compute instance: {repairs:#?}"
    );
}
