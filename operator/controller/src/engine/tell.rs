//! Status: written when it differs, after things have come to rest.

use std::time::{Duration, Instant};

use freehold_api::{AcceleratorCluster, AcceleratorClusterStatus, AcceleratorNode};
use freehold_core::blocker::Blocker;
use freehold_core::names;
use freehold_core::summary::{self, TenureOutcome};
use freehold_core::vendor::{PerVendor, Vendor};
use jiff::Timestamp;

use super::Engine;
use super::answers::Reply;
use super::claims::starting;
use crate::act::WriteError;
use crate::observe::store::Change;
use crate::observe::watches::Event;
use crate::publish;
use crate::wanted::Wanted;

/// Pause after a failed status write; status is never urgent.
const RETRY: Duration = Duration::from_secs(5);

/// What is remembered about the cluster's status.
#[derive(Default)]
pub(super) struct Teller {
    due: Option<Instant>,
    not_before: Option<Instant>,
    busy: bool,
}

impl Teller {
    /// Something that the status tells of may have changed.
    pub(super) fn something_changed(&mut self, now: Instant) {
        let due = self.not_before.map_or(now, |pause| pause.max(now));
        self.due.get_or_insert(due);
    }

    pub(super) const fn due(&self) -> Option<Instant> {
        if self.busy { None } else { self.due }
    }

    pub(super) const fn is_busy(&self) -> bool {
        self.busy
    }

    /// The object that it writes is written, or about to be.
    pub(super) const fn set_busy(&mut self, busy: bool) {
        self.busy = busy;
    }
}

impl Engine {
    /// Writes a node's status if it is due, the node rests, and it differs.
    pub(super) fn tell_node(&mut self, name: &str, now: Instant) {
        let Some(state) = self.nodes.get_mut(name) else {
            return;
        };
        let is_due = Vendor::ALL
            .iter()
            .any(|vendor| state.tell_at.get(*vendor).is_some_and(|due| due <= now));
        if state.busy || !is_due {
            return;
        }
        state.tell_at = PerVendor::default();
        let Some(record) = self.world.records.get(&name.to_owned()) else {
            return;
        };
        let Some(patch) = publish::node::patch(record, &state.outcomes, Timestamp::now()) else {
            return;
        };
        state.busy = true;
        let changed: Vec<TenureOutcome> = Vendor::ALL
            .iter()
            .filter_map(|vendor| {
                let outcome = state.outcomes.get(*vendor).as_ref()?;
                let told = record
                    .status
                    .as_ref()
                    .and_then(|status| status.tenures.vendor(*vendor));
                let why = outcome.why().map(|blocker| blocker.reason);
                let same = told.is_some_and(|told| {
                    told.step == outcome.step && told.reason == why && told.owner == outcome.owner
                });
                (!same).then(|| outcome.clone())
            })
            .collect();
        let (client, reply, permits, recorder, metrics) = (
            self.client.clone(),
            self.reply.clone(),
            self.permits.clone(),
            self.recorder.clone(),
            self.metrics.clone(),
        );
        let (name, record) = (name.to_owned(), record.clone());
        tokio::spawn(async move {
            let permit = permits.acquire_owned().await;
            let result = publish::node::write(client, name.clone(), patch)
                .await
                .map(Box::new);
            let told = result.is_ok();
            let _ = reply.send(Reply::Told { node: name, result });
            drop(permit);
            for outcome in changed.iter().filter(|_| told) {
                match recorder.transition(&record, outcome).await {
                    Ok(()) => metrics.wrote("event", "ok"),
                    Err(error) => {
                        // Events are a courtesy: status says the same and stays.
                        metrics.wrote("event", "failed");
                        tracing::warn!(node = outcome.node, %error, "event not published");
                    }
                }
            }
        });
    }

    pub(super) fn told_node(
        &mut self,
        name: &str,
        result: Result<Box<AcceleratorNode>, WriteError>,
        now: Instant,
    ) {
        let Some(state) = self.nodes.get_mut(name) else {
            return;
        };
        state.busy = false;
        match result {
            Ok(record) => {
                self.metrics.wrote("node_status", "ok");
                // Should it be gone or replaced, the watch has told that already.
                let known = self.world.records.get(&name.to_owned());
                if known.is_some_and(|known| known.metadata.uid == record.metadata.uid) {
                    let change = Change::Applied(name.to_owned(), Some(record));
                    self.world.apply(Event::Record(change), now);
                }
            }
            Err(error) => {
                self.metrics.wrote("node_status", error.category());
                let again = now
                    + if matches!(error, WriteError::Stale) {
                        Duration::from_millis(200)
                    } else {
                        RETRY
                    };
                state.tell_at = PerVendor::from_fn(|_| Some(again));
                self.timers.insert((again, name.to_owned()));
                tracing::debug!(node = name, %error, "status not written");
            }
        }
        self.world.dirty.nodes.insert(name.to_owned());
    }

    pub(super) fn outcomes(&self) -> Vec<TenureOutcome> {
        self.nodes
            .values()
            .flat_map(|state| {
                Vendor::ALL
                    .into_iter()
                    .filter_map(|vendor| state.outcomes.get(vendor).clone())
            })
            .collect()
    }

    /// The status as it should be, without claims that are spent.
    pub(super) fn cluster_status(
        &self,
        cluster: &AcceleratorCluster,
        wanted: &Wanted,
        outcomes: &[TenureOutcome],
    ) -> AcceleratorClusterStatus {
        let mut status = match &wanted.problems {
            Some(problems) => {
                publish::cluster::invalid(cluster, summary::invalid(problems), Timestamp::now())
            }
            None => {
                let cluster_wide: Vec<(Blocker, i64)> = self.keeper.blockers();
                let summary = summary::summarize(&wanted.intent, outcomes, &cluster_wide, true);
                publish::cluster::status(cluster, &wanted.intent, summary, Timestamp::now())
            }
        };
        if let (Some((outdated, since_s)), None) = (&self.definitions.outdated, &wanted.problems) {
            // Nobody was looked at: what is said of nodes stays as it was, and why is said before everything else.
            let before = cluster.status.clone().unwrap_or_default();
            let blockers = [(outdated.clone(), *since_s)];
            let summary = summary::summarize(&wanted.intent, outcomes, &blockers, true);
            status = publish::cluster::status(cluster, &wanted.intent, summary, Timestamp::now());
            (status.nodes, status.cohorts) = (before.nodes, before.cohorts);
        }
        status.starting = self.open_claims(cluster).map(starting).collect();
        status
    }

    /// Writes the cluster's status if anything may have changed and it differs.
    pub(super) fn tell_cluster(&mut self, now: Instant) {
        if self.teller.busy || self.teller.due.is_none_or(|due| due > now) {
            return;
        }
        self.teller.due = None;
        // Summing up a large fleet costs milliseconds: a burst of changes is summed up once.
        self.teller.not_before = Some(now + Duration::from_millis(self.options.status_rest_ms));
        let Some(wanted) = self.wanted.clone() else {
            return;
        };
        let Some(cluster) = self.world.cluster() else {
            return;
        };
        let outcomes = self.outcomes();
        self.metrics.set_nodes(outcomes.iter().map(|outcome| {
            let owner = outcome
                .owner
                .map_or("none", freehold_core::vendor::Owner::word);
            let why = outcome.why().map(|blocker| blocker.reason);
            (outcome.vendor, owner, outcome.step, why)
        }));
        let mut status = self.cluster_status(cluster, &wanted, &outcomes);
        // Claims that are spent alone are no reason to write.
        let told = cluster.status.clone().unwrap_or_default();
        let open = std::mem::replace(&mut status.starting, told.starting.clone());
        let same = cluster.status.is_some() && told == status;
        status.starting = open;
        if same {
            return;
        }
        self.teller.busy = true;
        let (client, reply, cluster) = (self.client.clone(), self.reply.clone(), cluster.clone());
        tokio::spawn(async move {
            let result = publish::cluster::write(client, &cluster, status)
                .await
                .map(Box::new);
            let _ = reply.send(Reply::Cluster { result });
        });
    }

    pub(super) fn take_cluster(
        &mut self,
        result: Result<Box<AcceleratorCluster>, WriteError>,
        now: Instant,
    ) {
        self.teller.busy = false;
        self.keeper.finalizing = false;
        match result {
            Ok(cluster) => {
                self.metrics.wrote("cluster_status", "ok");
                let gone = cluster.metadata.deletion_timestamp.is_some()
                    && cluster
                        .metadata
                        .finalizers
                        .iter()
                        .flatten()
                        .next()
                        .is_none();
                let change = if gone {
                    Change::Deleted(names::SINGLETON.to_owned())
                } else {
                    Change::Applied(names::SINGLETON.to_owned(), Some(cluster))
                };
                self.world.apply(Event::Cluster(change), now);
            }
            Err(error) => {
                self.metrics.wrote("cluster_status", error.category());
                self.teller.due = Some(
                    now + if matches!(error, WriteError::Stale) {
                        Duration::from_millis(200)
                    } else {
                        RETRY
                    },
                );
                self.keeper.retry_at(now + RETRY);
                tracing::debug!(%error, "status or finalizer of the AcceleratorCluster not written");
            }
        }
    }
}
