//! Status of the AcceleratorCluster.

use freehold_api::{AcceleratorCluster, AcceleratorClusterStatus, BlockerStatus, CohortStatus};
use freehold_core::intent::Intent;
use freehold_core::names;
use freehold_core::summary::{self, BlockerExemplar, Counts, Summary};
use jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};

use super::{condition, time};
use crate::act::{WriteError, timed};

/// Puts the status together from a summary.
pub(crate) fn status(
    cluster: &AcceleratorCluster,
    intent: &Intent,
    summary: Summary,
    now: Timestamp,
) -> AcceleratorClusterStatus {
    let before = cluster.status.clone().unwrap_or_default();
    let generation = cluster.metadata.generation;
    let Summary {
        conditions,
        cohorts,
        blockers,
        blocker_counts,
    } = summary;
    let mut total = Counts::default();
    let cohorts: Vec<CohortStatus> = cohorts
        .into_iter()
        .filter_map(|(name, (nodes, conditions))| {
            add(&mut total, &nodes);
            let cohort = intent.cohorts.get(&name)?;
            let old = before
                .cohorts
                .iter()
                .find(|old| old.name == name)
                .map(|old| old.conditions.clone())
                .unwrap_or_default();
            let conditions = conditions
                .into_iter()
                .map(|new| condition(new, &old, generation, now))
                .collect();
            Some(CohortStatus {
                name,
                vendor: cohort.vendor,
                owner: cohort.owner,
                nodes,
                conditions,
            })
        })
        .collect();
    let blockers = blockers
        .into_iter()
        .map(|blocker| {
            let count = blocker_counts.get(&blocker.reason).copied().unwrap_or(1);
            exemplar(blocker, count)
        })
        .collect();
    AcceleratorClusterStatus {
        observed_generation: generation,
        conditions: conditions
            .into_iter()
            .map(|new| condition(new, &before.conditions, generation, now))
            .collect(),
        nodes: total,
        cohorts,
        blockers,
        starting: before.starting,
    }
}

/// What is said about a resource that does not parse: its cohorts keep what they have.
pub(crate) fn invalid(
    cluster: &AcceleratorCluster,
    conditions: Vec<summary::Condition>,
    now: Timestamp,
) -> AcceleratorClusterStatus {
    let before = cluster.status.clone().unwrap_or_default();
    let generation = cluster.metadata.generation;
    AcceleratorClusterStatus {
        observed_generation: generation,
        conditions: conditions
            .into_iter()
            .map(|new| condition(new, &before.conditions, generation, now))
            .collect(),
        ..before
    }
}

fn add(total: &mut Counts, counts: &Counts) {
    let Counts {
        matched,
        excluded,
        owned,
        ready,
        migrating,
        waiting,
        blocked,
        conflicted,
    } = counts;
    total.matched += matched;
    total.excluded += excluded;
    total.owned += owned;
    total.ready += ready;
    total.migrating += migrating;
    total.waiting += waiting;
    total.blocked += blocked;
    total.conflicted += conflicted;
}

fn exemplar(blocker: BlockerExemplar, count: usize) -> BlockerStatus {
    let BlockerExemplar {
        node,
        cohort,
        vendor,
        reason,
        message,
        next_step,
        since_s,
    } = blocker;
    BlockerStatus {
        node,
        cohort,
        vendor,
        reason,
        message,
        next_step: next_step.to_owned(),
        since: time(since_s),
        count: i32::try_from(count).unwrap_or(i32::MAX),
    }
}

/// Writes a status on the version that it was made from.
pub(crate) async fn write(
    client: Client,
    cluster: &AcceleratorCluster,
    status: AcceleratorClusterStatus,
) -> Result<AcceleratorCluster, WriteError> {
    timed(async {
        // A merge patch replaces lists whole and keeps unnamed fields: every field of the status is named.
        let AcceleratorClusterStatus {
            observed_generation,
            conditions,
            nodes,
            cohorts,
            blockers,
            starting,
        } = status;
        let patch = json!({
            "metadata": {"resourceVersion": cluster.metadata.resource_version},
            "status": {
                "observedGeneration": observed_generation,
                "conditions": conditions,
                "nodes": nodes,
                "cohorts": cohorts,
                "blockers": blockers,
                "starting": starting,
            },
        });
        patch_status(client, patch).await
    })
    .await
}

async fn patch_status(client: Client, patch: Value) -> Result<AcceleratorCluster, WriteError> {
    let params = PatchParams {
        field_manager: Some(names::CONTROLLER_FIELD_MANAGER.into()),
        ..PatchParams::default()
    };
    Ok(Api::<AcceleratorCluster>::all(client)
        .patch_status(names::SINGLETON, &params, &Patch::Merge(patch))
        .await?)
}

/// Adds or removes the finalizer on the version that was looked at.
pub(crate) async fn set_finalizer(
    client: Client,
    cluster: &AcceleratorCluster,
    present: bool,
) -> Result<AcceleratorCluster, WriteError> {
    timed(async {
        let mut finalizers = cluster.metadata.finalizers.clone().unwrap_or_default();
        finalizers.retain(|finalizer| finalizer != names::FINALIZER);
        if present {
            finalizers.push(names::FINALIZER.to_owned());
        }
        let patch = json!({"metadata": {"resourceVersion": cluster.metadata.resource_version, "finalizers": finalizers}});
        let params = PatchParams { field_manager: Some(names::CONTROLLER_FIELD_MANAGER.into()), ..PatchParams::default() };
        let api = Api::<AcceleratorCluster>::all(client);
        Ok(api.patch(names::SINGLETON, &params, &Patch::Merge(patch)).await?)
    })
    .await
}
