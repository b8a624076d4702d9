//! One twin per guard: the same model with that guard removed must break an invariant.

use std::time::Instant;

use stateright::{Checker as _, HasDiscoveries, Model as _};

use freehold_core::vendor::Owner;

use crate::check::{INVARIANTS, Protocol};
use crate::world::{ALL_GUARDS, Guards, Limits};
use crate::{LAG, QUIET, any_plan, held};

/// Expects the model without a guard to break one of the invariants, and says how.
fn breaks(name: &str, guards: Guards, mut model: Protocol) {
    let started = Instant::now();
    model.guards = guards;
    model.fairness = 0;
    let checker = model
        .checker()
        .threads(2)
        .finish_when(HasDiscoveries::AnyFailures)
        .spawn_bfs()
        .join();
    let broken: Vec<_> = checker
        .discoveries()
        .into_iter()
        .filter(|(property, _)| INVARIANTS.contains(property))
        .map(|(property, path)| format!("{property:?} in {} steps", path.into_actions().len()))
        .collect();
    println!(
        "without {name}: {} distinct states, {:.1} s: {}",
        checker.unique_state_count(),
        started.elapsed().as_secs_f32(),
        broken.join(", ")
    );
    assert!(
        !broken.is_empty(),
        "the model must break without {name}, or it does not check that guard"
    );
}

#[test]
fn without_preconditions() {
    let limits = Limits {
        writers: 2,
        flips: 2,
        arrivals: 1,
        ..QUIET
    };
    breaks(
        "preconditions",
        Guards {
            preconditions: false,
            ..ALL_GUARDS
        },
        held(Owner::DevicePlugin, limits),
    );
}

#[test]
fn without_a_fresh_record() {
    let limits = Limits {
        flips: 2,
        arrivals: 1,
        force_deletions: 1,
        lags: LAG,
        ..QUIET
    };
    breaks(
        "a fresh AcceleratorNode",
        Guards {
            fresh_record: false,
            ..ALL_GUARDS
        },
        held(Owner::Dra, limits),
    );
}

#[test]
fn without_the_first_attestation() {
    let limits = Limits {
        arrivals: 1,
        force_deletions: 1,
        ..QUIET
    };
    breaks(
        "the first attestation",
        Guards {
            first_attestation: false,
            ..ALL_GUARDS
        },
        held(Owner::Dra, limits),
    );
}

#[test]
fn without_the_second_attestation() {
    let limits = Limits {
        arrivals: 2,
        force_deletions: 1,
        ..QUIET
    };
    breaks(
        "the second attestation",
        Guards {
            second_attestation: false,
            ..ALL_GUARDS
        },
        held(Owner::DevicePlugin, limits),
    );
}

#[test]
fn without_the_proof_before_going_back() {
    let limits = Limits {
        arrivals: 2,
        force_deletions: 1,
        ..QUIET
    };
    breaks(
        "the vacate proof before going back",
        Guards {
            proof_before_back: false,
            ..ALL_GUARDS
        },
        held(Owner::DevicePlugin, limits),
    );
}

#[test]
fn without_the_lock() {
    let limits = Limits {
        pod_deletions: 1,
        lags: LAG,
        ..QUIET
    };
    breaks(
        "the lock",
        Guards {
            lock: false,
            ..ALL_GUARDS
        },
        held(Owner::DevicePlugin, limits),
    );
}

#[test]
fn without_the_word() {
    let limits = Limits {
        pod_deletions: 1,
        arrivals: 2,
        force_deletions: 1,
        lags: LAG,
        ..QUIET
    };
    breaks(
        "the word",
        Guards {
            word: false,
            ..ALL_GUARDS
        },
        held(Owner::Dra, limits),
    );
}

#[test]
fn without_the_word_before_the_reading() {
    let limits = Limits {
        pod_deletions: 1,
        arrivals: 2,
        force_deletions: 1,
        lags: LAG,
        ..QUIET
    };
    breaks(
        "the agent's order of word and reading",
        Guards {
            word_before_reading: false,
            ..ALL_GUARDS
        },
        held(Owner::DevicePlugin, limits),
    );
}

#[test]
fn without_a_fence_out_of_reach() {
    let limits = Limits {
        writers: 2,
        arrivals: 1,
        force_deletions: 1,
        ..QUIET
    };
    breaks(
        "a fence value out of reach of other writes",
        Guards {
            fence_out_of_reach: false,
            ..ALL_GUARDS
        },
        any_plan(held(Owner::Dra, limits)),
    );
}
