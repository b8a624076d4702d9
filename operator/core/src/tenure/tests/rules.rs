//! What holds for every answer, whatever the facts.

use proptest::prelude::*;

use super::*;
use crate::intent::Layout;
use crate::report::{LayoutReport, Shaping, ShapingOutcome};

fn owners() -> impl Strategy<Value = Option<Owner>> {
    prop_oneof![
        Just(None),
        Just(Some(Owner::DevicePlugin)),
        Just(Some(Owner::Dra))
    ]
}

fn wishes() -> impl Strategy<Value = Want> {
    let owner = prop_oneof![Just(Owner::DevicePlugin), Just(Owner::Dra)];
    prop_oneof![
        1 => Just(Want::Nothing),
        1 => Just(Want::Hold(Blocker { reason: Reason::CohortOverlap, message: "two cohorts".into() })),
        6 => (owner, layouts(), any::<bool>(), any::<bool>()).prop_map(|(owner, layout, shape, template)| {
            let mut target = target(owner);
            target.layout = layout;
            if shape {
                target.shape = "another-shape".into();
            }
            if template {
                target.template = "another-template".into();
            }
            Want::Owner(Box::new(target))
        }),
    ]
}

fn layouts() -> impl Strategy<Value = Option<Layout>> {
    prop_oneof![3 => Just(None), 1 => Just(Some(Layout::LogicalNeuronCore(1))), 1 => Just(Some(Layout::LogicalNeuronCore(2)))]
}

fn records() -> impl Strategy<Value = Option<RecordFacts>> {
    let some = (owners(), 1..6_i64, layouts(), any::<bool>(), 0..8).prop_map(
        |(owner, term, layout, dra, other)| RecordFacts {
            node_uid: if other == 0 {
                "uid-of-a-predecessor".into()
            } else {
                UID.into()
            },
            layout,
            dra_cohort: dra.then(|| DRA_COHORT.to_owned()),
            ..record(owner, term)
        },
    );
    prop_oneof![1 => Just(None), 9 => some.prop_map(Some)]
}

fn reports() -> impl Strategy<Value = Option<NodeReport>> {
    let some = (
        owners(),
        1..6_i64,
        0..8,
        0..2,
        0..2,
        any::<bool>(),
        any::<bool>(),
        0..8,
    )
        .prop_map(
            |(word, term, boot, plugin, dra, socket, registered, unknown)| {
                let mut report = answer(term, word);
                if boot == 0 {
                    report.boot_id = "boot-of-monday".into();
                }
                let part = report.nvidia.as_mut().expect("part");
                part.in_use.device_plugin = plugin;
                part.in_use.dra = dra;
                part.in_use.unknown = unknown == 0;
                part.dra_registered = registered;
                if socket {
                    part.plugin_sockets.push("nvidia-gpu.sock".into());
                }
                report
            },
        );
    let shaped = (some, geometries()).prop_map(|(mut report, geometry)| {
        report.nvidia.as_mut().expect("part").layout = geometry;
        report
    });
    prop_oneof![1 => Just(None), 9 => shaped.prop_map(Some)]
}

/// What the node tells of its layout: read back, ordered, and in the shaper's words.
fn geometries() -> impl Strategy<Value = LayoutReport> {
    let outcome = prop::sample::select(vec![
        ShapingOutcome::Idle,
        ShapingOutcome::InForce,
        ShapingOutcome::Working,
        ShapingOutcome::Busy,
        ShapingOutcome::Failed,
    ]);
    (
        prop::option::of(1..3),
        any::<bool>(),
        prop::option::of(outcome),
    )
        .prop_map(|(setting, ordered, outcome)| LayoutReport {
            logical_neuron_core: setting,
            ordered,
            shaping: outcome.map(|outcome| Shaping {
                outcome,
                message: None,
            }),
            ..LayoutReport::default()
        })
}

fn consumers() -> impl Strategy<Value = Vec<Consumer>> {
    let one = (0..3, any::<bool>(), 0..4).prop_map(|(kind, terminating, trouble)| Consumer {
        kind: [
            ConsumerKind::PluginPod,
            ConsumerKind::ClaimPod,
            ConsumerKind::Claim,
        ][usize::try_from(kind).expect("small")],
        terminating,
        daemon_set: (trouble == 1).then(|| "monitoring/exporter".to_owned()),
        refused: (trouble == 2).then(|| "PodDisruptionBudget ml/pdb".to_owned()),
        ..plugin_pod("ml/someone")
    });
    prop::collection::vec(one, 0..3)
}

prop_compose! {
    fn worlds()(
        want in wishes(),
        owner in owners(),
        cohort in owners(),
        fence in prop::option::of(2..6_i64),
        record in records(),
        report in reports(),
        pods in prop::sample::subsequence(Owner::ALL.to_vec(), 0..=2),
        allocatable in prop_oneof![Just(0_i64), Just(4)],
        slice in any::<bool>(),
        consumers in consumers(),
        foreign in 0..10,
        ready in 0..10,
        may_start in any::<bool>(),
        evict in any::<bool>(),
        clocks in (0..8_u64, 0..400_u64, 0..8_u64),
    ) -> Facts {
        let mut facts = untouched(want);
        facts.node.owner = owner.map(Ok);
        facts.node.cohort = cohort.map(|owner| target(owner).cohort);
        facts.node.fence = fence;
        facts.node.ready = ready > 0;
        facts.node.allocatable.insert(RESOURCE.into(), allocatable);
        facts.record = record;
        facts.report = report;
        facts.operands = pods.into_iter().map(operand).collect();
        if slice {
            facts.slices = slices(4);
        }
        facts.consumers = Some(consumers);
        facts.fresh = true;
        if foreign == 0 {
            facts.foreign = vec![ForeignOwner { who: "DaemonSet kaito/other".into(), evidence: "its pod".into(), host_plugin: false }];
        }
        if !may_start {
            facts.may_start = Err(Blocker { reason: Reason::BudgetExhausted, message: "full".into() });
        }
        if evict {
            facts.drain = DrainPolicy::Evict;
        }
        (facts.timing.fence_seen_s, facts.timing.step_s, facts.timing.advert_stable_s) = clocks;
        facts
    }
}

/// The same world as a cache shows it.
fn cached(facts: &Facts) -> Facts {
    Facts {
        fresh: false,
        consumers: None,
        ..facts.clone()
    }
}

fn needs_fresh_reads(write: &Write) -> bool {
    match write {
        Write::Node(NodeWrite::Fence { .. } | NodeWrite::Grant { .. } | NodeWrite::Revoke) => true,
        Write::Record(RecordWrite::HandWord { .. } | RecordWrite::Clear) => true,
        Write::Node(NodeWrite::Unfence)
        | Write::Record(
            RecordWrite::Create { .. }
            | RecordWrite::RaiseTerm { .. }
            | RecordWrite::Withdraw { .. }
            | RecordWrite::Layout { .. },
        )
        | Write::Pod(_) => false,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1024, ..ProptestConfig::default() })]

    #[test]
    fn fresh_facts_are_always_enough_and_cached_ones_never_carry_a_write_that_needs_them(facts in worlds()) {
        let fresh = step(&facts);
        prop_assert!(!fresh.needs_fresh);
        let decision = step(&cached(&facts));
        prop_assert!(!(decision.needs_fresh && decision.write.is_some()), "{decision:?}");
        if let Some(write) = &decision.write {
            prop_assert!(!needs_fresh_reads(write), "{write:?}");
        }
    }

    #[test]
    fn an_owner_is_taken_away_only_behind_a_fence_on_an_idle_answered_node(facts in worlds()) {
        if step(&facts).write == Some(Write::Node(NodeWrite::Revoke)) {
            let term = facts.record.as_ref().map(|record| record.term);
            prop_assert_eq!(facts.node.fence, term);
            let part = facts.report.as_ref().and_then(|report| report.nvidia.as_ref()).expect("a report");
            prop_assert_eq!(Some(part.observed_term), term);
            prop_assert!(part.in_use.is_idle());
            prop_assert!(facts.consumers.as_ref().is_some_and(Vec::is_empty));
        }
    }

    #[test]
    fn an_owner_is_given_only_to_a_node_without_the_others_traces(facts in worlds()) {
        if let Some(Write::Node(NodeWrite::Grant { owner, .. })) = step(&facts).write {
            prop_assert!(facts.node.owner.is_none() && facts.operands.is_empty());
            let record = facts.record.as_ref().expect("a record");
            let part = facts.report.as_ref().and_then(|report| report.nvidia.as_ref()).expect("a report");
            prop_assert_eq!((part.word, part.word_term, part.observed_term), (Some(owner), record.term, record.term));
            prop_assert!(part.in_use.device_plugin == 0 && !part.in_use.unknown && part.plugin_sockets.is_empty());
            prop_assert!(facts.node.allocatable.values().all(|count| *count == 0));
            if owner == Owner::DevicePlugin {
                prop_assert!(part.in_use.dra == 0 && !part.dra_registered && facts.slices.count == 0);
            }
        }
    }

    #[test]
    fn terms_only_grow_and_a_fence_is_ahead_of_every_term(facts in worlds()) {
        let record = facts.record.as_ref().map_or(0, |record| record.term);
        let write = step(&facts).write;
        if let Some(Write::Record(RecordWrite::RaiseTerm { term } | RecordWrite::Withdraw { term } | RecordWrite::HandWord { term, .. })) = write {
            prop_assert!(term > record);
        }
        if let Some(Write::Node(NodeWrite::Fence { term })) = write {
            prop_assert!(term > record + 1 && facts.node.fence.is_none_or(|fence| term > fence));
        }
    }

    #[test]
    fn nobody_leaves_a_node_with_a_layout_order_on_it(
        owner in owners(),
        fence in prop::option::of(1..5_i64),
        terms in (1..6_i64, 1..6_i64),
        ordered in layouts(),
        geometry in geometries(),
    ) {
        let mut facts = fresh(untouched(Want::Nothing), vec![]);
        facts.node.fence = fence;
        facts.record = Some(RecordFacts { layout: ordered.clone(), ..record(owner, terms.0) });
        facts.report = Some(answer(terms.1, owner));
        let still_there = geometry.ordered;
        report_mut(&mut facts).layout = geometry;
        let write = step(&facts).write;
        let leaves = write == Some(Write::Node(NodeWrite::Unfence));
        if leaves || write == Some(Write::Record(RecordWrite::Clear)) {
            prop_assert!(ordered.is_none() && !still_there, "{write:?}");
        }
        if leaves {
            prop_assert_eq!(terms.0, terms.1, "the agent has seen the withdrawal");
        }
    }

    #[test]
    fn an_operand_that_waits_for_a_layout_is_made_anew_only_when_it_is_verified(
        owner in prop_oneof![Just(Owner::DevicePlugin), Just(Owner::Dra)],
        fence in prop::option::of(Just(1_i64)),
        layout in 1..3_u8,
        geometry in geometries(),
    ) {
        let mut facts = fresh(held_by(owner, wants(owner)), vec![]);
        facts.node.fence = fence;
        target_mut(&mut facts).layout = Some(Layout::LogicalNeuronCore(layout));
        target_mut(&mut facts).template = "another-template".into();
        facts.record.as_mut().expect("record").layout = Some(Layout::LogicalNeuronCore(layout));
        let outcome = geometry.shaping.as_ref().map(|shaping| shaping.outcome);
        report_mut(&mut facts).layout = geometry;
        if let Some(Write::Pod(PodWrite::Restart { .. })) = step(&facts).write {
            prop_assert_eq!(outcome, Some(ShapingOutcome::InForce));
        }
    }

    #[test]
    fn a_conflict_means_no_write_but_the_record_that_tells_of_it(facts in worlds()) {
        let held_back = matches!(facts.want, Want::Hold(_)) || !facts.foreign.is_empty();
        if held_back && facts.want != Want::Nothing {
            let decision = step(&facts);
            prop_assert!(matches!(decision.write, None | Some(Write::Record(RecordWrite::Create { .. }))), "{decision:?}");
        }
    }

    #[test]
    fn whoever_waits_says_why_or_when_to_look_again(facts in worlds()) {
        let decision = step(&facts);
        let at_rest = matches!(decision.step, Step::Held | Step::None);
        let says = decision.write.is_some() || decision.blocker.is_some() || decision.wake_s.is_some();
        prop_assert!(at_rest || says, "{decision:?}");
        if decision.step == Step::Held && decision.write.is_none() {
            prop_assert_eq!(decision.wake_s, None);
        }
    }

    #[test]
    fn only_a_restart_or_an_eviction_touches_pods_and_each_names_a_uid(facts in worlds()) {
        if let Some(Write::Pod(PodWrite::Evict { uid, .. } | PodWrite::Restart { uid, .. })) = step(&facts).write {
            prop_assert!(!uid.is_empty());
        }
    }
}
