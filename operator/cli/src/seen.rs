//! What pods, claims and slices say about a node's devices. Told for people; what the controller acts on, it reads itself.

use freehold_core::names;
use freehold_core::vendor::{Owner, Vendor};
use k8s_openapi::api::core::v1::{Container, Pod, ResourceRequirements};
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceSlice};
use kube::ResourceExt as _;
use serde::Serialize;

/// Somebody who uses a vendor's devices on a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Consumer {
    pub(crate) vendor: Vendor,
    /// Through what, as the end of `3 …`.
    pub(crate) how: &'static str,
    /// `namespace/name`.
    pub(crate) name: String,
    /// `namespace/name` of the DaemonSet that would bring it back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) daemon_set: Option<String>,
    pub(crate) ending: bool,
}

const PLUGIN_POD: &str = "pods with extended resources of the device plugin";
const CLAIM_POD: &str = "pods with claims on the DRA driver";
const CLAIM: &str = "allocated claims without a live pod";

/// Every consumer on a node, given the pods bound to it and the cluster's claims.
pub(crate) fn consumers(node: &str, pods: &[Pod], claims: &[ResourceClaim]) -> Vec<Consumer> {
    let live: Vec<&Pod> = pods.iter().filter(|pod| !has_ended(pod)).collect();
    let mut found: Vec<Consumer> = Vec::new();
    for vendor in Vendor::ALL {
        found.extend(
            live.iter()
                .filter(|pod| asks_the_plugin(vendor, pod))
                .map(|pod| consumer(vendor, PLUGIN_POD, *pod)),
        );
        for claim in claims
            .iter()
            .filter(|claim| is_allocated(claim, vendor, node))
        {
            let holders: Vec<&&Pod> = live
                .iter()
                .filter(|pod| is_reserved_for(claim, pod))
                .collect();
            if holders.is_empty() {
                found.push(consumer(vendor, CLAIM, claim));
            }
            found.extend(
                holders
                    .into_iter()
                    .map(|pod| consumer(vendor, CLAIM_POD, *pod)),
            );
        }
    }
    found.sort();
    found.dedup();
    found
}

fn consumer(vendor: Vendor, how: &'static str, object: &impl kube::ResourceExt) -> Consumer {
    let namespace = object.namespace().unwrap_or_default();
    let daemon_set = object
        .owner_references()
        .iter()
        .find(|owner| owner.kind == "DaemonSet");
    Consumer {
        vendor,
        how,
        name: format!("{namespace}/{}", object.name_any()),
        daemon_set: daemon_set.map(|owner| format!("{namespace}/{}", owner.name)),
        ending: object.meta().deletion_timestamp.is_some(),
    }
}

fn has_ended(pod: &Pod) -> bool {
    let phase = pod
        .status
        .as_ref()
        .and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

/// Whether any container, of whatever kind, asks for an extended resource of the vendor that no claim backs.
fn asks_the_plugin(vendor: Vendor, pod: &Pod) -> bool {
    let Some(spec) = &pod.spec else { return false };
    let backed = |container: &str, resource: &str| {
        let claim = pod
            .status
            .as_ref()
            .and_then(|status| status.extended_resource_claim_status.as_ref());
        claim.is_some_and(|claim| {
            claim
                .request_mappings
                .iter()
                .any(|m| m.container_name == container && m.resource_name == resource)
        })
    };
    let asks = |name: &str, resources: Option<&ResourceRequirements>| {
        let Some(resources) = resources else {
            return false;
        };
        let asked = resources
            .limits
            .iter()
            .flatten()
            .chain(resources.requests.iter().flatten());
        asked.into_iter().any(|(resource, count)| {
            vendor.owns_resource(resource) && count.0 != "0" && !backed(name, resource)
        })
    };
    let ordinary = |container: &Container| asks(&container.name, container.resources.as_ref());
    spec.containers
        .iter()
        .chain(spec.init_containers.iter().flatten())
        .any(ordinary)
        || spec
            .ephemeral_containers
            .iter()
            .flatten()
            .any(|container| asks(&container.name, container.resources.as_ref()))
}

/// Whether a device of the vendor in this node's pool is allocated to the claim; both drivers name their pool after the node.
fn is_allocated(claim: &ResourceClaim, vendor: Vendor, node: &str) -> bool {
    let allocation = claim
        .status
        .as_ref()
        .and_then(|status| status.allocation.as_ref());
    let results = allocation
        .and_then(|allocation| allocation.devices.as_ref())
        .and_then(|devices| devices.results.as_ref());
    results
        .into_iter()
        .flatten()
        .any(|result| result.driver == vendor.dra_driver() && result.pool == node)
}

fn is_reserved_for(claim: &ResourceClaim, pod: &Pod) -> bool {
    let reserved = claim
        .status
        .as_ref()
        .and_then(|status| status.reserved_for.as_ref());
    reserved
        .into_iter()
        .flatten()
        .any(|reservation| Some(&reservation.uid) == pod.metadata.uid.as_ref())
}

/// One of our pods on a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct OurPod {
    pub(crate) name: String,
    /// `None` for the agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) operand: Option<Operand>,
    pub(crate) ready: bool,
    pub(crate) ending: bool,
    /// As `kubectl get pods` has it: `Running`, `Init:0/1`, `CrashLoopBackOff`, …
    pub(crate) state: String,
}

/// What an operand pod implements.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Operand {
    pub(crate) vendor: Vendor,
    pub(crate) owner: Owner,
    pub(crate) cohort: String,
    /// Hash of what it advertises.
    pub(crate) shape: String,
    /// Hash of its template.
    pub(crate) template: String,
}

/// Our own among the pods of a node.
pub(crate) fn our_pods(pods: &[Pod]) -> Vec<OurPod> {
    pods.iter().filter_map(our_pod).collect()
}

fn our_pod(pod: &Pod) -> Option<OurPod> {
    if pod.metadata.namespace.as_deref() != Some(names::OPERAND_NAMESPACE) {
        return None;
    }
    let labels = pod.labels();
    let annotation = |key: &str| pod.annotations().get(key).cloned().unwrap_or_default();
    let operand = match labels.get(names::COMPONENT_LABEL)?.as_str() {
        "agent" => None,
        "operand" => Some(Operand {
            vendor: Vendor::ALL.into_iter().find(|vendor| {
                labels
                    .get(names::VENDOR_LABEL)
                    .is_some_and(|key| key == vendor.key())
            })?,
            owner: Owner::from_word(labels.get(names::OWNER_LABEL)?)?,
            cohort: labels.get(names::COHORT_LABEL)?.clone(),
            shape: annotation(names::SHAPE_ANNOTATION),
            template: annotation(names::TEMPLATE_ANNOTATION),
        }),
        _ => return None,
    };
    let conditions = pod
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_ref());
    Some(OurPod {
        name: pod.name_any(),
        operand,
        ready: conditions
            .into_iter()
            .flatten()
            .any(|condition| condition.type_ == "Ready" && condition.status == "True"),
        ending: pod.metadata.deletion_timestamp.is_some(),
        state: state(pod),
    })
}

fn state(pod: &Pod) -> String {
    let status = pod.status.as_ref();
    let inits = status
        .and_then(|status| status.init_container_statuses.as_deref())
        .unwrap_or_default();
    let total = pod
        .spec
        .as_ref()
        .and_then(|spec| spec.init_containers.as_ref())
        .map_or(0, Vec::len);
    let done = inits
        .iter()
        .filter(|init| init.ready || init.started == Some(true))
        .count();
    let waiting = |container: &k8s_openapi::api::core::v1::ContainerStatus| {
        let waiting = container.state.as_ref()?.waiting.as_ref()?;
        waiting
            .reason
            .clone()
            .filter(|reason| reason != "PodInitializing" && reason != "ContainerCreating")
    };
    if let Some(reason) = inits.iter().find_map(waiting) {
        return format!("Init:{reason}");
    }
    let phase = status
        .and_then(|status| status.phase.clone())
        .unwrap_or_else(|| "Unknown".to_owned());
    if phase == "Pending" && done < total && !inits.is_empty() {
        return format!("Init:{done}/{total}");
    }
    let containers = status
        .and_then(|status| status.container_statuses.as_deref())
        .unwrap_or_default();
    containers.iter().find_map(waiting).unwrap_or(phase)
}

/// What a vendor's allocating driver publishes for a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Pool {
    pub(crate) vendor: Vendor,
    pub(crate) slices: usize,
    /// Newest generation.
    pub(crate) generation: i64,
    /// Devices in the newest generation.
    pub(crate) devices: usize,
    /// Every slice of the newest generation is there.
    pub(crate) complete: bool,
}

/// Puts a node's slices together.
pub(crate) fn pools(node: &str, slices: &[ResourceSlice]) -> Vec<Pool> {
    Vendor::ALL
        .into_iter()
        .filter_map(|vendor| {
            let own: Vec<_> = slices
                .iter()
                .map(|slice| &slice.spec)
                .filter(|spec| spec.driver == vendor.dra_driver())
                .filter(|spec| spec.node_name.as_deref().unwrap_or(&spec.pool.name) == node)
                .collect();
            let generation = own.iter().map(|spec| spec.pool.generation).max()?;
            let newest: Vec<_> = own
                .iter()
                .filter(|spec| spec.pool.generation == generation)
                .collect();
            Some(Pool {
                vendor,
                slices: own.len(),
                generation,
                devices: newest
                    .iter()
                    .map(|spec| spec.devices.as_ref().map_or(0, Vec::len))
                    .sum(),
                complete: newest.first().is_some_and(|spec| {
                    usize::try_from(spec.pool.resource_slice_count) == Ok(newest.len())
                }),
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(value: Value) -> Pod {
        serde_json::from_value(value).expect("a pod")
    }

    fn claim(value: Value) -> ResourceClaim {
        serde_json::from_value(value).expect("a claim")
    }

    #[test]
    fn a_pod_with_a_claim_backed_extended_resource_is_the_claims() {
        let backed = pod(json!({
            "metadata": {"name": "p", "namespace": "ml", "uid": "u"},
            "spec": {"containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]},
            "status": {"extendedResourceClaimStatus": {"resourceClaimName": "p-x",
                "requestMappings": [{"containerName": "c", "resourceName": "nvidia.com/gpu", "requestName": "r"}]}}}));
        let held = claim(
            json!({"metadata": {"name": "p-x", "namespace": "ml"}, "spec": {}, "status": {
            "allocation": {"devices": {"results": [{"driver": "gpu.nvidia.com", "pool": "n1", "device": "gpu-0", "request": "r"}]}},
            "reservedFor": [{"resource": "pods", "name": "p", "uid": "u"}]}}),
        );
        let found = consumers("n1", &[backed], &[held]);
        assert_eq!(
            found
                .iter()
                .map(|c| (c.name.as_str(), c.how))
                .collect::<Vec<_>>(),
            [("ml/p", CLAIM_POD)]
        );
    }

    #[test]
    fn a_claim_without_a_live_pod_is_told_with_the_daemon_set_of_others() {
        let orphan = claim(
            json!({"metadata": {"name": "c", "namespace": "ml"}, "spec": {}, "status": {
            "allocation": {"devices": {"results": [{"driver": "neuron.aws.com", "pool": "n1", "device": "d", "request": "r"}]}}}}),
        );
        let exporter = pod(json!({
            "metadata": {"name": "e-1", "namespace": "mon", "ownerReferences": [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "e", "uid": "x"}]},
            "spec": {"containers": [], "initContainers": [{"name": "i", "resources": {"requests": {"aws.amazon.com/neuron": "1"}}}]}}));
        let found = consumers("n1", &[exporter], std::slice::from_ref(&orphan));
        assert_eq!(
            found
                .iter()
                .map(|c| (c.how, c.daemon_set.as_deref()))
                .collect::<Vec<_>>(),
            [(CLAIM, None), (PLUGIN_POD, Some("mon/e"))]
        );
        assert!(consumers("n2", &[], &[orphan]).is_empty());
    }

    #[test]
    fn only_pods_of_the_operand_namespace_are_ours() {
        let labels = json!({"freehold.dev/component": "operand", "freehold.dev/vendor": "neuron", "freehold.dev/owner": "dra", "freehold.dev/cohort": "t"});
        let ours = pod(
            json!({"metadata": {"name": "o", "namespace": "freehold-operands", "labels": labels,
            "annotations": {"freehold.dev/shape": "s", "freehold.dev/template": "t"}}, "spec": {"containers": [], "initContainers": [{"name": "interlock"}]},
            "status": {"phase": "Pending", "initContainerStatuses": [{"name": "interlock", "ready": false, "started": false, "image": "i", "imageID": "", "restartCount": 0}]}}),
        );
        let theirs = pod(
            json!({"metadata": {"name": "o", "namespace": "other", "labels": labels}, "spec": {"containers": []}}),
        );
        let found = our_pods(&[ours, theirs]);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].state, "Init:0/1");
        let operand = found[0].operand.as_ref().expect("an operand");
        assert_eq!(
            (operand.vendor, operand.owner, operand.shape.as_str()),
            (Vendor::Neuron, Owner::Dra, "s")
        );
    }

    #[test]
    fn only_the_newest_generation_of_a_pool_counts() {
        let slice = |generation: i64, count: i64, devices: usize| -> ResourceSlice {
            let devices: Vec<Value> = (0..devices)
                .map(|n| json!({"name": format!("gpu-{n}")}))
                .collect();
            serde_json::from_value(json!({"metadata": {"name": "s"}, "spec": {"driver": "gpu.nvidia.com", "nodeName": "n1",
                "pool": {"name": "n1", "generation": generation, "resourceSliceCount": count}, "devices": devices}})).expect("a slice")
        };
        let pools = pools("n1", &[slice(1, 1, 8), slice(2, 2, 3)]);
        assert_eq!(
            pools,
            [Pool {
                vendor: Vendor::Nvidia,
                slices: 2,
                generation: 2,
                devices: 3,
                complete: false
            }]
        );
        assert!(super::pools("n2", &[slice(1, 1, 8)]).is_empty());
    }
}
