//! Hashes over rendered objects.

use std::fmt::Write as _;

use serde::Serialize;
use sha2::{Digest as _, Sha256};

/// Bytes of a digest that are kept: 64 bits are plenty to tell versions of one object apart.
const BYTES: usize = 8;

/// Short hexadecimal SHA-256 of a value's JSON. Maps in Kubernetes types are sorted and struct fields have a fixed order, so
/// equal values have equal JSON.
pub(crate) fn of<T: Serialize>(value: &T) -> String {
    // Kubernetes types serialize into JSON values without fail: their keys are strings. Were that ever untrue, the error
    // text would still differ from every object's JSON.
    let json = serde_json::to_string(value).unwrap_or_else(|error| error.to_string());
    Sha256::digest(json.as_bytes())
        .iter()
        .take(BYTES)
        .fold(String::new(), |mut hex, byte| {
            // Writing to a String cannot fail.
            let _ = write!(hex, "{byte:02x}");
            hex
        })
}
