//! First ownership, end to end: the real controller under its own account, real agents on simulated hosts, a real control plane.

use std::time::Duration;

use anyhow::{Context as _, Result};
use freehold_api::{AcceleratorNode, TenureStatus};
use freehold_core::blocker::Reason;
use freehold_core::names;
use freehold_core::summary::Counts;
use freehold_core::vendor::{Owner, Vendor};
use freehold_e2e::cluster::{Filter, TestCluster};
use freehold_e2e::install::{Controller, ControllerOptions, repository, wait_for_cluster};
use freehold_e2e::sample_fleet::{Outcome, members};
use freehold_e2e::scenario::{SOON, Scenario};
use freehold_e2e::sim::{Shape, wait_for};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt as _;
use kube::api::{Api, ListParams, Patch, PatchParams};
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn the_sample_rolls_out_to_every_kind_of_node_and_then_rests() -> Result<()> {
    let fleet_members = members();
    let nodes = fleet_members
        .iter()
        .map(|member| (member.name.to_owned(), member.shape.clone()))
        .collect();
    let mut scenario = Scenario::start("rollout", nodes).await?;
    let cluster = &scenario.cluster;
    let before = cluster.audit().mark().await?;
    cluster
        .apply_yaml("{apiVersion: v1, kind: Namespace, metadata: {name: ml}}")
        .await?;
    cluster
        .apply_yaml(&std::fs::read_to_string(
            repository().join("config/samples/acceleratorcluster.yaml"),
        )?)
        .await?;

    for member in &fleet_members {
        match member.outcome {
            Outcome::Held(vendor, owner) => {
                let tenure = scenario.wait_until_held(member.name, vendor, owner).await?;
                let node = scenario.fleet.node(member.name)?.object().await?;
                assert_eq!(
                    node.labels()
                        .get(&names::owner_label(vendor))
                        .map(String::as_str),
                    Some(owner.word()),
                    "{}",
                    member.name
                );
                assert_eq!(
                    node.labels().get(&names::cohort_label(vendor)),
                    tenure.cohort.as_ref(),
                    "{}",
                    member.name
                );
                let alias = node
                    .labels()
                    .get("workload.example.com/gpu-allocation")
                    .map(String::as_str);
                assert_eq!(
                    alias,
                    Some(owner.word()),
                    "the alias label follows the owner on {}",
                    member.name
                );
            }
            Outcome::Left(vendor, reason) => {
                let left =
                    |tenure: &TenureStatus| tenure.reason == Some(reason) && tenure.owner.is_none();
                let tenure = scenario
                    .wait_for_tenure(member.name, vendor, reason.name(), left)
                    .await?;
                assert!(
                    tenure.next_step.is_some_and(|step| !step.is_empty()),
                    "{} says what to do",
                    member.name
                );
                let node = scenario.fleet.node(member.name)?.object().await?;
                assert!(
                    !node
                        .labels()
                        .keys()
                        .any(|key| key.starts_with(names::NODE_LABEL_PREFIX)),
                    "{} is left alone",
                    member.name
                );
            }
        }
    }
    let ours = Api::<Pod>::namespaced(cluster.admin(), names::OPERAND_NAMESPACE);
    let on_auto_mode = ListParams::default().fields("spec.nodeName=auto-mode-1");
    let pods = ours.list(&on_auto_mode).await?.items;
    assert!(
        pods.is_empty(),
        "neither agent nor operand is placed where the provider serves the node: {pods:?}"
    );

    let ready = i32::try_from(
        fleet_members
            .iter()
            .filter(|member| matches!(member.outcome, Outcome::Held(..)))
            .count(),
    )?;
    let object = wait_for_cluster(cluster, "every count to be told", SOON, |object| {
        object
            .status
            .as_ref()
            .is_some_and(|status| status.nodes.ready == ready && status.nodes.migrating == 0)
    })
    .await?;
    let status = object.status.context("a status")?;
    assert_eq!(status.observed_generation, object.metadata.generation);
    assert!(
        status
            .conditions
            .iter()
            .all(|condition| condition.observed_generation == object.metadata.generation)
    );
    let reasons: Vec<Reason> = status
        .blockers
        .iter()
        .map(|blocker| blocker.reason)
        .collect();
    for reason in [
        Reason::ExcludedByProvider,
        Reason::NoHardware,
        Reason::DriverMissing,
    ] {
        assert!(
            reasons.contains(&reason),
            "{reason:?} is listed in {reasons:?}"
        );
    }

    println!(
        "writes of the whole rollout of {} nodes:",
        fleet_members.len()
    );
    scenario.our_writes(before).await?;
    let (memory, peak) = scenario.controller.memory_kib()?;
    println!("controller: {memory} KiB resident, {peak} KiB at its peak (debug build)");
    // What rests must go on resting: a minute is longer than any timer of ours.
    scenario.wait_for_quiet().await?;
    let rest = cluster.audit().mark().await?;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let writes: usize = scenario.our_writes(rest).await?.values().sum();
    println!(
        "writes of controller and agents over 60 s at rest with {} nodes: {writes}",
        fleet_members.len()
    );
    assert_eq!(writes, 0, "controller and agents write nothing at rest");

    // A crash and a fresh start find nothing to do.
    let restarted = cluster.audit().mark().await?;
    let options = ControllerOptions {
        identity: "replica-2".into(),
        ..ControllerOptions::default()
    };
    let second = Controller::start(cluster, &scenario.programs, &options).await?;
    std::mem::replace(&mut scenario.controller, second).kill();
    let cluster = &scenario.cluster;
    wait_for("the second replica to lead", LEASE_LIMIT, async || {
        let metrics = scenario.controller.metrics().await?;
        Ok(if metrics.contains("freehold_leading 1") {
            Ok(())
        } else {
            Err("it does not".to_owned())
        })
    })
    .await?;
    let node = scenario
        .fleet
        .add_node(
            cluster,
            "late-1".into(),
            Shape::h100().with_label("pool", "a"),
        )
        .await?;
    scenario
        .wait_until_held(node.name(), Vendor::Nvidia, Owner::DevicePlugin)
        .await?;
    let writes = cluster
        .audit()
        .writes_since(restarted, &Filter::all().resource("acceleratornodes"))
        .await?;
    let others = writes.count_by(|event| event.name().to_owned());
    assert!(
        others.keys().all(|name| name == "late-1"),
        "a restarted controller touches only the new node: {others:?}"
    );
    scenario.stop().await
}

/// A replica that was killed keeps its lease for up to a minute.
const LEASE_LIMIT: Duration = Duration::from_secs(90);

const TWO_COHORTS: &str = r"
apiVersion: freehold.dev/v1alpha1
kind: AcceleratorCluster
metadata: {name: cluster}
spec:
  cohorts:
  - {name: north, vendor: NVIDIA, owner: DevicePlugin, nodeSelector: {matchLabels: {pool: north}}}
  - {name: south, vendor: NVIDIA, owner: DRA, nodeSelector: {matchLabels: {wing: south}}}
";

#[tokio::test(flavor = "multi_thread")]
async fn a_node_joins_leaves_returns_loses_its_driver_and_gets_a_second_cohort() -> Result<()> {
    let north = |shape: Shape| shape.with_label("pool", "north");
    let scenario =
        Scenario::start("lifecycle", vec![("stays-1".into(), north(Shape::h100()))]).await?;
    let (cluster, fleet) = (&scenario.cluster, &scenario.fleet);
    cluster.apply_yaml(TWO_COHORTS).await?;
    scenario
        .wait_until_held("stays-1", Vendor::Nvidia, Owner::DevicePlugin)
        .await?;

    // It joins.
    let guest = fleet
        .add_node(cluster, "guest-1".into(), north(Shape::h100()))
        .await?;
    scenario
        .wait_until_held("guest-1", Vendor::Nvidia, Owner::DevicePlugin)
        .await?;
    wait_for_counts(cluster, "two nodes ready", |nodes| {
        nodes.matched == 2 && nodes.ready == 2
    })
    .await?;
    let first_uid = guest.object().await?.uid().context("a UID")?;

    // It leaves: its record goes with it, the other node is not touched.
    guest.delete().await?;
    wait_for("the record of guest-1 to go", SOON, async || {
        Ok(
            match Api::<AcceleratorNode>::all(cluster.admin())
                .get_opt("guest-1")
                .await?
            {
                None => Ok(()),
                Some(record) => Err(format!("{:?}", record.metadata)),
            },
        )
    })
    .await?;
    wait_for_counts(cluster, "one node ready", |nodes| {
        nodes.matched == 1 && nodes.ready == 1
    })
    .await?;

    // It returns under the same name: another node, with a tenure of its own.
    guest.recreate_same_name(None).await?;
    scenario
        .wait_until_held("guest-1", Vendor::Nvidia, Owner::DevicePlugin)
        .await?;
    let record = Api::<AcceleratorNode>::all(cluster.admin())
        .get("guest-1")
        .await?;
    let second_uid = guest.object().await?.uid().context("a UID")?;
    assert_ne!(first_uid, second_uid);
    assert_eq!(record.spec.node_uid, second_uid);
    assert_eq!(
        record
            .owner_references()
            .iter()
            .map(|owner| owner.uid.as_str())
            .collect::<Vec<_>>(),
        [second_uid.as_str()]
    );

    // It loses its driver: said so with the node's name, the owner stays, nothing else stops.
    guest.lose_driver()?;
    let lost = |tenure: &TenureStatus| {
        tenure.reason == Some(Reason::DriverMissing) && tenure.owner == Some(Owner::DevicePlugin)
    };
    let tenure = scenario
        .wait_for_tenure("guest-1", Vendor::Nvidia, "without a driver", lost)
        .await?;
    assert!(tenure.next_step.is_some_and(|step| !step.is_empty()));
    wait_for_counts(cluster, "one ready, one blocked", |nodes| {
        nodes.ready == 1 && nodes.blocked == 1
    })
    .await?;
    guest.load_driver("570.158.01")?;
    scenario
        .wait_until_held("guest-1", Vendor::Nvidia, Owner::DevicePlugin)
        .await?;

    // A second cohort claims it: a conflict on this node only, naming both; its owner stays until a person decides.
    let nodes = Api::<Node>::all(cluster.admin());
    let label =
        |value: serde_json::Value| Patch::Merge(json!({"metadata": {"labels": {"wing": value}}}));
    nodes
        .patch("guest-1", &PatchParams::default(), &label(json!("south")))
        .await?;
    let overlap = |tenure: &TenureStatus| {
        tenure.reason == Some(Reason::CohortOverlap) && tenure.owner == Some(Owner::DevicePlugin)
    };
    let tenure = scenario
        .wait_for_tenure("guest-1", Vendor::Nvidia, "claimed twice", overlap)
        .await?;
    let message = tenure.message.unwrap_or_default();
    assert!(
        message.contains("north") && message.contains("south"),
        "{message}"
    );
    wait_for_counts(cluster, "one ready, one conflicted", |nodes| {
        nodes.ready == 1 && nodes.conflicted == 1
    })
    .await?;
    nodes
        .patch("guest-1", &PatchParams::default(), &label(json!(null)))
        .await?;
    scenario
        .wait_until_held("guest-1", Vendor::Nvidia, Owner::DevicePlugin)
        .await?;
    wait_for_counts(cluster, "both ready again", |nodes| {
        nodes.ready == 2 && nodes.conflicted == 0
    })
    .await?;
    scenario.stop().await
}

async fn wait_for_counts(
    cluster: &TestCluster,
    what: &str,
    holds: impl Fn(&Counts) -> bool,
) -> Result<()> {
    // A node matched by two cohorts counts in both; the first cohort's numbers tell of the nodes here.
    wait_for_cluster(cluster, what, SOON, |object| {
        object
            .status
            .as_ref()
            .and_then(|status| status.cohorts.iter().find(|cohort| cohort.name == "north"))
            .is_some_and(|north| holds(&north.nodes))
    })
    .await
    .map(drop)
}
