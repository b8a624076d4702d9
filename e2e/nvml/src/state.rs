//! The state file: GPUs, scripted faults, and what was called.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::board::Board;

/// Everything that the fake knows.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct State {
    /// Driver version.
    pub driver_version: String,
    /// Newest version of `nvmlGpuInstanceProfileInfo` that the driver knows: 1, 2 or 3.
    pub profile_structure: u32,
    /// Whether profiles are listed while MIG mode is off. Old drivers do not.
    pub profiles_while_off: bool,
    /// Whether callers may change anything.
    pub privileged: bool,
    /// Root of the host whose procfs follows; none is kept without it.
    pub host_root: Option<PathBuf>,
    /// GPUs in PCI order.
    pub gpus: Vec<Gpu>,
    /// Calls that are to fail.
    pub faults: Vec<Fault>,
    /// Calls since the beginning, by function.
    pub calls: BTreeMap<String, u64>,
    /// Calls by PID of the caller.
    pub processes: BTreeMap<u32, u64>,
    /// Calls that change something, in order, failed ones included.
    pub writes: Vec<Write>,
}

/// One GPU.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Gpu {
    /// What it is.
    pub board: Board,
    /// The N of `/dev/nvidia<N>`.
    pub minor: u32,
    /// UUID.
    pub uuid: String,
    /// MIG mode in force.
    pub mig: bool,
    /// MIG mode after the next reset.
    pub pending: bool,
    /// What becomes of a mode change.
    pub mode_change: ModeChange,
    /// GPU instances.
    pub instances: Vec<GpuInstance>,
    /// Processes that use it.
    pub processes: Vec<Process>,
    /// Somebody holds it whom no list of processes shows, such as a monitoring agent.
    pub unseen_client: bool,
    /// It fell off the bus.
    pub lost: bool,
}

/// What becomes of a mode change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ModeChange {
    /// It takes effect, by the driver's own reset where the board needs one.
    Works,
    /// The driver says that all is well, and the mode waits for a reset.
    Waits,
    /// A virtual machine: activation status 16, and the mode waits for the guest's reboot.
    NeedsReboot,
    /// A passed-through GPU whose hypervisor refuses the reset: activation status 3, and the mode waits.
    NotSupported,
}

/// A GPU instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GpuInstance {
    /// Its ID.
    pub id: u32,
    /// ID of its profile.
    pub profile: u32,
    /// First memory unit.
    pub start: u32,
    /// Memory units.
    pub size: u32,
    /// Compute instances.
    pub compute: Vec<ComputeInstance>,
    /// A handle that somebody leaked: it cannot be destroyed, and no process shows why.
    pub held: bool,
}

/// A compute instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ComputeInstance {
    /// Its ID.
    pub id: u32,
    /// ID of its profile.
    pub profile: u32,
    /// Compute slices.
    pub slices: u32,
}

/// A process on a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Process {
    /// PID.
    pub pid: u32,
    /// GPU instance.
    pub instance: Option<u32>,
}

/// A call that is to fail.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Fault {
    /// Name of the C function; `None` for whichever is called.
    pub function: Option<String>,
    /// Calls that succeed first.
    pub after: u64,
    /// Calls that fail then.
    pub times: u64,
    /// What they answer.
    pub code: u32,
}

/// A call that changes something.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Write {
    /// Name of the C function.
    pub function: String,
    /// Minor number of the GPU.
    pub gpu: u32,
    /// What was asked for.
    pub asked: String,
    /// What was answered; 0 is success.
    pub code: u32,
    /// Which call it was of all calls so far, from 1.
    pub at: u64,
}

/// Reads the state, lets `change` work on it, and writes it back, alone of all processes.
///
/// # Errors
/// When the file is not there or no state.
pub fn with<T>(path: &Path, change: impl FnOnce(&mut State) -> T) -> io::Result<T> {
    let _alone = alone(path)?;
    let mut state: State = serde_json::from_slice(&fs::read(path)?)?;
    let answer = change(&mut state);
    write(path, &state)?;
    Ok(answer)
}

/// Writes a first state.
///
/// # Errors
/// When the file cannot be written.
pub(crate) fn begin(path: &Path, state: &State) -> io::Result<()> {
    let _alone = alone(path)?;
    write(path, state)
}

/// The lock on a file beside, held until dropped.
fn alone(path: &Path) -> io::Result<File> {
    let lock = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path.with_extension("lock"))?;
    lock.lock()?;
    Ok(lock)
}

/// Overwrites the file with one system call, so that a process killed meanwhile leaves a whole state; blanks take the place of
/// what was longer. (A draft renamed over it is written through to the disk by some file systems: far too slow here.)
fn write(path: &Path, state: &State) -> io::Result<()> {
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path)?;
    let mut text = serde_json::to_vec(state)?;
    let before = usize::try_from(file.metadata()?.len()).unwrap_or(0);
    text.resize(text.len().max(before), b' ');
    file.write_all_at(&text, 0)
}
