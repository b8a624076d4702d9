//! A fake `libnvidia-ml.so.1`.
//!
//! The real agent loads it by path as it loads the driver's own. What it answers follows one state file
//! ([`STATE_VARIABLE`], or [`STATE_FILE`] beside the library), so that several processes see the same GPUs, and tests see what was done to them. The semantics are
//! those of MIG as documented and observed: occupancy, offered starts, counts, compute before GPU instances, mode changes
//! that wait for a reset, and what is lost at a reboot. With a host root it keeps the driver's procfs in step.
//!
//! | module | is |
//! |---|---|
//! | [`board`] | the boards' tables, from files |
//! | [`state`] | the state file |
//! | `driver` | what NVML does to the state |
//! | `procfs` | what the kernel driver shows of it |
//! | `ffi` | the C functions |
//! | [`fixture`] | how a test sets it up, disturbs it and reads it |

pub mod board;
mod driver;
mod ffi;
pub mod fixture;
mod procfs;
pub mod state;

pub use board::Board;
pub use fixture::{FakeNvml, library};

/// Environment variable with the state file's path. Without a state file there is no driver.
pub const STATE_VARIABLE: &str = "FAKE_NVML_STATE";
/// Name of the state file, which is also looked for beside the loaded library.
pub const STATE_FILE: &str = "fake-nvml.json";
/// Environment variable with a number: the process is killed as by `kill -9` after so many calls of its own.
pub const KILL_VARIABLE: &str = "FAKE_NVML_KILL_AFTER";
