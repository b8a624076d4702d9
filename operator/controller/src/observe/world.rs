//! Everything the watches have told, indexed by node, and what changed since it was last looked at.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Instant;

use freehold_api::{AcceleratorCluster, AcceleratorNode};
use freehold_core::assign::ClusterView;
use freehold_core::names;
use freehold_core::tenure::{OperandPod, SliceFacts};
use freehold_core::vendor::{Owner, PerVendor, Vendor};

use super::entry::{DaemonSetEntry, Managed, NodeEntry, PodEntry, SliceEntry};
use super::store::{Change, Store};
use super::watches::{ConfigMapEntry, Event, Key};

/// The whole view.
#[derive(Default)]
pub(crate) struct World {
    pub(crate) clusters: Store<String, Box<AcceleratorCluster>>,
    pub(crate) nodes: Store<String, Box<NodeEntry>>,
    pub(crate) records: Store<String, Box<AcceleratorNode>>,
    pods: Store<String, PodEntry>,
    slices: Store<String, SliceEntry>,
    pub(crate) daemon_sets: Store<Key, DaemonSetEntry>,
    pub(crate) classes: Store<Key, Managed>,
    pub(crate) templates: Store<Key, Managed>,
    pub(crate) config_maps: Store<Key, ConfigMapEntry>,
    runtime_classes: Store<String, ()>,
    pub(crate) namespaces: Store<String, ()>,
    pub(crate) crds: Store<String, ()>,
    pub(crate) rivals: BTreeMap<&'static str, Store<String, ()>>,
    pods_on: HashMap<String, BTreeSet<String>>,
    slices_on: HashMap<String, BTreeSet<String>>,
    seen: HashMap<String, PerVendor<Seen>>,
    /// Watches that fail, and since when.
    failing: BTreeMap<&'static str, Instant>,
    /// What must be looked at again.
    pub(crate) dirty: Dirty,
}

/// What changed since it was last looked at.
#[derive(Debug, Default)]
pub(crate) struct Dirty {
    /// Nodes by name.
    pub(crate) nodes: BTreeSet<String>,
    /// Every node: the intent, or something that all nodes depend on, changed.
    pub(crate) all_nodes: bool,
    /// Objects that the controller keeps, or what they are made from.
    pub(crate) objects: bool,
    /// Label keys that decisions need, or which CRDs exist.
    pub(crate) watches: bool,
    /// Nodes on which a label that we read, or a taint, changed: as it was before and as it is now.
    pub(crate) marks: Vec<(String, Box<NodeEntry>, Box<NodeEntry>)>,
}

/// Since when a fact has held without a break, as this process saw it.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    fence: Option<(i64, Instant)>,
    advertised: Option<(u64, Instant)>,
}

impl World {
    /// Whether every list that decisions rest on has arrived. `dra_api` says whether slices and classes are watched at all.
    pub(crate) fn synced(&self, dra_api: bool) -> bool {
        self.clusters.synced()
            && self.nodes.synced()
            && self.records.synced()
            && self.pods.synced()
            && self.daemon_sets.synced()
            && self.config_maps.synced()
            && self.runtime_classes.synced()
            && self.namespaces.synced()
            && self.crds.synced()
            && self.rivals.values().all(Store::synced)
            && (!dra_api
                || (self.slices.synced() && self.classes.synced() && self.templates.synced()))
    }

    /// Since when the watch that has failed longest has told nothing.
    pub(crate) fn in_doubt_since(&self) -> Option<Instant> {
        self.failing.values().min().copied()
    }

    /// Takes an event in.
    pub(crate) fn apply(&mut self, event: Event, now: Instant) {
        match event {
            Event::Cluster(change) => {
                if let Change::Applied(name, Some(cluster)) = &change
                    && self.clusters.get(name).is_some_and(|known| {
                        known.metadata.uid == cluster.metadata.uid
                            && version(known.metadata.resource_version.as_deref())
                                > version(cluster.metadata.resource_version.as_deref())
                    })
                {
                    return;
                }
                for (_, previous) in self.clusters.apply(change) {
                    let generation = |c: Option<&AcceleratorCluster>| {
                        c.map(|c| {
                            (
                                c.metadata.generation,
                                c.metadata.deletion_timestamp.is_some(),
                            )
                        })
                    };
                    if generation(previous.as_deref()) != generation(self.cluster()) {
                        self.dirty.all_nodes = true;
                        self.dirty.watches = true;
                    }
                    self.dirty.objects = true;
                }
            }
            Event::Node(change) => {
                if self.is_older(&change) {
                    return;
                }
                for (name, previous) in self.nodes.apply(change) {
                    // An operand that a node might have gone back to is needed no more when its fence is down.
                    let fenced = |node: Option<&NodeEntry>| {
                        Vendor::ALL
                            .map(|vendor| node.is_some_and(|node| node.fence(vendor).is_some()))
                    };
                    let now_fenced = fenced(self.nodes.get(&name).map(|node| &**node));
                    self.dirty.objects |= fenced(previous.as_deref()) != now_fenced;
                    if let (Some(before), Some(after)) = (previous, self.nodes.get(&name))
                        && before.view.uid == after.view.uid
                        && (before.view.labels != after.view.labels
                            || before.view.taints != after.view.taints)
                    {
                        let marks = (name.clone(), before, after.clone());
                        self.dirty.marks.push(marks);
                    }
                    self.look_again(&name, now);
                }
            }
            Event::Record(change) => {
                if let Change::Applied(name, Some(record)) = &change
                    && self.records.get(name).is_some_and(|known| {
                        known.metadata.uid == record.metadata.uid
                            && version(known.metadata.resource_version.as_deref())
                                > version(record.metadata.resource_version.as_deref())
                    })
                {
                    return;
                }
                for (name, _) in self.records.apply(change) {
                    self.dirty.objects |= self.records.get(&name).is_none();
                    self.dirty.nodes.insert(name);
                }
            }
            Event::Pod(change) => {
                for (key, previous) in self.pods.apply(change) {
                    let current = self.pods.get(&key).map(|pod| pod.node.clone());
                    self.dirty.objects |= current.is_none();
                    let nodes = reindex(
                        &mut self.pods_on,
                        key,
                        previous.map(|pod| pod.node),
                        current,
                    );
                    self.dirty.nodes.extend(nodes);
                }
            }
            Event::Slice(change) => {
                for (key, previous) in self.slices.apply(change) {
                    let current = self.slices.get(&key).map(|slice| slice.node.clone());
                    for node in reindex(
                        &mut self.slices_on,
                        key,
                        previous.map(|slice| slice.node),
                        current,
                    ) {
                        self.look_again(&node, now);
                    }
                }
            }
            Event::DaemonSet(change) => {
                for (key, previous) in self.daemon_sets.apply(change) {
                    let current = self.daemon_sets.get(&key);
                    let foreign = |entry: Option<&DaemonSetEntry>| {
                        entry.is_some_and(|entry| entry.foreign.is_some())
                    };
                    let root = |entry: Option<&DaemonSetEntry>| {
                        entry.and_then(|entry| entry.kubelet_root.clone())
                    };
                    self.dirty.all_nodes |= foreign(previous.as_ref()) != foreign(current);
                    // Whom it can reach is told by labels that may not be kept yet.
                    let reach =
                        |entry: Option<&DaemonSetEntry>| entry.map(|entry| entry.reach.clone());
                    self.dirty.watches |= reach(previous.as_ref()) != reach(current);
                    // The agents are rendered with every kubelet root that an operand was rendered for.
                    self.dirty.watches |= root(previous.as_ref()) != root(current);
                    self.dirty.objects = true;
                }
            }
            Event::Class(change) => self.dirty.objects |= !self.classes.apply(change).is_empty(),
            Event::Template(change) => {
                self.dirty.objects |= !self.templates.apply(change).is_empty();
            }
            Event::ConfigMap(change) => {
                let changed = !self.config_maps.apply(change).is_empty();
                // Plugin configurations are part of what is rendered.
                self.dirty.watches |= changed;
            }
            Event::RuntimeClass(change) => {
                self.dirty.all_nodes |= !self.runtime_classes.apply(change).is_empty();
            }
            Event::Namespace(change) => {
                self.dirty.objects |= !self.namespaces.apply(change).is_empty();
            }
            Event::Crd(change) => self.dirty.watches |= !self.crds.apply(change).is_empty(),
            Event::Rival { kind, change } => {
                // Its CRD may be gone already; a store brought back by a late event would never be complete.
                if let Some(store) = self.rivals.get_mut(kind) {
                    self.dirty.all_nodes |= !store.apply(change).is_empty();
                }
            }
            // The engine counts and logs these. A rival that cannot be listed must not stop everything else: the other
            // evidence still stands guard.
            Event::WatchFailed { kind, error: _ } => {
                if let Some(store) = self.rivals.get_mut(kind) {
                    store.assume_synced();
                } else {
                    self.failing.entry(kind).or_insert(now);
                }
            }
            Event::WatchBack { kind } => {
                self.failing.remove(kind);
            }
        }
    }

    /// A watch may tell of a state older than the one our own write returned.
    fn is_older(&self, change: &Change<String, Box<NodeEntry>>) -> bool {
        let Change::Applied(name, Some(node)) = change else {
            return false;
        };
        self.nodes.get(name).is_some_and(|known| {
            known.view.uid == node.view.uid
                && version(Some(&known.resource_version)) > version(Some(&node.resource_version))
        })
    }

    /// Notes what holds since when, and has the node looked at again.
    fn look_again(&mut self, name: &str, now: Instant) {
        let Some(node) = self.nodes.get(&name.to_owned()) else {
            self.seen.remove(name);
            self.dirty.nodes.insert(name.to_owned());
            return;
        };
        let fences = PerVendor::from_fn(|vendor| node.fence(vendor));
        let adverts = PerVendor::from_fn(|vendor| self.fingerprint(node, vendor));
        let seen = self.seen.entry(name.to_owned()).or_default();
        for vendor in Vendor::ALL {
            let (fence, advertised) = (*fences.get(vendor), *adverts.get(vendor));
            let seen = seen.get_mut(vendor);
            if seen.fence.map(|(term, _)| term) != fence {
                seen.fence = fence.map(|term| (term, now));
            }
            if seen.advertised.map(|(value, _)| value) != Some(advertised) {
                seen.advertised = Some((advertised, now));
            }
        }
        self.dirty.nodes.insert(name.to_owned());
    }

    fn fingerprint(&self, node: &NodeEntry, vendor: Vendor) -> u64 {
        use std::hash::{DefaultHasher, Hash as _, Hasher as _};
        let mut hasher = DefaultHasher::new();
        self.slice_facts(&node.view.name, vendor).hash(&mut hasher);
        for (name, count) in node
            .view
            .allocatable
            .iter()
            .filter(|(name, _)| vendor.owns_resource(name))
        {
            (name, count).hash(&mut hasher);
        }
        hasher.finish()
    }

    /// Label keys that tell which nodes foreign DaemonSets reach.
    pub(crate) fn reach_keys(&self) -> impl Iterator<Item = String> {
        self.daemon_sets
            .iter()
            .flat_map(|(_, entry)| entry.reach.keys().map(str::to_owned))
    }

    /// The one resource there is.
    pub(crate) fn cluster(&self) -> Option<&AcceleratorCluster> {
        self.clusters
            .get(&names::SINGLETON.to_owned())
            .map(|cluster| &**cluster)
    }

    /// Our operand pods of one vendor on a node.
    pub(crate) fn operands(&self, node: &str, vendor: Vendor) -> Vec<OperandPod> {
        let on_node = self
            .pods_on
            .get(node)
            .into_iter()
            .flatten()
            .filter_map(|key| self.pods.get(key));
        let mut pods: Vec<OperandPod> = on_node
            .filter(|pod| pod.vendor == vendor)
            .map(|pod| pod.operand.clone())
            .collect();
        pods.sort();
        pods
    }

    /// Whether any operand pod of this cohort and owner is left anywhere.
    pub(crate) fn has_operand_pods(&self, vendor: Vendor, owner: Owner, cohort: &str) -> bool {
        self.pods.iter().any(|(_, pod)| {
            pod.vendor == vendor && pod.operand.owner == owner && pod.operand.cohort == cohort
        })
    }

    /// Slices of a vendor's allocating driver for a node's pool.
    pub(crate) fn slice_facts(&self, node: &str, vendor: Vendor) -> SliceFacts {
        let slices: Vec<&SliceEntry> = self
            .slices_on
            .get(node)
            .into_iter()
            .flatten()
            .filter_map(|key| self.slices.get(key))
            .filter(|slice| slice.vendor == vendor)
            .collect();
        let newest = slices
            .iter()
            .map(|slice| slice.generation)
            .max()
            .unwrap_or(0);
        let current: Vec<&&SliceEntry> = slices
            .iter()
            .filter(|slice| slice.generation == newest)
            .collect();
        SliceFacts {
            count: slices.len(),
            devices: current.iter().map(|slice| slice.devices).sum(),
            mig_devices: current.iter().map(|slice| slice.mig_devices).sum(),
            complete: current
                .first()
                .is_some_and(|slice| usize::try_from(slice.slices_in_pool) == Ok(current.len())),
        }
    }

    /// Seconds since this very fence, and since the advertisement, have been as they are.
    pub(crate) fn held_for(
        &self,
        node: &str,
        vendor: Vendor,
        fence: Option<i64>,
        now: Instant,
    ) -> (u64, u64) {
        let seen = self
            .seen
            .get(node)
            .map(|seen| *seen.get(vendor))
            .unwrap_or_default();
        let age = |since: Option<Instant>| {
            since.map_or(0, |since| now.saturating_duration_since(since).as_secs())
        };
        (
            age(seen
                .fence
                .filter(|(term, _)| Some(*term) == fence)
                .map(|(_, since)| since)),
            age(seen.advertised.map(|(_, since)| since)),
        )
    }

    /// What assignment looks at beside the node.
    pub(crate) fn cluster_view(&self, server_version: &str, dra_api: bool) -> ClusterView {
        ClusterView {
            server_version: server_version.to_owned(),
            dra_api,
            runtime_classes: self
                .runtime_classes
                .iter()
                .map(|(name, ())| name.clone())
                .collect(),
            config_maps: self
                .config_maps
                .iter()
                .map(|((_, name), map)| (name.clone(), map.data.keys().cloned().collect()))
                .collect(),
        }
    }
}

/// Moves a key from the previous owner's set to the current one's; returns both owners.
fn reindex(
    index: &mut HashMap<String, BTreeSet<String>>,
    key: String,
    previous: Option<String>,
    current: Option<String>,
) -> Vec<String> {
    let mut touched = Vec::new();
    if let Some(previous) = previous
        && Some(&previous) != current.as_ref()
    {
        if let Some(keys) = index.get_mut(&previous) {
            keys.remove(&key);
            if keys.is_empty() {
                index.remove(&previous);
            }
        }
        touched.push(previous);
    }
    if let Some(current) = current {
        index.entry(current.clone()).or_default().insert(key);
        touched.push(current);
    }
    touched.retain(|node| !node.is_empty());
    touched
}

/// Resource versions compare as numbers (KEP-5504, and ever so with etcd); anything else counts as new.
fn version(resource_version: Option<&str>) -> u128 {
    resource_version
        .and_then(|version| version.parse().ok())
        .unwrap_or(0)
}
