//! Handovers that something stands in the way of: each names what it is, changes no owner meanwhile, and goes on by itself when
//! the cause ends. Real controller, real agents, a real control plane; each case has a node and a cohort of its own.

mod consumers;
#[path = "../fault/mod.rs"]
mod fault;
mod mid_way;

use anyhow::{Result, ensure};
use consumers::{
    admin_access, daemonset_pod, disruption_budget, evicted, force_deleted, kubelet_restart,
    leftover_entry, running_claim, stuck_claim,
};
use fault::{CASE, Case, intent, side_by_side, until};
use freehold_api::AcceleratorCluster;
use freehold_core::blocker::Reason;
use freehold_core::names;
use freehold_core::vendor::Owner;
use freehold_e2e::cluster::Options;
use freehold_e2e::install::{Controller, ControllerOptions};
use freehold_e2e::scenario::Scenario;
use freehold_e2e::sim::Shape;
use futures::FutureExt as _;
use kube::api::{Api, Patch, PatchParams};
use mid_way::{
    cordoned, foreign_mid_way, late_after_revoke, late_before_revoke, mind_after_revoke,
    mind_before_revoke, rebooted, recreated, slices_stay, stale_socket,
};
use serde_json::json;

const WORKLOADS: &str = r"
apiVersion: v1
kind: Namespace
metadata: {name: ml, labels: {resource.kubernetes.io/admin-access: 'true'}}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: two, namespace: ml}
spec: {spec: {devices: {requests: [{name: r, exactly: {deviceClassName: gpu.nvidia.com, count: 2}}]}}}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: admin, namespace: ml}
spec: {spec: {devices: {requests: [{name: r, exactly: {deviceClassName: gpu.nvidia.com, adminAccess: true, allocationMode: All}}]}}}
";

/// The cases that run side by side, with the owner that each node has at first.
const CASES: [(&str, Owner); 17] = [
    ("running-claim", Owner::Dra),
    ("kubelet-restart", Owner::Dra),
    ("leftover-entry", Owner::DevicePlugin),
    ("force-deleted", Owner::DevicePlugin),
    ("admin-access", Owner::Dra),
    ("stuck-claim", Owner::Dra),
    ("late-before-revoke", Owner::DevicePlugin),
    ("late-after-revoke", Owner::Dra),
    ("recreated", Owner::DevicePlugin),
    ("rebooted", Owner::Dra),
    ("mind-before-revoke", Owner::DevicePlugin),
    ("mind-after-revoke", Owner::Dra),
    ("foreign-mid-way", Owner::Dra),
    ("stale-socket", Owner::DevicePlugin),
    ("slices-stay", Owner::Dra),
    ("cordoned", Owner::DevicePlugin),
    ("daemonset-pod", Owner::DevicePlugin),
];

/// Clocks as the fleet's; a step that does not move is told of after a few seconds.
fn impatient(identity: &str) -> ControllerOptions {
    let arguments = [
        "--settle-seconds=1",
        "--stable-seconds=1",
        "--patience-seconds=6",
        "--status-rest-ms=200",
        "--lease-seconds=15",
    ];
    ControllerOptions {
        identity: identity.into(),
        arguments: arguments.map(str::to_owned).into(),
        ..ControllerOptions::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_blocked_handover_says_why_changes_nothing_and_goes_on_by_itself() -> Result<()> {
    let nodes = CASES
        .map(|(name, _)| (name.to_owned(), Shape::h100().with_label(CASE, name)))
        .into();
    let mut scenario = Scenario::start_with(
        "faults",
        nodes,
        Options::named("faults")?,
        &impatient("replica-1"),
    )
    .await?;
    scenario.cluster.apply_yaml(WORKLOADS).await?;
    let cohorts = CASES.map(|(name, owner)| Case::cohort(name, owner, &json!({})));
    intent(&scenario, "Wait", &cohorts).await?;

    let case = |name: &'static str| {
        let owner = CASES
            .iter()
            .find(|(known, _)| *known == name)
            .map_or(Owner::Dra, |(_, owner)| *owner);
        Case::new(&scenario, name, owner)
    };
    side_by_side(vec![
        (
            "a running claim blocks, by the pod's name",
            running_claim(case("running-claim")).boxed_local(),
        ),
        (
            "a claim in use blocks over a restart of the kubelet",
            kubelet_restart(case("kubelet-restart")).boxed_local(),
        ),
        (
            "what an ended pod left in the checkpoint does not block",
            leftover_entry(case("leftover-entry")).boxed_local(),
        ),
        (
            "a force-deleted pod blocks until the node lets go",
            force_deleted(case("force-deleted")).boxed_local(),
        ),
        (
            "a claim with adminAccess blocks",
            admin_access(case("admin-access")).boxed_local(),
        ),
        (
            "a claim that does not go is named, its finalizers stay (H75)",
            stuck_claim(case("stuck-claim")).boxed_local(),
        ),
        (
            "a consumer bound after the fence is waited for",
            late_before_revoke(case("late-before-revoke")).boxed_local(),
        ),
        (
            "a claim that turns up after revoke sends the node back to DRA",
            late_after_revoke(case("late-after-revoke")).boxed_local(),
        ),
        (
            "a node replaced mid-way starts over",
            recreated(case("recreated")).boxed_local(),
        ),
        (
            "a reboot mid-way voids what was attested (H80)",
            rebooted(case("rebooted")).boxed_local(),
        ),
        (
            "a change of mind before revoke unfences",
            mind_before_revoke(case("mind-before-revoke")).boxed_local(),
        ),
        (
            "a change of mind after revoke goes by way of none",
            mind_after_revoke(case("mind-after-revoke")).boxed_local(),
        ),
        (
            "a foreign plugin mid-way stops everything",
            foreign_mid_way(case("foreign-mid-way")).boxed_local(),
        ),
        (
            "a socket that nobody serves is named",
            stale_socket(case("stale-socket")).boxed_local(),
        ),
        (
            "slices that never go are named",
            slices_stay(case("slices-stay")).boxed_local(),
        ),
        (
            "an administrator's cordon stays (H40)",
            cordoned(case("cordoned")).boxed_local(),
        ),
        (
            "a consumer that a DaemonSet brings back is named at once",
            daemonset_pod(case("daemonset-pod")).boxed_local(),
        ),
    ])
    .await?;

    a_restarted_controller_keeps_the_age(&mut scenario).await?;
    let cohorts = CASES.map(|(name, _)| Case::cohort(name, Owner::DevicePlugin, &json!({})));
    intent(&scenario, "Evict", &cohorts).await?;
    let (budget, plain) = (
        Case::new(&scenario, "running-claim", Owner::DevicePlugin),
        Case::new(&scenario, "admin-access", Owner::DevicePlugin),
    );
    side_by_side(vec![
        (
            "a budget refuses an eviction, by its name",
            disruption_budget(budget).boxed_local(),
        ),
        (
            "a consumer without a budget is evicted",
            evicted(plain).boxed_local(),
        ),
    ])
    .await?;
    let drain = json!({"policy": "Evict", "timeout": format!("{}s", consumers::SHORT_DRAIN_S)});
    let short = Patch::Merge(json!({"spec": {"rollout": {"drain": drain}}}));
    Api::<AcceleratorCluster>::all(scenario.cluster.admin())
        .patch(names::SINGLETON, &PatchParams::default(), &short)
        .await?;
    side_by_side(vec![(
        "a drain past its deadline gives the node back, and is tried again later",
        consumers::given_up(Case::new(&scenario, "daemonset-pod", Owner::DevicePlugin))
            .boxed_local(),
    )])
    .await?;
    scenario.stop().await
}

/// The age of a blocker outlives the controller that told of it.
async fn a_restarted_controller_keeps_the_age(scenario: &mut Scenario) -> Result<()> {
    let case = Case::new(scenario, "cordoned", Owner::Dra);
    case.patch_node(json!({"spec": {"unschedulable": null}}))
        .await?;
    case.consumer("ritz").await?;
    case.want(Owner::DevicePlugin).await?;
    let before = case.blocked(Reason::ConsumersRemain, &["ml/ritz"]).await?;
    let second = Controller::start(
        &scenario.cluster,
        &scenario.programs,
        &impatient("replica-2"),
    )
    .await?;
    std::mem::replace(&mut scenario.controller, second).kill();
    until("the second replica to lead", fault::SOON, async || {
        let metrics = scenario.controller.metrics().await?;
        Ok(if metrics.contains("freehold_leading 1") {
            Ok(())
        } else {
            Err("it does not".to_owned())
        })
    })
    .await?;
    let case = Case::new(scenario, "cordoned", Owner::Dra);
    case.stays(Some(Owner::Dra), 6).await?;
    let after = case.blocked(Reason::ConsumersRemain, &["ml/ritz"]).await?;
    ensure!(
        after.since == before.since,
        "blocked since {:?}, after the restart since {:?}",
        before.since,
        after.since
    );
    case.delete_pod("ritz").await?;
    case.held(Owner::DevicePlugin).await?;
    println!("holds: a controller that is restarted while a node is blocked keeps the age");
    Ok(())
}
