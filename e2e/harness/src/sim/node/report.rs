//! What a kubelet sends by itself: node status, Lease, Events.

use std::sync::Arc;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::json;

use super::super::node_object;
use super::super::options::{LEASE_RENEWAL, LEASE_SECONDS, STATUS_HEARTBEAT, real};
use super::SimNode;

/// Namespace of node Leases.
const LEASE_NAMESPACE: &str = "kube-node-lease";

impl SimNode {
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

    pub(super) async fn keep_status(self: Arc<Self>) {
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

    pub(super) async fn keep_lease(self: Arc<Self>) {
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
