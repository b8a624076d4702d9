//! Layout orders: withdrawn before a node is left, restated where their record was lost, and set aside where they keep a driver
//! from starting that claims need.

use super::*;
use crate::intent::Layout;
use crate::report::{Shaping, ShapingOutcome};

const LNC: Layout = Layout::LogicalNeuronCore(1);
const OTHER: Layout = Layout::LogicalNeuronCore(2);

fn none_ordered() -> Option<Write> {
    Some(Write::Record(RecordWrite::Layout { layout: None }))
}

fn record_mut(facts: &mut Facts) -> &mut RecordFacts {
    facts.record.as_mut().expect("this test has a record")
}

/// The layout is ordered, read back, and this is what the shaper says of it.
fn ordered(mut facts: Facts, outcome: ShapingOutcome) -> Facts {
    record_mut(&mut facts).layout = Some(LNC);
    let layout = &mut report_mut(&mut facts).layout;
    layout.logical_neuron_core = Some(1);
    layout.ordered = true;
    says(&mut facts, outcome);
    facts
}

fn says(facts: &mut Facts, outcome: ShapingOutcome) {
    report_mut(facts).layout.shaping = Some(Shaping {
        outcome,
        message: None,
    });
}

fn wants_layout(owner: Owner) -> Want {
    let mut target = target(owner);
    target.layout = Some(LNC);
    Want::Owner(Box::new(target))
}

mod withdrawn {
    use super::*;

    #[test]
    fn before_a_node_is_left_its_order_is_withdrawn_with_the_term_that_proves_it() {
        let facts = ordered(
            free_of(Owner::Dra, 3, Want::Nothing),
            ShapingOutcome::InForce,
        );
        assert_eq!(
            step(&facts).write,
            Some(Write::Record(RecordWrite::Withdraw { term: 4 }))
        );
        let mut kept = facts;
        kept.want = wants_layout(Owner::Dra);
        assert_eq!(
            step(&kept).write,
            Some(Write::Record(RecordWrite::RaiseTerm { term: 4 })),
            "somebody follows, who has an order of his own"
        );
    }

    #[test]
    fn the_fence_stays_until_the_node_has_let_go_of_its_order() {
        let mut facts = ordered(
            fresh(free_of(Owner::Dra, 4, Want::Nothing), vec![]),
            ShapingOutcome::InForce,
        );
        record_mut(&mut facts).layout = None;
        assert_blocked_in_time(facts.clone(), Step::Vacate, Reason::LayoutPending);
        report_mut(&mut facts).layout.ordered = false;
        assert_eq!(step(&facts).write, Some(Write::Node(NodeWrite::Unfence)));
    }

    #[test]
    fn a_report_from_before_the_withdrawal_proves_nothing() {
        let mut facts = fresh(free_of(Owner::Dra, 4, Want::Nothing), vec![]);
        report_mut(&mut facts).observed_term = 3;
        assert_blocked_in_time(facts, Step::Vacate, Reason::AgentSilent);
    }

    #[test]
    fn an_order_for_an_owner_who_is_not_to_come_any_more_is_withdrawn_behind_a_new_fence() {
        for term in [4, 5] {
            let facts = ordered(
                fresh(free_of(Owner::Dra, term, Want::Nothing), vec![]),
                ShapingOutcome::InForce,
            );
            assert_eq!(
                step(&facts).write,
                Some(Write::Node(NodeWrite::Fence { term: term + 2 }))
            );
        }
    }

    #[test]
    fn a_node_that_was_never_owned_loses_its_order_before_its_record() {
        let mut facts = fresh(untouched(Want::Nothing), vec![]);
        facts.record = Some(record(None, 1));
        facts.report = Some(answer(1, None));
        let ordered_here = ordered(facts.clone(), ShapingOutcome::Working);
        let mut left_behind = facts.clone();
        report_mut(&mut left_behind).layout.ordered = true;
        for facts in [ordered_here.clone(), left_behind] {
            assert_eq!(
                step(&facts).write,
                Some(Write::Node(NodeWrite::Fence { term: 3 }))
            );
        }
        assert_eq!(step(&facts).write, Some(Write::Record(RecordWrite::Clear)));
        let mut conflict = ordered_here;
        conflict.foreign = vec![ForeignOwner {
            who: "DaemonSet kaito/other".into(),
            evidence: "its pod".into(),
            host_plugin: false,
        }];
        let decision = step(&conflict);
        assert_eq!(decision.write, None, "nobody else's node is fenced");
        assert_eq!(reason(&decision), Some(Reason::ForeignOwner));
    }

    #[test]
    fn an_owner_without_a_layout_is_granted_when_the_former_order_is_gone() {
        let mut facts = fresh(
            free_of(Owner::DevicePlugin, 5, wants(Owner::DevicePlugin)),
            vec![],
        );
        report_mut(&mut facts).layout.ordered = true;
        assert_blocked_in_time(facts.clone(), Step::HandWord, Reason::LayoutPending);
        report_mut(&mut facts).layout.ordered = false;
        assert!(matches!(
            step(&facts).write,
            Some(Write::Node(NodeWrite::Grant { .. }))
        ));
    }
}

mod restated {
    use super::*;

    /// Held with its layout in force; the record was lost and made anew, and the agent has answered it.
    fn lost(outcome: ShapingOutcome) -> Facts {
        let mut facts = ordered(held_by(Owner::Dra, wants_layout(Owner::Dra)), outcome);
        facts.record = Some(record(None, 1));
        report_mut(&mut facts).observed_term = 1;
        facts
    }

    #[test]
    fn the_layout_that_a_node_has_is_ordered_again_before_its_owner() {
        for outcome in [ShapingOutcome::InForce, ShapingOutcome::Working] {
            let mut facts = lost(outcome);
            assert!(step(&facts).needs_fresh);
            facts = fresh(facts, vec![]);
            assert_eq!(
                step(&facts).write,
                Some(Write::Record(RecordWrite::Layout { layout: Some(LNC) })),
                "{outcome:?}"
            );
            record_mut(&mut facts).layout = Some(LNC);
            assert!(matches!(
                step(&facts).write,
                Some(Write::Record(RecordWrite::HandWord { term: 2, .. }))
            ));
        }
    }

    #[test]
    fn a_healthy_node_is_as_it_was_once_its_record_is_restated() {
        let mut facts = lost(ShapingOutcome::InForce);
        facts.record = Some(record(Some(Owner::Dra), 2));
        record_mut(&mut facts).layout = Some(LNC);
        (
            report_mut(&mut facts).observed_term,
            report_mut(&mut facts).word_term,
        ) = (2, 2);
        assert_eq!(step(&facts), Decision::at(Step::Held));
    }

    #[test]
    fn nothing_is_restated_before_the_agent_has_told_what_the_node_has() {
        let mut facts = fresh(lost(ShapingOutcome::InForce), vec![]);
        facts.report = None;
        assert_blocked_in_time(facts, Step::HandWord, Reason::AgentSilent);
    }

    #[test]
    fn another_layout_than_the_one_in_force_is_not_passed_off_as_it() {
        let mut changed = fresh(lost(ShapingOutcome::Busy), vec![]);
        report_mut(&mut changed).layout.logical_neuron_core = Some(2);
        let mut another_cohort = fresh(lost(ShapingOutcome::InForce), vec![]);
        another_cohort.node.cohort = Some("teal-dra".into());
        for facts in [changed, another_cohort] {
            assert!(matches!(
                step(&facts).write,
                Some(Write::Record(RecordWrite::HandWord { .. }))
            ));
        }
    }
}

mod set_aside {
    use super::*;

    /// Outcomes that keep an operand from starting, and that nothing but a person ends.
    const STUCK: [ShapingOutcome; 5] = [
        ShapingOutcome::Busy,
        ShapingOutcome::Infeasible,
        ShapingOutcome::ResetRequired,
        ShapingOutcome::RebootRequired,
        ShapingOutcome::Failed,
    ];

    /// Behind the fence on the way to the other layout, with a claim left; the driver waits for its layout.
    fn waiting(outcome: ShapingOutcome) -> Facts {
        let facts = ordered(draining(Owner::Dra, wants_layout(Owner::Dra)), outcome);
        let mut facts = fresh(facts, vec![claim("ml/held")]);
        target_mut(&mut facts).layout = Some(OTHER);
        facts.operands[0].ready = false;
        facts.slices = SliceFacts::default();
        facts
    }

    #[test]
    fn a_driver_that_claims_wait_for_starts_on_the_geometry_as_it_is() {
        for outcome in STUCK {
            let facts = waiting(outcome);
            assert_eq!(step(&facts).write, none_ordered(), "{outcome:?}");
            let mut held = fresh(facts.clone(), vec![]);
            report_mut(&mut held).in_use.dra = 1;
            assert_eq!(step(&held).write, none_ordered(), "{outcome:?}");
            let mut before_the_term = facts.clone();
            before_the_term.node.fence = Some(5);
            assert_eq!(step(&before_the_term).write, none_ordered(), "{outcome:?}");
            let mut done = facts;
            record_mut(&mut done).layout = None;
            assert_eq!(step(&done).write, None, "once is enough");
        }
    }

    #[test]
    fn a_layout_that_is_being_made_is_waited_for_as_long_as_patience_lasts() {
        let mut facts = waiting(ShapingOutcome::Working);
        assert_eq!(step(&facts).write, None);
        facts.timing.step_s = 297;
        assert_eq!(
            step(&facts).wake_s,
            Some(3),
            "and looked after when it is over"
        );
        facts.timing.step_s = 300;
        assert_eq!(step(&facts).write, none_ordered());
    }

    #[test]
    fn an_order_that_keeps_nobody_waiting_stays() {
        let mut runs = waiting(ShapingOutcome::Failed);
        runs.operands[0].ready = true;
        let verified = waiting(ShapingOutcome::InForce);
        let mut plugin = fresh(
            ordered(
                draining(Owner::DevicePlugin, wants(Owner::Dra)),
                ShapingOutcome::Failed,
            ),
            vec![plugin_pod("ml/train")],
        );
        plugin.operands[0].ready = false;
        for facts in [runs, verified, plugin] {
            let decision = step(&facts);
            assert_eq!((decision.write, decision.step), (None, Step::Drain));
        }
    }

    #[test]
    fn on_its_way_back_a_driver_does_not_wait_for_a_layout_either() {
        for outcome in STUCK.into_iter().chain([ShapingOutcome::Working]) {
            let facts = ordered(free_of(Owner::Dra, 4, wants(Owner::DevicePlugin)), outcome);
            let mut facts = fresh(facts, vec![claim("ml/late")]);
            target_mut(&mut facts).layout = Some(LNC);
            assert_eq!(step(&facts).write, none_ordered(), "{outcome:?}");
            record_mut(&mut facts).layout = None;
            assert!(matches!(
                step(&facts).write,
                Some(Write::Record(RecordWrite::HandWord {
                    owner: Owner::Dra,
                    ..
                }))
            ));
        }
    }

    #[test]
    fn an_operand_is_made_anew_only_when_its_successor_could_start() {
        let mut facts = ordered(
            held_by(Owner::Dra, wants_layout(Owner::Dra)),
            ShapingOutcome::InForce,
        );
        facts.operands[0].template = "template-of-last-week".into();
        let restart = step(&facts);
        assert!(
            matches!(restart.write, Some(Write::Pod(PodWrite::Restart { .. }))),
            "{restart:?}"
        );
        for (outcome, expected) in [
            (ShapingOutcome::Idle, None),
            (ShapingOutcome::Working, None),
            (ShapingOutcome::Busy, Some(Reason::DevicesInUse)),
            (ShapingOutcome::Infeasible, Some(Reason::LayoutInfeasible)),
            (ShapingOutcome::ResetRequired, Some(Reason::RebootRequired)),
            (ShapingOutcome::RebootRequired, Some(Reason::RebootRequired)),
            (ShapingOutcome::Failed, Some(Reason::LayoutFailed)),
        ] {
            says(&mut facts, outcome);
            let decision = step(&facts);
            assert_eq!(reason(&decision), expected, "{outcome:?}");
            assert_eq!(decision.write, None, "{outcome:?}");
        }
        report_mut(&mut facts).layout.shaping = None;
        assert_blocked_in_time(facts, Step::Verify, Reason::ShaperSilent);
    }
}

mod planned {
    use super::*;

    #[test]
    fn no_fence_goes_up_for_another_layout_while_the_shaper_has_nothing_to_tell() {
        let mut facts = ordered(
            held_by(Owner::Dra, wants_layout(Owner::Dra)),
            ShapingOutcome::Working,
        );
        target_mut(&mut facts).layout = Some(OTHER);
        let decision = step(&fresh(facts.clone(), vec![]));
        assert_eq!((decision.write.as_ref(), decision.step), (None, Step::Hold));
        assert_eq!(reason(&decision), Some(Reason::ShaperSilent));
        let mut given_up = fresh(facts.clone(), vec![]);
        given_up.want = Want::Nothing;
        says(&mut facts, ShapingOutcome::InForce);
        for facts in [fresh(facts, vec![]), given_up] {
            assert!(matches!(
                step(&facts).write,
                Some(Write::Node(NodeWrite::Fence { .. }))
            ));
        }
    }
}
