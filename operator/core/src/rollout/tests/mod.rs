mod claims;
mod properties;
mod stages;

use super::*;
use crate::intent::{Budget, Cohort, DraTraits, DrainPolicy, Rollout, Selector, Sharing};
use crate::vendor::Owner;

const NOW: i64 = 100_000;
const SOAK: u64 = 600;

fn intent(
    max_unavailable: Budget,
    canary_nodes: u32,
    cohorts: &[(&str, Option<Budget>)],
) -> Intent {
    let cohort = |(name, budget): &(&str, Option<Budget>)| Cohort {
        name: (*name).to_owned(),
        vendor: Vendor::Nvidia,
        owner: Owner::Dra,
        selector: Selector::default(),
        tolerations: vec![],
        sharing: Sharing::Exclusive,
        mig_strategy: None,
        layout: None,
        runtime_class: None,
        config_map: None,
        mps: false,
        accept_unknown_driver: false,
        dra: DraTraits::default(),
        shape: "s".into(),
        template: "t".into(),
        max_unavailable: *budget,
    };
    Intent {
        cohorts: cohorts
            .iter()
            .map(|given| (given.0.to_owned(), cohort(given)))
            .collect(),
        owner_alias: None,
        rollout: Rollout {
            max_unavailable,
            canary_nodes,
            canary_soak_s: SOAK,
            drain: DrainPolicy::Wait,
            drain_timeout_s: 3600,
            paused: false,
        },
    }
}

fn rules(intent: &Intent) -> Rules<'_> {
    Rules {
        intent,
        generation: 7,
        confirmed: None,
        tearing_down: false,
        now_s: NOW,
    }
}

fn standing(node: &str, cohort: Option<&str>, stage: Stage) -> Standing {
    Standing {
        node: node.into(),
        vendor: Vendor::Nvidia,
        cohort: cohort.map(Into::into),
        stage,
        since_s: NOW - 50,
    }
}

fn fleet(stages: &[Stage]) -> Vec<Standing> {
    stages
        .iter()
        .enumerate()
        .map(|(index, stage)| standing(&format!("n{index}"), Some("amber"), *stage))
        .collect()
}

fn started(admission: &Admission) -> Vec<&str> {
    admission.starts().map(|(node, _)| node).collect()
}

fn refusal(admission: &Admission, node: &str, cohort: Option<&str>) -> Blocker {
    admission
        .may_start(node, Vendor::Nvidia, cohort)
        .expect_err("it has to wait")
}

#[test]
fn no_more_nodes_start_than_the_budget_leaves_room_for() {
    use Stage::{
        AsksHandover as Asks, AsksRestart, Failed, Settled, Stuck, UnderWay, Unowned, Verifying,
    };
    let broken = Failed(Reason::OperandNotRunning);
    for (title, budget, stages, expected) in [
        (
            "one at a time",
            Budget::Nodes(1),
            vec![Settled, Asks, Asks, Asks],
            vec!["n1"],
        ),
        (
            "one is under way",
            Budget::Nodes(1),
            vec![UnderWay, Asks],
            vec![],
        ),
        (
            "two places, one taken",
            Budget::Nodes(2),
            vec![UnderWay, Asks, Asks],
            vec!["n1"],
        ),
        (
            "a share, rounded up",
            Budget::Percent(50),
            vec![Asks, Asks, Asks, Settled, Settled],
            vec!["n0", "n1", "n2"],
        ),
        (
            "nodes without an owner are no part of a share",
            Budget::Percent(50),
            vec![Asks, Asks, Unowned, Unowned],
            vec!["n0"],
        ),
        (
            "a first verification delays restarts",
            Budget::Nodes(1),
            vec![Verifying, AsksRestart],
            vec![],
        ),
        (
            "and no handover",
            Budget::Nodes(1),
            vec![Verifying, Asks],
            vec!["n1"],
        ),
        (
            "one stuck node holds nobody",
            Budget::Nodes(1),
            vec![Stuck, Asks, Asks],
            vec!["n1"],
        ),
        (
            "more stuck nodes than the budget do",
            Budget::Nodes(1),
            vec![Stuck, Stuck, Asks],
            vec![],
        ),
        (
            "two stuck, two places",
            Budget::Nodes(2),
            vec![Stuck, Stuck, UnderWay, Asks, Asks],
            vec!["n3"],
        ),
        (
            "a failure halts the cohort",
            Budget::Nodes(9),
            vec![broken, Asks, Asks],
            vec![],
        ),
        (
            "nobody asks",
            Budget::Nodes(9),
            vec![Settled, UnderWay, Unowned],
            vec![],
        ),
    ] {
        let intent = intent(budget, 0, &[("amber", None)]);
        assert_eq!(
            started(&admit(&rules(&intent), &fleet(&stages))),
            expected,
            "{title}"
        );
    }
}

#[test]
fn a_cohorts_own_budget_lies_below_the_clusters() {
    let intent = intent(
        Budget::Nodes(3),
        0,
        &[("amber", Some(Budget::Nodes(1))), ("zinc", None)],
    );
    let standings = [
        standing("a1", Some("amber"), Stage::AsksHandover),
        standing("a2", Some("amber"), Stage::AsksHandover),
        standing("z1", Some("zinc"), Stage::AsksHandover),
        standing("z2", Some("zinc"), Stage::AsksHandover),
        standing("z3", Some("zinc"), Stage::AsksHandover),
    ];
    let admission = admit(&rules(&intent), &standings);
    assert_eq!(started(&admission), ["a1", "z1", "z2"]);
    assert_eq!(
        refusal(&admission, "a2", Some("amber")).message,
        "waiting for a place: at most 1 node(s) of cohort amber may be unavailable at once"
    );
    assert_eq!(
        refusal(&admission, "z3", Some("zinc")).message,
        "waiting for a place: at most 3 node(s) of the cluster may be unavailable at once"
    );
}

#[test]
fn whoever_asked_first_goes_first_and_a_second_vendor_on_a_node_costs_no_second_place() {
    let intent = intent(Budget::Nodes(1), 0, &[("amber", None)]);
    let earlier = Standing {
        since_s: NOW - 500,
        ..standing("z", Some("amber"), Stage::AsksHandover)
    };
    let both = Standing {
        vendor: Vendor::Neuron,
        cohort: None,
        ..standing("z", None, Stage::AsksHandover)
    };
    let standings = [
        standing("a", Some("amber"), Stage::AsksHandover),
        earlier,
        both,
    ];
    let admission = admit(&rules(&intent), &standings);
    assert_eq!(
        admission.starts().collect::<Vec<_>>(),
        [("z", Vendor::Nvidia), ("z", Vendor::Neuron)]
    );
}

#[test]
fn who_has_not_asked_is_told_to_wait_its_turn() {
    let intent = intent(Budget::Nodes(1), 0, &[("amber", None)]);
    let admission = admit(&rules(&intent), &[]);
    let why = refusal(&admission, "newcomer", Some("amber"));
    assert_eq!(
        (why.reason, why.message.as_str()),
        (Reason::BudgetExhausted, "its turn has not come yet")
    );
}

#[test]
fn canaries_go_first_and_the_rest_follows_when_they_have_soaked() {
    let intent = intent(Budget::Nodes(10), 2, &[("amber", None)]);
    let held_for = |node: &str, seconds: i64| Standing {
        since_s: NOW - seconds,
        ..standing(node, Some("amber"), Stage::Settled)
    };
    let asking =
        ["n1", "n2", "n3", "n4"].map(|node| standing(node, Some("amber"), Stage::AsksHandover));
    let with = |more: &[Standing]| [&asking[..], more].concat();
    for (title, standings, expected, wake) in [
        ("first two", with(&[]), vec!["n1", "n2"], None),
        (
            "one is under way",
            with(&[standing("c", Some("amber"), Stage::UnderWay)]),
            vec!["n1"],
            None,
        ),
        (
            "one soaks, one may follow",
            with(&[held_for("c", 10)]),
            vec!["n1"],
            Some(590),
        ),
        (
            "both soak",
            with(&[held_for("c", 10), held_for("d", 599)]),
            vec![],
            Some(1),
        ),
        (
            "one soaked",
            with(&[held_for("c", 600), held_for("d", 100)]),
            vec![],
            Some(500),
        ),
        (
            "both soaked",
            with(&[held_for("c", 600), held_for("d", 9000)]),
            vec!["n1", "n2", "n3", "n4"],
            None,
        ),
        (
            "a stuck canary is replaced",
            with(&[standing("c", Some("amber"), Stage::Stuck)]),
            vec!["n1", "n2"],
            None,
        ),
    ] {
        let admission = admit(&rules(&intent), &standings);
        assert_eq!(
            (started(&admission), admission.wake_s),
            (expected, wake),
            "{title}"
        );
    }
    let waiting = admit(
        &rules(&intent),
        &with(&[held_for("c", 10), held_for("d", 20)]),
    );
    assert_eq!(
        refusal(&waiting, "n1", Some("amber")).message,
        "waiting for 2 canary node(s) of cohort amber to hold for 600 s"
    );
}

#[test]
fn a_failure_halts_its_own_cohort_and_one_from_before_the_change_does_not() {
    let intent = intent(Budget::Nodes(9), 0, &[("amber", None), ("zinc", None)]);
    let failed = Standing {
        since_s: NOW - 20,
        ..standing(
            "bad",
            Some("amber"),
            Stage::Failed(Reason::AdvertisementMismatch),
        )
    };
    let asking = [
        standing("a", Some("amber"), Stage::AsksRestart),
        standing("z", Some("zinc"), Stage::AsksRestart),
    ];
    let halted = admit(
        &rules(&intent),
        &[&asking[..], std::slice::from_ref(&failed)].concat(),
    );
    assert_eq!(started(&halted), ["z"]);
    let why = refusal(&halted, "a", Some("amber"));
    assert_eq!(why.reason, Reason::RolloutHalted);
    assert_eq!(
        why.message,
        "cohort amber is halted: node bad failed after its change (AdvertisementMismatch)"
    );

    let old = Standing {
        since_s: NOW - 5_000,
        ..failed
    };
    assert_eq!(
        started(&admit(&rules(&intent), &[&asking[..], &[old]].concat())),
        ["a", "z"]
    );
}

#[test]
fn nothing_starts_while_paused_unless_everything_is_being_removed() {
    let mut intent = intent(Budget::Nodes(2), 0, &[("amber", None)]);
    intent.rollout.paused = true;
    let standings = [
        standing("a", Some("amber"), Stage::AsksHandover),
        standing("b", None, Stage::AsksHandover),
    ];
    let paused = admit(&rules(&intent), &standings);
    assert_eq!(started(&paused), Vec::<&str>::new());
    assert_eq!(refusal(&paused, "a", Some("amber")).reason, Reason::Paused);
    assert_eq!(refusal(&paused, "b", None).reason, Reason::Paused);
    let removing = admit(
        &Rules {
            tearing_down: true,
            ..rules(&intent)
        },
        &standings,
    );
    assert_eq!(started(&removing), ["a", "b"]);
}

#[test]
fn giving_up_most_of_what_is_owned_waits_for_a_persons_word() {
    let intent = intent(Budget::Nodes(1), 0, &[("amber", None)]);
    let of = |leaving: usize, staying: usize| -> Vec<Standing> {
        (0..leaving)
            .map(|index| standing(&format!("l{index}"), None, Stage::AsksHandover))
            .chain(
                (0..staying)
                    .map(|index| standing(&format!("s{index}"), Some("amber"), Stage::Settled)),
            )
            .collect()
    };
    let word = |generation, nodes| Some(Confirmation { generation, nodes });
    for (title, leaving, staying, confirmed, held_back) in [
        ("half is no mass change", 6, 6, None, false),
        ("more than half is", 7, 6, None, true),
        ("all of a small pool is not", 4, 0, None, false),
        ("all of a larger one is", 5, 0, None, true),
        ("confirmed", 7, 6, word(7, 7), false),
        ("confirmed for an earlier spec", 7, 6, word(6, 7), true),
        ("confirmed for fewer nodes", 7, 6, word(7, 5), true),
    ] {
        let admission = admit(
            &Rules {
                confirmed,
                ..rules(&intent)
            },
            &of(leaving, staying),
        );
        assert_eq!(started(&admission).is_empty(), held_back, "{title}");
    }
    let held_back = admit(&rules(&intent), &of(7, 6));
    let why = refusal(&held_back, "l0", None);
    assert_eq!(why.reason, Reason::MassChange);
    assert_eq!(
        why.message,
        "7 of 13 owned nodes would be given up at once, which is more than 50 %; to confirm: kubectl annotate acceleratorcluster \
         cluster freehold.dev/confirm-release=7/7 --overwrite"
    );
    let removing = admit(
        &Rules {
            tearing_down: true,
            ..rules(&intent)
        },
        &of(7, 6),
    );
    assert_eq!(
        started(&removing),
        ["l0"],
        "a deletion is an order; the budget still holds"
    );

    // What stays goes on meanwhile.
    let mut mixed = of(8, 6);
    mixed.push(standing("other", Some("amber"), Stage::AsksHandover));
    assert_eq!(started(&admit(&rules(&intent), &mixed)), ["other"]);
}

#[test]
fn a_confirmation_is_a_generation_and_a_number_of_nodes() {
    assert_eq!(
        Confirmation::parse("7/150"),
        Some(Confirmation {
            generation: 7,
            nodes: 150
        })
    );
    for nonsense in ["", "yes", "7", "7/", "/3", "7/-1", "7/3/1", "seven/3"] {
        assert_eq!(Confirmation::parse(nonsense), None, "{nonsense}");
    }
}
