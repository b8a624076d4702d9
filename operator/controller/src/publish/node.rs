//! Status of an AcceleratorNode: where each vendor's tenure stands and one `Ready` condition.

use freehold_api::{AcceleratorNode, TenureStatus};
use freehold_core::names;
use freehold_core::summary::{self, TenureOutcome};
use freehold_core::vendor::{PerVendor, Vendor};
use jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Map, Value, json};

use super::{condition, time};
use crate::act::{WriteError, timed};

/// The status part that the controller writes, or `None` when the object says it already.
pub(crate) fn patch(
    record: &AcceleratorNode,
    outcomes: &PerVendor<Option<TenureOutcome>>,
    now: Timestamp,
) -> Option<Value> {
    let before = record.status.clone().unwrap_or_default();
    let mut tenures = before.tenures.clone();
    for vendor in Vendor::ALL {
        *tenures.vendor_mut(vendor) = outcomes.get(vendor).as_ref().map(tenure);
    }
    let shown: Vec<&TenureOutcome> = Vendor::ALL
        .iter()
        .filter_map(|vendor| outcomes.get(*vendor).as_ref())
        .collect();
    let ready = summary::node_condition(&shown);
    let conditions = vec![condition(
        ready,
        &before.conditions,
        record.metadata.generation,
        now,
    )];
    if tenures == before.tenures && same(&conditions, &before.conditions) {
        return None;
    }
    // A merge patch keeps what it does not name: what went away is named as null.
    let tenures: Map<String, Value> = Vendor::ALL
        .iter()
        .map(|vendor| {
            (
                vendor.key().to_owned(),
                tenures.vendor(*vendor).map_or(Value::Null, with_nulls),
            )
        })
        .collect();
    Some(json!({
        "metadata": {"resourceVersion": record.metadata.resource_version},
        "status": {"tenures": tenures, "conditions": conditions},
    }))
}

fn same(
    new: &[k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition],
    old: &[k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition],
) -> bool {
    // The generation moves with every order; alone it is no reason to write.
    let told = |c: &k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition| {
        (
            c.type_.clone(),
            c.status.clone(),
            c.reason.clone(),
            c.message.clone(),
        )
    };
    new.iter().map(told).eq(old.iter().map(told))
}

fn tenure(outcome: &TenureOutcome) -> TenureStatus {
    let why = outcome.why();
    TenureStatus {
        cohort: outcome.cohort.clone(),
        owner: outcome.owner,
        step: outcome.step,
        since: time(outcome.since_s),
        reason: why.map(|blocker| blocker.reason),
        message: why.map(|blocker| blocker.message.clone()),
        next_step: why.map(|blocker| blocker.reason.next_step().to_owned()),
    }
}

fn with_nulls(tenure: &TenureStatus) -> Value {
    let TenureStatus {
        cohort,
        owner,
        step,
        since,
        reason,
        message,
        next_step,
    } = tenure;
    json!({
        "cohort": cohort, "owner": owner, "step": step, "since": since, "reason": reason, "message": message, "nextStep": next_step,
    })
}

/// Writes it.
pub(crate) async fn write(
    client: Client,
    name: String,
    patch: Value,
) -> Result<AcceleratorNode, WriteError> {
    timed(async {
        let params = PatchParams {
            field_manager: Some(names::CONTROLLER_FIELD_MANAGER.into()),
            ..PatchParams::default()
        };
        let api = Api::<AcceleratorNode>::all(client);
        let written = api
            .patch_status(&name, &params, &Patch::Merge(patch))
            .await?;
        tracing::debug!(node = written.name_any(), "status written");
        Ok(written)
    })
    .await
}
