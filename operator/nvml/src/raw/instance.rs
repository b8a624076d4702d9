//! Profiles, GPU instances and compute instances.

use std::ptr;

use nvml_wrapper_sys::bindings::{
    NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED, nvmlComputeInstance_t, nvmlComputeInstanceInfo_t,
    nvmlComputeInstanceProfileInfo_t, nvmlGpuInstance_t, nvmlGpuInstanceInfo_t,
    nvmlGpuInstancePlacement_t, nvmlGpuInstanceProfileInfo_t, nvmlGpuInstanceProfileInfo_v2_t,
    nvmlGpuInstanceProfileInfo_v3_t,
};

use super::{Device, answer, call, text, version, zeroed};
use crate::Error;
use crate::error::Code;

/// Room for instances of one profile: no board holds more than 8, and some drivers count wrong.
const INSTANCES: usize = 64;
/// Kinds of compute profiles are asked for until NVML says that there are no more. nvml.h 13.3 has 9.
const MOST_COMPUTE_KINDS: u32 = 32;
/// Room for placements of one profile: no board has more than 12.
const PLACEMENTS: usize = 64;

impl Device<'_> {
    /// A kind of profile, in the newest structure that this driver knows. `None` where the GPU has no such profile.
    pub fn profile(self, kind: u32) -> Result<Option<RawProfile>, Error> {
        let answer = match self.profile_v3(kind) {
            Err(error) if is_other_version(&error) => match self.profile_v2(kind) {
                Err(error) if is_other_version(&error) => self.profile_v1(kind),
                answer => answer,
            },
            answer => answer,
        };
        match answer {
            Ok(profile) => Ok(Some(profile)),
            Err(error) if error.is(Code::NotSupported) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn profile_v3(self, kind: u32) -> Result<RawProfile, Error> {
        let mut info: nvmlGpuInstanceProfileInfo_v3_t = zeroed();
        info.version = version::<nvmlGpuInstanceProfileInfo_v3_t>(3);
        // SAFETY: a handle of this library; a structure that says its own size and version, written during the call. nvml.h
        // declares the function for version 2 and documents that it takes version 3 through the same pointer.
        unsafe {
            call!(
                self.raw,
                nvmlDeviceGetGpuInstanceProfileInfoV(self.handle, kind, (&raw mut info).cast())
            )?;
        }
        Ok(RawProfile {
            id: info.id,
            slices: info.sliceCount,
            instances: info.instanceCount,
            memory_mib: info.memorySizeMB,
            name: Some(text(&info.name)).filter(|name| !name.is_empty()),
        })
    }

    fn profile_v2(self, kind: u32) -> Result<RawProfile, Error> {
        let mut info: nvmlGpuInstanceProfileInfo_v2_t = zeroed();
        info.version = version::<nvmlGpuInstanceProfileInfo_v2_t>(2);
        // SAFETY: a handle of this library; a structure that says its own size and version, written during the call.
        unsafe {
            call!(
                self.raw,
                nvmlDeviceGetGpuInstanceProfileInfoV(self.handle, kind, &raw mut info)
            )?;
        }
        Ok(RawProfile {
            id: info.id,
            slices: info.sliceCount,
            instances: info.instanceCount,
            memory_mib: info.memorySizeMB,
            name: Some(text(&info.name)).filter(|name| !name.is_empty()),
        })
    }

    fn profile_v1(self, kind: u32) -> Result<RawProfile, Error> {
        let mut info: nvmlGpuInstanceProfileInfo_t = zeroed();
        // SAFETY: a handle of this library; a structure of this function's only version, written during the call.
        unsafe {
            call!(
                self.raw,
                nvmlDeviceGetGpuInstanceProfileInfo(self.handle, kind, &raw mut info)
            )?;
        }
        Ok(RawProfile {
            id: info.id,
            slices: info.sliceCount,
            instances: info.instanceCount,
            memory_mib: info.memorySizeMB,
            name: None,
        })
    }

    /// Where instances of a profile may lie: start and size.
    pub fn placements(self, profile: u32) -> Result<Vec<(u32, u32)>, Error> {
        let mut buffer: [nvmlGpuInstancePlacement_t; PLACEMENTS] = [zeroed(); PLACEMENTS];
        let mut count = 0;
        // SAFETY: a handle of this library; with a null buffer the function only counts, and writes one number.
        unsafe {
            call!(
                self.raw,
                nvmlDeviceGetGpuInstancePossiblePlacements_v2(
                    self.handle,
                    profile,
                    ptr::null_mut(),
                    &raw mut count
                )
            )?;
        }
        if count as usize > PLACEMENTS {
            return Err(Error::Nonsense {
                call: "nvmlDeviceGetGpuInstancePossiblePlacements_v2",
                found: format!("{count} placements for one profile"),
            });
        }
        // SAFETY: the buffer holds at least the number that was just counted and outlives the call. Placements are constants
        // of the board.
        unsafe {
            call!(
                self.raw,
                nvmlDeviceGetGpuInstancePossiblePlacements_v2(
                    self.handle,
                    profile,
                    buffer.as_mut_ptr(),
                    &raw mut count
                )
            )?;
        }
        Ok(buffer
            .iter()
            .take(count as usize)
            .map(|placement| (placement.start, placement.size))
            .collect())
    }

    /// Instances of a profile.
    pub fn instances(self, profile: u32) -> Result<Vec<RawInstance>, Error> {
        let mut buffer: [nvmlGpuInstance_t; INSTANCES] = [ptr::null_mut(); INSTANCES];
        let mut count = INSTANCES as u32;
        // SAFETY: a handle of this library; the buffer holds far more than any board has of one profile, which is what the
        // function asks for, and outlives the call.
        unsafe {
            call!(
                self.raw,
                nvmlDeviceGetGpuInstances(
                    self.handle,
                    profile,
                    buffer.as_mut_ptr(),
                    &raw mut count
                )
            )?;
        }
        buffer
            .iter()
            .take(count as usize)
            .map(|handle| self.instance_info(*handle))
            .collect()
    }

    fn instance_info(self, handle: nvmlGpuInstance_t) -> Result<RawInstance, Error> {
        let mut info: nvmlGpuInstanceInfo_t = zeroed();
        // SAFETY: a handle that NVML just gave; one structure, written during the call.
        unsafe {
            call!(self.raw, nvmlGpuInstanceGetInfo(handle, &raw mut info))?;
        }
        Ok(RawInstance {
            id: info.id,
            profile: info.profileId,
            start: info.placement.start,
            size: info.placement.size,
        })
    }

    fn instance(self, id: u32) -> Result<nvmlGpuInstance_t, Error> {
        let mut handle = ptr::null_mut();
        // SAFETY: a handle of this library; one handle, written during the call.
        unsafe {
            call!(
                self.raw,
                nvmlDeviceGetGpuInstanceById(self.handle, id, &raw mut handle)
            )?;
        }
        Ok(handle)
    }

    /// Makes an instance at a place; answers what was made.
    pub fn create_instance(
        self,
        profile: u32,
        start: u32,
        size: u32,
    ) -> Result<RawInstance, Error> {
        let placement = nvmlGpuInstancePlacement_t { start, size };
        let mut handle = ptr::null_mut();
        // SAFETY: a handle of this library; one structure that outlives the call, and one handle, written during it.
        unsafe {
            call!(
                self.raw,
                nvmlDeviceCreateGpuInstanceWithPlacement(
                    self.handle,
                    profile,
                    &raw const placement,
                    &raw mut handle
                )
            )?;
        }
        self.instance_info(handle)
    }

    pub fn destroy_instance(self, id: u32) -> Result<(), Error> {
        let handle = self.instance(id)?;
        // SAFETY: a handle that NVML just gave, and that nobody keeps.
        unsafe { call!(self.raw, nvmlGpuInstanceDestroy(handle)) }
    }

    /// Compute profiles of an instance: ID and slices, in the order of their kinds.
    pub fn compute_profiles(self, instance: u32) -> Result<Vec<(u32, u32)>, Error> {
        let handle = self.instance(instance)?;
        let mut profiles = Vec::new();
        for kind in 0..MOST_COMPUTE_KINDS {
            let mut info: nvmlComputeInstanceProfileInfo_t = zeroed();
            // SAFETY: a handle that NVML just gave; one structure, written during the call.
            let answer = unsafe {
                call!(
                    self.raw,
                    nvmlGpuInstanceGetComputeInstanceProfileInfo(
                        handle,
                        kind,
                        NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED,
                        &raw mut info
                    )
                )
            };
            match answer {
                Ok(()) => profiles.push((info.id, info.sliceCount)),
                Err(error) if error.is(Code::NotSupported) => {}
                Err(error) if error.is(Code::InvalidArgument) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(profiles)
    }

    /// Compute instances of these profiles in an instance: ID and profile.
    pub fn compute_instances(
        self,
        instance: u32,
        profiles: impl Iterator<Item = u32>,
    ) -> Result<Vec<(u32, u32)>, Error> {
        let handle = self.instance(instance)?;
        let mut found = Vec::new();
        for profile in profiles {
            let mut buffer: [nvmlComputeInstance_t; INSTANCES] = [ptr::null_mut(); INSTANCES];
            let mut count = INSTANCES as u32;
            // SAFETY: as in `instances`.
            unsafe {
                call!(
                    self.raw,
                    nvmlGpuInstanceGetComputeInstances(
                        handle,
                        profile,
                        buffer.as_mut_ptr(),
                        &raw mut count
                    )
                )?;
            }
            for handle in buffer.iter().take(count as usize) {
                found.push(self.compute_info(*handle)?);
            }
        }
        Ok(found)
    }

    fn compute_info(self, handle: nvmlComputeInstance_t) -> Result<(u32, u32), Error> {
        let mut info: nvmlComputeInstanceInfo_t = zeroed();
        // SAFETY: a handle that NVML just gave; one structure, written during the call.
        unsafe {
            call!(
                self.raw,
                nvmlComputeInstanceGetInfo_v2(handle, &raw mut info)
            )?;
        }
        Ok((info.id, info.profileId))
    }

    /// Makes a compute instance; answers its ID.
    pub fn create_compute(self, instance: u32, profile: u32) -> Result<u32, Error> {
        let parent = self.instance(instance)?;
        let mut handle = ptr::null_mut();
        // SAFETY: a handle that NVML just gave; one handle, written during the call.
        unsafe {
            call!(
                self.raw,
                nvmlGpuInstanceCreateComputeInstance(parent, profile, &raw mut handle)
            )?;
        }
        Ok(self.compute_info(handle)?.0)
    }

    pub fn destroy_compute(self, instance: u32, id: u32) -> Result<(), Error> {
        let parent = self.instance(instance)?;
        let mut handle = ptr::null_mut();
        // SAFETY: a handle that NVML just gave; one handle, written during the call.
        unsafe {
            call!(
                self.raw,
                nvmlGpuInstanceGetComputeInstanceById(parent, id, &raw mut handle)
            )?;
        }
        // SAFETY: a handle that NVML just gave, and that nobody keeps.
        unsafe { call!(self.raw, nvmlComputeInstanceDestroy(handle)) }
    }
}

/// Whether an answer may mean that the driver does not know this version of a structure. Old drivers say INVALID_ARGUMENT,
/// which is also what the end of an enumeration says.
fn is_other_version(error: &Error) -> bool {
    matches!(error, Error::Missing(_))
        || [
            Code::InvalidArgument,
            Code::ArgumentVersionMismatch,
            Code::FunctionNotFound,
        ]
        .into_iter()
        .any(|code| error.is(code))
}

/// A profile as NVML says it.
pub struct RawProfile {
    pub id: u32,
    pub slices: u32,
    pub instances: u32,
    pub memory_mib: u64,
    pub name: Option<String>,
}

/// A GPU instance as NVML says it.
pub struct RawInstance {
    pub id: u32,
    pub profile: u32,
    pub start: u32,
    pub size: u32,
}
