//! What is there: every GPU of the node, as NVML tells it at one moment.

use std::collections::{BTreeMap, BTreeSet};

use freehold_core::geometry::{Board, Instance, Profile};
use freehold_nvml::{Code, Error, Gpu as NvmlGpu, GpuInstance, Mode, Session};

use super::trouble::Trouble;

/// All GPUs.
#[derive(Debug)]
pub struct Machine {
    /// Version of the driver.
    pub driver: String,
    /// Those that could be read, by minor number.
    pub gpus: Vec<Gpu>,
    /// Why others could not.
    pub unreadable: Vec<Trouble>,
}

/// One GPU.
#[derive(Debug)]
pub struct Gpu {
    /// UUID: what it is found by after its mode was changed.
    pub uuid: String,
    /// Minor number: what layouts name it by.
    pub minor: u32,
    /// What it is.
    pub name: String,
    /// MIG mode; `None` where it has no MIG.
    pub mode: Option<Mode>,
    /// What its driver offers; why it does not say, while MIG mode is off.
    pub profiles: Result<Vec<Profile>, String>,
    /// GPU instances, by ID.
    pub instances: Vec<Live>,
    /// PIDs of those who use it outside of any instance.
    pub users: Vec<u32>,
}

/// One GPU instance.
#[derive(Debug)]
pub struct Live {
    /// The instance.
    pub found: GpuInstance,
    /// Whether it has one compute instance, which has all its slices: what a layout means by an instance.
    pub whole: bool,
    /// PIDs of those who use it.
    pub users: Vec<u32>,
}

/// Looks at every GPU.
///
/// # Errors
/// When not even their number can be read, or the driver's version.
pub fn survey(session: &Session) -> Result<Machine, Error> {
    let mut machine = Machine {
        driver: session.driver_version()?,
        gpus: Vec::new(),
        unreadable: Vec::new(),
    };
    for index in 0..session.gpu_count()? {
        let mut who = format!("the GPU with NVML index {index}");
        let read = session.gpu(index).and_then(|gpu| {
            let minor = gpu.minor()?;
            who = name(minor);
            read(gpu, minor)
        });
        match read {
            Ok(gpu) => machine.gpus.push(gpu),
            Err(error) => machine
                .unreadable
                .push(Trouble::refused(&who, &error, String::new)),
        }
    }
    machine.gpus.sort_by_key(|gpu| gpu.minor);
    Ok(machine)
}

fn read(gpu: NvmlGpu<'_>, minor: u32) -> Result<Gpu, Error> {
    let mode = gpu.mode()?;
    let is_on = mode.is_some_and(|mode| mode.current);
    let processes = gpu.processes()?;
    let users = |instance: Option<u32>| {
        let users: BTreeSet<u32> = processes
            .iter()
            .filter(|process| process.instance == instance)
            .map(|process| process.pid)
            .collect();
        users.into_iter().collect::<Vec<u32>>()
    };
    let mut instances = Vec::new();
    let profiles = match gpu.rows() {
        Ok(rows) if rows.is_empty() && mode.is_some() && !is_on => {
            Err("NVML lists no profile".to_owned())
        }
        Ok(rows) => {
            if is_on {
                for found in gpu.instances()? {
                    let compute = gpu.compute_instances(found.id)?;
                    instances.push(Live {
                        found,
                        whole: matches!(compute.as_slice(), [one] if one.whole),
                        users: users(Some(found.id)),
                    });
                }
            }
            Ok(rows.into_iter().map(|row| row.profile).collect())
        }
        Err(error) if !is_on && !error.is(Code::GpuIsLost) => Err(error.to_string()),
        Err(error) => return Err(error),
    };
    Ok(Gpu {
        uuid: gpu.uuid()?,
        minor,
        name: gpu.name()?,
        mode,
        profiles,
        instances,
        users: users(None),
    })
}

/// How a GPU is called in a sentence.
pub fn name(minor: u32) -> String {
    format!("GPU {minor}")
}

impl Machine {
    /// The boards: GPUs with the same table, in the order of their first GPU. GPUs without MIG are in none.
    pub fn boards(&self) -> Vec<Board> {
        let mut boards: Vec<Board> = Vec::new();
        for gpu in &self.gpus {
            let Some(profiles) = gpu.profiles().filter(|profiles| !profiles.is_empty()) else {
                continue;
            };
            match boards.iter_mut().find(|board| board.profiles == profiles) {
                Some(board) => board.gpus.push(gpu.minor),
                None => boards.push(Board {
                    gpus: vec![gpu.minor],
                    profiles: profiles.to_vec(),
                }),
            }
        }
        boards
    }

    /// Instances: GPU → instance → name of the profile.
    pub fn instances(&self) -> BTreeMap<u32, BTreeMap<u32, String>> {
        self.gpus
            .iter()
            .filter(|gpu| !gpu.instances.is_empty())
            .map(|gpu| {
                let instances = gpu.instances.iter();
                let named =
                    instances.map(|live| (live.found.id, gpu.profile_name(live.found.profile)));
                (gpu.minor, named.collect())
            })
            .collect()
    }

    /// GPUs whose MIG mode is on.
    pub fn mig_enabled(&self) -> Vec<u32> {
        let on = self.gpus.iter().filter(|gpu| gpu.is_on());
        on.map(|gpu| gpu.minor).collect()
    }
}

impl Gpu {
    /// What its driver offers, as far as it says.
    pub fn profiles(&self) -> Option<&[Profile]> {
        self.profiles.as_deref().ok()
    }

    /// Whether MIG mode is on.
    pub fn is_on(&self) -> bool {
        self.mode.is_some_and(|mode| mode.current)
    }

    /// The instances as the planner takes them.
    pub fn live(&self) -> Vec<Instance> {
        self.instances
            .iter()
            .map(|live| Instance {
                id: live.found.id,
                profile: live.found.profile,
                placement: live.found.placement,
                busy: !live.users.is_empty(),
            })
            .collect()
    }

    /// Everybody who uses it, in an instance or outside.
    pub fn all_users(&self) -> Vec<u32> {
        let in_instances = self.instances.iter().flat_map(|live| &live.users);
        self.users.iter().chain(in_instances).copied().collect()
    }

    /// A profile's name.
    pub fn profile_name(&self, id: u32) -> String {
        self.profiles()
            .and_then(|profiles| profiles.iter().find(|profile| profile.id == id))
            .map_or_else(|| format!("profile {id}"), |profile| profile.name.clone())
    }

    /// What it carries, e.g. `2×3g.40gb` or `no instance`.
    pub fn carries(&self) -> String {
        if !self.is_on() {
            return "has MIG off".to_owned();
        }
        let mut counts = BTreeMap::<String, u32>::new();
        for live in &self.instances {
            let mut name = self.profile_name(live.found.profile);
            if !live.whole {
                name += " without its whole compute instance";
            }
            *counts.entry(name).or_default() += 1;
        }
        if counts.is_empty() {
            return "has MIG on and carries no instance".to_owned();
        }
        let parts: Vec<String> = counts
            .iter()
            .map(|(name, count)| format!("{count}×{name}"))
            .collect();
        format!("carries {}", parts.join(" + "))
    }
}
