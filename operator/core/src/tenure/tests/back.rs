use super::*;

/// Revoked from DRA, which the plugin is to follow; the DRA driver is gone.
fn dra_left(term: i64) -> Facts {
    free_of(Owner::Dra, term, wants(Owner::DevicePlugin))
}

fn back_order(term: i64) -> Option<Write> {
    Some(Write::Record(RecordWrite::HandWord {
        cohort: DRA_COHORT.into(),
        owner: Owner::Dra,
        term,
        dra_cohort: Some(DRA_COHORT.into()),
    }))
}

#[test]
fn a_late_claim_or_holder_sends_the_node_back_to_dra() {
    for late in [claim("ml/late"), claim_pod("ml/late")] {
        let decision = step(&fresh(dra_left(4), vec![late]));
        assert_eq!(decision.write, back_order(5));
        assert!(
            message(&decision).contains("ml/late") && message(&decision).contains(DRA_COHORT),
            "{}",
            message(&decision)
        );
    }
    let mut held = fresh(dra_left(4), vec![]);
    report_mut(&mut held).in_use.dra = 1;
    assert_eq!(step(&held).write, back_order(5));
}

#[test]
fn what_dra_itself_left_behind_does_not_hinder_its_return() {
    let mut facts = fresh(dra_left(4), vec![claim("ml/late")]);
    facts.slices = slices(4);
    report_mut(&mut facts).dra_registered = true;
    assert_eq!(step(&facts).write, back_order(5));
}

#[test]
fn the_way_back_needs_the_vacate_proof_about_the_plugin() {
    let cases: [(Reason, bool, Spoil); 5] = [
        (Reason::AdvertisementLingers, false, |facts| {
            facts.node.allocatable.insert(RESOURCE.into(), 4);
        }),
        (Reason::SocketLingers, false, |facts| {
            report_mut(facts).plugin_sockets = vec!["nvidia-gpu.sock".into()];
        }),
        (Reason::OperandLingers, false, |facts| {
            facts.operands = vec![operand(Owner::DevicePlugin)];
        }),
        (Reason::AgentSilent, false, |facts| {
            report_mut(facts).observed_term = 3;
        }),
        (Reason::DevicesInUse, true, |facts| {
            report_mut(facts).in_use.device_plugin = 1;
        }),
    ];
    for (expected, at_once, spoil) in cases {
        let mut facts = fresh(dra_left(4), vec![claim("ml/late")]);
        spoil(&mut facts);
        if at_once {
            let decision = step(&facts);
            assert_eq!((reason(&decision), decision.write), (Some(expected), None));
        } else {
            assert_blocked_in_time(facts, Step::Vacate, expected);
        }
    }
    let both = step(&fresh(
        dra_left(4),
        vec![claim("ml/late"), plugin_pod("ml/other")],
    ));
    assert_eq!(
        (reason(&both), both.write),
        (Some(Reason::ConsumersRemain), None)
    );
}

#[test]
fn a_claim_found_after_the_word_was_handed_on_goes_back_to_the_cohort_that_dra_had() {
    let mut facts = fresh(dra_left(5), vec![claim("ml/late")]);
    facts.record = Some(RecordFacts {
        dra_cohort: Some(DRA_COHORT.into()),
        ..record(Some(Owner::DevicePlugin), 5)
    });
    assert_eq!(
        step(&facts).write,
        Some(Write::Node(NodeWrite::Fence { term: 7 }))
    );
    facts.node.fence = Some(7);
    for term in [7, 8] {
        facts.record.as_mut().expect("record").term = term;
        facts.report = Some(answer(term, Some(Owner::DevicePlugin)));
        let expected = if term == 7 {
            Some(Write::Record(RecordWrite::RaiseTerm { term: 8 }))
        } else {
            back_order(9)
        };
        assert_eq!(step(&facts).write, expected);
    }
}

#[test]
fn back_at_dra_the_labels_are_granted_and_the_node_drains_behind_a_new_fence_value() {
    let mut facts = fresh(dra_left(5), vec![claim("ml/late")]);
    assert_eq!(
        step(&facts).write,
        Some(Write::Node(NodeWrite::Grant {
            cohort: DRA_COHORT.into(),
            owner: Owner::Dra
        }))
    );
    facts.node.owner = Some(Ok(Owner::Dra));
    facts.node.cohort = Some(DRA_COHORT.into());
    assert_eq!(
        step(&facts).write,
        Some(Write::Node(NodeWrite::Fence { term: 7 }))
    );
}

#[test]
fn when_the_late_claim_has_gone_the_way_leads_forward_again() {
    let facts = fresh(dra_left(5), vec![]);
    assert_eq!(
        step(&facts).write,
        Some(Write::Node(NodeWrite::Fence { term: 7 }))
    );
}

#[test]
fn claims_of_a_driver_that_was_never_ours_lead_nowhere_back() {
    let mut facts = fresh(
        free_of(Owner::DevicePlugin, 4, wants(Owner::DevicePlugin)),
        vec![],
    );
    report_mut(&mut facts).in_use.dra = 1;
    let decision = step(&facts);
    assert_eq!(
        (decision.step, reason(&decision), decision.write),
        (Step::Vacate, Some(Reason::DevicesInUse), None)
    );
}

#[test]
fn even_a_node_that_nobody_wants_goes_back_for_a_late_claim() {
    let mut facts = fresh(dra_left(4), vec![claim("ml/late")]);
    facts.want = Want::Nothing;
    assert_eq!(step(&facts).write, back_order(5));
}
