//! What changes while a handover is under way: the node, the intent, and what is found there.

use anyhow::{Context as _, Result, ensure};
use freehold_core::blocker::Reason;
use freehold_core::names;
use freehold_core::vendor::Owner;
use k8s_openapi::api::resource::v1::ResourceSlice;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams};
use serde_json::json;

use crate::fault::{CASE, Case, claim_spec, plugin_spec};

pub async fn late_before_revoke(case: Case<'_>) -> Result<()> {
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

pub async fn late_after_revoke(case: Case<'_>) -> Result<()> {
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

pub async fn recreated(case: Case<'_>) -> Result<()> {
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

pub async fn rebooted(case: Case<'_>) -> Result<()> {
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

pub async fn mind_before_revoke(case: Case<'_>) -> Result<()> {
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

pub async fn mind_after_revoke(case: Case<'_>) -> Result<()> {
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

pub async fn foreign_mid_way(case: Case<'_>) -> Result<()> {
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

pub async fn stale_socket(case: Case<'_>) -> Result<()> {
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

pub async fn slices_stay(case: Case<'_>) -> Result<()> {
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

pub async fn cordoned(case: Case<'_>) -> Result<()> {
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
