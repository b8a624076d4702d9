//! A definition that is older than the controller (H85).

use anyhow::{Context as _, Result, ensure};
use freehold_core::blocker::Reason;
use freehold_core::names;
use freehold_e2e::cluster::Filter;
use freehold_e2e::install::wait_for_cluster;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};

use crate::fault::{self, Case};

const CRD: &str = "acceleratorclusters.freehold.dev";
/// Where a field of this version stands in its versions.
const FIELDS: &str = "/0/schema/openAPIV3Schema/properties/status/properties";

async fn install(case: Case<'_>, versions: &Value) -> Result<()> {
    let patch = Patch::Merge(json!({"spec": {"versions": versions}}));
    Api::<CustomResourceDefinition>::all(case.scenario.cluster.admin())
        .patch(CRD, &PatchParams::default(), &patch)
        .await?;
    Ok(())
}

/// Nothing is changed on a definition that lacks a field, and what it lacks is told; with the definition of this version all goes on.
pub async fn outdated(case: Case<'_>) -> Result<()> {
    let cluster = &case.scenario.cluster;
    case.held(case.owner).await?;
    let installed = Api::<CustomResourceDefinition>::all(cluster.admin())
        .get(CRD)
        .await?;
    let versions = serde_json::to_value(&installed.spec.versions)?;
    let mut old = versions.clone();
    old.pointer_mut(FIELDS)
        .and_then(Value::as_object_mut)
        .and_then(|fields| fields.remove("starting"))
        .context("the field")?;
    install(case, &old).await?;
    wait_for_cluster(
        cluster,
        "the definition to be told of as outdated",
        fault::SOON,
        |object| {
            object.status.as_ref().is_some_and(|status| {
                status.nodes.owned > 0
                    && status.blockers.iter().any(|blocker| {
                        blocker.reason == Reason::CrdOutdated
                            && blocker.message.contains("status.starting")
                    })
            })
        },
    )
    .await?;
    let since = cluster.audit().mark().await?;
    case.want(case.other()).await?;
    case.stays(Some(case.owner), 4).await?;
    for resource in ["nodes", "acceleratornodes.freehold.dev", "daemonsets.apps"] {
        let ours = Filter::all()
            .service_account(names::SYSTEM_NAMESPACE, names::CONTROLLER_SERVICE_ACCOUNT)
            .resource(resource);
        let writes = cluster.audit().writes_since(since, &ours).await?;
        ensure!(writes.count() == 0, "{resource}: {writes:?}");
    }
    install(case, &versions).await?;
    case.held(case.other()).await?;
    case.want(case.owner).await?;
    case.held(case.owner).await?;
    wait_for_cluster(
        cluster,
        "the definition to be in order",
        fault::SOON,
        |object| {
            object.status.as_ref().is_some_and(|status| {
                status
                    .blockers
                    .iter()
                    .all(|blocker| blocker.reason != Reason::CrdOutdated)
            })
        },
    )
    .await?;
    println!("holds: nothing is changed on a definition that lacks a field, and it is told (H85)");
    Ok(())
}
