//! The large size, for `make model`.

use freehold_core::vendor::Owner;

use crate::check::Protocol;
use crate::world::Limits;
use crate::{LAG, QUIET, any_plan, first, held, holds, reshape};

#[test]
#[ignore = "takes minutes: `make model`"]
fn large() {
    let limits = Limits { lags: LAG, ..QUIET };
    let late = Limits {
        arrivals: 1,
        force_deletions: 1,
        ..limits
    };
    for owner in Owner::ALL {
        let word = owner.word();
        let check = |name: &str, model: Protocol| {
            holds(
                &format!("{name}, from {word}"),
                Protocol {
                    fairness: 1,
                    ..model
                },
            );
        };
        check(
            "two controllers",
            any_plan(held(
                owner,
                Limits {
                    writers: 2,
                    ..limits
                },
            )),
        );
        check(
            "two controllers, late consumer",
            held(owner, Limits { writers: 2, ..late }),
        );
        check("late consumer", any_plan(held(owner, late)));
        check(
            "two late consumers",
            held(
                owner,
                Limits {
                    arrivals: 2,
                    ..late
                },
            ),
        );
        check(
            "deleted operand",
            any_plan(held(
                owner,
                Limits {
                    pod_deletions: 1,
                    ..limits
                },
            )),
        );
        check(
            "deleted operand, late consumer",
            held(
                owner,
                Limits {
                    pod_deletions: 1,
                    ..late
                },
            ),
        );
        check(
            "two controllers, deleted operand",
            held(
                owner,
                Limits {
                    writers: 2,
                    pod_deletions: 1,
                    ..limits
                },
            ),
        );
        check(
            "restart",
            any_plan(held(
                owner,
                Limits {
                    restarts: 1,
                    ..limits
                },
            )),
        );
        check(
            "restart, consumer",
            held(
                owner,
                Limits {
                    restarts: 1,
                    ..late
                },
            ),
        );
        check(
            "replaced node",
            any_plan(held(
                owner,
                Limits {
                    replacements: 1,
                    ..limits
                },
            )),
        );
        check(
            "first ownership, two controllers",
            first(
                owner,
                Limits {
                    writers: 2,
                    ..limits
                },
            ),
        );
        check(
            "first ownership, two changes",
            first(owner, Limits { flips: 2, ..limits }),
        );
        check("first ownership, late consumer", first(owner, late));
        check(
            "reshape, two changes",
            reshape(
                owner,
                Limits {
                    writers: 2,
                    flips: 2,
                    ..limits
                },
            ),
        );
        check("reshape, late consumer", reshape(owner, late));
        check(
            "two controllers, two changes",
            held(
                owner,
                Limits {
                    writers: 2,
                    flips: 2,
                    ..limits
                },
            ),
        );
    }
}
