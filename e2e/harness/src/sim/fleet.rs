//! A fleet of simulated nodes on one control plane.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};

use anyhow::Context as _;
use futures::TryStreamExt as _;
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client, ResourceExt as _};
use tempfile::TempDir;
use tokio::task::JoinHandle;

use super::handle::NodeHandle;
use super::keeper::Keeper;
use super::node::{Nodes, Observer, Shared, SimNode};
use super::options::{Clock, FleetOptions};
use super::process::ApiServer;
use super::shapes::Shape;
use crate::cluster::TestCluster;

/// Simulated nodes, running until dropped.
#[derive(Debug)]
pub struct Fleet {
    shared: Arc<Shared>,
    nodes: Nodes,
    watch: JoinHandle<()>,
    keeper: Keeper,
    // Removed last, after every process that writes into it.
    directory: Option<TempDir>,
}

impl Fleet {
    /// Boots a node for each name and waits until all are registered.
    ///
    /// # Errors
    /// When a tree cannot be written or the API refuses.
    pub async fn start(
        cluster: &TestCluster,
        options: FleetOptions,
        nodes: Vec<(String, Shape)>,
    ) -> anyhow::Result<Self> {
        let directory = match &options.directory {
            Some(_) => None,
            None => Some(temporary_directory().context("make a directory for host trees")?),
        };
        let path = options
            .directory
            .clone()
            .or_else(|| directory.as_ref().map(|dir| dir.path().to_owned()));
        let path = path.context("a directory")?;
        let keeper = Keeper::start(&path, directory.is_some())?;
        let shared = Arc::new(Shared {
            agent_group: keeper.group(),
            admin: cluster.admin(),
            api: ApiServer {
                url: options.server.clone().unwrap_or_else(|| cluster.url()),
                authority: cluster.authority(),
            },
            clock: Clock::new(options.scale),
            agent: options.agent,
            directory: path,
            counter: AtomicU64::new(1),
            observer: OnceLock::new(),
        });
        // A fresh control plane makes its own namespaces in the background, and Leases need one.
        wait_for_lease_namespace(&shared.admin).await?;
        let present = Nodes::default();
        let watch = tokio::spawn(watch_pods(shared.admin.clone(), present.clone()));
        let fleet = Self {
            shared,
            nodes: present,
            watch,
            keeper,
            directory,
        };
        let made: Vec<_> = nodes
            .into_iter()
            .map(|(name, shape)| fleet.add_node(cluster, name, shape))
            .collect();
        futures::future::try_join_all(made).await?;
        Ok(fleet)
    }

    /// Boots one more node.
    ///
    /// # Errors
    /// When its tree cannot be written or the API refuses.
    pub async fn add_node(
        &self,
        cluster: &TestCluster,
        name: String,
        shape: Shape,
    ) -> anyhow::Result<NodeHandle> {
        let client =
            cluster.client_for_user(&format!("system:node:{name}"), Some("system:nodes"))?;
        let index = u32::try_from(self.shared.next()).context("fewer than 2^32 nodes")?;
        let node = SimNode::new(&name, index, shape, client, Arc::clone(&self.shared))?;
        adopt_bound_pods(&self.shared.admin, &node).await?;
        self.nodes.put(Arc::clone(&node));
        node.start().await?;
        Ok(self.handle(name))
    }

    /// A node by name.
    ///
    /// # Errors
    /// When there is none.
    pub fn node(&self, name: &str) -> anyhow::Result<NodeHandle> {
        self.nodes
            .get(name)
            .with_context(|| format!("no simulated node {name}"))?;
        Ok(self.handle(name.to_owned()))
    }

    /// All nodes by name.
    #[must_use]
    pub fn nodes(&self) -> Vec<NodeHandle> {
        self.nodes
            .all()
            .iter()
            .map(|node| self.handle(node.name.clone()))
            .collect()
    }

    fn handle(&self, name: String) -> NodeHandle {
        NodeHandle::new(name, Arc::clone(&self.shared), self.nodes.clone())
    }

    /// Tells `observer` what every node is in, and from then on every state of every node, later ones included. A fleet has one
    /// observer at most.
    ///
    /// # Errors
    /// When there is one already.
    pub fn observe(&self, observer: Observer) -> anyhow::Result<()> {
        anyhow::ensure!(
            self.shared.observer.set(observer).is_ok(),
            "this fleet has an observer already"
        );
        for node in self.nodes.all() {
            node.with(|_| ());
        }
        Ok(())
    }

    /// Directory of host trees, container roots and logs (`logs/<node>/<pod>/<container>.log`).
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.shared.directory
    }

    /// The time scale.
    #[must_use]
    pub fn clock(&self) -> Clock {
        self.shared.clock
    }

    /// The administrator's client.
    #[must_use]
    pub fn admin(&self) -> Client {
        self.shared.admin.clone()
    }

    /// Stops every node and ends every process. Objects on the API stay.
    pub async fn stop(mut self) {
        self.halt();
        // The runtime reaps killed processes and drops aborted tasks when it next gets a turn.
        tokio::task::yield_now().await;
        if let Some(directory) = self.directory.take()
            && let Err(error) = directory.close()
        {
            tracing::debug!(%error, "remove the fleet's directory");
        }
    }

    /// Keeps the directory (trees and logs) for a look after a failure, and gives its path.
    pub fn keep_directory(&mut self) -> std::path::PathBuf {
        self.keeper.keep_directory();
        self.directory
            .take()
            .map_or_else(|| self.shared.directory.clone(), TempDir::keep)
    }

    fn halt(&self) {
        self.watch.abort();
        for node in self.nodes.all() {
            node.stop(true);
        }
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        self.halt();
    }
}

/// In memory where the machine offers it: a fleet is tens of thousands of tiny files, of which none must last.
fn temporary_directory() -> std::io::Result<TempDir> {
    let mut named = tempfile::Builder::new();
    named.prefix("fh");
    named.tempdir_in("/dev/shm").or_else(|_| named.tempdir())
}

async fn wait_for_lease_namespace(admin: &Client) -> anyhow::Result<()> {
    const ATTEMPTS: u32 = 300;
    let api = Api::<Namespace>::all(admin.clone());
    for _ in 0..ATTEMPTS {
        if api.get_opt("kube-node-lease").await?.is_some() {
            return Ok(());
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    anyhow::bail!("the API server has made no namespace kube-node-lease")
}

/// Pods that were bound to the name before the node was known here.
pub(super) async fn adopt_bound_pods(admin: &Client, node: &Arc<SimNode>) -> anyhow::Result<()> {
    let bound = kube::api::ListParams::default().fields(&format!("spec.nodeName={}", node.name));
    for pod in Api::<Pod>::all(admin.clone()).list(&bound).await? {
        node.on_pod(&Arc::new(pod));
    }
    Ok(())
}

/// One watch for the whole fleet; a real kubelet has one each.
async fn watch_pods(admin: Client, nodes: Nodes) {
    let bound = watcher::Config::default().fields("spec.nodeName!=");
    let mut stream =
        std::pin::pin!(watcher::watcher(Api::<Pod>::all(admin), bound).default_backoff());
    let node_of = |pod: &Pod| nodes.get(pod.spec.as_ref()?.node_name.as_deref()?);
    let mut listed = BTreeSet::new();
    loop {
        match stream.try_next().await {
            Ok(Some(event)) => match event {
                Event::Init => listed.clear(),
                Event::InitApply(pod) | Event::Apply(pod) => {
                    listed.insert(pod.uid().unwrap_or_default());
                    if let Some(node) = node_of(&pod) {
                        node.on_pod(&Arc::new(pod));
                    }
                }
                Event::InitDone => {
                    for node in nodes.all() {
                        let gone: Vec<_> = node.look(|state| {
                            state
                                .assigned
                                .keys()
                                .filter(|uid| !listed.contains(*uid))
                                .cloned()
                                .collect()
                        });
                        for uid in gone {
                            node.on_pod_gone(&uid);
                        }
                    }
                    listed.clear();
                }
                Event::Delete(pod) => {
                    if let Some(node) = node_of(&pod) {
                        node.on_pod_gone(&pod.uid().unwrap_or_default());
                    }
                }
            },
            Ok(None) => return,
            Err(error) => tracing::debug!(%error, "watch pods"),
        }
    }
}

/// Whether the Node object says Ready.
#[must_use]
pub fn is_ready(node: &Node) -> bool {
    let conditions = node
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten());
    conditions
        .into_iter()
        .any(|condition| condition.type_ == "Ready" && condition.status == "True")
}
