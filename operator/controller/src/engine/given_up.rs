//! Drains that were given up, kept until the handover succeeds or something else is wanted.

use freehold_core::blocker::Reason;
use freehold_core::tenure::{Aim, GivenUp, NodeWrite, Rest, Step, Write};
use freehold_core::vendor::Vendor;
use jiff::Timestamp;

use super::Engine;
use crate::decide::{Memory, Verdict};
use crate::observe::entry::NodeEntry;

impl Engine {
    /// What decisions about one vendor on a node are reminded of.
    pub(super) fn memory(&self, entry: &NodeEntry, vendor: Vendor) -> Memory {
        Memory {
            lasted: self.lasted(&entry.view.name, vendor),
            contended: self.contended(entry, vendor),
            resting: self.resting(entry, vendor),
        }
    }

    /// What a handover would now be started for.
    fn aim(&self, entry: &NodeEntry, vendor: Vendor) -> Option<Aim> {
        let generation = self.world.cluster()?.metadata.generation?;
        let wanted = self.wanted.as_ref()?;
        let mut matching = wanted.intent.cohorts.values().filter(|cohort| {
            cohort.vendor == vendor && cohort.selector.matches(&entry.view.labels)
        });
        Some(Aim {
            generation,
            cohort: matching.next().map(|cohort| cohort.name.clone()),
        })
    }

    fn resting(&self, entry: &NodeEntry, vendor: Vendor) -> Option<Rest> {
        let state = self.nodes.get(&entry.view.name)?;
        let given_up = state.given_up.get(vendor).as_ref()?;
        let timeout_s = self.wanted.as_ref()?.intent.rollout.drain_timeout_s;
        let now_s = Timestamp::now().as_second();
        given_up.rest(&self.aim(entry, vendor)?, now_s, timeout_s)
    }

    /// A restarted controller takes up the rest that its predecessor told of, unless what is wanted has changed since its
    /// predecessor last looked: then that is another try.
    pub(super) fn remember_given_up(&mut self, entry: &NodeEntry, vendor: Vendor) {
        let name = &entry.view.name;
        let known = |state: &super::nodes::NodeState| state.outcomes.get(vendor).is_some();
        if self.nodes.get(name).is_some_and(known) {
            return;
        }
        let record = self.world.records.get(name);
        let told = record
            .and_then(|record| record.status.as_ref()?.tenures.vendor(vendor).cloned())
            .filter(|told| told.step == Step::Hold && told.reason == Some(Reason::DrainTimeout));
        let (Some(told), Some(aim)) = (told, self.aim(entry, vendor)) else {
            return;
        };
        let observed = self
            .world
            .cluster()
            .and_then(|cluster| cluster.status.as_ref()?.observed_generation);
        let why = told.message.unwrap_or_default();
        let given_up = GivenUp::told(aim, observed, told.since.0.as_second(), why);
        let state = self.nodes.entry(name.clone()).or_default();
        *state.given_up.get_mut(vendor) = given_up;
    }

    /// Notes a drain that is given up by this decision, and forgets those of a handover that went on.
    pub(super) fn note_given_up(&mut self, entry: &NodeEntry, vendor: Vendor, verdict: &Verdict) {
        let decision = &verdict.decision;
        let unfences = matches!(&decision.write, Some(Write::Node(NodeWrite::Unfence)));
        let why = decision
            .blocker
            .as_ref()
            .filter(|why| unfences && why.reason == Reason::DrainTimeout);
        let aim = why.and_then(|_| self.aim(entry, vendor));
        let state = self.nodes.entry(entry.view.name.clone()).or_default();
        let given_up = state.given_up.get_mut(vendor);
        if let (Some(why), Some(aim)) = (why, aim) {
            let at_s = Timestamp::now().as_second();
            let fence = entry.fence(vendor);
            *given_up = Some(GivenUp::with(given_up.take(), aim, fence, at_s, why));
        } else if matches!(decision.step, Step::Revoke | Step::Held | Step::None) {
            *given_up = None;
        }
    }
}
