//! Figures of the MIG solver: how often it was compared with brute force, and what planning a large fleet takes.

#[path = "../tests/geometry/brute.rs"]
#[allow(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::expect_used,
    dead_code,
    reason = "the tests' own module, of which the figures need a part"
)]
mod brute;

use std::time::Instant;

use brute::{Arrangement, Counts, Truth};
use freehold_core::catalogue::PUBLISHED_BOARDS;
use freehold_core::geometry::{Refusal, plan};

/// Nodes of the planning figure.
const NODES: usize = 5_000;
/// GPUs of a node.
const GPUS: usize = 8;

fn main() {
    let mut truths = Vec::new();
    let (mut answers, mut feasible) = (0, 0);
    for board in PUBLISHED_BOARDS {
        let truth = Truth::of(board);
        let found = truth.agreement();
        answers += found.multisets;
        feasible += found.feasible;
        truths.push(truth);
    }
    println!(
        "MIG solver against brute force on {} published boards: {answers} of {answers} answers agree ({feasible} of them feasible)",
        PUBLISHED_BOARDS.len()
    );
    fleet(&truths);
}

/// Every GPU goes from one arrangement to the counts of another; on every third GPU one instance is in use.
fn fleet(truths: &[Truth]) {
    let boards: Vec<(&Truth, Vec<&Arrangement>, Vec<&Counts>)> = truths
        .iter()
        .map(|truth| {
            let arrangements = truth.arrangements.values().flatten().collect();
            (truth, arrangements, truth.arrangements.keys().collect())
        })
        .collect();
    let gpus: Vec<_> = (0..NODES * GPUS)
        .filter_map(|index| {
            // Primes walk through boards, arrangements and targets in no common step.
            let (truth, from, to) = boards.get((index / GPUS) % boards.len())?;
            let from = from.get((index * 7_919) % from.len())?;
            let to = to.get((index * 104_729) % to.len())?;
            let busy = u32::from(index % 3 == 0);
            Some((truth, truth.live(from, busy), truth.asked(to)))
        })
        .collect();
    let (mut made, mut unchanged, mut blocked, mut refused) = (0, 0, 0, 0);
    let began = Instant::now();
    for (gpu, (truth, live, wanted)) in (0..).zip(&gpus) {
        match plan(gpu, &truth.profiles, live, wanted) {
            Ok(plan) if plan.is_empty() => unchanged += 1,
            Ok(_) => made += 1,
            Err(Refusal::Blocked { .. }) => blocked += 1,
            Err(Refusal::Infeasible(_)) => refused += 1,
        }
    }
    let took = began.elapsed();
    assert_eq!(refused, 0, "every target is an arrangement of its board");
    println!(
        "MIG plans for {NODES} nodes × {GPUS} GPUs: {:.0} ms ({made} changes, {unchanged} already there, {blocked} blocked by an instance \
         in use)",
        took.as_secs_f64() * 1_000.0
    );
}
