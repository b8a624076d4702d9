//! The breaker for mass changes.

use std::collections::BTreeSet;

use super::stage::is_owned;
use super::{Rules, Stage, Standing};
use crate::blocker::{Blocker, Reason};
use crate::names;

/// A change that gives up fewer nodes than this is never held back: a person who empties a small pool means it.
pub const MASS_CHANGE_MIN_NODES: usize = 5;
/// A change that gives up more than this share of the owned nodes, in per cent, waits for confirmation.
pub const MASS_CHANGE_PERCENT: usize = 50;

/// A person's word that a mass change is meant: the value of the annotation [`names::CONFIRM_ANNOTATION`] on the
/// AcceleratorCluster, `<generation>/<nodes>`. It covers that generation of the spec and no more than so many nodes, so that
/// it cannot wave through the next accident.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Confirmation {
    /// Generation of the spec.
    pub generation: i64,
    /// Most nodes that may be given up.
    pub nodes: usize,
}

impl Confirmation {
    /// Reads the annotation. `None` when it is not of this form, which confirms nothing.
    #[must_use]
    pub fn parse(value: &str) -> Option<Self> {
        let (generation, nodes) = value.trim().split_once('/')?;
        Some(Self {
            generation: generation.parse().ok()?,
            nodes: nodes.parse().ok()?,
        })
    }
}

/// Why nodes may not be given up, when too many ask for it at once and nobody has confirmed.
pub(super) fn mass_change(rules: &Rules<'_>, standings: &[Standing]) -> Option<Blocker> {
    let nodes = |leaving: bool| {
        let counts = |standing: &&Standing| {
            is_owned(standing.stage)
                && (!leaving
                    || (standing.cohort.is_none() && standing.stage == Stage::AsksHandover))
        };
        standings
            .iter()
            .filter(counts)
            .map(|standing| standing.node.as_str())
            .collect::<BTreeSet<_>>()
            .len()
    };
    let (owned, leaving) = (nodes(false), nodes(true));
    let confirmed = rules.confirmed.is_some_and(|confirmed| {
        confirmed.generation == rules.generation && leaving <= confirmed.nodes
    });
    if leaving < MASS_CHANGE_MIN_NODES || leaving * 100 <= owned * MASS_CHANGE_PERCENT || confirmed
    {
        return None;
    }
    Some(Blocker::new(
        Reason::MassChange,
        format!(
            "{leaving} of {owned} owned nodes would be given up at once, which is more than {MASS_CHANGE_PERCENT} %; to confirm: \
             kubectl annotate acceleratorcluster {} {}={}/{leaving} --overwrite",
            names::SINGLETON,
            names::CONFIRM_ANNOTATION,
            rules.generation
        ),
    ))
}
