//! Claims on the node: the kubelet's DRA manager and the drivers' prepare and unprepare.

use std::collections::BTreeMap;

use anyhow::{Context as _, bail, ensure};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::{DeviceRequestAllocationResult, ResourceClaim};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};

use super::checkpoint::{
    ClaimInfo, DriverClaim, DriverState, Empty, PREPARE_COMPLETED, PreparedDevice,
};
use super::state::State;
use super::tree::{CDI, Tree};

/// Names of the claims that a pod uses, made from templates or by the scheduler included.
///
/// # Errors
/// When the API has not yet said which claim a template became.
pub fn names_of(pod: &Pod) -> anyhow::Result<Vec<String>> {
    let status = pod.status.as_ref();
    let mut names = Vec::new();
    for wanted in pod
        .spec
        .iter()
        .flat_map(|spec| spec.resource_claims.iter().flatten())
    {
        if let Some(name) = &wanted.resource_claim_name {
            names.push(name.clone());
            continue;
        }
        let made = status
            .and_then(|status| {
                status
                    .resource_claim_statuses
                    .as_ref()?
                    .iter()
                    .find(|made| made.name == wanted.name)
            })
            .with_context(|| format!("resourceclaim {} not created yet", wanted.name))?;
        names.extend(made.resource_claim_name.clone());
    }
    names.extend(status.and_then(|status| {
        Some(
            status
                .extended_resource_claim_status
                .as_ref()?
                .resource_claim_name
                .clone(),
        )
    }));
    Ok(names)
}

/// Reads the pod's claims as the kubelet does before it prepares them.
///
/// # Errors
/// When one is missing, not allocated, or not reserved for the pod.
pub async fn read(client: &Client, pod: &Pod) -> anyhow::Result<Vec<ResourceClaim>> {
    let api =
        Api::<ResourceClaim>::namespaced(client.clone(), &pod.namespace().unwrap_or_default());
    let mut claims = Vec::new();
    for name in names_of(pod)? {
        let claim = api
            .get(&name)
            .await
            .with_context(|| format!("failed to fetch ResourceClaim {name}"))?;
        let reserved = claim
            .status
            .iter()
            .flat_map(|status| status.reserved_for.iter().flatten())
            .any(|user| Some(&user.uid) == pod.metadata.uid.as_ref());
        ensure!(
            reserved,
            "pod {} is not allowed to use ResourceClaim {name}",
            pod.name_any()
        );
        claims.push(claim);
    }
    Ok(claims)
}

fn results_by_driver(
    claim: &ResourceClaim,
) -> anyhow::Result<BTreeMap<String, Vec<DeviceRequestAllocationResult>>> {
    let allocation = claim
        .status
        .as_ref()
        .and_then(|status| status.allocation.as_ref());
    let allocation = allocation
        .with_context(|| format!("ResourceClaim {} is not allocated", claim.name_any()))?;
    let mut by_driver = BTreeMap::<_, Vec<_>>::new();
    for result in allocation
        .devices
        .iter()
        .flat_map(|devices| devices.results.iter().flatten())
    {
        by_driver
            .entry(result.driver.clone())
            .or_default()
            .push(result.clone());
    }
    Ok(by_driver)
}

/// Prepares a claim for a pod: kubelet's record first, then every driver, then the record again.
///
/// # Errors
/// What the kubelet reports as FailedPrepareDynamicResources.
pub fn prepare(
    state: &mut State,
    tree: &Tree,
    pod: &Pod,
    claim: &ResourceClaim,
) -> anyhow::Result<()> {
    let by_driver = results_by_driver(claim)?;
    let (uid, pod_uid) = (
        claim.uid().unwrap_or_default(),
        pod.uid().unwrap_or_default(),
    );
    for driver in by_driver.keys() {
        ensure!(
            state.drivers.contains_key(driver),
            "DRA driver {driver} is not registered"
        );
    }
    let known = state.claims.iter_mut().find(|info| info.claim_uid == uid);
    if let Some(info) = known {
        info.pod_uids.insert(pod_uid, Empty {});
    } else {
        state.claims.push(ClaimInfo {
            claim_uid: uid.clone(),
            claim_name: claim.name_any(),
            namespace: claim.namespace().unwrap_or_default(),
            pod_uids: BTreeMap::from([(pod_uid, Empty {})]),
            driver_state: by_driver
                .keys()
                .map(|driver| (driver.clone(), DriverState::default()))
                .collect(),
        });
    }
    tree.write_dra_manager(&state.claims)?;
    for (driver, results) in &by_driver {
        let devices = driver_prepare(tree, driver, claim, results)?;
        if let Some(info) = state.claims.iter_mut().find(|info| info.claim_uid == uid) {
            info.driver_state
                .insert(driver.clone(), DriverState { devices });
        }
    }
    tree.write_dra_manager(&state.claims)
}

/// Whether a driver's own checkpoint is known (NVIDIA's is; where Neuron's lies has not been published).
const fn keeps_checkpoint(driver: &str) -> bool {
    matches!(driver.as_bytes(), b"gpu.nvidia.com")
}

fn cdi_file(driver: &str, claim_uid: &str) -> String {
    let extension = if keeps_checkpoint(driver) {
        "yaml"
    } else {
        "json"
    };
    format!("{CDI}/k8s.{driver}-claim_{claim_uid}.{extension}")
}

fn driver_prepare(
    tree: &Tree,
    driver: &str,
    claim: &ResourceClaim,
    results: &[DeviceRequestAllocationResult],
) -> anyhow::Result<Vec<PreparedDevice>> {
    let uid = claim.uid().unwrap_or_default();
    let devices: Vec<_> = results
        .iter()
        .map(|result| PreparedDevice {
            pool_name: result.pool.clone(),
            device_name: result.device.clone(),
            share_id: result.share_id.clone(),
            request_names: vec![result.request.clone()],
            cdi_device_ids: vec![format!("k8s.{driver}/claim={uid}-{}", result.device)],
        })
        .collect();
    check_config(tree, driver, claim)?;
    if keeps_checkpoint(driver) {
        let mut state = tree.read_driver_checkpoint(driver)?;
        if !state.prepared_claims.contains_key(&uid) {
            for result in results
                .iter()
                .filter(|result| result.admin_access != Some(true))
            {
                let other = state
                    .prepared_claims
                    .iter()
                    .find(|(_, prepared)| holds(prepared, driver, &result.device));
                if let Some((other, _)) = other {
                    bail!(
                        "requested device {} is already allocated to different claim {other}",
                        result.device
                    );
                }
            }
            let prepared = DriverClaim {
                checkpoint_state: PREPARE_COMPLETED.into(),
                status: serde_json::to_value(&claim.status)?,
                prepared_devices: json!([{"devices": devices.iter().map(|device| json!({"type": "gpu",
                    "device": {"Requests": device.request_names, "PoolName": device.pool_name, "DeviceName": device.device_name,
                        "CDIDeviceIDs": device.cdi_device_ids}})).collect::<Vec<_>>()}]),
                name: String::new(),
                namespace: String::new(),
            };
            state.prepared_claims.insert(uid.clone(), prepared);
            state.node_boot_id = tree.boot_id();
            tree.write_driver_checkpoint(driver, &state)?;
        }
    }
    let names: Vec<_> = devices.iter().map(|device| json!({"name": format!("{uid}-{}", device.device_name), "containerEdits": {"env": [format!("DEVICE={}", device.device_name)]}})).collect();
    let cdi =
        json!({"cdiVersion": "0.6.0", "kind": format!("k8s.{driver}/claim"), "devices": names});
    tree.write(&cdi_file(driver, &uid), &cdi.to_string())?;
    Ok(devices)
}

/// Whether a prepared claim holds a device. Claims with adminAccess only look on.
fn holds(prepared: &DriverClaim, driver: &str, device: &str) -> bool {
    let results = prepared
        .status
        .pointer("/allocation/devices/results")
        .and_then(Value::as_array);
    results.into_iter().flatten().any(|result| {
        result.get("driver").and_then(Value::as_str) == Some(driver)
            && result.get("device").and_then(Value::as_str) == Some(device)
            && result.get("adminAccess").and_then(Value::as_bool) != Some(true)
    })
}

/// The Neuron driver decodes its configuration strictly, and LNC can be chosen on some families only.
fn check_config(tree: &Tree, driver: &str, claim: &ResourceClaim) -> anyhow::Result<()> {
    let configs = claim
        .status
        .iter()
        .filter_map(|status| {
            status
                .allocation
                .as_ref()?
                .devices
                .as_ref()?
                .config
                .as_ref()
        })
        .flatten();
    let opaque = configs
        .filter_map(|config| config.opaque.as_ref())
        .filter(|opaque| opaque.driver == driver);
    for parameters in opaque.map(|opaque| &opaque.parameters.0) {
        let fields = || {
            parameters
                .as_object()
                .into_iter()
                .flatten()
                .map(|(key, _)| key.as_str())
        };
        if driver != "neuron.aws.com"
            || parameters.get("kind").and_then(Value::as_str) != Some("NeuronConfig")
        {
            continue;
        }
        if let Some(field) =
            fields().find(|field| !["apiVersion", "kind", "logicalNeuronCore"].contains(field))
        {
            bail!("strict decoding error: unknown field \"{field}\"");
        }
        let configurable = tree
            .neuron()
            .is_some_and(|hardware| hardware.family.lnc_configurable());
        if fields().any(|field| field == "logicalNeuronCore") && !configurable {
            bail!(
                "error applying config: LNC value is not configurable for instance type {}",
                tree.instance_type()
            );
        }
    }
    Ok(())
}

/// Unprepares what a pod used. Claims that other pods use stay.
///
/// # Errors
/// While a driver that must unprepare is not registered.
pub fn unprepare(state: &mut State, tree: &Tree, pod_uid: &str) -> anyhow::Result<()> {
    let mine: Vec<_> = state
        .claims
        .iter()
        .filter(|info| info.pod_uids.contains_key(pod_uid))
        .map(|info| info.claim_uid.clone())
        .collect();
    for uid in mine {
        let Some(info) = state.claims.iter_mut().find(|info| info.claim_uid == uid) else {
            continue;
        };
        if info.pod_uids.len() > 1 {
            info.pod_uids.remove(pod_uid);
            continue;
        }
        for driver in info.driver_state.keys() {
            ensure!(
                state.drivers.contains_key(driver),
                "DRA driver {driver} is not registered"
            );
        }
        for driver in info.driver_state.keys() {
            if keeps_checkpoint(driver) {
                let mut checkpoint = tree.read_driver_checkpoint(driver)?;
                checkpoint.prepared_claims.remove(&uid);
                tree.write_driver_checkpoint(driver, &checkpoint)?;
            }
            tree.remove(&cdi_file(driver, &uid))?;
        }
        state.claims.retain(|info| info.claim_uid != uid);
    }
    tree.write_dra_manager(&state.claims)
}
