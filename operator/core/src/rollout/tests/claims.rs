//! Places that are claimed, so that controllers which do not see each other's fences keep to one budget.

use std::collections::BTreeSet;

use super::*;
use crate::rollout::{Claim, MAX_CLAIMS, claim};

fn place(node: &str, version: u64) -> Claim {
    Claim {
        node: node.into(),
        vendor: Vendor::Nvidia,
        version: version.to_string(),
    }
}

fn fenced(nodes: &[&str]) -> BTreeSet<(String, Vendor)> {
    nodes
        .iter()
        .map(|node| ((*node).to_owned(), Vendor::Nvidia))
        .collect()
}

/// Names of those that get a place.
fn granted(
    budget: Budget,
    stages: &[Stage],
    open: &[Claim],
    seen: &[&str],
    asked: &[Claim],
) -> Vec<String> {
    let intent = intent(budget, 0, &[("amber", None)]);
    claim(&rules(&intent), &fleet(stages), open, &fenced(seen), asked)
        .into_iter()
        .map(|claim| claim.node)
        .collect()
}

#[test]
fn who_asks_gets_a_place_that_nobody_has() {
    use Stage::{AsksHandover as Asks, Settled, UnderWay};
    let one = Budget::Nodes(1);
    let asked = [place("n0", 7)];
    // It counts as under way itself since it was let start.
    let got = |stages: &[Stage], open: &[Claim], seen: &[&str]| {
        granted(one, stages, open, seen, &asked) == ["n0"]
    };
    assert!(got(&[UnderWay, Settled], &[], &[]));
    assert!(
        !got(&[UnderWay, UnderWay], &[], &[]),
        "n1 is fenced, as known"
    );
    assert!(
        !got(&[UnderWay, Settled], &[], &["n1"]),
        "n1 is fenced, as seen"
    );
    assert!(
        !got(&[UnderWay, Settled], &[place("n1", 3)], &[]),
        "n1 has the place"
    );
    assert!(
        !got(&[Asks], &[], &["elsewhere"]),
        "a node that is not known yet"
    );
    assert!(!got(&[Asks], &[place("elsewhere", 3)], &[]));
}

#[test]
fn two_places_are_two_places() {
    use Stage::UnderWay;
    let asked = [place("n0", 7), place("n1", 8), place("n2", 9)];
    let stages = [UnderWay, UnderWay, UnderWay];
    assert_eq!(
        granted(Budget::Nodes(2), &stages, &[], &[], &asked),
        ["n0", "n1"]
    );
    assert_eq!(
        granted(Budget::Nodes(2), &stages, &[place("n2", 9)], &[], &asked),
        ["n0"]
    );
}

#[test]
fn a_claim_in_force_is_not_replaced_by_one_for_another_version() {
    let stages = [Stage::AsksHandover];
    for version in [6, 7, 8] {
        let open = [place("n0", 7)];
        let asked = [place("n0", version)];
        assert!(granted(Budget::Nodes(5), &stages, &open, &[], &asked).is_empty());
    }
}

#[test]
fn whoever_waits_longer_but_does_not_ask_takes_no_place_from_one_that_asks() {
    let mut standings = fleet(&[Stage::UnderWay, Stage::AsksHandover]);
    for waits in [Stage::AsksHandover, Stage::AsksRestart] {
        if let [asks, other] = standings.as_mut_slice() {
            (asks.since_s, other.since_s, other.stage) = (50, 10, waits);
        }
        let intent = intent(Budget::Nodes(1), 0, &[("amber", None)]);
        let asked = [place("n0", 7)];
        assert_eq!(
            claim(&rules(&intent), &standings, &[], &fenced(&[]), &asked),
            asked
        );
    }
}

#[test]
fn only_a_later_version_spends_a_claim() {
    let claim = place("n0", 100);
    assert!(claim.is_spent("101"));
    assert!(!claim.is_spent("100") && !claim.is_spent("99"));
    assert!(!claim.is_spent("") && !claim.is_spent("a-word"));
}

#[test]
fn a_stuck_node_is_counted_by_its_own_rule_and_a_cohort_keeps_to_its_own_budget() {
    use Stage::{Stuck, UnderWay};
    assert_eq!(
        granted(
            Budget::Nodes(1),
            &[UnderWay, Stuck],
            &[],
            &["n1"],
            &[place("n0", 7)]
        ),
        ["n0"]
    );
    let intent = intent(Budget::Nodes(9), 0, &[("amber", Some(Budget::Nodes(1)))]);
    let standings = fleet(&[UnderWay, Stage::Settled]);
    let asked = [place("n0", 7)];
    assert_eq!(
        claim(&rules(&intent), &standings, &[], &fenced(&["n1"]), &asked),
        []
    );
}

#[test]
fn no_more_claims_are_open_at_once_than_the_status_holds() {
    let many: Vec<Claim> = (0..200).map(|n| place(&format!("n{n}"), 7)).collect();
    let stages = vec![Stage::UnderWay; 200];
    let open = [place("elsewhere", 3)];
    let got = granted(Budget::Percent(100), &stages, &open, &[], &many);
    assert_eq!(got.len(), MAX_CLAIMS - 1);
}
