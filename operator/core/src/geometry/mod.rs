//! MIG geometry: what a board offers, what is asked for, and which instance goes where.
//!
//! NVML gives each GPU its own table of profiles; nothing here assumes a grid, a power of two or a fixed ID (an RTX PRO 6000
//! counts in twelfths, and two GPUs of one node can offer one name under different IDs).
//!
//! | type | is |
//! |---|---|
//! | [`Profile`], [`Board`] | one row of a board's table, and the table with the GPUs that share it |
//! | [`Placement`] | where an instance is, in memory units of its board |
//! | [`Instance`] | an instance that exists |
//! | [`Request`] | what a layout asks for: a profile's name, or its share of the board |
//! | [`Plan`], [`Refusal`] | what to destroy and create on one GPU ([`plan`]), or why there is no way |

mod draw;
mod layout;
mod plan;
mod request;
mod solve;

pub use draw::LEGEND;
pub use layout::{NoSuchGpu, minors, profiles_of, wanted_on};
pub use plan::{Plan, Refusal, feasible, offered, plan};
pub use request::{Request, RequestError, Share, units};
pub use solve::{Impossible, MAX_TRIES};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A GPU instance profile as NVML reports it for one board.
#[derive(
    Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "camelCase")]
pub struct Profile {
    /// Name as the driver prints it without the `MIG ` prefix, e.g. `1g.10gb+me`.
    #[schemars(length(min = 1, max = 32))]
    pub name: String,
    /// GPU instance profile ID: what placements, creation and lists take. Not the number in NVML's profile enumeration.
    #[schemars(with = "i32", range(min = 0, max = 255))]
    pub id: u32,
    /// Compute slices (the G of `3g`).
    #[schemars(with = "i32", range(min = 1, max = 16))]
    pub slices: u8,
    /// Memory units that one instance covers.
    #[schemars(with = "i32", range(min = 1, max = 64))]
    pub size: u8,
    /// Units at which an instance may start, ascending.
    #[schemars(with = "Vec<i32>", length(max = 16), inner(range(min = 0, max = 63)))]
    pub starts: Vec<u8>,
    /// Most instances of this profile on one GPU.
    #[schemars(with = "i32", range(min = 1, max = 64))]
    pub max: u8,
}

/// The profiles of GPUs that are alike.
#[derive(
    Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "camelCase")]
pub struct Board {
    /// Minor numbers of the GPUs, ascending.
    #[schemars(with = "Vec<i32>", length(max = 16), inner(range(min = 0, max = 1023)))]
    pub gpus: Vec<u32>,
    /// What the driver offers on each of them, by ID.
    #[schemars(length(max = 16))]
    pub profiles: Vec<Profile>,
}

/// Memory units that an instance covers: `start..start + size`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Placement {
    /// First unit.
    pub start: u8,
    /// Number of units, at least 1.
    pub size: u8,
}

/// An instance that exists on a GPU.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Instance {
    /// GPU instance ID, given by the driver.
    pub id: u32,
    /// Profile ID, see [`Profile::id`].
    pub profile: u32,
    /// Where it is.
    pub placement: Placement,
    /// Somebody uses it, so that it must not be destroyed.
    pub busy: bool,
}
