//! Progress bars on a terminal.

use std::collections::BTreeMap;

use console::Term;
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use jiff::Timestamp;

use super::frame::{Bar, Frame};
use crate::fleet::Fleet;
use crate::output::Look;
use crate::status::{self, Verdict};
use crate::style::Style;

/// Redraws a second at most.
const HERTZ: u8 = 5;
/// Rows where the terminal does not say.
const ROWS: usize = 24;

/// Everything on the screen.
pub(super) struct Bars {
    style: Style,
    screen: MultiProgress,
    verdict: ProgressBar,
    cohorts: BTreeMap<String, ProgressBar>,
    details: Vec<ProgressBar>,
    rest: ProgressBar,
    trouble: Option<String>,
}

impl Bars {
    pub(super) fn new(style: Style) -> Self {
        let screen = MultiProgress::with_draw_target(ProgressDrawTarget::stderr_with_hz(HERTZ));
        let verdict = screen.add(text_line());
        let rest = screen.add(text_line());
        Self {
            style,
            screen,
            verdict,
            cohorts: BTreeMap::new(),
            details: Vec::new(),
            rest,
            trouble: None,
        }
    }

    /// Something went wrong; said below the picture until the next change.
    pub(super) fn trouble(&mut self, what: &str) {
        self.trouble = Some(what.to_owned());
    }

    pub(super) fn show(&mut self, fleet: &Fleet, verdict: &Verdict, now: Timestamp) {
        let rows = Term::stderr()
            .size_checked()
            .map_or(ROWS, |(rows, _)| usize::from(rows));
        let frame = Frame::new(fleet, now, rows);
        self.verdict.set_message(self.style.bold(&verdict.sentence));
        self.cohorts.retain(|name, bar| {
            let stays = frame.cohorts.iter().any(|cohort| cohort.name == *name);
            if !stays {
                bar.finish_and_clear();
            }
            stays
        });
        for cohort in &frame.cohorts {
            self.cohort(cohort);
        }
        while self.details.len() < frame.details.len() {
            self.details
                .push(self.screen.insert_before(&self.rest, text_line()));
        }
        for bar in self.details.drain(frame.details.len()..) {
            bar.finish_and_clear();
            self.screen.remove(&bar);
        }
        for (bar, (health, text)) in self.details.iter().zip(&frame.details) {
            bar.set_message(health.paint(self.style, text));
        }
        let mut rest = Vec::new();
        if frame.more > 0 {
            rest.push(format!("{} more", frame.more));
        }
        rest.extend(verdict.notes.iter().cloned());
        rest.extend(self.trouble.take());
        self.rest.set_message(self.style.dim(&rest.join("  ")));
    }

    fn cohort(&mut self, cohort: &Bar) {
        let bar = self.cohorts.entry(cohort.name.clone()).or_insert_with(|| {
            let before = self.details.first().unwrap_or(&self.rest);
            self.screen.insert_before(
                before,
                ProgressBar::new(0)
                    .with_style(bar_style())
                    .with_prefix(cohort.name.clone()),
            )
        });
        bar.set_length(cohort.all as u64);
        bar.set_position(cohort.done as u64);
        bar.set_message(cohort.text.clone());
    }

    /// Clears the picture, so that the terminal is as it was.
    pub(super) fn leave(&self) {
        for bar in self
            .cohorts
            .values()
            .chain(&self.details)
            .chain([&self.verdict, &self.rest])
        {
            bar.finish_and_clear();
        }
        // Nothing is left to draw; a terminal that went away is no reason to fail at the end.
        let _ = self.screen.clear();
    }

    /// The final state, for the scrollback.
    pub(super) fn last_word(&self, fleet: &Fleet) -> String {
        status::final_text(
            fleet,
            Timestamp::now(),
            Look {
                style: self.style,
                wide: false,
                no_headers: false,
            },
        )
    }
}

fn text_line() -> ProgressBar {
    ProgressBar::new(0).with_style(line_style())
}

/// A line is cut at the terminal's edge: one that wraps would be drawn over wrongly.
fn line_style() -> ProgressStyle {
    ProgressStyle::with_template("{wide_msg}").unwrap_or_else(|_| ProgressStyle::default_bar())
}

fn bar_style() -> ProgressStyle {
    ProgressStyle::with_template("{prefix:20!} {bar:30} {wide_msg}")
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .progress_chars("█▌░")
}
