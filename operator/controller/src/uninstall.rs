//! The check before an uninstallation.

use anyhow::{Context as _, bail};
use freehold_api::AcceleratorCluster;
use freehold_core::names;
use kube::{Api, Client};

/// Refuses while an AcceleratorCluster exists: without a controller its nodes would keep their owners, and nobody would hand
/// them back. Changes nothing.
///
/// # Errors
/// When it exists, or when the API server cannot tell.
pub async fn uninstall_check() -> anyhow::Result<()> {
    let client = Client::try_default()
        .await
        .context("no kubeconfig and no in-cluster configuration")?;
    let intents = Api::<AcceleratorCluster>::all(client);
    let name = names::SINGLETON;
    let intent = match intents.get_metadata(name).await {
        Ok(intent) => intent,
        // Also where the definition is gone, and with it the whole API group.
        Err(kube::Error::Api(status)) if status.code == 404 => return Ok(()),
        Err(error) => {
            return Err(error).with_context(|| format!("reading AcceleratorCluster {name}"));
        }
    };
    if intent.metadata.deletion_timestamp.is_some() {
        bail!(
            "AcceleratorCluster {name} is being deleted: Freehold is still handing its nodes back, one by one. Wait until it is gone \
             (kubectl get acceleratorcluster,acceleratornodes tells what it waits for), then uninstall again."
        );
    }
    bail!(
        "AcceleratorCluster {name} exists: without Freehold its nodes would keep their owners, and nobody would hand them back. \
         Delete it first (kubectl delete acceleratorcluster {name}), wait until it is gone, then uninstall again. To leave \
         everything running as it is on purpose, uninstall without hooks (helm uninstall --no-hooks)."
    );
}
