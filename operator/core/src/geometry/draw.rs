//! A plan for one GPU, drawn for a terminal: its memory units before and after, and what becomes of each instance.
//!
//! ```text
//! units   0        1        2        3        4        5        6        7
//! before │-1g.10gb│-1g.10gb│-1g.10gb│-1g.10gb│=1g.10gb│=1g.10gb│=1g.10gb│·       │
//! after  │+4g.40gb                           │=1g.10gb│=1g.10gb│=1g.10gb│·       │
//! ```
//!
//! The marks say it all, so that nothing is lost without colour.

use super::{Instance, Placement, Plan, Profile, units};

/// What the marks mean.
pub const LEGEND: &str = "= kept   - destroyed   + created   · free";

/// Characters of a line: a terminal's.
const WIDTH: usize = 80;
/// Characters of a line before its first bar.
const LABEL: usize = 7;
/// Narrowest cell: a mark, a letter, a bar.
const NARROWEST: usize = 3;
/// Most units drawn: those that a mask can hold.
const MAX_UNITS: usize = 64;

impl Plan {
    /// Draws it in three lines: the units' numbers, before, after. `profiles` is the GPU's table.
    #[must_use]
    pub fn draw(&self, profiles: &[Profile]) -> [String; 3] {
        let name = |id: u32, mark: char, short: bool| {
            let row = profiles.iter().find(|profile| profile.id == id);
            let name = row.map_or_else(
                || format!("profile {id}"),
                |row| {
                    if short {
                        format!("{}g{}", row.slices, row.suffix())
                    } else {
                        row.name.clone()
                    }
                },
            );
            format!("{mark}{name}")
        };
        let rows = |short: bool| {
            let instances = |list: &[Instance], mark: char| -> Vec<(Placement, String)> {
                list.iter()
                    .map(|one| (one.placement, name(one.profile, mark, short)))
                    .collect()
            };
            let kept = instances(&self.keep, '=');
            let created = self
                .create
                .iter()
                .map(|&(profile, placement)| (placement, name(profile, '+', short)));
            let before = [kept.clone(), instances(&self.destroy, '-')].concat();
            let after: Vec<_> = kept.into_iter().chain(created).collect();
            [before, after]
        };
        let full = rows(false);
        let ends = full.iter().flatten().map(|(place, _)| end(*place));
        let units = ends
            .chain([usize::from(units(profiles))])
            .max()
            .unwrap_or(0)
            .min(MAX_UNITS);
        let room = WIDTH.saturating_sub(LABEL + 1) / units.max(1);
        // Whole names where they fit on a line; else without the memory, which the width of the cell shows.
        let (cells, needed) = if cell(&full) <= room {
            (&full, cell(&full))
        } else {
            (&rows(true), cell(&rows(true)))
        };
        let width = needed.min(room).max(NARROWEST);
        let [before, after] = cells;
        let numbers: String = (0..units).map(|unit| format!("{unit:<width$}")).collect();
        let ruler = format!("{:<LABEL$} {numbers}", "units");
        [
            ruler.trim_end().to_owned(),
            line("before", before, units, width),
            line("after", after, units, width),
        ]
    }

    /// `keeps 3, destroys 4, creates 1`, or that nothing changes.
    #[must_use]
    pub fn summary(&self) -> String {
        if self.is_empty() {
            return "as it is".into();
        }
        let parts: Vec<String> = [
            ("keeps", self.keep.len()),
            ("destroys", self.destroy.len()),
            ("creates", self.create.len()),
        ]
        .into_iter()
        .filter(|(_, count)| *count > 0)
        .map(|(what, count)| format!("{what} {count}"))
        .collect();
        parts.join(", ")
    }
}

/// Width of a unit at which every text fits its instance, bar included.
fn cell(rows: &[Vec<(Placement, String)>; 2]) -> usize {
    rows.iter()
        .flatten()
        .map(|(place, text)| (text.chars().count() + 1).div_ceil(usize::from(place.size).max(1)))
        .max()
        .unwrap_or(NARROWEST)
}

fn end(place: Placement) -> usize {
    usize::from(place.start) + usize::from(place.size)
}

fn line(label: &str, instances: &[(Placement, String)], units: usize, width: usize) -> String {
    let mut line = format!("{label:<LABEL$}│");
    let mut unit = 0;
    while unit < units {
        let there = instances
            .iter()
            .find(|(place, _)| usize::from(place.start) == unit && place.size > 0);
        let (size, text) = there.map_or((1, "·"), |(place, text)| {
            (usize::from(place.size).min(units - unit), text.as_str())
        });
        let inner = size * width - 1;
        let text: String = text.chars().take(inner).collect();
        line.push_str(&format!("{text:<inner$}│"));
        unit += size;
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::{PUBLISHED_BOARDS, published_board};
    use crate::geometry::plan;
    use crate::report::MigProfileCount;

    fn asked(wanted: &[(&str, i32)]) -> Vec<MigProfileCount> {
        wanted
            .iter()
            .map(|&(profile, count)| MigProfileCount {
                profile: profile.into(),
                count,
            })
            .collect()
    }

    fn made(profiles: &[Profile], wanted: &[(&str, i32)]) -> Vec<Instance> {
        let plan = plan(0, profiles, &[], &asked(wanted)).expect("it fits");
        (1..)
            .zip(plan.create)
            .map(|(id, (profile, placement))| Instance {
                id,
                profile,
                placement,
                busy: false,
            })
            .collect()
    }

    #[test]
    fn a_change_shows_what_is_kept_destroyed_created_and_free() {
        let h100 = published_board("H100-80").expect("H100-80").profiles();
        let live = made(&h100, &[("1g.10gb", 7)]);
        let plan = plan(0, &h100, &live, &asked(&[("4g.40gb", 1), ("1g.10gb", 3)])).expect("room");
        assert_eq!(
            plan.draw(&h100).join("\n"),
            "\
units   0        1        2        3        4        5        6        7
before │-1g.10gb│-1g.10gb│-1g.10gb│-1g.10gb│=1g.10gb│=1g.10gb│=1g.10gb│·       │
after  │+4g.40gb                           │=1g.10gb│=1g.10gb│=1g.10gb│·       │"
        );
        assert_eq!(plan.summary(), "keeps 3, destroys 4, creates 1");
    }

    #[test]
    fn names_lose_their_memory_where_they_would_break_the_line() {
        let h100 = published_board("H100-80").expect("H100-80").profiles();
        let plan = plan(0, &h100, &[], &asked(&[("1g.10gb+me", 1), ("3g.40gb", 1)])).expect("fits");
        assert_eq!(
            plan.draw(&h100).join("\n"),
            "\
units   0      1      2      3      4      5      6      7
before │·     │·     │·     │·     │·     │·     │·     │·     │
after  │·     │·     │·     │+1g+me│+3g                        │"
        );
        assert_eq!(plan.summary(), "creates 2");
    }

    #[test]
    fn a_grid_of_twelve_is_drawn_as_it_is() {
        let pro = published_board("RTX-PRO-6000").expect("there").profiles();
        let live = made(&pro, &[("1g.24gb+me.all", 1), ("1g.24gb-me", 3)]);
        let plan = plan(
            0,
            &pro,
            &live,
            &asked(&[("2g.48gb-me", 1), ("1g.24gb-me", 2)]),
        )
        .expect("fits");
        assert_eq!(
            plan.draw(&pro).join("\n"),
            "\
units   0     1     2     3     4     5     6     7     8     9     10    11
before │=1g.24gb-me      │=1g.24gb-me      │-1g.24gb-me      │-1g.24gb+me.all  │
after  │=1g.24gb-me      │=1g.24gb-me      │+2g.48gb-me                        │"
        );
    }

    #[test]
    fn no_change_is_called_so() {
        let a30 = published_board("A30").expect("A30").profiles();
        let live = made(&a30, &[("2g.12gb", 2)]);
        let same = plan(0, &a30, &live, &asked(&[("2g.12gb", 2)])).expect("there");
        assert_eq!(same.summary(), "as it is");
    }

    #[test]
    fn every_board_fits_a_line_and_every_row_has_the_same_length() {
        for board in PUBLISHED_BOARDS {
            let profiles = board.profiles();
            for row in &profiles {
                let live = made(&profiles, &[(row.name.as_str(), 1)]);
                for other in &profiles {
                    let wanted = asked(&[(other.name.as_str(), i32::from(other.max))]);
                    let Ok(plan) = plan(0, &profiles, &live, &wanted) else {
                        panic!("{} alone fits", other.name);
                    };
                    let [ruler, before, after] = plan.draw(&profiles);
                    let length = before.chars().count();
                    assert!(length <= WIDTH, "{}: {before}", board.name);
                    assert!(ruler.chars().count() <= length);
                    assert_eq!(after.chars().count(), length, "{before}\n{after}");
                    assert!(before.contains(&format!("{}g", row.slices)), "{before}");
                }
            }
        }
    }
}
