//! Nodes: decide, write, take the answer in.

use std::time::{Duration, Instant};

use freehold_api::AcceleratorNode;
use freehold_core::summary::TenureOutcome;
use freehold_core::tenure::{Step, Write};
use freehold_core::vendor::{PerVendor, Vendor};
use jiff::Timestamp;

use super::Engine;
use crate::act::WriteError;
use crate::act::node::{NodeAct, Written};
use crate::decide::{Pass, Verdict};
use crate::observe::consumers::Refusals;
use crate::observe::entry::NodeEntry;
use crate::observe::fresh::FreshView;
use crate::observe::store::Change;
use crate::observe::watches::Event;

/// First pause after a write that failed for another reason than a change; doubled each time.
const BACKOFF_FIRST: Duration = Duration::from_millis(500);
/// Longest pause.
const BACKOFF_MAX: Duration = Duration::from_secs(60);

/// A step of a handover that nothing holds up is told once it has lasted for so many rests: with seven orders and the agent's
/// answers, a status for each step would double what a handover writes.
const PASSING_RESTS: u32 = 10;

/// What is remembered about a node beside the world. Losing it costs time, never safety.
#[derive(Default)]
pub(super) struct NodeState {
    /// A write or fresh read is under way.
    busy: bool,
    failures: u32,
    not_before: Option<Instant>,
    pub(super) outcomes: PerVendor<Option<TenureOutcome>>,
    /// When its status is due to be written, once the node has come to rest.
    pub(super) tell_at: Option<Instant>,
    refusals: Refusals,
    /// The step that each tenure is in, and since when. Reasons come and go within a step; what a step may take counts from
    /// its beginning.
    steps: PerVendor<Option<(Step, i64)>>,
}

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
        result: kube::Result<Box<FreshView>>,
    },
    /// A status write of a node.
    Told {
        node: String,
        result: Result<Box<AcceleratorNode>, WriteError>,
    },
    /// Writes of kept objects.
    Kept(Vec<super::keep::Kept>),
    /// A write of the cluster's status or finalizer.
    Cluster {
        result: Result<Box<freehold_api::AcceleratorCluster>, WriteError>,
    },
}

impl NodeState {
    pub(super) const fn busy(&self) -> bool {
        self.busy
    }

    pub(super) const fn set_busy(&mut self) {
        self.busy = true;
    }

    pub(super) const fn clear_busy(&mut self) {
        self.busy = false;
    }
}

impl Engine {
    pub(super) fn look_at_nodes(&mut self, now: Instant) {
        let names: Vec<String> = if std::mem::take(&mut self.world.dirty.all_nodes) {
            self.world.dirty.nodes.clear();
            let known: std::collections::BTreeSet<String> = self
                .world
                .nodes
                .iter()
                .map(|(name, _)| name.clone())
                .chain(self.nodes.keys().cloned())
                .collect();
            known.into_iter().collect()
        } else {
            std::mem::take(&mut self.world.dirty.nodes)
                .into_iter()
                .collect()
        };
        if names.is_empty() {
            return;
        }
        self.teller.something_changed(now);
        let cluster = self.world.cluster_view(&self.server_version, self.dra_api);
        for name in names {
            self.look_at_node(&name, &cluster, now);
        }
    }

    fn look_at_node(
        &mut self,
        name: &str,
        cluster: &freehold_core::assign::ClusterView,
        now: Instant,
    ) {
        // A resource that does not parse changes nothing: owners stay as they are until it does.
        let Some(wanted) = self
            .wanted
            .clone()
            .filter(|wanted| wanted.problems.is_none())
        else {
            return;
        };
        let Some(entry) = self.world.nodes.get(&name.to_owned()).cloned() else {
            // The Node is gone, and with it, through the owner reference, its AcceleratorNode.
            self.nodes.remove(name);
            return;
        };
        let mut act = None;
        let mut wake: Option<u64> = None;
        // They only matter to decisions on fresh reads.
        let refusals = Refusals::default();
        for vendor in Vendor::ALL {
            let lasted = self.lasted(name, vendor);
            let pass = Pass {
                world: &self.world,
                intent: &wanted.intent,
                cluster,
                tearing_down: wanted.tearing_down,
                limits: self.limits,
                label_keys: self
                    .node_watch
                    .as_ref()
                    .map(|(keys, _)| &**keys)
                    .unwrap_or(&wanted.no_keys),
                refusals: &refusals,
                now,
            };
            let verdict = pass.decide(
                vendor,
                &entry,
                None,
                |cohort| self.may_start(name, vendor, cohort),
                lasted,
            );
            wake = [wake, verdict.decision.wake_s].into_iter().flatten().min();
            if verdict.decision.needs_fresh {
                // Only the answer on fresh reads is worth telling; this one lacks half the facts.
                act.get_or_insert((vendor, None));
                continue;
            }
            self.note(name, vendor, &entry, &verdict, now);
            if let Some(write) = verdict.decision.write {
                act.get_or_insert((vendor, Some(write)));
            }
        }
        if let Some(seconds) = wake {
            self.timers
                .insert((now + Duration::from_secs(seconds.max(1)), name.to_owned()));
        }
        let state = self.nodes.entry(name.to_owned()).or_default();
        if state.busy {
            return;
        }
        if let Some(pause) = state.not_before.filter(|pause| *pause > now) {
            if act.is_some() {
                self.timers.insert((pause, name.to_owned()));
            }
            return;
        }
        match act {
            Some((vendor, None)) => self.read_fresh(name, vendor, now),
            Some((vendor, Some(write))) => {
                let record = self
                    .world
                    .records
                    .get(&name.to_owned())
                    .map(|record| (**record).clone());
                self.write(*entry, record, vendor, write, now);
            }
            None => self.tell_node(name, now),
        }
    }

    /// Remembers where a tenure stands. Its age is that of its step and reason together.
    fn note(
        &mut self,
        name: &str,
        vendor: Vendor,
        entry: &NodeEntry,
        verdict: &Verdict,
        now: Instant,
    ) {
        let Verdict {
            assignment,
            decision,
        } = verdict;
        let told = self
            .world
            .records
            .get(&name.to_owned())
            .and_then(|record| record.status.as_ref())
            .and_then(|status| status.tenures.vendor(vendor));
        let holding = entry.cohort(vendor).cloned();
        let has_part = self
            .world
            .records
            .get(&name.to_owned())
            .is_some_and(|record| record.spec.vendor(vendor).is_some());
        let began_s = match self.step_began(name, vendor) {
            Some((step, began_s)) if step == decision.step => began_s,
            Some(_) | None => Timestamp::now().as_second(),
        };
        let state = self.nodes.entry(name.to_owned()).or_default();
        *state.steps.get_mut(vendor) = Some((decision.step, began_s));
        if assignment.cohort.is_none()
            && holding.is_none()
            && !has_part
            && decision.step == Step::None
        {
            if state.outcomes.get_mut(vendor).take().is_some() {
                state.tell_at.get_or_insert(now);
                self.pacer.something_changed();
            }
            return;
        }
        let why = decision
            .blocker
            .as_ref()
            .or(assignment.excluded.as_ref())
            .map(|blocker| blocker.reason);
        let known = state.outcomes.get(vendor).as_ref();
        let since_s = match known {
            Some(known)
                if (
                    known.step,
                    known
                        .blocker
                        .as_ref()
                        .or(known.excluded.as_ref())
                        .map(|b| b.reason),
                ) == (decision.step, why) =>
            {
                known.since_s
            }
            // After a restart the clock goes on from what was last told.
            None => match told {
                Some(told) if told.step == decision.step && told.reason == why => {
                    told.since.0.as_second()
                }
                _ => Timestamp::now().as_second(),
            },
            Some(_) => Timestamp::now().as_second(),
        };
        let outcome = TenureOutcome {
            node: name.to_owned(),
            vendor,
            matched: assignment.cohort.is_some(),
            cohort: assignment.cohort.clone().or(holding),
            owner: entry.owner(vendor).and_then(Result::ok),
            excluded: assignment.excluded.clone(),
            step: decision.step,
            blocker: decision.blocker.clone(),
            since_s,
        };
        if known != Some(&outcome) {
            let passing = known.is_some_and(|known| passes(known) && passes(&outcome));
            *state.outcomes.get_mut(vendor) = Some(outcome);
            self.pacer.something_changed();
            let rest = Duration::from_millis(self.options.status_rest_ms);
            let due = match state.tell_at {
                // That a node has left its owner is told soon, whatever steps it passes through meanwhile.
                Some(soon) if passing && soon <= now + rest => soon,
                Some(_) | None if passing => now + rest * PASSING_RESTS,
                Some(_) | None => now + rest,
            };
            state.tell_at = Some(due);
            self.timers.insert((due, name.to_owned()));
        }
    }

    /// The step that a tenure is in and since when. After a restart it goes on from what was last told.
    fn step_began(&self, name: &str, vendor: Vendor) -> Option<(Step, i64)> {
        let known = self
            .nodes
            .get(name)
            .and_then(|state| *state.steps.get(vendor));
        known.or_else(|| {
            let record = self.world.records.get(&name.to_owned())?;
            let told = record.status.as_ref()?.tenures.vendor(vendor)?;
            Some((told.step, told.since.0.as_second()))
        })
    }

    /// The step that a tenure is in and for how many seconds.
    fn lasted(&self, name: &str, vendor: Vendor) -> Option<(Step, u64)> {
        let (step, began_s) = self.step_began(name, vendor)?;
        let seconds = Timestamp::now().as_second().saturating_sub(began_s);
        Some((step, u64::try_from(seconds).unwrap_or(0)))
    }

    fn read_fresh(&mut self, name: &str, vendor: Vendor, began: Instant) {
        self.nodes.entry(name.to_owned()).or_default().busy = true;
        let (reader, reply, permits, node) = (
            self.reader.clone(),
            self.reply.clone(),
            self.permits.clone(),
            name.to_owned(),
        );
        tokio::spawn(async move {
            let _permit = permits.acquire_owned().await;
            let result = reader.read(&node).await.map(Box::new);
            // The engine is gone only when the process ends.
            let _ = reply.send(Reply::Read {
                node,
                vendor,
                began,
                result,
            });
        });
    }

    fn write(
        &mut self,
        node: NodeEntry,
        record: Option<AcceleratorNode>,
        vendor: Vendor,
        write: Write,
        began: Instant,
    ) {
        let name = node.view.name.clone();
        self.nodes.entry(name.clone()).or_default().busy = true;
        tracing::info!(node = name, vendor = vendor.key(), ?write, "writing");
        let owner_alias = self
            .wanted
            .as_ref()
            .and_then(|wanted| wanted.intent.owner_alias.clone());
        let act = NodeAct {
            vendor,
            write,
            node,
            record,
            owner_alias,
        };
        let (client, reply, permits) = (
            self.client.clone(),
            self.reply.clone(),
            self.permits.clone(),
        );
        tokio::spawn(async move {
            let _permit = permits.acquire_owned().await;
            let result = act.perform(client).await;
            let _ = reply.send(Reply::Wrote {
                node: name,
                vendor,
                began,
                result,
            });
        });
    }

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
                Err(error) => self.failed(&node, vendor, &error.into(), now),
            },
            Reply::Told { node, result } => self.told_node(&node, result, now),
            Reply::Kept(kept) => self.take_kept(kept, now),
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
        let mut refusals = std::mem::take(&mut state.refusals);
        refusals.keep(&fresh.pods);
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
        let verdict = pass.decide(
            vendor,
            &known,
            Some(&fresh),
            |cohort| self.may_start(name, vendor, cohort),
            self.lasted(name, vendor),
        );
        self.nodes.entry(name.to_owned()).or_default().refusals = refusals;
        self.note(name, vendor, &entry, &verdict, now);
        if let Some(seconds) = verdict.decision.wake_s {
            self.timers
                .insert((now + Duration::from_secs(seconds.max(1)), name.to_owned()));
        }
        match verdict.decision.write {
            Some(write) => self.write(entry, fresh.record, vendor, write, began),
            // Nothing to write after all: what stands in the way is told, and looked at again in time or on change.
            None => self.tell_node(name, now),
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

/// Whether a node passes through a step behind its fence, and nothing holds it up.
fn passes(outcome: &TenureOutcome) -> bool {
    match outcome.step {
        Step::Fence
        | Step::Drain
        | Step::Attest
        | Step::Revoke
        | Step::Vacate
        | Step::Reshape
        | Step::HandWord
        | Step::Grant
        | Step::Verify
        | Step::Unfence => outcome.blocker.is_none(),
        Step::None | Step::Discover | Step::Held | Step::Hold => false,
    }
}
