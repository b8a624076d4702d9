//! A pod through each owner's path: what people would do next.

use std::time::Duration;

use anyhow::Result;
use freehold_e2e::cluster::TestCluster;
use freehold_e2e::sim::wait_for;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, api::PostParams};
use serde_json::{Value, json};

use super::say;

/// Scheduling, admission and start of a pod on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

/// A workload: name, what it asks for in words, its devices.
struct Workload {
    name: &'static str,
    path: &'static str,
    devices: Devices,
}

enum Devices {
    Resource(&'static str, u32),
    Template(&'static str),
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
    let pods = Api::<Pod>::namespaced(cluster.admin(), "ml");
    for workload in &WORKLOADS {
        let pod: Pod = serde_json::from_value(pod(workload))?;
        pods.create(&PostParams::default(), &pod).await?;
    }
    for workload in &WORKLOADS {
        let node = wait_for(workload.name, LIMIT, async || {
            let pod = pods.get(workload.name).await?;
            let status = pod.status.unwrap_or_default();
            let phase = status.phase.unwrap_or_default();
            let why = status
                .conditions
                .iter()
                .flatten()
                .filter(|c| c.status != "True")
                .find_map(|c| c.message.clone());
            Ok(if phase == "Running" {
                Ok(pod.spec.unwrap_or_default().node_name.unwrap_or_default())
            } else {
                Err(format!("{phase}: {}", why.unwrap_or_default()))
            })
        })
        .await?;
        say(&format!(
            "  {:<14} runs on {node:<16} {}",
            workload.name, workload.path
        ));
    }
    Ok(())
}

fn pod(workload: &Workload) -> Value {
    let (resources, claims) = match workload.devices {
        Devices::Resource(name, count) => (json!({"limits": {name: count.to_string()}}), json!([])),
        Devices::Template(template) => (
            json!({"claims": [{"name": "devices"}]}),
            json!([{"name": "devices", "resourceClaimTemplateName": template}]),
        ),
    };
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": workload.name, "namespace": "ml"},
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "restartPolicy": "Never",
            "resourceClaims": claims,
            "containers": [{
                "name": "main",
                "image": "registry.example.invalid/workload:v1",
                "resources": resources,
            }],
        },
    })
}
