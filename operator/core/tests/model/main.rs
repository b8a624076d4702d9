//! The ownership protocol, model-checked: every interleaving of a small world around the **real** `step`.
//!
//! The quick size runs with every `cargo test`. The large one is behind `--ignored` (`make model`) and prints its counts.
//! Each guard of the protocol has a twin here: the same model without that guard must break.

#![allow(
    clippy::indexing_slicing,
    clippy::expect_used,
    reason = "a model that breaks is a failed test"
)]

mod budget;
mod check;
mod fair;
mod large;
mod twins;
mod view;
mod world;

use std::time::Instant;

use stateright::{Checker as _, Model as _};

use freehold_core::vendor::Owner;

use crate::check::Protocol;
use crate::world::{ALL_GUARDS, Lags, Limits, Plan, World};

const NO_LAG: Lags = Lags {
    node: false,
    record: false,
    pods: false,
};
const LAG: Lags = Lags {
    node: true,
    record: true,
    pods: true,
};

/// One controller, one change of mind, nothing goes wrong.
const QUIET: Limits = Limits {
    writers: 1,
    flips: 1,
    arrivals: 0,
    force_deletions: 0,
    pod_deletions: 0,
    restarts: 0,
    replacements: 0,
    given_up: 0,
    lags: NO_LAG,
};

const PLUGIN: Plan = Plan::Owner(Owner::DevicePlugin, 0);
const DRA: Plan = Plan::Owner(Owner::Dra, 0);

fn model(limits: Limits, start: World) -> Protocol {
    Protocol {
        guards: ALL_GUARDS,
        limits,
        plans: vec![PLUGIN, DRA],
        start,
        fairness: 32,
    }
}

fn held(owner: Owner, limits: Limits) -> Protocol {
    model(limits, Protocol::held(owner, limits))
}

/// Visits every state and expects every property to hold.
fn holds(name: &str, model: Protocol) {
    let started = Instant::now();
    let checker = model.checker().threads(2).spawn_bfs().join();
    println!(
        "{name}: {} states, {} of them distinct, depth {}, {:.1} s",
        checker.state_count(),
        checker.unique_state_count(),
        checker.max_depth(),
        started.elapsed().as_secs_f32()
    );
    checker.assert_properties();
}

/// The same with teardown among the plans.
fn any_plan(model: Protocol) -> Protocol {
    Protocol {
        plans: vec![PLUGIN, DRA, Plan::Nothing],
        ..model
    }
}

fn first(owner: Owner, limits: Limits) -> Protocol {
    any_plan(model(
        limits,
        Protocol::untouched(Plan::Owner(owner, 0), limits),
    ))
}

/// One owner, two geometries.
fn reshape(owner: Owner, limits: Limits) -> Protocol {
    Protocol {
        plans: vec![Plan::Owner(owner, 1), Plan::Owner(owner, 2)],
        ..held(owner, limits)
    }
}

#[test]
fn two_controllers_that_change_their_mind() {
    for owner in Owner::ALL {
        holds(
            "back and forth",
            held(
                owner,
                Limits {
                    writers: 2,
                    flips: 2,
                    lags: LAG,
                    ..QUIET
                },
            ),
        );
    }
}

#[test]
fn two_controllers_and_a_teardown() {
    holds(
        "teardown of the plugin",
        any_plan(held(
            Owner::DevicePlugin,
            Limits {
                writers: 2,
                lags: LAG,
                ..QUIET
            },
        )),
    );
}

#[test]
fn a_consumer_that_comes_late_and_is_force_deleted() {
    for owner in Owner::ALL {
        holds(
            "late consumer",
            held(
                owner,
                Limits {
                    arrivals: 1,
                    force_deletions: 1,
                    lags: LAG,
                    ..QUIET
                },
            ),
        );
    }
}

#[test]
fn an_operand_that_somebody_deletes() {
    for owner in Owner::ALL {
        holds(
            "deleted operand",
            any_plan(held(
                owner,
                Limits {
                    pod_deletions: 1,
                    lags: LAG,
                    ..QUIET
                },
            )),
        );
    }
}

#[test]
fn a_drain_that_is_given_up_past_its_deadline() {
    for owner in Owner::ALL {
        holds(
            "given up",
            any_plan(held(
                owner,
                Limits {
                    writers: 2,
                    arrivals: 1,
                    given_up: 1,
                    ..QUIET
                },
            )),
        );
    }
}

#[test]
fn a_reboot_and_a_replaced_node() {
    for owner in Owner::ALL {
        holds(
            "reboot or kubelet restart",
            held(
                owner,
                Limits {
                    restarts: 1,
                    lags: LAG,
                    ..QUIET
                },
            ),
        );
        holds(
            "reboot with a consumer",
            held(
                owner,
                Limits {
                    restarts: 1,
                    arrivals: 1,
                    ..QUIET
                },
            ),
        );
        holds(
            "replaced node",
            held(
                owner,
                Limits {
                    replacements: 1,
                    lags: LAG,
                    ..QUIET
                },
            ),
        );
    }
}

#[test]
fn a_first_ownership() {
    for owner in Owner::ALL {
        holds(
            "first ownership",
            first(owner, Limits { lags: LAG, ..QUIET }),
        );
    }
}

#[test]
fn a_reshape() {
    for owner in Owner::ALL {
        holds("reshape", reshape(owner, Limits { lags: LAG, ..QUIET }));
    }
}
