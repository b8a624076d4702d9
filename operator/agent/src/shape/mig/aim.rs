//! Where each GPU is to go: from a layout and what is there to a geometry with explicit places.

use freehold_core::geometry::{Placement, Refusal, plan};
use freehold_core::intent::MigLayout;
use freehold_core::report::MigProfileCount;
use serde::{Deserialize, Serialize};

use super::machine::{Gpu, Machine, name};
use super::trouble::Trouble;
use super::users;
use crate::host::Host;

/// What a GPU carries: places and all.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Geometry {
    /// MIG mode.
    pub mig: bool,
    /// Instances by profile ID and place, each with one compute instance that has all its slices.
    pub instances: Vec<(u32, Placement)>,
}

impl Geometry {
    /// What a GPU carries now, to go back to. MIG on without an instance is good for nobody, so that becomes off.
    pub fn of(gpu: &Gpu) -> Self {
        let mut instances: Vec<(u32, Placement)> = gpu
            .instances
            .iter()
            .map(|live| (live.found.profile, live.found.placement))
            .collect();
        instances.sort_unstable();
        Self {
            mig: gpu.is_on() && !instances.is_empty(),
            instances,
        }
    }
}

/// What a layout wants on a GPU. Of entries that name it the last counts; without one it has no MIG.
pub fn wanted(layouts: &[MigLayout], minor: u32) -> &[MigProfileCount] {
    layouts
        .iter()
        .rev()
        .find(|layout| {
            let gpus = layout.gpus.as_ref();
            gpus.is_none_or(|gpus| gpus.contains(&minor))
        })
        .map_or(&[], |layout| &layout.instances)
}

/// GPUs that a layout names and the machine does not have.
pub fn missing(layouts: &[MigLayout], machine: &Machine) -> Option<Trouble> {
    let mut named = layouts
        .iter()
        .filter_map(|layout| layout.gpus.as_ref())
        .flatten();
    let absent = named.find(|minor| machine.gpus.iter().all(|gpu| gpu.minor != **minor))?;
    let there: Vec<String> = machine
        .gpus
        .iter()
        .map(|gpu| gpu.minor.to_string())
        .collect();
    let sentence = format!(
        "the layout names GPU {absent}, and this node has GPUs {}",
        there.join(", ")
    );
    // One that cannot be read may be the one that is named.
    Some(if machine.unreadable.is_empty() {
        Trouble::Infeasible(sentence)
    } else {
        Trouble::Failed(sentence)
    })
}

/// Where a GPU is to go; `None` when it is there.
///
/// # Errors
/// When it cannot go there, or not now.
pub fn aim(
    gpu: &Gpu,
    wanted: &[MigProfileCount],
    driver: &str,
    host: &Host,
) -> Result<Option<Geometry>, Trouble> {
    let who = name(gpu.minor);
    let busy = |what: &str, pids: &[u32]| {
        Trouble::Busy(format!("{who} {what}: {}", users::named(host, pids)))
    };
    let Some(mode) = gpu.mode else {
        return if wanted.is_empty() {
            Ok(None)
        } else {
            Err(Trouble::Infeasible(format!(
                "{who} ({}) has no MIG: name the GPUs that have",
                gpu.name
            )))
        };
    };
    if wanted.is_empty() {
        if !mode.current && !mode.pending {
            return Ok(None);
        }
        let users = gpu.all_users();
        if !users.is_empty() {
            return Err(busy("cannot leave MIG mode while in use", &users));
        }
        return Ok(Some(Geometry {
            mig: false,
            instances: Vec::new(),
        }));
    }
    let profiles = gpu.profiles.as_ref().map_err(|error| {
        Trouble::Failed(format!(
            "{who}: driver {driver} does not say what the board offers while MIG mode is off ({error}): update the driver, or turn MIG mode on once by hand"
        ))
    })?;
    let plan = plan(gpu.minor, profiles, &gpu.live(), wanted).map_err(|refusal| match refusal {
        Refusal::Infeasible(message) => Trouble::Infeasible(message),
        Refusal::Blocked { message, instances } => {
            let pids: Vec<u32> = gpu
                .instances
                .iter()
                .filter(|live| instances.iter().any(|other| other.id == live.found.id))
                .flat_map(|live| live.users.iter().copied())
                .collect();
            Trouble::Busy(format!("{message}: {}", users::named(host, &pids)))
        }
    })?;
    let broken: Vec<_> = gpu
        .instances
        .iter()
        .filter(|live| !live.whole && plan.keep.iter().any(|kept| kept.id == live.found.id))
        .collect();
    if mode.current && mode.pending && plan.is_empty() && broken.is_empty() {
        return Ok(None);
    }
    if !mode.current && !gpu.users.is_empty() {
        return Err(busy("cannot enter MIG mode while in use", &gpu.users));
    }
    let in_broken: Vec<u32> = broken
        .iter()
        .flat_map(|live| live.users.iter().copied())
        .collect();
    if !in_broken.is_empty() {
        return Err(busy(
            "has an instance in use whose compute instance is a part of it",
            &in_broken,
        ));
    }
    let kept = plan.keep.iter().map(|kept| (kept.profile, kept.placement));
    let mut instances: Vec<(u32, Placement)> = kept.chain(plan.create.iter().copied()).collect();
    instances.sort_unstable();
    Ok(Some(Geometry {
        mig: true,
        instances,
    }))
}
