//! Lines for logs and programs: append-only, and only when something changed.

use std::collections::BTreeMap;

use freehold_core::blocker::Reason;
use freehold_core::tenure::Step;
use freehold_core::vendor::{Owner, Vendor};
use jiff::Timestamp;
use serde::Serialize;

use crate::exit::Failure;
use crate::fleet::{Fleet, Place};
use crate::output::{self, Answer, Format, Look};
use crate::status::Verdict;
use crate::style::Style;

/// What counts as a change of a place: messages may be reworded.
type Mark = (Option<Owner>, Option<String>, Option<Step>, Option<Reason>);

/// Writes changes.
pub(super) struct Lines {
    format: Format,
    style: Style,
    told: BTreeMap<(String, Vendor), Mark>,
    verdict: Option<String>,
}

/// A place that changed.
#[derive(Serialize)]
struct Changed<'a> {
    at: Timestamp,
    #[serde(flatten)]
    place: &'a Place,
}

impl Answer for Changed<'_> {
    const KIND: &'static str = "Change";

    fn text(&self, look: Look) -> String {
        let place = self.place;
        let step = place
            .step
            .map_or_else(|| "not known".to_owned(), |step| format!("{step:?}"));
        let owner = place
            .owner
            .map_or_else(String::new, |owner| format!(" under {owner}"));
        let cohort = place
            .cohort
            .as_ref()
            .map_or_else(String::new, |cohort| format!(" ({cohort})"));
        let why = match (place.reason, place.id) {
            (Some(reason), Some(id)) => format!(
                ": {} ({id}): {}",
                reason.name(),
                place.message.as_deref().unwrap_or_default()
            ),
            _ => String::new(),
        };
        let text = format!(
            "{} {} {}{cohort}: {step}{owner}{why}",
            place.health.glyph(),
            place.node,
            place.vendor
        );
        format!(
            "{} {}\n",
            self.at.strftime("%Y-%m-%dT%H:%M:%SZ"),
            place.health.paint(look.style, &text)
        )
    }
}

/// A place that is gone.
#[derive(Serialize)]
struct Gone<'a> {
    at: Timestamp,
    node: &'a str,
    vendor: Vendor,
}

impl Answer for Gone<'_> {
    const KIND: &'static str = "Gone";

    fn text(&self, _look: Look) -> String {
        format!(
            "{} - {} {}: gone\n",
            self.at.strftime("%Y-%m-%dT%H:%M:%SZ"),
            self.node,
            self.vendor
        )
    }
}

/// The whole, when it changes.
#[derive(Serialize)]
struct Whole<'a> {
    at: Timestamp,
    verdict: &'a Verdict,
}

impl Answer for Whole<'_> {
    const KIND: &'static str = "Verdict";

    fn text(&self, look: Look) -> String {
        let notes: String = self
            .verdict
            .notes
            .iter()
            .map(|note| format!(" {note}"))
            .collect();
        format!(
            "{} {}{notes}\n",
            self.at.strftime("%Y-%m-%dT%H:%M:%SZ"),
            look.style.bold(&self.verdict.sentence)
        )
    }
}

impl Lines {
    pub(super) const fn new(format: Format, style: Style) -> Self {
        Self {
            format,
            style,
            told: BTreeMap::new(),
            verdict: None,
        }
    }

    pub(super) fn show(
        &mut self,
        fleet: &Fleet,
        verdict: &Verdict,
        now: Timestamp,
    ) -> Result<(), Failure> {
        let text = self.changes(fleet, verdict, now)?;
        if text.is_empty() {
            Ok(())
        } else {
            output::write_out(&text)
        }
    }

    /// What changed since it was last asked.
    pub(super) fn changes(
        &mut self,
        fleet: &Fleet,
        verdict: &Verdict,
        now: Timestamp,
    ) -> Result<String, Failure> {
        let mut text = String::new();
        let mut marks: BTreeMap<(String, Vendor), Mark> = BTreeMap::new();
        for place in &fleet.places {
            let key = (place.node.clone(), place.vendor);
            let mark = (place.owner, place.cohort.clone(), place.step, place.reason);
            if self.told.get(&key) != Some(&mark) {
                text.push_str(&self.line(&Changed { at: now, place })?);
            }
            marks.insert(key, mark);
        }
        for (node, vendor) in self.told.keys().filter(|key| !marks.contains_key(*key)) {
            text.push_str(&self.line(&Gone {
                at: now,
                node,
                vendor: *vendor,
            })?);
        }
        self.told = marks;
        if self.verdict.as_ref() != Some(&verdict.sentence) {
            text.push_str(&self.line(&Whole { at: now, verdict })?);
            self.verdict = Some(verdict.sentence.clone());
        }
        Ok(text)
    }

    fn line<T: Answer>(&self, answer: &T) -> Result<String, Failure> {
        output::line(
            self.format,
            Look {
                style: self.style,
                wide: false,
                no_headers: false,
            },
            answer,
        )
    }
}
