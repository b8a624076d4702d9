//! Writers that undo what Freehold sets on a node (H25): told with their names, and met less and less often.

use std::time::Duration;

use anyhow::{Result, ensure};
use freehold_api::AcceleratorCluster;
use freehold_core::blocker::Reason;
use freehold_core::names;
use freehold_core::tenure::Step;
use freehold_core::vendor::{Owner, Vendor};
use freehold_e2e::cluster::Filter;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::fault::{self, Case, until};

/// What the administrator chose for workloads to select on. No policy of ours guards it.
const ALIAS: &str = "workload.example.com/gpu-allocation";
/// The other writer's field manager.
const RIVAL: &str = "site-labeller";
/// How long the other writer goes on. Pauses of 10 and 20 s fit in, and the first seconds of one of 40 s.
const CONTEST: Duration = Duration::from_secs(36);

async fn set_label(case: Case<'_>, key: &str, value: Value) -> Result<()> {
    let params = PatchParams {
        field_manager: Some(RIVAL.into()),
        ..PatchParams::default()
    };
    let patch = Patch::Merge(json!({"metadata": {"labels": {(key): value}}}));
    Api::<Node>::all(case.scenario.cluster.admin())
        .patch(case.name, &params, &patch)
        .await?;
    Ok(())
}

async fn label(case: Case<'_>, key: &str) -> Result<Option<String>> {
    Ok(case.node()?.object().await?.labels().get(key).cloned())
}

async fn labelled(case: Case<'_>, key: &str, value: &str) -> Result<Instant> {
    until(&format!("{key}={value}"), fault::SOON, async || {
        Ok(match label(case, key).await? {
            Some(found) if found == value => Ok(Instant::now()),
            other => Err(format!("{other:?}")),
        })
    })
    .await
}

/// Another controller sets the alias label to the other owner as often as we set it to the right one.
pub async fn alias(case: Case<'_>) -> Result<()> {
    case.held(Owner::DevicePlugin).await?;
    let cluster = &case.scenario.cluster;
    let owner_label = Patch::Merge(json!({"spec": {"ownerLabel": ALIAS}}));
    Api::<AcceleratorCluster>::all(cluster.admin())
        .patch(names::SINGLETON, &PatchParams::default(), &owner_label)
        .await?;
    labelled(case, ALIAS, "device-plugin").await?;

    let since = cluster.audit().mark().await?;
    let (end, mut undone) = (Instant::now() + CONTEST, 0);
    while Instant::now() < end {
        if label(case, ALIAS).await?.as_deref() == Some("device-plugin") {
            set_label(case, ALIAS, json!("dra")).await?;
            undone += 1;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let ours = Filter::all()
        .service_account(names::SYSTEM_NAMESPACE, names::CONTROLLER_SERVICE_ACCOUNT)
        .resource("nodes")
        .name(case.name);
    let writes = cluster.audit().writes_since(since, &ours).await?.count();
    ensure!(
        (2..=3).contains(&writes) && (3..=4).contains(&undone),
        "at once, after 10 s and after 30 s: {writes} writes of ours, {undone} times undone"
    );
    // With the contest over, the pause ends by itself.
    labelled(case, ALIAS, "device-plugin").await?;
    case.held(Owner::DevicePlugin).await.map(drop)
}

/// The alias is fought over at this moment: who does it is told.
pub async fn alias_is_told(case: Case<'_>) -> Result<()> {
    case.blocked(
        Reason::LabelContention,
        &[ALIAS, "\"dra\"", "manager=site-labeller"],
    )
    .await
    .map(drop)
}

/// The alias label's key turns out to be somebody else's on a node: told, left alone, and no handover is held up by it.
pub async fn alias_of_others(case: Case<'_>) -> Result<()> {
    let audit = case.scenario.cluster.audit();
    set_label(case, ALIAS, json!("theirs")).await?;
    case.blocked(Reason::LabelContention, &[ALIAS, "theirs"])
        .await?;
    let since = audit.mark().await?;
    case.stays(Some(Owner::Dra), 3).await?;
    case.want(Owner::DevicePlugin).await?;
    case.tenure("the device plugin's", |tenure| {
        tenure.owner == Some(Owner::DevicePlugin) && tenure.step == Step::Held
    })
    .await?;
    ensure!(label(case, ALIAS).await?.as_deref() == Some("theirs"));
    let ours = Filter::all()
        .service_account(names::SYSTEM_NAMESPACE, names::CONTROLLER_SERVICE_ACCOUNT)
        .resource("nodes")
        .name(case.name);
    let refused = audit.writes_since(since, &ours).await?;
    let refused: Vec<_> = refused
        .events
        .iter()
        .filter(|event| !event.succeeded())
        .collect();
    ensure!(refused.is_empty(), "{refused:?}");
    set_label(case, ALIAS, Value::Null).await?;
    labelled(case, ALIAS, "device-plugin").await?;
    case.held(Owner::DevicePlugin).await?;
    case.want(Owner::Dra).await?;
    case.held(Owner::Dra).await?;
    println!("holds: an alias label that somebody else uses is told of and left alone");
    Ok(())
}

/// With the policy away, somebody removes the owner label as often as we set it.
pub async fn owner_label(case: Case<'_>) -> Result<()> {
    case.held(Owner::DevicePlugin).await?;
    let key = names::owner_label(Vendor::Nvidia);
    // Who only removes leaves no trace in managedFields; this one set it before.
    set_label(case, &key, json!("mine")).await?;
    let mut pauses = Vec::new();
    for _ in 0..2 {
        set_label(case, &key, Value::Null).await?;
        let removed = Instant::now();
        if !pauses.is_empty() {
            case.blocked(
                Reason::LabelContention,
                &[&key, "was removed", "manager=site-labeller"],
            )
            .await?;
        }
        pauses.push(labelled(case, &key, "device-plugin").await? - removed);
    }
    println!("  removed again and again, set again after {pauses:?}");
    ensure!(
        pauses
            .iter()
            .zip([10, 20])
            .all(|(pause, least)| *pause >= Duration::from_secs(least) - Duration::from_secs(1)),
        "each pause is twice as long: {pauses:?}"
    );
    case.held(Owner::DevicePlugin).await.map(drop)
}
