//! What comes back from writes and fresh reads beside the engine.

use std::time::{Duration, Instant};

use freehold_api::AcceleratorNode;
use freehold_core::vendor::Vendor;

use super::Engine;
use crate::act::WriteError;
use crate::act::node::Written;
use crate::decide::Pass;
use crate::observe::entry::NodeEntry;
use crate::observe::fresh::FreshView;
use crate::observe::store::Change;
use crate::observe::watches::Event;

/// First pause after a write that failed for another reason than a change; doubled each time.
const BACKOFF_FIRST: Duration = Duration::from_millis(500);
/// Longest pause.
const BACKOFF_MAX: Duration = Duration::from_secs(60);

/// What comes back from tasks beside the engine.
pub(super) enum Reply {
    /// A guarded write about a node.
    Wrote {
        node: String,
        vendor: Vendor,
        began: Instant,
        result: Result<Written, WriteError>,
    },
    /// A fresh read of a node.
    Read {
        node: String,
        vendor: Vendor,
        began: Instant,
        result: Result<Box<FreshView>, WriteError>,
    },
    /// A status write of a node.
    Told {
        node: String,
        result: Result<Box<AcceleratorNode>, WriteError>,
    },
    /// Writes of kept objects.
    Kept(Vec<super::keep::Kept>),
    /// What was read before places are claimed.
    Places(Result<Box<super::claims::Places>, WriteError>),
    /// A write of claims.
    Claimed {
        result: Result<Box<freehold_api::AcceleratorCluster>, WriteError>,
    },
    /// A write of the cluster's status or finalizer.
    Cluster {
        result: Result<Box<freehold_api::AcceleratorCluster>, WriteError>,
    },
}

impl Engine {
    pub(super) fn take_reply(&mut self, reply: Reply) {
        let now = Instant::now();
        match reply {
            Reply::Wrote {
                node,
                vendor,
                began,
                result,
            } => {
                self.metrics
                    .write_seconds
                    .observe(began.elapsed().as_secs_f64());
                self.wrote(&node, vendor, result, now);
            }
            Reply::Read {
                node,
                vendor,
                began,
                result,
            } => match result {
                Ok(fresh) => self.decide_fresh(&node, vendor, *fresh, began, now),
                Err(error) => self.failed(&node, vendor, &error, now),
            },
            Reply::Told { node, result } => self.told_node(&node, result, now),
            Reply::Kept(kept) => self.take_kept(kept, now),
            Reply::Places(read) => self.take_places(read, now),
            Reply::Claimed { result } => self.take_claimed(result, now),
            Reply::Cluster { result } => self.take_cluster(result, now),
        }
    }

    /// Decides on fresh reads, and writes at once if the answer is a write.
    fn decide_fresh(
        &mut self,
        name: &str,
        vendor: Vendor,
        fresh: FreshView,
        began: Instant,
        now: Instant,
    ) {
        let state = self.nodes.entry(name.to_owned()).or_default();
        state.busy = false;
        let again = std::mem::take(&mut state.again);
        let mut refusals = std::mem::take(&mut state.refusals);
        refusals.keep(&fresh.pods);
        if !self.acts() {
            self.nodes.entry(name.to_owned()).or_default().refusals = refusals;
            return;
        }
        let Some(wanted) = self
            .wanted
            .clone()
            .filter(|wanted| wanted.problems.is_none())
        else {
            return;
        };
        let (Some(known), Some(read)) = (
            self.world.nodes.get(&name.to_owned()).cloned(),
            fresh.node.clone(),
        ) else {
            self.world.dirty.nodes.insert(name.to_owned());
            return;
        };
        let Some((keys, _)) = &self.node_watch else {
            return;
        };
        let entry = NodeEntry::new(read, keys);
        let cluster = self.world.cluster_view(&self.server_version, self.dra_api);
        let pass = Pass {
            world: &self.world,
            intent: &wanted.intent,
            cluster: &cluster,
            tearing_down: wanted.tearing_down,
            limits: self.limits,
            label_keys: keys,
            refusals: &refusals,
            now,
        };
        // What was read serves both vendors: the one that asked goes first.
        let mut order = Vendor::ALL;
        order.sort_by_key(|of| *of != vendor);
        let verdicts = order.map(|vendor| {
            let may_start = |cohort: Option<&str>| self.may_start(name, vendor, cohort);
            (
                vendor,
                pass.decide(
                    vendor,
                    &known,
                    Some(&fresh),
                    may_start,
                    |node| self.claimed(node, vendor),
                    self.memory(&entry, vendor),
                ),
            )
        });
        self.nodes.entry(name.to_owned()).or_default().refusals = refusals;
        let mut write = None;
        for (vendor, verdict) in verdicts {
            self.note(name, vendor, &entry, &verdict, now);
            self.ask_for_place(name, vendor, verdict.decision.needs_claim);
            if let Some(seconds) = verdict.decision.wake_s {
                self.wake(name, seconds, now);
            }
            if let Some(decided) = verdict.decision.write {
                write.get_or_insert((vendor, decided));
            }
        }
        if let Some((vendor, write)) = write {
            self.write(entry, fresh.record, vendor, write, began);
        } else if again {
            // What changed meanwhile may be what was waited for.
            self.world.dirty.nodes.insert(name.to_owned());
        } else {
            // Nothing to write after all: what stands in the way is told, and looked at again in time or on change.
            self.tell_node(name, now);
        }
    }

    fn wrote(
        &mut self,
        name: &str,
        vendor: Vendor,
        result: Result<Written, WriteError>,
        now: Instant,
    ) {
        match result {
            Ok(written) => {
                let state = self.nodes.entry(name.to_owned()).or_default();
                state.busy = false;
                state.failures = 0;
                state.not_before = None;
                self.learn(name, written, now);
            }
            // An answer, not a failure: what it says is told at once, and other consumers are asked meanwhile.
            Err(WriteError::DisruptionBudget { uid, words }) => {
                self.metrics.wrote("pod", "disruption_budget");
                let state = self.nodes.entry(name.to_owned()).or_default();
                state.busy = false;
                state.refusals.refused(uid, words, now);
            }
            Err(error) => self.failed(name, vendor, &error, now),
        }
        self.world.dirty.nodes.insert(name.to_owned());
    }

    /// What a write returned is known at once, not only when the watch tells.
    fn learn(&mut self, name: &str, written: Written, now: Instant) {
        let event = match written {
            Written::Node(node) => {
                self.metrics.wrote("node", "ok");
                let known = self.world.nodes.get(&name.to_owned());
                if known.map(|known| known.view.uid.as_str()) != node.metadata.uid.as_deref() {
                    // It went, or was replaced, meanwhile; the watch has told that already.
                    return;
                }
                let Some((keys, _)) = &self.node_watch else {
                    return;
                };
                Event::Node(Change::Applied(
                    name.to_owned(),
                    Some(Box::new(NodeEntry::new(*node, keys))),
                ))
            }
            Written::Record(record) => {
                self.metrics.wrote("record", "ok");
                if self.world.nodes.get(&name.to_owned()).is_none() {
                    return;
                }
                Event::Record(Change::Applied(name.to_owned(), Some(record)))
            }
            Written::RecordGone => {
                self.metrics.wrote("record", "ok");
                Event::Record(Change::Deleted(name.to_owned()))
            }
            Written::Pod => {
                self.metrics.wrote("pod", "ok");
                return;
            }
        };
        self.world.apply(event, now);
    }

    pub(super) fn failed(&mut self, name: &str, vendor: Vendor, error: &WriteError, now: Instant) {
        self.metrics.wrote("node", error.category());
        let state = self.nodes.entry(name.to_owned()).or_default();
        state.busy = false;
        state.failures = state.failures.saturating_add(1);
        let pause = BACKOFF_FIRST
            .saturating_mul(1 << (state.failures - 1).min(7))
            .min(BACKOFF_MAX);
        state.not_before = Some(now + pause);
        self.timers.insert((now + pause, name.to_owned()));
        match error {
            WriteError::Stale => tracing::debug!(
                node = name,
                vendor = vendor.key(),
                "decided on an older state; looking again"
            ),
            WriteError::Refused(_)
            | WriteError::DisruptionBudget { .. }
            | WriteError::NotOurs(_)
            | WriteError::Unavailable(_) => {
                tracing::warn!(node = name, vendor = vendor.key(), %error, ?pause, "write failed; trying again");
            }
        }
    }
}
