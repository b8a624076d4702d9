//! Profiles: their kinds, their names, and what NVML gets wrong about them.

use freehold_core::geometry::Profile;

use crate::raw::{Device, RawProfile};
use crate::{Code, Error};

/// Kinds are asked for until NVML says that there are no more. nvml.h 13.3 has 18.
const MOST_KINDS: u32 = 64;
/// What the driver puts before a name.
const PREFIX: &str = "MIG ";

/// One row of a GPU's table of profiles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// NVML's own enumeration, which is not the profile's ID.
    pub kind: u32,
    /// The profile.
    pub profile: Profile,
    /// Memory of one instance in MiB.
    pub memory_mib: u64,
}

/// What a kind is called: compute slices, and what stands behind the memory.
struct Kind {
    slices: u8,
    suffix: &'static str,
}

/// Kinds by number (`NVML_GPU_INSTANCE_PROFILE_*`, nvml.h 13.3). Only for drivers that do not give names themselves.
const KINDS: [Kind; 18] = [
    kind(1, ""),
    kind(2, ""),
    kind(3, ""),
    kind(4, ""),
    kind(7, ""),
    kind(8, ""),
    kind(6, ""),
    kind(1, "+me"),
    kind(2, "+me"),
    kind(1, ""),
    kind(1, "+gfx"),
    kind(2, "+gfx"),
    kind(4, "+gfx"),
    kind(1, "-me"),
    kind(2, "-me"),
    kind(1, "+me.all"),
    kind(2, "+me.all"),
    kind(3, "+gfx"),
];

const fn kind(slices: u8, suffix: &'static str) -> Kind {
    Kind { slices, suffix }
}

/// Counts that NVML is known to report wrong: PCI device, kind, the true count.
///
/// A30: `instanceCount` is wrong (NVIDIA/mig-parted `pkg/mig/discovery/discovery.go`, 0.15); the counts are those of the MIG
/// user guide's A30 table and of `nvidia-smi mig -lgip`.
const TRUE_COUNTS: [(u32, u32, u8); 5] = [
    (0x20B7_10DE, 0, 4),
    (0x20B7_10DE, 7, 1),
    (0x20B7_10DE, 1, 2),
    (0x20B7_10DE, 8, 1),
    (0x20B7_10DE, 3, 1),
];

/// What NVML says of each kind of profile that the GPU has, whether or not it can be asked for.
pub fn kinds(device: Device<'_>) -> Result<Vec<(u32, RawProfile)>, Error> {
    let mut kinds = Vec::new();
    for kind in 0..MOST_KINDS {
        match device.profile(kind) {
            Ok(Some(found)) => kinds.push((kind, found)),
            Ok(None) => {}
            Err(error) if error.is(Code::InvalidArgument) => break,
            Err(error) => return Err(error),
        }
    }
    Ok(kinds)
}

/// All rows of a GPU, by profile ID. A row without a name that anybody knows is left out: it cannot be asked for. So is one that
/// has no place on this GPU, or not in this mode.
pub fn rows(device: Device<'_>) -> Result<Vec<Row>, Error> {
    let pci = device.pci_device()?;
    let memory = device.memory()?;
    let mut rows = Vec::new();
    let mut refusal = None;
    for (kind, found) in kinds(device)? {
        let placements = match device.placements(found.id) {
            Err(error) if error.is(Code::NotSupported) || error.is(Code::InvalidArgument) => {
                refusal = Some(error);
                continue;
            }
            answer => answer?,
        };
        let Some((_, size)) = placements.first().copied() else {
            continue;
        };
        let Some(name) = name(&found, kind, memory) else {
            continue;
        };
        if placements.iter().any(|(_, other)| *other != size) {
            return Err(nonsense(format!(
                "placements of different sizes for {name}"
            )));
        }
        let small = |what: &str, number: u32| {
            u8::try_from(number)
                .ok()
                .filter(|number| *number < 64)
                .ok_or_else(|| nonsense(format!("{what} {number} for {name}")))
        };
        let mut starts = placements
            .iter()
            .map(|(start, _)| small("start", *start))
            .collect::<Result<Vec<u8>, Error>>()?;
        starts.sort_unstable();
        let max = TRUE_COUNTS
            .iter()
            .find(|(device, of, _)| (*device, *of) == (pci, kind))
            .map_or_else(|| small("count", found.instances), |(.., count)| Ok(*count))?;
        rows.push(Row {
            kind,
            memory_mib: found.memory_mib,
            profile: Profile {
                id: found.id,
                slices: small("slices", found.slices)?,
                size: small("size", size)?,
                starts,
                max,
                name,
            },
        });
    }
    if rows.is_empty()
        && let Some(refusal) = refusal
    {
        // Not of one profile, then, but of the GPU as it is.
        return Err(refusal);
    }
    rows.sort_by_key(|row| row.profile.id);
    Ok(rows)
}

fn nonsense(found: String) -> Error {
    Error::Nonsense {
        call: "nvmlDeviceGetGpuInstancePossiblePlacements_v2",
        found,
    }
}

/// The driver's own name where it gives one, else the rule by which NVIDIA's tools compute it.
fn name(found: &RawProfile, kind: u32, memory: u64) -> Option<String> {
    if let Some(name) = &found.name {
        return Some(name.strip_prefix(PREFIX).unwrap_or(name).to_owned());
    }
    let kind = KINDS.get(kind as usize)?;
    let gigabytes = gigabytes(found.memory_mib, memory)?;
    Some(format!("{}g.{gigabytes}gb{}", kind.slices, kind.suffix))
}

/// The number before `gb`: the instance's share of the GPU's memory in eighths, rounded up, of its GiB, rounded up; and that
/// rounded to the nearest (NVIDIA/go-nvlib `mig_profile.go`).
fn gigabytes(memory_mib: u64, total: u64) -> Option<u64> {
    let total_mib = (total >> 20).max(1);
    let eighths = memory_mib.checked_mul(8)?.div_ceil(total_mib);
    let total_gib = total.div_ceil(1 << 30);
    // Half an eighth more, and cut: rounded to the nearest.
    Some(eighths.checked_mul(total_gib)?.saturating_add(4) / 8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rule_gives_the_names_that_the_boards_print() {
        // Memory of the board and of one instance in MiB; the number in the published name (MIG user guide).
        let cases = [
            ("A100-40 1g", 40_536, 4_864, 5),
            ("A100-40 double", 40_536, 9_856, 10),
            ("A100-40 3g", 40_536, 19_968, 20),
            ("A100-40 7g", 40_536, 40_192, 40),
            ("A30 1g", 24_258, 5_836, 6),
            ("A30 4g", 24_258, 24_125, 24),
            ("H100-80 1g", 81_559, 9_984, 10),
            ("H100-80 4g", 81_559, 40_448, 40),
            ("H200 1g", 143_771, 16_896, 18),
            ("H200 double", 143_771, 34_304, 35),
            ("H200 3g", 143_771, 70_656, 71),
            ("RTX PRO 6000 1g", 97_887, 24_192, 24),
            ("RTX PRO 6000 2g", 97_887, 48_512, 48),
        ];
        for (what, total, instance, expected) in cases {
            assert_eq!(gigabytes(instance, total << 20), Some(expected), "{what}");
        }
    }

    #[test]
    fn the_driver_s_own_name_goes_before_the_rule() {
        let mut found = RawProfile {
            id: 19,
            slices: 1,
            instances: 7,
            memory_mib: 23_552,
            name: Some("MIG 1g.24gb".into()),
        };
        let memory = 189_471 << 20;
        assert_eq!(name(&found, 0, memory).as_deref(), Some("1g.24gb"));
        found.name = None;
        assert_eq!(name(&found, 7, memory).as_deref(), Some("1g.23gb+me"));
        assert_eq!(
            name(&found, 40, memory),
            None,
            "a kind that nobody can name"
        );
    }
}
