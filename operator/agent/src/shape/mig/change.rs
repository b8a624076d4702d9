//! One GPU brought to a geometry, forward or back.
//!
//! Level-triggered: it looks at what is there and does what is missing, so that it goes on where a crash or a refusal left off.

use freehold_core::geometry::Placement;
use freehold_nvml::{Activation, Code, Error, Gpu, GpuInstance, Session};

use super::aim::Geometry;
use super::machine::name;
use super::trouble::Trouble;
use super::users;
use crate::host::Host;

/// Why a GPU is not where it was to go.
#[derive(Debug)]
pub enum Stop {
    /// The mode waits for somebody to reset the GPU or restart the host. There is nothing to take back: it goes on by itself
    /// once that happened.
    Waits(Trouble),
    /// It went wrong on the way.
    Broke(Trouble),
}

/// Works on one GPU.
#[derive(Debug)]
pub struct Maker<'a> {
    pub session: &'a Session,
    pub host: &'a Host,
    pub uuid: &'a str,
    pub minor: u32,
}

impl Maker<'_> {
    /// Brings the GPU there: mode first, then away with what is not wanted, then what is missing; and the mode last where it
    /// is to be off.
    ///
    /// # Errors
    /// See [`Stop`].
    pub fn make(&self, target: &Geometry) -> Result<(), Stop> {
        if target.mig {
            self.set_mode(true)?;
        }
        self.clear(target).map_err(Stop::Broke)?;
        self.fill(target).map_err(Stop::Broke)?;
        if !target.mig {
            self.set_mode(false)?;
        }
        Ok(())
    }

    fn gpu(&self) -> Result<Gpu<'_>, Trouble> {
        self.session
            .gpu_by_uuid(self.uuid)
            .map_err(|error| self.refused(&error))
    }

    fn refused(&self, error: &Error) -> Trouble {
        Trouble::refused(&name(self.minor), error, || self.users())
    }

    /// Who uses the GPU, in words.
    fn users(&self) -> String {
        let processes = self
            .session
            .gpu_by_uuid(self.uuid)
            .and_then(Gpu::processes)
            .unwrap_or_default();
        let pids: Vec<u32> = processes.iter().map(|process| process.pid).collect();
        users::named(self.host, &pids)
    }

    fn set_mode(&self, on: bool) -> Result<(), Stop> {
        let broke = |error: Error| Stop::Broke(self.refused(&error));
        let gpu = self.gpu().map_err(Stop::Broke)?;
        let is_there = |gpu: Gpu<'_>| {
            let mode = gpu.mode().map_err(broke)?;
            Ok(mode.map_or(!on, |mode| mode.current == on && mode.pending == on))
        };
        if is_there(gpu)? {
            return Ok(());
        }
        let activation = gpu.set_mode(on).map_err(broke)?;
        // The driver may have reset the GPU: the handle of before is void.
        let is_there = is_there(self.gpu().map_err(Stop::Broke)?)?;
        let who = name(self.minor);
        let mode = if on { "MIG mode" } else { "leaving MIG mode" };
        Err(match activation {
            Activation::Done if is_there => return Ok(()),
            Activation::Done => Stop::Waits(Trouble::ResetRequired(format!(
                "{who}: {mode} waits for a reset of the GPU (nvidia-smi --gpu-reset) or a restart of the host"
            ))),
            Activation::InUse => Stop::Broke(Trouble::Busy(format!(
                "{who}: {mode} needs a reset, and the GPU is {}",
                self.users()
            ))),
            Activation::ResetRequired => Stop::Waits(Trouble::RebootRequired(format!(
                "{who}: {mode} waits for a restart of the host: its driver cannot reset the GPU here (RESET_REQUIRED, 16)"
            ))),
            Activation::NotSupported => Stop::Waits(Trouble::Failed(format!(
                "{who}: {mode} was accepted and cannot be activated (NOT_SUPPORTED, 3): a GPU passed through to a virtual machine is not reset by its guest; restart the virtual machine, or set the mode on its host"
            ))),
            Activation::Refused(code) => Stop::Broke(Trouble::Failed(format!(
                "{who}: {mode} was accepted and not activated: {code}"
            ))),
        })
    }

    /// Destroys what the target does not have. What is gone already is gone.
    fn clear(&self, target: &Geometry) -> Result<(), Trouble> {
        let gpu = self.gpu()?;
        for instance in self.instances(gpu)? {
            if !target.instances.contains(&place(&instance)) {
                self.destroy(gpu, instance.id)
                    .map_err(|error| self.refused(&error))?;
            }
        }
        Ok(())
    }

    fn destroy(&self, gpu: Gpu<'_>, instance: u32) -> Result<(), Error> {
        for compute in gpu.compute_instances(instance)? {
            gone(gpu.destroy_compute_instance(instance, compute.id))?;
        }
        gone(gpu.destroy_instance(instance))
    }

    /// Makes what the target has, and makes whole what is there.
    fn fill(&self, target: &Geometry) -> Result<(), Trouble> {
        if target.instances.is_empty() {
            return Ok(());
        }
        let gpu = self.gpu()?;
        let there = self.instances(gpu)?;
        for (profile, placement) in &target.instances {
            let found = there
                .iter()
                .find(|instance| place(instance) == (*profile, *placement));
            match found {
                Some(instance) => self.make_whole(gpu, instance.id),
                None => self.create(gpu, *profile, *placement),
            }
            .map_err(|error| self.refused(&error))?;
        }
        Ok(())
    }

    fn create(&self, gpu: Gpu<'_>, profile: u32, placement: Placement) -> Result<(), Error> {
        let instance = gpu.create_instance(profile, placement)?.id;
        gpu.create_whole_compute_instance(instance)
            .map(|_| ())
            .inspect_err(|_| {
                // An instance without its compute instance is of use to nobody. Should it stay, it is found by the next look.
                let _ = gpu.destroy_instance(instance);
            })
    }

    fn make_whole(&self, gpu: Gpu<'_>, instance: u32) -> Result<(), Error> {
        let compute = gpu.compute_instances(instance)?;
        if matches!(compute.as_slice(), [one] if one.whole) {
            return Ok(());
        }
        for part in compute {
            gone(gpu.destroy_compute_instance(instance, part.id))?;
        }
        gpu.create_whole_compute_instance(instance).map(|_| ())
    }

    fn instances(&self, gpu: Gpu<'_>) -> Result<Vec<GpuInstance>, Trouble> {
        let read = || {
            // With MIG off there are none, and some drivers do not even say what there could be.
            if !gpu.mode()?.is_some_and(|mode| mode.current) {
                return Ok(Vec::new());
            }
            gpu.instances()
        };
        read().map_err(|error| self.refused(&error))
    }
}

const fn place(instance: &GpuInstance) -> (u32, Placement) {
    (instance.profile, instance.placement)
}

/// What is not there any more was to go.
fn gone(destroyed: Result<(), Error>) -> Result<(), Error> {
    match destroyed {
        Err(error) if error.is(Code::NotFound) => Ok(()),
        answer => answer,
    }
}
