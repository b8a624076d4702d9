//! Foreign objects boiled down to what decisions need, made the moment they arrive so that nothing larger is ever kept.

use std::collections::{BTreeMap, BTreeSet};

use freehold_core::assign::{NodeView, Reach};
use freehold_core::catalogue;
use freehold_core::intent::Taint;
use freehold_core::names;
use freehold_core::tenure::OperandPod;
use freehold_core::vendor::{Owner, Vendor};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta};

use super::marks::TAINTS;
use super::reach::reach;
use super::slim::{SlimDaemonSet, SlimNode, SlimPod, SlimSlice, SlimTaint};

/// A Node.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodeEntry {
    /// What assignment looks at. Labels are cut down to the keys that any decision reads.
    pub(crate) view: NodeView,
    /// Taints with every field, as they must be written back.
    pub(crate) taints: Vec<SlimTaint>,
    /// Write precondition.
    pub(crate) resource_version: String,
    /// Field managers other than ours that set one of our marks: by label key, the taints by [`TAINTS`].
    pub(crate) strangers: BTreeMap<String, String>,
}

/// Label keys that decisions read; everything else about a node's labels is dropped on arrival.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LabelKeys {
    keys: BTreeSet<String>,
    /// The one among them that we set beside our own prefix.
    alias: Option<String>,
}

impl LabelKeys {
    /// The catalogue's keys and those that the intent selects on.
    pub(crate) fn new(intent_keys: impl IntoIterator<Item = String>, alias: Option<&str>) -> Self {
        Self {
            keys: intent_keys
                .into_iter()
                .chain(catalogue::label_keys().map(str::to_owned))
                .collect(),
            alias: alias.map(str::to_owned),
        }
    }

    /// Whether every key of `other` is among these.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        self.keys.is_superset(&other.keys) && self.alias == other.alias
    }

    fn keeps(&self, key: &str) -> bool {
        key.starts_with(names::NODE_LABEL_PREFIX) || self.keys.contains(key)
    }

    /// Whether we set it.
    fn is_mark(&self, key: &str) -> bool {
        key.starts_with(names::NODE_LABEL_PREFIX) || self.alias.as_deref() == Some(key)
    }
}

impl NodeEntry {
    /// Boils a Node down.
    pub(crate) fn new(node: SlimNode, keys: &LabelKeys) -> Self {
        let SlimNode {
            metadata,
            spec,
            status,
        } = node;
        let strangers = strangers(metadata.managed_fields.as_deref().unwrap_or_default(), keys);
        let labels = metadata
            .labels
            .unwrap_or_default()
            .into_iter()
            .filter(|(key, _)| keys.keeps(key))
            .collect();
        let allocatable = status
            .allocatable
            .into_iter()
            .filter(|(name, _)| Vendor::ALL.iter().any(|vendor| vendor.owns_resource(name)))
            // Extended resources are whole numbers; the API server refuses anything else.
            .filter_map(|(name, count)| Some((name, count.parse().ok()?)))
            .collect();
        let ready = status
            .conditions
            .iter()
            .any(|c| c.type_ == "Ready" && c.status == "True");
        let taints = spec
            .taints
            .iter()
            .map(|t| Taint {
                key: t.key.clone(),
                value: t.value.clone().unwrap_or_default(),
                effect: t.effect.clone(),
            })
            .collect();
        Self {
            view: NodeView {
                name: metadata.name.unwrap_or_default(),
                uid: metadata.uid.unwrap_or_default(),
                labels,
                taints,
                kubelet_version: status.node_info.kubelet_version,
                boot_id: status.node_info.boot_id,
                ready,
                allocatable,
            },
            taints: spec.taints,
            resource_version: metadata.resource_version.unwrap_or_default(),
            strangers,
        }
    }

    /// Owner label of one vendor; `Err` holds a value that is no owner.
    pub(crate) fn owner(&self, vendor: Vendor) -> Option<Result<Owner, String>> {
        let value = self.view.labels.get(&names::owner_label(vendor))?;
        Some(Owner::from_word(value).ok_or_else(|| value.clone()))
    }

    /// Cohort label of one vendor.
    pub(crate) fn cohort(&self, vendor: Vendor) -> Option<&String> {
        self.view.labels.get(&names::cohort_label(vendor))
    }

    /// Term in the fence taint's value.
    pub(crate) fn fence(&self, vendor: Vendor) -> Option<i64> {
        let key = names::fence_taint(vendor);
        let taint = self.taints.iter().find(|taint| taint.key == key)?;
        Some(
            taint
                .value
                .as_deref()
                .and_then(|term| term.parse().ok())
                .unwrap_or(0),
        )
    }

    /// Whether the alias label has a value that no owner has: somebody else uses the key, and we leave it alone.
    pub(crate) fn alias_is_foreign(&self, key: &str) -> bool {
        let value = self.view.labels.get(key);
        value.is_some_and(|value| Owner::from_word(value).is_none())
    }

    /// Whether anything of ours is on the node.
    pub(crate) fn carries_ours(&self) -> bool {
        self.view
            .labels
            .keys()
            .any(|key| key.starts_with(names::NODE_LABEL_PREFIX))
            || Vendor::ALL
                .iter()
                .any(|vendor| self.fence(*vendor).is_some())
    }
}

/// Which of our marks somebody else set last.
fn strangers(managed: &[ManagedFieldsEntry], keys: &LabelKeys) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for entry in managed {
        let (Some(manager), Some(fields)) = (&entry.manager, &entry.fields_v1) else {
            continue;
        };
        if manager == names::CONTROLLER_FIELD_MANAGER {
            continue;
        }
        let labels = fields.0.pointer("/f:metadata/f:labels");
        let marks = labels
            .and_then(serde_json::Value::as_object)
            .into_iter()
            .flat_map(serde_json::Map::keys)
            .filter_map(|field| field.strip_prefix("f:"))
            .filter(|key| keys.is_mark(key));
        found.extend(marks.map(|key| (key.to_owned(), manager.clone())));
        if fields.0.pointer("/f:spec/f:taints").is_some() {
            found.insert(TAINTS.to_owned(), manager.clone());
        }
    }
    found
}

/// One of our operand pods.
#[derive(Clone, Debug)]
pub(crate) struct PodEntry {
    pub(crate) node: String,
    pub(crate) vendor: Vendor,
    pub(crate) operand: OperandPod,
}

impl PodEntry {
    /// Boils one of our pods down; `None` when its labels are not those of an operand.
    pub(crate) fn new(pod: &SlimPod) -> Option<Self> {
        let labels = pod.metadata.labels.as_ref()?;
        let annotation = |key: &str| {
            pod.metadata
                .annotations
                .as_ref()
                .and_then(|a| a.get(key))
                .cloned()
                .unwrap_or_default()
        };
        let vendor = Vendor::ALL
            .into_iter()
            .find(|v| Some(v.key()) == labels.get(names::VENDOR_LABEL).map(String::as_str))?;
        let operand = OperandPod {
            name: pod.metadata.name.clone().unwrap_or_default(),
            uid: pod.metadata.uid.clone().unwrap_or_default(),
            owner: Owner::from_word(labels.get(names::OWNER_LABEL)?)?,
            cohort: labels.get(names::COHORT_LABEL)?.clone(),
            ready: pod
                .status
                .conditions
                .iter()
                .any(|c| c.type_ == "Ready" && c.status == "True"),
            terminating: pod.metadata.deletion_timestamp.is_some(),
            shape: annotation(names::SHAPE_ANNOTATION),
            template: annotation(names::TEMPLATE_ANNOTATION),
            waiting: waiting_reason(pod),
        };
        Some(Self {
            node: pod.spec.node().to_owned(),
            vendor,
            operand,
        })
    }
}

/// Why a pod does not run, in the words of `kubectl get pods`.
fn waiting_reason(pod: &SlimPod) -> Option<String> {
    if pod.spec.node_name.is_empty() {
        return Some("Pending (not scheduled)".to_owned());
    }
    let status = &pod.status;
    let total = pod.spec.init_containers.len();
    let done = status
        .init_container_statuses
        .iter()
        .filter(|s| s.ready || s.started == Some(true))
        .count();
    let waiting = |s: &super::slim::SlimContainerStatus| {
        s.state
            .waiting
            .as_ref()
            .map(|w| w.reason.clone())
            .filter(|r| !r.is_empty() && r != "PodInitializing" && r != "ContainerCreating")
    };
    let init = status
        .init_container_statuses
        .iter()
        .find_map(waiting)
        .map(|reason| format!("Init:{reason}"));
    init.or_else(|| (done < total).then(|| format!("Init:{done}/{total}")))
        .or_else(|| status.container_statuses.iter().find_map(waiting))
        .or_else(|| (status.phase == "Pending").then(|| "Pending".to_owned()))
}

/// A ResourceSlice of an allocating driver.
#[derive(Clone, Debug)]
pub(crate) struct SliceEntry {
    pub(crate) node: String,
    pub(crate) vendor: Vendor,
    pub(crate) generation: i64,
    pub(crate) slices_in_pool: i64,
    pub(crate) devices: usize,
    pub(crate) mig_devices: usize,
}

impl SliceEntry {
    /// Boils a slice down; `None` for drivers that do not allocate the devices this product owns.
    pub(crate) fn new(slice: &SlimSlice) -> Option<Self> {
        let vendor = Vendor::of_dra_driver(&slice.spec.driver)?;
        // Both vendors' drivers name their pool after the node.
        let node = if slice.spec.node_name.is_empty() {
            slice.spec.pool.name.clone()
        } else {
            slice.spec.node_name.clone()
        };
        Some(Self {
            node,
            vendor,
            generation: slice.spec.pool.generation,
            slices_in_pool: slice.spec.pool.resource_slice_count,
            devices: slice.spec.devices.len(),
            mig_devices: slice
                .spec
                .devices
                .iter()
                .filter(|device| device.name.contains("-mig-"))
                .count(),
        })
    }
}

/// A DaemonSet: ours, or one that hands out a vendor's devices.
#[derive(Clone, Debug)]
pub(crate) struct DaemonSetEntry {
    /// `namespace/name`.
    pub(crate) name: String,
    /// The vendor and owner kind that somebody else's DaemonSet looks like.
    pub(crate) foreign: Option<(Vendor, Owner)>,
    /// The nodes that such a one can reach.
    pub(crate) reach: Reach,
    /// Set for objects that carry our label.
    pub(crate) managed: Option<Managed>,
    /// Kubelet root directory that an operand of ours was rendered for.
    pub(crate) kubelet_root: Option<String>,
}

impl DaemonSetEntry {
    /// Boils a DaemonSet down; `None` for the great many that concern nobody here.
    pub(crate) fn new(daemon_set: &SlimDaemonSet) -> Option<Self> {
        let metadata = &daemon_set.metadata;
        let name = format!(
            "{}/{}",
            metadata.namespace.as_deref().unwrap_or_default(),
            metadata.name.as_deref().unwrap_or_default()
        );
        if let Some(managed) = Managed::new(metadata) {
            let annotations = metadata.annotations.as_ref();
            let kubelet_root = annotations
                .and_then(|a| a.get(freehold_render::KUBELET_ROOT_ANNOTATION))
                .cloned();
            return Some(Self {
                name,
                foreign: None,
                reach: Reach::default(),
                managed: Some(managed),
                kubelet_root,
            });
        }
        let foreign = foreign_pod(&daemon_set.spec.template.spec)?;
        Some(Self {
            name,
            foreign: Some(foreign),
            reach: reach(&daemon_set.spec.template.spec),
            managed: None,
            kubelet_root: None,
        })
    }
}

/// What a pod spec that is not ours looks like, judged by images and host paths, never by names.
pub(crate) fn foreign_pod(spec: &super::slim::SlimPodSpec) -> Option<(Vendor, Owner)> {
    let images: Vec<&str> = spec
        .containers
        .iter()
        .chain(&spec.init_containers)
        .map(|c| c.image.as_str())
        .collect();
    let paths: Vec<&str> = spec
        .volumes
        .iter()
        .filter_map(|v| v.host_path.as_ref())
        .map(|h| h.path.as_str())
        .collect();
    catalogue::foreign_daemon_set(images, paths)
}

/// An object that carries our label: whose it is, and what was last written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Managed {
    pub(crate) uid: String,
    pub(crate) resource_version: String,
    /// UID of the AcceleratorCluster that owns it; without one it is not ours, whatever its label says.
    pub(crate) owner_uid: Option<String>,
    /// Hash of what was last written.
    pub(crate) applied: Option<String>,
    pub(crate) deleting: bool,
}

impl Managed {
    /// `None` when the object does not carry our label.
    pub(crate) fn new(metadata: &ObjectMeta) -> Option<Self> {
        let empty = BTreeMap::new();
        let labels = metadata.labels.as_ref().unwrap_or(&empty);
        (labels.get(names::MANAGED_BY_LABEL).map(String::as_str) == Some(names::MANAGED_BY))
            .then(|| Self::of(metadata))
    }

    /// Whatever its labels say.
    pub(crate) fn of(metadata: &ObjectMeta) -> Self {
        Self {
            uid: metadata.uid.clone().unwrap_or_default(),
            resource_version: metadata.resource_version.clone().unwrap_or_default(),
            owner_uid: metadata
                .owner_references
                .iter()
                .flatten()
                .find(|owner| owner.kind == "AcceleratorCluster" && owner.controller == Some(true))
                .map(|owner| owner.uid.clone()),
            applied: metadata
                .annotations
                .as_ref()
                .and_then(|a| a.get(names::APPLIED_ANNOTATION))
                .cloned(),
            deleting: metadata.deletion_timestamp.is_some(),
        }
    }
}
