use super::*;

fn foreign(facts: &mut Facts) {
    facts.foreign = vec![ForeignOwner {
        who: "DaemonSet kaito/some-name".into(),
        evidence: "pod mounts the device-plugins directory".into(),
        host_plugin: false,
    }];
}

/// One of every position a node can be in.
fn positions() -> Vec<Facts> {
    let mut handed = free_of(Owner::DevicePlugin, 5, wants(Owner::Dra));
    handed.record = Some(record(Some(Owner::Dra), 5));
    let mut first = untouched(wants(Owner::Dra));
    first.record = Some(record(None, 1));
    first.report = Some(answer(1, None));
    let mut granted = held_by(Owner::Dra, wants(Owner::Dra));
    granted.node.fence = Some(1);
    vec![
        first,
        held_by(Owner::DevicePlugin, wants(Owner::Dra)),
        draining(Owner::DevicePlugin, wants(Owner::Dra)),
        free_of(Owner::DevicePlugin, 3, wants(Owner::Dra)),
        free_of(Owner::DevicePlugin, 4, wants(Owner::Dra)),
        handed,
        granted,
    ]
}

#[test]
fn a_foreign_owner_stops_every_write_wherever_the_node_stands() {
    for mut facts in positions() {
        foreign(&mut facts);
        let decision = step(&fresh(facts, vec![]));
        assert_eq!(
            (decision.step, reason(&decision)),
            (Step::Hold, Some(Reason::ForeignOwner))
        );
        assert_eq!((decision.write.as_ref(), decision.wake_s), (None, None));
        assert!(
            message(&decision).contains("kaito/some-name")
                && message(&decision).contains("device-plugins")
        );
    }
}

#[test]
fn a_plugin_of_the_host_itself_is_named_so_under_a_dra_cohort_and_stops_as_much() {
    for mut facts in positions() {
        foreign(&mut facts);
        facts
            .foreign
            .iter_mut()
            .for_each(|foreign| foreign.host_plugin = true);
        let decision = step(&fresh(facts.clone(), vec![]));
        assert_eq!(
            (decision.step, reason(&decision)),
            (Step::Hold, Some(Reason::HostPluginActive))
        );
        assert_eq!((decision.write.as_ref(), decision.wake_s), (None, None));

        // Beside it, another party: that one has to be dealt with first.
        let mut other = facts.foreign.clone();
        other
            .iter_mut()
            .for_each(|foreign| foreign.host_plugin = false);
        facts.foreign.extend(other);
        assert_eq!(
            reason(&step(&fresh(facts.clone(), vec![]))),
            Some(Reason::ForeignOwner)
        );

        facts.foreign.retain(|foreign| foreign.host_plugin);
        facts.want = wants(Owner::DevicePlugin);
        assert_eq!(
            reason(&step(&fresh(facts, vec![]))),
            Some(Reason::ForeignOwner)
        );
    }
}

#[test]
fn an_unclear_intent_stops_every_write_wherever_the_node_stands() {
    let why = Blocker {
        reason: Reason::CohortOverlap,
        message: "cohorts amber and violet both match".into(),
    };
    for mut facts in positions() {
        facts.want = Want::Hold(why.clone());
        let decision = step(&fresh(facts, vec![]));
        assert_eq!(
            decision,
            Decision {
                write: None,
                needs_fresh: false,
                needs_claim: false,
                step: Step::Hold,
                blocker: Some(why.clone()),
                wake_s: None
            }
        );
    }
}

#[test]
fn a_conflicted_node_still_gets_the_record_that_says_so() {
    let why = Blocker {
        reason: Reason::CohortOverlap,
        message: "cohorts amber and violet both match".into(),
    };
    let decision = step(&untouched(Want::Hold(why.clone())));
    assert_eq!(
        decision.write,
        Some(Write::Record(RecordWrite::Create { cohort: None }))
    );
    assert_eq!((decision.step, decision.blocker), (Step::Hold, Some(why)));
}

#[test]
fn a_foreign_owner_does_not_keep_us_from_leaving_a_node_that_was_never_ours() {
    let mut facts = untouched(Want::Nothing);
    facts.record = Some(record(None, 1));
    foreign(&mut facts);
    assert_eq!(
        step(&fresh(facts, vec![])).write,
        Some(Write::Record(RecordWrite::Clear))
    );
}

#[test]
fn an_owner_label_that_names_no_owner_is_left_alone_and_quoted() {
    let mut facts = held_by(Owner::Dra, wants(Owner::Dra));
    facts.node.owner = Some(Err("both".into()));
    let decision = step(&facts);
    assert_eq!(
        (decision.step, reason(&decision), &decision.write),
        (Step::Hold, Some(Reason::LabelContention), &None)
    );
    assert!(
        message(&decision).contains("\"both\""),
        "{}",
        message(&decision)
    );
}

#[test]
fn an_alias_label_that_somebody_else_uses_is_told_of_and_not_written() {
    let mut facts = held_by(Owner::Dra, wants(Owner::Dra));
    facts.node.foreign_alias = Some("site/allocation=theirs".into());
    let decision = step(&facts);
    assert_eq!(
        (decision.step, reason(&decision), &decision.write),
        (Step::Held, Some(Reason::LabelContention), &None)
    );
    assert!(
        message(&decision).contains("site/allocation=theirs"),
        "{}",
        message(&decision)
    );
}

#[test]
fn a_long_message_is_cut_to_what_the_api_takes() {
    let mut facts = positions().remove(1);
    foreign(&mut facts);
    facts.foreign[0].evidence = "ü".repeat(900);
    let decision = step(&facts);
    assert_eq!(message(&decision).chars().count(), 512);
}
