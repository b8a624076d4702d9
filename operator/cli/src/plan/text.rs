//! The plan for people.

use std::collections::BTreeSet;

use freehold_core::vendor::Owner;

use super::moves::{Class, Move, Stay};
use super::{Answered, drawn, impact};
use crate::health::Health;
use crate::output::Look;
use crate::table;

/// Nodes named in a group of those that stay.
const NAMED: usize = 3;
/// Rows of the table; `-o wide` prints all.
const ROWS: usize = 40;

/// The whole plan in one sentence.
pub(super) fn sentence(moves: &[Move], stays: &[Stay], settled: usize) -> String {
    let of = |class: Class| moves.iter().filter(|move_| move_.class == class).count();
    let parts: Vec<String> = [
        (Class::FirstOwner, "first owner"),
        (Class::Restart, "restart"),
        (Class::Reshape, "reshape"),
        (Class::Handover, "handover"),
        (Class::Release, "release"),
    ]
    .into_iter()
    .filter(|(class, _)| of(*class) > 0)
    .map(|(class, what)| {
        format!(
            "{} {what}{}",
            of(class),
            if of(class) == 1 { "" } else { "s" }
        )
    })
    .collect();
    let head = if parts.is_empty() {
        "No node changes".to_owned()
    } else {
        format!("Changes: {}", parts.join(", "))
    };
    let excluded = stays.iter().filter(|stay| stay.excluded).count();
    let held = stays.len() - excluded;
    let mut tail = vec![format!("{settled} as wanted")];
    if held > 0 {
        tail.push(format!("{held} held as they are"));
    }
    if excluded > 0 {
        tail.push(format!("{excluded} left alone"));
    }
    format!("{head}; {}.", tail.join(", "))
}

pub(super) fn render(plan: &Answered, look: Look) -> String {
    let style = look.style;
    let mut lines = vec![style.bold(&plan.sentence)];
    lines.extend(plan.notes.iter().cloned());
    section(&mut lines, moves(plan, look));
    section(&mut lines, drawn::text(&plan.mig, look));
    section(&mut lines, impact::text(&plan.impact, look.wide));
    section(&mut lines, blocked(plan, look));
    section(&mut lines, stays(plan, look));
    section(&mut lines, objects(plan));
    if !plan.moves.is_empty() {
        section(&mut lines, steps(plan));
        section(&mut lines, plan.pace.clone());
    }
    lines.join("\n") + "\n"
}

fn section(lines: &mut Vec<String>, more: Vec<String>) {
    if !more.is_empty() {
        lines.push(String::new());
        lines.extend(more);
    }
}

fn place(owner: Option<Owner>, cohort: Option<&str>) -> String {
    match (owner, cohort) {
        (Some(owner), Some(cohort)) => format!("{owner} ({cohort})"),
        (Some(owner), None) => owner.name().to_owned(),
        (None, _) => "none".to_owned(),
    }
}

fn disrupts(move_: &Move) -> String {
    if !move_.class.fences() {
        return match move_.class {
            Class::Restart => "nobody; new pods wait for seconds".to_owned(),
            Class::FirstOwner | Class::Reshape | Class::Handover | Class::Release => {
                "nobody".to_owned()
            }
        };
    }
    match &move_.consumers {
        None => "not known".to_owned(),
        Some(consumers) if consumers.is_empty() => "nobody now".to_owned(),
        Some(consumers) if consumers.len() == 1 => "1 consumer must end".to_owned(),
        Some(consumers) => format!("{} consumers must end", consumers.len()),
    }
}

fn moves(plan: &Answered, look: Look) -> Vec<String> {
    let mut moves: Vec<&Move> = plan.moves.iter().collect();
    moves.sort_by_key(|move_| (move_.wave.unwrap_or(usize::MAX), move_.class));
    let shown = if look.wide {
        moves.len()
    } else {
        moves.len().min(ROWS)
    };
    let rest = moves.len() - shown;
    let rows = moves
        .into_iter()
        .take(shown)
        .map(|move_| {
            let when = match (move_.under_way, move_.wave) {
                (true, _) => "under way".to_owned(),
                (false, Some(wave)) => wave.to_string(),
                (false, None) => "not yet".to_owned(),
            };
            vec![
                when,
                move_.node.clone(),
                move_.vendor.name().to_owned(),
                format!("{:?}", move_.class),
                place(move_.from, move_.from_cohort.as_deref()),
                place(move_.to, move_.to_cohort.as_deref()),
                disrupts(move_),
            ]
        })
        .collect();
    let mut lines = table::lines(
        &[
            "ORDER", "NODE", "VENDOR", "CHANGE", "FROM", "TO", "DISRUPTS",
        ],
        rows,
        &[],
        look.no_headers,
    );
    if rest > 0 {
        lines.push(
            look.style
                .dim(&format!("and {rest} more (-o wide prints all)")),
        );
    }
    lines
}

/// What stands in the way of moves now.
fn blocked(plan: &Answered, look: Look) -> Vec<String> {
    let mut lines = Vec::new();
    let mut told: BTreeSet<&str> = BTreeSet::new();
    for move_ in &plan.moves {
        for blocker in &move_.blockers {
            // One that is the same for many nodes is told once.
            if told.insert(&blocker.message) {
                let health = Health::of_reason(blocker.reason);
                let head = format!(
                    "{} {} ({})",
                    health.glyph(),
                    blocker.reason.name(),
                    blocker.reason.id()
                );
                lines.push(format!(
                    "{}: {}",
                    health.paint(look.style, &head),
                    blocker.message
                ));
            }
        }
        let sets: BTreeSet<&str> = move_
            .consumers
            .iter()
            .flatten()
            .filter_map(|consumer| consumer.daemon_set.as_deref())
            .collect();
        for set in sets {
            let line = format!(
                "✗ {}: DaemonSet {set} uses the devices and never drains; keep it off the node first",
                move_.node
            );
            lines.push(look.style.bad(&line));
        }
    }
    lines
}

fn stays(plan: &Answered, look: Look) -> Vec<String> {
    let mut groups: Vec<Vec<&Stay>> = Vec::new();
    for stay in &plan.stays {
        match groups.iter_mut().find(|group| {
            group
                .first()
                .is_some_and(|first| (first.reason, &first.cohort) == (stay.reason, &stay.cohort))
        }) {
            Some(group) => group.push(stay),
            None => groups.push(vec![stay]),
        }
    }
    groups.sort_by_key(|group| group.first().map(|first| (first.excluded, first.reason)));
    let mut lines = Vec::new();
    for group in groups {
        let Some(first) = group.first() else { continue };
        let health = Health::of_reason(first.reason);
        let named = if look.wide { group.len() } else { NAMED };
        let names: Vec<&str> = group
            .iter()
            .take(named)
            .map(|stay| stay.node.as_str())
            .collect();
        let rest = group.len().saturating_sub(named);
        let rest = if rest > 0 {
            format!(" and {rest} more")
        } else {
            String::new()
        };
        let verb = if first.excluded {
            "left alone"
        } else {
            "held as it is"
        };
        let head = format!(
            "{} {} ({}), {verb}: {}{rest}",
            health.glyph(),
            first.reason.name(),
            first.id,
            names.join(", ")
        );
        lines.push(health.paint(look.style, &head));
        lines.push(format!("    {}", first.message));
        if !first.excluded {
            lines.push(format!("    Next: {}", first.next_step));
        }
    }
    lines
}

fn objects(plan: &Answered) -> Vec<String> {
    let objects = &plan.objects;
    let mut lines = Vec::new();
    for (mark, list) in [("+", &objects.made), ("-", &objects.deleted)] {
        lines.extend(list.iter().map(|object| format!("{mark} {object}")));
    }
    lines.extend(objects.taken.iter().map(|object| {
        format!(
            "✗ {object} exists and is not Freehold's: it is not touched, and what needs it waits"
        )
    }));
    lines.extend(objects.unknown.iter().map(|why| format!("? {why}")));
    lines
}

fn steps(plan: &Answered) -> Vec<String> {
    let classes: BTreeSet<Class> = plan.moves.iter().map(|move_| move_.class).collect();
    classes
        .into_iter()
        .map(|class| {
            let steps: Vec<String> = class
                .steps()
                .iter()
                .zip(1..)
                .map(|(step, number)| format!("{number} {step}"))
                .collect();
            format!("{class:?}: {}", steps.join(", "))
        })
        .collect()
}
