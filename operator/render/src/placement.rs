//! Where pods of ours run before, and beyond, the labels that the controller sets.

use freehold_core::catalogue::exclusion_terms;
use freehold_core::intent::{Cohort, SelectorTerm};
use k8s_openapi::api::core::v1::{
    Affinity, NodeAffinity, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm,
};

/// Required: a node that any of the terms describes.
pub(crate) fn one_of(terms: Vec<NodeSelectorTerm>) -> Affinity {
    Affinity {
        node_affinity: Some(NodeAffinity {
            required_during_scheduling_ignored_during_execution: Some(NodeSelector {
                node_selector_terms: terms,
            }),
            preferred_during_scheduling_ignored_during_execution: None,
        }),
        ..Affinity::default()
    }
}

/// A cohort's nodes, but for those that a provider keeps for itself.
pub(crate) fn cohort_nodes(cohort: &Cohort) -> NodeSelectorTerm {
    let selected = cohort.selector.terms.iter().map(|term| match term {
        SelectorTerm::In(key, values) => {
            requirement(key.clone(), "In", values.iter().cloned().collect())
        }
        SelectorTerm::NotIn(key, values) => {
            requirement(key.clone(), "NotIn", values.iter().cloned().collect())
        }
        SelectorTerm::Exists(key) => requirement(key.clone(), "Exists", Vec::new()),
        SelectorTerm::DoesNotExist(key) => requirement(key.clone(), "DoesNotExist", Vec::new()),
    });
    let excluded = exclusion_terms(cohort.vendor)
        .into_iter()
        .map(|(key, values)| {
            requirement(
                key.into(),
                "NotIn",
                values.into_iter().map(Into::into).collect(),
            )
        });
    term(selected.chain(excluded).collect())
}

/// Nodes that carry a label.
pub(crate) fn nodes_with(label: String) -> NodeSelectorTerm {
    term(vec![requirement(label, "Exists", Vec::new())])
}

/// Nodes on which a label has this value.
pub(crate) fn nodes_with_value(label: String, value: &str) -> NodeSelectorTerm {
    term(vec![requirement(label, "In", vec![value.to_owned()])])
}

fn term(expressions: Vec<NodeSelectorRequirement>) -> NodeSelectorTerm {
    NodeSelectorTerm {
        match_expressions: Some(expressions),
        match_fields: None,
    }
}

fn requirement(key: String, operator: &str, values: Vec<String>) -> NodeSelectorRequirement {
    NodeSelectorRequirement {
        key,
        operator: operator.into(),
        values: (!values.is_empty()).then_some(values),
    }
}
