//! A pod through each owner's path: what people would do next.

use anyhow::Result;
use freehold_e2e::cluster::TestCluster;
use freehold_e2e::workload::{self, Devices};

use super::say;

/// A workload: name, what it asks for in words, its devices.
struct Workload {
    name: &'static str,
    path: &'static str,
    devices: Devices,
}

const WORKLOADS: [Workload; 6] = [
    Workload {
        name: "whole-gpu",
        path: "NVIDIA device plugin, nvidia.com/gpu: 2",
        devices: Devices::Resource("nvidia.com/gpu", 2),
    },
    Workload {
        name: "shared-gpu",
        path: "time-sliced, nvidia.com/gpu.shared: 1",
        devices: Devices::Resource("nvidia.com/gpu.shared", 1),
    },
    Workload {
        name: "mig-slice",
        path: "MIG, nvidia.com/mig-3g.20gb: 1",
        devices: Devices::Resource("nvidia.com/mig-3g.20gb", 1),
    },
    Workload {
        name: "neuron-cores",
        path: "Neuron device plugin, aws.amazon.com/neuroncore: 2",
        devices: Devices::Resource("aws.amazon.com/neuroncore", 2),
    },
    Workload {
        name: "large-gpu",
        path: "NVIDIA DRA, claim template single-large-gpu",
        devices: Devices::Template("single-large-gpu"),
    },
    Workload {
        name: "half-trn2",
        path: "Neuron DRA, claim template l-trn2 (8 connected devices)",
        devices: Devices::Template("l-trn2"),
    },
];

/// Starts them all and waits until each runs.
pub(super) async fn run(cluster: &TestCluster) -> Result<()> {
    let client = cluster.admin();
    for workload in &WORKLOADS {
        workload::start(&client, workload.name, workload.devices, None).await?;
    }
    for workload in &WORKLOADS {
        let node = workload::wait_until_running(&client, workload.name).await?;
        say(&format!(
            "  {:<14} runs on {node:<16} {}",
            workload.name, workload.path
        ));
    }
    Ok(())
}
