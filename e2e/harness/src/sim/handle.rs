//! What scenarios do to a node from outside, and what they wait for.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::resource::v1::ResourceSlice;
use kube::api::{DeleteParams, ListParams};
use kube::{Api, ResourceExt as _};

use super::fleet::adopt_bound_pods;
use super::node::{Nodes, Shared, SimNode};
use super::shapes::{Shape, uuid};
use super::state::{PluginOwner, State};
use super::tree::{DEVICE_PLUGINS, Tree};

/// A node by name: the one that carries the name now, also after it was replaced.
#[derive(Clone, Debug)]
pub struct NodeHandle {
    name: String,
    shared: Arc<Shared>,
    nodes: Nodes,
}

/// Conditions are asked for this often.
const LOOK: Duration = Duration::from_millis(50);

impl NodeHandle {
    pub(super) const fn new(name: String, shared: Arc<Shared>, nodes: Nodes) -> Self {
        Self {
            name,
            shared,
            nodes,
        }
    }

    fn node(&self) -> anyhow::Result<Arc<SimNode>> {
        self.nodes
            .get(&self.name)
            .with_context(|| format!("no simulated node {}", self.name))
    }

    /// Name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Looks at, or changes, the host's files.
    ///
    /// # Errors
    /// When the node is gone or `look` fails.
    pub fn tree<R>(&self, look: impl FnOnce(&Tree) -> anyhow::Result<R>) -> anyhow::Result<R> {
        look(&self.node()?.tree)
    }

    /// Looks at the kubelet's memory.
    ///
    /// # Errors
    /// When the node is gone.
    pub fn kubelet<R>(&self, look: impl FnOnce(&State) -> R) -> anyhow::Result<R> {
        Ok(self.node()?.look(look))
    }

    /// The Node object.
    ///
    /// # Errors
    /// When the API does not have it.
    pub async fn object(&self) -> anyhow::Result<Node> {
        Ok(Api::<Node>::all(self.shared.admin.clone())
            .get(&self.name)
            .await?)
    }

    /// Allocatable of an extended resource: `None` when the key is absent.
    ///
    /// # Errors
    /// When the API does not answer or the quantity is no whole number.
    pub async fn allocatable(&self, resource: &str) -> anyhow::Result<Option<i64>> {
        let node = self.object().await?;
        let found = node
            .status
            .and_then(|status| status.allocatable?.remove(resource));
        Ok(found.map(|quantity| quantity.0.parse()).transpose()?)
    }

    /// ResourceSlices of a driver on this node.
    ///
    /// # Errors
    /// When the API does not answer.
    pub async fn slices(&self, driver: &str) -> anyhow::Result<Vec<ResourceSlice>> {
        let fields = format!("spec.nodeName={},spec.driver={driver}", self.name);
        Ok(Api::<ResourceSlice>::all(self.shared.admin.clone())
            .list(&ListParams::default().fields(&fields))
            .await?
            .items)
    }

    /// Waits until the allocatable of a resource is this (`None` for an absent key).
    ///
    /// # Errors
    /// When it is not in time; the message says what it was.
    pub async fn wait_for_allocatable(
        &self,
        resource: &str,
        wanted: Option<i64>,
        within: Duration,
    ) -> anyhow::Result<()> {
        let what = format!("{}: allocatable {resource} = {wanted:?}", self.name);
        wait_for(&what, within, async || {
            let found = self.allocatable(resource).await?;
            Ok(if found == wanted {
                Ok(())
            } else {
                Err(format!("{found:?}"))
            })
        })
        .await
    }

    /// Waits until a driver's slices on this node hold this many devices.
    ///
    /// # Errors
    /// When they do not in time; the message says how many they held.
    pub async fn wait_for_devices(
        &self,
        driver: &str,
        wanted: usize,
        within: Duration,
    ) -> anyhow::Result<()> {
        let what = format!("{}: {wanted} devices of {driver}", self.name);
        wait_for(&what, within, async || {
            let found: usize = self
                .slices(driver)
                .await?
                .iter()
                .map(|slice| slice.spec.devices.iter().flatten().count())
                .sum();
            Ok(if found == wanted {
                Ok(())
            } else {
                Err(format!("{found} devices"))
            })
        })
        .await
    }

    /// Takes a vendor's kernel driver away: `nvidia` or `neuron`, whichever the machine has.
    ///
    /// # Errors
    /// When files cannot be removed.
    pub fn lose_driver(&self) -> anyhow::Result<()> {
        self.tree(|tree| {
            if tree.nvidia().is_some() {
                tree.lose_nvidia_driver()?;
            }
            if tree.neuron().is_some() {
                tree.lose_neuron_driver()?;
            }
            Ok(())
        })
    }

    /// Loads the kernel driver (again), in a version.
    ///
    /// # Errors
    /// When files cannot be written.
    pub fn load_driver(&self, version: &str) -> anyhow::Result<()> {
        self.tree(|tree| {
            if tree.nvidia().is_some() {
                tree.load_nvidia_driver(version)?;
            }
            if tree.neuron().is_some() {
                tree.load_neuron_driver(version)?;
            }
            Ok(())
        })
    }

    /// Cuts the power: every process dies where it stands, nothing is cleaned up, heartbeats end.
    ///
    /// # Errors
    /// When the node is gone.
    pub fn power_off(&self) -> anyhow::Result<()> {
        self.node()?.stop(true);
        Ok(())
    }

    /// Boots a machine that was powered off: new boot ID, pods still bound here start again.
    ///
    /// # Errors
    /// When the API refuses.
    pub async fn power_on(&self) -> anyhow::Result<()> {
        let node = self.node()?;
        node.tree.boot()?;
        node.start().await
    }

    /// Power off and on.
    ///
    /// # Errors
    /// When the API refuses.
    pub async fn reboot(&self) -> anyhow::Result<()> {
        self.power_off()?;
        self.power_on().await
    }

    /// Ends the kubelet alone; containers go on.
    ///
    /// # Errors
    /// When the node is gone.
    pub fn kubelet_down(&self) -> anyhow::Result<()> {
        self.node()?.stop(false);
        Ok(())
    }

    /// Starts the kubelet again: all slices of the node are wiped, sockets in the device-plugin directory removed, extended
    /// resources 0 until their plugins have registered anew.
    ///
    /// # Errors
    /// When the API refuses.
    pub async fn kubelet_up(&self) -> anyhow::Result<()> {
        let node = self.node()?;
        node.with(|state| {
            for (_, plugin) in std::mem::take(&mut state.plugins) {
                node.tree.remove(&plugin.socket)?;
            }
            // Capacity, too, is 0 at once after a restart without the plugin.
            state.plugins_gone.clear();
            state.drivers.clear();
            anyhow::Ok(())
        })?;
        node.start_kubelet().await
    }

    /// Down and up.
    ///
    /// # Errors
    /// When the API refuses.
    pub async fn kubelet_restart(&self) -> anyhow::Result<()> {
        self.kubelet_down()?;
        self.kubelet_up().await
    }

    /// Powers the machine off and deletes its Node object, as an autoscaler does.
    ///
    /// # Errors
    /// When the API refuses.
    pub async fn delete(&self) -> anyhow::Result<()> {
        self.power_off()?;
        Api::<Node>::all(self.shared.admin.clone())
            .delete(&self.name, &DeleteParams::default())
            .await?;
        Ok(())
    }

    /// Another machine under the same name: empty disk, new boot ID, new Node object with a new UID.
    ///
    /// # Errors
    /// When the old Node object still exists, or the API refuses.
    pub async fn recreate_same_name(&self, shape: Option<Shape>) -> anyhow::Result<()> {
        let old = self.node()?;
        old.stop(true);
        if Api::<Node>::all(self.shared.admin.clone())
            .get_opt(&self.name)
            .await?
            .is_some()
        {
            bail!("{} still has its Node object; delete it first", self.name);
        }
        let shape = shape.unwrap_or_else(|| old.shape.clone());
        let node = SimNode::new(
            &self.name,
            old.index,
            shape,
            old.client.clone(),
            Arc::clone(&self.shared),
        )?;
        adopt_bound_pods(&self.shared.admin, &node).await?;
        self.nodes.put(Arc::clone(&node));
        node.start().await
    }

    /// Force-deletes a pod whose processes on the node live on for a while (real time): its cgroup, directory and claims stay
    /// that long although the API knows of nothing any more.
    ///
    /// # Errors
    /// When the pod does not exist or does not run here.
    pub async fn force_delete_pod_keep_holder(
        &self,
        namespace: &str,
        name: &str,
        hold: Duration,
    ) -> anyhow::Result<()> {
        let api = Api::<Pod>::namespaced(self.shared.admin.clone(), namespace);
        let uid = api.get(name).await?.uid().context("a pod has a UID")?;
        let node = self.node()?;
        let runs_here = node.with(|state| {
            let here = state.workers.contains_key(&uid);
            if here {
                state.faults.holders.insert(uid, hold);
            }
            here
        });
        anyhow::ensure!(
            runs_here,
            "{namespace}/{name} does not run on {}",
            self.name
        );
        api.delete(name, &DeleteParams::default().grace_period(0))
            .await?;
        Ok(())
    }

    /// Somebody starts a device plugin on the host that is no pod of ours.
    ///
    /// # Errors
    /// When its socket cannot be made.
    pub fn foreign_plugin(&self, resource: &str, count: usize) -> anyhow::Result<()> {
        let ids = (0..count)
            .map(|n| uuid("FOREIGN-", &format!("{}/{resource}/{n}", self.name)))
            .collect();
        self.node()?
            .register_plugin(resource, PluginOwner::Stranger, ids, false)
    }

    /// The foreign plugin ends.
    ///
    /// # Errors
    /// When its socket cannot be removed.
    pub fn foreign_plugin_gone(&self) -> anyhow::Result<()> {
        self.node()?.unregister_plugins(&PluginOwner::Stranger)
    }

    /// A socket that nobody listens on, left by a plugin that crashed: `file` in the device-plugin directory.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn stale_socket(&self, file: &str) -> anyhow::Result<()> {
        // Dropping the listener closes it and leaves the file.
        self.tree(|tree| tree.listen(&format!("{DEVICE_PLUGINS}/{file}")).map(drop))
    }

    /// A registration socket that nobody listens on, left by a DRA driver that crashed.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn stale_registration(&self, driver: &str) -> anyhow::Result<()> {
        self.tree(|tree| {
            tree.listen(&format!(
                "{}/plugins_registry/{driver}-reg.sock",
                tree.kubelet_root()
            ))
            .map(drop)
        })
    }

    /// Removes a stale socket of either kind by its path on the host.
    ///
    /// # Errors
    /// When it cannot be removed.
    pub fn remove_file(&self, host: &str) -> anyhow::Result<()> {
        self.tree(|tree| tree.remove(host))
    }

    /// DRA drivers register but publish nothing, until taken back.
    ///
    /// # Errors
    /// When the node is gone.
    pub fn hold_slices(&self, hold: bool) -> anyhow::Result<()> {
        self.node()?.with(|state| state.faults.hold_slices = hold);
        Ok(())
    }

    /// The node's slices of a driver disappear, and none come until [`Self::hold_slices`] is taken back.
    ///
    /// # Errors
    /// When the API refuses.
    pub async fn stop_slices(&self, driver: &str) -> anyhow::Result<()> {
        self.hold_slices(true)?;
        self.node()?.wipe_slices(Some(driver)).await
    }

    /// Device plugins run but do not register, until taken back. One that has registered stays.
    ///
    /// # Errors
    /// When the node is gone.
    pub fn hold_registration(&self, hold: bool) -> anyhow::Result<()> {
        self.node()?
            .with(|state| state.faults.hold_registration = hold);
        Ok(())
    }
}

/// Waits until `look` finds what it looks for; `Err` in its answer says what it found instead.
///
/// # Errors
/// When it has not in time, with the last thing found; or when `look` itself fails.
pub async fn wait_for<T>(
    what: &str,
    within: Duration,
    mut look: impl AsyncFnMut() -> anyhow::Result<Result<T, String>>,
) -> anyhow::Result<T> {
    let deadline = tokio::time::Instant::now() + within;
    loop {
        match look()
            .await
            .with_context(|| format!("waiting for {what}"))?
        {
            Ok(found) => return Ok(found),
            Err(found) if tokio::time::Instant::now() >= deadline => {
                bail!("waited {within:?} for {what}; found {found}")
            }
            Err(_) => tokio::time::sleep(LOOK).await,
        }
    }
}
