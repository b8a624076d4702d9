//! Whether an installed definition has everything that this version writes and reads.
//!
//! Fields that a definition lacks are dropped by the API server without a word, and values that it does not list are refused:
//! an old definition under a new controller looks like a controller that says nothing. Definitions only ever grow, so an
//! installed one may have more; that is no difference here.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::Value;

/// The version of the API that is served.
const VERSION: &str = "v1alpha1";

/// Fields and values, as paths, that `needed` has and `installed` lacks; empty when all is there. A version that is not served
/// lacks everything, which is said as one entry.
#[must_use]
pub fn lacking(
    needed: &CustomResourceDefinition,
    installed: &CustomResourceDefinition,
) -> Vec<String> {
    let schema = |crd: &CustomResourceDefinition| {
        let versions = serde_json::to_value(&crd.spec.versions).unwrap_or(Value::Null);
        let served = versions.as_array().into_iter().flatten().find(|version| {
            version.get("name").and_then(Value::as_str) == Some(VERSION)
                && version.get("served") == Some(&Value::Bool(true))
        });
        served.and_then(|version| version.pointer("/schema/openAPIV3Schema").cloned())
    };
    let (Some(needed), Some(installed)) = (schema(needed), schema(installed)) else {
        return vec![format!("version {VERSION}")];
    };
    let mut missing = Vec::new();
    compare("", &needed, &installed, &mut missing);
    missing
}

fn compare(path: &str, needed: &Value, installed: &Value, missing: &mut Vec<String>) {
    if installed.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(true)) {
        return;
    }
    let has = installed.get("properties").and_then(Value::as_object);
    for (name, field) in needed
        .get("properties")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
    {
        let inner = if path.is_empty() {
            name.clone()
        } else {
            format!("{path}.{name}")
        };
        match has.and_then(|has| has.get(name)) {
            Some(present) => compare(&inner, field, present, missing),
            None => missing.push(inner),
        }
    }
    for (key, mark) in [("items", "[]"), ("additionalProperties", ".*")] {
        if let Some(element) = needed.get(key).filter(|element| element.is_object()) {
            let inner = format!("{path}{mark}");
            match installed.get(key) {
                Some(present) => compare(&inner, element, present, missing),
                None => missing.push(inner),
            }
        }
    }
    // A field without a list of values takes every one.
    if let Some(listed) = installed.get("enum").and_then(Value::as_array) {
        let wanted = needed.get("enum").and_then(Value::as_array);
        for value in wanted.into_iter().flatten() {
            if !listed.contains(value) {
                missing.push(format!("{path}: {value}"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use kube::CustomResourceExt as _;
    use serde_json::{Value, json};

    use super::{CustomResourceDefinition, lacking};
    use crate::{AcceleratorCluster, AcceleratorNode};

    /// The definition without what this takes away.
    fn without(change: impl FnOnce(&mut Value)) -> CustomResourceDefinition {
        let mut crd = serde_json::to_value(AcceleratorCluster::crd()).unwrap();
        let schema = crd
            .pointer_mut("/spec/versions/0/schema/openAPIV3Schema/properties")
            .unwrap();
        change(schema);
        serde_json::from_value(crd).unwrap()
    }

    fn remove(value: &mut Value, parent: &str, field: &str) {
        let fields = value.pointer_mut(parent).unwrap().as_object_mut().unwrap();
        assert!(fields.remove(field).is_some(), "{parent} has {field}");
    }

    #[test]
    fn a_definition_has_what_itself_needs() {
        for crd in [AcceleratorCluster::crd(), AcceleratorNode::crd()] {
            assert_eq!(lacking(&crd, &crd), Vec::<String>::new());
        }
    }

    #[test]
    fn a_field_that_was_added_is_missed_in_an_older_definition_wherever_it_stands() {
        let old = without(|fields| {
            remove(fields, "/status/properties", "starting");
            remove(
                fields,
                "/spec/properties/cohorts/items/properties/nvidia/properties",
                "driverRoot",
            );
        });
        let missing = lacking(&AcceleratorCluster::crd(), &old);
        assert_eq!(
            missing,
            ["spec.cohorts[].nvidia.driverRoot", "status.starting"]
        );
        // The other way round it is a newer definition under an older controller: it has all that is needed.
        assert!(lacking(&old, &AcceleratorCluster::crd()).is_empty());
    }

    #[test]
    fn a_value_that_was_added_is_missed_too() {
        let old = without(|fields| {
            let reasons = fields
                .pointer_mut("/status/properties/blockers/items/properties/reason/enum")
                .unwrap()
                .as_array_mut()
                .unwrap();
            reasons.retain(|reason| reason != &json!("CrdOutdated"));
        });
        assert_eq!(
            lacking(&AcceleratorCluster::crd(), &old),
            ["status.blockers[].reason: \"CrdOutdated\""]
        );
    }

    #[test]
    fn a_version_that_is_not_served_lacks_everything() {
        let mut crd = AcceleratorCluster::crd();
        crd.spec.versions[0].served = false;
        assert_eq!(
            lacking(&AcceleratorCluster::crd(), &crd),
            ["version v1alpha1"]
        );
    }
}
