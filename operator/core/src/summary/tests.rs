use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::intent::{Budget, Cohort, DraTraits, DrainPolicy, Rollout, Selector, Sharing};

fn intent(names: &[&str]) -> Intent {
    let cohort = |name: &&str| Cohort {
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
        max_unavailable: None,
    };
    Intent {
        cohorts: names
            .iter()
            .map(|name| ((*name).to_owned(), cohort(name)))
            .collect(),
        owner_alias: None,
        rollout: Rollout {
            max_unavailable: Budget::Nodes(1),
            canary_nodes: 0,
            canary_soak_s: 0,
            drain: DrainPolicy::Wait,
            drain_timeout_s: 3600,
            paused: false,
        },
    }
}

/// A node of cohort amber that its DRA driver holds.
fn held(node: &str) -> TenureOutcome {
    TenureOutcome {
        node: node.into(),
        vendor: Vendor::Nvidia,
        cohort: Some("amber".into()),
        matched: true,
        owner: Some(Owner::Dra),
        excluded: None,
        step: Step::Held,
        blocker: None,
        since_s: 1_000,
    }
}

fn at(node: &str, step: Step, reason: Option<Reason>) -> TenureOutcome {
    let blocker = reason.map(|reason| Blocker::new(reason, format!("{reason} as found")));
    TenureOutcome {
        step,
        blocker,
        ..held(node)
    }
}

fn excluded(node: &str, reason: Reason) -> TenureOutcome {
    let why = Blocker::new(reason, "left alone");
    TenureOutcome {
        owner: None,
        excluded: Some(why.clone()),
        blocker: Some(why),
        step: Step::Hold,
        ..held(node)
    }
}

/// `kind` → (status, reason).
fn told(conditions: &[Condition]) -> BTreeMap<&'static str, (Truth, &'static str)> {
    conditions
        .iter()
        .map(|condition| (condition.kind, (condition.status, condition.reason)))
        .collect()
}

fn message<'a>(conditions: &'a [Condition], kind: &str) -> &'a str {
    conditions
        .iter()
        .find(|condition| condition.kind == kind)
        .map_or("", |condition| &condition.message)
}

#[test]
fn conditions_of_a_cohort_follow_from_its_nodes() {
    use Truth::{False, True};
    let held_and = |more: &[TenureOutcome]| [&[held("a"), held("b")], more].concat();
    for (title, outcomes, ready, progressing, degraded) in [
        (
            "all held",
            held_and(&[]),
            (True, "AllNodesReady"),
            (False, "Settled"),
            (False, "AsExpected"),
        ),
        (
            "no node",
            vec![],
            (False, "NoMatchingNodes"),
            (False, "Settled"),
            (False, "AsExpected"),
        ),
        (
            "excluded nodes do not count against it",
            held_and(&[excluded("c", Reason::NoHardware)]),
            (True, "AllNodesReady"),
            (False, "Settled"),
            (False, "AsExpected"),
        ),
        (
            "excluded nodes alone",
            vec![excluded("c", Reason::ExcludedByProvider)],
            (False, "OnlyExcludedNodes"),
            (False, "Settled"),
            (False, "AsExpected"),
        ),
        (
            "one on its way",
            held_and(&[at("c", Step::Vacate, None)]),
            (False, "HandoverUnderWay"),
            (True, "HandoverUnderWay"),
            (False, "AsExpected"),
        ),
        (
            "one drains",
            held_and(&[at("c", Step::Drain, Some(Reason::ConsumersRemain))]),
            (False, "Waiting"),
            (True, "HandoverUnderWay"),
            (False, "AsExpected"),
        ),
        (
            "a turn to wait for leaves a held node ready",
            held_and(&[at("c", Step::Held, Some(Reason::BudgetExhausted))]),
            (True, "AllNodesReady"),
            (True, "Waiting"),
            (False, "AsExpected"),
        ),
        (
            "a handover waits for its turn",
            held_and(&[at("c", Step::Hold, Some(Reason::BudgetExhausted))]),
            (False, "Waiting"),
            (True, "Waiting"),
            (False, "AsExpected"),
        ),
        (
            "paused",
            held_and(&[at("c", Step::Hold, Some(Reason::Paused))]),
            (False, "Waiting"),
            (False, "RolloutPaused"),
            (False, "AsExpected"),
        ),
        (
            "a person must act",
            held_and(&[at("c", Step::Hold, Some(Reason::DriverTooOld))]),
            (False, "Blocked"),
            (False, "Standstill"),
            (True, "DriverTooOld"),
        ),
        (
            "a held node that lost what it advertised",
            held_and(&[at("c", Step::Held, Some(Reason::AdvertisementLost))]),
            (False, "Blocked"),
            (False, "Standstill"),
            (True, "AdvertisementLost"),
        ),
        (
            "a handover that needs a person is no progress",
            held_and(&[at("c", Step::Drain, Some(Reason::StuckClaim))]),
            (False, "Blocked"),
            (False, "Standstill"),
            (True, "StuckClaim"),
        ),
        (
            "a conflict outweighs more blocked nodes",
            held_and(&[
                at("c", Step::Hold, Some(Reason::DriverTooOld)),
                at("d", Step::Hold, Some(Reason::DriverTooOld)),
                at("e", Step::Hold, Some(Reason::CohortOverlap)),
            ]),
            (False, "Conflicted"),
            (False, "Standstill"),
            (True, "CohortOverlap"),
        ),
        (
            "an owned node without hardware is trouble and not an exclusion",
            held_and(&[at("c", Step::Hold, Some(Reason::NoHardware))]),
            (False, "Blocked"),
            (False, "Standstill"),
            (True, "NoHardware"),
        ),
    ] {
        let summary = summarize(&intent(&["amber"]), &outcomes, &[], true);
        let expected = BTreeMap::from([
            ("Ready", ready),
            ("Progressing", progressing),
            ("Degraded", degraded),
        ]);
        let (_, conditions) = &summary.cohorts["amber"];
        assert_eq!(told(conditions), expected, "{title}: {conditions:#?}");
        let mut cluster = told(&summary.conditions);
        assert_eq!(cluster.remove("SpecValid"), Some((True, "Accepted")));
        assert_eq!(
            cluster, expected,
            "{title}: the cluster has this cohort alone"
        );
    }
}

#[test]
fn nothing_is_said_about_what_is_not_known_yet() {
    let summary = summarize(&intent(&["amber"]), &[held("a")], &[], false);
    for conditions in [&summary.conditions, &summary.cohorts["amber"].1] {
        for (kind, told) in told(conditions)
            .into_iter()
            .filter(|(kind, _)| *kind != "SpecValid")
        {
            assert_eq!(told, (Truth::Unknown, "NotObserved"), "{kind}");
        }
    }
}

#[test]
fn a_cohort_without_nodes_does_not_make_the_cluster_unready() {
    let summary = summarize(&intent(&["amber", "zinc"]), &[held("a")], &[], true);
    assert_eq!(
        told(&summary.conditions)["Ready"],
        (Truth::True, "AllNodesReady")
    );
    assert_eq!(
        told(&summary.cohorts["zinc"].1)["Ready"],
        (Truth::False, "NoMatchingNodes")
    );
}

#[test]
fn what_concerns_the_cluster_as_a_whole_is_told_there_and_not_on_cohorts() {
    let taken = Blocker::new(
        Reason::NameTaken,
        "DeviceClass gpu.nvidia.com exists and is not Freehold's",
    );
    let summary = summarize(&intent(&["amber"]), &[held("a")], &[(taken, 500)], true);
    assert_eq!(
        told(&summary.conditions)["Ready"],
        (Truth::False, "Conflicted")
    );
    assert_eq!(
        told(&summary.cohorts["amber"].1)["Ready"],
        (Truth::True, "AllNodesReady")
    );
    assert!(
        message(&summary.conditions, "Degraded")
            .starts_with("NameTaken: DeviceClass gpu.nvidia.com exists and is not Freehold's. Next: Look who made"),
        "{}",
        message(&summary.conditions, "Degraded")
    );
    assert_eq!(
        summary.blocker_counts,
        BTreeMap::from([(Reason::NameTaken, 1)])
    );
    assert_eq!(summary.blockers[0].node, None);
}

#[test]
fn counts_tell_matched_owned_and_ready_apart() {
    let leaving = TenureOutcome {
        matched: false,
        ..at("e", Step::Drain, Some(Reason::ConsumersRemain))
    };
    let first = TenureOutcome {
        owner: None,
        ..at("f", Step::Discover, Some(Reason::AgentSilent))
    };
    let outcomes = [
        held("a"),
        at("b", Step::Held, Some(Reason::Paused)),
        at("c", Step::Hold, Some(Reason::UntoleratedTaint)),
        excluded("d", Reason::NoHardware),
        leaving,
        first,
        at("g", Step::Hold, Some(Reason::ForeignOwner)),
    ];
    let summary = summarize(&intent(&["amber"]), &outcomes, &[], true);
    assert_eq!(
        summary.cohorts["amber"].0,
        Counts {
            matched: 6,
            excluded: 1,
            owned: 5,
            ready: 2,
            migrating: 2,
            waiting: 3,
            blocked: 1,
            conflicted: 1
        }
    );
}

#[test]
fn nodes_of_a_removed_cohort_stay_visible_until_they_are_given_up() {
    let leaving = TenureOutcome {
        matched: false,
        cohort: Some("gone".into()),
        ..at("a", Step::Drain, None)
    };
    let revoked = TenureOutcome {
        matched: false,
        cohort: None,
        owner: None,
        ..at("b", Step::Vacate, None)
    };
    let settled = TenureOutcome {
        matched: false,
        cohort: None,
        owner: None,
        ..at("c", Step::None, None)
    };
    let summary = summarize(&intent(&[]), &[leaving, revoked, settled], &[], true);
    assert_eq!(summary.cohorts.keys().collect::<Vec<_>>(), ["", "gone"]);
    assert_eq!(
        told(&summary.conditions)["Progressing"],
        (Truth::True, "HandoverUnderWay")
    );
    assert_eq!(
        message(&summary.conditions, "Progressing"),
        "2 node(s) on the way to what is wanted."
    );
}

#[test]
fn messages_are_grouped_and_name_three_nodes_and_what_they_have_in_common() {
    let mut outcomes: Vec<TenureOutcome> = ["n4", "n2", "n5", "n1", "n3"]
        .iter()
        .map(|node| at(node, Step::Hold, Some(Reason::DriverTooOld)))
        .collect();
    outcomes.push(TenureOutcome {
        blocker: Some(Blocker::new(
            Reason::CohortOverlap,
            "selected by cohort amber and by zinc.",
        )),
        ..at("n9", Step::Hold, None)
    });
    outcomes.push(held("n0"));
    let summary = summarize(&intent(&["amber"]), &outcomes, &[], true);
    assert_eq!(
        message(&summary.conditions, "Ready"),
        "1 of 7 nodes ready. CohortOverlap on n9: selected by cohort amber and by zinc. DriverTooOld on 5 nodes (n1, n2, n3 and 2 \
         more): DriverTooOld as found."
    );
    outcomes[0].blocker = Some(Blocker::new(Reason::DriverTooOld, "another version"));
    let differing = summarize(&intent(&["amber"]), &outcomes, &[], true);
    assert!(
        message(&differing.conditions, "Ready")
            .ends_with("DriverTooOld on 5 nodes (n1, n2, n3 and 2 more).")
    );
}

#[test]
fn exemplars_show_every_reason_before_they_show_more_of_one() {
    let mut outcomes: Vec<TenureOutcome> = (0..30)
        .map(|index| TenureOutcome {
            since_s: 100 + index,
            ..at(
                &format!("n{index:02}"),
                Step::Hold,
                Some(Reason::DriverTooOld),
            )
        })
        .collect();
    outcomes.push(TenureOutcome {
        since_s: 900,
        ..at("late", Step::Hold, Some(Reason::ForeignOwner))
    });
    outcomes.push(TenureOutcome {
        since_s: 1,
        ..at("early", Step::Drain, Some(Reason::ConsumersRemain))
    });
    outcomes.push(TenureOutcome {
        since_s: 2,
        ..excluded("cpu-1", Reason::NoHardware)
    });
    outcomes.push(TenureOutcome {
        since_s: 3,
        ..excluded("cpu-2", Reason::NoHardware)
    });
    let summary = summarize(&intent(&["amber"]), &outcomes, &[], true);
    let shown: Vec<&str> = summary
        .blockers
        .iter()
        .filter_map(|blocker| blocker.node.as_deref())
        .collect();
    assert_eq!(shown.len(), MAX_EXEMPLARS);
    assert_eq!(shown[..6], ["late", "n00", "early", "cpu-1", "n01", "n02"]);
    assert!(!shown.contains(&"cpu-2"), "more exclusions are no news");
    assert_eq!(summary.blocker_counts[&Reason::DriverTooOld], 30);
    assert_eq!(summary.blocker_counts[&Reason::NoHardware], 2);
}

#[test]
fn one_nodes_condition_tells_of_both_vendors_and_the_worse_decides() {
    let neuron = |outcome: TenureOutcome| TenureOutcome {
        vendor: Vendor::Neuron,
        cohort: Some("copper".into()),
        owner: Some(Owner::DevicePlugin),
        ..outcome
    };
    let unowned = TenureOutcome {
        owner: None,
        ..at("a", Step::HandWord, None)
    };
    for (outcomes, status, reason, message) in [
        (
            vec![],
            Truth::Unknown,
            "NotObserved",
            "Nothing is known about this node yet.",
        ),
        (
            vec![held("a")],
            Truth::True,
            "OwnerReady",
            "NVIDIA of cohort amber: owner DRA advertises what it should.",
        ),
        (
            vec![
                held("a"),
                neuron(at("a", Step::Drain, Some(Reason::ConsumersRemain))),
            ],
            Truth::False,
            "ConsumersRemain",
            "NVIDIA of cohort amber: owner DRA advertises what it should. Neuron of cohort copper: owner DevicePlugin, step Drain, \
             ConsumersRemain: ConsumersRemain as found.",
        ),
        (
            vec![unowned],
            Truth::False,
            "HandoverUnderWay",
            "NVIDIA of cohort amber: no owner, step HandWord.",
        ),
        (
            vec![excluded("a", Reason::NoHardware)],
            Truth::False,
            "NoHardware",
            "NVIDIA of cohort amber: no owner; left alone, NoHardware: left alone.",
        ),
        (
            vec![held("a"), neuron(excluded("a", Reason::NoHardware))],
            Truth::False,
            "NoHardware",
            "NVIDIA of cohort amber: owner DRA advertises what it should. Neuron of cohort copper: owner DevicePlugin; left alone, \
             NoHardware: left alone.",
        ),
        (
            vec![at("a", Step::Held, Some(Reason::Paused))],
            Truth::True,
            "OwnerReady",
            "NVIDIA of cohort amber: owner DRA advertises what it should, Paused: Paused as found.",
        ),
    ] {
        let outcomes: Vec<&TenureOutcome> = outcomes.iter().collect();
        let condition = node_condition(&outcomes);
        assert_eq!(
            (condition.status, condition.reason),
            (status, reason),
            "{outcomes:?}"
        );
        assert_eq!(condition.message, message);
    }
}

#[test]
fn a_spec_that_cannot_be_understood_is_degraded_and_never_ready() {
    let conditions =
        invalid("spec.cohorts[amber].nvidia.driverRoot: found 'x', expected an absolute path");
    assert_eq!(
        told(&conditions),
        BTreeMap::from([
            ("Ready", (Truth::Unknown, "SpecInvalid")),
            ("Progressing", (Truth::False, "SpecInvalid")),
            ("Degraded", (Truth::True, "SpecInvalid")),
            ("SpecValid", (Truth::False, "SpecInvalid")),
        ])
    );
    assert!(message(&conditions, "SpecValid").contains("driverRoot"));
}

fn any_step() -> impl Strategy<Value = Step> {
    prop::sample::select(vec![
        Step::None,
        Step::Discover,
        Step::Fence,
        Step::Drain,
        Step::Attest,
        Step::Revoke,
        Step::Vacate,
        Step::Reshape,
        Step::HandWord,
        Step::Grant,
        Step::Verify,
        Step::Unfence,
        Step::Held,
        Step::Hold,
    ])
}

fn any_outcome() -> impl Strategy<Value = TenureOutcome> {
    (
        "[a-zä]{1,3}",
        any_step(),
        prop::option::of((prop::sample::select(Reason::ALL), "[a-zä ]{0,4}")),
        prop::option::of(prop::sample::select(vec!["amber", "zinc"])),
        any::<(bool, bool)>(),
        0i64..100,
    )
        .prop_map(
            |(node, step, blocker, cohort, (excluded, owned), since_s)| {
                let blocker =
                    blocker.map(|(reason, message)| Blocker::new(reason, message.repeat(200)));
                TenureOutcome {
                    node: node.repeat(80),
                    vendor: Vendor::Nvidia,
                    cohort: cohort.map(str::to_owned),
                    matched: cohort.is_some(),
                    owner: (owned && !excluded).then_some(Owner::DevicePlugin),
                    excluded: blocker.clone().filter(|_| excluded),
                    step,
                    blocker,
                    since_s,
                }
            },
        )
}

proptest! {
    #[test]
    fn any_fleet_gives_a_bounded_status_that_does_not_depend_on_the_order_of_its_nodes(
        outcomes in prop::collection::vec(any_outcome(), 0..60),
        known in any::<bool>(),
    ) {
        let intent = intent(&["amber"]);
        let summary = summarize(&intent, &outcomes, &[], known);
        let reversed: Vec<TenureOutcome> = outcomes.iter().rev().cloned().collect();
        let again = summarize(&intent, &reversed, &[], known);
        prop_assert_eq!(&summary.conditions, &again.conditions);
        prop_assert_eq!(&summary.cohorts, &again.cohorts);
        prop_assert!(summary.blockers.len() <= MAX_EXEMPLARS);
        for condition in summary.cohorts.values().flat_map(|(_, conditions)| conditions).chain(&summary.conditions) {
            prop_assert!(condition.message.len() <= MAX_CONDITION_MESSAGE, "{}", condition.message.len());
            prop_assert!(!condition.message.is_empty() || condition.kind == "Progressing");
        }
        for blocker in &summary.blockers {
            prop_assert!(blocker.message.chars().count() <= 512);
        }
        let shown: BTreeSet<Reason> = summary.blockers.iter().map(|blocker| blocker.reason).collect();
        if summary.blocker_counts.len() <= MAX_EXEMPLARS / 2 {
            prop_assert_eq!(shown, summary.blocker_counts.keys().copied().collect::<BTreeSet<_>>());
        }
        let all_ready = |conditions: &[Condition]| told(conditions)["Ready"].0 == Truth::True;
        for (name, (counts, conditions)) in &summary.cohorts {
            if all_ready(conditions) {
                prop_assert!(known && counts.ready > 0, "{name}: {counts:?}");
                prop_assert_eq!(counts.blocked + counts.conflicted, 0);
            }
        }
    }
}
