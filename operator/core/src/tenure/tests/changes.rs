use super::*;
use crate::intent::Layout;

fn running(owner: Owner) -> Current {
    let Target {
        cohort,
        shape,
        template,
        ..
    } = target(owner);
    Current {
        owner,
        cohort: Some(cohort),
        layout_in_force: true,
        shape: Some(shape),
        template: Some(template),
    }
}

#[test]
fn changes_are_classed_by_what_they_take() {
    let dra = || target(Owner::Dra);
    let cases: [(&str, Target, Current, Change); 8] = [
        ("metadata", dra(), running(Owner::Dra), Change::None),
        (
            "an image",
            Target {
                template: "newer".into(),
                ..dra()
            },
            running(Owner::Dra),
            Change::Restart,
        ),
        (
            "sharing",
            Target {
                shape: "wider".into(),
                template: "newer".into(),
                ..dra()
            },
            running(Owner::Dra),
            Change::Reshape,
        ),
        (
            "a layout",
            dra(),
            Current {
                layout_in_force: false,
                ..running(Owner::Dra)
            },
            Change::Reshape,
        ),
        (
            "a cohort",
            Target {
                cohort: "indigo-dra".into(),
                ..dra()
            },
            running(Owner::Dra),
            Change::Reshape,
        ),
        (
            "a lost cohort label",
            dra(),
            Current {
                cohort: None,
                ..running(Owner::Dra)
            },
            Change::Reshape,
        ),
        (
            "an owner",
            dra(),
            running(Owner::DevicePlugin),
            Change::Handover,
        ),
        (
            "no pod yet",
            dra(),
            Current {
                shape: None,
                template: None,
                ..running(Owner::Dra)
            },
            Change::None,
        ),
    ];
    for (what, target, current, class) in cases {
        assert_eq!(change(&current, &target), class, "{what}");
    }
}

#[test]
fn a_handover_starts_with_a_fence_two_above_the_freshly_read_term() {
    for want in [wants(Owner::Dra), Want::Nothing] {
        let facts = held_by(Owner::DevicePlugin, want);
        let cached = step(&facts);
        assert_eq!(
            (cached.step, cached.write, cached.needs_fresh),
            (Step::Fence, None, true)
        );
        assert_eq!(
            step(&fresh(facts, vec![])).write,
            Some(Write::Node(NodeWrite::Fence { term: 4 }))
        );
    }
}

#[test]
fn nothing_starts_without_a_place_in_the_rollout() {
    let full = Blocker {
        reason: Reason::BudgetExhausted,
        message: "1 of 1 nodes are in handover: node-mango".into(),
    };
    let mut handover = held_by(Owner::DevicePlugin, wants(Owner::Dra));
    handover.claimed = false;
    handover.may_start = Err(full.clone());
    assert_eq!(
        step(&handover),
        Decision {
            write: None,
            needs_fresh: false,
            needs_claim: false,
            step: Step::Hold,
            blocker: Some(full.clone()),
            wake_s: None
        }
    );

    let mut restart = held_by(Owner::Dra, wants(Owner::Dra));
    target_mut(&mut restart).template = "newer".into();
    restart.may_start = Err(full.clone());
    assert_eq!(
        step(&restart),
        Decision {
            write: None,
            needs_fresh: false,
            needs_claim: false,
            step: Step::Held,
            blocker: Some(full),
            wake_s: None
        }
    );
}

#[test]
fn a_handover_under_way_does_not_ask_the_rollout_again() {
    let mut facts = fresh(draining(Owner::DevicePlugin, wants(Owner::Dra)), vec![]);
    facts.may_start = Err(Blocker {
        reason: Reason::Paused,
        message: "rollout.paused is true".into(),
    });
    assert_eq!(step(&facts).write, Some(Write::Node(NodeWrite::Revoke)));
}

#[test]
fn a_node_that_cannot_be_proven_free_is_not_fenced() {
    let mut unready = held_by(Owner::DevicePlugin, wants(Owner::Dra));
    unready.node.ready = false;
    let decision = step(&unready);
    assert_eq!(
        (decision.step, reason(&decision), decision.write),
        (Step::Hold, Some(Reason::NodeNotReady), None)
    );

    let mut silent = held_by(Owner::DevicePlugin, wants(Owner::Dra));
    silent.report = None;
    assert_blocked_in_time(silent, Step::Hold, Reason::AgentSilent);
}

#[test]
fn a_new_template_restarts_our_own_pod_by_uid() {
    let mut facts = held_by(Owner::Dra, wants(Owner::Dra));
    target_mut(&mut facts).template = "newer".into();
    assert_eq!(
        step(&facts).write,
        Some(Write::Pod(PodWrite::Restart {
            name: "operand-dra".into(),
            uid: "uid-of-operand-dra".into()
        }))
    );
    facts.operands[0].terminating = true;
    assert_eq!(step(&facts).write, None);
}

#[test]
fn a_geometry_that_is_not_in_force_any_more_needs_a_drained_node() {
    let mut facts = held_by(Owner::Dra, wants(Owner::Dra));
    target_mut(&mut facts).layout = Some(Layout::LogicalNeuronCore(2));
    facts.record.as_mut().expect("record").layout = Some(Layout::LogicalNeuronCore(2));
    report_mut(&mut facts).layout.logical_neuron_core = Some(2);
    assert_eq!(step(&facts).step, Step::Held);
    report_mut(&mut facts).layout.logical_neuron_core = Some(1);
    assert_eq!(step(&facts).step, Step::Fence);
}

#[test]
fn dropping_the_layout_leaves_the_geometry_and_needs_no_drain() {
    let mut facts = held_by(Owner::Dra, wants(Owner::Dra));
    facts.record.as_mut().expect("record").layout = Some(Layout::LogicalNeuronCore(2));
    assert_eq!(
        step(&facts).write,
        Some(Write::Record(RecordWrite::Layout { layout: None }))
    );
}

#[test]
fn before_revoke_a_change_of_mind_unfences_once_the_term_has_caught_up() {
    let mut facts = draining(Owner::DevicePlugin, wants(Owner::DevicePlugin));
    facts.record.as_mut().expect("record").term = 2;
    report_mut(&mut facts).observed_term = 2;
    assert_eq!(
        step(&facts).write,
        Some(Write::Record(RecordWrite::RaiseTerm { term: 3 })),
        "a fence value is used once"
    );
    facts.record.as_mut().expect("record").term = 3;
    assert_eq!(step(&facts).write, Some(Write::Node(NodeWrite::Unfence)));
}

#[test]
fn after_revoke_a_change_of_mind_goes_on_and_grants_what_is_wanted_then() {
    let facts = fresh(
        free_of(Owner::DevicePlugin, 4, wants(Owner::DevicePlugin)),
        vec![],
    );
    assert!(matches!(
        step(&facts).write,
        Some(Write::Record(RecordWrite::HandWord {
            owner: Owner::DevicePlugin,
            term: 5,
            ..
        }))
    ));
}

#[test]
fn a_word_handed_to_the_wrong_owner_is_replaced_behind_a_new_fence_value() {
    let mut facts = fresh(
        free_of(Owner::DevicePlugin, 5, wants(Owner::DevicePlugin)),
        vec![],
    );
    facts.record = Some(record(Some(Owner::Dra), 5));
    assert_eq!(
        step(&facts).write,
        Some(Write::Node(NodeWrite::Fence { term: 7 }))
    );
    facts.fresh = false;
    assert!(step(&facts).needs_fresh);
}

#[test]
fn an_owner_granted_but_no_longer_wanted_is_drained_behind_a_new_fence_value() {
    let mut facts = fresh(held_by(Owner::Dra, wants(Owner::DevicePlugin)), vec![]);
    facts.node.fence = Some(3);
    facts.record = Some(record(Some(Owner::Dra), 5));
    assert_eq!(
        step(&facts).write,
        Some(Write::Node(NodeWrite::Fence { term: 7 }))
    );
}

#[test]
fn a_record_made_anew_under_a_fence_waits_for_an_answer_before_it_jumps_to_the_fences_term() {
    let mut facts = free_of(Owner::DevicePlugin, 1, wants(Owner::Dra));
    facts.node.fence = Some(9);
    facts.record = Some(record(None, 1));
    report_mut(&mut facts).observed_term = 9;
    assert_eq!(step(&facts).write, None);
    report_mut(&mut facts).observed_term = 1;
    assert_eq!(
        step(&facts).write,
        Some(Write::Record(RecordWrite::RaiseTerm { term: 9 }))
    );
}

#[test]
fn an_owned_node_is_fenced_only_with_a_place_claimed_for_it_as_it_is() {
    let mut facts = held_by(Owner::DevicePlugin, wants(Owner::Dra));
    facts.claimed = false;
    for facts in [facts.clone(), fresh(facts.clone(), vec![])] {
        let decision = step(&facts);
        assert_eq!(
            (
                decision.step,
                decision.needs_claim,
                decision.needs_fresh,
                &decision.write
            ),
            (Step::Fence, true, false, &None)
        );
    }
    // A place is asked for only by a node that would be fenced at once.
    let full = Blocker {
        reason: Reason::BudgetExhausted,
        message: "its turn".into(),
    };
    facts.may_start = Err(full.clone());
    let decision = step(&facts);
    assert_eq!(
        (decision.needs_claim, decision.blocker),
        (false, Some(full))
    );
    // With the place in hand it goes on, whoever asks for one now.
    facts.claimed = true;
    assert!(step(&facts).needs_fresh);
    facts.node.ready = false;
    assert_eq!(reason(&step(&facts)), Some(Reason::NodeNotReady));
}

#[test]
fn a_node_that_is_behind_a_fence_needs_no_other_place() {
    for owner in Owner::ALL {
        for mut facts in [
            draining(owner, wants(owner.other())),
            free_of(owner, 3, wants(owner.other())),
            free_of(owner, 5, wants(owner)),
        ] {
            facts.claimed = false;
            assert!(!step(&facts).needs_claim);
            assert!(!step(&fresh(facts, vec![])).needs_claim);
        }
    }
}
