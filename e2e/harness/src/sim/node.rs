//! One simulated node: its kubelet's memory, the Node object and Lease it keeps, the pods it works on.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use anyhow::Context as _;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use k8s_openapi::api::resource::v1::ResourceSlice;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::node_object::{self, Identity, Quantity};
use super::options::{Clock, LEASE_RENEWAL, LEASE_SECONDS, STATUS_HEARTBEAT, real};
use super::process::ApiServer;
use super::shapes::Shape;
use super::state::{Plugin, PluginOwner, PodSignal, State, Worker};
use super::tree::Tree;
use super::{claims, pod};

/// Namespace of node Leases.
const LEASE_NAMESPACE: &str = "kube-node-lease";

/// What all nodes of a fleet share.
pub struct Shared {
    /// The administrator: the fleet's own eyes, and the hands of faults that come from outside a node.
    pub admin: Client,
    /// How processes reach the API server.
    pub api: ApiServer,
    /// Time scale.
    pub clock: Clock,
    /// Agent binary.
    pub agent: Option<PathBuf>,
    /// Root of trees, container roots and logs.
    pub directory: PathBuf,
    /// For unique names of container roots.
    pub counter: AtomicU64,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared")
            .field("directory", &self.directory)
            .finish_non_exhaustive()
    }
}

impl std::fmt::Debug for SimNode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SimNode")
            .field("name", &self.name)
            .field("shape", &self.shape.key)
            .finish_non_exhaustive()
    }
}

/// Present nodes by name. A node that was replaced leaves its place to the new one.
#[derive(Clone, Debug, Default)]
pub struct Nodes(Arc<Mutex<BTreeMap<String, Arc<SimNode>>>>);

impl Nodes {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Arc<SimNode>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The node that carries a name now.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<Arc<SimNode>> {
        self.lock().get(name).cloned()
    }

    /// All, by name.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<SimNode>> {
        self.lock().values().cloned().collect()
    }

    /// Puts a node in its name's place.
    pub fn put(&self, node: Arc<SimNode>) {
        self.lock().insert(node.name.clone(), node);
    }
}

impl Shared {
    /// A number not given out before.
    pub fn next(&self) -> u64 {
        self.counter.fetch_add(1, Ordering::Relaxed)
    }
}

/// A simulated node.
pub struct SimNode {
    /// Name.
    pub name: String,
    /// Number in the fleet.
    pub index: u32,
    /// Hardware and labels.
    pub shape: Shape,
    /// Host files.
    pub tree: Tree,
    /// The kubelet's own identity, so that NodeRestriction and the Node authorizer see what they would.
    pub client: Client,
    /// The fleet's.
    pub shared: Arc<Shared>,
    state: Mutex<State>,
    changed: watch::Sender<u64>,
    tasks: Mutex<JoinSet<()>>,
}

impl SimNode {
    /// Makes the host tree. Nothing runs yet.
    ///
    /// # Errors
    /// When the tree cannot be written.
    pub fn new(
        name: &str,
        index: u32,
        shape: Shape,
        client: Client,
        shared: Arc<Shared>,
    ) -> anyhow::Result<Arc<Self>> {
        let root = shared.directory.join(format!("n{}", shared.next()));
        let tree = Tree::create(&root, name, &shape)?;
        Ok(Arc::new(Self {
            name: name.to_owned(),
            index,
            shape,
            tree,
            client,
            shared,
            state: Mutex::new(State::default()),
            changed: watch::Sender::new(0),
            tasks: Mutex::new(JoinSet::new()),
        }))
    }

    /// Looks at the kubelet's memory, or changes it; whoever waits in [`Self::until`] looks again.
    pub fn with<R>(&self, change: impl FnOnce(&mut State) -> R) -> R {
        let result = change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.send_modify(|version| *version += 1);
        result
    }

    /// Looks at the kubelet's memory only.
    pub fn look<R>(&self, look: impl FnOnce(&State) -> R) -> R {
        look(&self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Waits until the kubelet's memory satisfies something.
    pub async fn until<R>(&self, mut satisfied: impl FnMut(&State) -> Option<R>) -> R {
        let mut changes = self.changed.subscribe();
        loop {
            changes.borrow_and_update();
            if let Some(result) = self.look(&mut satisfied) {
                return result;
            }
            if changes.changed().await.is_err() {
                // The sender lives as long as `self`.
                std::future::pending::<()>().await;
            }
        }
    }

    pub(super) fn identity(&self) -> Identity {
        Identity {
            name: self.name.clone(),
            index: self.index,
            boot_id: self.tree.boot_id(),
        }
    }

    /// Boots: registers the Node, starts the kubelet and what the node image brings along, and takes up the pods bound here.
    ///
    /// # Errors
    /// When the Node cannot be registered.
    pub async fn start(self: &Arc<Self>) -> anyhow::Result<()> {
        let api = Api::<Node>::all(self.client.clone());
        let identity = self.identity();
        let node = match api.get_opt(&self.name).await? {
            Some(node) => node,
            None => {
                let made = api
                    .create(
                        &PostParams::default(),
                        &node_object::node(&identity, &self.shape)?,
                    )
                    .await;
                let made = made.with_context(|| format!("register {}", self.name))?;
                self.finish_registration(&made).await?;
                made
            }
        };
        let kept = node
            .status
            .as_ref()
            .and_then(|status| status.capacity.as_ref())
            .into_iter()
            .flatten();
        let kept: BTreeMap<_, _> = kept
            .filter(|(name, _)| name.contains('/'))
            .map(|(name, _)| (name.clone(), Quantity::default()))
            .collect();
        self.with(|state| {
            state.node_uid = node.uid().unwrap_or_default();
            state.reported.extend(kept);
        });
        self.start_kubelet().await
    }

    /// The controllers' part of a registration: a cloud controller's labels, and the end of the taint that every new node gets,
    /// for control planes in which no node lifecycle controller runs.
    async fn finish_registration(&self, made: &Node) -> anyhow::Result<()> {
        const NOT_READY: &str = "node.kubernetes.io/not-ready";
        let api = Api::<Node>::all(self.shared.admin.clone());
        let mut node = made.clone();
        loop {
            let taints = node
                .spec
                .iter()
                .flat_map(|spec| spec.taints.iter().flatten());
            let taints: Vec<_> = taints
                .filter(|taint| taint.key != NOT_READY)
                .cloned()
                .collect();
            let patch = json!({
                "metadata": {"resourceVersion": node.resource_version(), "labels": node_object::cloud_labels()},
                "spec": {"taints": taints},
            });
            match api
                .patch(&self.name, &PatchParams::default(), &Patch::Merge(patch))
                .await
            {
                Ok(_) => return Ok(()),
                Err(kube::Error::Api(status)) if status.code == 409 => {
                    node = api.get(&self.name).await?;
                }
                Err(error) => {
                    return Err(error)
                        .with_context(|| format!("finish the registration of {}", self.name));
                }
            }
        }
    }

    /// Starts the kubelet process on a machine that runs: all slices of the node are wiped, plugins have to register anew.
    ///
    /// # Errors
    /// When the API refuses what a kubelet does at start.
    pub async fn start_kubelet(self: &Arc<Self>) -> anyhow::Result<()> {
        self.wipe_slices(None).await?;
        for (resource, ids) in &self.shape.built_in {
            self.register_plugin(resource, PluginOwner::NodeImage, ids.clone(), false)?;
        }
        let assigned: Vec<_> = self.with(|state| {
            state.up = true;
            state.kubelet_start += 1;
            // Pods whose objects went while the kubelet was down.
            for (uid, worker) in &state.workers {
                if !state.assigned.contains_key(uid) {
                    worker.signal.send_modify(|signal| signal.gone = true);
                }
            }
            state.assigned.values().cloned().collect()
        });
        self.report_status().await?;
        self.spawn(Self::keep_lease);
        self.spawn(Self::keep_status);
        for pod in assigned {
            self.take_up(&pod);
        }
        self.remove_orphans()?;
        self.spawn(Self::reconcile_claims);
        Ok(())
    }

    /// Removes directories of pods that are no longer bound here.
    fn remove_orphans(&self) -> anyhow::Result<()> {
        for entry in std::fs::read_dir(self.tree.kubelet("pods"))? {
            let uid = entry?.file_name().to_string_lossy().into_owned();
            if !self
                .look(|state| state.assigned.contains_key(&uid) || state.workers.contains_key(&uid))
            {
                self.tree.remove_pod(&uid)?;
            }
        }
        Ok(())
    }

    /// Every minute the kubelet gives back claims of pods that it no longer knows, as far as their drivers are there.
    async fn reconcile_claims(self: Arc<Self>) {
        loop {
            self.shared.clock.sleep(real::RECONCILE).await;
            let orphans: BTreeSet<_> = self.look(|state| {
                let pods = state.claims.iter().flat_map(|claim| claim.pod_uids.keys());
                pods.filter(|uid| {
                    !state.assigned.contains_key(*uid) && !state.workers.contains_key(*uid)
                })
                .cloned()
                .collect()
            });
            for uid in orphans {
                if let Err(error) = self.with(|state| claims::unprepare(state, &self.tree, &uid)) {
                    tracing::debug!(node = self.name, pod = uid, %error, "give back claims of a pod that is gone");
                }
            }
        }
    }

    fn spawn<F: Future<Output = ()> + Send + 'static>(
        self: &Arc<Self>,
        task: impl FnOnce(Arc<Self>) -> F,
    ) {
        let task = task(Arc::clone(self));
        self.tasks
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .spawn(task);
    }

    /// Ends the kubelet: no more heartbeats, status or pod work. What runs in containers is ended too with `machine`.
    pub fn stop(&self, machine: bool) {
        self.tasks
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .abort_all();
        let workers = self.with(|state| {
            state.up = false;
            if machine {
                state.plugins.clear();
                state.drivers.clear();
                state.finished.clear();
                std::mem::take(&mut state.workers)
            } else {
                BTreeMap::new()
            }
        });
        for worker in workers.into_values() {
            worker.task.abort();
        }
    }

    /// A pod was bound here, or one that is here changed.
    pub fn on_pod(self: &Arc<Self>, pod: &Arc<Pod>) {
        let uid = pod.uid().unwrap_or_default();
        self.with(|state| state.assigned.insert(uid, Arc::clone(pod)));
        if self.look(|state| state.up) {
            self.take_up(pod);
        }
    }

    /// A pod's object is gone.
    pub fn on_pod_gone(&self, uid: &str) {
        self.with(|state| {
            state.assigned.remove(uid);
            if let Some(worker) = state.workers.get(uid).filter(|_| state.up) {
                worker.signal.send_modify(|signal| signal.gone = true);
            }
        });
    }

    fn take_up(self: &Arc<Self>, pod: &Arc<Pod>) {
        let uid = pod.uid().unwrap_or_default();
        self.with(|state| {
            if let Some(worker) = state.workers.get(&uid) {
                worker
                    .signal
                    .send_modify(|signal| signal.pod = Arc::clone(pod));
                return;
            }
            let (signal, listen) = watch::channel(PodSignal {
                pod: Arc::clone(pod),
                gone: false,
            });
            let task = tokio::spawn(pod::work(Arc::clone(self), Arc::clone(pod), listen));
            state.workers.insert(uid, Worker { signal, task });
        });
    }

    /// Registers a device plugin for one resource: socket, checkpoint, and after a while capacity and allocatable.
    ///
    /// # Errors
    /// When the socket cannot be made.
    pub fn register_plugin(
        &self,
        resource: &str,
        owner: PluginOwner,
        ids: Vec<String>,
        at_most_one: bool,
    ) -> anyhow::Result<()> {
        let socket = format!("{}/{}", super::tree::DEVICE_PLUGINS, socket_name(resource));
        let listener = self.tree.listen(&socket)?;
        self.with(|state| {
            state.plugins_gone.remove(resource);
            state.plugins.insert(
                resource.to_owned(),
                Plugin {
                    owner,
                    ids,
                    at_most_one,
                    socket,
                    listener,
                },
            );
            self.tree
                .write_device_manager(&state.devices, &state.registered())
        })
    }

    /// A device plugin's process ended in an orderly way: its sockets are removed and its resources are no longer allocatable.
    ///
    /// # Errors
    /// When files cannot be written.
    pub fn unregister_plugins(&self, owner: &PluginOwner) -> anyhow::Result<()> {
        self.with(|state| {
            let mine: Vec<_> = state
                .plugins
                .iter()
                .filter(|(_, plugin)| plugin.owner == *owner)
                .map(|(name, _)| name.clone())
                .collect();
            for resource in mine {
                if let Some(plugin) = state.plugins.remove(&resource) {
                    self.tree.remove(&plugin.socket)?;
                }
                state.plugins_gone.insert(resource, Instant::now());
            }
            self.tree
                .write_device_manager(&state.devices, &state.registered())
        })
    }

    /// Deletes the node's ResourceSlices as the kubelet does: those of one driver, or all.
    ///
    /// # Errors
    /// When the API refuses.
    pub async fn wipe_slices(&self, driver: Option<&str>) -> anyhow::Result<()> {
        let api = Api::<ResourceSlice>::all(self.client.clone());
        let mut fields = format!("spec.nodeName={}", self.name);
        if let Some(driver) = driver {
            fields.push_str(&format!(",spec.driver={driver}"));
        }
        api.delete_collection(
            &DeleteParams::default(),
            &ListParams::default().fields(&fields),
        )
        .await?;
        Ok(())
    }

    /// A DRA driver disconnected. Unless one is back by then, its slices go after 30 s.
    pub fn driver_gone(self: &Arc<Self>, driver: &'static str, pod_uid: &str) {
        let mine = self.with(|state| {
            let mine = state
                .drivers
                .get(driver)
                .is_some_and(|registered| registered.pod_uid == pod_uid);
            if mine {
                state.drivers.remove(driver);
            }
            mine
        });
        if mine {
            self.spawn(|node| async move {
                node.shared.clock.sleep(real::SLICES_KEPT).await;
                if node.look(|state| state.drivers.contains_key(driver)) {
                    return;
                }
                if let Err(error) = node.wipe_slices(Some(driver)).await {
                    tracing::warn!(node = node.name, driver, %error, "wipe ResourceSlices");
                }
            });
        }
    }

    /// Sends capacity, allocatable and everything else of the status.
    ///
    /// # Errors
    /// When the API refuses.
    pub async fn report_status(&self) -> anyhow::Result<()> {
        let kept = self.shared.clock.scaled(real::CAPACITY_KEPT);
        let extended = self.look(|state| state.extended(kept));
        let status =
            json!({"status": node_object::status(&self.identity(), &self.shape, &extended)});
        let api = Api::<Node>::all(self.client.clone());
        api.patch_status(
            &self.name,
            &PatchParams::default(),
            &Patch::Strategic(status),
        )
        .await?;
        self.with(|state| state.reported = extended);
        Ok(())
    }

    async fn keep_status(self: Arc<Self>) {
        let kept = self.shared.clock.scaled(real::CAPACITY_KEPT);
        loop {
            let differs =
                self.until(|state| (state.extended(kept) != state.reported).then_some(()));
            // Capacity falls to 0 by the clock alone, and an unchanged status is repeated every few minutes.
            let oldest = self.look(|state| {
                state
                    .plugins_gone
                    .values()
                    .map(|since| kept.saturating_sub(since.elapsed()))
                    .filter(|left| !left.is_zero())
                    .min()
            });
            let quiet = oldest.map_or(STATUS_HEARTBEAT, |left| left.min(STATUS_HEARTBEAT));
            let changed = tokio::time::timeout(quiet, differs).await.is_ok();
            if changed {
                self.shared.clock.sleep(real::STATUS_SYNC).await;
            }
            if let Err(error) = self.report_status().await {
                tracing::debug!(node = self.name, %error, "report node status");
                self.shared.clock.sleep(real::STATUS_SYNC).await;
            }
        }
    }

    async fn keep_lease(self: Arc<Self>) {
        let api = Api::<Lease>::namespaced(self.client.clone(), LEASE_NAMESPACE);
        loop {
            let now = jiff::Timestamp::now()
                .strftime("%Y-%m-%dT%H:%M:%S.%6fZ")
                .to_string();
            let renewed = json!({"spec": {"renewTime": now, "holderIdentity": self.name, "leaseDurationSeconds": LEASE_SECONDS}});
            let result = match api
                .patch(&self.name, &PatchParams::default(), &Patch::Merge(&renewed))
                .await
            {
                Err(kube::Error::Api(status)) if status.code == 404 => {
                    let lease = serde_json::from_value(
                        json!({"metadata": {"name": self.name, "namespace": LEASE_NAMESPACE},
                        "spec": renewed.get("spec")}),
                    );
                    match lease {
                        Ok(lease) => api.create(&PostParams::default(), &lease).await,
                        Err(error) => Err(kube::Error::SerdeError(error)),
                    }
                }
                other => other,
            };
            if let Err(error) = result {
                tracing::debug!(node = self.name, %error, "renew the node's Lease");
            }
            tokio::time::sleep(LEASE_RENEWAL).await;
        }
    }

    /// Records an Event about a pod, as the kubelet does.
    pub async fn event(&self, pod: &Pod, reason: &str, message: &str) {
        let namespace = pod.namespace().unwrap_or_default();
        let event = json!({
            "metadata": {"name": format!("{}.{:x}", pod.name_any(), self.shared.next() + u64::from(self.index) * 1_000_000_007), "namespace": namespace},
            "involvedObject": {"kind": "Pod", "apiVersion": "v1", "name": pod.name_any(), "namespace": namespace, "uid": pod.uid()},
            "type": "Warning", "reason": reason, "message": message, "count": 1,
            "firstTimestamp": node_object::now(), "lastTimestamp": node_object::now(),
            "source": {"component": "kubelet", "host": self.name},
        });
        let result = match serde_json::from_value::<Event>(event) {
            Ok(event) => Api::namespaced(self.client.clone(), &namespace)
                .create(&PostParams::default(), &event)
                .await
                .map(drop),
            Err(error) => Err(kube::Error::SerdeError(error)),
        };
        if let Err(error) = result {
            tracing::debug!(node = self.name, reason, %error, "record an event");
        }
    }
}

/// File name of a plugin's socket, as the vendors' plugins choose it.
fn socket_name(resource: &str) -> String {
    match resource {
        "aws.amazon.com/neuron" => "neuron-devplugin.sock".into(),
        "aws.amazon.com/neuroncore" => "neuroncore-devplugin.sock".into(),
        _ => {
            let (domain, name) = resource.split_once('/').unwrap_or(("plugin", resource));
            format!("{}-{name}.sock", domain.split('.').next().unwrap_or(domain))
        }
    }
}
