//! A Node, as far as the invariants speak of it.

use std::collections::{BTreeMap, BTreeSet};

use freehold_core::names;
use freehold_core::vendor::Vendor;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta};

/// A Node.
#[derive(Clone, Debug, Default)]
pub struct NodeSeen {
    /// Name.
    pub name: String,
    /// UID.
    pub uid: String,
    /// Boot ID that the kubelet reports.
    pub boot_id: String,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Taints: key, value, effect.
    pub taints: BTreeSet<(String, String, String)>,
    /// Allocatable of both vendors' extended resources.
    pub allocatable: BTreeMap<String, u64>,
    /// What the API server attributes to the controller's field manager, as paths such as `f:metadata/f:labels/f:pool`.
    pub controller_fields: BTreeSet<String>,
}

impl NodeSeen {
    /// The owner label's value.
    #[must_use]
    pub fn owner(&self, vendor: Vendor) -> Option<&str> {
        self.labels
            .get(&names::owner_label(vendor))
            .map(String::as_str)
    }

    /// The cohort label's value.
    #[must_use]
    pub fn cohort(&self, vendor: Vendor) -> Option<&str> {
        self.labels
            .get(&names::cohort_label(vendor))
            .map(String::as_str)
    }

    /// The fence's value.
    #[must_use]
    pub fn fence(&self, vendor: Vendor) -> Option<&str> {
        let key = names::fence_taint(vendor);
        self.taints
            .iter()
            .find(|(taint, ..)| *taint == key)
            .map(|(_, value, _)| value.as_str())
    }

    /// Any fence is up.
    #[must_use]
    pub fn is_fenced(&self) -> bool {
        Vendor::ALL
            .into_iter()
            .any(|vendor| self.fence(vendor).is_some())
    }

    /// Any owner label is set.
    #[must_use]
    pub fn is_owned(&self) -> bool {
        Vendor::ALL
            .into_iter()
            .any(|vendor| self.owner(vendor).is_some())
    }

    /// Labels and taints that are Freehold's.
    #[must_use]
    pub fn marks(&self) -> BTreeSet<String> {
        let labels = self
            .labels
            .iter()
            .filter(|(key, _)| is_our_label(key))
            .map(|(key, value)| format!("{key}={value}"));
        let taints = self
            .taints
            .iter()
            .filter(|(key, ..)| is_our_taint(key))
            .map(|(key, value, _)| format!("{key}={value}"));
        labels.chain(taints).collect()
    }

    /// Labels and taints that are not Freehold's; `aliases` are labels that the administrator lent it.
    #[must_use]
    pub fn foreign_marks(&self, aliases: &BTreeSet<String>) -> BTreeSet<String> {
        let labels = self
            .labels
            .iter()
            .filter(|(key, _)| !is_our_label(key) && !aliases.contains(*key));
        let taints = self.taints.iter().filter(|(key, ..)| !is_our_taint(key));
        let taints = taints.map(|(key, value, effect)| format!("{key}={value}:{effect}"));
        labels
            .map(|(key, value)| format!("{key}={value}"))
            .chain(taints)
            .collect()
    }

    /// Devices of a vendor that the device-plugin way advertises.
    #[must_use]
    pub fn allocatable(&self, vendor: Vendor) -> u64 {
        self.allocatable
            .iter()
            .filter(|(resource, _)| vendor.owns_resource(resource))
            .map(|(_, count)| count)
            .sum()
    }
}

/// Whether a label key is one that only Freehold's controller may set.
#[must_use]
pub fn is_our_label(key: &str) -> bool {
    key.starts_with(names::NODE_LABEL_PREFIX)
}

fn is_our_taint(key: &str) -> bool {
    Vendor::ALL
        .into_iter()
        .any(|vendor| names::fence_taint(vendor) == key)
}

impl From<&Node> for NodeSeen {
    fn from(node: &Node) -> Self {
        let spec = node
            .spec
            .iter()
            .flat_map(|spec| spec.taints.iter().flatten());
        let allocatable = node
            .status
            .iter()
            .flat_map(|status| status.allocatable.iter().flatten());
        let info = node
            .status
            .as_ref()
            .and_then(|status| status.node_info.as_ref());
        Self {
            name: node.metadata.name.clone().unwrap_or_default(),
            uid: node.metadata.uid.clone().unwrap_or_default(),
            boot_id: info.map(|info| info.boot_id.clone()).unwrap_or_default(),
            labels: node.metadata.labels.clone().unwrap_or_default(),
            taints: spec
                .map(|taint| {
                    (
                        taint.key.clone(),
                        taint.value.clone().unwrap_or_default(),
                        taint.effect.clone(),
                    )
                })
                .collect(),
            allocatable: allocatable
                .filter(|(resource, _)| {
                    Vendor::ALL
                        .into_iter()
                        .any(|vendor| vendor.owns_resource(resource))
                })
                .map(|(resource, count)| (resource.clone(), count.0.parse().unwrap_or(0)))
                .collect(),
            controller_fields: controller_fields(&node.metadata),
        }
    }
}

pub(super) fn managed_by_controller(
    metadata: &ObjectMeta,
) -> impl Iterator<Item = &ManagedFieldsEntry> {
    let ours = |entry: &&ManagedFieldsEntry| {
        entry.manager.as_deref() == Some(names::CONTROLLER_FIELD_MANAGER)
    };
    metadata.managed_fields.iter().flatten().filter(ours)
}

fn controller_fields(metadata: &ObjectMeta) -> BTreeSet<String> {
    let mut paths = BTreeSet::new();
    for entry in managed_by_controller(metadata) {
        if let Some(fields) = &entry.fields_v1 {
            leaves(&fields.0, String::new(), &mut paths);
        }
    }
    paths
}

fn leaves(value: &serde_json::Value, path: String, paths: &mut BTreeSet<String>) {
    match value
        .as_object()
        .filter(|fields| fields.keys().any(|key| key != "."))
    {
        None => {
            paths.insert(path);
        }
        Some(fields) => {
            for (key, inner) in fields.iter().filter(|(key, _)| *key != ".") {
                let path = if path.is_empty() {
                    key.clone()
                } else {
                    format!("{path}/{key}")
                };
                leaves(inner, path, paths);
            }
        }
    }
}
