//! How a test sets the fake up, disturbs it, and reads what was done.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::board::Board;
use crate::state::{self, Fault, Gpu, ModeChange, Process, State, Write};
use crate::{STATE_FILE, STATE_VARIABLE, driver, procfs};

/// A set of fake GPUs: one state file.
#[derive(Clone, Debug)]
pub struct FakeNvml {
    path: PathBuf,
}

impl FakeNvml {
    /// GPUs of these boards, MIG off, with minor numbers from 0.
    ///
    /// # Errors
    /// When the state file cannot be written.
    pub fn create(directory: &Path, boards: &[Board]) -> io::Result<Self> {
        let gpus = boards
            .iter()
            .zip(0..)
            .map(|(board, minor)| gpu(*board, minor));
        let fake = Self {
            path: directory.join(STATE_FILE),
        };
        let state = State {
            driver_version: "580.95.05".to_owned(),
            profile_structure: 3,
            profiles_while_off: true,
            privileged: true,
            host_root: None,
            gpus: gpus.collect(),
            faults: Vec::new(),
            calls: BTreeMap::new(),
            processes: BTreeMap::new(),
            writes: Vec::new(),
        };
        state::begin(&fake.path, &state)?;
        Ok(fake)
    }

    /// Installs a driver below a host's root: the library where a distribution puts it, and its state beside it, with the
    /// host's procfs kept in step.
    ///
    /// # Errors
    /// When a file cannot be written, or the library was not built.
    pub fn install(root: &Path, boards: &[Board]) -> io::Result<Self> {
        let directory = root.join("usr/lib/x86_64-linux-gnu");
        fs::create_dir_all(&directory)?;
        // A copy: a loader takes a link for the file that it has open already.
        fs::copy(library()?, directory.join("libnvidia-ml.so.1"))?;
        let fake = Self::create(&directory, boards)?;
        fake.serve_host(root)?;
        Ok(fake)
    }

    /// The same GPUs, from another process or another part of a test.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// What a process needs in its environment to see these GPUs.
    #[must_use]
    pub fn environment(&self) -> (&'static str, &Path) {
        (STATE_VARIABLE, &self.path)
    }

    /// Changes the state by hand, as somebody at the machine would.
    ///
    /// # Errors
    /// When the file cannot be read or written, or the host's procfs not be kept in step.
    pub fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> io::Result<T> {
        state::with(&self.path, |state| {
            let answer = change(state);
            procfs::follow(state)?;
            Ok(answer)
        })?
    }

    /// The state.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn state(&self) -> io::Result<State> {
        state::with(&self.path, |state| state.clone())
    }

    /// Keeps the procfs of the host below this root in step from now on.
    ///
    /// # Errors
    /// As [`FakeNvml::change`].
    pub fn serve_host(&self, root: &Path) -> io::Result<()> {
        self.change(|state| state.host_root = Some(root.to_owned()))
    }

    /// Changes one GPU by hand.
    ///
    /// # Errors
    /// As [`FakeNvml::change`], or when there is no GPU with this minor number.
    pub fn change_gpu<T>(&self, minor: u32, change: impl FnOnce(&mut Gpu) -> T) -> io::Result<T> {
        self.change(|state| {
            let gpu = state.gpus.iter_mut().find(|gpu| gpu.minor == minor);
            gpu.map(change)
                .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "no such GPU"))
        })?
    }

    /// Lets a process use an instance.
    ///
    /// # Errors
    /// As [`FakeNvml::change_gpu`].
    pub fn occupy(&self, minor: u32, instance: u32, pid: u32) -> io::Result<()> {
        self.change_gpu(minor, |gpu| {
            gpu.processes.push(Process {
                pid,
                instance: Some(instance),
            });
        })
    }

    /// Ends a process.
    ///
    /// # Errors
    /// As [`FakeNvml::change`].
    pub fn end(&self, pid: u32) -> io::Result<()> {
        self.change(|state| {
            for gpu in &mut state.gpus {
                gpu.processes.retain(|process| process.pid != pid);
            }
        })
    }

    /// Makes instances by hand, `(profile ID, start)`, each with its whole compute instance.
    ///
    /// # Errors
    /// As [`FakeNvml::change_gpu`], or the driver's refusal.
    pub fn carve(&self, minor: u32, instances: &[(u32, u32)]) -> io::Result<()> {
        self.change_gpu(minor, |gpu| {
            gpu.mig = true;
            gpu.pending = true;
            for (profile, start) in instances {
                let made = driver::create_instance(gpu, *profile, Some(*start)).and_then(|id| {
                    let table = gpu.board.table();
                    let slices = table.row(*profile).map_or(0, |row| row.slices);
                    let compute = table
                        .compute
                        .iter()
                        .find(|compute| compute.slices == slices);
                    driver::create_compute(gpu, id, compute.map_or(u32::MAX, |row| row.id))
                });
                if let Err(code) = made {
                    return Err(io::Error::other(format!("the fake answered {code}")));
                }
            }
            Ok(())
        })?
    }

    /// Resets one GPU, as an administrator would.
    ///
    /// # Errors
    /// As [`FakeNvml::change_gpu`].
    pub fn reset(&self, minor: u32) -> io::Result<()> {
        self.change_gpu(minor, driver::reset)
    }

    /// Reboots the host.
    ///
    /// # Errors
    /// As [`FakeNvml::change`].
    pub fn reboot(&self) -> io::Result<()> {
        self.change(|state| state.gpus.iter_mut().for_each(driver::reboot))
    }

    /// Lets one call of a function fail, after so many that do not.
    ///
    /// # Errors
    /// As [`FakeNvml::change`].
    pub fn fail(&self, function: &str, after: u64, code: u32) -> io::Result<()> {
        self.fail_times(function, after, 1, code)
    }

    /// Lets calls of a function fail, after so many that do not.
    ///
    /// # Errors
    /// As [`FakeNvml::change`].
    pub fn fail_times(&self, function: &str, after: u64, times: u64, code: u32) -> io::Result<()> {
        self.script(Some(function), after, times, code)
    }

    /// Lets one call fail, whichever it is, after so many that do not.
    ///
    /// # Errors
    /// As [`FakeNvml::change`].
    pub fn fail_any(&self, after: u64, code: u32) -> io::Result<()> {
        self.script(None, after, 1, code)
    }

    fn script(&self, function: Option<&str>, after: u64, times: u64, code: u32) -> io::Result<()> {
        self.change(|state| {
            state.faults.push(Fault {
                function: function.map(str::to_owned),
                after,
                times,
                code,
            });
        })
    }

    /// A GPU's instances: name of the profile and first memory unit, by start. Those without a compute instance, or with
    /// several, say so.
    ///
    /// # Errors
    /// As [`FakeNvml::change_gpu`].
    pub fn instances(&self, minor: u32) -> io::Result<Vec<(String, u32)>> {
        self.change_gpu(minor, |gpu| {
            let table = gpu.board.table();
            let mut instances: Vec<(String, u32)> = gpu
                .instances
                .iter()
                .map(|instance| {
                    let row = table.row(instance.profile);
                    let name = row.map_or("?", |row| &row.name);
                    let slices: Vec<u32> = instance
                        .compute
                        .iter()
                        .map(|compute| compute.slices)
                        .collect();
                    let whole = row.is_some_and(|row| slices == [row.slices]);
                    let name = if whole {
                        name.to_owned()
                    } else {
                        format!("{name} with compute {slices:?}")
                    };
                    (name, instance.start)
                })
                .collect();
            instances.sort_by_key(|(_, start)| *start);
            instances
        })
    }

    /// The calls so far that change something, and forgets them.
    ///
    /// # Errors
    /// As [`FakeNvml::change`].
    pub fn take_writes(&self) -> io::Result<Vec<Write>> {
        self.change(|state| std::mem::take(&mut state.writes))
    }

    /// Calls so far, of any kind.
    ///
    /// # Errors
    /// As [`FakeNvml::state`].
    pub fn calls(&self) -> io::Result<u64> {
        Ok(self.state()?.calls.values().sum())
    }
}

/// A GPU as it comes: MIG off, nobody there.
#[must_use]
pub fn gpu(board: Board, minor: u32) -> Gpu {
    Gpu {
        board,
        minor,
        uuid: format!("GPU-5eed0000-0000-4000-8000-0000{minor:08x}"),
        mig: false,
        pending: false,
        mode_change: ModeChange::Works,
        instances: Vec::new(),
        processes: Vec::new(),
        unseen_client: false,
        lost: false,
    }
}

/// The built library, beside the test or program that asks. Cargo builds it with whatever depends on this crate.
///
/// # Errors
/// When it is not there.
pub fn library() -> io::Result<PathBuf> {
    const NAME: &str = "libfreehold_fake_nvml.so";
    let program = env::current_exe()?;
    // Tests lie in `deps`, programs above it.
    program
        .ancestors()
        .skip(1)
        .take(2)
        .flat_map(|directory| [directory.join("deps").join(NAME), directory.join(NAME)])
        .find(|path| path.is_file())
        .ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::NotFound,
                format!("no {NAME} near {}", program.display()),
            )
        })
}
