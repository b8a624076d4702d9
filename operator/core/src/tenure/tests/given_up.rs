//! Drains past their deadline: with `Evict` the node goes back and is tried again, with `Wait` it stays fenced.

use super::*;

const NOW: i64 = 1_800_000_000;
const TIMEOUT_S: u64 = 3600;

fn overdue(drain: DrainPolicy) -> Facts {
    let mut facts = fresh(
        draining(Owner::DevicePlugin, wants(Owner::Dra)),
        vec![Consumer {
            refused: Some("budget keep-it allows no disruption".into()),
            asked_lately: true,
            ..plugin_pod("ml/long-run")
        }],
    );
    facts.drain = drain;
    facts.timing.step_s = TIMEOUT_S;
    facts
}

fn aim(generation: i64) -> Aim {
    Aim {
        generation,
        cohort: Some("violet-dra".into()),
    }
}

fn why() -> Blocker {
    Blocker {
        reason: Reason::DrainTimeout,
        message: "Pod ml/long-run".into(),
    }
}

/// Given up so many times, each behind another fence.
fn given_up(times: i64) -> GivenUp {
    (0..times)
        .fold(None, |before, n| {
            Some(GivenUp::with(before, aim(1), Some(4 + 2 * n), NOW, &why()))
        })
        .expect("at least once")
}

fn left(given_up: &GivenUp, aim: &Aim, now_s: i64) -> Option<u64> {
    given_up.rest(aim, now_s, TIMEOUT_S).map(|rest| rest.left_s)
}

#[test]
fn past_its_deadline_an_evicting_drain_goes_back_and_says_who_stayed() {
    let decision = step(&overdue(DrainPolicy::Evict));
    assert_eq!(
        (decision.step, reason(&decision), &decision.write),
        (
            Step::Drain,
            Some(Reason::DrainTimeout),
            &Some(Write::Node(NodeWrite::Unfence))
        )
    );
    for word in ["ml/long-run", "keep-it", "3600 s"] {
        assert!(message(&decision).contains(word), "{}", message(&decision));
    }
}

#[test]
fn so_does_one_whose_devices_stay_in_use_on_the_node_itself() {
    let mut facts = overdue(DrainPolicy::Evict);
    facts.consumers = Some(vec![]);
    report_mut(&mut facts).in_use.device_plugin = 1;
    let decision = step(&facts);
    assert_eq!(
        (decision.step, reason(&decision), &decision.write),
        (
            Step::Attest,
            Some(Reason::DrainTimeout),
            &Some(Write::Node(NodeWrite::Unfence))
        )
    );
}

#[test]
fn a_waiting_drain_and_one_before_its_deadline_stay_fenced() {
    assert_eq!(step(&overdue(DrainPolicy::Wait)).write, None);
    let mut early = overdue(DrainPolicy::Evict);
    early.timing.step_s = TIMEOUT_S - 1;
    assert_eq!(step(&early).write, None);
}

#[test]
fn before_it_is_given_up_the_term_reaches_the_fence_within_the_same_step() {
    let mut facts = overdue(DrainPolicy::Evict);
    facts.record = Some(record(Some(Owner::DevicePlugin), 2));
    report_mut(&mut facts).observed_term = 2;
    let decision = step(&facts);
    assert_eq!(
        (decision.step, reason(&decision), decision.write),
        (
            Step::Drain,
            Some(Reason::DisruptionBudget),
            Some(Write::Record(RecordWrite::RaiseTerm { term: 3 }))
        )
    );
    facts.drain = DrainPolicy::Wait;
    assert_eq!(step(&facts).write, None);
}

#[test]
fn a_node_that_is_torn_down_is_given_back_to_nobody() {
    let mut facts = overdue(DrainPolicy::Evict);
    facts.want = Want::Nothing;
    facts.tearing_down = true;
    assert_eq!(step(&facts).write, None);
}

#[test]
fn nothing_is_given_back_after_revoke() {
    let mut facts = fresh(
        free_of(Owner::DevicePlugin, 4, wants(Owner::Dra)),
        vec![plugin_pod("ml/late")],
    );
    facts.drain = DrainPolicy::Evict;
    facts.timing.step_s = 10 * TIMEOUT_S;
    assert_ne!(step(&facts).write, Some(Write::Node(NodeWrite::Unfence)));
}

#[test]
fn the_next_try_comes_after_a_rest_and_asks_for_no_place_meanwhile() {
    let mut facts = held_by(Owner::DevicePlugin, wants(Owner::Dra));
    facts.claimed = false;
    facts.may_start = Err(Blocker {
        reason: Reason::BudgetExhausted,
        message: "its turn".into(),
    });
    facts.resting = given_up(1).rest(&aim(1), NOW + 100, TIMEOUT_S);
    let decision = step(&facts);
    assert_eq!(
        (decision.step, reason(&decision), decision.wake_s),
        (Step::Hold, Some(Reason::DrainTimeout), Some(3500))
    );
    facts.resting = given_up(1).rest(&aim(1), NOW + 3600, TIMEOUT_S);
    assert_eq!(reason(&step(&facts)), Some(Reason::BudgetExhausted));
}

#[test]
fn each_rest_is_twice_as_long_up_to_a_day() {
    let rests: Vec<_> = (1..=6)
        .map(|times| left(&given_up(times), &aim(1), NOW))
        .collect();
    let hours = [1, 2, 4, 8, 16, 24].map(|hours| Some(hours * 3600));
    assert_eq!(rests, hours);
    assert_eq!(left(&given_up(200), &aim(1), NOW), Some(24 * 3600));
}

#[test]
fn another_aim_is_tried_at_once_and_a_repeated_write_is_one_try() {
    assert_eq!(left(&given_up(3), &aim(2), NOW), None);
    let twice = GivenUp::with(Some(given_up(1)), aim(1), Some(4), NOW + 1, &why());
    assert_eq!(left(&twice, &aim(1), NOW + 1), Some(3600));
    // A controller that was restarted knows of one.
    let told = |observed| GivenUp::told(aim(1), observed, NOW, "Pod ml/long-run".into());
    assert_eq!(
        [told(None), told(Some(0))],
        [None, None],
        "another generation's try"
    );
    let told = told(Some(1)).expect("this generation's");
    assert_eq!(left(&told, &aim(1), NOW), Some(3600));
    let next = GivenUp::with(Some(told), aim(1), Some(8), NOW, &why());
    assert_eq!(left(&next, &aim(1), NOW), Some(7200));
}
