//! Orders, shaper and sidecars as real processes, on a Trainium2 host.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "what fails here fails a test"
)]

mod support;

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use freehold_agent::interlock::lock::Lock;
use freehold_agent::interlock::order::Outcome;
use freehold_agent::protocol::{Reading, Request};
use freehold_agent::shape::order::LayoutOrder;
use freehold_core::intent::Layout;
use freehold_core::report::ShapingOutcome;
use freehold_core::vendor::PerVendor;
use support::{Agent, Tree, ask, eventually};

const STATE: &str = "/var/lib/freehold/neuron";
const SETTING: &str = "/opt/aws/neuron/logical_nc_config";

/// A host with its witness.
struct Node {
    tree: Tree,
    socket: PathBuf,
    _witness: Agent,
}

impl Node {
    fn new() -> Self {
        Self::with(|tree| tree.neurons(16, "Trainium2", 8, "2.30.2.0", "trn2.48xlarge"))
    }

    fn with(hardware: impl FnOnce(&Tree)) -> Self {
        let tree = Tree::new();
        hardware(&tree);
        tree.dir("/run");
        let socket = tree.at("/run/witness.sock");
        let witness = Agent::start(&[
            "witness",
            "--host-root",
            tree.root().to_str().unwrap(),
            "--socket",
            socket.to_str().unwrap(),
        ]);
        eventually(
            || std::os::unix::net::UnixStream::connect(&socket).is_ok(),
            || format!("a witness: {:?}", witness.said()),
        );
        Self {
            tree,
            socket,
            _witness: witness,
        }
    }

    fn shaper(&self) -> Agent {
        Agent::start(&[
            "shaper",
            "--vendor",
            "neuron",
            "--state-dir",
            self.tree.at(STATE).to_str().unwrap(),
            "--host-root",
            self.tree.root().to_str().unwrap(),
        ])
    }

    fn operand(&self) -> Agent {
        Agent::start(&[
            "hold",
            "--vendor",
            "neuron",
            "--owner",
            "device-plugin",
            "--state-dir",
            self.tree.at(STATE).to_str().unwrap(),
            "--started",
            self.mark().to_str().unwrap(),
            "--shaped",
            "--boot-id-file",
            self.tree
                .at("/proc/sys/kernel/random/boot_id")
                .to_str()
                .unwrap(),
        ])
    }

    fn mark(&self) -> PathBuf {
        self.tree.at("/pod/held")
    }

    fn runs(&self) -> bool {
        Command::new(support::program())
            .args(["held", "--started"])
            .arg(self.mark())
            .status()
            .unwrap()
            .success()
    }

    /// Reports an order as the agent does: asks for a reading.
    fn order(&self, lnc: Option<u8>, generation: i64) -> Reading {
        let order = LayoutOrder {
            object_uid: "an-3".into(),
            object_created: 0,
            generation,
            layout: lnc.map(Layout::LogicalNeuronCore),
        };
        let layouts = PerVendor {
            nvidia: None,
            neuron: Some(order),
        };
        ask(
            &self.socket,
            &Request {
                layouts,
                ..Request::default()
            },
        )
    }

    fn outcome(&self, lnc: Option<u8>, generation: i64) -> Option<ShapingOutcome> {
        let layout = self.order(lnc, generation).neuron.report.layout;
        layout.shaping.map(|shaping| shaping.outcome)
    }

    fn becomes(&self, lnc: u8, generation: i64, wanted: ShapingOutcome) {
        eventually(
            || self.outcome(Some(lnc), generation) == Some(wanted),
            || {
                let reading = self.order(Some(lnc), generation);
                format!("{wanted:?}: {:?}", reading.neuron)
            },
        );
    }
}

#[test]
fn an_order_goes_from_the_witness_over_the_shaper_to_the_reading_and_back() {
    let node = Node::new();
    assert_eq!(node.outcome(None, 1), None, "nobody shapes here");
    let shaper = node.shaper();
    shaper.says("neuron: no layout is ordered");
    assert_eq!(node.outcome(None, 1), Some(ShapingOutcome::Idle));
    for (lnc, generation, cores) in [(1, 2, 128), (2, 3, 64)] {
        let first = node.order(Some(lnc), generation).neuron;
        assert_eq!(first.layout_order, Some(Outcome::InForce));
        node.becomes(lnc, generation, ShapingOutcome::InForce);
        let report = node.order(Some(lnc), generation).neuron.report;
        assert_eq!(report.inventory.logical_cores, Some(cores));
        assert_eq!(
            std::fs::read_to_string(node.tree.at(SETTING)).unwrap(),
            format!("NEURON_LOGICAL_NC_CONFIG={lnc}\n")
        );
    }
}

#[test]
fn an_order_is_not_taken_while_a_pod_uses_the_devices() {
    let node = Node::new();
    let _shaper = node.shaper();
    node.tree.dir("/var/lib/kubelet/pods/pod-a");
    node.tree
        .plugin_checkpoint(&[("pod-a", "aws.amazon.com/neuron")]);
    let part = node.order(Some(1), 1).neuron;
    assert_eq!(part.report.in_use.device_plugin, 1);
    assert_eq!(part.layout_order, Some(Outcome::Busy));
    assert!(!node.tree.at(&format!("{STATE}/layout")).exists());
}

#[test]
fn a_layout_that_is_there_anyhow_is_ordered_under_running_workloads_and_guarded_from_then_on() {
    let node = Node::new();
    node.tree.word("neuron", "device-plugin");
    let shaper = node.shaper();
    node.tree.dir("/var/lib/kubelet/pods/pod-a");
    node.tree
        .plugin_checkpoint(&[("pod-a", "aws.amazon.com/neuron")]);
    assert_eq!(
        node.order(Some(2), 1).neuron.layout_order,
        Some(Outcome::InForce),
        "2 is the family's default"
    );
    node.becomes(2, 1, ShapingOutcome::InForce);
    // The operand restarts, into the version that waits for its layout.
    let mut operand = node.operand();
    eventually(|| node.runs(), || format!("{:?}", operand.said()));
    operand.stops();
    node.tree.file(SETTING, "NEURON_LOGICAL_NC_CONFIG=1\n");
    node.becomes(2, 1, ShapingOutcome::Busy);
    shaper.says("it is changed once nothing is in use");
    node.tree.remove("/var/lib/kubelet/pods/pod-a");
    node.tree.plugin_checkpoint(&[]);
    node.becomes(2, 1, ShapingOutcome::InForce);
    assert_eq!(
        std::fs::read_to_string(node.tree.at(SETTING)).unwrap(),
        "NEURON_LOGICAL_NC_CONFIG=2\n"
    );
}

#[test]
fn an_operand_starts_when_its_layout_is_verified_and_not_before() {
    let node = Node::new();
    node.tree.word("neuron", "device-plugin");
    let operand = node.operand();
    operand.says("waiting: no layout is ordered on this node yet");
    node.order(Some(1), 1);
    operand.says("waiting: the node's shaper has not looked at the layout yet");
    assert!(!node.runs());
    let _shaper = node.shaper();
    operand.says("holding neuron for device-plugin");
    eventually(|| node.runs(), || format!("{:?}", operand.said()));
}

#[test]
fn under_a_living_operand_a_setting_changed_by_hand_is_told_and_left_and_afterwards_mended() {
    let node = Node::new();
    node.tree.word("neuron", "device-plugin");
    let shaper = node.shaper();
    node.order(Some(1), 1);
    node.becomes(1, 1, ShapingOutcome::InForce);
    let mut operand = node.operand();
    eventually(|| node.runs(), || format!("{:?}", operand.said()));
    node.tree.file(SETTING, "NEURON_LOGICAL_NC_CONFIG=2\n");
    node.becomes(1, 1, ShapingOutcome::Busy);
    shaper.says("an operand of this node holds the lock");
    assert_eq!(
        std::fs::read_to_string(node.tree.at(SETTING)).unwrap(),
        "NEURON_LOGICAL_NC_CONFIG=2\n"
    );
    operand.stops();
    node.becomes(1, 1, ShapingOutcome::InForce);
    assert_eq!(
        std::fs::read_to_string(node.tree.at(SETTING)).unwrap(),
        "NEURON_LOGICAL_NC_CONFIG=1\n"
    );
}

#[test]
fn a_killed_sidecar_takes_the_lock_of_its_running_operand_again_whatever_became_of_the_geometry() {
    let node = Node::new();
    node.tree.word("neuron", "device-plugin");
    let _shaper = node.shaper();
    node.order(Some(1), 1);
    node.becomes(1, 1, ShapingOutcome::InForce);
    let mut sidecar = node.operand();
    eventually(|| node.runs(), || format!("{:?}", sidecar.said()));
    node.tree.file(SETTING, "NEURON_LOGICAL_NC_CONFIG=2\n");
    node.becomes(1, 1, ShapingOutcome::Busy);
    // The pod holds a device, so that the lock alone stands between the shaper and the pod.
    node.tree.dir("/var/lib/kubelet/pods/pod-a");
    node.tree
        .plugin_checkpoint(&[("pod-a", "aws.amazon.com/neuron")]);
    for end in ["KILL", "TERM"] {
        sidecar.signal(end);
        sidecar.ends();
        // Somebody else is quicker, for a while: whatever is said by then, the lock is wanted.
        let rival = Lock::try_take(&node.tree.at(STATE)).unwrap();
        sidecar = node.operand();
        sidecar.says("another process of this node holds the lock of neuron");
        assert!(!node.runs());
        drop(rival);
        sidecar.says("holding neuron for device-plugin");
        eventually(|| node.runs(), || format!("{:?}", sidecar.said()));
    }
    assert_eq!(node.outcome(Some(1), 1), Some(ShapingOutcome::Busy));
    // The next boot ends what was let in: its pod starts anew, and so does the wait.
    sidecar.signal("KILL");
    sidecar.ends();
    node.tree
        .file("/proc/sys/kernel/random/boot_id", "another-boot\n");
    let rival = Lock::try_take(&node.tree.at(STATE)).unwrap();
    let later = node.operand();
    later.says("waiting: the node's shaper has not looked at the layout in this boot yet");
    drop(rival);
}

#[test]
fn an_operand_starts_where_the_layout_was_withdrawn_and_waits_where_none_was_ordered_yet() {
    let node = Node::new();
    node.tree.word("neuron", "device-plugin");
    node.order(None, 1);
    let mut operand = node.operand();
    operand.says("waiting: no layout is ordered on this node yet");
    operand.stops();
    node.order(Some(1), 2);
    let operand = node.operand();
    operand.says("waiting: the node's shaper has not looked at the layout yet");
    node.order(None, 3);
    eventually(|| node.runs(), || format!("{:?}", operand.said()));
}

#[test]
fn after_a_reboot_the_operand_waits_until_the_layout_is_verified_anew() {
    let node = Node::new();
    node.tree.word("neuron", "device-plugin");
    let mut shaper = node.shaper();
    node.order(Some(1), 1);
    node.becomes(1, 1, ShapingOutcome::InForce);
    shaper.stops();
    // The host restarts from an image that knows nothing of the setting.
    node.tree
        .file("/proc/sys/kernel/random/boot_id", "another-boot\n");
    node.tree.remove(SETTING);
    let operand = node.operand();
    operand.says("waiting: the node's shaper has not looked at the layout in this boot yet");
    assert_eq!(node.outcome(Some(1), 1), Some(ShapingOutcome::Working));
    assert!(!node.runs());
    let _shaper = node.shaper();
    eventually(|| node.runs(), || format!("{:?}", operand.said()));
    assert_eq!(
        std::fs::read_to_string(node.tree.at(SETTING)).unwrap(),
        "NEURON_LOGICAL_NC_CONFIG=1\n",
        "without anybody having ordered it again"
    );
}

#[test]
fn an_operand_that_may_not_start_never_stands_in_the_shaper_s_way() {
    let node = Node::with(|tree| tree.neurons(1, "Trainium1", 2, "2.30.2.0", "trn1.2xlarge"));
    node.tree.word("neuron", "device-plugin");
    let operand = node.operand();
    node.order(Some(2), 1);
    let _shaper = node.shaper();
    node.becomes(2, 1, ShapingOutcome::Infeasible);
    operand.says(
        "waiting: the ordered layout cannot be had on this hardware: instance type trn1.2xlarge",
    );
    let shaping = node.order(Some(2), 1).neuron.report.layout.shaping.unwrap();
    assert!(
        shaping
            .message
            .unwrap()
            .contains("is fixed at 1 on Trainium1")
    );
    assert!(!node.tree.at(SETTING).exists() && !node.runs());
}

#[test]
fn a_shaper_at_rest_is_small_sleeps_and_writes_nothing() {
    let node = Node::new();
    let shaper = node.shaper();
    node.order(Some(1), 1);
    node.becomes(1, 1, ShapingOutcome::InForce);
    let written = |name: &str| {
        let path = node.tree.at(&format!("{STATE}/{name}"));
        std::fs::metadata(path).unwrap().modified().unwrap()
    };
    let before = (written("layout"), written("shaped"));
    let (memory, ticks) = (
        support::resident_kib(shaper.pid()),
        support::cpu_ticks(shaper.pid()),
    );
    std::thread::sleep(Duration::from_secs(3));
    let ticks = support::cpu_ticks(shaper.pid()) - ticks;
    println!(
        "shaper of neuron: {memory} KiB RSS, {} ms of processor time in 3 s",
        ticks * 10
    );
    assert!(ticks <= 3, "{ticks} ticks of 10 ms in 3 s");
    assert_eq!(before, (written("layout"), written("shaped")));
}
