//! Handovers that something stands in the way of: each names what it is, changes no owner meanwhile, and goes on by itself when
//! the cause ends. Real controller, real agents, a real control plane; each case has a node and a cohort of its own.

mod fault;

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use fault::{CASE, Case, ML, claim_spec, intent, plugin_spec, side_by_side, until};
use freehold_core::blocker::Reason;
use freehold_core::names;
use freehold_core::tenure::Step;
use freehold_core::vendor::Owner;
use freehold_e2e::cluster::{Filter, Options};
use freehold_e2e::install::{Controller, ControllerOptions};
use freehold_e2e::scenario::Scenario;
use freehold_e2e::sim::{NodeHandle, Shape};
use futures::FutureExt as _;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::resource::v1::ResourceSlice;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams};
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
    scenario.stop()
}

async fn running_claim(case: Case<'_>) -> Result<()> {
    case.held(Owner::Dra).await?;
    let pod = case.consumer("ada").await?;
    case.want(Owner::DevicePlugin).await?;
    let uid = pod.uid().unwrap_or_default();
    let tenure = case
        .blocked(Reason::ConsumersRemain, &["ml/ada", &uid, "gpu.nvidia.com"])
        .await?;
    ensure!(tenure.step == Step::Drain, "{tenure:?}");
    case.stays(Some(Owner::Dra), 5).await?;
    ensure!(
        case.running("ada").await?.uid() == pod.uid(),
        "the pod is left alone"
    );
    case.delete_pod("ada").await?;
    case.held(Owner::DevicePlugin).await.map(drop)
}

async fn kubelet_restart(case: Case<'_>) -> Result<()> {
    case.held(Owner::Dra).await?;
    case.consumer("boole").await?;
    // The API forgets pod and claim, the node does not; the kubelet's in-use metric would read 0 after this.
    case.node()?.kubelet_restart().await?;
    case.node()?
        .wait_for_devices("gpu.nvidia.com", 8, fault::SOON)
        .await?;
    case.want(Owner::DevicePlugin).await?;
    case.blocked(Reason::ConsumersRemain, &["ml/boole"]).await?;
    case.node()?.kubelet_restart().await?;
    case.stays(Some(Owner::Dra), 4).await?;
    ensure!(
        case.report().await?.in_use.dra > 0,
        "the agent still counts the claim: {:?}",
        case.report().await?.in_use
    );
    case.delete_pod("boole").await?;
    case.held(Owner::DevicePlugin).await.map(drop)
}

async fn leftover_entry(case: Case<'_>) -> Result<()> {
    case.held(Owner::DevicePlugin).await?;
    let uid = case.consumer("curie").await?.uid().unwrap_or_default();
    case.delete_pod("curie").await?;
    case.pod_gone("curie").await?;
    ensure!(
        checkpoint(&case.node()?)?.contains(&uid),
        "the entry stays until the next allocation"
    );
    case.want(Owner::Dra).await?;
    case.held(Owner::Dra).await?;
    ensure!(
        checkpoint(&case.node()?)?.contains(&uid),
        "and was there all the while"
    );
    Ok(())
}

fn checkpoint(node: &NodeHandle) -> Result<String> {
    node.tree(|tree| {
        Ok(std::fs::read_to_string(tree.path(
            "/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint",
        ))?)
    })
}

async fn force_deleted(case: Case<'_>) -> Result<()> {
    case.held(Owner::DevicePlugin).await?;
    let uid = case.consumer("darwin").await?.uid().unwrap_or_default();
    let hold = Duration::from_secs(25);
    case.node()?
        .force_delete_pod_keep_holder(ML, "darwin", hold)
        .await?;
    case.pod_gone("darwin").await?;
    case.want(Owner::Dra).await?;
    let tenure = case
        .blocked(Reason::DevicesInUse, &["1 pod(s) of the device plugin"])
        .await?;
    ensure!(
        tenure
            .message
            .as_ref()
            .is_some_and(|message| message.contains(&uid)),
        "the holder is named: {tenure:?}"
    );
    case.stays(Some(Owner::DevicePlugin), 4).await?;
    case.held(Owner::Dra).await.map(drop)
}

async fn admin_access(case: Case<'_>) -> Result<()> {
    case.held(Owner::Dra).await?;
    case.pod(
        "euler",
        claim_spec(json!({"resourceClaimTemplateName": "admin"})),
    )
    .await?;
    case.want(Owner::DevicePlugin).await?;
    case.blocked(Reason::ConsumersRemain, &["ml/euler"]).await?;
    case.stays(Some(Owner::Dra), 4).await?;
    case.delete_pod("euler").await?;
    case.held(Owner::DevicePlugin).await.map(drop)
}

async fn stuck_claim(case: Case<'_>) -> Result<()> {
    case.held(Owner::Dra).await?;
    // Reserved for something whose end nobody notices, so that it stays allocated.
    let job = json!({"apiGroup": "example.com", "resource": "trainings", "name": "fermi", "uid": "0f1e2d3c"});
    case.allocated_claim("fermi", "gpu-3", job).await?;
    case.delete_claim("fermi").await?;
    let before = case.claim("fermi").await?.context("it does not go")?;
    case.want(Owner::DevicePlugin).await?;
    case.blocked(
        Reason::StuckClaim,
        &["ml/fermi", &before.uid().unwrap_or_default()],
    )
    .await?;
    case.stays(Some(Owner::Dra), 4).await?;
    let after = case.claim("fermi").await?.context("still there")?;
    ensure!(
        after.resource_version() == before.resource_version(),
        "nobody touched it: {after:?}"
    );
    ensure!(
        after.finalizers() == ["resource.kubernetes.io/delete-protection"],
        "{after:?}"
    );
    // The holder ends: Kubernetes itself deallocates the claim and lets it go.
    case.patch_claim_status("fermi", json!({"status": {"reservedFor": null}}))
        .await?;
    case.held(Owner::DevicePlugin).await.map(drop)
}

async fn late_before_revoke(case: Case<'_>) -> Result<()> {
    case.held(Owner::DevicePlugin).await?;
    case.consumer("gauss").await?;
    case.want(Owner::Dra).await?;
    case.fenced().await?;
    case.blocked(Reason::ConsumersRemain, &["ml/gauss"]).await?;
    // NoSchedule binds schedulers, not kubelets: this one runs.
    case.bound_pod("hopper", plugin_spec()).await?;
    case.running("hopper").await?;
    case.delete_pod("gauss").await?;
    case.blocked(Reason::ConsumersRemain, &["ml/hopper"])
        .await?;
    case.stays(Some(Owner::DevicePlugin), 4).await?;
    case.delete_pod("hopper").await?;
    case.held(Owner::Dra).await.map(drop)
}

async fn late_after_revoke(case: Case<'_>) -> Result<()> {
    case.held(Owner::Dra).await?;
    case.want(Owner::DevicePlugin).await?;
    case.revoked().await?;
    let pod = case
        .bound_pod("ising", claim_spec(json!({"resourceClaimName": "ising"})))
        .await?;
    let holder = json!({"resource": "pods", "name": "ising", "uid": pod.uid()});
    case.allocated_claim("ising", "gpu-5", holder).await?;
    // Only the driver can unprepare it: the driver comes back, the pod gets to run, and the node drains again.
    case.running("ising")
        .await
        .context("the driver came back")?;
    case.blocked(Reason::ConsumersRemain, &["ml/ising"]).await?;
    case.stays(Some(Owner::Dra), 4).await?;
    case.delete_pod("ising").await?;
    case.held(Owner::DevicePlugin).await.map(drop)
}

async fn recreated(case: Case<'_>) -> Result<()> {
    case.held(Owner::DevicePlugin).await?;
    case.consumer("joule").await?;
    let before = case.node()?.object().await?.uid();
    case.want(Owner::Dra).await?;
    case.blocked(Reason::ConsumersRemain, &["ml/joule"]).await?;
    case.node()?.delete().await?;
    case.force_delete_pod("joule").await?;
    case.node()?.recreate_same_name(None).await?;
    case.held(Owner::Dra).await?;
    let (node, record) = (case.node()?.object().await?, case.record().await?);
    ensure!(
        node.uid() != before && Some(&record.spec.node_uid) == node.uid().as_ref(),
        "{record:?}"
    );
    Ok(())
}

async fn rebooted(case: Case<'_>) -> Result<()> {
    case.held(Owner::Dra).await?;
    case.consumer("kepler").await?;
    case.want(Owner::DevicePlugin).await?;
    case.blocked(Reason::ConsumersRemain, &["ml/kepler"])
        .await?;
    let attested = case
        .record()
        .await?
        .status
        .and_then(|status| status.report)
        .context("a report")?
        .boot_id;
    case.node()?.reboot().await?;
    let booted = case
        .node()?
        .object()
        .await?
        .status
        .and_then(|status| status.node_info)
        .context("node info")?
        .boot_id;
    ensure!(attested != booted, "another boot");
    case.stays(Some(Owner::Dra), 4).await?;
    case.delete_pod("kepler").await?;
    case.held(Owner::DevicePlugin).await?;
    let report = case
        .record()
        .await?
        .status
        .and_then(|status| status.report)
        .context("a report")?;
    ensure!(
        report.boot_id == booted,
        "attested by this boot: {report:?}"
    );
    Ok(())
}

async fn mind_before_revoke(case: Case<'_>) -> Result<()> {
    case.held(Owner::DevicePlugin).await?;
    let pod = case.consumer("lovelace").await?;
    case.want(Owner::Dra).await?;
    case.blocked(Reason::ConsumersRemain, &["ml/lovelace"])
        .await?;
    let operand = operand(case).await?;
    case.want(Owner::DevicePlugin).await?;
    case.held(Owner::DevicePlugin).await?;
    ensure!(
        case.running("lovelace").await?.uid() == pod.uid(),
        "the consumer never stopped"
    );
    ensure!(self::operand(case).await? == operand, "nor did the operand");
    case.delete_pod("lovelace").await
}

/// UIDs of the operand's pods on the node.
async fn operand(case: Case<'_>) -> Result<Vec<String>> {
    let pods = Api::<k8s_openapi::api::core::v1::Pod>::namespaced(
        case.scenario.cluster.admin(),
        names::OPERAND_NAMESPACE,
    );
    let wanted = kube::api::ListParams::default()
        .labels(&format!("{}=operand", names::COMPONENT_LABEL))
        .fields(&format!("spec.nodeName={}", case.name));
    Ok(pods
        .list(&wanted)
        .await?
        .iter()
        .filter_map(ResourceExt::uid)
        .collect())
}

async fn mind_after_revoke(case: Case<'_>) -> Result<()> {
    case.held(Owner::Dra).await?;
    let term = case.record().await?.spec.nvidia.map_or(0, |part| part.term);
    case.want(Owner::DevicePlugin).await?;
    case.revoked().await?;
    case.want(Owner::Dra).await?;
    case.held(Owner::Dra).await?;
    let record = case.record().await?;
    // Fence, second attestation, word: a whole way was gone, not just a label put back.
    ensure!(
        record
            .spec
            .nvidia
            .as_ref()
            .is_some_and(|part| part.term >= term + 4),
        "{:?} after term {term}",
        record.spec
    );
    ensure!(
        case.report().await?.word == Some(Owner::Dra),
        "the node's word"
    );
    Ok(())
}

async fn foreign_mid_way(case: Case<'_>) -> Result<()> {
    case.held(Owner::Dra).await?;
    case.consumer("maxwell").await?;
    case.want(Owner::DevicePlugin).await?;
    case.blocked(Reason::ConsumersRemain, &["ml/maxwell"])
        .await?;
    case.node()?.foreign_plugin("nvidia.com/gpu", 8)?;
    case.blocked(Reason::ForeignOwner, &["nvidia.com/gpu=8"])
        .await?;
    case.delete_pod("maxwell").await?;
    case.pod_gone("maxwell").await?;
    case.stays(Some(Owner::Dra), 5).await?;
    case.node()?.foreign_plugin_gone()?;
    case.held(Owner::DevicePlugin).await.map(drop)
}

async fn stale_socket(case: Case<'_>) -> Result<()> {
    case.held(Owner::DevicePlugin).await?;
    let file = "nvidia-newton.sock";
    case.node()?.stale_socket(file)?;
    case.want(Owner::Dra).await?;
    case.blocked(Reason::SocketLingers, &[file]).await?;
    case.stays(None, 4).await?;
    case.node()?
        .remove_file(&format!("{}/{file}", freehold_e2e::sim::DEVICE_PLUGINS))?;
    case.held(Owner::Dra).await.map(drop)
}

async fn slices_stay(case: Case<'_>) -> Result<()> {
    case.held(Owner::Dra).await?;
    case.consumer("ohm").await?;
    case.want(Owner::DevicePlugin).await?;
    case.blocked(Reason::ConsumersRemain, &["ml/ohm"]).await?;
    // Of this node's pool, but not bound to the Node by name: the kubelet does not wipe it.
    let selector = json!({"nodeSelectorTerms": [{"matchExpressions": [{"key": CASE, "operator": "In", "values": [case.name]}]}]});
    let slice = json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "left-behind"}, "spec": {
        "driver": "gpu.nvidia.com", "nodeSelector": selector,
        "pool": {"name": case.name, "generation": 1, "resourceSliceCount": 1}, "devices": [{"name": "gpu-0"}]}});
    case.scenario.cluster.apply_yaml(&slice.to_string()).await?;
    case.delete_pod("ohm").await?;
    case.blocked(
        Reason::AdvertisementLingers,
        &["1 ResourceSlice(s) of driver gpu.nvidia.com"],
    )
    .await?;
    case.stays(None, 4).await?;
    let slices = Api::<ResourceSlice>::all(case.scenario.cluster.admin());
    slices
        .delete("left-behind", &DeleteParams::default())
        .await?;
    case.held(Owner::DevicePlugin).await.map(drop)
}

async fn cordoned(case: Case<'_>) -> Result<()> {
    case.held(Owner::DevicePlugin).await?;
    case.consumer("pascal").await?;
    case.want(Owner::Dra).await?;
    case.blocked(Reason::ConsumersRemain, &["ml/pascal"])
        .await?;
    case.patch_node(json!({"spec": {"unschedulable": true}}))
        .await?;
    case.delete_pod("pascal").await?;
    case.held(Owner::Dra).await?;
    let spec = case.node()?.object().await?.spec.unwrap_or_default();
    ensure!(
        spec.unschedulable == Some(true),
        "the cordon is the administrator's: {spec:?}"
    );
    Ok(())
}

async fn daemonset_pod(case: Case<'_>) -> Result<()> {
    case.held(Owner::DevicePlugin).await?;
    let mut spec = plugin_spec();
    if let Some(spec) = spec.as_object_mut() {
        spec.insert("nodeSelector".into(), json!({CASE: case.name}));
        spec.insert("tolerations".into(), json!([{"operator": "Exists"}]));
    }
    let set = json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "quasar", "namespace": ML}, "spec": {
        "selector": {"matchLabels": {"app": "quasar"}}, "template": {"metadata": {"labels": {"app": "quasar"}}, "spec": spec}}});
    case.scenario.cluster.apply_yaml(&set.to_string()).await?;
    let sets = Api::<DaemonSet>::namespaced(case.scenario.cluster.admin(), ML);
    until("quasar to run", fault::SOON, async || {
        let ready = sets
            .get("quasar")
            .await?
            .status
            .map_or(0, |status| status.number_ready);
        Ok(if ready == 1 {
            Ok(())
        } else {
            Err(format!("{ready} ready"))
        })
    })
    .await?;
    case.want(Owner::Dra).await?;
    let tenure = case
        .blocked(
            Reason::DaemonSetConsumer,
            &["DaemonSet ml/quasar", "ml/quasar-"],
        )
        .await?;
    ensure!(tenure.step == Step::Drain, "{tenure:?}");
    case.stays(Some(Owner::DevicePlugin), 4).await?;
    sets.delete("quasar", &DeleteParams::default()).await?;
    case.held(Owner::Dra).await.map(drop)
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

async fn disruption_budget(case: Case<'_>) -> Result<()> {
    case.held(Owner::DevicePlugin).await?;
    let pod = case.consumer("salam").await?;
    let budget = json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "keep-salam", "namespace": ML},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "salam"}}}});
    case.scenario
        .cluster
        .apply_yaml(&budget.to_string())
        .await?;
    let budgets = Api::<PodDisruptionBudget>::namespaced(case.scenario.cluster.admin(), ML);
    until("the budget to be counted", fault::SOON, async || {
        let status = budgets.get("keep-salam").await?.status.unwrap_or_default();
        Ok(if status.expected_pods == Some(1) {
            Ok(())
        } else {
            Err(format!("{status:?}"))
        })
    })
    .await?;
    case.want(Owner::Dra).await?;
    case.blocked(Reason::DisruptionBudget, &["ml/salam", "keep-salam"])
        .await?;
    let since = case.scenario.cluster.audit().mark().await?;
    // Longer than the pause between two questions, and the reason stays what it is all the while.
    case.stays(Some(Owner::DevicePlugin), 15).await?;
    ensure!(
        case.running("salam").await?.uid() == pod.uid(),
        "never past the budget"
    );
    let asked = Filter::all()
        .service_account(names::SYSTEM_NAMESPACE, names::CONTROLLER_SERVICE_ACCOUNT)
        .resource("pods/eviction")
        .name("salam");
    let asked = case
        .scenario
        .cluster
        .audit()
        .writes_since(since, &asked)
        .await?
        .count();
    ensure!(
        (1..=2).contains(&asked),
        "it is asked again, not hammered: {asked} evictions in 15 s"
    );
    case.blocked(Reason::DisruptionBudget, &["keep-salam"])
        .await?;
    budgets
        .delete("keep-salam", &DeleteParams::default())
        .await?;
    case.pod_gone("salam").await?;
    case.held(Owner::Dra).await.map(drop)
}

async fn evicted(case: Case<'_>) -> Result<()> {
    case.held(Owner::DevicePlugin).await?;
    case.consumer("teller").await?;
    case.want(Owner::Dra).await?;
    case.pod_gone("teller").await?;
    case.held(Owner::Dra).await.map(drop)
}
