//! Extended resources: what the kubelet's device manager does at admission.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Container, Pod};
use kube::ResourceExt as _;

use super::checkpoint::{PodDevices, encode_base64};
use super::state::State;

/// Extended resources that a pod's containers ask from device plugins: (container, resource, count).
///
/// Requests that the scheduler satisfied with a claim of its own making are left out.
#[must_use]
pub fn requests(pod: &Pod) -> Vec<(String, String, usize)> {
    let from_claim: BTreeSet<_> = pod
        .status
        .iter()
        .filter_map(|status| status.extended_resource_claim_status.as_ref())
        .flat_map(|status| &status.request_mappings)
        .map(|mapping| {
            (
                mapping.container_name.as_str(),
                mapping.resource_name.as_str(),
            )
        })
        .collect();
    let spec = pod.spec.as_ref();
    let containers = spec.into_iter().flat_map(|spec| {
        spec.init_containers
            .iter()
            .flatten()
            .chain(&spec.containers)
    });
    containers
        .flat_map(|container| {
            extended(container)
                .into_iter()
                .map(|(resource, count)| (container.name.clone(), resource, count))
        })
        .filter(|(container, resource, _)| {
            !from_claim.contains(&(container.as_str(), resource.as_str()))
        })
        .collect()
}

fn extended(container: &Container) -> Vec<(String, usize)> {
    let limits = container
        .resources
        .iter()
        .flat_map(|resources| resources.limits.iter().flatten());
    limits
        .filter(|(name, _)| name.contains('/') && !name.starts_with("kubernetes.io/"))
        .filter_map(|(name, quantity)| Some((name.clone(), quantity.0.parse().ok()?)))
        .filter(|(_, count)| *count > 0)
        .collect()
}

/// Gives a pod its devices.
///
/// As the kubelet does, entries of ended pods are dropped only now, at the next allocation, and never otherwise.
///
/// # Errors
/// What the kubelet fails the pod with (`UnexpectedAdmissionError`).
pub fn allocate(state: &mut State, pod: &Pod) -> Result<(), String> {
    let wanted = requests(pod);
    let uid = pod.uid().unwrap_or_default();
    if wanted.is_empty() {
        return Ok(());
    }
    // Devices from before a reboot are kept, if their plugin is back first.
    if state.devices.iter().any(|entry| entry.pod_uid == uid) {
        return match wanted
            .iter()
            .find(|(_, resource, _)| !state.plugins.contains_key(resource))
        {
            Some((_, resource, _)) => Err(format!(
                "Allocate failed due to cannot allocate unregistered device {resource}, which is unexpected"
            )),
            None => Ok(()),
        };
    }
    let alive: BTreeSet<_> = state
        .workers
        .keys()
        .filter(|uid| !state.finished.contains(*uid))
        .cloned()
        .collect();
    state.devices.retain(|entry| alive.contains(&entry.pod_uid));
    let mut given = Vec::new();
    for (container, resource, count) in wanted {
        let Some(plugin) = state.plugins.get(&resource) else {
            return Err(format!(
                "Allocate failed due to no healthy devices present; cannot allocate unhealthy devices {resource}, which is unexpected"
            ));
        };
        if plugin.at_most_one && count > 1 {
            return Err(format!(
                "Allocate failed due to request for '{resource}: {count}' is too large: maximum request size for shared resources is 1, which is unexpected"
            ));
        }
        let taken: BTreeSet<_> = state
            .devices
            .iter()
            .chain(&given)
            .filter(|entry| entry.resource_name == resource)
            .flat_map(|entry| entry.device_ids.values().flatten())
            .collect();
        let free: Vec<_> = plugin
            .ids
            .iter()
            .filter(|id| !taken.contains(id))
            .take(count)
            .cloned()
            .collect();
        if free.len() < count {
            return Err(format!(
                "Allocate failed due to requested number of devices unavailable for {resource}. Requested: {count}, Available: {}, which is unexpected",
                free.len()
            ));
        }
        given.push(PodDevices {
            pod_uid: uid.clone(),
            container_name: container,
            resource_name: resource,
            alloc_resp: encode_base64(format!("\n\u{2}devices={}", free.join(",")).as_bytes()),
            device_ids: BTreeMap::from([("-1".to_owned(), free)]),
        });
    }
    state.devices.extend(given);
    Ok(())
}
