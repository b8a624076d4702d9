//! Nodes: look, decide, and start the write or fresh read that follows. At most one is under way for a node.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use freehold_api::AcceleratorNode;
use freehold_core::assign::ClusterView;
use freehold_core::summary::TenureOutcome;
use freehold_core::tenure::{GivenUp, NodeWrite, Step, Write};
use freehold_core::vendor::{PerVendor, Vendor};

use super::Engine;
use super::answers::Reply;
use super::marks::MarksState;
use crate::act::WriteError;
use crate::act::node::NodeAct;
use crate::decide::Pass;
use crate::observe::consumers::Refusals;
use crate::observe::entry::NodeEntry;

/// A fresh read takes milliseconds, a list of every claim of a large cluster some seconds.
const READ_TIMEOUT: Duration = Duration::from_secs(60);

/// What is remembered about a node beside the world. Losing it costs time, never safety.
#[derive(Default)]
pub(super) struct NodeState {
    /// A write or fresh read is under way.
    pub(super) busy: bool,
    /// Something that calls for an answer changed while it was under way.
    pub(super) again: bool,
    pub(super) failures: u32,
    pub(super) not_before: Option<Instant>,
    /// When the next look that decisions asked for is due.
    pub(super) wake_at: Option<Instant>,
    pub(super) outcomes: PerVendor<Option<TenureOutcome>>,
    /// When its status is due to be written, for each vendor's news.
    pub(super) tell_at: PerVendor<Option<Instant>>,
    pub(super) refusals: Refusals,
    /// The step that each tenure is in, and since when. Reasons come and go within a step; what a step may take counts from
    /// its beginning.
    pub(super) steps: PerVendor<Option<(Step, i64)>>,
    pub(super) marks: MarksState,
    pub(super) given_up: PerVendor<Option<GivenUp>>,
}

impl Engine {
    pub(super) fn look_at_nodes(&mut self, now: Instant) {
        let names: Vec<String> = if std::mem::take(&mut self.world.dirty.all_nodes) {
            self.world.dirty.nodes.clear();
            // Also with no node at all: that is worth telling too.
            self.teller.something_changed(now);
            let known: BTreeSet<String> = self
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
        let cluster = self.world.cluster_view(&self.server_version, self.dra_api);
        for name in names {
            self.look_at_node(&name, &cluster, now);
        }
    }

    fn look_at_node(&mut self, name: &str, cluster: &ClusterView, now: Instant) {
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
            if self.nodes.remove(name).is_some() {
                // Its place in the window is free.
                self.pacer.something_changed();
                self.teller.something_changed(now);
            }
            return;
        };
        let mut act = None;
        let mut wake: Option<u64> = None;
        // They only matter to decisions on fresh reads.
        let refusals = Refusals::default();
        for vendor in Vendor::ALL {
            self.remember_given_up(&entry, vendor);
            let memory = self.memory(&entry, vendor);
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
                |node| self.claimed(node, vendor),
                memory,
            );
            let asks = verdict.decision.needs_claim && self.may_act(name, now);
            self.ask_for_place(name, vendor, asks);
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
            self.wake(name, seconds, now);
        }
        let act = act.or_else(|| {
            alias_act(&entry, wanted.intent.owner_alias.as_ref())
                .filter(|(vendor, _)| self.contended(&entry, *vendor).is_none())
        });
        let state = self.nodes.entry(name.to_owned()).or_default();
        if state.busy {
            state.again |= act.is_some();
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

    /// No write about the node is under way, and no pause after one that failed.
    fn may_act(&self, name: &str, now: Instant) -> bool {
        self.nodes
            .get(name)
            .is_none_or(|state| !state.busy && state.not_before.is_none_or(|pause| pause <= now))
    }

    fn read_fresh(&mut self, name: &str, vendor: Vendor, began: Instant) {
        let state = self.nodes.entry(name.to_owned()).or_default();
        (state.busy, state.again) = (true, false);
        let (reader, reply, permits, node) = (
            self.reader.clone(),
            self.reply.clone(),
            self.permits.clone(),
            name.to_owned(),
        );
        tokio::spawn(async move {
            let permit = permits.acquire_owned().await;
            let read = reader.read(&node, permit);
            let result = match tokio::time::timeout(READ_TIMEOUT, read).await {
                Ok(read) => read.map(Box::new).map_err(WriteError::from),
                Err(_) => Err(WriteError::Unavailable(
                    "a fresh read took too long".to_owned(),
                )),
            };
            // The engine is gone only when the process ends.
            let _ = reply.send(Reply::Read {
                node,
                vendor,
                began,
                result,
            });
        });
    }

    pub(super) fn write(
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
        let owner_alias = self.owner_alias();
        self.foresee(&node, vendor, &write, owner_alias.as_deref());
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
}

/// The alias label follows the first owner that the node has. Core decides owners; the alias only repeats its word, so a label
/// that is missing or wrong is put right by granting once more what the node has anyway. A fenced node waits for its next
/// grant.
pub(super) fn alias_act(
    entry: &NodeEntry,
    alias: Option<&String>,
) -> Option<(Vendor, Option<Write>)> {
    let alias = alias?;
    let (vendor, owner, cohort) = Vendor::ALL.into_iter().find_map(|vendor| {
        let owner = entry.owner(vendor)?.ok()?;
        Some((vendor, owner, entry.cohort(vendor)?.clone()))
    })?;
    let right = entry.view.labels.get(alias).map(String::as_str) == Some(owner.word());
    let fenced = entry.fence(vendor).is_some();
    let grant = NodeWrite::Grant { cohort, owner };
    let foreign = entry.alias_is_foreign(alias);
    (!right && !fenced && !foreign).then_some((vendor, Some(Write::Node(grant))))
}
