//! Which nodes a DaemonSet can reach, by its node selector and required node affinity. Taints are left out: whoever plants a
//! plugin tolerates what it needs.

use std::collections::{BTreeMap, BTreeSet};

use crate::intent::{Selector, SelectorTerm};

/// The nodes that pods of one template can be placed on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reach {
    /// `nodeSelector`.
    pub selector: Selector,
    /// Terms of the required node affinity, of which one must hold; `None` without such an affinity.
    pub affinity: Option<Vec<ReachTerm>>,
}

/// One term of a required node affinity: everything in it must hold. Kubernetes lets an empty one match nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReachTerm {
    /// Expressions on labels, as far as they are understood; one that is not (`Gt`, `Lt`) is taken to hold.
    pub labels: Selector,
    /// Names of nodes, of which the node's must be one.
    pub names: Option<BTreeSet<String>>,
}

impl Reach {
    /// Whether a node can be reached.
    #[must_use]
    pub fn reaches(&self, node: &str, labels: &BTreeMap<String, String>) -> bool {
        let all = |selector: &Selector| selector.terms.is_empty() || selector.matches(labels);
        all(&self.selector)
            && self.affinity.as_ref().is_none_or(|terms| {
                terms.iter().any(|term| {
                    let named = term.names.as_ref().is_none_or(|names| names.contains(node));
                    named && all(&term.labels)
                })
            })
    }

    /// Label keys that it looks at.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        let affinity = self.affinity.iter().flatten().map(|term| &term.labels);
        std::iter::once(&self.selector)
            .chain(affinity)
            .flat_map(|selector| &selector.terms)
            .map(|term| match term {
                SelectorTerm::In(key, _)
                | SelectorTerm::NotIn(key, _)
                | SelectorTerm::Exists(key)
                | SelectorTerm::DoesNotExist(key) => key.as_str(),
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_(key: &str, value: &str) -> SelectorTerm {
        SelectorTerm::In(key.into(), [value.to_owned()].into())
    }

    fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect()
    }

    #[test]
    fn without_selector_and_affinity_every_node_is_reached() {
        assert!(Reach::default().reaches("n", &labels(&[])));
    }

    #[test]
    fn selector_and_one_of_the_affinitys_terms_must_hold() {
        let term = |term| ReachTerm {
            labels: Selector { terms: vec![term] },
            names: None,
        };
        let reach = Reach {
            selector: Selector {
                terms: vec![in_("pool", "a")],
            },
            affinity: Some(vec![
                term(in_("zone", "x")),
                term(SelectorTerm::DoesNotExist("zone".into())),
            ]),
        };
        for (pairs, expected) in [
            (&[("pool", "a")][..], true),
            (&[("pool", "a"), ("zone", "x")], true),
            (&[("pool", "a"), ("zone", "y")], false),
            (&[("pool", "b"), ("zone", "x")], false),
            (&[], false),
        ] {
            assert_eq!(reach.reaches("n", &labels(pairs)), expected, "{pairs:?}");
        }
        assert_eq!(reach.keys().collect::<Vec<_>>(), ["pool", "zone", "zone"]);
    }

    #[test]
    fn an_affinity_may_name_nodes() {
        let reach = Reach {
            affinity: Some(vec![ReachTerm {
                names: Some(["n1".to_owned()].into()),
                ..ReachTerm::default()
            }]),
            ..Reach::default()
        };
        assert!(reach.reaches("n1", &labels(&[])) && !reach.reaches("n2", &labels(&[])));
    }
}
