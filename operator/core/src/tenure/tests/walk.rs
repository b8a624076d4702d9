//! Whole ways, with a world that answers at once.

use super::*;

/// Does a write, then lets agent, DaemonSet controller and kubelet answer.
fn answer_to(facts: &mut Facts, write: &Write) {
    match write {
        Write::Record(RecordWrite::Create { cohort }) => {
            facts.record = Some(RecordFacts {
                cohort: cohort.clone(),
                ..record(None, 1)
            });
        }
        Write::Record(RecordWrite::Clear) => facts.record = None,
        Write::Record(RecordWrite::RaiseTerm { term }) => {
            facts.record.as_mut().expect("record").term = *term;
        }
        Write::Record(RecordWrite::Withdraw { term }) => {
            let record = facts.record.as_mut().expect("record");
            (record.term, record.layout) = (*term, None);
        }
        Write::Record(RecordWrite::Layout { layout }) => {
            facts.record.as_mut().expect("record").layout = layout.clone();
        }
        Write::Record(RecordWrite::HandWord {
            cohort,
            owner,
            term,
            dra_cohort,
        }) => {
            let record = facts.record.as_mut().expect("record");
            record.cohort = Some(cohort.clone());
            record.owner = Some(*owner);
            record.term = *term;
            record.dra_cohort = dra_cohort.clone();
        }
        Write::Node(NodeWrite::Fence { term }) => facts.node.fence = Some(*term),
        Write::Node(NodeWrite::Unfence) => facts.node.fence = None,
        Write::Node(NodeWrite::Grant { cohort, owner }) => {
            facts.node.owner = Some(Ok(*owner));
            facts.node.cohort = Some(cohort.clone());
        }
        Write::Node(NodeWrite::Revoke) => {
            facts.node.owner = None;
            facts.node.cohort = None;
        }
        Write::Pod(PodWrite::Restart { .. }) => facts.operands.clear(),
        Write::Pod(PodWrite::Evict { .. }) => panic!("nobody to evict on these walks"),
    }
    facts.report = facts.record.as_ref().map(|record| {
        let mut report = answer(record.term, record.owner);
        if let Some(crate::intent::Layout::LogicalNeuronCore(value)) = record.layout {
            report
                .nvidia
                .as_mut()
                .expect("part")
                .layout
                .logical_neuron_core = Some(i32::from(value));
        }
        report.nvidia.as_mut().expect("part").layout.ordered = record.layout.is_some();
        report
    });
    facts.operands.clear();
    facts.slices = SliceFacts::default();
    facts.node.allocatable.insert(RESOURCE.into(), 0);
    if let Some(Ok(owner)) = facts.node.owner {
        advertise(facts, owner);
        if let Want::Owner(target) = &facts.want
            && target.owner == owner
        {
            facts.operands[0].shape.clone_from(&target.shape);
            facts.operands[0].template.clone_from(&target.template);
        }
    }
}

fn short(write: &Write) -> &'static str {
    match write {
        Write::Record(RecordWrite::Create { .. }) => "create",
        Write::Record(RecordWrite::RaiseTerm { .. }) => "raise",
        Write::Record(RecordWrite::Withdraw { .. }) => "withdraw",
        Write::Record(RecordWrite::Layout { .. }) => "layout",
        Write::Record(RecordWrite::HandWord { .. }) => "word",
        Write::Record(RecordWrite::Clear) => "clear",
        Write::Node(NodeWrite::Fence { .. }) => "fence",
        Write::Node(NodeWrite::Grant { .. }) => "grant",
        Write::Node(NodeWrite::Revoke) => "revoke",
        Write::Node(NodeWrite::Unfence) => "unfence",
        Write::Pod(PodWrite::Evict { .. }) => "evict",
        Write::Pod(PodWrite::Restart { .. }) => "restart",
    }
}

/// Walks until nothing is left to write; returns the writes and the last answer.
fn walk(facts: &mut Facts) -> (Vec<&'static str>, Decision) {
    let mut writes = vec![];
    loop {
        let mut decision = step(facts);
        if decision.needs_fresh {
            decision = step(&fresh(facts.clone(), vec![]));
            assert!(
                !decision.needs_fresh,
                "fresh facts must be enough: {decision:?}"
            );
        }
        let Some(write) = &decision.write else {
            return (writes, decision);
        };
        assert!(writes.len() < 20, "no end: {writes:?}");
        writes.push(short(write));
        answer_to(facts, write);
    }
}

#[test]
fn a_first_ownership_takes_three_writes() {
    for owner in Owner::ALL {
        let mut facts = untouched(wants(owner));
        let (writes, last) = walk(&mut facts);
        assert_eq!(writes, ["create", "word", "grant"]);
        assert_eq!(
            (last.step, last.blocker, last.wake_s),
            (Step::Held, None, None)
        );
    }
}

#[test]
fn a_handover_takes_seven_writes_either_way() {
    for owner in Owner::ALL {
        let mut facts = held_by(owner.other(), wants(owner));
        let (writes, last) = walk(&mut facts);
        assert_eq!(
            writes,
            [
                "fence", "raise", "revoke", "raise", "word", "grant", "unfence"
            ]
        );
        assert_eq!(
            (last.step, last.blocker, last.wake_s),
            (Step::Held, None, None)
        );
        assert_eq!(facts.node.owner, Some(Ok(owner)));
    }
}

#[test]
fn a_reshape_takes_the_same_way_with_the_layout_in_between() {
    let mut facts = held_by(Owner::Dra, wants(Owner::Dra));
    target_mut(&mut facts).layout = Some(crate::intent::Layout::LogicalNeuronCore(1));
    let (writes, last) = walk(&mut facts);
    assert_eq!(
        writes,
        [
            "fence", "raise", "revoke", "raise", "layout", "word", "grant", "unfence"
        ]
    );
    assert_eq!(last.step, Step::Held);
}

#[test]
fn a_node_that_leaves_its_cohort_ends_without_a_trace() {
    for owner in Owner::ALL {
        let mut facts = held_by(owner, Want::Nothing);
        let (writes, last) = walk(&mut facts);
        assert_eq!(
            writes,
            ["fence", "raise", "revoke", "raise", "unfence", "clear"]
        );
        assert_eq!(
            last,
            Decision {
                write: None,
                needs_fresh: false,
                needs_claim: false,
                step: Step::None,
                blocker: None,
                wake_s: None
            }
        );
        assert_eq!(
            (facts.node.owner, facts.node.cohort, facts.node.fence),
            (None, None, None)
        );
    }
}

#[test]
fn a_node_that_leaves_its_layout_behind_is_written_no_oftener() {
    let mut facts = held_by(Owner::Dra, Want::Nothing);
    facts.record.as_mut().expect("record").layout =
        Some(crate::intent::Layout::LogicalNeuronCore(1));
    let (writes, last) = walk(&mut facts);
    assert_eq!(
        writes,
        ["fence", "raise", "revoke", "withdraw", "unfence", "clear"]
    );
    assert_eq!((last.step, facts.record), (Step::None, None));
}

#[test]
fn a_layout_ordered_for_nobody_takes_five_writes_to_the_end() {
    let mut facts = untouched(Want::Nothing);
    facts.record = Some(RecordFacts {
        layout: Some(crate::intent::Layout::LogicalNeuronCore(1)),
        ..record(None, 1)
    });
    facts.report = Some(answer(1, None));
    let (writes, last) = walk(&mut facts);
    assert_eq!(writes, ["fence", "raise", "withdraw", "unfence", "clear"]);
    assert_eq!((last.step, facts.record), (Step::None, None));
}

#[test]
fn a_restart_takes_one_write() {
    let mut facts = held_by(Owner::DevicePlugin, wants(Owner::DevicePlugin));
    target_mut(&mut facts).template = "newer".into();
    let (writes, last) = walk(&mut facts);
    assert_eq!(writes, ["restart"]);
    assert_eq!(last.step, Step::Held);
}

#[test]
fn a_handover_survives_the_loss_of_the_record_at_every_point() {
    for lost_after in 0..7 {
        let mut facts = held_by(Owner::Dra, wants(Owner::DevicePlugin));
        for _ in 0..lost_after {
            let write = step(&fresh(facts.clone(), vec![]))
                .write
                .expect("under way");
            answer_to(&mut facts, &write);
        }
        facts.record = None;
        facts.report = None;
        let (writes, last) = walk(&mut facts);
        assert_eq!(
            (last.step, last.blocker),
            (Step::Held, None),
            "lost after write {lost_after}: {writes:?}"
        );
        assert_eq!(facts.node.owner, Some(Ok(Owner::DevicePlugin)));
    }
}
