//! What the scenarios here have in common.

use std::time::Duration;

use anyhow::Result;
use freehold_api::AcceleratorNode;
use freehold_core::names;
use freehold_core::report::{LayoutReport, ShapingOutcome};
use freehold_core::vendor::Vendor;
use freehold_e2e::cluster::{Filter, Mark, TestCluster};
pub use freehold_e2e::scenario::edit_intent as edit;
use freehold_e2e::scenario::{SOON, Scenario};
use freehold_e2e::sim::{NodeHandle, wait_for};
use k8s_openapi::api::core::v1::Node;
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};

/// A node's record.
pub async fn record(cluster: &TestCluster, node: &str) -> Result<AcceleratorNode> {
    Ok(Api::<AcceleratorNode>::all(cluster.admin())
        .get(node)
        .await?)
}

/// The geometry as the node's agent tells it.
pub async fn layout(cluster: &TestCluster, node: &str, vendor: Vendor) -> Result<LayoutReport> {
    let report = record(cluster, node)
        .await?
        .status
        .and_then(|status| status.report);
    Ok(report
        .and_then(|report| report.vendor(vendor).cloned())
        .unwrap_or_default()
        .layout)
}

/// Waits until the node's shaper is told to stand there.
pub async fn shaper_says(
    cluster: &TestCluster,
    node: &str,
    vendor: Vendor,
    outcome: ShapingOutcome,
) -> Result<LayoutReport> {
    let what = format!("the shaper of {node} to say {outcome:?}");
    wait_for(&what, SOON, async || {
        let layout = layout(cluster, node, vendor).await?;
        let said = layout.shaping.as_ref().map(|shaping| shaping.outcome);
        Ok(if said == Some(outcome) {
            Ok(layout)
        } else {
            Err(format!("{layout:?}"))
        })
    })
    .await
}

/// Nodes that are fenced for a vendor.
pub async fn fenced(cluster: &TestCluster, vendor: Vendor) -> Result<Vec<String>> {
    let nodes = Api::<Node>::all(cluster.admin())
        .list(&ListParams::default())
        .await?;
    let key = names::fence_taint(vendor);
    let is_fenced = |node: &&Node| {
        node.spec
            .iter()
            .flat_map(|spec| spec.taints.iter().flatten())
            .any(|taint| taint.key == key)
    };
    Ok(nodes.iter().filter(is_fenced).map(Node::name_any).collect())
}

/// The controller's successful writes to Nodes and to AcceleratorNodes' specs since a mark: everything by which a node could be
/// disturbed, and nothing that only tells.
pub async fn disturbances(cluster: &TestCluster, since: Mark) -> Result<Vec<String>> {
    let filter = Filter::all()
        .service_account(names::SYSTEM_NAMESPACE, names::CONTROLLER_SERVICE_ACCOUNT)
        .successful();
    let events = cluster.audit().writes_since(since, &filter).await?.events;
    let disturbs = events.iter().filter(|event| {
        event.object_ref.as_ref().is_some_and(|object| {
            matches!(object.resource.as_str(), "nodes" | "acceleratornodes")
                && object.subresource.is_empty()
        })
    });
    Ok(disturbs
        .map(|event| format!("{} {} {}", event.verb, event.resource(), event.name()))
        .collect())
}

/// Waits until every one of the nodes advertises so much, and sees meanwhile that no two are fenced at once.
pub async fn one_after_the_other(
    scenario: &Scenario,
    vendor: Vendor,
    nodes: &[&str],
    resource: &str,
    wanted: i64,
) -> Result<()> {
    const LOOK: Duration = Duration::from_millis(100);
    let deadline = tokio::time::Instant::now() + SOON;
    loop {
        let fenced = fenced(&scenario.cluster, vendor).await?;
        assert!(fenced.len() <= 1, "fenced at once: {fenced:?}");
        let mut found = Vec::new();
        for node in nodes {
            found.push(scenario.fleet.node(node)?.allocatable(resource).await?);
        }
        if fenced.is_empty() && found.iter().all(|count| *count == Some(wanted)) {
            return Ok(());
        }
        anyhow::ensure!(
            tokio::time::Instant::now() < deadline,
            "waited {SOON:?} for {wanted} {resource} on {nodes:?}; found {found:?}, fenced {fenced:?}\n{}",
            scenario.controller.log_tail()
        );
        tokio::time::sleep(LOOK).await;
    }
}

/// The files that order and answer a node's geometry: name, content, and when it was last written.
pub fn host_files(
    node: &NodeHandle,
    vendor: Vendor,
) -> Result<Vec<(String, String, std::time::SystemTime)>> {
    node.tree(|tree| {
        let directory = tree.path(&format!("{}/{}", names::HOST_STATE_DIR, vendor.key()));
        ["layout", "shaped", "owner"]
            .into_iter()
            .map(|name| {
                let path = directory.join(name);
                let written = std::fs::metadata(&path)?.modified()?;
                Ok((name.to_owned(), std::fs::read_to_string(&path)?, written))
            })
            .collect()
    })
}
