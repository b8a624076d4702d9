use super::*;

/// A node whose agent has answered term 1 of a record without an owner.
fn discovered(owner: Owner) -> Facts {
    let mut facts = untouched(wants(owner));
    facts.record = Some(record(None, 1));
    facts.report = Some(answer(1, None));
    facts
}

/// A node whose word was handed in term 2 and confirmed.
pub(super) fn handed(owner: Owner) -> Facts {
    let mut facts = untouched(wants(owner));
    facts.record = Some(record(Some(owner), 2));
    facts.report = Some(answer(2, Some(owner)));
    facts
}

#[test]
fn a_node_that_enters_a_cohort_gets_its_record_first() {
    let decision = step(&untouched(wants(Owner::Dra)));
    assert_eq!(
        decision.write,
        Some(Write::Record(RecordWrite::Create {
            cohort: Some(DRA_COHORT.into())
        }))
    );
    assert_eq!(decision.step, Step::Discover);
}

#[test]
fn without_a_report_it_waits_and_later_says_that_the_agent_is_silent() {
    let mut facts = discovered(Owner::DevicePlugin);
    facts.report = None;
    assert_blocked_in_time(facts, Step::Discover, Reason::AgentSilent);
}

#[test]
fn a_report_for_another_node_boot_or_term_is_void() {
    for spoil in [
        (|report: &mut NodeReport| report.node_uid = "uid-of-a-predecessor".into())
            as fn(&mut NodeReport),
        |report| report.boot_id = "boot-of-monday".into(),
        |report| report.nvidia.as_mut().expect("part").observed_term = 7,
        |report| report.nvidia = None,
    ] {
        let mut facts = discovered(Owner::Dra);
        spoil(facts.report.as_mut().expect("report"));
        assert_blocked_in_time(facts, Step::Discover, Reason::AgentSilent);
    }
}

#[test]
fn an_unknown_boot_id_voids_every_report() {
    let mut facts = discovered(Owner::Dra);
    facts.node.boot_id.clear();
    facts.report.as_mut().expect("report").boot_id.clear();
    assert_blocked_in_time(facts, Step::Discover, Reason::AgentSilent);
}

#[test]
fn the_word_is_handed_only_on_fresh_reads() {
    let cached = step(&discovered(Owner::DevicePlugin));
    assert_eq!((cached.write, cached.needs_fresh), (None, true));
    let decision = step(&fresh(discovered(Owner::DevicePlugin), vec![]));
    assert_eq!(
        decision.write,
        Some(Write::Record(RecordWrite::HandWord {
            cohort: PLUGIN_COHORT.into(),
            owner: Owner::DevicePlugin,
            term: 2,
            dra_cohort: None
        }))
    );
}

#[test]
fn nothing_may_be_advertised_registered_or_held_before_a_first_ownership() {
    let cases: [(Reason, bool, Spoil); 7] = [
        (Reason::AdvertisementLingers, false, |facts| {
            facts
                .node
                .allocatable
                .insert("nvidia.com/mig-1g.10gb".into(), 2);
        }),
        (Reason::AdvertisementLingers, false, |facts| {
            facts.slices = slices(4);
        }),
        (Reason::SocketLingers, false, |facts| {
            report_mut(facts).plugin_sockets = vec!["left-over.sock".into()];
        }),
        (Reason::SocketLingers, false, |facts| {
            report_mut(facts).dra_registered = true;
        }),
        (Reason::OperandLingers, false, |facts| {
            facts.operands = vec![operand(Owner::Dra)];
        }),
        (Reason::DevicesInUse, true, |facts| {
            report_mut(facts).in_use.device_plugin = 1;
        }),
        (Reason::DevicesInUse, true, |facts| {
            report_mut(facts).in_use.dra = 1;
        }),
    ];
    for (expected, at_once, spoil) in cases {
        let mut facts = fresh(discovered(Owner::DevicePlugin), vec![]);
        spoil(&mut facts);
        if at_once {
            let decision = step(&facts);
            assert_eq!(
                (decision.step, reason(&decision), decision.write),
                (Step::Discover, Some(expected), None)
            );
        } else {
            assert_blocked_in_time(facts, Step::Discover, expected);
        }
    }
}

#[test]
fn an_unreadable_record_attests_nothing() {
    let mut facts = fresh(discovered(Owner::Dra), vec![]);
    report_mut(&mut facts).in_use.unknown = true;
    facts.report.as_mut().expect("report").errors = vec!["dra_manager_state: not JSON".into()];
    let decision = step(&facts);
    assert_eq!(
        (reason(&decision), &decision.write),
        (Some(Reason::AttestationUnknown), &None)
    );
    assert!(
        message(&decision).contains("dra_manager_state"),
        "{}",
        message(&decision)
    );
}

#[test]
fn labels_are_granted_once_the_word_is_confirmed_for_its_own_term() {
    let granted = step(&fresh(handed(Owner::Dra), vec![]));
    assert_eq!(
        granted.write,
        Some(Write::Node(NodeWrite::Grant {
            cohort: DRA_COHORT.into(),
            owner: Owner::Dra
        }))
    );
    let mut unconfirmed = handed(Owner::Dra);
    report_mut(&mut unconfirmed).word_term = 1;
    let late = assert_blocked_in_time(unconfirmed, Step::HandWord, Reason::WordPending);
    assert!(
        message(&late).contains("ordered is dra (term 2)"),
        "{}",
        message(&late)
    );
}

#[test]
fn a_consumer_at_the_last_moment_holds_the_grant_back() {
    let decision = step(&fresh(
        handed(Owner::DevicePlugin),
        vec![plugin_pod("ml/early-bird")],
    ));
    assert_eq!(
        (decision.write.as_ref(), reason(&decision)),
        (None, Some(Reason::ConsumersRemain))
    );
    assert!(
        message(&decision).contains("ml/early-bird"),
        "{}",
        message(&decision)
    );
}

#[test]
fn a_layout_is_ordered_and_read_back_before_the_word() {
    let layout = crate::intent::Layout::LogicalNeuronCore(2);
    let mut facts = fresh(discovered(Owner::Dra), vec![]);
    target_mut(&mut facts).layout = Some(layout.clone());
    let ordered = step(&facts);
    assert_eq!(
        ordered.write,
        Some(Write::Record(RecordWrite::Layout {
            layout: Some(layout.clone())
        }))
    );
    facts.record.as_mut().expect("record").layout = Some(layout);
    assert_blocked_in_time(facts.clone(), Step::Reshape, Reason::LayoutMismatch);
    report_mut(&mut facts).layout.logical_neuron_core = Some(2);
    assert!(matches!(
        step(&facts).write,
        Some(Write::Record(RecordWrite::HandWord { term: 2, .. }))
    ));
}

#[test]
fn a_change_of_mind_after_the_word_goes_behind_a_fence() {
    let mut facts = handed(Owner::Dra);
    facts.want = wants(Owner::DevicePlugin);
    assert!(step(&facts).needs_fresh);
    let decision = step(&fresh(facts, vec![]));
    assert_eq!(
        decision.write,
        Some(Write::Node(NodeWrite::Fence { term: 4 }))
    );
}

#[test]
fn a_node_that_leaves_before_it_was_owned_only_loses_its_record() {
    let mut facts = handed(Owner::Dra);
    facts.want = Want::Nothing;
    assert!(step(&facts).needs_fresh);
    let decision = step(&fresh(facts, vec![]));
    assert_eq!(
        (decision.step, decision.write),
        (Step::None, Some(Write::Record(RecordWrite::Clear)))
    );
}

#[test]
fn a_node_that_nobody_wants_and_nobody_touched_costs_nothing() {
    let decision = step(&untouched(Want::Nothing));
    assert_eq!(
        decision,
        Decision {
            write: None,
            needs_fresh: false,
            needs_claim: false,
            step: Step::None,
            blocker: None,
            wake_s: None
        }
    );
}

#[test]
fn a_record_for_another_uid_is_replaced_but_only_on_a_fresh_read() {
    let mut facts = discovered(Owner::Dra);
    facts.record.as_mut().expect("record").node_uid = "uid-of-a-predecessor".into();
    let cached = step(&facts);
    assert_eq!((cached.write.as_ref(), cached.needs_fresh), (None, true));
    let decision = step(&fresh(facts, vec![]));
    assert_eq!(
        decision.write,
        Some(Write::Record(RecordWrite::Create {
            cohort: Some(DRA_COHORT.into())
        }))
    );
    assert_eq!(reason(&decision), Some(Reason::NodeReplaced));
}
