//! A layout order lies on the node and is carried out there without anybody's help, so it has to end with the ownership, and must
//! not end with a record that was lost.

use anyhow::Result;
use freehold_api::{AcceleratorCluster, AcceleratorNode};
use freehold_core::names;
use freehold_core::report::ShapingOutcome;
use freehold_core::vendor::{Owner, Vendor};
use freehold_e2e::cluster::TestCluster;
use freehold_e2e::scenario::{SOON, Scenario};
use freehold_e2e::sim::{NodeHandle, Shape, wait_for};
use k8s_openapi::api::core::v1::Node;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use super::stage::{disturbances, shaper_says};

const CORES: &str = "aws.amazon.com/neuroncore";
const NODES: [&str; 2] = ["birch-1", "birch-2"];

const INTENT: &str = r"
apiVersion: freehold.dev/v1alpha1
kind: AcceleratorCluster
metadata: {name: cluster}
spec:
  cohorts:
  - name: birch
    vendor: Neuron
    owner: DevicePlugin
    nodeSelector: {matchLabels: {pool: birch}}
    neuron: {logicalNeuronCore: 1}
  rollout: {maxUnavailable: 1, canary: {nodes: 0, soak: 1s}}
";

/// The most that the controller may write to Node and AcceleratorNode's spec on the way to nobody: fence, two terms (the second
/// withdraws the layout), revoke, unfence, and the end of the record.
const WRITES: usize = 6;

#[tokio::test(flavor = "multi_thread")]
async fn an_order_outlives_a_lost_record_and_ends_with_the_ownership() -> Result<()> {
    let nodes = NODES
        .map(|name| {
            (
                name.to_owned(),
                Shape::trn2_48xlarge().with_label("pool", "birch"),
            )
        })
        .into();
    let scenario = Scenario::start("geometry-orders", nodes).await?;
    let cluster = &scenario.cluster;
    cluster.apply_yaml(INTENT).await?;
    for node in NODES {
        scenario
            .wait_until_settled(node, Vendor::Neuron, Owner::DevicePlugin)
            .await?;
        shaper_says(cluster, node, Vendor::Neuron, ShapingOutcome::InForce).await?;
        let handle = scenario.fleet.node(node)?;
        handle.wait_for_allocatable(CORES, Some(128), SOON).await?;
    }
    a_lost_record_disturbs_nobody(&scenario).await?;
    whoever_leaves_takes_the_order_along(&scenario).await?;
    so_does_the_end_of_it_all(&scenario).await?;
    scenario.stop().await
}

/// The record is made anew with owner and layout. The node advertises all the while, and is not fenced.
async fn a_lost_record_disturbs_nobody(scenario: &Scenario) -> Result<()> {
    let (cluster, [node, _]) = (&scenario.cluster, NODES);
    scenario.wait_for_quiet().await?;
    let records = Api::<AcceleratorNode>::all(cluster.admin());
    let lost = records.get(node).await?.uid();
    let mark = cluster.audit().mark().await?;
    records.delete(node, &DeleteParams::default()).await?;
    wait_for("the record to be restated", SOON, async || {
        let record = records.get_opt(node).await?;
        let restated = record.as_ref().is_some_and(|record| {
            let part = record.spec.neuron.as_ref();
            record.uid() != lost
                && part.is_some_and(|part| part.owner.is_some() && part.layout.is_some())
        });
        Ok(if restated {
            Ok(())
        } else {
            Err(format!("{record:?}"))
        })
    })
    .await?;
    scenario
        .wait_until_settled(node, Vendor::Neuron, Owner::DevicePlugin)
        .await?;
    scenario.wait_for_quiet().await?;
    let disturbed = disturbances(cluster, mark).await?;
    println!("after the loss of its record: {disturbed:?}");
    assert!(
        disturbed
            .iter()
            .all(|write| write.contains("acceleratornodes")),
        "the Node itself is left alone: {disturbed:?}"
    );
    assert_eq!(ordered(&scenario.fleet.node(node)?)?, Some(1));
    let handle = scenario.fleet.node(node)?;
    assert_eq!(handle.allocatable(CORES).await?, Some(128));
    Ok(())
}

/// A node that leaves its cohort is left without an order that a shaper could find there later.
async fn whoever_leaves_takes_the_order_along(scenario: &Scenario) -> Result<()> {
    let (cluster, [node, _]) = (&scenario.cluster, NODES);
    let mark = cluster.audit().mark().await?;
    let leave = json!({"metadata": {"labels": {"pool": "elsewhere"}}});
    Api::<Node>::all(cluster.admin())
        .patch(node, &PatchParams::default(), &Patch::Merge(leave))
        .await?;
    wait_until_left(cluster, node).await?;
    assert_eq!(ordered(&scenario.fleet.node(node)?)?, None);
    let writes = disturbances(cluster, mark).await?;
    println!("on the way to nobody: {writes:?}");
    assert!(writes.len() <= WRITES, "{writes:?}");
    Ok(())
}

async fn so_does_the_end_of_it_all(scenario: &Scenario) -> Result<()> {
    let (cluster, [_, node]) = (&scenario.cluster, NODES);
    let clusters = Api::<AcceleratorCluster>::all(cluster.admin());
    clusters
        .delete(names::SINGLETON, &DeleteParams::default())
        .await?;
    wait_until_left(cluster, node).await?;
    wait_for("the AcceleratorCluster to go", SOON, async || {
        let left = clusters.get_opt(names::SINGLETON).await?;
        Ok(left.map_or(Ok(()), |left| Err(format!("{:?}", left.status))))
    })
    .await?;
    assert_eq!(ordered(&scenario.fleet.node(node)?)?, None);
    Ok(())
}

/// Waits until a node has neither record nor fence.
async fn wait_until_left(cluster: &TestCluster, node: &str) -> Result<()> {
    let records = Api::<AcceleratorNode>::all(cluster.admin());
    wait_for(&format!("{node} to be left"), SOON, async || {
        let record = records.get_opt(node).await?;
        Ok(record.map_or(Ok(()), |record| Err(format!("{record:?}"))))
    })
    .await?;
    let fenced = super::stage::fenced(cluster, Vendor::Neuron).await?;
    assert!(!fenced.contains(&node.to_owned()), "{fenced:?}");
    Ok(())
}

/// The Logical NeuronCore setting that the node's order asks for.
fn ordered(node: &NodeHandle) -> Result<Option<i64>> {
    let order: Value = node.tree(|tree| {
        let path = tree.path(&format!("{}/neuron/layout", names::HOST_STATE_DIR));
        Ok(serde_json::from_str(&std::fs::read_to_string(path)?)?)
    })?;
    let setting = order.pointer("/layout/logicalNeuronCore");
    Ok(setting.and_then(Value::as_i64))
}
