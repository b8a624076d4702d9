//! The marks that Freehold puts on a node, and changes of them that it did not make.

use freehold_core::names;
use freehold_core::tenure::{ForeignChange, NodeWrite};
use freehold_core::vendor::{PerVendor, Vendor};

use super::entry::NodeEntry;

/// Owner and cohort labels, fences, and the alias label of one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Marks {
    vendors: PerVendor<VendorMarks>,
    alias: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct VendorMarks {
    owner: Option<String>,
    cohort: Option<String>,
    fence: Option<String>,
}

impl Marks {
    /// Reads them off a node.
    pub(crate) fn of(node: &NodeEntry, alias: Option<&str>) -> Self {
        let label = |key: &str| node.view.labels.get(key).cloned();
        Self {
            vendors: PerVendor::from_fn(|vendor| VendorMarks {
                owner: label(&names::owner_label(vendor)),
                cohort: label(&names::cohort_label(vendor)),
                fence: node.fence(vendor).map(|term| term.to_string()),
            }),
            alias: alias.and_then(label),
        }
    }

    /// As they will be when a write of ours has landed.
    pub(crate) fn after(
        node: &NodeEntry,
        vendor: Vendor,
        write: &NodeWrite,
        alias: Option<&str>,
    ) -> Self {
        let mut marks = Self::of(node, alias);
        let (mut owner, mut cohort) = {
            let known = marks.vendors.get(vendor);
            (known.owner.clone(), known.cohort.clone())
        };
        let keeps_alias = alias.is_some_and(|key| node.alias_is_foreign(key));
        let mut fence = marks.vendors.get(vendor).fence.clone();
        match write {
            NodeWrite::Fence { term } => fence = Some(term.to_string()),
            NodeWrite::Unfence => fence = None,
            NodeWrite::Grant {
                cohort: name,
                owner: who,
            } => {
                (owner, cohort) = (Some(who.word().to_owned()), Some(name.clone()));
                marks.alias = if keeps_alias {
                    marks.alias
                } else {
                    alias.map(|_| who.word().to_owned())
                };
            }
            NodeWrite::Revoke => {
                (owner, cohort) = (None, None);
                let other = Vendor::ALL.into_iter().find(|other| *other != vendor);
                let word = other.and_then(|other| node.owner(other)?.ok());
                if !keeps_alias {
                    marks.alias = alias.and(word).map(|owner| owner.word().to_owned());
                }
            }
        }
        *marks.vendors.get_mut(vendor) = VendorMarks {
            owner,
            cohort,
            fence,
        };
        marks
    }

    /// What changed from `before` to these marks and was not written by us, by the vendor that it concerns. `node` is the one
    /// that these marks were read off.
    pub(crate) fn foreign_changes(
        &self,
        before: &Self,
        node: &NodeEntry,
        alias: Option<&str>,
    ) -> PerVendor<Option<ForeignChange>> {
        let mut changes = PerVendor::from_fn(|vendor| {
            let (old, new) = (before.vendors.get(vendor), self.vendors.get(vendor));
            let label = |key: String, old: &Option<String>, new: &Option<String>| {
                changed(
                    node,
                    &key,
                    format!("label {key}"),
                    old.as_ref(),
                    new.as_ref(),
                )
            };
            let fence = names::fence_taint(vendor);
            label(names::owner_label(vendor), &old.owner, &new.owner)
                .or_else(|| label(names::cohort_label(vendor), &old.cohort, &new.cohort))
                .or_else(|| {
                    let mark = format!("taint {fence}");
                    changed(node, TAINTS, mark, old.fence.as_ref(), new.fence.as_ref())
                })
        });
        let of_alias = alias.and_then(|key| {
            let (old, new) = (before.alias.as_ref(), self.alias.as_ref());
            changed(node, key, format!("label {key}"), old, new)
        });
        // The alias repeats the word of the first owner that the node has.
        let first = Vendor::ALL
            .into_iter()
            .find(|vendor| self.vendors.get(*vendor).owner.is_some());
        if let (Some(change), Some(first)) = (of_alias, first) {
            changes.get_mut(first).get_or_insert(change);
        }
        changes
    }
}

/// Key under which [`NodeEntry::strangers`] keeps who set the taints. No label is called so: it is no qualified name.
pub(crate) const TAINTS: &str = "spec.taints/";

fn changed(
    node: &NodeEntry,
    key: &str,
    mark: String,
    old: Option<&String>,
    new: Option<&String>,
) -> Option<ForeignChange> {
    let manager = node.strangers.get(key).cloned();
    // A value that is ours by its field manager was set by us, or by another replica.
    if old == new || (new.is_some() && manager.is_none()) {
        return None;
    }
    Some(ForeignChange {
        mark,
        value: new.cloned(),
        manager: manager.filter(|_| new.is_some()),
    })
}

#[cfg(test)]
mod tests {
    use freehold_core::tenure::NodeWrite;
    use freehold_core::vendor::{Owner, Vendor};
    use serde_json::{Value, json};

    use super::Marks;
    use crate::observe::entry::{LabelKeys, NodeEntry};

    const ALIAS: &str = "workload.example.com/gpu-allocation";
    const OWNER: &str = "freehold.node-restriction.kubernetes.io/nvidia-owner";

    fn node(labels: &Value, fence: Option<&str>, managers: &[(&str, Value)]) -> NodeEntry {
        let taints: Vec<Value> = fence
            .into_iter()
            .map(|term| json!({"key": "freehold.dev/nvidia-handover", "value": term, "effect": "NoSchedule"}))
            .collect();
        let managed: Vec<Value> = managers
            .iter()
            .map(|(manager, fields)| json!({"manager": manager, "operation": "Update", "fieldsType": "FieldsV1", "fieldsV1": fields}))
            .collect();
        let node = json!({"metadata": {"name": "n", "labels": labels, "managedFields": managed}, "spec": {"taints": taints}});
        NodeEntry::new(
            serde_json::from_value(node).expect("a node"),
            &LabelKeys::new([ALIAS.to_owned()], Some(ALIAS)),
        )
    }

    fn owned(word: &str) -> Value {
        json!({(OWNER): word, "freehold.node-restriction.kubernetes.io/nvidia-cohort": "amber", (ALIAS): word})
    }

    fn by(manager: &str) -> [(&str, Value); 1] {
        [(
            manager,
            json!({"f:metadata": {"f:labels": {format!("f:{OWNER}"): {}, format!("f:{ALIAS}"): {}}}, "f:spec": {"f:taints": {}}}),
        )]
    }

    fn changes(
        before: &NodeEntry,
        after: &NodeEntry,
    ) -> Option<(String, Option<String>, Option<String>)> {
        let (old, new) = (
            Marks::of(before, Some(ALIAS)),
            Marks::of(after, Some(ALIAS)),
        );
        let found = new.foreign_changes(&old, after, Some(ALIAS));
        assert!(found.get(Vendor::Neuron).is_none());
        found
            .get(Vendor::Nvidia)
            .clone()
            .map(|change| (change.mark, change.value, change.manager))
    }

    #[test]
    fn what_another_manager_sets_is_told_with_its_name() {
        let before = node(&owned("dra"), None, &by("freehold-controller"));
        let after = node(&owned("device-plugin"), None, &by("gpu-operator"));
        let expected = (
            format!("label {OWNER}"),
            Some("device-plugin".to_owned()),
            Some("gpu-operator".to_owned()),
        );
        assert_eq!(changes(&before, &after), Some(expected));
    }

    #[test]
    fn what_is_removed_is_foreign_and_what_a_replica_of_ours_set_is_not() {
        let owned_by_us = node(&owned("dra"), None, &by("freehold-controller"));
        let bare = node(&json!({}), None, &[]);
        assert_eq!(
            changes(&owned_by_us, &bare),
            Some((format!("label {OWNER}"), None, None))
        );
        assert_eq!(changes(&bare, &owned_by_us), None);
    }

    #[test]
    fn a_fence_and_the_alias_count_too() {
        let fenced = node(&owned("dra"), Some("4"), &by("freehold-controller"));
        let unfenced = node(&owned("dra"), None, &by("freehold-controller"));
        let found = changes(&fenced, &unfenced).expect("a change");
        assert_eq!(found.0, "taint freehold.dev/nvidia-handover");
        let mut without = owned("dra");
        without.as_object_mut().expect("labels").remove(ALIAS);
        let found = changes(&unfenced, &node(&without, None, &[])).expect("a change");
        assert_eq!(found.0, format!("label {ALIAS}"));
    }

    #[test]
    fn what_a_write_leaves_is_foreseen() {
        let alias = Some(ALIAS);
        let bare = node(&json!({}), None, &[]);
        let grant = NodeWrite::Grant {
            cohort: "amber".into(),
            owner: Owner::Dra,
        };
        let granted = node(&owned("dra"), None, &[]);
        assert_eq!(
            Marks::after(&bare, Vendor::Nvidia, &grant, alias),
            Marks::of(&granted, alias)
        );
        let fenced = node(&owned("dra"), Some("7"), &[]);
        let fence = NodeWrite::Fence { term: 7 };
        assert_eq!(
            Marks::after(&granted, Vendor::Nvidia, &fence, alias),
            Marks::of(&fenced, alias)
        );
        let revoked = node(&json!({}), Some("7"), &[]);
        assert_eq!(
            Marks::after(&fenced, Vendor::Nvidia, &NodeWrite::Revoke, alias),
            Marks::of(&revoked, alias)
        );
        assert_eq!(
            Marks::after(&revoked, Vendor::Nvidia, &NodeWrite::Unfence, alias),
            Marks::of(&bare, alias)
        );
    }
}
