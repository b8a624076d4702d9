use proptest::prelude::*;

use super::*;

fn any_stage() -> impl Strategy<Value = Stage> {
    prop::sample::select(vec![
        Stage::Unowned,
        Stage::Settled,
        Stage::Still,
        Stage::AsksHandover,
        Stage::AsksHandover,
        Stage::AsksRestart,
        Stage::UnderWay,
        Stage::Verifying,
        Stage::Stuck,
        Stage::Failed(Reason::OperandNotRunning),
    ])
}

fn any_fleet() -> impl Strategy<Value = Vec<Standing>> {
    let one = (
        any_stage(),
        prop::sample::select(vec![None, Some("amber"), Some("zinc")]),
        0..2_000i64,
    );
    prop::collection::vec(one, 0..30).prop_map(|given| {
        given
            .into_iter()
            .enumerate()
            .map(|(index, (stage, cohort, age))| Standing {
                since_s: NOW - age,
                ..standing(&format!("n{index:02}"), cohort, stage)
            })
            .collect()
    })
}

proptest! {
    #[test]
    fn the_budget_is_never_exceeded_and_the_order_of_nodes_does_not_matter(
        standings in any_fleet(),
        nodes in 1u32..6,
        own in 1u32..4,
        canaries in 0u32..3,
    ) {
        let intent = intent(Budget::Nodes(nodes), canaries, &[("amber", Some(Budget::Nodes(own))), ("zinc", None)]);
        let admission = admit(&rules(&intent), &standings);
        let starts: BTreeSet<&str> = admission.starts().map(|(node, _)| node).collect();
        let stage = |node: &str| standings.iter().find(|standing| standing.node == node).map(|standing| standing.stage);
        let handovers = starts.iter().filter(|node| stage(node) == Some(Stage::AsksHandover)).count();
        let under_way = standings.iter().filter(|standing| standing.stage == Stage::UnderWay).count();
        if handovers > 0 {
            prop_assert!(under_way + handovers <= nodes as usize);
        }
        let of_amber = |node: &&&str| standings.iter().any(|s| s.node == ***node && s.cohort.as_deref() == Some("amber"));
        prop_assert!(starts.iter().filter(of_amber).count() <= 2 * own as usize);
        for standing in &standings {
            let may = admission.may_start(&standing.node, standing.vendor, standing.cohort.as_deref());
            prop_assert_eq!(may.is_ok(), starts.contains(standing.node.as_str()));
            if let Err(why) = may {
                prop_assert!(is_pace(why.reason));
            }
        }
        let reversed: Vec<Standing> = standings.iter().rev().cloned().collect();
        prop_assert_eq!(&admission, &admit(&rules(&intent), &reversed));
    }

    #[test]
    fn somebody_always_starts_unless_a_rule_says_why_not(standings in any_fleet()) {
        let intent = intent(Budget::Nodes(1), 0, &[("amber", None), ("zinc", None)]);
        let admission = admit(&rules(&intent), &standings);
        let busy = standings.iter().any(|s| matches!(s.stage, Stage::UnderWay | Stage::Verifying));
        let troubled = standings.iter().filter(|s| matches!(s.stage, Stage::Stuck | Stage::Failed(_))).count() > 1;
        let halted = standings.iter().any(|s| matches!(s.stage, Stage::Failed(_)));
        let asks = standings.iter().any(|s| s.stage == Stage::AsksHandover && s.cohort.is_some());
        if asks && !busy && !troubled && !halted {
            let handovers = admission.starts().filter(|(node, _)| {
                standings.iter().any(|s| s.node == *node && s.stage == Stage::AsksHandover)
            });
            prop_assert_eq!(handovers.count(), 1);
        }
    }

    #[test]
    fn repeated_admission_takes_every_node_through_and_then_rests(count in 1usize..20, budget in 1u32..4, canaries in 0u32..3) {
        let intent = intent(Budget::Nodes(budget), canaries, &[("amber", None)]);
        let mut standings = fleet(&vec![Stage::AsksHandover; count]);
        let mut now_s = NOW;
        for _ in 0..(3 * count + 3) {
            let starts: BTreeSet<String> =
                admit(&Rules { now_s, ..rules(&intent) }, &standings).starts().map(|(node, _)| node.to_owned()).collect();
            for standing in &mut standings {
                if standing.stage == Stage::UnderWay {
                    standing.stage = Stage::Settled;
                    standing.since_s = now_s;
                } else if starts.contains(&standing.node) {
                    standing.stage = Stage::UnderWay;
                    standing.since_s = now_s;
                }
            }
            now_s += 700;
        }
        prop_assert!(standings.iter().all(|standing| standing.stage == Stage::Settled), "{standings:?}");
    }
}
