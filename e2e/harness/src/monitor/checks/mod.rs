//! The invariants, one file each, over a recorded history. Nothing here asks anybody anything: equal histories give equal
//! answers.

mod budget;
mod claims;
mod foreign;
mod owners;
mod release;
mod teardown;

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use super::facts::{Fact, History, Object};
use super::world::World;

/// How much a checker must forgive, because it does not see the same moment that the controller saw.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// How long a status may say what is no longer so: the time from a change to the status that tells of it, on a busy machine.
    pub status_lag: Duration,
    /// How long a step may last before the controller counts its node as stuck (`--patience-seconds`).
    pub patience: Duration,
    /// From a fresh read to the end of the write decided on it.
    pub read_to_write: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            status_lag: Duration::from_secs(15),
            patience: Duration::from_secs(20),
            read_to_write: Duration::from_secs(10),
        }
    }
}

/// An invariant that did not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// `I1` to `I6`.
    pub invariant: &'static str,
    /// When, since the monitor's start.
    pub at: Duration,
    /// The node, or the object, concerned.
    pub subject: String,
    /// What was found and what should have been.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} at {:.3} s on {}: {}",
            self.invariant,
            self.at.as_secs_f64(),
            self.subject,
            self.what
        )
    }
}

/// One fact in its place: what the object was, and the world with the fact in it.
struct Moment<'a> {
    fact: &'a Fact,
    before: Option<Object>,
    world: &'a World,
    history: &'a History,
    limits: &'a Limits,
}

/// Collects violations, the same one about the same subject once.
#[derive(Default)]
struct Findings {
    told: BTreeSet<(&'static str, String, &'static str)>,
    violations: Vec<Violation>,
}

impl Findings {
    fn add(
        &mut self,
        invariant: &'static str,
        rule: &'static str,
        at: Duration,
        subject: &str,
        mut what: String,
    ) {
        if self.told.insert((invariant, subject.to_owned(), rule)) {
            what.insert_str(0, &format!("{rule}: "));
            self.violations.push(Violation {
                invariant,
                at,
                subject: subject.to_owned(),
                what,
            });
        }
    }
}

/// Checks a whole history.
#[must_use]
pub fn check(history: &History, limits: &Limits) -> Vec<Violation> {
    let mut findings = Findings::default();
    let mut world = World::default();
    owners::on_nodes(history, &mut findings);
    foreign::writes(history, &mut findings);
    for fact in &history.facts {
        // What the former state went on saying until now.
        claims::told(&world, fact.at, limits, &mut findings);
        let before = world.apply(fact);
        let moment = Moment {
            fact,
            before,
            world: &world,
            history,
            limits,
        };
        owners::on_the_api(&moment, &mut findings);
        release::check(&moment, &mut findings);
        teardown::check(&moment, &mut findings);
        foreign::check(&moment, &mut findings);
        budget::check(&moment, &mut findings);
    }
    claims::told(&world, history.end, limits, &mut findings);
    findings.violations.sort_by_key(|violation| violation.at);
    findings.violations
}
