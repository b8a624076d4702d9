use super::*;

#[test]
fn a_held_node_is_at_rest() {
    for owner in Owner::ALL {
        let decision = step(&held_by(owner, wants(owner)));
        assert_eq!(
            decision,
            Decision {
                write: None,
                needs_fresh: false,
                needs_claim: false,
                step: Step::Held,
                blocker: None,
                wake_s: None
            }
        );
    }
}

#[test]
fn a_held_node_whose_kubelet_is_silent_keeps_its_owner_and_is_not_called_ready() {
    for owner in Owner::ALL {
        let mut facts = held_by(owner, wants(owner));
        facts.node.ready = false;
        let decision = step(&facts);
        assert_eq!(
            (decision.step, reason(&decision), &decision.write),
            (Step::Held, Some(Reason::NodeNotReady), &None)
        );
    }
}

#[test]
fn a_held_node_stays_held_whatever_the_clocks_say_after_a_restart_of_the_controller() {
    let mut facts = held_by(Owner::Dra, wants(Owner::Dra));
    facts.timing.advert_stable_s = 0;
    assert_eq!(step(&facts).step, Step::Held);
}

#[test]
fn a_lost_advertisement_is_a_blocker_and_never_a_write() {
    let mut facts = held_by(Owner::DevicePlugin, wants(Owner::DevicePlugin));
    facts.node.allocatable.insert(RESOURCE.into(), 0);
    let late = assert_blocked_in_time(facts, Step::Verify, Reason::AdvertisementLost);
    assert!(
        message(&late).contains("nvidia.com/gpu=4"),
        "{}",
        message(&late)
    );

    let mut facts = held_by(Owner::Dra, wants(Owner::Dra));
    facts.slices = SliceFacts::default();
    assert_blocked_in_time(facts, Step::Verify, Reason::AdvertisementLost);
}

#[test]
fn a_partial_advertisement_is_a_mismatch_with_both_numbers() {
    let mut facts = held_by(Owner::DevicePlugin, wants(Owner::DevicePlugin));
    facts.node.allocatable.insert(RESOURCE.into(), 3);
    let late = assert_blocked_in_time(facts, Step::Verify, Reason::AdvertisementMismatch);
    assert_eq!(
        message(&late),
        "allocatable is nvidia.com/gpu=3, expected nvidia.com/gpu=4"
    );

    let mut facts = held_by(Owner::Dra, wants(Owner::Dra));
    facts.slices.complete = false;
    let late = assert_blocked_in_time(facts, Step::Verify, Reason::AdvertisementMismatch);
    assert!(
        message(&late).contains("incomplete generation"),
        "{}",
        message(&late)
    );
}

#[test]
fn a_resource_beyond_the_expected_ones_is_a_mismatch() {
    let mut facts = held_by(Owner::DevicePlugin, wants(Owner::DevicePlugin));
    facts
        .node
        .allocatable
        .insert("nvidia.com/gpu.shared".into(), 8);
    assert_blocked_in_time(facts, Step::Verify, Reason::AdvertisementMismatch);
}

#[test]
fn an_operand_that_does_not_run_is_named_with_the_kubelets_words() {
    let mut facts = held_by(Owner::Dra, wants(Owner::Dra));
    facts.operands[0].ready = false;
    facts.operands[0].waiting = Some("Init:0/1".into());
    let late = assert_blocked_in_time(facts, Step::Verify, Reason::OperandNotRunning);
    assert!(
        message(&late).contains("operand-dra: Init:0/1"),
        "{}",
        message(&late)
    );

    let mut facts = held_by(Owner::Dra, wants(Owner::Dra));
    facts.operands.clear();
    assert_blocked_in_time(facts, Step::Verify, Reason::OperandNotRunning);
}

#[test]
fn a_host_plugin_that_stays_active_under_dra_is_named() {
    let mut facts = held_by(Owner::Dra, wants(Owner::Dra));
    facts.slices = SliceFacts::default();
    facts.node.allocatable.insert(RESOURCE.into(), 4);
    assert_blocked_in_time(facts, Step::Verify, Reason::HostPluginActive);
}

#[test]
fn two_advertisements_at_once_are_said_at_once() {
    for owner in Owner::ALL {
        let mut facts = held_by(owner, wants(owner));
        facts.node.allocatable.insert(RESOURCE.into(), 4);
        facts.slices = slices(4);
        let decision = step(&facts);
        assert_eq!(
            (reason(&decision), decision.write),
            (Some(Reason::DualAdvertisement), None)
        );
    }
}

#[test]
fn a_running_operand_of_the_other_owner_is_said_at_once() {
    let mut facts = held_by(Owner::Dra, wants(Owner::Dra));
    facts.operands.push(operand(Owner::DevicePlugin));
    assert_eq!(reason(&step(&facts)), Some(Reason::DualAdvertisement));
}

#[test]
fn after_a_reboot_nothing_counts_until_the_agent_has_reported_from_the_new_boot() {
    let mut facts = held_by(Owner::Dra, wants(Owner::Dra));
    facts.node.boot_id = "boot-of-wednesday".into();
    assert_blocked_in_time(facts, Step::Verify, Reason::AgentSilent);
}

#[test]
fn an_expectation_that_cannot_be_computed_is_passed_on() {
    let unknown = Blocker {
        reason: Reason::UnknownGeometry,
        message: "NVIDIA X900 is not known".into(),
    };
    let mut facts = held_by(Owner::Dra, wants(Owner::Dra));
    target_mut(&mut facts).expected = Err(unknown.clone());
    let decision = step(&facts);
    assert_eq!(
        (decision.step, decision.blocker, decision.write),
        (Step::Verify, Some(unknown), None)
    );
}

#[test]
fn with_a_user_configuration_any_resource_will_do() {
    let mut facts = held_by(Owner::DevicePlugin, wants(Owner::DevicePlugin));
    target_mut(&mut facts).expected = Ok(Expected::AnyResource);
    facts.node.allocatable = BTreeMap::from([("nvidia.com/team-gpu".to_owned(), 9)]);
    assert_eq!(step(&facts).step, Step::Held);
}

#[test]
fn a_lost_record_is_made_anew_and_restates_what_the_label_says() {
    let mut facts = held_by(Owner::DevicePlugin, wants(Owner::Dra));
    facts.record = None;
    assert_eq!(
        step(&facts).write,
        Some(Write::Record(RecordWrite::Create {
            cohort: Some(DRA_COHORT.into())
        }))
    );
    facts.record = Some(record(None, 1));
    facts.report = Some(answer(1, Some(Owner::DevicePlugin)));
    assert!(step(&facts).needs_fresh);
    assert_eq!(
        step(&fresh(facts, vec![])).write,
        Some(Write::Record(RecordWrite::HandWord {
            cohort: PLUGIN_COHORT.into(),
            owner: Owner::DevicePlugin,
            term: 2,
            dra_cohort: None
        }))
    );
}
