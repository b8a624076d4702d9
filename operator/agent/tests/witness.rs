//! A real witness process over trees of files.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "what fails here fails a test"
)]

mod support;

use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::time::Duration;

use freehold_agent::interlock::lock::Lock;
use freehold_agent::interlock::order::{Order, Outcome};
use freehold_agent::protocol::{Reading, Request};
use freehold_core::report::{InUse, MigProfileCount, Model};
use freehold_core::vendor::{Owner, Vendor};
use support::{Agent, BOOT, Tree, ask, eventually, send};

const CLAIM: &str = "0b5d8d2e-6a0c-4a5e-9d8b-1f2a3b4c5d6e";
const KUBELET: &str = "/var/lib/kubelet";

struct Node {
    tree: Tree,
    socket: PathBuf,
    agent: Agent,
}

impl Node {
    fn new(tree: Tree) -> Self {
        Self::with_roots(tree, &[KUBELET])
    }

    fn with_roots(tree: Tree, roots: &[&str]) -> Self {
        let socket = tree.at("/run/witness.sock");
        tree.dir("/run");
        let agent = start(&tree, &socket, roots);
        Self {
            tree,
            socket,
            agent,
        }
    }

    fn look(&self) -> Reading {
        ask(&self.socket, &Request::default())
    }
}

fn start(tree: &Tree, socket: &std::path::Path, roots: &[&str]) -> Agent {
    let (root, at) = (tree.root().to_str().unwrap(), socket.to_str().unwrap());
    let mut arguments = vec!["witness", "--host-root", root, "--socket", at];
    for kubelet in roots {
        arguments.extend(["--kubelet-root", kubelet]);
    }
    let agent = Agent::start(&arguments);
    eventually(
        || std::os::unix::net::UnixStream::connect(socket).is_ok(),
        || format!("a witness: {:?}", agent.said()),
    );
    agent
}

fn idle() -> InUse {
    InUse::default()
}

#[test]
fn a_host_without_accelerators_is_read_without_errors() {
    let node = Node::new(Tree::new());
    let reading = node.look();
    assert_eq!(reading.boot_id, BOOT);
    assert!(!reading.nvidia.present && !reading.neuron.present);
    assert_eq!(reading.errors, Vec::<String>::new());
}

#[test]
fn gpus_and_their_driver_are_found() {
    let tree = Tree::new();
    tree.gpus(4, "NVIDIA H200", "570.86.15");
    tree.pci("0000:50:00.0", "0x10de", "0x22a3", "0x068000");
    tree.dir("/proc/driver/nvidia/capabilities/gpu2/mig/gi1/ci0");
    tree.dir("/proc/driver/nvidia/capabilities/gpu2/mig/gi2/ci0");
    tree.dir("/proc/driver/nvidia/capabilities/gpu0/mig");
    let reading = Node::new(tree).look();
    let part = &reading.nvidia.report;
    assert!(reading.nvidia.present && !reading.neuron.present);
    assert_eq!((part.pci_devices, part.inventory.devices), (4, 4));
    assert_eq!(part.inventory.driver_version.as_deref(), Some("570.86.15"));
    assert_eq!(
        part.inventory.models,
        [Model {
            name: "NVIDIA H200".into(),
            count: 4,
            memory_mib: None
        }]
    );
    assert_eq!(part.layout.mig_enabled_gpus, 1);
    assert_eq!(
        part.layout.mig["2"],
        [MigProfileCount {
            profile: "unknown".into(),
            count: 2
        }]
    );
    assert_eq!(part.in_use, idle());
}

#[test]
fn hardware_without_a_driver_is_told_from_no_hardware() {
    let tree = Tree::new();
    tree.pci("0000:40:00.0", "0x10de", "0x2901", "0x030200");
    tree.pci("0000:80:1f.0", "0x1d0f", "0x7264", "0x088000");
    let reading = Node::new(tree).look();
    for part in [&reading.nvidia, &reading.neuron] {
        assert!(part.present);
        assert_eq!(
            (part.report.pci_devices, part.report.inventory.devices),
            (1, 0)
        );
        assert_eq!(part.report.inventory.driver_version, None);
    }
}

#[test]
fn a_driver_that_does_not_say_its_version_is_not_an_absent_driver() {
    let tree = Tree::new();
    tree.gpus(1, "NVIDIA L40S", "");
    tree.neurons(1, "Trainium1", 2, "", "trn1.2xlarge");
    let reading = Node::new(tree).look();
    assert_eq!(
        reading.nvidia.report.inventory.driver_version.as_deref(),
        Some("")
    );
    assert_eq!(
        reading.neuron.report.inventory.driver_version.as_deref(),
        Some("")
    );
}

#[test]
fn neuron_cores_are_counted_at_the_setting_in_force() {
    // Instance type, device name, devices, cores each, setting file; then LNC, physical and logical cores.
    let cases = [
        ("trn2.3xlarge", "Trainium2", 1, 8, None, Some(2), 8, Some(4)),
        (
            "trn2.48xlarge",
            "Trainium2",
            16,
            8,
            Some("NEURON_LOGICAL_NC_CONFIG=1"),
            Some(1),
            128,
            Some(128),
        ),
        (
            "trn3.48xlarge",
            "Trainium3",
            16,
            8,
            None,
            Some(2),
            128,
            Some(64),
        ),
        (
            "trn1.32xlarge",
            "Trainium1",
            16,
            2,
            None,
            Some(1),
            32,
            Some(32),
        ),
        (
            "inf2.48xlarge",
            "Inferentia2",
            12,
            2,
            Some("NEURON_LOGICAL_NC_CONFIG=2\n"),
            Some(1),
            24,
            Some(24),
        ),
        ("trn9.48xlarge", "Trainium9", 2, 16, None, None, 32, None),
        (
            "trn2u.48xlarge",
            "Trainium2",
            16,
            8,
            Some("NEURON_LOGICAL_NC_CONFIG=2\nNEURON_LOGICAL_NC_CONFIG=2\n"),
            Some(2),
            128,
            Some(64),
        ),
    ];
    for (instance, name, devices, cores, setting, lnc, physical, logical) in cases {
        let tree = Tree::new();
        tree.neurons(devices, name, cores, "2.26.5.0", instance);
        if let Some(setting) = setting {
            tree.file("/opt/aws/neuron/logical_nc_config", setting);
        }
        let reading = freehold_agent::reading::Witness::new(tree.root(), &[KUBELET.into()])
            .observe(&Request::default());
        let part = &reading.neuron.report;
        assert_eq!(part.instance_type.as_deref(), Some(instance));
        assert_eq!(part.layout.logical_neuron_core, lnc, "{instance}");
        assert_eq!(part.inventory.physical_cores, Some(physical), "{instance}");
        assert_eq!(part.inventory.logical_cores, logical, "{instance}");
        assert_eq!(reading.errors, Vec::<String>::new(), "{instance}");
    }
}

#[test]
fn contradicting_settings_are_named_and_not_resolved() {
    let tree = Tree::new();
    tree.neurons(1, "Trainium2", 8, "2.26.5.0", "trn2.3xlarge");
    tree.file(
        "/opt/aws/neuron/logical_nc_config",
        "NEURON_LOGICAL_NC_CONFIG=1NEURON_LOGICAL_NC_CONFIG=2",
    );
    let reading = Node::new(tree).look();
    assert_eq!(reading.neuron.report.layout.logical_neuron_core, None);
    assert_eq!(reading.neuron.report.inventory.logical_cores, None);
    assert_eq!(reading.neuron.report.inventory.physical_cores, Some(8));
    assert!(
        reading.errors[0].starts_with("/opt/aws/neuron/logical_nc_config: holds both 1 and 2"),
        "{:?}",
        reading.errors
    );
    assert!(
        !reading.neuron.report.in_use.unknown,
        "a setting says nothing about holders"
    );
}

#[test]
fn a_plugin_s_pod_counts_for_as_long_as_it_has_a_home() {
    let tree = Tree::new();
    tree.gpus(2, "NVIDIA H200", "570.86.15");
    tree.neurons(1, "Trainium2", 8, "2.26.5.0", "trn2.3xlarge");
    tree.plugin_checkpoint(&[
        ("pod-a", "nvidia.com/gpu"),
        ("pod-a", "nvidia.com/gpu"),
        ("pod-b", "aws.amazon.com/neuroncore"),
    ]);
    tree.dir("/var/lib/kubelet/pods/pod-a/volumes/kubernetes.io~empty-dir/scratch");
    tree.dir(
        "/sys/fs/cgroup/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podpod_b.slice",
    );
    tree.dir("/sys/fs/cgroup/system.slice/kubelet.service");
    let node = Node::new(tree);
    let reading = node.look();
    let expected = |uid: &str| InUse {
        device_plugin: 1,
        holders: vec![format!("pod {uid}")],
        ..idle()
    };
    assert_eq!(
        reading.nvidia.report.in_use,
        expected("pod-a"),
        "two containers of one pod are one holder"
    );
    assert_eq!(reading.neuron.report.in_use, expected("pod-b"));
    // The entries stay, as the kubelet leaves them; the pods end.
    node.tree.remove("/var/lib/kubelet/pods/pod-a");
    node.tree.remove(
        "/sys/fs/cgroup/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podpod_b.slice",
    );
    let reading = node.look();
    assert_eq!(
        (&reading.nvidia.report.in_use, &reading.neuron.report.in_use),
        (&idle(), &idle())
    );
}

#[test]
fn a_claim_counts_while_any_of_three_records_names_it() {
    let tree = Tree::new();
    tree.gpus(2, "NVIDIA H200", "570.86.15");
    let driver = "/var/lib/kubelet/plugins/gpu.nvidia.com/checkpoint.json";
    let cdi = format!("/var/run/cdi/k8s.gpu.nvidia.com-claim_{CLAIM}.yaml");
    tree.dra_state(
        KUBELET,
        &[
            (CLAIM, "train", "gpu.nvidia.com"),
            ("u-9", "imex", "compute-domain.nvidia.com"),
        ],
    );
    tree.file(driver, &format!(r#"{{"checksum":1,"v2":{{"checksum":2,"nodeBootID":"{BOOT}","preparedClaims":{{"{CLAIM}":{{}}}}}}}}"#));
    tree.file(&cdi, "cdiVersion: 0.5.0\n");
    let node = Node::new(tree);
    let in_use = || node.look().nvidia.report.in_use;
    let named = |name: String| InUse {
        dra: 1,
        holders: vec![name],
        ..idle()
    };
    assert_eq!(
        in_use(),
        named("claim lab/train".into()),
        "one claim in three records is one holder"
    );
    node.tree.dra_state(KUBELET, &[]);
    assert_eq!(
        in_use(),
        named(format!("claim {CLAIM}")),
        "the driver still has it (driver issue 1278)"
    );
    node.tree.file(driver, r#"{"checksum":1,"v2":{"checksum":2,"nodeBootID":"an-earlier-boot","preparedClaims":{"u":{}}}}"#);
    assert_eq!(
        in_use(),
        named(format!("claim {CLAIM}")),
        "its device file is still there"
    );
    node.tree.remove(&cdi);
    assert_eq!(
        in_use(),
        idle(),
        "and a record of an earlier boot holds nothing"
    );
}

#[test]
fn a_record_that_cannot_be_understood_is_never_idle() {
    let state = format!("{KUBELET}/dra_manager_state");
    let driver = format!("{KUBELET}/plugins/gpu.nvidia.com/checkpoint.json");
    let plugin = format!("{KUBELET}/device-plugins/kubelet_internal_checkpoint");
    for (path, neuron_too) in [(&state, true), (&driver, false), (&plugin, true)] {
        let tree = Tree::new();
        tree.file(path, "{\"Data\":{\"PodDev");
        let node = Node::new(tree);
        let reading = node.look();
        assert!(reading.nvidia.report.in_use.unknown, "{path}");
        assert_eq!(reading.neuron.report.in_use.unknown, neuron_too, "{path}");
        assert!(
            reading
                .errors
                .iter()
                .any(|error| error.starts_with(path.as_str())),
            "{path}: {:?}",
            reading.errors
        );
        // Replaced by a good one, it is believed again.
        node.tree.remove(path);
        assert!(!node.look().nvidia.report.in_use.unknown, "{path}");
    }
}

#[test]
fn a_record_that_cannot_be_read_is_never_idle() {
    // A directory in a file's place, and a loop of links: unreadable whoever asks, root included.
    let tree = Tree::new();
    tree.dir(&format!(
        "{KUBELET}/device-plugins/kubelet_internal_checkpoint"
    ));
    assert!(Node::new(tree).look().nvidia.report.in_use.unknown);
    let tree = Tree::new();
    let state = tree.at(&format!("{KUBELET}/dra_manager_state"));
    symlink(&state, &state).unwrap();
    let reading = Node::new(tree).look();
    assert!(reading.nvidia.report.in_use.unknown && reading.neuron.report.in_use.unknown);
    let tree = Tree::new();
    let cdi = tree.at("/var/run/cdi");
    std::fs::create_dir_all(cdi.parent().unwrap()).unwrap();
    symlink(&cdi, &cdi).unwrap();
    assert!(Node::new(tree).look().nvidia.report.in_use.unknown);
}

#[test]
fn a_relocated_kubelet_is_found_and_a_missing_one_is_not_an_idle_one() {
    let moved = "/mnt/k0s/kubelet";
    let tree = Tree::new();
    tree.remove("/var/lib/kubelet/pods");
    tree.gpus(1, "NVIDIA H200", "570.86.15");
    tree.dir(&format!("{moved}/pods/pod-a"));
    tree.dir(&format!("{moved}/plugins_registry"));
    tree.plugin_checkpoint(&[("pod-a", "nvidia.com/gpu")]);
    tree.dra_state(moved, &[(CLAIM, "train", "gpu.nvidia.com")]);
    tree.file(
        &format!("{moved}/plugins_registry/gpu.nvidia.com-reg.sock"),
        "",
    );
    tree.file("/var/lib/kubelet/device-plugins/nvidia-gpu.sock", "");
    let node = Node::with_roots(tree, &[KUBELET, moved]);
    let part = node.look().nvidia.report;
    assert_eq!(
        (
            part.in_use.device_plugin,
            part.in_use.dra,
            part.in_use.unknown
        ),
        (1, 1, false)
    );
    assert!(part.dra_registered);
    assert_eq!(
        part.plugin_sockets,
        ["nvidia-gpu.sock"],
        "wherever the kubelet lives, its plugin directory does not move"
    );

    let nowhere = freehold_agent::reading::Witness::new(node.tree.root(), &["/nowhere".into()]);
    let reading = nowhere.observe(&Request::default());
    assert!(reading.nvidia.report.in_use.unknown);
    assert!(
        reading
            .errors
            .iter()
            .any(|error| error.starts_with("/nowhere: no kubelet root")),
        "{:?}",
        reading.errors
    );
}

#[test]
fn sockets_and_registrations_come_and_go() {
    let tree = Tree::new();
    for name in [
        "neuron-devplugin.sock",
        "neuroncore-devplugin.sock",
        "kubelet.sock",
        "efa.sock",
    ] {
        tree.file(&format!("{KUBELET}/device-plugins/{name}"), "");
    }
    tree.file(
        &format!("{KUBELET}/plugins_registry/neuron.aws.com-reg.sock"),
        "",
    );
    let node = Node::new(tree);
    let reading = node.look();
    assert!(
        reading.neuron.present && !reading.nvidia.present,
        "a socket is a sign of the vendor"
    );
    assert_eq!(
        reading.neuron.report.plugin_sockets,
        ["neuron-devplugin.sock", "neuroncore-devplugin.sock"]
    );
    assert!(reading.neuron.report.dra_registered && !reading.nvidia.report.dra_registered);
    node.tree.remove(&format!(
        "{KUBELET}/plugins_registry/neuron.aws.com-reg.sock"
    ));
    assert!(!node.look().neuron.report.dra_registered);
}

#[test]
fn an_order_is_carried_out_before_the_reading_and_refused_while_an_operand_is_alive() {
    let node = Node::new(Tree::new());
    let order = |owner, generation| Request {
        orders: vec![Order {
            vendor: Vendor::Neuron,
            owner,
            object_uid: "an-3".into(),
            object_created: 0,
            generation,
        }],
        ..Request::default()
    };
    let reading = ask(&node.socket, &order(Owner::DevicePlugin, 1));
    assert_eq!(reading.neuron.order, Some(Outcome::InForce));
    assert_eq!(reading.neuron.report.word, Some(Owner::DevicePlugin));
    assert_eq!(
        (reading.nvidia.order, reading.nvidia.report.word),
        (None, None),
        "each vendor has its own"
    );
    assert_eq!(node.tree.read_word("neuron").unwrap(), "device-plugin\n");
    let operand = Lock::try_take(&node.tree.at("/var/lib/freehold/neuron"))
        .unwrap()
        .unwrap();
    let reading = ask(&node.socket, &order(Owner::Dra, 2));
    assert_eq!(
        (reading.neuron.order, reading.neuron.report.word),
        (Some(Outcome::Busy), Some(Owner::DevicePlugin))
    );
    drop(operand);
    let reading = ask(&node.socket, &order(Owner::Dra, 2));
    assert_eq!(
        (reading.neuron.order, reading.neuron.report.word),
        (Some(Outcome::InForce), Some(Owner::Dra))
    );
}

#[test]
fn a_damaged_word_is_reported_as_none_with_its_path() {
    let tree = Tree::new();
    tree.file("/var/lib/freehold/nvidia/owner", "DRA");
    let reading = Node::new(tree).look();
    assert_eq!(reading.nvidia.report.word, None);
    assert!(
        reading.errors[0].starts_with("/var/lib/freehold/nvidia/owner: holds \"DRA\""),
        "{:?}",
        reading.errors
    );
}

#[test]
fn a_killed_witness_s_socket_is_replaced_and_a_living_one_s_is_not() {
    let mut node = Node::new(Tree::new());
    let arguments = [
        "witness",
        "--host-root",
        "/",
        "--socket",
        node.socket.to_str().unwrap(),
    ];
    let mut second = Agent::start(&arguments);
    assert_eq!(second.ends(), Some(1));
    second.says("another process serves this socket");
    node.agent.signal("KILL");
    node.agent.ends();
    assert!(
        node.socket.exists(),
        "a killed witness leaves its socket behind"
    );
    node.agent = start(&node.tree, &node.socket, &[KUBELET]);
    assert_eq!(node.look().boot_id, BOOT);
    assert!(node.agent.stops() < Duration::from_secs(2));
    assert!(!node.socket.exists());
}

#[test]
fn what_is_no_question_is_refused_in_words_and_harms_nobody() {
    let node = Node::new(Tree::new());
    for line in [
        b"\n".as_slice(),
        b"{\"orders\":[{\"vendor\":\"AMD\"}]}\n",
        b"{\"rm\":1}\n",
    ] {
        let answer = send(&node.socket, line);
        assert!(
            answer.starts_with("{\"refused\":\"not a message of this protocol"),
            "{answer}"
        );
    }
    let endless = vec![b'x'; freehold_agent::protocol::MAX_MESSAGE];
    let answer = send(&node.socket, &endless);
    assert!(
        answer.starts_with("{\"refused\":\"a message without end"),
        "{answer}"
    );
    // Somebody who connects and says nothing does not keep others waiting.
    let _silent: Vec<_> = (0..4)
        .map(|_| std::os::unix::net::UnixStream::connect(&node.socket).unwrap())
        .collect();
    assert_eq!(node.look().boot_id, BOOT);
}
