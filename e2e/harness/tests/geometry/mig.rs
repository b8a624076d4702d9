//! MIG layouts under both owners.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context as _, Result};
use freehold_api::TenureStatus;
use freehold_core::blocker::Reason;
use freehold_core::names;
use freehold_core::vendor::{Owner, Vendor};
use freehold_e2e::scenario::{SOON, Scenario};
use freehold_e2e::sim::{NodeHandle, Shape, wait_for};
use freehold_e2e::workload::{self, Devices};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use super::stage::{disturbances, edit, host_files, layout, one_after_the_other};

const PLUGIN: [&str; 2] = ["cut-1", "cut-2"];
const DRA: [&str; 2] = ["slice-1", "slice-2"];
const DRIVER: &str = "gpu.nvidia.com";

const INTENT: &str = r#"
apiVersion: v1
kind: Namespace
metadata: {name: ml}
---
apiVersion: freehold.dev/v1alpha1
kind: AcceleratorCluster
metadata: {name: cluster}
spec:
  cohorts:
  - name: cut
    vendor: NVIDIA
    owner: DevicePlugin
    nodeSelector: {matchLabels: {pool: cut}}
    nvidia:
      devicePlugin: {migStrategy: Mixed}
      mig: {layouts: [{gpus: All, instances: {1g.10gb: 7}}]}
  - name: slice
    vendor: NVIDIA
    owner: DRA
    nodeSelector: {matchLabels: {pool: slice}}
    nvidia:
      mig: {layouts: [{gpus: All, instances: {1g.10gb: 7}}]}
  sizes:
  - name: small
    vendor: NVIDIA
    deviceType: MIG
    namespaces: [ml]
    devices: {count: 1}
    selectors: ["device.attributes['gpu.nvidia.com'].profile == '1g.10gb'"]
  - name: half
    vendor: NVIDIA
    deviceType: MIG
    namespaces: [ml]
    devices: {count: 1}
    selectors: ["device.attributes['gpu.nvidia.com'].profile == '3g.40gb'"]
  rollout: {maxUnavailable: 1, canary: {nodes: 0, soak: 1s}}
"#;

#[tokio::test(flavor = "multi_thread")]
async fn layouts_are_edited_under_both_owners_and_workloads_get_the_new_instances() -> Result<()> {
    let machine = |pool: &str| Shape::h100().with_gpus(2).with_label("pool", pool);
    let nodes = PLUGIN
        .map(|name| (name.to_owned(), machine("cut")))
        .into_iter()
        .chain(DRA.map(|name| (name.to_owned(), machine("slice"))))
        .collect();
    let scenario = Scenario::start("geometry-mig", nodes).await?;
    scenario.cluster.apply_yaml(INTENT).await?;
    all_settled(&scenario).await?;
    for node in PLUGIN {
        advertises(&scenario, node, &[("mig-1g.10gb", 14)]).await?;
    }
    for node in DRA {
        let handle = scenario.fleet.node(node)?;
        handle.wait_for_devices(DRIVER, 14, SOON).await?;
    }
    what_cannot_be_had_changes_nothing(&scenario).await?;
    a_busy_node_is_reshaped_when_its_workload_has_ended(&scenario).await?;
    media_engines_are_part_of_the_name(&scenario).await?;
    slices_under_dra_follow(&scenario).await?;
    what_is_as_wanted_is_left_alone(&scenario).await?;
    a_restarted_host_comes_back_cut(&scenario).await?;
    what_somebody_changed_by_hand_is_repaired(&scenario).await?;
    scenario.stop().await
}

async fn all_settled(scenario: &Scenario) -> Result<()> {
    for node in PLUGIN {
        scenario
            .wait_until_settled(node, Vendor::Nvidia, Owner::DevicePlugin)
            .await?;
    }
    for node in DRA {
        scenario
            .wait_until_settled(node, Vendor::Nvidia, Owner::Dra)
            .await?;
    }
    Ok(())
}

/// Waits until the node advertises these resources of the vendor in this number, and no other.
async fn advertises(scenario: &Scenario, node: &str, wanted: &[(&str, i64)]) -> Result<()> {
    let wanted: BTreeMap<String, i64> = wanted
        .iter()
        .map(|(name, count)| (format!("nvidia.com/{name}"), *count))
        .collect();
    let what = format!("{node} to advertise {wanted:?}");
    wait_for(&what, SOON, async || {
        let found = advertised(&scenario.fleet.node(node)?).await?;
        Ok(if found == wanted {
            Ok(())
        } else {
            Err(format!("{found:?}"))
        })
    })
    .await
}

/// The vendor's resources of which the node has some.
async fn advertised(node: &NodeHandle) -> Result<BTreeMap<String, i64>> {
    let object = node.object().await?;
    let allocatable = object.status.and_then(|status| status.allocatable);
    let ours = allocatable
        .into_iter()
        .flatten()
        .filter(|(name, _)| Vendor::Nvidia.owns_resource(name));
    let counts = ours.map(|(name, count)| anyhow::Ok((name, count.0.parse()?)));
    let mut counts = counts.collect::<Result<BTreeMap<String, i64>>>()?;
    counts.retain(|_, count| *count > 0);
    Ok(counts)
}

async fn order(scenario: &Scenario, cohort: usize, layouts: Value) -> Result<()> {
    let path = format!("/spec/cohorts/{cohort}/nvidia/mig/layouts");
    edit(
        &scenario.cluster,
        json!([{"op": "replace", "path": path, "value": layouts}]),
    )
    .await
}

fn on_all(instances: &Value) -> Value {
    json!([{"gpus": "All", "instances": instances}])
}

/// Forgets what was done to the GPUs so far; gives what was.
fn taken(scenario: &Scenario, nodes: &[&str]) -> Result<Vec<String>> {
    let mut writes = Vec::new();
    for node in nodes {
        let done = scenario
            .fleet
            .node(node)?
            .tree(|tree| Ok(tree.nvml().take_writes()?))?;
        writes.extend(done.iter().map(|write| format!("{node}: {write:?}")));
    }
    Ok(writes)
}

/// Three halves do not fit a board: said before anything is fenced, and neither a node nor a GPU is written to.
async fn what_cannot_be_had_changes_nothing(scenario: &Scenario) -> Result<()> {
    let cluster = &scenario.cluster;
    scenario.wait_for_quiet().await?;
    taken(scenario, &PLUGIN)?;
    let mark = cluster.audit().mark().await?;
    order(scenario, 0, on_all(&json!({"3g.40gb": 3}))).await?;
    let refused = |tenure: &TenureStatus| {
        tenure.reason == Some(Reason::LayoutInfeasible) && tenure.owner == Some(Owner::DevicePlugin)
    };
    for node in PLUGIN {
        let tenure = scenario
            .wait_for_tenure(node, Vendor::Nvidia, "refused its layout", refused)
            .await?;
        let message = tenure.message.unwrap_or_default();
        println!("{node}: {message}");
        assert!(
            message.contains("3g.40gb") && message.contains("cohort cut"),
            "{message}"
        );
        assert!(tenure.next_step.is_some_and(|step| !step.is_empty()));
    }
    let blockers = Api::<freehold_api::AcceleratorCluster>::all(cluster.admin())
        .get(names::SINGLETON)
        .await?
        .status
        .context("a status")?
        .blockers;
    assert!(
        blockers
            .iter()
            .any(|blocker| blocker.reason == Reason::LayoutInfeasible),
        "{blockers:?}"
    );
    scenario.wait_for_quiet().await?;
    order(scenario, 0, on_all(&json!({"1g.10gb": 7}))).await?;
    all_settled(scenario).await?;
    let disturbed = disturbances(cluster, mark).await?;
    assert!(disturbed.is_empty(), "{disturbed:?}");
    let writes = taken(scenario, &PLUGIN)?;
    assert!(writes.is_empty(), "{writes:?}");
    for node in PLUGIN {
        advertises(scenario, node, &[("mig-1g.10gb", 14)]).await?;
    }
    Ok(())
}

/// Seven small ones to two large ones, while somebody uses one of the small ones.
async fn a_busy_node_is_reshaped_when_its_workload_has_ended(scenario: &Scenario) -> Result<()> {
    let client = scenario.cluster.admin();
    let small = Devices::Resource("nvidia.com/mig-1g.10gb", 1);
    for node in PLUGIN {
        let job = format!("small-{node}");
        workload::start(&client, &job, small, Some(node)).await?;
        workload::wait_until_running(&client, &job).await?;
    }
    // By share of the board rather than by name.
    order(scenario, 0, on_all(&json!({"3g.1/2": 1, "4g.1/2": 1}))).await?;
    let mut waiting = PLUGIN.to_vec();
    while !waiting.is_empty() {
        let first = wait_for("a node to be fenced", SOON, async || {
            let fenced = super::stage::fenced(&scenario.cluster, Vendor::Nvidia).await?;
            let found = waiting
                .iter()
                .find(|node| fenced.contains(&(**node).to_owned()));
            Ok(found.copied().ok_or_else(|| format!("{fenced:?}")))
        })
        .await?;
        let job = format!("small-{first}");
        let blocked = |tenure: &TenureStatus| {
            let message = tenure.message.as_deref().unwrap_or_default();
            tenure.reason == Some(Reason::ConsumersRemain) && message.contains(&job)
        };
        scenario
            .wait_for_tenure(first, Vendor::Nvidia, "blocked by its pod's name", blocked)
            .await?;
        let writes = taken(scenario, &[first])?;
        assert!(
            writes.is_empty(),
            "no instance is touched under a workload: {writes:?}"
        );
        assert!(workload::is_running(&client, &job).await?);
        waiting.retain(|node| *node != first);
        workload::finish(&client, &job).await?;
        scenario
            .wait_until_settled(first, Vendor::Nvidia, Owner::DevicePlugin)
            .await?;
        advertises(scenario, first, &[("mig-3g.40gb", 2), ("mig-4g.40gb", 2)]).await?;
        println!("{first}: {:?}", cut(scenario, first, 0)?);
    }
    runs(
        scenario,
        "large",
        Devices::Resource("nvidia.com/mig-4g.40gb", 2),
        "cut-2",
    )
    .await
}

/// `+` is no character of a resource's name; the plugin writes a dot.
async fn media_engines_are_part_of_the_name(scenario: &Scenario) -> Result<()> {
    let layouts = on_all(&json!({"3g.40gb": 1, "2g.20gb": 1, "1g.10gb+me": 1}));
    order(scenario, 0, layouts).await?;
    one_after_the_other(
        scenario,
        Vendor::Nvidia,
        &PLUGIN,
        "nvidia.com/mig-1g.10gb.me",
        2,
    )
    .await?;
    for node in PLUGIN {
        scenario
            .wait_until_settled(node, Vendor::Nvidia, Owner::DevicePlugin)
            .await?;
        let wanted = [
            ("mig-1g.10gb.me", 2),
            ("mig-2g.20gb", 2),
            ("mig-3g.40gb", 2),
        ];
        advertises(scenario, node, &wanted).await?;
        let told = layout(&scenario.cluster, node, Vendor::Nvidia).await?;
        let profiles: Vec<_> = told
            .mig
            .values()
            .flatten()
            .map(|one| one.profile.as_str())
            .collect();
        assert_eq!(
            profiles,
            ["1g.10gb+me", "2g.20gb", "3g.40gb"].repeat(2),
            "the report has the driver's own names"
        );
    }
    runs(
        scenario,
        "media",
        Devices::Resource("nvidia.com/mig-1g.10gb.me", 1),
        "cut-1",
    )
    .await
}

/// Under DRA the same edit fences, drains and reshapes the same way, and claims find the new devices.
async fn slices_under_dra_follow(scenario: &Scenario) -> Result<()> {
    runs(
        scenario,
        "claims-small",
        Devices::Template("small"),
        "slice-1",
    )
    .await?;
    order(scenario, 1, on_all(&json!({"3g.40gb": 1, "1g.10gb": 4}))).await?;
    for node in DRA {
        let handle = scenario.fleet.node(node)?;
        handle.wait_for_devices(DRIVER, 10, SOON).await?;
    }
    for node in DRA {
        scenario
            .wait_until_settled(node, Vendor::Nvidia, Owner::Dra)
            .await?;
    }
    runs(
        scenario,
        "claims-half",
        Devices::Template("half"),
        "slice-2",
    )
    .await
}

/// A pod with these devices on this node runs, and ends.
async fn runs(scenario: &Scenario, name: &str, devices: Devices, node: &str) -> Result<()> {
    let client = scenario.cluster.admin();
    workload::start(&client, name, devices, Some(node)).await?;
    workload::wait_until_running(&client, name).await?;
    workload::finish(&client, name).await
}

/// What is there equals what is wanted: whatever else happens to a node or to the resource, nothing is fenced, no operand is
/// restarted, no file of ours is written and no GPU is touched.
async fn what_is_as_wanted_is_left_alone(scenario: &Scenario) -> Result<()> {
    let cluster = &scenario.cluster;
    scenario.wait_for_quiet().await?;
    let all: Vec<&str> = PLUGIN.into_iter().chain(DRA).collect();
    taken(scenario, &all)?;
    let operands = operands(scenario).await?;
    let files = |scenario: &Scenario| -> Result<Vec<_>> {
        all.iter()
            .map(|node| host_files(&scenario.fleet.node(node)?, Vendor::Nvidia))
            .collect()
    };
    let before = files(scenario)?;
    let mark = cluster.audit().mark().await?;
    let nodes = Api::<k8s_openapi::api::core::v1::Node>::all(cluster.admin());
    for node in &all {
        let touch = json!({"metadata": {"labels": {"nvidia.com/mig.config": "all-disabled"}}});
        nodes
            .patch(node, &PatchParams::default(), &Patch::Merge(touch))
            .await?;
    }
    // The same layout, its profiles in another order.
    let again = json!([{"instances": {"1g.10gb": 4, "3g.40gb": 1}, "gpus": "All"}]);
    order(scenario, 1, again).await?;
    let touch = json!({"metadata": {"annotations": {"example.com/reviewed": "yes"}}});
    Api::<freehold_api::AcceleratorCluster>::all(cluster.admin())
        .patch(
            names::SINGLETON,
            &PatchParams::default(),
            &Patch::Merge(touch),
        )
        .await?;
    // Longer than an agent's poll and a shaper's look, several times over.
    tokio::time::sleep(Duration::from_secs(8)).await;
    all_settled(scenario).await?;
    let disturbed = disturbances(cluster, mark).await?;
    assert!(disturbed.is_empty(), "{disturbed:?}");
    assert_eq!(self::operands(scenario).await?, operands);
    assert_eq!(files(scenario)?, before);
    let writes = taken(scenario, &all)?;
    assert!(writes.is_empty(), "{writes:?}");
    Ok(())
}

/// UIDs of operand pods, by cohort.
async fn operands(scenario: &Scenario) -> Result<BTreeMap<String, BTreeSet<String>>> {
    let pods = Api::<Pod>::namespaced(scenario.cluster.admin(), names::OPERAND_NAMESPACE)
        .list(&ListParams::default().labels(&format!("{}=operand", names::COMPONENT_LABEL)))
        .await?;
    let mut uids = BTreeMap::<String, BTreeSet<String>>::new();
    for pod in &pods {
        let cohort = pod.labels().get(names::COHORT_LABEL).cloned();
        uids.entry(cohort.unwrap_or_default())
            .or_default()
            .insert(pod.uid().unwrap_or_default());
    }
    Ok(uids)
}

/// Hopper forgets mode and instances. The operand comes back when they are made again, and never with whole GPUs before.
async fn a_restarted_host_comes_back_cut(scenario: &Scenario) -> Result<()> {
    scenario.wait_for_quiet().await?;
    let cluster = &scenario.cluster;
    let mark = cluster.audit().mark().await?;
    let wanted = BTreeMap::from([
        ("nvidia.com/mig-1g.10gb.me".to_owned(), 2),
        ("nvidia.com/mig-2g.20gb".to_owned(), 2),
        ("nvidia.com/mig-3g.40gb".to_owned(), 2),
    ]);
    let node = scenario.fleet.node("cut-1")?;
    taken(scenario, &["cut-1"])?;
    node.reboot().await?;
    let mut seen = BTreeSet::new();
    let back = tokio::time::timeout(SOON, async {
        loop {
            let now = advertised(&node).await?;
            seen.insert(now.clone());
            if now == wanted && seen.contains(&BTreeMap::new()) {
                return anyhow::Ok(());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    back.await??;
    println!("cut-1 after its restart advertised, in some order: {seen:?}");
    let whole = seen
        .iter()
        .any(|resources| resources.contains_key("nvidia.com/gpu"));
    assert!(!whole, "{seen:?}");
    scenario
        .wait_until_settled("cut-1", Vendor::Nvidia, Owner::DevicePlugin)
        .await?;
    let made = taken(scenario, &["cut-1"])?;
    assert!(
        made.iter().any(|write| write.contains("CreateGpuInstance")),
        "the instances were lost and made again: {made:?}"
    );
    let disturbed = disturbances(cluster, mark).await?;
    assert!(disturbed.is_empty(), "{disturbed:?}");
    Ok(())
}

/// An instance destroyed by hand under the running operand: seen without being asked for, and made again behind a fence.
async fn what_somebody_changed_by_hand_is_repaired(scenario: &Scenario) -> Result<()> {
    let whole = cut(scenario, "cut-2", 1)?;
    let mark = scenario.cluster.audit().mark().await?;
    scenario.fleet.node("cut-2")?.tree(|tree| {
        let destroyed = tree.nvml().change_gpu(1, |gpu| gpu.instances.pop())?;
        destroyed.context("an instance to destroy").map(drop)
    })?;
    assert_ne!(cut(scenario, "cut-2", 1)?, whole);
    wait_for("the instance to be made again", SOON, async || {
        let now = cut(scenario, "cut-2", 1)?;
        Ok(if now == whole {
            Ok(())
        } else {
            Err(format!("{now:?}\n{}", scenario.controller.log_tail()))
        })
    })
    .await?;
    scenario
        .wait_until_settled("cut-2", Vendor::Nvidia, Owner::DevicePlugin)
        .await?;
    let disturbed = disturbances(&scenario.cluster, mark).await?;
    let fenced = disturbed.iter().any(|write| write.ends_with(" cut-2"));
    let others = disturbed.iter().any(|write| !write.ends_with(" cut-2"));
    assert!(fenced && !others, "{disturbed:?}");
    Ok(())
}

/// What a GPU is cut into: profile and first memory unit.
fn cut(scenario: &Scenario, node: &str, gpu: u32) -> Result<Vec<(String, u32)>> {
    scenario
        .fleet
        .node(node)?
        .tree(|tree| Ok(tree.nvml().instances(gpu)?))
}
