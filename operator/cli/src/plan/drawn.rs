//! MIG layouts, drawn: what becomes of each GPU of the nodes that change.

use std::collections::BTreeMap;

use freehold_core::geometry::{self, Instance, LEGEND, Profile, profiles_of, wanted_on};
use freehold_core::intent::{Intent, Layout, MigLayout};
use freehold_core::report::{MigProfileCount, VendorReport};
use freehold_core::vendor::Vendor;
use serde::Serialize;

use super::World;
use super::moves::Move;
use crate::output::Look;

/// Nodes named of those that are alike.
const NAMED: usize = 3;

/// GPUs of one node that are alike, before and after.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Gpus {
    /// Minor numbers.
    gpus: Vec<u32>,
    /// What is kept, destroyed and created, or why it cannot be.
    summary: String,
    /// Units, before, after; absent where there is no way.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    drawing: Vec<String>,
    /// There is no way.
    pub(super) infeasible: bool,
}

/// Nodes that are alike.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Drawn {
    pub(super) nodes: Vec<String>,
    pub(super) gpus: Vec<Gpus>,
}

/// Draws the nodes that get a layout, alike ones once.
pub(super) fn all(world: &World, intent: &Intent, moves: &[Move]) -> Vec<Drawn> {
    let mut drawn: Vec<Drawn> = Vec::new();
    for move_ in moves.iter().filter(|move_| move_.vendor == Vendor::Nvidia) {
        let cohort = move_
            .to_cohort
            .as_ref()
            .and_then(|name| intent.cohorts.get(name));
        let Some(Layout::Mig(layouts)) = cohort.and_then(|cohort| cohort.layout.as_ref()) else {
            continue;
        };
        let part = world
            .records
            .get(&move_.node)
            .and_then(|record| record.status.as_ref()?.report.as_ref()?.nvidia.as_ref());
        let gpus = part.map(|part| node(layouts, part)).unwrap_or_default();
        if gpus.is_empty() {
            continue;
        }
        match drawn.iter_mut().find(|other| other.gpus == gpus) {
            Some(same) => same.nodes.push(move_.node.clone()),
            None => drawn.push(Drawn {
                nodes: vec![move_.node.clone()],
                gpus,
            }),
        }
    }
    drawn
}

/// Draws the GPUs of one node whose tables are known, alike ones once.
pub(super) fn node(layouts: &[MigLayout], part: &VendorReport) -> Vec<Gpus> {
    let boards = &part.layout.boards;
    let wanted = match wanted_on(layouts, part) {
        Ok(wanted) => wanted,
        Err(gone) => {
            return vec![Gpus {
                gpus: vec![gone.minor],
                summary: format!("is named, but this node has {}", gone.others()),
                drawing: Vec::new(),
                infeasible: true,
            }];
        }
    };
    let mut alike: Vec<Gpus> = Vec::new();
    for gpu in geometry::minors(part) {
        let Some(profiles) = profiles_of(boards, gpu) else {
            continue;
        };
        let asked = wanted.get(&gpu).map(Vec::as_slice).unwrap_or_default();
        let now = part.layout.mig.get(&gpu.to_string());
        let one = one(
            gpu,
            profiles,
            now.map(Vec::as_slice).unwrap_or_default(),
            asked,
        );
        match alike
            .iter_mut()
            .find(|other| (&other.summary, &other.drawing) == (&one.summary, &one.drawing))
        {
            Some(same) => same.gpus.push(gpu),
            None => alike.push(one),
        }
    }
    alike
}

fn one(gpu: u32, profiles: &[Profile], now: &[MigProfileCount], asked: &[MigProfileCount]) -> Gpus {
    let live = assumed(gpu, profiles, now);
    match geometry::plan(gpu, profiles, live.as_deref().unwrap_or_default(), asked) {
        Ok(plan) if plan.is_empty() && plan.keep.is_empty() => Gpus {
            gpus: vec![gpu],
            summary: "no MIG instance, as it is".to_owned(),
            drawing: Vec::new(),
            infeasible: false,
        },
        Ok(plan) => {
            let [units, before, after] = plan.draw(profiles);
            let count: i32 = now.iter().map(|one| one.count).sum();
            let (summary, before) = if live.is_some() {
                (plan.summary(), before)
            } else {
                (
                    format!(
                        "destroys what is not wanted, creates up to {}",
                        plan.create.len()
                    ),
                    format!(
                        "before  {count} instance(s) whose profiles the node's shaper has not told"
                    ),
                )
            };
            Gpus {
                gpus: vec![gpu],
                summary,
                drawing: vec![units, before, after],
                infeasible: false,
            }
        }
        Err(refusal) => Gpus {
            gpus: vec![gpu],
            // The same proof holds for all GPUs that are alike; which they are is said beside it.
            summary: refusal
                .message()
                .trim_start_matches(&format!("GPU {gpu} "))
                .to_owned(),
            drawing: Vec::new(),
            infeasible: true,
        },
    }
}

/// What is there, at the places that Freehold gives: a report counts instances and does not place them. `None` where it cannot
/// name them.
fn assumed(gpu: u32, profiles: &[Profile], now: &[MigProfileCount]) -> Option<Vec<Instance>> {
    let there = geometry::plan(gpu, profiles, &[], now).ok()?;
    let instances = (0..).zip(there.create);
    Some(
        instances
            .map(|(id, (profile, placement))| Instance {
                id,
                profile,
                placement,
                busy: false,
            })
            .collect(),
    )
}

/// The drawings for people.
pub(super) fn text(drawn: &[Drawn], look: Look) -> Vec<String> {
    let mut lines = Vec::new();
    for Drawn { nodes, gpus } in drawn {
        let named = if look.wide { nodes.len() } else { NAMED };
        let names: Vec<&str> = nodes.iter().take(named).map(String::as_str).collect();
        let rest = nodes.len().saturating_sub(named);
        let rest = if rest > 0 {
            format!(" and {rest} more")
        } else {
            String::new()
        };
        lines.push(
            look.style
                .bold(&format!("MIG on {}{rest}", names.join(", "))),
        );
        lines.extend(body(gpus, look));
    }
    if !drawn.is_empty() {
        lines.push(look.style.dim(LEGEND));
        lines.push(look.style.dim(
            "What is there now is drawn where Freehold would have put it: a report counts instances, the node's shaper finds them.",
        ));
    }
    lines
}

/// The GPUs of one node.
pub(super) fn body(gpus: &[Gpus], look: Look) -> Vec<String> {
    let mut lines = Vec::new();
    for group in gpus {
        let gpus = numbers(&group.gpus);
        lines.push(if group.infeasible {
            look.style.bad(&format!("✗ {gpus} {}", group.summary))
        } else {
            format!("{gpus}: {}", group.summary)
        });
        lines.extend(group.drawing.iter().cloned());
    }
    lines
}

/// `GPU 0-3, 6`.
fn numbers(gpus: &[u32]) -> String {
    let mut ranges: BTreeMap<u32, u32> = BTreeMap::new();
    for &gpu in gpus {
        match ranges
            .values_mut()
            .find(|last| last.checked_add(1) == Some(gpu))
        {
            Some(last) => *last = gpu,
            None => {
                ranges.insert(gpu, gpu);
            }
        }
    }
    let parts: Vec<String> = ranges
        .into_iter()
        .map(|(first, last)| {
            if first == last {
                first.to_string()
            } else {
                format!("{first}-{last}")
            }
        })
        .collect();
    format!("GPU {}", parts.join(", "))
}
