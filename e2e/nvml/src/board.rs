//! The boards' tables.

use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

/// A board that can be simulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Board {
    /// A30 24 GB.
    A30,
    /// A100 40 GB.
    #[serde(rename = "a100-40")]
    A100x40,
    /// A100 80 GB.
    #[serde(rename = "a100-80")]
    A100x80,
    /// H100 80 GB.
    #[serde(rename = "h100-80")]
    H100,
    /// H200 141 GB.
    H200,
    /// B200 180 GB.
    B200,
    /// RTX PRO 6000 Blackwell 96 GB, whose memory counts in twelfths.
    RtxPro6000,
}

impl Board {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::A30,
        Self::A100x40,
        Self::A100x80,
        Self::H100,
        Self::H200,
        Self::B200,
        Self::RtxPro6000,
    ];

    /// Its table.
    ///
    /// # Panics
    /// When the file of that board is no table, which the tests of this crate rule out.
    #[must_use]
    #[expect(clippy::expect_used, reason = "the files are part of this crate")]
    pub fn table(self) -> &'static Table {
        static TABLES: [OnceLock<Table>; Board::ALL.len()] =
            [const { OnceLock::new() }; Board::ALL.len()];
        let text = match self {
            Self::A30 => include_str!("../boards/a30.json"),
            Self::A100x40 => include_str!("../boards/a100-40.json"),
            Self::A100x80 => include_str!("../boards/a100-80.json"),
            Self::H100 => include_str!("../boards/h100-80.json"),
            Self::H200 => include_str!("../boards/h200.json"),
            Self::B200 => include_str!("../boards/b200.json"),
            Self::RtxPro6000 => include_str!("../boards/rtx-pro-6000.json"),
        };
        TABLES
            .get(self as usize)
            .expect("a place for each board")
            .get_or_init(|| serde_json::from_str(text).expect("a board's table"))
    }
}

/// What a board is and offers.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Table {
    /// Name as the driver says it.
    pub name: String,
    /// Where the numbers come from.
    pub source: String,
    /// PCI device ID without the vendor's.
    pub pci_device: u32,
    /// Architecture, which decides how a mode change takes effect and what a reboot leaves.
    pub architecture: Architecture,
    /// All memory in MiB.
    pub memory_mib: u64,
    /// Memory units that placements count in.
    pub units: u32,
    /// Compute profiles.
    pub compute: Vec<ComputeRow>,
    /// GPU instance profiles.
    pub profiles: Vec<Row>,
}

/// A generation of GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum Architecture {
    /// A100, A30: the mode needs a reset and survives a reboot.
    Ampere,
    /// H100, H200: the mode takes effect at once and is lost at a reboot.
    Hopper,
    /// B200, RTX PRO: as Hopper.
    Blackwell,
}

/// A GPU instance profile.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Row {
    /// NVML's enumeration.
    pub kind: u32,
    /// Profile ID.
    pub id: u32,
    /// Name without the `MIG `.
    pub name: String,
    /// Compute slices.
    pub slices: u32,
    /// Memory units.
    pub size: u32,
    /// Where an instance may begin.
    pub starts: Vec<u32>,
    /// Most instances on one GPU.
    pub max: u32,
    /// What NVML says that is, where it says something else.
    pub reported_max: Option<u32>,
    /// Memory of one instance in MiB.
    pub memory_mib: u64,
}

/// A compute instance profile.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ComputeRow {
    /// NVML's enumeration.
    pub kind: u32,
    /// Profile ID.
    pub id: u32,
    /// Compute slices.
    pub slices: u32,
}

impl Table {
    /// The profile with this ID.
    #[must_use]
    pub fn row(&self, id: u32) -> Option<&Row> {
        self.profiles.iter().find(|row| row.id == id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_board_has_a_table_whose_placements_fit_it() {
        for board in Board::ALL {
            let table = board.table();
            assert!(!table.source.is_empty() && !table.compute.is_empty());
            for row in &table.profiles {
                let fits = |start: &u32| start + row.size <= table.units;
                assert!(
                    !row.starts.is_empty() && row.starts.iter().all(fits),
                    "{board:?} {row:?}"
                );
                assert_eq!(
                    table
                        .profiles
                        .iter()
                        .filter(|other| other.id == row.id)
                        .count(),
                    1
                );
            }
            assert!(
                table.profiles.iter().any(|row| row.id != row.kind),
                "{board:?}: a kind must not pass for an ID"
            );
        }
    }
}
