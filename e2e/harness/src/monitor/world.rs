//! The cluster as it stood after one fact.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use freehold_api::{AcceleratorCluster, AcceleratorNode};
use freehold_core::names;
use freehold_core::vendor::{Owner, Vendor};

use super::expected;
use super::facts::{Fact, KeptSeen, Key, NodeSeen, Object};

/// When something began: version and time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Since {
    pub(super) version: u64,
    pub(super) at: Duration,
}

/// The cluster, and since when what matters is as it is.
#[derive(Default)]
pub(super) struct World {
    objects: BTreeMap<Key, Object>,
    /// Consumers of a vendor's devices on a node, with the words that name them.
    pub(super) consumers: HashMap<(String, Vendor), BTreeMap<String, Since>>,
    /// The first report that answered the present term and said that nothing is in use.
    pub(super) attested: HashMap<(String, Vendor), (i64, Since)>,
    /// The present fence.
    pub(super) fenced: HashMap<(String, Vendor), (String, Since)>,
    /// Since when what the owner label promises is not advertised.
    pub(super) missing: HashMap<(String, Vendor), Duration>,
    /// Alias labels that an AcceleratorCluster ever named: one that was renamed leaves its traces until the next write.
    pub(super) aliases: BTreeSet<String>,
}

impl World {
    /// Takes a fact in and gives the object's former state.
    pub(super) fn apply(&mut self, fact: &Fact) -> Option<Object> {
        let key = fact.object.key();
        let before = if fact.gone {
            self.objects.remove(&key)
        } else {
            self.objects.insert(key, fact.object.clone())
        };
        let since = Since {
            version: fact.version,
            at: fact.at,
        };
        match &fact.object {
            Object::Node(node) => self.follow_node(&node.name.clone(), since),
            Object::Slice(slice) => {
                if let Some(node) = &slice.node {
                    self.follow_node(&node.clone(), since);
                }
            }
            Object::Pod(_) | Object::Claim(_) => self.follow_consumers(since),
            Object::Record(record) => {
                self.follow_record(record, since);
                if let Some(name) = record.metadata.name.clone() {
                    self.follow_node(&name, since);
                }
            }
            Object::Cluster(cluster) => self.aliases.extend(cluster.spec.owner_label.clone()),
            Object::Kept(_) => {}
        }
        before
    }

    fn follow_node(&mut self, name: &str, since: Since) {
        for vendor in Vendor::ALL {
            let key = (name.to_owned(), vendor);
            let fence = self
                .node(name)
                .and_then(|node| node.fence(vendor))
                .map(str::to_owned);
            match fence {
                None => {
                    self.fenced.remove(&key);
                }
                Some(fence)
                    if self
                        .fenced
                        .get(&key)
                        .is_some_and(|(known, _)| *known == fence) => {}
                Some(fence) => {
                    self.fenced.insert(key.clone(), (fence, since));
                }
            }
            let owner = self
                .node(name)
                .and_then(|node| node.owner(vendor))
                .and_then(Owner::from_word);
            if owner.is_some_and(|owner| !self.advertises(name, vendor, owner)) {
                self.missing.entry(key).or_insert(since.at);
            } else {
                self.missing.remove(&key);
            }
        }
    }

    fn follow_record(&mut self, record: &AcceleratorNode, since: Since) {
        let Some(name) = record.metadata.name.clone() else {
            return;
        };
        for vendor in Vendor::ALL {
            let key = (name.clone(), vendor);
            let present = self.record(&name);
            let part =
                present.and_then(|record| record.status.as_ref()?.report.as_ref()?.vendor(vendor));
            match part.filter(|part| part.in_use.is_idle()) {
                Some(part)
                    if self
                        .attested
                        .get(&key)
                        .is_none_or(|(term, _)| *term != part.observed_term) =>
                {
                    self.attested.insert(key, (part.observed_term, since));
                }
                Some(_) => {}
                None => {
                    self.attested.remove(&key);
                }
            }
        }
    }

    fn follow_consumers(&mut self, since: Since) {
        let mut present: HashMap<(String, Vendor), BTreeMap<String, Since>> = HashMap::new();
        let mut note =
            |node: &str,
             vendor: Vendor,
             who: String,
             known: &HashMap<(String, Vendor), BTreeMap<String, Since>>| {
                let key = (node.to_owned(), vendor);
                let began = known
                    .get(&key)
                    .and_then(|all| all.get(&who))
                    .copied()
                    .unwrap_or(since);
                present.entry(key).or_default().insert(who, began);
            };
        for object in self.objects.values() {
            match object {
                Object::Pod(pod) if !pod.ended => {
                    let Some(node) = &pod.node else { continue };
                    for vendor in Vendor::ALL {
                        if pod
                            .asks_plugin
                            .iter()
                            .any(|resource| vendor.owns_resource(resource))
                        {
                            note(
                                node,
                                vendor,
                                format!("pod {}/{} ({})", pod.namespace, pod.name, pod.uid),
                                &self.consumers,
                            );
                        }
                    }
                }
                Object::Claim(claim) => {
                    for (driver, pool) in &claim.allocated {
                        if let Some(vendor) = Vendor::of_dra_driver(driver) {
                            let who =
                                format!("claim {}/{} ({})", claim.namespace, claim.name, claim.uid);
                            note(pool, vendor, who, &self.consumers);
                        }
                    }
                }
                Object::Pod(_)
                | Object::Node(_)
                | Object::Slice(_)
                | Object::Record(_)
                | Object::Cluster(_)
                | Object::Kept(_) => {}
            }
        }
        self.consumers = present;
    }

    pub(super) fn node(&self, name: &str) -> Option<&NodeSeen> {
        if let Some(Object::Node(node)) =
            self.objects.get(&("Node", String::new(), name.to_owned()))
        {
            Some(node)
        } else {
            None
        }
    }

    pub(super) fn record(&self, name: &str) -> Option<&AcceleratorNode> {
        if let Some(Object::Record(record)) =
            self.objects
                .get(&("AcceleratorNode", String::new(), name.to_owned()))
        {
            Some(record)
        } else {
            None
        }
    }

    pub(super) fn cluster(&self) -> Option<&AcceleratorCluster> {
        if let Some(Object::Cluster(cluster)) = self.objects.get(&(
            "AcceleratorCluster",
            String::new(),
            names::SINGLETON.to_owned(),
        )) {
            Some(cluster)
        } else {
            None
        }
    }

    pub(super) fn nodes(&self) -> impl Iterator<Item = &NodeSeen> {
        self.objects.values().filter_map(|object| {
            if let Object::Node(node) = object {
                Some(node)
            } else {
                None
            }
        })
    }

    pub(super) fn records(&self) -> impl Iterator<Item = &AcceleratorNode> {
        self.objects.values().filter_map(|object| {
            if let Object::Record(record) = object {
                Some(&**record)
            } else {
                None
            }
        })
    }

    pub(super) fn kept(&self) -> impl Iterator<Item = &KeptSeen> {
        self.objects.values().filter_map(|object| {
            if let Object::Kept(kept) = object {
                Some(kept)
            } else {
                None
            }
        })
    }

    /// Devices that a vendor's DRA driver lists on a node.
    pub(super) fn listed(&self, node: &str, vendor: Vendor) -> usize {
        let slices = self.objects.values().filter_map(|object| {
            if let Object::Slice(slice) = object {
                Some(slice)
            } else {
                None
            }
        });
        slices
            .filter(|slice| {
                slice.node.as_deref() == Some(node) && slice.driver == vendor.dra_driver()
            })
            .map(|slice| slice.devices)
            .sum()
    }

    /// Whether what the owner promises is advertised: all of it, where that can be counted.
    pub(super) fn advertises(&self, node: &str, vendor: Vendor, owner: Owner) -> bool {
        let Some(seen) = self.node(node) else {
            return false;
        };
        let whole = expected::whole_device(vendor);
        match (owner, self.expected(seen, vendor)) {
            (Owner::DevicePlugin, None) => seen.allocatable(vendor) > 0,
            (Owner::DevicePlugin, Some(devices)) => {
                seen.allocatable.get(whole).copied().unwrap_or(0) == devices
            }
            (Owner::Dra, None) => self.listed(node, vendor) > 0,
            (Owner::Dra, Some(devices)) => {
                u64::try_from(self.listed(node, vendor)).is_ok_and(|listed| listed == devices)
            }
        }
    }

    /// How many devices a node must advertise, where that can be counted.
    pub(super) fn expected(&self, node: &NodeSeen, vendor: Vendor) -> Option<u64> {
        let record = self.record(&node.name)?;
        let report = record.status.as_ref()?.report.as_ref()?.vendor(vendor)?;
        expected::devices(self.cluster()?, node.cohort(vendor)?, vendor, report)
    }
}
