//! Which nodes a foreign DaemonSet can reach, read off its template.

use std::collections::BTreeSet;

use freehold_core::assign::{Reach, ReachTerm};
use freehold_core::intent::{Selector, SelectorTerm};

use super::slim::{SlimNodeSelectorTerm, SlimPodSpec, SlimRequirement};

/// Boils node selector and required node affinity down.
pub(crate) fn reach(spec: &SlimPodSpec) -> Reach {
    let one_of = |(key, value): (&String, &String)| {
        SelectorTerm::In(key.clone(), BTreeSet::from([value.clone()]))
    };
    let required = &spec
        .affinity
        .node_affinity
        .required_during_scheduling_ignored_during_execution;
    let terms = required.node_selector_terms.iter().filter_map(term);
    Reach {
        selector: Selector {
            terms: spec.node_selector.iter().map(one_of).collect(),
        },
        affinity: (!required.node_selector_terms.is_empty()).then(|| terms.collect()),
    }
}

/// `None` for a term that matches nothing.
fn term(term: &SlimNodeSelectorTerm) -> Option<ReachTerm> {
    if term.match_expressions.is_empty() && term.match_fields.is_empty() {
        return None;
    }
    let names = term
        .match_fields
        .iter()
        .find(|field| field.key == "metadata.name" && field.operator == "In")
        .map(|field| field.values.iter().cloned().collect());
    Some(ReachTerm {
        labels: Selector {
            terms: term
                .match_expressions
                .iter()
                .filter_map(expression)
                .collect(),
        },
        names,
    })
}

fn expression(requirement: &SlimRequirement) -> Option<SelectorTerm> {
    let SlimRequirement {
        key,
        operator,
        values,
    } = requirement;
    let values = || values.iter().cloned().collect();
    match operator.as_str() {
        "In" => Some(SelectorTerm::In(key.clone(), values())),
        "NotIn" => Some(SelectorTerm::NotIn(key.clone(), values())),
        "Exists" => Some(SelectorTerm::Exists(key.clone())),
        "DoesNotExist" => Some(SelectorTerm::DoesNotExist(key.clone())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::reach;

    #[test]
    fn a_template_reaches_what_kubernetes_would_place_it_on() {
        let spec = json!({"nodeSelector": {"pool": "a"}, "affinity": {"nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                {"matchExpressions": [{"key": "gpu", "operator": "Exists"}, {"key": "gen", "operator": "Gt", "values": ["3"]}]},
                {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["by-name"]}]},
                {}]}}}});
        let reach = reach(&serde_json::from_value(spec).expect("a pod spec"));
        let labels = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
            pairs
                .iter()
                .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
                .collect()
        };
        assert!(reach.reaches("n", &labels(&[("pool", "a"), ("gpu", "")])));
        assert!(reach.reaches("by-name", &labels(&[("pool", "a")])));
        assert!(
            !reach.reaches("n", &labels(&[("pool", "a")])),
            "the empty term"
        );
        assert!(!reach.reaches("n", &labels(&[("gpu", "")])));
    }
}
