//! Versions as Kubernetes, NVIDIA and AWS write them.
//!
//! None of the three is semver, which is why no semver library is used: Kubernetes distributions append a vendor suffix
//! that semver would read as a *pre-release* (`v1.34.2-eks-abc` would sort below 1.34.2 and fail a floor that it meets),
//! NVIDIA pads with zeros (`565.57.01`), Neuron has four parts (`2.26.5.0`).

use std::cmp::Ordering;
use std::fmt;

/// Most parts that any of the three uses.
const PARTS: usize = 4;

/// A version: up to four numbers, and whether it is a pre-release of them. Missing parts count as 0, so 565 = 565.0.0.
#[derive(Clone, Copy, Debug)]
pub struct Version {
    parts: [u32; PARTS],
    written: usize,
    pre_release: bool,
}

impl Version {
    /// A version of two or three parts, for tables.
    #[must_use]
    pub const fn new(major: u32, minor: u32, patch: u32) -> Self {
        Self {
            parts: [major, minor, patch, 0],
            written: 3,
            pre_release: false,
        }
    }

    /// Reads a version: an optional `v`, one to four numbers with dots, then nothing or a suffix that `-` or `+` opens. A
    /// suffix of `alpha`, `beta` or `rc` makes it a pre-release; any other suffix is a distribution's name for its build and
    /// says nothing about age. `None` for everything else, the empty string above all: an unknown version is not version 0.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let text = text.strip_prefix('v').unwrap_or(text);
        let end = text
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(text.len());
        let (numbers, suffix) = text.split_at_checked(end)?;
        if !(suffix.is_empty() || suffix.starts_with(['-', '+'])) {
            return None;
        }
        let mut parts = [0; PARTS];
        let mut written = 0;
        for number in numbers.split('.') {
            *parts.get_mut(written)? = number.parse().ok()?;
            written += 1;
        }
        let pre_release = suffix.strip_prefix('-').is_some_and(|s| {
            ["alpha", "beta", "rc"]
                .iter()
                .any(|stage| s.starts_with(stage))
        });
        Some(Self {
            parts,
            written,
            pre_release,
        })
    }

    /// Whether this version meets a floor.
    #[must_use]
    pub fn meets(self, floor: Self) -> bool {
        self >= floor
    }
}

impl Ord for Version {
    fn cmp(&self, other: &Self) -> Ordering {
        self.parts
            .cmp(&other.parts)
            .then_with(|| other.pre_release.cmp(&self.pre_release))
    }
}

impl PartialOrd for Version {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Version {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Version {}

impl fmt::Display for Version {
    /// As many parts as were written.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, part) in self.parts.iter().take(self.written.max(1)).enumerate() {
            if index > 0 {
                f.write_str(".")?;
            }
            write!(f, "{part}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn version(text: &str) -> Version {
        Version::parse(text).unwrap_or_else(|| panic!("{text:?} should parse"))
    }

    #[test]
    fn a_distribution_suffix_does_not_lower_a_version() {
        let floor = Version::new(1, 34, 2);
        for (text, meets) in [
            ("v1.34.2", true),
            ("v1.34.2-eks-abc", true),
            ("v1.34.2-eks-1-34-30", true),
            ("v1.35.0-gke.1", true),
            ("v1.34.2+k3s1", true),
            ("v1.34.1-eks-zzz", false),
            ("v1.34.1+rke2r9", false),
            ("1.40", true),
            ("v1.34.2-rc.1", false),
            ("v1.35.0-alpha.3", true),
            ("v1.9.11", false),
        ] {
            assert_eq!(version(text).meets(floor), meets, "{text}");
        }
    }

    #[test]
    fn nvidia_and_neuron_versions_compare_by_number_not_by_text() {
        for (lower, higher) in [
            ("565.57.01", "570.158.01"),
            ("384.81", "1000.0"),
            ("570.86.15", "570.124.06"),
            ("2.9.1.0", "2.26.5.0"),
            ("2.26.5.0", "2.26.10.0"),
        ] {
            assert!(version(lower) < version(higher), "{lower} < {higher}");
        }
        assert!(version("565").meets(version("565.0.0")));
        assert!(version("565.57.01").meets(Version::new(565, 0, 0)));
    }

    #[test]
    fn what_is_no_version_is_unknown_and_never_zero() {
        for text in [
            "",
            " ",
            "v",
            "N/A",
            "unknown",
            ".",
            "1.",
            "1..2",
            "1.2.3.4.5",
            "565x",
            "99999999999.1",
            "-1",
            "١.٢",
        ] {
            assert_eq!(Version::parse(text), None, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn parsing_never_panics_and_printing_reads_back(text in "\\PC{0,24}") {
            if let Some(parsed) = Version::parse(&text) {
                let again = Version::parse(&parsed.to_string()).expect("what is printed parses");
                prop_assert_eq!(again.parts, parsed.parts);
            }
        }
    }
}
