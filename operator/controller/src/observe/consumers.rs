//! Who uses, or may come to use, a vendor's devices on a node, as pods and claims tell it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use freehold_core::tenure::{Consumer, ConsumerKind};
use freehold_core::vendor::Vendor;
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::Resource;
use serde::{Deserialize, Serialize};

use super::slim::SlimPod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// A claim: where it is allocated, and whom it is reserved for.
#[derive(Resource, Clone, Debug, Default, Serialize, Deserialize)]
#[resource(inherit = ResourceClaim)]
#[serde(default)]
pub(crate) struct SlimClaim {
    pub(crate) metadata: ObjectMeta,
    pub(crate) status: SlimClaimStatus,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct SlimClaimStatus {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) allocation: Option<SlimAllocation>,
    pub(crate) reserved_for: Vec<SlimReservation>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct SlimAllocation {
    pub(crate) devices: SlimAllocatedDevices,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct SlimAllocatedDevices {
    pub(crate) results: Vec<SlimResult>,
}

/// One allocated device. Results with `adminAccess` count like any other: the driver must unprepare them too.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct SlimResult {
    pub(crate) driver: String,
    pub(crate) pool: String,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct SlimReservation {
    pub(crate) resource: String,
    pub(crate) name: String,
    pub(crate) uid: String,
}

impl SlimClaim {
    /// Whether a device of the vendor in this node's pool is allocated to the claim.
    pub(crate) fn is_on(&self, vendor: Vendor, node: &str) -> bool {
        let results = self
            .status
            .allocation
            .iter()
            .flat_map(|allocation| &allocation.devices.results);
        results
            .into_iter()
            .any(|result| result.driver == vendor.dra_driver() && result.pool == node)
    }
}

/// Works out consumers from the pods bound to the node and every claim of the cluster that is allocated.
pub(crate) fn consumers(
    vendor: Vendor,
    node: &str,
    pods: &[SlimPod],
    claims: &[SlimClaim],
) -> Vec<Consumer> {
    let mut found = BTreeSet::new();
    let live: Vec<&SlimPod> = pods
        .iter()
        .filter(|pod| pod.status.phase != "Succeeded" && pod.status.phase != "Failed")
        .collect();
    for pod in &live {
        if asks_the_plugin(vendor, pod) {
            found.insert(consumer(&pod.metadata, ConsumerKind::PluginPod));
        }
    }
    for claim in claims.iter().filter(|claim| claim.is_on(vendor, node)) {
        let holders: Vec<&&SlimPod> = live
            .iter()
            .filter(|pod| {
                claim
                    .status
                    .reserved_for
                    .iter()
                    .any(|r| r.resource == "pods" && Some(&r.uid) == pod.metadata.uid.as_ref())
            })
            .collect();
        if holders.is_empty() {
            found.insert(consumer(&claim.metadata, ConsumerKind::Claim));
        }
        for pod in holders {
            found.insert(consumer(&pod.metadata, ConsumerKind::ClaimPod));
        }
    }
    found.into_iter().collect()
}

/// Whether any container, of whatever kind, asks for an extended resource of the vendor that no claim backs.
fn asks_the_plugin(vendor: Vendor, pod: &SlimPod) -> bool {
    let spec = &pod.spec;
    let backed = |container: &str, resource: &str| {
        pod.status
            .extended_resource_claim_status
            .as_ref()
            .is_some_and(|status| {
                status
                    .request_mappings
                    .iter()
                    .any(|m| m.container_name == container && m.resource_name == resource)
            })
    };
    spec.containers
        .iter()
        .chain(&spec.init_containers)
        .chain(&spec.ephemeral_containers)
        .any(|container| {
            let asked = container
                .resources
                .limits
                .iter()
                .chain(&container.resources.requests);
            asked.into_iter().any(|(resource, count)| {
                vendor.owns_resource(resource) && count != "0" && !backed(&container.name, resource)
            })
        })
}

fn consumer(metadata: &ObjectMeta, kind: ConsumerKind) -> Consumer {
    let namespace = metadata.namespace.as_deref().unwrap_or_default();
    let daemon_set = metadata
        .owner_references
        .iter()
        .flatten()
        .find(|owner| owner.kind == "DaemonSet");
    Consumer {
        name: format!(
            "{namespace}/{}",
            metadata.name.as_deref().unwrap_or_default()
        ),
        uid: metadata.uid.clone().unwrap_or_default(),
        kind,
        terminating: metadata.deletion_timestamp.is_some(),
        daemon_set: daemon_set.map(|owner| format!("{namespace}/{}", owner.name)),
        refused: None,
        asked_lately: false,
    }
}

/// A refused eviction is asked for again after this long: budgets open when a replacement is ready, which nobody watches here.
const ASK_AGAIN: Duration = Duration::from_secs(10);

/// Evictions on one node that the API server refused, by the pod's UID: its words, and when they came.
#[derive(Debug, Default)]
pub(crate) struct Refusals(BTreeMap<String, (String, Instant)>);

impl Refusals {
    /// Remembers one.
    pub(crate) fn refused(&mut self, uid: String, words: String, now: Instant) {
        self.0.insert(uid, (words, now));
    }

    /// Forgets pods that are gone.
    pub(crate) fn keep(&mut self, pods: &[SlimPod]) {
        self.0.retain(|uid, _| {
            pods.iter()
                .any(|pod| pod.metadata.uid.as_ref() == Some(uid))
        });
    }

    /// Tells consumers what their evictions were answered with.
    pub(crate) fn mark(&self, mut consumers: Vec<Consumer>, now: Instant) -> Vec<Consumer> {
        for consumer in &mut consumers {
            if let Some((words, at)) = self.0.get(&consumer.uid) {
                consumer.refused = Some(words.clone());
                consumer.asked_lately = now.saturating_duration_since(*at) < ASK_AGAIN;
            }
        }
        consumers
    }
}

#[cfg(test)]
mod tests {
    use freehold_core::tenure::ConsumerKind;
    use freehold_core::vendor::Vendor;
    use serde_json::{Value, json};

    use super::{SlimClaim, SlimPod, consumers};

    fn pod(value: Value) -> SlimPod {
        serde_json::from_value(value).expect("a pod")
    }

    fn claim(value: Value) -> SlimClaim {
        serde_json::from_value(value).expect("a claim")
    }

    fn kinds(
        vendor: Vendor,
        pods: &[SlimPod],
        claims: &[SlimClaim],
    ) -> Vec<(String, ConsumerKind)> {
        consumers(vendor, "n1", pods, claims)
            .into_iter()
            .map(|c| (c.name, c.kind))
            .collect()
    }

    #[test]
    fn every_kind_of_container_counts_and_ended_pods_do_not() {
        let ask = json!([{"name": "x", "resources": {"limits": {"nvidia.com/mig-1g.10gb": "1"}}}]);
        for field in ["containers", "initContainers", "ephemeralContainers"] {
            let running = pod(
                json!({"metadata": {"name": "p", "namespace": "ml", "uid": "u"}, "spec": {field: ask}}),
            );
            assert_eq!(
                kinds(Vendor::Nvidia, &[running], &[]),
                vec![("ml/p".into(), ConsumerKind::PluginPod)],
                "{field}"
            );
        }
        let ended = pod(
            json!({"metadata": {"name": "p"}, "spec": {"containers": ask}, "status": {"phase": "Succeeded"}}),
        );
        assert!(kinds(Vendor::Nvidia, &[ended], &[]).is_empty());
    }

    #[test]
    fn one_vendors_resources_are_not_the_others() {
        let efa = pod(
            json!({"metadata": {"name": "p"}, "spec": {"containers": [{"resources": {"limits": {"vpc.amazonaws.com/efa": "1", "aws.amazon.com/neuroncore": "2"}}}]}}),
        );
        assert!(kinds(Vendor::Nvidia, std::slice::from_ref(&efa), &[]).is_empty());
        assert_eq!(kinds(Vendor::Neuron, &[efa], &[]).len(), 1);
    }

    #[test]
    fn a_claim_backed_extended_resource_is_the_claims_and_not_the_plugins() {
        let backed = pod(json!({
            "metadata": {"name": "p", "namespace": "ml", "uid": "u"},
            "spec": {"containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]},
            "status": {"extendedResourceClaimStatus": {"resourceClaimName": "p-extended-resources-x",
                "requestMappings": [{"containerName": "c", "resourceName": "nvidia.com/gpu", "requestName": "r"}]}}}));
        let held = claim(
            json!({"metadata": {"name": "p-extended-resources-x", "namespace": "ml"}, "status": {
            "allocation": {"devices": {"results": [{"driver": "gpu.nvidia.com", "pool": "n1"}]}},
            "reservedFor": [{"resource": "pods", "name": "p", "uid": "u"}]}}),
        );
        assert_eq!(
            kinds(Vendor::Nvidia, &[backed], &[held]),
            vec![("ml/p".into(), ConsumerKind::ClaimPod)]
        );
    }

    #[test]
    fn an_allocated_claim_without_a_live_pod_still_counts_on_its_own_node_only() {
        let orphan = claim(
            json!({"metadata": {"name": "c", "namespace": "other", "deletionTimestamp": "2026-01-01T00:00:00Z"}, "status": {
            "allocation": {"devices": {"results": [{"driver": "gpu.nvidia.com", "pool": "n1", "adminAccess": true}]}}}}),
        );
        assert_eq!(
            kinds(Vendor::Nvidia, &[], std::slice::from_ref(&orphan)),
            vec![("other/c".into(), ConsumerKind::Claim)]
        );
        assert!(consumers(Vendor::Nvidia, "n2", &[], std::slice::from_ref(&orphan)).is_empty());
        assert!(kinds(Vendor::Neuron, &[], &[orphan]).is_empty());
    }
}
