//! One key of `instances`: a profile by name, or by its share of the board.
//!
//! | form | example | is |
//! |---|---|---|
//! | literal | `1g.10gb+me` | the name as the driver prints it |
//! | symbolic | `1g.1/8+me` | compute slices, fraction of the board's memory, the same suffix |
//!
//! The same board is named differently by different drivers (a GB200's smallest instance is `1g.23gb` under one and `1g.24gb`
//! under another), so a literal name ties a layout to a driver; a symbolic one does not.

use std::fmt;

use super::Profile;

/// A parsed key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// A name as the driver prints it.
    Literal(String),
    /// A share of the board.
    Symbolic(Share),
}

/// Compute slices and a fraction of the board's memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share {
    /// Compute slices.
    pub slices: u8,
    /// Numerator of the memory fraction, 1 to 9.
    pub part: u8,
    /// Denominator, at least `part`, at most 99.
    pub whole: u8,
    /// Media suffix with its sign (`+me`, `-me`, `+gfx`, `+me.all`), or empty.
    pub suffix: String,
}

/// Why a key cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{key:?} is no MIG profile: expected a name as the driver prints it (1g.10gb, 1g.10gb+me), or compute slices and a fraction \
     of the board's memory of at most 1 (1g.1/8, 3g.1/2+me)"
)]
pub struct RequestError {
    key: String,
}

impl std::str::FromStr for Request {
    type Err = RequestError;

    fn from_str(key: &str) -> Result<Self, RequestError> {
        parse(key).ok_or_else(|| RequestError { key: key.into() })
    }
}

fn parse(key: &str) -> Option<Request> {
    let (base, suffix) = split_suffix(key);
    let plain_suffix = suffix
        .get(1..)
        .is_none_or(|s| !s.is_empty() && s.chars().all(|c| matches!(c, 'a'..='z' | '.' | ',')));
    let (slices, memory) = base.split_once("g.")?;
    let slices = number(slices).filter(|slices| (1..=8).contains(slices))?;
    if !plain_suffix {
        return None;
    }
    match memory.split_once('/') {
        Some((part, whole)) => {
            let (part, whole) = (number(part)?, number(whole)?);
            (part <= whole && part < 10).then(|| {
                Request::Symbolic(Share {
                    slices,
                    part,
                    whole,
                    suffix: suffix.into(),
                })
            })
        }
        None => {
            let gigabytes = memory.strip_suffix("gb")?;
            let digits = !gigabytes.is_empty() && gigabytes.bytes().all(|b| b.is_ascii_digit());
            digits.then(|| Request::Literal(key.into()))
        }
    }
}

/// A number from 1 to 99 without sign or leading zero, as the API's rule has it.
fn number(text: &str) -> Option<u8> {
    let plain = matches!(text.len(), 1 | 2)
        && text.bytes().all(|b| b.is_ascii_digit())
        && !text.starts_with('0');
    plain.then(|| text.parse().ok()).flatten()
}

/// `1g.10gb+me` → `1g.10gb` and `+me`.
pub(super) fn split_suffix(name: &str) -> (&str, &str) {
    name.split_at(name.find(['+', '-']).unwrap_or(name.len()))
}

impl Request {
    /// The row of this board that is meant, or `None` when it has none.
    #[must_use]
    pub fn resolve<'a>(&self, profiles: &'a [Profile]) -> Option<&'a Profile> {
        profiles
            .iter()
            .filter(|profile| match self {
                Self::Literal(name) => profile.name == *name,
                Self::Symbolic(share) => share.is(profile, profiles),
            })
            .min_by_key(|profile| profile.id)
    }
}

impl Share {
    /// Memory fraction in lowest terms, so that equal ones compare equal.
    pub(super) fn in_lowest_terms(&self) -> (u32, u32) {
        let (part, whole) = (u32::from(self.part), u32::from(self.whole));
        let (mut a, mut b) = (part, whole);
        while b != 0 {
            (a, b) = (b, a % b);
        }
        let divisor = a.max(1);
        (part / divisor, whole / divisor)
    }

    fn is(&self, profile: &Profile, profiles: &[Profile]) -> bool {
        profile.slices == self.slices
            && u16::from(profile.size) * u16::from(self.whole)
                == units(profiles) * u16::from(self.part)
            && profile.suffix() == self.suffix
    }
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Literal(name) => f.write_str(name),
            Self::Symbolic(Share {
                slices,
                part,
                whole,
                suffix,
            }) => write!(f, "{slices}g.{part}/{whole}{suffix}"),
        }
    }
}

impl Profile {
    /// The media suffix of the name with its sign, or an empty one.
    #[must_use]
    pub fn suffix(&self) -> &str {
        split_suffix(&self.name).1
    }
}

/// Memory units of the board: the end of the furthest placement that it offers.
#[must_use]
pub fn units(profiles: &[Profile]) -> u16 {
    profiles
        .iter()
        .flat_map(|profile| {
            profile
                .starts
                .iter()
                .map(|&start| u16::from(start) + u16::from(profile.size))
        })
        .max()
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, id: u32, slices: u8, size: u8, starts: &[u8]) -> Profile {
        Profile {
            name: name.into(),
            id,
            slices,
            size,
            starts: starts.to_vec(),
            max: 7,
        }
    }

    fn gb200(small: &str, whole: &str) -> Vec<Profile> {
        vec![
            row(whole, 0, 7, 8, &[0]),
            row("1g.47gb", 15, 1, 2, &[0, 2, 4, 6]),
            row(small, 19, 1, 1, &[0, 1, 2, 3, 4, 5, 6]),
            row(&format!("{small}+me"), 20, 1, 1, &[0, 1, 2, 3, 4, 5, 6]),
        ]
    }

    fn resolved(key: &str, profiles: &[Profile]) -> Option<String> {
        let request: Request = key.parse().expect(key);
        request.resolve(profiles).map(|row| row.name.clone())
    }

    #[test]
    fn a_share_of_the_board_finds_its_row_under_whatever_name() {
        for (small, whole) in [("1g.23gb", "7g.186gb"), ("1g.24gb", "7g.189gb")] {
            let board = gb200(small, whole);
            assert_eq!(resolved("1g.1/8", &board).as_deref(), Some(small));
            assert_eq!(
                resolved("1g.1/8+me", &board).as_deref(),
                Some(format!("{small}+me").as_str())
            );
            assert_eq!(resolved("1g.1/4", &board).as_deref(), Some("1g.47gb"));
            assert_eq!(resolved("1g.2/8", &board).as_deref(), Some("1g.47gb"));
            assert_eq!(resolved("7g.1/1", &board).as_deref(), Some(whole));
            assert_eq!(resolved("1g.1/3", &board), None);
            assert_eq!(resolved("2g.1/4", &board), None);
            assert_eq!(resolved("1g.1/8-me", &board), None);
        }
    }

    #[test]
    fn a_share_is_counted_in_the_units_of_the_board_whatever_its_grid() {
        let board = vec![
            row("4g.96gb", 0, 4, 12, &[0]),
            row("2g.48gb", 5, 2, 6, &[0, 6]),
            row("1g.24gb", 14, 1, 3, &[0, 3, 6, 9]),
        ];
        assert_eq!(units(&board), 12);
        assert_eq!(resolved("1g.1/4", &board).as_deref(), Some("1g.24gb"));
        assert_eq!(resolved("2g.1/2", &board).as_deref(), Some("2g.48gb"));
    }

    #[test]
    fn a_literal_name_is_taken_as_the_driver_prints_it() {
        let board = gb200("1g.23gb", "7g.186gb");
        assert_eq!(resolved("1g.23gb", &board).as_deref(), Some("1g.23gb"));
        assert_eq!(resolved("1g.24gb", &board), None);
    }

    #[test]
    fn what_is_no_profile_is_refused_with_both_forms() {
        for key in [
            "",
            "1g",
            "1g.",
            "g.10gb",
            "9g.10gb",
            "0g.10gb",
            "1g.gb",
            "1g.10",
            "1g.10gb+",
            "1g.10gb+ME",
            "1g.9/8",
            "1g.0/8",
            "1g.1/0",
            "1g.01/8",
            "1g.1/100",
            "1g.10/12",
            "1g.+1/8",
            "1g./",
            "1c.3g.20gb",
            "1g.1/8gb",
        ] {
            let refused = key.parse::<Request>().expect_err(key).to_string();
            assert!(refused.contains(&format!("{key:?}")), "{refused}");
            assert!(
                refused.contains("1g.10gb+me") && refused.contains("1g.1/8"),
                "{refused}"
            );
        }
    }

    #[test]
    fn a_request_is_written_as_it_was_read() {
        for key in [
            "1g.10gb",
            "1g.24gb+me.all",
            "1g.24gb-me",
            "3g.1/2",
            "1g.1/4+gfx",
        ] {
            assert_eq!(key.parse::<Request>().expect(key).to_string(), key);
        }
    }
}
