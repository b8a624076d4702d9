//! An independent monitor: it watches the whole history of a scenario with eyes of its own and checks that the invariants of the
//! ownership protocol held in every state.
//!
//! | | invariant | what it is checked on |
//! |---|---|---|
//! | I1 | never two live owners of one vendor on one node, no device handed out by both | operand containers, prepared claims and given devices on the node itself; allocatable and slices on the API |
//! | I2 | an operand is never deselected or deleted while the vendor is in use there, or without fence and attestation | every change of owner labels, every deleted DaemonSet and operand pod |
//! | I3 | finalizers and classes go last | the AcceleratorCluster, DeviceClasses |
//! | I4 | nothing foreign is written | the audit log; field managers; what else changed with a write of ours |
//! | I5 | no more nodes in handover than the budget, of the cluster and of the cohort | every fence that goes up |
//! | I6 | status never says Ready about what is not advertised, not in full, or not known | AcceleratorNodes and the AcceleratorCluster, at all times |
//!
//! Two sources tell what happened. The API: raw watches that miss no state, put in one order by resourceVersion, which is etcd's
//! revision over all kinds. And the simulated nodes themselves, which report every change of what really runs on them.
//!
//! The [recorder](recorder) decides nothing, and [`check`] asks nobody: it is a function of the history alone, and is shown to
//! find a planted violation of each invariant.

mod checks;
mod expected;
pub mod facts;
mod recorder;
mod world;

#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Result, ensure};
use freehold_core::names;

pub use checks::{Limits, Violation, check};
use facts::{History, WriteSeen};
use recorder::{Eye, Log, watch_all};

use crate::cluster::{AuditLog, Filter, Mark, TestCluster};
use crate::sim::{Fleet, wait_for};

/// How long the eyes may take to catch up at the end.
const CATCH_UP: Duration = Duration::from_secs(60);
/// The claim in a token that names the node its pod runs on.
const NODE_CLAIM: &str = "authentication.kubernetes.io/node-name";

/// A running monitor.
pub struct Monitor {
    log: Log,
    eyes: Vec<Eye>,
    audit: AuditLog,
    since: Mark,
    limits: Limits,
}

/// What a monitor saw.
#[derive(Debug)]
pub struct Verdict {
    /// What did not hold; empty when all is well.
    pub violations: Vec<Violation>,
    /// The history that was checked.
    pub history: History,
}

impl Monitor {
    /// Starts watching. The CRDs must be there.
    ///
    /// # Errors
    /// When the fleet has an observer already, or the audit log cannot be read.
    pub async fn start(cluster: &TestCluster, fleet: &Fleet, limits: Limits) -> Result<Self> {
        let log = Log::new();
        let (observed, last) = (log.clone(), Arc::new(Mutex::default()));
        fleet.observe(Box::new(move |node, state| {
            observed.observe(&last, node, state);
        }))?;
        let eyes = watch_all(&cluster.admin(), &log);
        let audit = cluster.audit();
        let since = audit.mark().await?;
        let monitor = Self {
            log,
            eyes,
            audit,
            since,
            limits,
        };
        monitor.catch_up().await?;
        Ok(monitor)
    }

    /// Waits until everything that the API server has now was seen.
    ///
    /// # Errors
    /// When it was not in time.
    pub async fn catch_up(&self) -> Result<()> {
        for eye in &self.eyes {
            wait_for("the monitor to catch up", CATCH_UP, async || {
                Ok(eye.behind().await?.map_or(Ok(()), Err))
            })
            .await?;
        }
        Ok(())
    }

    /// Checks everything seen so far, and goes on watching.
    ///
    /// # Errors
    /// When the history is not complete or empty.
    pub async fn check(&self) -> Result<Verdict> {
        self.catch_up().await?;
        let writes = self.writes().await?;
        let mut history = self.log.lock().clone();
        history.end = self.log.elapsed();
        history.writes = writes;
        history.facts.sort_by_key(|fact| fact.version);
        // An empty history would hold everything.
        ensure!(
            !history.facts.is_empty() && !history.truths.is_empty(),
            "the monitor saw nothing"
        );
        let violations = check(&history, &self.limits);
        println!(
            "monitor: {} states of objects, {} of nodes themselves, {} writes of ours over {:.0} s; {} gaps, {} violations",
            history.facts.len(),
            history.truths.len(),
            history.writes.len(),
            history.end.as_secs_f64(),
            history.gaps.len(),
            violations.len()
        );
        Ok(Verdict {
            violations,
            history,
        })
    }

    async fn writes(&self) -> Result<Vec<WriteSeen>> {
        let ours = Filter::all()
            .service_account(names::SYSTEM_NAMESPACE, names::CONTROLLER_SERVICE_ACCOUNT)
            .service_account(names::OPERAND_NAMESPACE, names::AGENT_SERVICE_ACCOUNT)
            .successful();
        let now = jiff::Timestamp::now();
        let elapsed = self.log.elapsed();
        let events = self.audit.writes_since(self.since, &ours).await?.events;
        let writes = events.into_iter().map(|event| {
            let ago = now.duration_since(event.stage_timestamp);
            let object = event.object_ref.clone().unwrap_or_default();
            WriteSeen {
                at: elapsed.saturating_sub(ago.unsigned_abs()),
                by_agent: event
                    .user
                    .username
                    .ends_with(&format!(":{}", names::AGENT_SERVICE_ACCOUNT)),
                token_node: event
                    .user
                    .extra
                    .get(NODE_CLAIM)
                    .and_then(|values| values.first())
                    .cloned(),
                resource: event.resource(),
                verb: event.verb,
                namespace: object.namespace,
                name: object.name,
            }
        });
        Ok(writes.collect())
    }
}

impl Verdict {
    /// Fails on any violation, naming time, node and facts.
    ///
    /// # Errors
    /// When an invariant did not hold.
    pub fn pass(&self) -> Result<()> {
        let lines: Vec<String> = self.violations.iter().map(ToString::to_string).collect();
        ensure!(
            lines.is_empty(),
            "the monitor found {} violations:\n{}",
            lines.len(),
            lines.join("\n")
        );
        Ok(())
    }
}
