//! Layouts, as a node's shaper tells of them.

use super::*;
use crate::geometry::Board;
use crate::intent::{Layout, MigLayout};
use crate::report::{MigProfileCount, Shaping, ShapingOutcome};

const REBOOT: &str = "GPU 0: MIG mode is Disabled, pending Enabled";

fn instances(profile: &str, count: i32) -> Vec<MigProfileCount> {
    vec![MigProfileCount {
        profile: profile.into(),
        count,
    }]
}

fn sevenths() -> Layout {
    Layout::Mig(vec![MigLayout {
        gpus: Some([0].into()),
        instances: instances("1g.1/8", 7),
    }])
}

fn says(facts: &mut Facts, outcome: ShapingOutcome, message: Option<&str>) {
    report_mut(facts).layout.shaping = Some(Shaping {
        outcome,
        message: message.map(str::to_owned),
    });
}

/// The report's geometry: so many instances on GPU 0, whose board is known.
fn carries(facts: &mut Facts, count: i32) {
    let layout = &mut report_mut(facts).layout;
    layout.boards = vec![Board {
        gpus: vec![0, 1, 2, 3],
        profiles: crate::catalogue::published_board("H100-94")
            .expect("H100-94")
            .profiles(),
    }];
    layout.mig = [("0".to_owned(), instances("1g.12gb", count))].into();
    layout.mig.retain(|_, instances| instances[0].count > 0);
}

fn ordered(mut facts: Facts) -> Facts {
    target_mut(&mut facts).layout = Some(sevenths());
    facts.record.as_mut().expect("record").layout = Some(sevenths());
    facts
}

/// Held, with the layout ordered and in force.
fn shaped() -> Facts {
    let mut facts = ordered(held_by(Owner::Dra, wants(Owner::Dra)));
    carries(&mut facts, 7);
    says(&mut facts, ShapingOutcome::InForce, None);
    facts
}

/// The same after the host came back: the instances are gone, and the operand waits for them.
fn rebooted(outcome: ShapingOutcome, message: Option<&str>) -> Facts {
    let mut facts = shaped();
    carries(&mut facts, 0);
    says(&mut facts, outcome, message);
    facts.operands[0].ready = false;
    facts.slices = SliceFacts::default();
    facts
}

/// Vacated, the layout ordered, and the shaper at this point.
fn reshaping(outcome: ShapingOutcome, message: Option<&str>) -> Facts {
    let mut facts = ordered(fresh(free_of(Owner::Dra, 4, wants(Owner::Dra)), vec![]));
    carries(&mut facts, 0);
    says(&mut facts, outcome, message);
    facts
}

#[test]
fn a_layout_in_force_is_held_by_the_name_that_the_board_has_for_it() {
    assert_eq!(step(&shaped()), Decision::at(Step::Held));
}

#[test]
fn after_a_boot_the_layout_is_waited_for_and_no_fence_goes_up() {
    let decision = step(&rebooted(
        ShapingOutcome::Working,
        Some("the node's shaper has not looked in this boot yet"),
    ));
    assert_eq!(decision.write, None);
    assert_eq!(reason(&decision), Some(Reason::LayoutPending));
    assert_eq!(decision.step, Step::Verify);
    assert!(
        message(&decision).contains("not looked in this boot"),
        "{decision:?}"
    );
}

#[test]
fn what_a_person_must_do_for_a_held_layout_is_said_in_the_shapers_words() {
    for (outcome, expected) in [
        (ShapingOutcome::RebootRequired, Reason::RebootRequired),
        (ShapingOutcome::ResetRequired, Reason::RebootRequired),
        (ShapingOutcome::Failed, Reason::LayoutFailed),
        (ShapingOutcome::Infeasible, Reason::LayoutInfeasible),
    ] {
        let decision = step(&rebooted(outcome, Some(REBOOT)));
        assert_eq!(
            (decision.write.as_ref(), decision.step),
            (None, Step::Verify),
            "{outcome:?}"
        );
        assert_eq!(reason(&decision), Some(expected), "{outcome:?}");
        assert!(message(&decision).contains(REBOOT), "{decision:?}");
    }
}

#[test]
fn a_node_that_advertises_what_it_should_is_held_while_its_shaper_looks_again() {
    for outcome in [ShapingOutcome::Working, ShapingOutcome::Failed] {
        let mut facts = shaped();
        says(&mut facts, outcome, None);
        assert_eq!(step(&facts), Decision::at(Step::Held), "{outcome:?}");
    }
}

#[test]
fn two_advertisers_are_said_before_a_layout_that_is_being_made() {
    let mut facts = rebooted(ShapingOutcome::Working, None);
    facts.node.allocatable = BTreeMap::from([(RESOURCE.to_owned(), 4)]);
    facts.slices = slices(4);
    assert_eq!(reason(&step(&facts)), Some(Reason::DualAdvertisement));
}

#[test]
fn geometry_changed_by_hand_under_a_running_operand_is_drained_and_repaired() {
    let mut busy = shaped();
    carries(&mut busy, 6);
    let mut without_shaper = busy.clone();
    report_mut(&mut without_shaper).layout.shaping = None;
    says(
        &mut busy,
        ShapingOutcome::Busy,
        Some("an operand of this node holds the lock"),
    );
    for facts in [busy, without_shaper] {
        assert_eq!(
            step(&fresh(facts, vec![])).write,
            Some(Write::Node(NodeWrite::Fence { term: 4 }))
        );
    }
}

#[test]
fn an_edited_layout_is_drained_for_whatever_became_of_the_last_one() {
    let edited = |outcome| {
        let mut facts = rebooted(outcome, None);
        facts.record.as_mut().expect("record").layout = Some(Layout::Mig(vec![MigLayout {
            gpus: None,
            instances: instances("7g.94gb", 1),
        }]));
        facts
    };
    let early = step(&fresh(edited(ShapingOutcome::Working), vec![]));
    assert_eq!(
        (early.write.as_ref(), reason(&early)),
        (None, Some(Reason::ShaperSilent)),
        "not before that is known"
    );
    for outcome in [
        ShapingOutcome::InForce,
        ShapingOutcome::Failed,
        ShapingOutcome::RebootRequired,
    ] {
        let facts = edited(outcome);
        assert!(
            matches!(
                step(&fresh(facts, vec![])).write,
                Some(Write::Node(NodeWrite::Fence { .. }))
            ),
            "{outcome:?}"
        );
    }
}

fn hands_the_word(facts: &Facts) -> bool {
    matches!(
        step(facts).write,
        Some(Write::Record(RecordWrite::HandWord { .. }))
    )
}

#[test]
fn the_word_is_handed_once_the_shaper_has_verified_the_layout() {
    for outcome in [ShapingOutcome::Working, ShapingOutcome::Idle] {
        let mut facts = reshaping(outcome, None);
        assert_blocked_in_time(facts.clone(), Step::Reshape, Reason::LayoutPending);
        // Half done, the number of instances may be right by chance.
        report_mut(&mut facts).layout.mig = [("0".to_owned(), instances("unknown", 7))].into();
        assert_blocked_in_time(facts, Step::Reshape, Reason::LayoutPending);
    }
    let mut facts = reshaping(ShapingOutcome::InForce, None);
    carries(&mut facts, 6);
    assert_blocked_in_time(facts.clone(), Step::Reshape, Reason::LayoutMismatch);
    carries(&mut facts, 7);
    assert!(hands_the_word(&facts));
}

#[test]
fn where_no_shaper_has_ever_looked_the_read_back_is_enough() {
    for outcome in [ShapingOutcome::Working, ShapingOutcome::Idle] {
        let mut facts = reshaping(outcome, None);
        let layout = &mut report_mut(&mut facts).layout;
        layout.boards.clear();
        layout.mig = [("0".to_owned(), instances("unknown", 7))].into();
        assert!(hands_the_word(&facts), "{outcome:?}");
    }
}

#[test]
fn what_stops_the_shaper_stops_the_handover_with_its_words_at_once() {
    for (outcome, expected) in [
        (ShapingOutcome::Busy, Reason::DevicesInUse),
        (ShapingOutcome::Infeasible, Reason::LayoutInfeasible),
        (ShapingOutcome::ResetRequired, Reason::RebootRequired),
        (ShapingOutcome::RebootRequired, Reason::RebootRequired),
        (ShapingOutcome::Failed, Reason::LayoutFailed),
    ] {
        let decision = step(&reshaping(outcome, Some(REBOOT)));
        assert_eq!(
            (decision.write.as_ref(), decision.step),
            (None, Step::Reshape),
            "{outcome:?}"
        );
        assert_eq!(reason(&decision), Some(expected), "{outcome:?}");
        assert!(message(&decision).contains(REBOOT), "{decision:?}");
    }
}

#[test]
fn a_layout_edited_while_the_shaper_is_stuck_replaces_the_order() {
    let mut facts = reshaping(ShapingOutcome::Infeasible, Some(REBOOT));
    let other = Layout::Mig(vec![MigLayout {
        gpus: None,
        instances: instances("3g.1/2", 2),
    }]);
    target_mut(&mut facts).layout = Some(other.clone());
    assert_eq!(
        step(&facts).write,
        Some(Write::Record(RecordWrite::Layout {
            layout: Some(other)
        }))
    );
}

#[test]
fn a_boot_between_word_and_grant_is_waited_out() {
    let mut facts = ordered(fresh(first_ownership::handed(Owner::Dra), vec![]));
    carries(&mut facts, 0);
    says(&mut facts, ShapingOutcome::Working, None);
    let decision = step(&facts);
    assert_eq!((decision.write, decision.step), (None, Step::HandWord));
    carries(&mut facts, 7);
    says(&mut facts, ShapingOutcome::InForce, None);
    assert!(matches!(
        step(&facts).write,
        Some(Write::Node(NodeWrite::Grant { .. }))
    ));
}
