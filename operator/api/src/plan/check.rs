//! Checks of single values, and the list of problems they fill.
//!
//! A check returns its value whether or not it holds: parsing goes on, so that all problems are found in one pass, and
//! [`Checker::finish`] gives out no plan when there was any.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;

use freehold_core::intent::{Cohort, SelectorTerm};
use k8s_openapi::api::core::v1::{ResourceRequirements, Toleration};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::{Plan, Problem, Problems};

/// Longest DNS label and longest label value.
const MAX_LABEL: usize = 63;
/// Longest DNS subdomain: object names and label-key prefixes.
const MAX_SUBDOMAIN: usize = 253;
/// Effects that a taint can have.
const TAINT_EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
/// Label prefixes that belong to somebody else.
const RESERVED_PREFIXES: [&str; 3] = ["kubernetes.io", "k8s.io", "freehold.dev"];

/// An absolute path on the host, without `..` and without a trailing slash (but for `/` itself).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostPath(String);

impl HostPath {
    /// The path.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it is `/`.
    #[must_use]
    pub fn is_root(&self) -> bool {
        self.0 == "/"
    }

    /// A path below this one; `relative` has no leading slash.
    #[must_use]
    pub fn join(&self, relative: &str) -> String {
        if self.is_root() {
            format!("/{relative}")
        } else {
            format!("{}/{relative}", self.0)
        }
    }

    /// The directory that holds this one; `/` for `/`.
    #[must_use]
    pub fn parent(&self) -> Self {
        match self.0.rsplit_once('/') {
            None | Some(("", _)) => Self("/".into()),
            Some((parent, _)) => Self(parent.into()),
        }
    }
}

/// An image reference that ends in a tag or a digest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageRef(String);

impl ImageRef {
    /// The reference.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Collects problems.
#[derive(Default)]
pub(super) struct Checker {
    problems: Vec<Problem>,
}

impl Checker {
    pub(super) fn problem(
        &mut self,
        field: impl Into<String>,
        found: impl Display,
        expected: impl Into<String>,
    ) {
        self.problems.push(Problem {
            field: field.into(),
            found: found.to_string(),
            expected: expected.into(),
        });
    }

    pub(super) fn finish(self, plan: Plan) -> Result<Plan, Problems> {
        if self.problems.is_empty() {
            Ok(plan)
        } else {
            Err(Problems(self.problems))
        }
    }

    /// Names that must not repeat.
    pub(super) fn unique<'a>(&mut self, field: &str, names: impl Iterator<Item = &'a str>) {
        let mut seen = BTreeSet::new();
        let repeated: BTreeSet<&str> = names.filter(|name| !seen.insert(*name)).collect();
        for name in repeated {
            self.problem(field, format!("'{name}' more than once"), "each name once");
        }
    }

    pub(super) fn dns_label(&mut self, field: &str, value: &str) -> String {
        if value.len() > MAX_LABEL || !is_dns_label(value) {
            self.problem(
                field,
                quoted(value),
                "a DNS label of at most 63 characters (lower-case letters, digits and '-')",
            );
        }
        value.to_owned()
    }

    pub(super) fn dns_subdomain(&mut self, field: &str, value: &str) -> String {
        if !is_dns_subdomain(value) {
            self.problem(field, quoted(value), "a DNS subdomain of at most 253 characters (lower-case letters, digits, '-' and '.')");
        }
        value.to_owned()
    }

    pub(super) fn host_path(&mut self, field: &str, value: &str) -> HostPath {
        let segment_ok = |segment: &str| {
            !segment.is_empty()
                && segment != ".."
                && segment != "."
                && segment
                    .chars()
                    .all(|c| c.is_ascii_alphanumeric() || "._-".contains(c))
        };
        let ok = value == "/"
            || value
                .strip_prefix('/')
                .is_some_and(|rest| rest.split('/').all(segment_ok));
        if !ok {
            self.problem(
                field,
                quoted(value),
                "an absolute path without '.', '..' or a trailing slash, e.g. /var/lib/kubelet",
            );
        }
        HostPath(value.to_owned())
    }

    pub(super) fn image(&mut self, field: &str, value: &str) -> ImageRef {
        if !is_pinned_image(value) {
            self.problem(field, quoted(value), "an image that ends in a tag or a sha256 digest: without either it changes by itself");
        }
        ImageRef(value.to_owned())
    }

    /// A key of a ConfigMap.
    pub(super) fn config_map_key(&mut self, field: &str, value: &str) -> String {
        let chars_ok = value
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
        if value.is_empty()
            || value.len() > MAX_SUBDOMAIN
            || !chars_ok
            || value == "."
            || value.starts_with("..")
        {
            self.problem(
                field,
                quoted(value),
                "a ConfigMap key: at most 253 letters, digits, '-', '_' and '.'",
            );
        }
        value.to_owned()
    }

    /// The label that mirrors the owner for workloads.
    pub(super) fn owner_alias(&mut self, field: &str, key: &str) {
        self.label_key(field, key);
        let prefix = key.split_once('/').map_or("", |(prefix, _)| prefix);
        if RESERVED_PREFIXES
            .iter()
            .any(|reserved| prefix == *reserved || prefix.ends_with(&format!(".{reserved}")))
        {
            self.problem(
                field,
                quoted(key),
                "a prefix of your own: kubernetes.io, k8s.io and freehold.dev are reserved",
            );
        }
    }

    /// The alias says who owns a node. A cohort that selected by it would lose each node in the middle of its handover.
    pub(super) fn selects_not_by_owner(&mut self, cohort: &Cohort, alias: Option<&str>) {
        let selects = |term: &SelectorTerm| match term {
            SelectorTerm::In(key, _)
            | SelectorTerm::NotIn(key, _)
            | SelectorTerm::Exists(key)
            | SelectorTerm::DoesNotExist(key) => Some(key.as_str()) == alias,
        };
        if cohort.selector.terms.iter().any(selects) {
            self.problem(
                format!("spec.cohorts[{}].nodeSelector", cohort.name),
                quoted(alias.unwrap_or_default()),
                "a label of your own: spec.ownerLabel is what the cohort's owner decides",
            );
        }
    }

    pub(super) fn label_key(&mut self, field: &str, key: &str) -> String {
        let (prefix, name) = key
            .split_once('/')
            .map_or((None, key), |(prefix, name)| (Some(prefix), name));
        if name.is_empty()
            || !is_label_value(name)
            || prefix.is_some_and(|prefix| !is_dns_subdomain(prefix))
        {
            self.problem(field, quoted(key), "a label key: an optional DNS prefix and '/', then at most 63 letters, digits, '-', '_' or '.'");
        }
        key.to_owned()
    }

    pub(super) fn label_value(&mut self, field: &str, value: &str) -> String {
        if !is_label_value(value) {
            self.problem(field, quoted(value), "a label value: at most 63 letters, digits, '-', '_' or '.'; no node can carry another");
        }
        value.to_owned()
    }

    /// A count within a range, as `u32`; the lower bound when it is not.
    pub(super) fn count(&mut self, field: &str, value: i32, min: u32, max: u32) -> u32 {
        match u32::try_from(value) {
            Ok(count) if (min..=max).contains(&count) => count,
            Ok(_) | Err(_) => {
                self.problem(field, value, format!("a number from {min} to {max}"));
                min
            }
        }
    }

    /// 1 or 2.
    pub(super) fn logical_neuron_core(&mut self, field: &str, value: i32) -> u8 {
        match value {
            1 => 1,
            2 => 2,
            other => {
                self.problem(
                    field,
                    other,
                    "1 or 2: only these Logical NeuronCore settings exist",
                );
                1
            }
        }
    }

    pub(super) fn toleration(&mut self, field: &str, toleration: &Toleration) -> Toleration {
        let Toleration {
            effect,
            key,
            operator,
            toleration_seconds,
            value,
        } = toleration;
        if let Some(effect) = effect
            && !effect.is_empty()
            && !TAINT_EFFECTS.contains(&effect.as_str())
        {
            self.problem(
                format!("{field}.effect"),
                quoted(effect),
                "NoSchedule, PreferNoSchedule, NoExecute, or none for all",
            );
        }
        let no_key = key.as_deref().unwrap_or_default().is_empty();
        match operator.as_deref() {
            Some("Exists") if value.as_deref().unwrap_or_default().is_empty() => {}
            Some("Exists") => {
                let found = quoted(value.as_deref().unwrap_or_default());
                self.problem(
                    format!("{field}.value"),
                    found,
                    "no value with operator Exists; use Equal to compare one",
                );
            }
            None | Some("" | "Equal") if no_key => {
                self.problem(
                    format!("{field}.key"),
                    "no key",
                    "a key, or operator Exists to tolerate every taint",
                );
            }
            None | Some("" | "Equal") => {}
            Some(other) => self.problem(
                format!("{field}.operator"),
                quoted(other),
                "Equal or Exists",
            ),
        }
        if let Some(key) = key
            && !key.is_empty()
        {
            self.label_key(&format!("{field}.key"), key);
        }
        if toleration_seconds.is_some() && effect.as_deref() != Some("NoExecute") {
            self.problem(
                format!("{field}.tolerationSeconds"),
                "a time without effect NoExecute",
                "effect: NoExecute, the only one it applies to",
            );
        }
        toleration.clone()
    }

    /// Compute resources: quantities that parse, no request above its limit, and no claims.
    pub(super) fn resources(
        &mut self,
        field: &str,
        resources: &ResourceRequirements,
    ) -> ResourceRequirements {
        let ResourceRequirements {
            claims,
            limits,
            requests,
        } = resources;
        if claims.as_ref().is_some_and(|claims| !claims.is_empty()) {
            self.problem(
                format!("{field}.claims"),
                "claims",
                "none: an operand hands devices out and cannot claim any",
            );
        }
        let limits = self.quantities(&format!("{field}.limits"), limits.as_ref());
        let requests = self.quantities(&format!("{field}.requests"), requests.as_ref());
        for (name, request) in &requests {
            if let Some(limit) = limits.get(name)
                && request > limit
            {
                self.problem(
                    format!("{field}.requests[{name}]"),
                    "more than its limit",
                    "at most the limit",
                );
            }
        }
        resources.clone()
    }

    fn quantities(
        &mut self,
        field: &str,
        quantities: Option<&BTreeMap<String, Quantity>>,
    ) -> BTreeMap<String, f64> {
        let mut parsed = BTreeMap::new();
        for (name, Quantity(text)) in quantities.into_iter().flatten() {
            match parse_quantity(text) {
                Some(value) => {
                    parsed.insert(name.clone(), value);
                }
                None => self.problem(
                    format!("{field}[{name}]"),
                    quoted(text),
                    "a quantity such as 50m, 128Mi or 1",
                ),
            }
        }
        parsed
    }
}

pub(super) fn quoted(value: &str) -> String {
    format!("'{value}'")
}

pub(super) fn is_dns_label(value: &str) -> bool {
    !value.is_empty()
        && value
            .chars()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
        && !value.starts_with('-')
        && !value.ends_with('-')
}

pub(super) fn is_dns_subdomain(value: &str) -> bool {
    value.len() <= MAX_SUBDOMAIN && value.split('.').all(is_dns_label)
}

fn is_label_value(value: &str) -> bool {
    let alphanumeric = |c: char| c.is_ascii_alphanumeric();
    value.len() <= MAX_LABEL
        && value
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
        && (value.is_empty() || (value.starts_with(alphanumeric) && value.ends_with(alphanumeric)))
}

fn is_pinned_image(value: &str) -> bool {
    if value.is_empty() || value.contains(char::is_whitespace) {
        return false;
    }
    if let Some((name, digest)) = value.split_once('@') {
        let hex = digest.strip_prefix("sha256:").unwrap_or_default();
        return !name.is_empty()
            && hex.len() == 64
            && hex
                .chars()
                .all(|c| c.is_ascii_digit() || ('a'..='f').contains(&c));
    }
    // The colon of a registry's port stands before a slash.
    value.rsplit_once(':').is_some_and(|(name, tag)| {
        let starts_well = tag.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
        !name.is_empty()
            && starts_well
            && tag.len() <= 128
            && tag
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "_.-".contains(c))
    })
}

/// The value of a non-negative Kubernetes quantity (apimachinery, `resource.Quantity`): decimal digits and a decimal or binary
/// suffix, or an exponent. As a float it only serves to compare a request with its limit.
fn parse_quantity(text: &str) -> Option<f64> {
    let unsigned = text.strip_prefix('+').unwrap_or(text);
    let end = unsigned
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(unsigned.len());
    let (digits, suffix) = unsigned.split_at(end);
    let value: f64 = digits.parse().ok()?;
    let factor = match suffix {
        "" => 1.0,
        "n" => 1e-9,
        "u" => 1e-6,
        "m" => 1e-3,
        "k" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        "T" => 1e12,
        "P" => 1e15,
        "E" => 1e18,
        "Ki" => 1024f64,
        "Mi" => 1024f64.powi(2),
        "Gi" => 1024f64.powi(3),
        "Ti" => 1024f64.powi(4),
        "Pi" => 1024f64.powi(5),
        "Ei" => 1024f64.powi(6),
        exponent => 10f64.powi(exponent.strip_prefix(['e', 'E'])?.parse().ok()?),
    };
    Some(value * factor)
}
