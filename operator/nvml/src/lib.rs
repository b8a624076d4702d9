//! MIG through NVML, NVIDIA's management library.
//!
//! A small typed surface over the driver's own `libnvidia-ml.so.1`, which is loaded from a path while the program runs: what
//! NVML offers on *this* GPU ([`Gpu::rows`]), what is there ([`Gpu::instances`]), and the few calls that change it. Every rule
//! about which instance goes where is somebody else's; nothing here decides.
//!
//! | module | is |
//! |---|---|
//! | [`mod@locate`] | where a driver installation keeps the library |
//! | `raw` | the calls themselves: the only unsafe code of the workspace's programs |
//! | [`Session`] | NVML between its init and its shutdown |
//! | [`Gpu`] | one GPU: identity, MIG mode, profiles, instances |
//! | `row` | profiles: their numbering, names, and what NVML gets wrong about them |
//!
//! Two numberings run through NVML's MIG calls, and mixing them up is the commonest bug of its users: a *kind* is NVML's
//! enumeration (0x00 to 0x11), which only the table of profiles is read by; a *profile ID* is the board's own number for a row
//! (19 for `1g.10gb` on an H100), which everything else takes.
//!
//! Objects below a GPU are named by ID, never kept as handles: a handle is looked up for one call and forgotten, so that none
//! outlives what it points to.

mod error;
mod gpu;
pub mod locate;
mod raw;
mod row;
mod session;

pub use error::{Code, Error};
pub use gpu::Gpu;
pub use gpu::{Activation, ComputeInstance, GpuInstance, Mode, Process};
pub use row::Row;
pub use session::Session;
