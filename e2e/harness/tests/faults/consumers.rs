//! Consumers that do not leave, in every way that the field has shown, and some that only seem to be there.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use freehold_core::blocker::Reason;
use freehold_core::names;
use freehold_core::tenure::Step;
use freehold_core::vendor::Owner;
use freehold_e2e::cluster::Filter;
use freehold_e2e::sim::NodeHandle;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams};
use serde_json::json;

use crate::fault::{self, CASE, Case, ML, claim_spec, plugin_spec, until};

pub async fn running_claim(case: Case<'_>) -> Result<()> {
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

pub async fn kubelet_restart(case: Case<'_>) -> Result<()> {
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
    let hold = Duration::from_secs(25);
    case.node()?
        .force_delete_pod_keep_holder(ML, "boole", hold)
        .await?;
    case.pod_gone("boole").await?;
    case.blocked(Reason::DevicesInUse, &["1 prepared claim(s)"])
        .await?;
    ensure!(
        case.report().await?.in_use.dra > 0,
        "the agent still counts the claim: {:?}",
        case.report().await?.in_use
    );
    case.stays(Some(Owner::Dra), 4).await?;
    case.held(Owner::DevicePlugin).await.map(drop)
}

pub async fn force_deleted(case: Case<'_>) -> Result<()> {
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

pub async fn leftover_entry(case: Case<'_>) -> Result<()> {
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

pub async fn admin_access(case: Case<'_>) -> Result<()> {
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

pub async fn stuck_claim(case: Case<'_>) -> Result<()> {
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

pub async fn daemonset_pod(case: Case<'_>) -> Result<()> {
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

/// A PodDisruptionBudget that refuses the eviction of the pods called so.
async fn keep(case: Case<'_>, app: &str) -> Result<Api<PodDisruptionBudget>> {
    let name = format!("keep-{app}");
    let budget = json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name, "namespace": ML},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": app}}}});
    case.scenario
        .cluster
        .apply_yaml(&budget.to_string())
        .await?;
    let budgets = Api::<PodDisruptionBudget>::namespaced(case.scenario.cluster.admin(), ML);
    until("the budget to be counted", fault::SOON, async || {
        let status = budgets.get(&name).await?.status.unwrap_or_default();
        Ok(if status.expected_pods == Some(1) {
            Ok(())
        } else {
            Err(format!("{status:?}"))
        })
    })
    .await?;
    Ok(budgets)
}

pub async fn disruption_budget(case: Case<'_>) -> Result<()> {
    case.held(Owner::DevicePlugin).await?;
    let pod = case.consumer("salam").await?;
    let budgets = keep(case, "salam").await?;
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

pub async fn evicted(case: Case<'_>) -> Result<()> {
    case.held(Owner::DevicePlugin).await?;
    case.consumer("teller").await?;
    case.want(Owner::Dra).await?;
    case.pod_gone("teller").await?;
    case.held(Owner::Dra).await.map(drop)
}

/// Seconds that a drain may take in [`given_up`].
pub const SHORT_DRAIN_S: u64 = 6;

/// A drain that nobody may finish: past its deadline the node is its owner's again and takes pods, and is tried again after
/// rests that grow.
pub async fn given_up(case: Case<'_>) -> Result<()> {
    case.held(Owner::DevicePlugin).await?;
    case.consumer("volta").await?;
    let budgets = keep(case, "volta").await?;
    case.want(Owner::Dra).await?;
    case.fenced().await?;
    let mut rests = Vec::new();
    for _ in 0..2 {
        case.unfenced().await?;
        let given_up = tokio::time::Instant::now();
        if rests.is_empty() {
            // It takes pods again; this one may be evicted at the next try.
            case.consumer("watt").await?;
            let tenure = case
                .blocked(
                    Reason::DrainTimeout,
                    &["ml/volta", "keep-volta", &format!("{SHORT_DRAIN_S} s")],
                )
                .await?;
            ensure!(
                tenure.step == Step::Hold && tenure.owner == Some(Owner::DevicePlugin),
                "{tenure:?}"
            );
        }
        case.fenced().await?;
        rests.push(given_up.elapsed().as_secs());
    }
    println!("  given up, and tried again after rests of {rests:?} s");
    ensure!(
        rests
            .iter()
            .zip([SHORT_DRAIN_S, 2 * SHORT_DRAIN_S])
            .all(|(rest, least)| *rest + 2 >= least),
        "each rest is twice as long: {rests:?}"
    );
    budgets
        .delete("keep-volta", &DeleteParams::default())
        .await?;
    case.pod_gone("volta").await?;
    case.pod_gone("watt").await?;
    case.held(Owner::Dra).await.map(drop)
}
