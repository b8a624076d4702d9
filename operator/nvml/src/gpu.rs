//! One GPU.

use freehold_core::geometry::Placement;

use crate::Error;
use crate::error::Code;
use crate::raw::{Device, RawInstance};
use crate::row::{self, Row};

/// What NVML writes for a process that is in no GPU instance.
const NO_INSTANCE: u32 = u32::MAX;

/// One GPU of a [`Session`](crate::Session).
#[derive(Clone, Copy, Debug)]
pub struct Gpu<'s> {
    device: Device<'s>,
}

/// MIG mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mode {
    /// On now.
    pub current: bool,
    /// On after the next reset, where the two differ.
    pub pending: bool,
}

/// Whether a mode that was asked for took effect. NVML accepts the request either way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// It did, or a reset is yet to come: [`Gpu::mode`] tells.
    Done,
    /// Not now: somebody uses the GPU.
    InUse,
    /// Not by itself: in a virtual machine, that restarts.
    ResetRequired,
    /// Not here: a hypervisor in between refuses the reset.
    NotSupported,
    /// Not, and NVML says why.
    Refused(Code),
}

/// A GPU instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GpuInstance {
    /// Its ID on this GPU.
    pub id: u32,
    /// ID of its profile.
    pub profile: u32,
    /// Where it is.
    pub placement: Placement,
}

/// A compute instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ComputeInstance {
    /// Its ID in its GPU instance.
    pub id: u32,
    /// Whether it has all compute slices of its GPU instance.
    pub whole: bool,
}

/// A process that uses a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Process {
    /// Its PID, as seen from the PID namespace of the caller.
    pub pid: u32,
    /// The GPU instance that it is in; `None` outside of MIG.
    pub instance: Option<u32>,
}

impl<'s> Gpu<'s> {
    pub(crate) const fn new(device: Device<'s>) -> Self {
        Self { device }
    }

    /// UUID, e.g. `GPU-1a2b…`.
    ///
    /// # Errors
    /// When NVML refuses.
    pub fn uuid(self) -> Result<String, Error> {
        self.device.uuid()
    }

    /// The N of `/dev/nvidia<N>`.
    ///
    /// # Errors
    /// When NVML refuses.
    pub fn minor(self) -> Result<u32, Error> {
        self.device.minor()
    }

    /// Name, e.g. `NVIDIA H100 80GB HBM3`.
    ///
    /// # Errors
    /// When NVML refuses.
    pub fn name(self) -> Result<String, Error> {
        self.device.name()
    }

    /// MIG mode; `None` where the GPU has no MIG.
    ///
    /// # Errors
    /// When NVML refuses.
    pub fn mode(self) -> Result<Option<Mode>, Error> {
        match self.device.mig_mode() {
            Ok((current, pending)) => Ok(Some(Mode {
                current: current != 0,
                pending: pending != 0,
            })),
            Err(error) if error.is_unsupported() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Asks for a MIG mode. Ends this value: the driver may reset the GPU, after which it must be looked up anew.
    ///
    /// # Errors
    /// When NVML does not take the request.
    pub fn set_mode(self, on: bool) -> Result<Activation, Error> {
        let status = self.device.set_mig_mode(u32::from(on))?;
        if status == 0 {
            return Ok(Activation::Done);
        }
        let code = Code::from_number(status);
        Ok(if code == Code::InUse {
            Activation::InUse
        } else if code == Code::ResetRequired {
            Activation::ResetRequired
        } else if code == Code::NotSupported {
            Activation::NotSupported
        } else {
            Activation::Refused(code)
        })
    }

    /// What NVML offers on this GPU, by profile ID. Empty where it has no MIG.
    ///
    /// # Errors
    /// When NVML refuses, as drivers before 545 do while MIG mode is off.
    pub fn rows(self) -> Result<Vec<Row>, Error> {
        row::rows(self.device)
    }

    /// GPU instances, by ID, those of profiles that no row tells of included. None while MIG mode is off.
    ///
    /// # Errors
    /// When NVML refuses.
    pub fn instances(self) -> Result<Vec<GpuInstance>, Error> {
        let mut instances = Vec::new();
        for (_, profile) in row::kinds(self.device)? {
            match self.device.instances(profile.id) {
                Ok(found) => {
                    for instance in &found {
                        instances.push(gpu_instance(instance)?);
                    }
                }
                Err(error) if error.is(Code::NotSupported) || error.is(Code::InvalidArgument) => {}
                Err(error) => return Err(error),
            }
        }
        instances.sort_unstable_by_key(|instance| instance.id);
        instances.dedup_by_key(|instance| instance.id);
        Ok(instances)
    }

    /// Makes a GPU instance at a place.
    ///
    /// # Errors
    /// When NVML refuses: [`Code::InsufficientResources`] where something is there already.
    pub fn create_instance(self, profile: u32, placement: Placement) -> Result<GpuInstance, Error> {
        gpu_instance(&self.device.create_instance(
            profile,
            placement.start.into(),
            placement.size.into(),
        )?)
    }

    /// Destroys a GPU instance, whose compute instances must be gone.
    ///
    /// # Errors
    /// When NVML refuses: [`Code::InUse`] while somebody uses it, [`Code::NotFound`] when it is gone already.
    pub fn destroy_instance(self, instance: u32) -> Result<(), Error> {
        self.device.destroy_instance(instance)
    }

    /// Compute instances of a GPU instance, by ID.
    ///
    /// # Errors
    /// When NVML refuses.
    pub fn compute_instances(self, instance: u32) -> Result<Vec<ComputeInstance>, Error> {
        let profiles = self.device.compute_profiles(instance)?;
        let most = profiles.iter().map(|(_, slices)| *slices).max();
        let ids = profiles.iter().map(|(id, _)| *id);
        let mut found: Vec<ComputeInstance> = self
            .device
            .compute_instances(instance, ids)?
            .into_iter()
            .map(|(id, profile)| {
                let slices = profiles.iter().find(|(other, _)| *other == profile);
                ComputeInstance {
                    id,
                    whole: slices.is_some() && slices.map(|(_, slices)| *slices) == most,
                }
            })
            .collect();
        found.sort_unstable_by_key(|compute| compute.id);
        found.dedup_by_key(|compute| compute.id);
        Ok(found)
    }

    /// Makes the compute instance that has all slices of its GPU instance; answers its ID.
    ///
    /// # Errors
    /// When NVML refuses.
    pub fn create_whole_compute_instance(self, instance: u32) -> Result<u32, Error> {
        let profile = self
            .device
            .compute_profiles(instance)?
            .into_iter()
            // The first of those with the most slices: later kinds are variants of it.
            .reduce(|best, next| if next.1 > best.1 { next } else { best })
            .ok_or_else(|| Error::Nonsense {
                call: "nvmlGpuInstanceGetComputeInstanceProfileInfo",
                found: format!("no compute profile for GPU instance {instance}"),
            })?;
        self.device.create_compute(instance, profile.0)
    }

    /// Destroys a compute instance.
    ///
    /// # Errors
    /// When NVML refuses: [`Code::InUse`] while somebody uses it, [`Code::NotFound`] when it is gone already.
    pub fn destroy_compute_instance(self, instance: u32, compute: u32) -> Result<(), Error> {
        self.device.destroy_compute(instance, compute)
    }

    /// Processes that use the GPU. NVML shows those that the caller's PID namespace shows.
    ///
    /// # Errors
    /// When NVML refuses.
    pub fn processes(self) -> Result<Vec<Process>, Error> {
        let mut processes: Vec<Process> = self
            .device
            .processes()?
            .into_iter()
            .map(|(pid, instance)| Process {
                pid,
                instance: (instance != NO_INSTANCE).then_some(instance),
            })
            .collect();
        processes.sort_unstable();
        processes.dedup();
        Ok(processes)
    }
}

fn gpu_instance(raw: &RawInstance) -> Result<GpuInstance, Error> {
    let unit = |number: u32| {
        u8::try_from(number).map_err(|_| Error::Nonsense {
            call: "nvmlGpuInstanceGetInfo",
            found: format!("unit {number} for GPU instance {}", raw.id),
        })
    };
    Ok(GpuInstance {
        id: raw.id,
        profile: raw.profile,
        placement: Placement {
            start: unit(raw.start)?,
            size: unit(raw.size)?,
        },
    })
}
