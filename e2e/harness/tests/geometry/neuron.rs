//! The Logical NeuronCore setting.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::Result;
use freehold_api::AcceleratorCluster;
use freehold_core::blocker::Reason;
use freehold_core::names;
use freehold_core::report::ShapingOutcome;
use freehold_core::vendor::{Owner, Vendor};
use freehold_e2e::cluster::TestCluster;
use freehold_e2e::scenario::{SOON, Scenario};
use freehold_e2e::sim::{NodeHandle, Shape, wait_for};
use freehold_e2e::workload::{self, Devices};
use k8s_openapi::api::apps::v1::DaemonSet;
use kube::api::{DeleteParams, ListParams};
use kube::{Api, ResourceExt as _};
use serde_json::json;

use super::stage::{disturbances, edit, one_after_the_other, shaper_says};

const SETTING: &str = "/opt/aws/neuron/logical_nc_config";
const CORES: &str = "aws.amazon.com/neuroncore";
const TRN2: [&str; 2] = ["trn2-1", "trn2-2"];

const INTENT: &str = r"
apiVersion: v1
kind: Namespace
metadata: {name: ml}
---
apiVersion: freehold.dev/v1alpha1
kind: AcceleratorCluster
metadata: {name: cluster}
spec:
  cohorts:
  - name: trn2
    vendor: Neuron
    owner: DevicePlugin
    nodeSelector: {matchLabels: {node.kubernetes.io/instance-type: trn2.48xlarge}}
    neuron: {logicalNeuronCore: 2}
  - name: trn1
    vendor: Neuron
    owner: DevicePlugin
    nodeSelector: {matchLabels: {node.kubernetes.io/instance-type: trn1.2xlarge}}
    neuron: {logicalNeuronCore: 1}
  rollout: {maxUnavailable: 1, canary: {nodes: 0, soak: 1s}}
";

#[tokio::test(flavor = "multi_thread")]
async fn cores_double_and_return_with_the_setting_and_a_family_without_it_is_refused() -> Result<()>
{
    let nodes = TRN2
        .map(|name| (name.to_owned(), Shape::trn2_48xlarge()))
        .into_iter()
        .chain([("trn1-1".to_owned(), Shape::trn1_2xlarge())])
        .collect();
    let scenario = Scenario::start("geometry-neuron", nodes).await?;
    let cluster = &scenario.cluster;
    // What a launch template appended twice, without newlines.
    scenario.fleet.node("trn2-2")?.tree(|tree| {
        let text = "# by the launch template\nNEURON_LOGICAL_NC_CONFIG=1NEURON_LOGICAL_NC_CONFIG=2";
        tree.write(SETTING, text)
    })?;
    cluster.apply_yaml(INTENT).await?;
    for node in TRN2 {
        scenario
            .wait_until_settled(node, Vendor::Neuron, Owner::DevicePlugin)
            .await?;
        shaper_says(cluster, node, Vendor::Neuron, ShapingOutcome::InForce).await?;
        let handle = scenario.fleet.node(node)?;
        handle.wait_for_allocatable(CORES, Some(64), SOON).await?;
    }
    assert_eq!(
        setting(&scenario.fleet.node("trn2-2")?)?,
        "# by the launch template\nNEURON_LOGICAL_NC_CONFIG=2\n"
    );
    trainium1_is_refused(&scenario).await?;

    let client = cluster.admin();
    for (lnc, cores) in [(1, 128), (2, 64)] {
        edit(
            cluster,
            json!([{"op": "replace", "path": "/spec/cohorts/0/neuron/logicalNeuronCore", "value": lnc}]),
        )
        .await?;
        one_after_the_other(&scenario, Vendor::Neuron, &TRN2, CORES, cores).await?;
        println!("Logical NeuronCore setting {lnc}: {cores} cores on each of {TRN2:?}");
        for node in TRN2 {
            scenario
                .wait_until_settled(node, Vendor::Neuron, Owner::DevicePlugin)
                .await?;
            let written = setting(&scenario.fleet.node(node)?)?;
            assert!(
                written.ends_with(&format!("NEURON_LOGICAL_NC_CONFIG={lnc}\n")),
                "{node}: {written:?}"
            );
        }
        let pod = format!("all-cores-{lnc}");
        let count = u32::try_from(cores)?;
        workload::start(
            &client,
            &pod,
            Devices::Resource(CORES, count),
            Some("trn2-1"),
        )
        .await?;
        workload::wait_until_running(&client, &pod).await?;
        workload::finish(&client, &pod).await?;
    }

    comes_back_verified(&scenario).await?;
    a_layout_given_up_takes_its_shaper_along(&scenario).await?;
    everything_goes(&scenario).await?;
    scenario.stop().await
}

/// No setting can be had on Trainium1, whatever its value: said with the instance type, and nothing of the node is touched.
async fn trainium1_is_refused(scenario: &Scenario) -> Result<()> {
    let refused = |tenure: &freehold_api::TenureStatus| {
        tenure.reason == Some(Reason::LncNotConfigurable) && tenure.owner.is_none()
    };
    let tenure = scenario
        .wait_for_tenure("trn1-1", Vendor::Neuron, "refused", refused)
        .await?;
    let message = tenure.message.unwrap_or_default();
    assert!(message.contains("trn1.2xlarge"), "{message}");
    let node = scenario.fleet.node("trn1-1")?;
    assert!(!node.tree(|tree| Ok(tree.path(SETTING).exists()))?);
    let object = node.object().await?;
    let ours = object.metadata.labels.unwrap_or_default();
    let ours: Vec<_> = ours
        .keys()
        .filter(|key| key.contains("freehold") && !key.ends_with("/agent"))
        .collect();
    assert!(ours.is_empty(), "{ours:?}");
    Ok(())
}

/// A host that restarts from an image without the setting advertises nothing until the setting is made again, and nobody orders
/// anything meanwhile.
async fn comes_back_verified(scenario: &Scenario) -> Result<()> {
    let cluster = &scenario.cluster;
    edit(
        cluster,
        json!([{"op": "replace", "path": "/spec/cohorts/0/neuron/logicalNeuronCore", "value": 1}]),
    )
    .await?;
    one_after_the_other(scenario, Vendor::Neuron, &TRN2, CORES, 128).await?;
    for node in TRN2 {
        scenario
            .wait_until_settled(node, Vendor::Neuron, Owner::DevicePlugin)
            .await?;
    }
    scenario.wait_for_quiet().await?;
    let mark = cluster.audit().mark().await?;
    let node = scenario.fleet.node("trn2-1")?;
    node.power_off()?;
    node.remove_file(SETTING)?;
    node.power_on().await?;
    let mut seen = BTreeSet::new();
    let back = tokio::time::timeout(SOON, async {
        loop {
            let count = node.allocatable(CORES).await?;
            let new = seen.insert(count);
            // What the API still shows from before does not count as being back.
            if count == Some(128) && seen.contains(&Some(0)) {
                return anyhow::Ok(());
            }
            if new {
                println!("trn2-1 after its restart: {count:?} cores");
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    back.await??;
    assert!(!seen.contains(&Some(64)), "{seen:?}");
    assert_eq!(setting(&node)?, "NEURON_LOGICAL_NC_CONFIG=1\n");
    scenario
        .wait_until_settled("trn2-1", Vendor::Neuron, Owner::DevicePlugin)
        .await?;
    let disturbed = disturbances(cluster, mark).await?;
    assert!(disturbed.is_empty(), "{disturbed:?}");
    Ok(())
}

/// Without a layout the geometry is left as it is, and nobody is there to make any.
async fn a_layout_given_up_takes_its_shaper_along(scenario: &Scenario) -> Result<()> {
    let cluster = &scenario.cluster;
    let shapers = shapers(cluster).await?;
    assert_eq!(shapers, ["neuron-shaper-trn1", "neuron-shaper-trn2"]);
    edit(
        cluster,
        json!([{"op": "remove", "path": "/spec/cohorts/0/neuron/logicalNeuronCore"}]),
    )
    .await?;
    wait_for("the shaper of trn2 to go", SOON, async || {
        let left = self::shapers(cluster).await?;
        Ok(if left == ["neuron-shaper-trn1"] {
            Ok(())
        } else {
            Err(format!("{left:?}\n{}", scenario.controller.log_tail()))
        })
    })
    .await?;
    for node in TRN2 {
        scenario
            .wait_until_settled(node, Vendor::Neuron, Owner::DevicePlugin)
            .await?;
        let handle = scenario.fleet.node(node)?;
        handle.wait_for_allocatable(CORES, Some(128), SOON).await?;
        assert_eq!(
            setting(&handle)?.lines().last(),
            Some("NEURON_LOGICAL_NC_CONFIG=1")
        );
    }
    Ok(())
}

/// Operands, then shapers, then the resource itself.
async fn everything_goes(scenario: &Scenario) -> Result<()> {
    let cluster = &scenario.cluster;
    edit(
        cluster,
        json!([{"op": "add", "path": "/spec/cohorts/0/neuron/logicalNeuronCore", "value": 2}]),
    )
    .await?;
    one_after_the_other(scenario, Vendor::Neuron, &TRN2, CORES, 64).await?;
    let intents = Api::<AcceleratorCluster>::all(cluster.admin());
    intents
        .delete(names::SINGLETON, &DeleteParams::default())
        .await?;
    wait_for("the AcceleratorCluster to be gone", SOON, async || {
        let left = shapers(cluster).await?;
        Ok(intents
            .get_opt(names::SINGLETON)
            .await?
            .map_or(Ok(()), |_| {
                Err(format!("{left:?}\n{}", scenario.controller.log_tail()))
            }))
    })
    .await?;
    assert!(
        shapers(cluster).await?.is_empty(),
        "the finalizer goes last"
    );
    Ok(())
}

/// Names of shapers' DaemonSets.
async fn shapers(cluster: &TestCluster) -> Result<Vec<String>> {
    let sets = Api::<DaemonSet>::namespaced(cluster.admin(), names::OPERAND_NAMESPACE)
        .list(&ListParams::default().labels(&format!("{}=shaper", names::COMPONENT_LABEL)))
        .await?;
    Ok(sets.iter().map(DaemonSet::name_any).collect())
}

fn setting(node: &NodeHandle) -> Result<String> {
    node.tree(|tree| Ok(std::fs::read_to_string(tree.path(SETTING))?))
}
