//! The committed schemas, walked place by place.

use serde_json::{Map, Value};

use crate::root;

/// A place of a schema: `spec.cohorts[].name`; `{}` stands for any key.
pub struct Place {
    pub path: String,
    pub schema: Map<String, Value>,
}

/// Every place of one committed CRD, the object itself (path ``) first.
pub fn places(file: &str) -> Vec<Place> {
    let text = std::fs::read_to_string(root().join("crds").join(file)).unwrap();
    let crd: Value = serde_saphyr::from_str(&text).unwrap();
    let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    let mut places = Vec::new();
    walk("", schema, &mut places);
    assert!(places.len() > 50, "{file} has hardly any schema");
    places
}

fn walk(path: &str, schema: &Value, places: &mut Vec<Place>) {
    places.push(Place {
        path: path.into(),
        schema: schema.as_object().unwrap().clone(),
    });
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        let path = if path.is_empty() {
            name.clone()
        } else {
            format!("{path}.{name}")
        };
        walk(&path, property, places);
    }
    if schema["items"].is_object() {
        walk(&format!("{path}[]"), &schema["items"], places);
    }
    if schema["additionalProperties"].is_object() {
        walk(
            &format!("{path}{{}}"),
            &schema["additionalProperties"],
            places,
        );
    }
}

/// A field as the API server names it, e.g. `spec.cohorts[3].name`, turned into the place of the schema.
pub fn place_of(field: &str) -> String {
    let mut place = String::new();
    let mut index = false;
    for character in field.chars() {
        match character {
            '[' => {
                index = true;
                place.push('[');
            }
            ']' => {
                index = false;
                place.push(']');
            }
            other if !index => place.push(other),
            _ => {}
        }
    }
    place
}
