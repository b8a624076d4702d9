//! What a kubelet knows: registered plugins and drivers, devices given out, claims prepared.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::time::{Duration, Instant};

use freehold_core::vendor::{Owner, Vendor};
use k8s_openapi::api::core::v1::Pod;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::checkpoint::{ClaimInfo, PodDevices};
use super::node_object::Quantity;

/// Who stands behind a device plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PluginOwner {
    /// The pod with this UID.
    Pod(String),
    /// The node image itself (EKS Auto Mode, Bottlerocket).
    NodeImage,
    /// Somebody outside the cluster, started by hand on the host.
    Stranger,
}

/// A registered device plugin, for one resource.
#[derive(Debug)]
pub struct Plugin {
    /// Who runs it.
    pub owner: PluginOwner,
    /// Its devices.
    pub ids: Vec<String>,
    /// Allocate refuses more than one device a container (time-slicing with `failRequestsGreaterThanOne`).
    pub at_most_one: bool,
    /// Socket on the host.
    pub socket: String,
    /// Its listening end, open for as long as the plugin lives.
    pub listener: UnixListener,
}

/// A registered DRA driver.
#[derive(Debug)]
pub struct Driver {
    /// The pod that runs it.
    pub pod_uid: String,
    /// Sockets, open for as long as the driver lives.
    pub listeners: Vec<UnixListener>,
}

/// What a pod worker hears.
#[derive(Clone, Debug)]
pub struct PodSignal {
    /// The pod as last seen.
    pub pod: Arc<Pod>,
    /// The object is gone from the API.
    pub gone: bool,
}

/// A running pod worker.
#[derive(Debug)]
pub struct Worker {
    /// Tells it about changes.
    pub signal: watch::Sender<PodSignal>,
    /// The task.
    pub task: JoinHandle<()>,
}

/// Faults that last until they are taken back.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// DRA drivers register but publish nothing.
    pub hold_slices: bool,
    /// Device plugins run but do not register.
    pub hold_registration: bool,
    /// Pods whose node-side traces stay for this long (not scaled) after they are force-deleted.
    pub holders: BTreeMap<String, Duration>,
}

/// A kubelet's memory.
#[derive(Debug, Default)]
pub struct State {
    /// UID of the Node object.
    pub node_uid: String,
    /// The machine runs and its kubelet with it.
    pub up: bool,
    /// Grows with every start of the kubelet; plugins and drivers register anew when it does.
    pub kubelet_start: u64,
    /// Pods that the API has bound to this node.
    pub assigned: BTreeMap<String, Arc<Pod>>,
    /// Pods at work.
    pub workers: BTreeMap<String, Worker>,
    /// Pods whose containers have all ended: their devices count as free although the checkpoint still names them.
    pub finished: BTreeSet<String>,
    /// Pods of which no trace is left here although their objects still exist, for the moment until the API says so too.
    pub done: BTreeSet<String>,
    /// Grows whenever the kubelet deletes this node's slices: a live DRA driver sees that and publishes again.
    pub wipes: u64,
    /// Vendors' programs that hand out devices, running right now, by pod UID and container. They run from before they register
    /// until after they are gone from the lists below.
    pub operands: BTreeMap<(String, String), (Vendor, Owner)>,
    /// Device plugins by resource.
    pub plugins: BTreeMap<String, Plugin>,
    /// Resources whose plugin went away, and when.
    pub plugins_gone: BTreeMap<String, Instant>,
    /// Extended resources as last sent to the API.
    pub reported: BTreeMap<String, Quantity>,
    /// Devices given out, as in the checkpoint.
    pub devices: Vec<PodDevices>,
    /// DRA drivers by name.
    pub drivers: BTreeMap<String, Driver>,
    /// Claims, as in the checkpoint.
    pub claims: Vec<ClaimInfo>,
    /// Faults.
    pub faults: Faults,
}

impl State {
    /// What capacity and allocatable should say now.
    #[must_use]
    pub fn extended(&self, capacity_kept: Duration) -> BTreeMap<String, Quantity> {
        let mut extended: BTreeMap<_, _> = self
            .reported
            .iter()
            .map(|(name, last)| {
                let kept = self
                    .plugins_gone
                    .get(name)
                    .is_some_and(|since| since.elapsed() < capacity_kept);
                // The key never disappears.
                (
                    name.clone(),
                    Quantity {
                        capacity: if kept { last.capacity } else { 0 },
                        allocatable: 0,
                    },
                )
            })
            .collect();
        for (name, plugin) in &self.plugins {
            extended.insert(
                name.clone(),
                Quantity {
                    capacity: plugin.ids.len(),
                    allocatable: plugin.ids.len(),
                },
            );
        }
        extended
    }

    /// `RegisteredDevices` of the checkpoint.
    #[must_use]
    pub fn registered(&self) -> BTreeMap<String, Vec<String>> {
        self.plugins
            .iter()
            .map(|(name, plugin)| (name.clone(), plugin.ids.clone()))
            .collect()
    }
}
