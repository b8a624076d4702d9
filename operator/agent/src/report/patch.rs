//! The merge patch that turns the report in an object into a new one.

use freehold_api::AcceleratorNode;
use freehold_core::report::NodeReport;
use serde_json::{Map, Value, json};

/// The patch for the status subresource. It names the UID and resource version it was decided on, so that the API server
/// refuses it (409) when the object changed since.
///
/// # Errors
/// When a report cannot be written as JSON.
pub fn for_report(
    object: &AcceleratorNode,
    report: &NodeReport,
) -> Result<Value, serde_json::Error> {
    let old = object
        .status
        .as_ref()
        .and_then(|status| status.report.as_ref());
    let old = old
        .map(serde_json::to_value)
        .transpose()?
        .unwrap_or(Value::Null);
    Ok(json!({
        "metadata": {"uid": object.metadata.uid, "resourceVersion": object.metadata.resource_version},
        "status": {"report": difference(&old, serde_json::to_value(report)?)},
    }))
}

/// RFC 7396: what a merge needs to turn `old` into `new`. Keys that go are named with `null`.
fn difference(old: &Value, new: Value) -> Value {
    match (old, new) {
        (Value::Object(old), Value::Object(new)) => {
            let gone: Vec<_> = old
                .keys()
                .filter(|key| !new.contains_key(*key))
                .cloned()
                .collect();
            let mut patch = Map::new();
            for (key, value) in new {
                match old.get(&key) {
                    Some(before) if *before == value => {}
                    Some(before) => {
                        patch.insert(key, difference(before, value));
                    }
                    None => {
                        patch.insert(key, value);
                    }
                }
            }
            patch.extend(gone.into_iter().map(|key| (key, Value::Null)));
            Value::Object(patch)
        }
        (_, new) => new,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patch_names_what_changed_and_what_went() {
        let old = json!({"same": 1, "changed": {"a": 1, "b": 2}, "list": [1, 2], "gone": {"x": 1}});
        let new = json!({"same": 1, "changed": {"a": 1, "b": 3}, "list": [1], "new": true});
        let expected = json!({"changed": {"b": 3}, "list": [1], "new": true, "gone": null});
        assert_eq!(difference(&old, new), expected);
    }

    #[test]
    fn the_first_report_is_written_whole() {
        assert_eq!(
            difference(&Value::Null, json!({"a": {"b": 1}})),
            json!({"a": {"b": 1}})
        );
    }
}
