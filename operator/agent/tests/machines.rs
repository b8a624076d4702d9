//! The machines that the simulated fleet is made of, read by the witness for what they are.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "what fails here fails a test"
)]

use std::collections::BTreeMap;

use freehold_agent::protocol::{Reading, Request};
use freehold_agent::reading::Witness;
use freehold_core::vendor::Vendor;
use freehold_e2e::sim::checkpoint::{DriverClaim, DriverState2, PREPARE_COMPLETED, PodDevices};
use freehold_e2e::sim::{Shape, Tree};

struct Machine {
    tree: Tree,
    witness: Witness,
    _root: tempfile::TempDir,
}

impl Machine {
    fn new(shape: &Shape) -> Self {
        let root = tempfile::tempdir().unwrap();
        let tree = Tree::create(root.path(), "machine-1", shape).unwrap();
        Self {
            witness: Witness::new(root.path(), std::slice::from_ref(&shape.kubelet_root)),
            tree,
            _root: root,
        }
    }

    fn look(&self) -> Reading {
        self.witness.observe(&Request::default())
    }
}

#[test]
fn every_machine_is_read_for_what_it_is() {
    // Shape; then GPUs on the bus and served, MIG devices; Neuron devices, physical and logical cores.
    let cases = [
        (Shape::h100(), (8, 8, 0), (0, None, None)),
        (Shape::a100(), (8, 8, 0), (0, None, None)),
        (Shape::h100_without_driver(), (8, 0, 0), (0, None, None)),
        (Shape::trn2_48xlarge(), (0, 0, 0), (16, Some(128), Some(64))),
        (Shape::trn2_3xlarge(), (0, 0, 0), (1, Some(8), Some(4))),
        (Shape::trn1_2xlarge(), (0, 0, 0), (1, Some(2), Some(2))),
        (Shape::trn1_32xlarge(), (0, 0, 0), (16, Some(32), Some(32))),
        (Shape::inf2_48xlarge(), (0, 0, 0), (12, Some(24), Some(24))),
        (Shape::cpu(), (0, 0, 0), (0, None, None)),
    ];
    for (shape, (pci, served, mig), (neurons, physical, logical)) in cases {
        let machine = Machine::new(&shape);
        let reading = machine.look();
        let (nvidia, neuron) = (&reading.nvidia.report, &reading.neuron.report);
        let found = nvidia
            .layout
            .mig
            .values()
            .flatten()
            .map(|profile| profile.count)
            .sum::<i32>();
        assert_eq!(
            (nvidia.pci_devices, nvidia.inventory.devices, found),
            (pci, served, mig),
            "{}",
            shape.key
        );
        let cores = (
            neuron.inventory.devices,
            neuron.inventory.physical_cores,
            neuron.inventory.logical_cores,
        );
        assert_eq!(cores, (neurons, physical, logical), "{}", shape.key);
        assert_eq!(
            (reading.nvidia.present, reading.neuron.present),
            (pci > 0, neurons > 0),
            "{}",
            shape.key
        );
        assert!(
            nvidia.in_use.is_idle() && neuron.in_use.is_idle(),
            "{}",
            shape.key
        );
        assert_eq!(reading.errors, Vec::<String>::new(), "{}", shape.key);
        assert_eq!(
            nvidia.instance_type.as_deref(),
            Some(shape.instance_type.as_str())
        );
        assert_eq!(reading.boot_id, machine.tree.boot_id());
    }
}

#[test]
fn mig_devices_are_counted_on_every_gpu_that_has_some() {
    let shape = Shape::a100_mig();
    let expected: BTreeMap<String, usize> = shape
        .nvidia
        .as_ref()
        .unwrap()
        .gpus
        .iter()
        .filter(|gpu| !gpu.mig.is_empty())
        .map(|gpu| (gpu.minor.to_string(), gpu.mig.len()))
        .collect();
    assert!(!expected.is_empty());
    let layout = Machine::new(&shape).look().nvidia.report.layout;
    let found: BTreeMap<String, usize> = layout
        .mig
        .iter()
        .map(|(gpu, profiles)| {
            (
                gpu.clone(),
                profiles.iter().map(|profile| profile.count as usize).sum(),
            )
        })
        .collect();
    assert_eq!(found, expected);
    assert_eq!(layout.mig_enabled_gpus as usize, expected.len());
}

#[test]
fn holders_end_with_their_pods_and_claims_with_their_records() {
    let moved = "/mnt/data/kubelet";
    let machine = Machine::new(&Shape::h100().with_kubelet_root(moved));
    let entry = |pod: &str| PodDevices {
        pod_uid: pod.into(),
        container_name: "main".into(),
        resource_name: "nvidia.com/gpu".into(),
        device_ids: BTreeMap::from([("-1".into(), vec!["GPU-1".into()])]),
        alloc_resp: "CgA=".into(),
    };
    machine.tree.add_pod("pod-a").unwrap();
    machine
        .tree
        .write_device_manager(&[entry("pod-a"), entry("pod-gone")], &BTreeMap::new())
        .unwrap();
    let claim = DriverClaim {
        checkpoint_state: PREPARE_COMPLETED.into(),
        status: serde_json::json!({}),
        prepared_devices: serde_json::json!([]),
        name: String::new(),
        namespace: String::new(),
    };
    let mut state = DriverState2::default();
    state.prepared_claims.insert("claim-1".into(), claim);
    state.node_boot_id = machine.tree.boot_id();
    let driver = Vendor::Nvidia.dra_driver();
    machine
        .tree
        .write_driver_checkpoint(driver, &state)
        .unwrap();
    let in_use = machine.look().nvidia.report.in_use;
    assert_eq!((in_use.device_plugin, in_use.dra), (1, 1), "{in_use:?}");
    machine.tree.remove_pod("pod-a").unwrap();
    assert_eq!(machine.look().nvidia.report.in_use.device_plugin, 0);
    // The record lies on disk; what it lists does not survive a reboot.
    machine.tree.boot().unwrap();
    assert!(machine.look().nvidia.report.in_use.is_idle());
}
