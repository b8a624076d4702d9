//! Leadership. It keeps two replicas from doing the same work; it is not what keeps a node from having two owners: every write
//! carries the resourceVersion it was decided on, leader or not.

use anyhow::Context as _;
use freehold_core::names;
use kube::Client;
use kube_lease_manager::LeaseManagerBuilder;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::options::Options;

/// Takes part in the election; the receiver tells whether this replica leads.
///
/// # Errors
/// When the Lease cannot be made or read.
pub(crate) async fn join(
    client: Client,
    options: &Options,
) -> anyhow::Result<(watch::Receiver<bool>, JoinHandle<()>)> {
    let manager = LeaseManagerBuilder::new(client, names::LEASE)
        .with_namespace(names::SYSTEM_NAMESPACE)
        .with_identity(&options.identity)
        .with_field_manager(format!(
            "{}-lease-{}",
            names::CONTROLLER_FIELD_MANAGER,
            options.identity
        ))
        .with_duration(options.lease_seconds)
        .with_grace(options.lease_seconds / 2)
        .build()
        .await
        .with_context(|| format!("Lease {}/{}", names::SYSTEM_NAMESPACE, names::LEASE))?;
    let (leading, task) = manager.watch().await;
    let task = tokio::spawn(async move {
        match task.await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => {
                tracing::error!(%error, "the lease task ended; this replica does not lead any more");
            }
            Err(error) => {
                tracing::error!(%error, "the lease task broke; this replica does not lead any more");
            }
        }
    });
    Ok((leading, task))
}
