//! What the scenarios here have in common.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use anyhow::{Context as _, Result};
use freehold_core::names;
use freehold_core::vendor::{Owner, Vendor};
use freehold_e2e::cluster::{AuditEvent, Filter, Mark, TestCluster};
pub use freehold_e2e::scenario::edit_intent as edit;
use freehold_e2e::scenario::{SOON, Scenario};
use freehold_e2e::sim::wait_for;
use serde_json::json;

/// A cohort of two GPU nodes, one of a Trainium node, and a size of each.
pub const INTENT: &str = r"
apiVersion: v1
kind: Namespace
metadata: {name: ml}
---
apiVersion: freehold.dev/v1alpha1
kind: AcceleratorCluster
metadata: {name: cluster}
spec:
  cohorts:
  - {name: duo, vendor: NVIDIA, owner: DevicePlugin, nodeSelector: {matchLabels: {pool: duo}}}
  - {name: trn, vendor: Neuron, owner: DevicePlugin, nodeSelector: {matchLabels: {node.kubernetes.io/instance-type: trn2.48xlarge}}}
  sizes:
  - {name: one-gpu, vendor: NVIDIA, namespaces: [ml], devices: {count: 1}}
  - {name: one-trn, vendor: Neuron, namespaces: [ml], devices: {count: 1}}
  rollout: {maxUnavailable: 1, canary: {nodes: 0, soak: 1s}}
";

/// Gives a cohort, by its place in the list, another owner.
pub async fn give_to(cluster: &TestCluster, cohort: usize, owner: Owner) -> Result<()> {
    edit(
        cluster,
        json!([{"op": "replace", "path": format!("/spec/cohorts/{cohort}/owner"), "value": owner}]),
    )
    .await
}

/// Waits until a node is held, and its own record and the cluster say that all is well.
pub async fn settled(scenario: &Scenario, nodes: &[(&str, Vendor, Owner)]) -> Result<()> {
    for (node, vendor, owner) in nodes {
        scenario.wait_until_settled(node, *vendor, *owner).await?;
    }
    Ok(())
}

/// Freehold's writes about nodes, its reports and statuses included: per node, by what was written. A node's handover begins with
/// its fence; what is told while it waits for its turn is not counted.
#[derive(Debug, Default)]
pub struct NodeWrites(BTreeMap<String, BTreeMap<String, usize>>);

impl NodeWrites {
    pub async fn since(cluster: &TestCluster, mark: Mark) -> Result<Self> {
        let filter = Filter::all()
            .service_account(names::SYSTEM_NAMESPACE, names::CONTROLLER_SERVICE_ACCOUNT)
            .service_account(names::OPERAND_NAMESPACE, names::AGENT_SERVICE_ACCOUNT)
            .successful();
        let mut counted = Self::default();
        for event in cluster.audit().writes_since(mark, &filter).await?.events {
            let begins = event.resource() == "nodes";
            if is_about_a_node(&event) && (begins || counted.0.contains_key(event.name())) {
                let agent = event.user.username.ends_with(names::AGENT_SERVICE_ACCOUNT);
                let who = if agent { "agent" } else { "controller" };
                let what = format!("{who} {} {}", event.verb, event.resource());
                let node = counted.0.entry(event.name().to_owned()).or_default();
                *node.entry(what).or_default() += 1;
            }
        }
        Ok(counted)
    }

    /// What one of the two (`controller` or `agent`) wrote about a node.
    pub fn of(&self, node: &str, who: &str) -> usize {
        let writes = self.0.get(node).into_iter().flatten();
        writes
            .filter(|(what, _)| what.starts_with(who))
            .map(|(_, count)| count)
            .sum()
    }
}

pub fn is_about_a_node(event: &AuditEvent) -> bool {
    let resource = event
        .object_ref
        .as_ref()
        .map(|object| object.resource.as_str());
    matches!(resource, Some("nodes" | "acceleratornodes"))
}

impl fmt::Display for NodeWrites {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (node, writes) in &self.0 {
            writeln!(f, "  {node}: {}", writes.values().sum::<usize>())?;
            for (what, count) in writes {
                writeln!(f, "    {count:>3}  {what}")?;
            }
        }
        Ok(())
    }
}

/// Waits until nothing of ours was written for a while, then counts what is written over `rest`.
pub async fn writes_at_rest(scenario: &Scenario, rest: Duration) -> Result<usize> {
    const QUIET: Duration = Duration::from_secs(3);
    wait_for("writes to end", SOON, async || {
        let mark = scenario.cluster.audit().mark().await?;
        tokio::time::sleep(QUIET).await;
        let writes = scenario.our_writes(mark).await?.values().sum::<usize>();
        Ok(if writes == 0 {
            Ok(())
        } else {
            Err(format!("{writes} writes in {QUIET:?}"))
        })
    })
    .await?;
    let mark = scenario.cluster.audit().mark().await?;
    tokio::time::sleep(rest).await;
    Ok(scenario.our_writes(mark).await?.values().sum())
}

/// The controller's client, for scenarios that break the rules in its name.
pub async fn as_controller(cluster: &TestCluster) -> Result<kube::Client> {
    let token = cluster
        .service_account_token(
            names::SYSTEM_NAMESPACE,
            names::CONTROLLER_SERVICE_ACCOUNT,
            None,
        )
        .await?;
    cluster
        .client_for_token(&token)
        .context("a client with the controller's token")
}
