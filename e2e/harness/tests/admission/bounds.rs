//! Every length, range, enum, pattern and uniqueness that the schemas state, each violated once at a real place.
//!
//! The violations are derived from the committed schema, so that a new bound is tested as soon as it is written; the documents
//! hold every field, so that a place which cannot be reached fails the test.

use serde_json::{Value, json};

use crate::{Desk, complaints, document, schema};

/// What was done to a document, and what the API server must answer.
struct Violation {
    bound: String,
    pointer: String,
    value: Value,
    /// Part of the field and of the sentence.
    says: String,
}

/// Pointers in `document` that lie at a place of the schema.
fn pointers(document: &Value, path: &str) -> Vec<String> {
    let mut found = vec![String::new()];
    for part in path.replace("[]", ".[]").replace("{}", ".{}").split('.') {
        let mut next = Vec::new();
        for pointer in found {
            let value = document.pointer(&pointer).unwrap();
            match (part, value) {
                ("[]", Value::Array(items)) => {
                    next.extend((0..items.len()).map(|index| format!("{pointer}/{index}")));
                }
                ("{}", Value::Object(map)) => {
                    next.extend(
                        map.keys()
                            .map(|key| format!("{pointer}/{}", key.replace('/', "~1"))),
                    );
                }
                (name, Value::Object(map)) if map.contains_key(name) => {
                    next.push(format!("{pointer}/{name}"));
                }
                _ => {}
            }
        }
        found = next;
    }
    found
}

/// The field of a pointer, as the API server writes it.
fn field(pointer: &str) -> String {
    let mut field = String::new();
    for part in pointer.split('/').skip(1) {
        match part.parse::<usize>() {
            Ok(index) => field += &format!("[{index}]"),
            Err(_) if field.is_empty() => field += part,
            Err(_) => field += &format!(".{part}"),
        }
    }
    field
}

/// `count` items made from one, each different in whatever must be unique.
fn many(item: &Value, count: usize) -> Value {
    let numbered = |index: usize| match item {
        Value::Object(map) => {
            let mut map = map.clone();
            if map.contains_key("name") {
                map.insert("name".into(), json!(format!("n{index}")));
            }
            Value::Object(map)
        }
        Value::String(_) => json!(format!("n{index}")),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => item.clone(),
    };
    (0..count).map(numbered).collect()
}

fn violations(document: &Value, file: &str) -> (Vec<Violation>, Vec<String>) {
    let mut violations = Vec::new();
    let mut unreachable = Vec::new();
    for place in schema::places(file) {
        // Status is written by ourselves, through a subresource of its own; quantities are Kubernetes' own type.
        if !place.path.starts_with("spec")
            || place.path.contains(".resources.") && place.path.contains("s{}")
        {
            continue;
        }
        for (keyword, bound) in &place.schema {
            let number = || usize::try_from(bound.as_f64().unwrap() as i64).unwrap();
            let is_list = place.schema.get("type") == Some(&json!("array"));
            let Some(pointer) = pointers(document, &place.path).into_iter().next() else {
                if [
                    "maxLength",
                    "minLength",
                    "maxItems",
                    "minItems",
                    "maxProperties",
                    "minimum",
                    "maximum",
                    "enum",
                    "pattern",
                ]
                .contains(&keyword.as_str())
                {
                    unreachable.push(format!("{} {keyword}", place.path));
                }
                continue;
            };
            let here = document.pointer(&pointer).unwrap();
            let (value, says) = match keyword.as_str() {
                "maxLength" => (
                    json!("a".repeat(number() + 1)),
                    format!("Too long: may not be more than {} bytes", number()),
                ),
                "minLength" if number() > 0 => (
                    json!("a".repeat(number() - 1)),
                    format!("should be at least {} chars long", number()),
                ),
                "maxItems" => (
                    many(here.get(0).unwrap(), number() + 1),
                    format!(
                        "Too many: {}: must have at most {} items",
                        number() + 1,
                        number()
                    ),
                ),
                "minItems" => (
                    json!([]),
                    format!("should have at least {} items", number()),
                ),
                "maxProperties" => {
                    let sample = here.as_object().unwrap().values().next().unwrap();
                    let map: Value = (0..=number())
                        .map(|index| (format!("k{index}"), sample.clone()))
                        .collect();
                    (
                        map,
                        format!(
                            "Too many: {}: must have at most {} items",
                            number() + 1,
                            number()
                        ),
                    )
                }
                "minimum" => {
                    let bound = bound.as_f64().unwrap() as i64;
                    (
                        json!(bound - 1),
                        format!("should be greater than or equal to {bound}"),
                    )
                }
                "maximum" => (
                    json!(number() + 1),
                    format!("should be less than or equal to {}", number()),
                ),
                "pattern" => (
                    json!("!"),
                    format!("should match '{}'", bound.as_str().unwrap()),
                ),
                "enum" => {
                    let values: Vec<String> = bound
                        .as_array()
                        .unwrap()
                        .iter()
                        .map(ToString::to_string)
                        .collect();
                    (
                        json!("Nonsense"),
                        format!(
                            "Unsupported value: \"Nonsense\": supported values: {}",
                            values.join(", ")
                        ),
                    )
                }
                "x-kubernetes-list-map-keys" | "x-kubernetes-list-type"
                    if is_list && bound != "map" && bound != "atomic" =>
                {
                    let item = here.get(0).unwrap();
                    (json!([item, item]), "Duplicate value".into())
                }
                _ => continue,
            };
            violations.push(Violation {
                bound: format!("{} {keyword}", place.path),
                pointer,
                value,
                says,
            });
        }
    }
    (violations, unreachable)
}

async fn check(document: Value, file: &str) {
    let desk = Desk::open().await;
    let (violations, unreachable) = violations(&document, file);
    assert!(
        unreachable.is_empty(),
        "the document has nothing at {unreachable:#?}"
    );
    let mut wrong = Vec::new();
    for Violation {
        bound,
        pointer,
        value,
        says,
    } in &violations
    {
        let mut changed = document.clone();
        *changed.pointer_mut(pointer).unwrap() = value.clone();
        let found = match desk.try_create(&changed).await {
            Ok(_) => Vec::new(),
            Err(status) => complaints(&status),
        };
        let field = field(pointer);
        if !found
            .iter()
            .any(|(at, sentence)| at.starts_with(&field) && sentence.contains(says))
        {
            wrong.push(format!(
                "{bound} at {field}: expected {says:?}, found {found:#?}"
            ));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {} bounds:\n{}",
        wrong.len(),
        violations.len(),
        wrong.join("\n")
    );
    println!(
        "{file}: {} bounds refused what lies beyond them",
        violations.len()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn every_bound_of_the_accelerator_cluster_holds() {
    check(document::full(), "freehold.dev_acceleratorclusters.yaml").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_bound_of_the_accelerator_node_holds() {
    check(document::node(), "freehold.dev_acceleratornodes.yaml").await;
}
