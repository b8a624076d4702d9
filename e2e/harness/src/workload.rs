//! Workloads: pods that ask for devices as ML engineers do.

use std::time::Duration;

use anyhow::Result;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, PostParams};
use kube::{Api, Client};
use serde_json::json;

use crate::sim::wait_for;

/// Namespace of workloads.
pub const NAMESPACE: &str = "ml";
/// Scheduling, admission, start or end of a pod on a busy machine.
const LIMIT: Duration = Duration::from_secs(90);

/// What a workload asks for.
#[derive(Clone, Copy, Debug)]
pub enum Devices {
    /// So many of an extended resource.
    Resource(&'static str, u32),
    /// A claim from a template.
    Template(&'static str),
}

/// A pod in [`NAMESPACE`] that runs until it is deleted; on one node, where given.
///
/// # Errors
/// When the API server refuses it.
pub async fn start(
    client: &Client,
    name: &str,
    devices: Devices,
    node: Option<&str>,
) -> Result<Pod> {
    let (resources, claims) = match devices {
        Devices::Resource(name, count) => (json!({"limits": {name: count.to_string()}}), json!([])),
        Devices::Template(template) => (
            json!({"claims": [{"name": "devices"}]}),
            json!([{"name": "devices", "resourceClaimTemplateName": template}]),
        ),
    };
    let selector = node.map(|node| json!({"kubernetes.io/hostname": node}));
    let pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "restartPolicy": "Never",
            "nodeSelector": selector,
            "resourceClaims": claims,
            "containers": [{
                "name": "main",
                "image": "registry.example.invalid/workload:v1",
                "resources": resources,
            }],
        },
    });
    Ok(pods(client)
        .create(&PostParams::default(), &serde_json::from_value(pod)?)
        .await?)
}

/// Waits until it runs; gives its node.
///
/// # Errors
/// When it does not in time, with what its status says.
pub async fn wait_until_running(client: &Client, name: &str) -> Result<String> {
    wait_for(&format!("pod {name} to run"), LIMIT, async || {
        let pod = pods(client).get(name).await?;
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
    .await
}

/// Whether it is there and runs.
///
/// # Errors
/// When the API server does not answer.
pub async fn is_running(client: &Client, name: &str) -> Result<bool> {
    let pod = pods(client).get_opt(name).await?;
    let phase = pod
        .filter(|pod| pod.metadata.deletion_timestamp.is_none())
        .and_then(|pod| pod.status?.phase);
    Ok(phase.as_deref() == Some("Running"))
}

/// Deletes it, as its user would, and waits until it is gone.
///
/// # Errors
/// When it is not in time.
pub async fn finish(client: &Client, name: &str) -> Result<()> {
    pods(client).delete(name, &DeleteParams::default()).await?;
    wait_for(&format!("pod {name} to be gone"), LIMIT, async || {
        Ok(pods(client).get_opt(name).await?.map_or(Ok(()), |pod| {
            Err(format!("{:?}", pod.status.and_then(|status| status.phase)))
        }))
    })
    .await
}

fn pods(client: &Client) -> Api<Pod> {
    Api::namespaced(client.clone(), NAMESPACE)
}
