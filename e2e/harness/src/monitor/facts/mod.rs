//! What the monitor writes down: every state of every object that matters, each with the version the API server gave it, what
//! runs on the nodes themselves, and every write of ours from the audit log.

mod node;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use freehold_api::{AcceleratorCluster, AcceleratorNode};
use freehold_core::names;
use freehold_core::vendor::{Owner, Vendor};
use k8s_openapi::api::core::v1::{Container, Pod};
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use node::managed_by_controller;
pub use node::{NodeSeen, is_our_label};

/// One state of one object.
#[derive(Clone, Debug)]
pub struct Fact {
    /// When the monitor heard of it, since its start.
    pub at: Duration,
    /// The object's resourceVersion. It is etcd's revision, so it puts the states of all objects of all kinds in order.
    pub version: u64,
    /// The state; of an object that is gone, the last one.
    pub object: Object,
    /// The object is gone.
    pub gone: bool,
}

/// An object, as far as the invariants speak of it.
#[derive(Clone, Debug)]
pub enum Object {
    /// A Node.
    Node(NodeSeen),
    /// A pod of any namespace: an operand, or somebody who may use devices.
    Pod(PodSeen),
    /// A ResourceSlice.
    Slice(SliceSeen),
    /// A ResourceClaim.
    Claim(ClaimSeen),
    /// An AcceleratorNode.
    Record(Box<AcceleratorNode>),
    /// The AcceleratorCluster.
    Cluster(Box<AcceleratorCluster>),
    /// A DaemonSet, DeviceClass or ResourceClaimTemplate, whoever made it.
    Kept(KeptSeen),
}

/// Kind, namespace and name.
pub type Key = (&'static str, String, String);

impl Object {
    /// Kind, namespace and name.
    #[must_use]
    pub fn key(&self) -> Key {
        let (kind, namespace, name) = match self {
            Self::Node(node) => ("Node", "", node.name.as_str()),
            Self::Pod(pod) => ("Pod", pod.namespace.as_str(), pod.name.as_str()),
            Self::Slice(slice) => ("ResourceSlice", "", slice.name.as_str()),
            Self::Claim(claim) => (
                "ResourceClaim",
                claim.namespace.as_str(),
                claim.name.as_str(),
            ),
            Self::Record(record) => (
                "AcceleratorNode",
                "",
                record.metadata.name.as_deref().unwrap_or_default(),
            ),
            Self::Cluster(cluster) => (
                "AcceleratorCluster",
                "",
                cluster.metadata.name.as_deref().unwrap_or_default(),
            ),
            Self::Kept(kept) => (kept.kind, kept.namespace.as_str(), kept.name.as_str()),
        };
        (kind, namespace.to_owned(), name.to_owned())
    }
}

/// A pod.
#[derive(Clone, Debug, Default)]
pub struct PodSeen {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// UID.
    pub uid: String,
    /// Node it is bound to.
    pub node: Option<String>,
    /// Its containers have ended for good.
    pub ended: bool,
    /// It is being deleted.
    pub deleting: bool,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Hash of the template it was made from.
    pub template: Option<String>,
    /// Extended resources that it asks of a device plugin: those that no claim backs.
    pub asks_plugin: BTreeSet<String>,
}

impl PodSeen {
    /// Vendor, owner word and cohort of an operand of ours.
    #[must_use]
    pub fn operand(&self) -> Option<(Vendor, &str, &str)> {
        let label = |key: &str| self.labels.get(key).map(String::as_str);
        let ours = self.namespace == names::OPERAND_NAMESPACE
            && label(names::COMPONENT_LABEL) == Some("operand");
        let vendor = Vendor::ALL
            .into_iter()
            .find(|vendor| label(names::VENDOR_LABEL) == Some(vendor.key()));
        ours.then_some((
            vendor?,
            label(names::OWNER_LABEL)?,
            label(names::COHORT_LABEL)?,
        ))
    }
}

impl From<&Pod> for PodSeen {
    fn from(pod: &Pod) -> Self {
        let spec = pod.spec.as_ref();
        let backed: BTreeSet<(&str, &str)> = pod
            .status
            .iter()
            .flat_map(|status| &status.extended_resource_claim_status)
            .flat_map(|status| &status.request_mappings)
            .map(|mapping| {
                (
                    mapping.container_name.as_str(),
                    mapping.resource_name.as_str(),
                )
            })
            .collect();
        let containers = spec.into_iter().flat_map(|spec| {
            spec.containers
                .iter()
                .chain(spec.init_containers.iter().flatten())
        });
        let asks = |container: &Container| -> BTreeSet<String> {
            let resources = container.resources.as_ref();
            let all = resources
                .into_iter()
                .flat_map(|r| r.limits.iter().flatten().chain(r.requests.iter().flatten()));
            all.filter(|(resource, count)| {
                let counts = Vendor::ALL
                    .into_iter()
                    .any(|vendor| vendor.owns_resource(resource))
                    && count.0 != "0";
                counts && !backed.contains(&(container.name.as_str(), resource.as_str()))
            })
            .map(|(resource, _)| resource.clone())
            .collect()
        };
        let phase = pod
            .status
            .as_ref()
            .and_then(|status| status.phase.as_deref());
        Self {
            namespace: pod.metadata.namespace.clone().unwrap_or_default(),
            name: pod.metadata.name.clone().unwrap_or_default(),
            uid: pod.metadata.uid.clone().unwrap_or_default(),
            node: spec.and_then(|spec| spec.node_name.clone()),
            ended: matches!(phase, Some("Succeeded" | "Failed")),
            deleting: pod.metadata.deletion_timestamp.is_some(),
            labels: pod.metadata.labels.clone().unwrap_or_default(),
            template: pod
                .metadata
                .annotations
                .as_ref()
                .and_then(|all| all.get(names::TEMPLATE_ANNOTATION))
                .cloned(),
            asks_plugin: containers.flat_map(asks).collect(),
        }
    }
}

/// A ResourceSlice.
#[derive(Clone, Debug, Default)]
pub struct SliceSeen {
    /// Name.
    pub name: String,
    /// Driver.
    pub driver: String,
    /// Node.
    pub node: Option<String>,
    /// How many devices it lists.
    pub devices: usize,
}

impl From<&ResourceSlice> for SliceSeen {
    fn from(slice: &ResourceSlice) -> Self {
        Self {
            name: slice.metadata.name.clone().unwrap_or_default(),
            driver: slice.spec.driver.clone(),
            node: slice.spec.node_name.clone(),
            devices: slice.spec.devices.iter().flatten().count(),
        }
    }
}

/// A ResourceClaim.
#[derive(Clone, Debug, Default)]
pub struct ClaimSeen {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// UID.
    pub uid: String,
    /// Driver and pool of each device allocated to it; a pool is a node's.
    pub allocated: BTreeSet<(String, String)>,
}

impl From<&ResourceClaim> for ClaimSeen {
    fn from(claim: &ResourceClaim) -> Self {
        let allocation = claim.status.iter().flat_map(|status| &status.allocation);
        let results = allocation
            .flat_map(|allocation| &allocation.devices)
            .flat_map(|devices| devices.results.iter().flatten());
        Self {
            namespace: claim.metadata.namespace.clone().unwrap_or_default(),
            name: claim.metadata.name.clone().unwrap_or_default(),
            uid: claim.metadata.uid.clone().unwrap_or_default(),
            allocated: results
                .map(|result| (result.driver.clone(), result.pool.clone()))
                .collect(),
        }
    }
}

/// A DaemonSet, DeviceClass or ResourceClaimTemplate.
#[derive(Clone, Debug, Default)]
pub struct KeptSeen {
    /// Kind.
    pub kind: &'static str,
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// UID of the AcceleratorCluster that owns it.
    pub owner: Option<String>,
    /// The controller's field manager has written to it.
    pub written_by_controller: bool,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Hash of its pod template.
    pub template: Option<String>,
}

impl KeptSeen {
    /// From metadata and, for a DaemonSet, its pod template's metadata.
    #[must_use]
    pub fn new(kind: &'static str, metadata: &ObjectMeta, template: Option<&ObjectMeta>) -> Self {
        let mut owners = metadata.owner_references.iter().flatten();
        let annotations = template.and_then(|template| template.annotations.as_ref());
        Self {
            kind,
            namespace: metadata.namespace.clone().unwrap_or_default(),
            name: metadata.name.clone().unwrap_or_default(),
            owner: owners
                .find(|owner| owner.kind == "AcceleratorCluster")
                .map(|owner| owner.uid.clone()),
            written_by_controller: managed_by_controller(metadata).next().is_some(),
            labels: metadata.labels.clone().unwrap_or_default(),
            template: annotations
                .and_then(|all| all.get(names::TEMPLATE_ANNOTATION))
                .cloned(),
        }
    }
}

/// What a node itself is doing, whatever the API says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeTruth {
    /// Operand containers alive: vendor, owner, pod UID.
    pub operands: BTreeSet<(Vendor, Owner, String)>,
    /// Vendors that somebody else's device plugin serves.
    pub strangers: BTreeSet<Vendor>,
    /// Claims that are prepared: vendor and claim UID.
    pub claims: BTreeSet<(Vendor, String)>,
    /// Devices given out by device plugins to pods whose containers live: vendor and pod UID.
    pub given: BTreeSet<(Vendor, String)>,
}

impl NodeTruth {
    /// Who uses a vendor's devices, in words.
    #[must_use]
    pub fn holders(&self, vendor: Vendor) -> BTreeSet<String> {
        let claims = self
            .claims
            .iter()
            .filter(|(of, _)| *of == vendor)
            .map(|(_, uid)| format!("prepared claim {uid}"));
        let given = self
            .given
            .iter()
            .filter(|(of, _)| *of == vendor)
            .map(|(_, uid)| format!("pod {uid}"));
        claims.chain(given).collect()
    }
}

/// One state of one node itself.
#[derive(Clone, Debug)]
pub struct Truth {
    /// When, since the monitor's start.
    pub at: Duration,
    /// Node.
    pub node: String,
    /// State.
    pub state: NodeTruth,
}

/// A write of the controller's or an agent's service account that the API server carried out.
#[derive(Clone, Debug, Default)]
pub struct WriteSeen {
    /// When it was answered, since the monitor's start.
    pub at: Duration,
    /// By an agent; otherwise by the controller.
    pub by_agent: bool,
    /// Node that an agent's token is bound to.
    pub token_node: Option<String>,
    /// Verb.
    pub verb: String,
    /// As RBAC writes it, e.g. `daemonsets.apps`.
    pub resource: String,
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
}

/// Everything from the start of a scenario to its end.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// Wall clock at the monitor's start, in seconds since the Unix epoch.
    pub started_s: i64,
    /// States of objects, by version.
    pub facts: Vec<Fact>,
    /// States of nodes themselves, in order.
    pub truths: Vec<Truth>,
    /// Writes of ours, in the order of their answers.
    pub writes: Vec<WriteSeen>,
    /// Where states may be missing: what the API server no longer had when a watch came back.
    pub gaps: Vec<String>,
    /// Until when it reaches, since the monitor's start.
    pub end: Duration,
}

impl History {
    /// What a node itself was doing at a time.
    #[must_use]
    pub fn truth(&self, node: &str, at: Duration) -> Option<&NodeTruth> {
        let until = self.truths.iter().take_while(|truth| truth.at <= at);
        until
            .filter(|truth| truth.node == node)
            .last()
            .map(|truth| &truth.state)
    }
}
