//! Which blockers are shown one by one.

use std::collections::BTreeSet;

use super::{BlockerExemplar, MAX_EXEMPLARS, TenureOutcome, kind, severity_of, why};
use crate::blocker::{Blocker, Kind, MAX_MESSAGE, bounded};

/// One of each reason, worst and oldest first, then the oldest of the rest; exclusions only as one of their reason.
pub(super) fn exemplars(
    outcomes: &[&TenureOutcome],
    cluster_wide: &[(Blocker, i64)],
) -> Vec<BlockerExemplar> {
    let exemplar =
        |outcome: Option<&TenureOutcome>, blocker: &Blocker, since_s: i64| BlockerExemplar {
            node: outcome.map(|outcome| outcome.node.clone()),
            cohort: outcome.and_then(|outcome| outcome.cohort.clone()),
            vendor: outcome.map(|outcome| outcome.vendor),
            reason: blocker.reason,
            message: bounded(blocker.message.clone(), MAX_MESSAGE),
            next_step: blocker.reason.next_step(),
            since_s,
        };
    let mut all: Vec<(u8, BlockerExemplar)> = cluster_wide
        .iter()
        .map(|(blocker, since_s)| {
            (
                severity_of(blocker.reason.kind()),
                exemplar(None, blocker, *since_s),
            )
        })
        .chain(outcomes.iter().filter_map(|outcome| {
            let kind = kind(outcome)?;
            Some((
                severity_of(kind),
                exemplar(Some(outcome), why(outcome)?, outcome.since_s),
            ))
        }))
        .collect();
    all.sort_by(|(_, a), (_, b)| {
        (a.since_s, &a.node, a.vendor, a.reason).cmp(&(b.since_s, &b.node, b.vendor, b.reason))
    });
    let mut seen = BTreeSet::new();
    let (mut firsts, rest): (Vec<_>, Vec<_>) = all
        .into_iter()
        .partition(|(severity, exemplar)| seen.insert((*severity, exemplar.reason)));
    firsts.sort_by_key(|(severity, _)| *severity);
    firsts
        .into_iter()
        .chain(
            rest.into_iter()
                .filter(|(severity, _)| *severity < severity_of(Kind::Excluded)),
        )
        .take(MAX_EXEMPLARS)
        .map(|(_, exemplar)| exemplar)
        .collect()
}
