//! The answer of `status` for people: the verdict, the numbers, then trouble before motion before peace.

use std::fmt::Write as _;

use freehold_core::vendor::Owner;

use super::verdict::{nodes, place_name};
use super::{Cohort, Status};
use crate::age;
use crate::exit::Exit;
use crate::fleet::Place;
use crate::health::Health;
use crate::output::Look;
use crate::table;

/// Nodes named in a group; `-o wide` names all.
const NAMED: usize = 3;

pub(super) fn render(status: &Status, look: Look) -> String {
    let style = look.style;
    let mut out = String::new();
    let sentence = &status.verdict.sentence;
    let sentence = match status.verdict.exit {
        Exit::Fine => style.good(sentence),
        Exit::Waiting | Exit::Undetermined => style.waiting(sentence),
        Exit::Findings | Exit::Usage | Exit::TimedOut | Exit::Interrupted => style.bad(sentence),
    };
    line(&mut out, &sentence);
    for note in &status.verdict.notes {
        line(&mut out, note);
    }
    section(&mut out, cohorts(&status.cohorts, look));
    if status.grouping {
        section(&mut out, cluster_wide(status, look));
        section(&mut out, troubles(status, look));
        section(&mut out, moving(status, look));
        section(&mut out, quiet(status, look));
    } else {
        section(&mut out, cluster_wide(status, look));
        section(&mut out, flat(status, look));
    }
    out
}

fn line(out: &mut String, text: &str) {
    out.push_str(text);
    out.push('\n');
}

fn section(out: &mut String, lines: Vec<String>) {
    if lines.is_empty() {
        return;
    }
    out.push('\n');
    for text in lines {
        line(out, &text);
    }
}

fn cohorts(cohorts: &[Cohort], look: Look) -> Vec<String> {
    let columns = [
        Health::Ready,
        Health::Moving,
        Health::Waiting,
        Health::Blocked,
        Health::Conflicted,
        Health::Excluded,
        Health::Unknown,
    ];
    let rows = cohorts
        .iter()
        .map(|cohort| {
            let number = |health: Health| {
                cohort
                    .by_health
                    .get(health.word())
                    .copied()
                    .unwrap_or(0)
                    .to_string()
            };
            let mut row = vec![
                cohort.name.clone(),
                cohort.vendor.name().to_owned(),
                cohort.owner.name().to_owned(),
                cohort.nodes.to_string(),
                cohort.owned.to_string(),
            ];
            row.extend(columns.map(number));
            row
        })
        .collect();
    let header = [
        "COHORT",
        "VENDOR",
        "OWNER",
        "NODES",
        "OWNED",
        "READY",
        "MOVING",
        "WAITING",
        "BLOCKED",
        "CONFLICTED",
        "EXCLUDED",
        "UNKNOWN",
    ];
    table::lines(
        &header,
        rows,
        &[3, 4, 5, 6, 7, 8, 9, 10, 11],
        look.no_headers,
    )
}

fn cluster_wide(status: &Status, look: Look) -> Vec<String> {
    let mut lines = Vec::new();
    for blocker in &status.cluster_wide {
        let health = Health::of_reason(blocker.reason);
        let head = format!(
            "{} {:?} ({}) for {}",
            health.glyph(),
            blocker.reason,
            blocker.reason.id(),
            age::since(blocker.since.0, status.now)
        );
        lines.push(health.paint(look.style, &head));
        lines.push(format!("    {}", blocker.message));
        lines.push(format!("    Next: {}", blocker.next_step));
    }
    lines
}

/// Nodes with a reason that is not merely an exclusion, put together by reason and cohort; the worst and oldest first.
fn troubles(status: &Status, look: Look) -> Vec<String> {
    let mut groups: Vec<Vec<&Place>> = Vec::new();
    for place in &status.nodes {
        if !matches!(
            place.health,
            Health::Conflicted | Health::Blocked | Health::Unknown | Health::Waiting
        ) {
            continue;
        }
        let same = |group: &&mut Vec<&Place>| {
            group.first().is_some_and(|first| {
                (first.health, first.reason, &first.cohort, first.vendor)
                    == (place.health, place.reason, &place.cohort, place.vendor)
            })
        };
        match groups.iter_mut().find(same) {
            Some(group) => group.push(place),
            None => groups.push(vec![place]),
        }
    }
    for group in &mut groups {
        group.sort_by_key(|place| place.since);
    }
    groups.sort_by_key(|group| group.first().map(|first| (first.health, first.since)));
    groups
        .iter()
        .flat_map(|group| trouble(group, status, look))
        .collect()
}

fn trouble(group: &[&Place], status: &Status, look: Look) -> Vec<String> {
    let Some(first) = group.first() else {
        return Vec::new();
    };
    let reason = match (first.reason, first.id) {
        (Some(reason), Some(id)) => format!("{reason:?} ({id})"),
        _ => "Nothing known".to_owned(),
    };
    let cohort = first
        .cohort
        .as_ref()
        .map_or_else(String::new, |cohort| format!(" in {cohort}"));
    let since = first.since.map_or_else(String::new, |since| {
        let word = if group.len() > 1 { "up to " } else { "" };
        format!(", for {word}{}", age::since(since, status.now))
    });
    let head = format!(
        "{} {reason}: {}{cohort}{since}",
        first.health.glyph(),
        nodes(group.len())
    );
    let mut lines = vec![first.health.paint(look.style, &head)];
    let named = if look.wide { group.len() } else { NAMED };
    for place in group.iter().take(named) {
        let step = place
            .step
            .map_or_else(String::new, |step| format!(" [{step:?}]"));
        let message = place
            .message
            .as_deref()
            .unwrap_or("the controller has not said anything about it yet");
        // Messages name their node, and so does this line.
        let message = message
            .strip_prefix(&format!("Node {}: ", place.node))
            .unwrap_or(message);
        lines.push(format!(
            "    {}{step}: {message}",
            place_name(place, &status.nodes)
        ));
    }
    if group.len() > named {
        let rest = format!("    and {} more (-o wide names all)", group.len() - named);
        lines.push(look.style.dim(&rest));
    }
    if let Some(next) = &first.next_step {
        lines.push(format!("    Next: {next}"));
    }
    lines
}

fn moving(status: &Status, look: Look) -> Vec<String> {
    let rows: Vec<Vec<String>> = status
        .nodes
        .iter()
        .filter(|place| place.health == Health::Moving)
        .map(|place| {
            vec![
                format!(
                    "{} {}",
                    place.health.glyph(),
                    place_name(place, &status.nodes)
                ),
                place.cohort.clone().unwrap_or_else(|| "-".to_owned()),
                place.owner.map_or("none", Owner::name).to_owned(),
                place
                    .step
                    .map_or_else(|| "-".to_owned(), |step| format!("{step:?}")),
                place
                    .since
                    .map_or_else(|| "-".to_owned(), |since| age::since(since, status.now)),
            ]
        })
        .collect();
    let shown = if look.wide {
        rows.len()
    } else {
        rows.len().min(NAMED * 4)
    };
    let rest = rows.len() - shown;
    let rows = rows.into_iter().take(shown).collect();
    let mut lines = table::lines(
        &["MOVING", "COHORT", "OWNER NOW", "STEP", "SINCE"],
        rows,
        &[],
        look.no_headers,
    );
    if rest > 0 {
        lines.push(
            look.style
                .dim(&format!("and {rest} more (-o wide names all)")),
        );
    }
    lines
}

/// Ready, unowned and excluded nodes, one line for each kind in each cohort.
fn quiet(status: &Status, look: Look) -> Vec<String> {
    let mut lines = Vec::new();
    for health in [Health::Ready, Health::Unowned, Health::Excluded] {
        let mut groups: Vec<Vec<&Place>> = Vec::new();
        for place in status.nodes.iter().filter(|place| place.health == health) {
            let key = |place: &Place| {
                (
                    place.cohort.clone(),
                    place.owner,
                    place.reason,
                    place.vendor,
                )
            };
            match groups
                .iter_mut()
                .find(|group| group.first().is_some_and(|first| key(first) == key(place)))
            {
                Some(group) => group.push(place),
                None => groups.push(vec![place]),
            }
        }
        groups.sort_by(|a, b| {
            let key = |group: &[&Place]| {
                group
                    .first()
                    .map(|first| (first.cohort.clone(), first.reason))
            };
            key(a).cmp(&key(b))
        });
        lines.extend(
            groups
                .iter()
                .filter_map(|group| one_line(group, status, look)),
        );
    }
    lines
}

fn one_line(group: &[&Place], status: &Status, look: Look) -> Option<String> {
    let first = group.first()?;
    let mut text = first.health.glyph().to_owned();
    match &first.cohort {
        Some(cohort) => {
            let _ = write!(
                text,
                " {cohort}: {} {}",
                nodes(group.len()),
                first.health.word()
            );
        }
        None => {
            let _ = write!(text, " {} {}", nodes(group.len()), first.health.word());
        }
    }
    if let Some(owner) = first.owner {
        let _ = write!(text, " under {owner}");
    }
    if let (Some(reason), Some(id)) = (first.reason, first.id) {
        let _ = write!(text, ", {reason:?} ({id})");
    }
    let named = if look.wide { group.len() } else { NAMED };
    let names: Vec<String> = group
        .iter()
        .take(named)
        .map(|place| place_name(place, &status.nodes))
        .collect();
    let rest = group.len().saturating_sub(named);
    let rest = if rest > 0 {
        format!(" and {rest} more")
    } else {
        String::new()
    };
    let text = first.health.paint(look.style, &text);
    Some(format!(
        "{text} {}",
        look.style.dim(&format!("({}{rest})", names.join(", ")))
    ))
}

/// One line per node, the worst first.
fn flat(status: &Status, look: Look) -> Vec<String> {
    let mut places: Vec<&Place> = status.nodes.iter().collect();
    places.sort_by_key(|place| place.health);
    let health: Vec<Health> = places.iter().map(|place| place.health).collect();
    let dash = || "-".to_owned();
    let rows = places
        .iter()
        .map(|place| {
            let mut row = vec![
                place.node.clone(),
                place.vendor.name().to_owned(),
                place.cohort.clone().unwrap_or_else(dash),
                place
                    .owner
                    .map_or_else(dash, |owner| owner.name().to_owned()),
                place.step.map_or_else(dash, |step| format!("{step:?}")),
                place
                    .since
                    .map_or_else(dash, |since| age::since(since, status.now)),
                place.health.word().to_owned(),
                place
                    .reason
                    .map_or_else(dash, |reason| format!("{reason:?}")),
            ];
            if look.wide {
                row.push(place.message.clone().unwrap_or_else(dash));
            }
            row
        })
        .collect();
    let mut header = vec![
        "NODE", "VENDOR", "COHORT", "OWNER", "STEP", "SINCE", "HEALTH", "REASON",
    ];
    if look.wide {
        header.push("MESSAGE");
    }
    let lines = table::lines(&header, rows, &[], look.no_headers);
    let headers = usize::from(!look.no_headers);
    lines
        .into_iter()
        .enumerate()
        .map(|(index, text)| {
            match index
                .checked_sub(headers)
                .and_then(|index| health.get(index))
            {
                Some(health) => health.paint(look.style, &text),
                None => text,
            }
        })
        .collect()
}
