//! One simulated node: its kubelet's memory, the Node object and Lease it keeps, the pods it works on.

mod kubelet;
mod plugins;
mod report;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use k8s_openapi::api::core::v1::Pod;
use kube::{Client, ResourceExt as _};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::node_object::Identity;
use super::options::Clock;
use super::pod;
use super::process::ApiServer;
use super::shapes::Shape;
use super::state::{PodSignal, State, Worker};
use super::tree::Tree;

/// Told every state of every kubelet's memory, in order: the node's name and the state.
pub type Observer = Box<dyn Fn(&str, &State) + Send + Sync>;

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
    /// Process group of all agents, which ends with the fleet.
    pub agent_group: i32,
    /// Root of trees, container roots and logs.
    pub directory: PathBuf,
    /// For unique names of container roots.
    pub counter: AtomicU64,
    /// Whoever watches the nodes' own truth.
    pub observer: OnceLock<Observer>,
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
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let result = change(&mut state);
        // Told under the lock, so that no state is missed and none comes out of order.
        if let Some(observer) = self.shared.observer.get() {
            observer(&self.name, &state);
        }
        drop(state);
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

    pub(super) fn spawn<F: Future<Output = ()> + Send + 'static>(
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
                state.operands.clear();
                state.finished.clear();
                state.done.clear();
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
            state.done.remove(uid);
            if let Some(worker) = state.workers.get(uid).filter(|_| state.up) {
                worker.signal.send_modify(|signal| signal.gone = true);
            }
        });
    }

    fn take_up(self: &Arc<Self>, pod: &Arc<Pod>) {
        let uid = pod.uid().unwrap_or_default();
        self.with(|state| {
            if state.done.contains(&uid) {
                return;
            }
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
}
