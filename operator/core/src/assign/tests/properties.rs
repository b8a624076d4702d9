use proptest::prelude::*;

use super::*;

fn any_term() -> impl Strategy<Value = SelectorTerm> {
    let key = prop::sample::select(vec!["pool", "zone", "tier"]).prop_map(str::to_owned);
    let values = prop::collection::btree_set(
        prop::sample::select(vec!["a", "b", ""]).prop_map(str::to_owned),
        1..3,
    );
    prop_oneof![
        (key.clone(), values.clone()).prop_map(|(key, values)| SelectorTerm::In(key, values)),
        (key.clone(), values).prop_map(|(key, values)| SelectorTerm::NotIn(key, values)),
        key.clone().prop_map(SelectorTerm::Exists),
        key.prop_map(SelectorTerm::DoesNotExist),
    ]
}

fn any_labels() -> impl Strategy<Value = BTreeMap<String, String>> {
    prop::collection::btree_map(
        prop::sample::select(vec![
            "pool",
            "zone",
            "tier",
            "eks.amazonaws.com/compute-type",
        ])
        .prop_map(str::to_owned),
        prop::sample::select(vec!["a", "b", "", "auto"]).prop_map(str::to_owned),
        0..4,
    )
}

proptest! {
    #[test]
    fn a_term_and_its_negation_never_agree_and_the_empty_selector_matches_nothing(term in any_term(), labels in any_labels()) {
        let negation = match term.clone() {
            SelectorTerm::In(key, values) => SelectorTerm::NotIn(key, values),
            SelectorTerm::NotIn(key, values) => SelectorTerm::In(key, values),
            SelectorTerm::Exists(key) => SelectorTerm::DoesNotExist(key),
            SelectorTerm::DoesNotExist(key) => SelectorTerm::Exists(key),
        };
        let matches = |terms: Vec<SelectorTerm>| Selector { terms }.matches(&labels);
        prop_assert_ne!(matches(vec![term.clone()]), matches(vec![negation.clone()]));
        prop_assert!(!matches(vec![term, negation]));
        prop_assert!(!matches(vec![]));
    }

    #[test]
    fn what_no_cohort_matches_is_given_up_and_what_is_owned_and_matched_never_is(
        terms in prop::collection::vec(any_term(), 1..4),
        labels in any_labels(),
        old_driver in any::<bool>(),
        reports in any::<bool>(),
    ) {
        let mut amber = cohort("amber", Vendor::Nvidia, Owner::Dra);
        amber.selector = Selector { terms };
        let matched = amber.selector.matches(&labels);
        let intent = intent([amber]);
        let mut node = owned(node(&[]), Vendor::Nvidia, Owner::DevicePlugin, "amber");
        node.labels.extend(labels);
        let report = report(Some(gpus(1, Some(if old_driver { "400.1" } else { "600.1" }))), None);
        let assignment = assign(Vendor::Nvidia, &node, reports.then_some(&report), &cluster(), &intent);
        prop_assert_eq!(matched, assignment.cohort.is_some());
        prop_assert_eq!(!matched, assignment.want == Want::Nothing);
        prop_assert_eq!(assignment.excluded, None, "an owned node is never listed as excluded");
    }
}
