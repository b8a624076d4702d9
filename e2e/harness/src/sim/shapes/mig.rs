//! MIG profiles of the boards that are simulated.

use super::Board;

/// One row of a board's profile table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MigProfile {
    /// Name without the `MIG ` prefix.
    pub name: &'static str,
    /// GPU instance profile ID, as `nvidia-smi mig -lgip` prints it.
    pub id: u32,
    /// Compute slices.
    pub compute: u32,
    /// Memory slices, which is also the size of a placement.
    pub memory_slices: u32,
    /// Memory in MiB.
    pub memory_mib: u64,
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
    /// Copy engines.
    pub copy_engines: u32,
    /// Decoders.
    pub decoders: u32,
    /// Encoders: none on these boards.
    pub encoders: u32,
    /// JPEG engines.
    pub jpeg_engines: u32,
    /// Optical flow engines.
    pub ofa_engines: u32,
}

/// One MIG instance on a GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MigInstance {
    /// Its profile.
    pub profile: MigProfile,
    /// First memory slice.
    pub start: u32,
}

const fn row(
    name: &'static str,
    id: u32,
    slices: (u32, u32),
    memory_mib: u64,
    multiprocessors: u32,
    (copy_engines, decoders, jpeg_engines, ofa_engines): (u32, u32, u32, u32),
) -> MigProfile {
    let (compute, memory_slices) = slices;
    MigProfile {
        name,
        id,
        compute,
        memory_slices,
        memory_mib,
        multiprocessors,
        copy_engines,
        decoders,
        encoders: 0,
        jpeg_engines,
        ofa_engines,
    }
}

/// A100 40 GB. Ids, names, placements and multiprocessors are those of the MIG user guide.
const A100_40: [MigProfile; 7] = [
    row("1g.5gb", 19, (1, 1), 4_864, 14, (1, 0, 0, 0)),
    row("1g.5gb+me", 20, (1, 1), 4_864, 14, (1, 1, 1, 1)),
    row("1g.10gb", 15, (1, 2), 9_856, 14, (1, 1, 0, 0)),
    row("2g.10gb", 14, (2, 2), 9_856, 28, (2, 1, 0, 0)),
    row("3g.20gb", 9, (3, 4), 19_968, 42, (3, 2, 0, 0)),
    row("4g.20gb", 5, (4, 4), 19_968, 56, (4, 2, 0, 0)),
    row("7g.40gb", 0, (7, 8), 40_192, 98, (7, 5, 1, 1)),
];

/// H100 80 GB.
const H100: [MigProfile; 7] = [
    row("1g.10gb", 19, (1, 1), 9_984, 16, (1, 1, 1, 0)),
    row("1g.10gb+me", 20, (1, 1), 9_984, 16, (1, 1, 1, 1)),
    row("1g.20gb", 15, (1, 2), 20_096, 26, (1, 1, 1, 0)),
    row("2g.20gb", 14, (2, 2), 20_096, 32, (2, 2, 2, 0)),
    row("3g.40gb", 9, (3, 4), 40_448, 60, (3, 3, 3, 0)),
    row("4g.40gb", 5, (4, 4), 40_448, 64, (4, 4, 4, 0)),
    row("7g.80gb", 0, (7, 8), 81_152, 132, (8, 7, 7, 1)),
];

/// The profiles of a board; empty where it has no MIG.
#[must_use]
pub const fn profiles_of(board: Board) -> &'static [MigProfile] {
    match board {
        Board::A100_40 => &A100_40,
        Board::H100 => &H100,
        Board::L4 => &[],
    }
}

/// Instances at the given starts. Unknown profile names are left out, which the shape tests would show.
pub(super) fn instances(board: Board, wanted: &[(&str, u32)]) -> Vec<MigInstance> {
    let table = profiles_of(board);
    let found = wanted.iter().filter_map(|(name, start)| {
        table
            .iter()
            .find(|profile| profile.name == *name)
            .map(|profile| MigInstance {
                profile: *profile,
                start: *start,
            })
    });
    found.collect()
}
