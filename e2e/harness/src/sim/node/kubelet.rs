//! Starting a machine and its kubelet, and what the kubelet tidies up.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use anyhow::Context as _;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::json;

use super::super::claims;
use super::super::node_object::{self, Quantity};
use super::super::options::real;
use super::super::state::PluginOwner;
use super::SimNode;

impl SimNode {
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
}
