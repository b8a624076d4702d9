//! MIG tables as published, for planning without a node and for tests.
//!
//! A real node is never judged by these rows: it is judged by what its own driver offers, since names differ between drivers
//! and boards of one product, and a new board is not in any table.
//!
//! Sources: NVIDIA's MIG user guide (v580 and newer) for names and counts, `nvidia-smi mig -lgip` and `-lgipp` printed from
//! hardware in public trackers for IDs and placements, mig-parted 0.15 for PCI IDs and for names the guide lacks.

use crate::geometry::Profile;

/// A board's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublishedBoard {
    /// Name to ask for it by.
    pub name: &'static str,
    /// Products that have the table.
    pub products: &'static str,
    /// PCI device IDs under NVIDIA's vendor ID.
    pub pci_devices: &'static [u16],
    /// Its rows.
    rows: Rows,
    /// What of the table was not seen on hardware; empty when all was.
    pub inferred: &'static str,
}

/// How rows are given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rows {
    /// The family of 7 compute slices and 8 memory units, by the names of its 1g, double-memory 1g, 2g, 3g, 4g and 7g rows.
    SevenOfEight([&'static str; 6]),
    /// Row by row.
    Each(&'static [Row]),
}

/// Name, profile ID, compute slices, memory units, starts, most instances.
type Row = (&'static str, u32, u8, u8, &'static [u8], u8);

impl PublishedBoard {
    /// The table as a driver would report it, by profile ID.
    #[must_use]
    pub fn profiles(&self) -> Vec<Profile> {
        let mut profiles: Vec<Profile> = match self.rows {
            Rows::Each(rows) => rows.iter().map(profile).collect(),
            Rows::SevenOfEight([one, double, two, three, four, seven]) => {
                let media = format!("{one}+me");
                [
                    (one, 19, 1, 1, EACH_OF_SEVEN, 7),
                    (media.as_str(), 20, 1, 1, EACH_OF_SEVEN, 1),
                    (double, 15, 1, 2, &[0, 2, 4, 6], 4),
                    (two, 14, 2, 2, &[0, 2, 4], 3),
                    (three, 9, 3, 4, &[0, 4], 2),
                    (four, 5, 4, 4, &[0], 1),
                    (seven, 0, 7, 8, &[0], 1),
                ]
                .iter()
                .map(profile)
                .collect()
            }
        };
        profiles.sort_by_key(|profile| profile.id);
        profiles
    }
}

/// Starts of a 1g instance on a board of 7 slices and 8 units: none at the last unit.
const EACH_OF_SEVEN: &[u8] = &[0, 1, 2, 3, 4, 5, 6];

fn profile(row: &(&str, u32, u8, u8, &[u8], u8)) -> Profile {
    let &(name, id, slices, size, starts, max) = row;
    Profile {
        name: name.into(),
        id,
        slices,
        size,
        starts: starts.to_vec(),
        max,
    }
}

/// The board of this name, in whatever case.
#[must_use]
pub fn published_board(name: &str) -> Option<&'static PublishedBoard> {
    PUBLISHED_BOARDS
        .iter()
        .find(|board| board.name.eq_ignore_ascii_case(name))
}

const fn seven(
    name: &'static str,
    products: &'static str,
    pci_devices: &'static [u16],
    names: [&'static str; 6],
    inferred: &'static str,
) -> PublishedBoard {
    PublishedBoard {
        name,
        products,
        pci_devices,
        rows: Rows::SevenOfEight(names),
        inferred,
    }
}

/// The tables.
pub const PUBLISHED_BOARDS: &[PublishedBoard] = &[
    PublishedBoard {
        name: "A30",
        products: "A30 24GB",
        pci_devices: &[0x20b7],
        rows: Rows::Each(A30),
        inferred: "",
    },
    seven(
        "A100-40",
        "A100 40GB, A800 40GB",
        &[0x20b0, 0x20b1, 0x20f1, 0x20f6],
        [
            "1g.5gb", "1g.10gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb",
        ],
        "",
    ),
    seven(
        "A100-80",
        "A100 80GB, A800 80GB",
        &[0x20b2, 0x20b5, 0x20f3, 0x20f5],
        EIGHTY,
        "",
    ),
    seven(
        "H100-80",
        "H100 80GB, H800 80GB",
        &[0x2330, 0x2331, 0x2322, 0x2324],
        EIGHTY,
        "",
    ),
    seven(
        "H100-94",
        "H100 NVL, H100 SXM5 94GB, H800 NVL",
        &[0x2321, 0x233a, 0x2339],
        [
            "1g.12gb", "1g.24gb", "2g.24gb", "3g.47gb", "4g.47gb", "7g.94gb",
        ],
        "",
    ),
    seven(
        "H100-96",
        "H100 96GB (GH200), H20 96GB",
        &[0x233d, 0x2342, 0x2329],
        [
            "1g.12gb", "1g.24gb", "2g.24gb", "3g.48gb", "4g.48gb", "7g.96gb",
        ],
        "IDs and placements",
    ),
    seven(
        "H200",
        "H200, H200 NVL 141GB",
        &[0x2335, 0x233b],
        [
            "1g.18gb", "1g.35gb", "2g.35gb", "3g.71gb", "4g.71gb", "7g.141gb",
        ],
        "placements",
    ),
    seven(
        "GH200-144",
        "GH200 144GB",
        &[0x2348],
        [
            "1g.18gb", "1g.36gb", "2g.36gb", "3g.72gb", "4g.72gb", "7g.144gb",
        ],
        "placements",
    ),
    seven(
        "B200",
        "B200 180GB",
        &[0x2901],
        [
            "1g.23gb", "1g.45gb", "2g.45gb", "3g.90gb", "4g.90gb", "7g.180gb",
        ],
        "IDs of 3g, 4g and 7g",
    ),
    seven(
        "GB200-186",
        "GB200, where the driver says 186GB",
        &[0x2941],
        [
            "1g.23gb", "1g.47gb", "2g.47gb", "3g.93gb", "4g.93gb", "7g.186gb",
        ],
        "IDs of 3g, 4g and 7g",
    ),
    seven(
        "GB200-189",
        "GB200, where the driver says 189GB",
        &[0x2941],
        [
            "1g.24gb", "1g.47gb", "2g.47gb", "3g.95gb", "4g.95gb", "7g.189gb",
        ],
        "IDs of 3g, 4g and 7g",
    ),
    seven(
        "B300",
        "B300 269GB",
        &[0x3182],
        [
            "1g.34gb", "1g.67gb", "2g.67gb", "3g.135gb", "4g.135gb", "7g.269gb",
        ],
        "IDs and placements",
    ),
    seven(
        "GB300",
        "GB300 278GB",
        &[0x31c2],
        [
            "1g.35gb", "1g.70gb", "2g.70gb", "3g.139gb", "4g.139gb", "7g.278gb",
        ],
        "IDs",
    ),
    PublishedBoard {
        name: "RTX-PRO-6000",
        products: "RTX PRO 6000 Blackwell (Server, Workstation, Max-Q)",
        pci_devices: &[0x2bb5, 0x2bb1, 0x2bb4],
        rows: Rows::Each(RTX_PRO_6000),
        inferred: "",
    },
];

const EIGHTY: [&str; 6] = [
    "1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb",
];

/// Four slices on four units.
const A30: &[Row] = &[
    ("1g.6gb", 14, 1, 1, &[0, 1, 2, 3], 4),
    ("1g.6gb+me", 21, 1, 1, &[0, 1, 2, 3], 1),
    ("2g.12gb", 5, 2, 2, &[0, 2], 2),
    ("2g.12gb+me", 6, 2, 2, &[0, 2], 1),
    ("4g.24gb", 0, 4, 4, &[0], 1),
];

/// Four slices on twelve units: neither eight, nor a power of two, nor one unit for each slice.
const RTX_PRO_6000: &[Row] = &[
    ("1g.24gb", 14, 1, 3, &[0, 3, 6, 9], 4),
    ("1g.24gb+me", 21, 1, 3, &[0, 3, 6, 9], 1),
    ("1g.24gb+gfx", 47, 1, 3, &[0, 3, 6, 9], 4),
    ("1g.24gb+me.all", 65, 1, 3, &[0, 3, 6, 9], 1),
    ("1g.24gb-me", 67, 1, 3, &[0, 3, 6, 9], 4),
    ("2g.48gb", 5, 2, 6, &[0, 6], 2),
    ("2g.48gb+gfx", 35, 2, 6, &[0, 6], 2),
    ("2g.48gb+me.all", 64, 2, 6, &[0, 6], 1),
    ("2g.48gb-me", 66, 2, 6, &[0, 6], 2),
    ("4g.96gb", 0, 4, 12, &[0], 1),
    ("4g.96gb+gfx", 32, 4, 12, &[0], 1),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::geometry::{Request, units};

    #[test]
    fn every_table_is_one_that_a_driver_could_report() {
        for board in PUBLISHED_BOARDS {
            let profiles = board.profiles();
            let names: BTreeSet<&str> = profiles.iter().map(|row| row.name.as_str()).collect();
            let ids: BTreeSet<u32> = profiles.iter().map(|row| row.id).collect();
            assert_eq!(names.len(), profiles.len(), "{}", board.name);
            assert_eq!(ids.len(), profiles.len(), "{}", board.name);
            assert!(profiles.iter().all(|row| row.starts.is_sorted()));
            assert!(
                profiles
                    .iter()
                    .all(|row| usize::from(row.max) <= row.starts.len())
            );
            for row in &profiles {
                let request: Request = row.name.parse().expect(&row.name);
                assert_eq!(request.resolve(&profiles), Some(row));
            }
            let whole = match board.name {
                "A30" => 4,
                "RTX-PRO-6000" => 12,
                _ => 8,
            };
            assert_eq!(units(&profiles), whole, "{}", board.name);
        }
    }

    #[test]
    fn a_board_is_found_in_whatever_case_and_by_nothing_else() {
        assert_eq!(
            published_board("h100-80").map(|board| board.name),
            Some("H100-80")
        );
        assert_eq!(published_board("H100"), None);
        let names: BTreeSet<&str> = PUBLISHED_BOARDS.iter().map(|board| board.name).collect();
        assert_eq!(names.len(), PUBLISHED_BOARDS.len());
    }
}
