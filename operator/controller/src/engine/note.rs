//! Where each tenure stands and since when, as people will be told.

use std::time::{Duration, Instant};

use freehold_core::summary::TenureOutcome;
use freehold_core::tenure::Step;
use freehold_core::vendor::Vendor;
use jiff::Timestamp;

use super::Engine;
use super::haste::Haste;
use crate::decide::Verdict;
use crate::observe::entry::NodeEntry;

impl Engine {
    /// Looks at a node again then, unless a look comes before: every look says anew when the next is due.
    pub(super) fn wake(&mut self, name: &str, seconds: u64, now: Instant) {
        let at = now + Duration::from_secs(seconds.max(1));
        let state = self.nodes.entry(name.to_owned()).or_default();
        if state.wake_at.is_some_and(|due| due > now && due <= at) {
            return;
        }
        if let Some(later) = state.wake_at.replace(at) {
            self.timers.remove(&(later, name.to_owned()));
        }
        self.timers.insert((at, name.to_owned()));
    }

    /// Remembers where a tenure stands. Its age is that of its step and reason together.
    pub(super) fn note(
        &mut self,
        name: &str,
        vendor: Vendor,
        entry: &NodeEntry,
        verdict: &Verdict,
        now: Instant,
    ) {
        self.note_given_up(entry, vendor, verdict);
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
                *state.tell_at.get_mut(vendor) = Some(now);
                self.pacer.something_changed();
                self.teller.something_changed(now);
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
            Some(known) if (known.step, known.why().map(|b| b.reason)) == (decision.step, why) => {
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
            let haste = Haste::of(&outcome, told);
            *state.outcomes.get_mut(vendor) = Some(outcome);
            self.pacer.something_changed();
            self.teller.something_changed(now);
            let at = now + Duration::from_millis(self.options.status_rest_ms) * haste.rests();
            let pending = state.tell_at.get_mut(vendor);
            // Words may change for ever, and are told all the same.
            let due = match *pending {
                Some(sooner) if haste == Haste::Words => sooner.min(at),
                Some(_) | None => at,
            };
            *pending = Some(due);
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
    pub(super) fn lasted(&self, name: &str, vendor: Vendor) -> Option<(Step, u64)> {
        let (step, began_s) = self.step_began(name, vendor)?;
        let seconds = Timestamp::now().as_second().saturating_sub(began_s);
        Some((step, u64::try_from(seconds).unwrap_or(0)))
    }
}
