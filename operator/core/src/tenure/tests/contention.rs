//! Others who change our marks: put right once, then waited out.

use super::*;

const NOW: i64 = 1_800_000_000;

fn removed() -> ForeignChange {
    ForeignChange {
        mark: "label example/owner".into(),
        value: None,
        manager: None,
    }
}

fn set_by(manager: &str, value: &str) -> ForeignChange {
    ForeignChange {
        value: Some(value.into()),
        manager: Some(manager.into()),
        ..removed()
    }
}

/// So many changes, all at `now_s`.
fn changed(times: usize, now_s: i64) -> Contention {
    (0..times)
        .fold(None, |before, _| {
            Some(Contention::with(before, removed(), now_s))
        })
        .expect("at least one change")
}

fn left(contention: &Contention, now_s: i64) -> Option<u64> {
    contention
        .contended(now_s)
        .map(|contended| contended.left_s)
}

#[test]
fn what_somebody_changed_once_is_put_right_at_once() {
    assert_eq!(changed(1, NOW).contended(NOW), None);
}

#[test]
fn each_further_change_is_waited_out_twice_as_long_up_to_half_an_hour() {
    let holds: Vec<_> = (2..=6)
        .map(|times| left(&changed(times, NOW), NOW))
        .collect();
    assert_eq!(holds, [10, 20, 40, 80, 160].map(Some).to_vec());
    for times in [10, 11, 60, 80, 200] {
        assert_eq!(left(&changed(times, NOW), NOW), Some(1800), "{times}");
    }
}

#[test]
fn a_pause_ends_by_itself_and_the_memory_of_it_later() {
    let contention = changed(4, NOW);
    assert_eq!(left(&contention, NOW + 39), Some(1));
    assert_eq!(left(&contention, NOW + 40), None);
    assert!(!contention.is_over(NOW + 599));
    assert!(contention.is_over(NOW + 600));
    // Forgotten: the next change is the first one again.
    let again = Contention::with(Some(contention), removed(), NOW + 600);
    assert_eq!(left(&again, NOW + 600), None);
    // A clock that was set back forgets nothing and ends nothing early.
    assert_eq!(left(&changed(3, NOW), NOW - 50), Some(20));
}

#[test]
fn a_writer_that_undoes_every_write_gets_few_of_them_in_a_day() {
    let (mut now_s, mut writes, mut contention) = (NOW, 0, None);
    while now_s < NOW + 24 * 3600 {
        let pause = contention
            .as_ref()
            .and_then(|contention| left(contention, now_s));
        if let Some(pause) = pause {
            now_s += i64::try_from(pause).expect("a short pause");
        }
        writes += 1;
        // Undone within a second.
        now_s += 1;
        contention = Some(Contention::with(contention, removed(), now_s));
    }
    assert!(writes <= 60, "{writes} writes");
}

#[test]
fn while_the_pause_lasts_nothing_is_written_and_the_manager_is_named() {
    let mut facts = untouched(wants(Owner::DevicePlugin));
    facts.record = Some(record(Some(Owner::DevicePlugin), 2));
    facts.report = Some(answer(2, Some(Owner::DevicePlugin)));
    assert!(step(&facts).needs_fresh, "the label would be set again");

    let undone = Contention::with(Some(changed(2, NOW)), set_by("other-operator", "x"), NOW);
    let undone = Contention::with(Some(undone), removed(), NOW);
    facts.contended = undone.contended(NOW);
    for facts in [facts.clone(), fresh(facts, vec![])] {
        let decision = step(&facts);
        assert_eq!(
            (
                decision.step,
                reason(&decision),
                &decision.write,
                decision.needs_fresh,
                decision.wake_s
            ),
            (
                Step::Hold,
                Some(Reason::LabelContention),
                &None,
                false,
                Some(40)
            )
        );
        assert!(
            message(&decision)
                .contains("label example/owner was removed by manager=other-operator"),
            "{}",
            message(&decision)
        );
    }
}

#[test]
fn no_position_writes_anything_while_the_pause_lasts() {
    let contended = changed(3, NOW).contended(NOW);
    for owner in Owner::ALL {
        for facts in [
            untouched(wants(owner)),
            held_by(owner, wants(owner.other())),
            held_by(owner, Want::Nothing),
            draining(owner, wants(owner.other())),
            free_of(owner, 3, wants(owner.other())),
            free_of(owner, 4, wants(owner.other())),
        ] {
            for mut facts in [facts.clone(), fresh(facts, vec![])] {
                facts.contended.clone_from(&contended);
                let decision = step(&facts);
                assert!(
                    decision.write.is_none() && !decision.needs_fresh && !decision.needs_claim,
                    "{decision:?} on {facts:?}"
                );
            }
        }
    }
}

#[test]
fn a_node_that_needs_no_write_is_told_as_it_is_until_it_is_a_contest() {
    let mut facts = held_by(Owner::Dra, wants(Owner::Dra));
    facts.contended = changed(9, NOW).contended(NOW);
    assert_eq!(
        (step(&facts).step, step(&facts).blocker),
        (Step::Held, None)
    );
    facts.contended = changed(10, NOW).contended(NOW);
    let told = step(&facts);
    assert_eq!(reason(&told), Some(Reason::LabelContention));
    // In the same words however it goes on, so that nothing is written for each change.
    let more = Contention::with(
        Some(changed(10, NOW)),
        ForeignChange {
            mark: "label example/cohort".into(),
            ..removed()
        },
        NOW + 1,
    );
    facts.contended = more.contended(NOW + 1);
    assert_eq!(step(&facts).blocker, told.blocker);
}
