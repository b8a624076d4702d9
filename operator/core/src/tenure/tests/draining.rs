use super::*;

fn drained(want: Want) -> Facts {
    fresh(draining(Owner::DevicePlugin, want), vec![])
}

#[test]
fn the_fence_settles_before_consumers_are_even_read() {
    let mut facts = draining(Owner::DevicePlugin, wants(Owner::Dra));
    facts.timing.fence_seen_s = 2;
    let decision = step(&facts);
    assert_eq!(
        (decision.step, decision.needs_fresh, decision.wake_s),
        (Step::Drain, false, Some(3))
    );
}

#[test]
fn the_term_follows_the_fence() {
    let mut facts = drained(wants(Owner::Dra));
    facts.record = Some(record(Some(Owner::DevicePlugin), 2));
    assert_eq!(
        step(&facts).write,
        None,
        "the agent answers the present term first"
    );
    report_mut(&mut facts).observed_term = 2;
    assert_eq!(
        step(&facts).write,
        Some(Write::Record(RecordWrite::RaiseTerm { term: 3 }))
    );
}

/// Fenced, and the agent was not asked yet.
fn unasked(want: Want) -> Facts {
    let mut facts = draining(Owner::DevicePlugin, want);
    facts.record = Some(record(Some(Owner::DevicePlugin), 2));
    report_mut(&mut facts).observed_term = 2;
    facts
}

#[test]
fn the_agent_is_asked_when_nobody_is_left_whom_the_api_knows() {
    assert!(step(&unasked(wants(Owner::Dra))).needs_fresh);
    let busy = fresh(unasked(wants(Owner::Dra)), vec![plugin_pod("ml/train")]);
    let decision = step(&busy);
    assert_eq!(
        (decision.step, reason(&decision), &decision.write),
        (Step::Drain, Some(Reason::ConsumersRemain), &None)
    );
    let decision = step(&fresh(unasked(wants(Owner::Dra)), vec![]));
    assert_eq!(
        decision.write,
        Some(Write::Record(RecordWrite::RaiseTerm { term: 3 }))
    );
}

#[test]
fn a_change_of_mind_does_not_wait_for_consumers() {
    let busy = fresh(
        unasked(wants(Owner::DevicePlugin)),
        vec![plugin_pod("ml/train")],
    );
    assert_eq!(
        step(&busy).write,
        Some(Write::Record(RecordWrite::RaiseTerm { term: 3 }))
    );
}

#[test]
fn nobody_is_evicted_before_the_fence_has_settled() {
    let mut busy = fresh(unasked(wants(Owner::Dra)), vec![plugin_pod("ml/train")]);
    busy.drain = DrainPolicy::Evict;
    busy.timing.fence_seen_s = 2;
    let decision = step(&busy);
    assert_eq!(
        (reason(&decision), &decision.write),
        (Some(Reason::ConsumersRemain), &None)
    );
    busy.timing.fence_seen_s = 5;
    assert!(matches!(
        step(&busy).write,
        Some(Write::Pod(PodWrite::Evict { .. }))
    ));
}

#[test]
fn an_empty_attested_node_is_revoked_on_fresh_reads_only() {
    let cached = step(&draining(Owner::DevicePlugin, wants(Owner::Dra)));
    assert_eq!((cached.needs_fresh, cached.write), (true, None));
    let decision = step(&drained(wants(Owner::Dra)));
    assert_eq!(
        (decision.step, decision.write),
        (Step::Revoke, Some(Write::Node(NodeWrite::Revoke)))
    );
}

#[test]
fn fresh_reads_without_consumers_are_no_fresh_reads() {
    let mut facts = drained(wants(Owner::Dra));
    facts.consumers = None;
    assert!(step(&facts).needs_fresh);
}

#[test]
fn an_attestation_for_an_earlier_term_does_not_count() {
    let mut facts = drained(wants(Owner::Dra));
    report_mut(&mut facts).observed_term = 2;
    assert_blocked_in_time(facts, Step::Attest, Reason::AgentSilent);
}

#[test]
fn holders_of_either_kind_keep_the_owner() {
    for hold in [
        (|part: &mut VendorReport| part.in_use.device_plugin = 2) as fn(&mut VendorReport),
        |part| part.in_use.dra = 1,
    ] {
        let mut facts = drained(wants(Owner::Dra));
        hold(report_mut(&mut facts));
        report_mut(&mut facts).in_use.holders = vec!["pod 1b2c".into()];
        let decision = step(&facts);
        assert_eq!(
            (decision.step, reason(&decision), &decision.write),
            (Step::Attest, Some(Reason::DevicesInUse), &None)
        );
        assert!(
            message(&decision).contains("pod 1b2c"),
            "{}",
            message(&decision)
        );
    }
}

#[test]
fn consumers_are_named_at_once_and_read_again_after_a_while() {
    let facts = fresh(
        draining(Owner::DevicePlugin, wants(Owner::Dra)),
        vec![plugin_pod("ml/zeta"), plugin_pod("ml/alpha")],
    );
    let decision = step(&facts);
    assert_eq!(
        (decision.step, reason(&decision), &decision.write),
        (Step::Drain, Some(Reason::ConsumersRemain), &None)
    );
    assert!(
        message(&decision).contains("ml/alpha") && message(&decision).contains("others"),
        "{}",
        message(&decision)
    );
    // Soon at first, less often the longer it lasts.
    for (lasted, wake) in [(0, 2), (12, 3), (3000, 10)] {
        let mut facts = facts.clone();
        facts.timing.step_s = lasted;
        assert_eq!(step(&facts).wake_s, Some(wake), "after {lasted} s");
    }
}

#[test]
fn a_drain_past_its_deadline_says_so() {
    let mut facts = fresh(
        draining(Owner::DevicePlugin, wants(Owner::Dra)),
        vec![plugin_pod("ml/long-run")],
    );
    facts.timing.step_s = 3600;
    let decision = step(&facts);
    assert_eq!(reason(&decision), Some(Reason::DrainTimeout));
    assert!(
        message(&decision).contains("ml/long-run"),
        "{}",
        message(&decision)
    );
}

#[test]
fn a_daemon_sets_consumer_is_named_at_once_and_not_evicted() {
    let exporter = Consumer {
        daemon_set: Some("monitoring/dcgm".into()),
        ..claim_pod("monitoring/dcgm-x1")
    };
    let mut facts = fresh(
        draining(Owner::Dra, wants(Owner::DevicePlugin)),
        vec![exporter],
    );
    facts.drain = DrainPolicy::Evict;
    let decision = step(&facts);
    assert_eq!(
        (reason(&decision), &decision.write),
        (Some(Reason::DaemonSetConsumer), &None)
    );
    assert!(
        message(&decision).contains("DaemonSet monitoring/dcgm "),
        "{}",
        message(&decision)
    );
}

#[test]
fn evictions_go_one_at_a_time_past_those_that_cannot_go() {
    let ending = Consumer {
        terminating: true,
        ..plugin_pod("ml/a-ending")
    };
    let refused = Consumer {
        refused: Some("PodDisruptionBudget ml/pdb".into()),
        asked_lately: true,
        ..plugin_pod("ml/b-refused")
    };
    let mut facts = fresh(
        draining(Owner::DevicePlugin, wants(Owner::Dra)),
        vec![ending.clone(), refused.clone(), plugin_pod("ml/c")],
    );
    facts.drain = DrainPolicy::Evict;
    let decision = step(&facts);
    assert_eq!(
        decision.write,
        Some(Write::Pod(PodWrite::Evict {
            name: "ml/c".into(),
            uid: "uid-of-ml/c".into()
        }))
    );
    facts.consumers = Some(vec![ending, refused]);
    let decision = step(&facts);
    assert_eq!(
        (reason(&decision), &decision.write),
        (Some(Reason::DisruptionBudget), &None)
    );
    assert!(
        message(&decision).contains("PodDisruptionBudget ml/pdb"),
        "{}",
        message(&decision)
    );
    let wake = decision.wake_s;

    // It is asked again after a while, and the budget is named meanwhile.
    for consumer in facts.consumers.iter_mut().flatten() {
        consumer.asked_lately = false;
    }
    let decision = step(&facts);
    assert!(
        wake.is_some()
            && matches!(&decision.write, Some(Write::Pod(PodWrite::Evict { name, .. })) if name == "ml/b-refused")
    );
    assert_eq!(reason(&decision), Some(Reason::DisruptionBudget));
}

#[test]
fn a_claim_is_never_evicted_and_a_stuck_one_is_named() {
    let stuck = Consumer {
        terminating: true,
        ..claim("ml/orphan")
    };
    let mut facts = fresh(
        draining(Owner::Dra, wants(Owner::DevicePlugin)),
        vec![stuck],
    );
    facts.drain = DrainPolicy::Evict;
    assert_eq!(
        (reason(&step(&facts)), step(&facts).write),
        (Some(Reason::ConsumersRemain), None)
    );
    facts.timing.step_s = 300;
    let decision = step(&facts);
    assert_eq!(
        (reason(&decision), &decision.write),
        (Some(Reason::StuckClaim), &None)
    );
    assert!(
        message(&decision).contains("ml/orphan"),
        "{}",
        message(&decision)
    );
}

#[test]
fn the_old_operand_is_seen_gone_before_the_term_is_raised_again() {
    let mut facts = free_of(Owner::DevicePlugin, 3, wants(Owner::Dra));
    facts.operands = vec![OperandPod {
        terminating: true,
        ..operand(Owner::DevicePlugin)
    }];
    let late = assert_blocked_in_time(facts.clone(), Step::Vacate, Reason::OperandLingers);
    assert!(
        message(&late).contains("uid-of-operand-device-plugin"),
        "{}",
        message(&late)
    );
    facts.operands.clear();
    assert_eq!(
        step(&facts).write,
        Some(Write::Record(RecordWrite::RaiseTerm { term: 4 }))
    );
}

#[test]
fn everything_the_old_owner_left_must_go_before_the_word_is_handed() {
    let cases: [(Reason, Spoil); 5] = [
        (Reason::AdvertisementLingers, |facts| {
            facts.node.allocatable.insert(RESOURCE.into(), 4);
        }),
        (Reason::AdvertisementLingers, |facts| {
            facts.slices = slices(4);
        }),
        (Reason::SocketLingers, |facts| {
            report_mut(facts).plugin_sockets = vec!["nvidia-gpu.sock".into()];
        }),
        (Reason::AgentSilent, |facts| {
            report_mut(facts).observed_term = 3;
        }),
        (Reason::OperandLingers, |facts| {
            facts.operands = vec![operand(Owner::DevicePlugin)];
        }),
    ];
    for (expected, spoil) in cases {
        let mut facts = fresh(free_of(Owner::DevicePlugin, 4, wants(Owner::Dra)), vec![]);
        spoil(&mut facts);
        assert_blocked_in_time(facts, Step::Vacate, expected);
    }
}

#[test]
fn a_plugin_pod_that_came_late_is_waited_for() {
    let facts = fresh(
        free_of(Owner::DevicePlugin, 4, wants(Owner::Dra)),
        vec![plugin_pod("ml/latecomer")],
    );
    let decision = step(&facts);
    assert_eq!(
        (decision.step, reason(&decision), &decision.write),
        (Step::Vacate, Some(Reason::ConsumersRemain), &None)
    );
}

#[test]
fn a_node_that_nobody_wants_is_unfenced_on_the_same_proof_and_then_forgotten() {
    let facts = free_of(Owner::DevicePlugin, 4, Want::Nothing);
    assert!(step(&facts).needs_fresh);
    let mut facts = fresh(facts, vec![]);
    assert_eq!(step(&facts).write, Some(Write::Node(NodeWrite::Unfence)));
    facts.node.fence = None;
    assert_eq!(step(&facts).write, Some(Write::Record(RecordWrite::Clear)));
    facts.record = None;
    assert_eq!((step(&facts).step, step(&facts).write), (Step::None, None));
}

#[test]
fn the_fence_comes_down_when_the_advertisement_has_held_for_a_while() {
    let mut facts = held_by(Owner::Dra, wants(Owner::Dra));
    facts.node.fence = Some(3);
    facts.record = Some(record(Some(Owner::Dra), 5));
    facts.report = Some(answer(5, Some(Owner::Dra)));
    facts.timing.advert_stable_s = 1;
    assert_eq!(
        (step(&facts).step, step(&facts).write, step(&facts).wake_s),
        (Step::Verify, None, Some(2))
    );
    facts.timing.advert_stable_s = 3;
    assert_eq!(
        (step(&facts).step, step(&facts).write),
        (Step::Unfence, Some(Write::Node(NodeWrite::Unfence)))
    );
}
