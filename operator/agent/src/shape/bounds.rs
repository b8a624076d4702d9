//! Tables and names within the API's bounds, whatever a driver says.
//!
//! The API server refuses a report for one value beyond its bounds, and with it everything else that the report says about the
//! node. So what does not fit is left out: a row that is left out cannot be asked for, and one that was made to fit would be
//! judged wrongly.

use freehold_core::geometry::{Board, Profile};

/// Most profiles of a board.
const MAX_PROFILES: usize = 16;
/// Most GPUs of a board.
const MAX_GPUS: usize = 16;
/// Highest minor number of a GPU.
const MAX_MINOR: u32 = 1023;
/// Longest name of a profile, in characters.
const MAX_NAME: usize = 32;

/// The board with what fits of it.
pub fn board(board: &Board) -> Board {
    let gpus = board.gpus.iter().filter(|gpu| **gpu <= MAX_MINOR);
    let rows = board.profiles.iter().filter(|row| fits(row));
    Board {
        gpus: gpus.take(MAX_GPUS).copied().collect(),
        profiles: rows.take(MAX_PROFILES).cloned().collect(),
    }
}

/// Whether a profile's name fits.
pub fn is_name(name: &str) -> bool {
    (1..=MAX_NAME).contains(&name.chars().count())
}

fn fits(row: &Profile) -> bool {
    let Profile {
        name,
        id,
        slices,
        size,
        starts,
        max,
    } = row;
    is_name(name)
        && *id <= 255
        && (1..=16).contains(slices)
        && (1..=64).contains(size)
        && starts.len() <= 16
        && starts.iter().all(|start| *start <= 63)
        && (1..=64).contains(max)
}

/// What of a value is beyond its schema's numbers, each with its path.
#[cfg(test)]
pub fn beyond(schema: &serde_json::Value, value: &serde_json::Value) -> Vec<String> {
    use serde_json::Value;

    fn check(path: &str, schema: &Value, value: &Value, found: &mut Vec<String>) {
        let bound = |key: &str| schema.get(key).and_then(Value::as_f64);
        let (size, [least, most]) = match value {
            Value::Null | Value::Bool(_) => return,
            Value::Number(number) => (number.as_f64().unwrap(), ["minimum", "maximum"]),
            Value::String(text) => (text.chars().count() as f64, ["minLength", "maxLength"]),
            Value::Array(items) => {
                for (at, item) in items.iter().enumerate() {
                    check(&format!("{path}[{at}]"), &schema["items"], item, found);
                }
                (items.len() as f64, ["minItems", "maxItems"])
            }
            Value::Object(fields) => {
                for (name, field) in fields {
                    let of_name = schema["properties"].get(name);
                    let schema = of_name.unwrap_or_else(|| &schema["additionalProperties"]);
                    assert!(schema.is_object(), "no schema for {path}.{name}");
                    check(&format!("{path}.{name}"), schema, field, found);
                }
                (fields.len() as f64, ["minProperties", "maxProperties"])
            }
        };
        let is_less = bound(least).is_some_and(|least| size < least);
        if is_less || bound(most).is_some_and(|most| size > most) {
            found.push(format!("{path}: {value}"));
        }
    }

    let mut found = Vec::new();
    check("", schema, value, &mut found);
    found
}
