//! Profiles, GPU instances and compute instances.

use std::ffi::{c_char, c_uint};

use nvml_wrapper_sys::bindings::{
    nvmlComputeInstance_t, nvmlComputeInstanceInfo_t, nvmlComputeInstancePlacement_t,
    nvmlComputeInstanceProfileInfo_t, nvmlDevice_t, nvmlGpuInstance_t, nvmlGpuInstanceInfo_t,
    nvmlGpuInstancePlacement_t, nvmlGpuInstanceProfileInfo_t, nvmlGpuInstanceProfileInfo_v2_t,
    nvmlGpuInstanceProfileInfo_v3_t, nvmlReturn_t,
};

use super::{COMPUTE, DEVICE, INSTANCE, call, device, handle, named, put, write};
use crate::board::Row;
use crate::driver::{self, code};
use crate::state::State;

fn name_of<const N: usize>(row: &Row) -> [c_char; N] {
    let mut name = [0; N];
    let text = format!("MIG {}", row.name);
    for (to, byte) in name.iter_mut().zip(text.bytes()) {
        *to = byte.cast_signed();
    }
    name
}

fn row_of(state: &mut State, of: nvmlDevice_t, kind: c_uint) -> Result<&'static Row, u32> {
    let while_off = state.profiles_while_off;
    let gpu = device(state, named(of).0)?;
    if !gpu.mig && !while_off {
        return Err(code::NOT_SUPPORTED);
    }
    if kind >= 18 {
        return Err(code::INVALID_ARGUMENT);
    }
    let table = gpu.board.table();
    table
        .profiles
        .iter()
        .find(|row| row.kind == kind)
        .ok_or(code::NOT_SUPPORTED)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetGpuInstanceProfileInfo(
    of: nvmlDevice_t,
    kind: c_uint,
    to: *mut nvmlGpuInstanceProfileInfo_t,
) -> nvmlReturn_t {
    call("nvmlDeviceGetGpuInstanceProfileInfo", |state| {
        let row = row_of(state, of, kind)?;
        (*to).id = row.id;
        (*to).sliceCount = row.slices;
        (*to).instanceCount = row.reported_max.unwrap_or(row.max);
        (*to).memorySizeMB = row.memory_mib;
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetGpuInstanceProfileInfoV(
    of: nvmlDevice_t,
    kind: c_uint,
    to: *mut nvmlGpuInstanceProfileInfo_v2_t,
) -> nvmlReturn_t {
    call("nvmlDeviceGetGpuInstanceProfileInfoV", |state| {
        let known = state.profile_structure;
        let row = row_of(state, of, kind);
        match (*to).version {
            0x0300_0098 if known >= 3 => {
                let (row, to) = (row?, to.cast::<nvmlGpuInstanceProfileInfo_v3_t>());
                (*to).id = row.id;
                (*to).sliceCount = row.slices;
                (*to).instanceCount = row.reported_max.unwrap_or(row.max);
                (*to).memorySizeMB = row.memory_mib;
                (*to).name = name_of(row);
                Ok(())
            }
            0x0200_0098 if known >= 2 => {
                let row = row?;
                (*to).id = row.id;
                (*to).sliceCount = row.slices;
                (*to).instanceCount = row.reported_max.unwrap_or(row.max);
                (*to).memorySizeMB = row.memory_mib;
                (*to).name = name_of(row);
                Ok(())
            }
            _ => Err(code::ARGUMENT_VERSION_MISMATCH),
        }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetGpuInstancePossiblePlacements_v2(
    of: nvmlDevice_t,
    profile: c_uint,
    placements: *mut nvmlGpuInstancePlacement_t,
    count: *mut c_uint,
) -> nvmlReturn_t {
    call("nvmlDeviceGetGpuInstancePossiblePlacements_v2", |state| {
        let while_off = state.profiles_while_off;
        let gpu = device(state, named(of).0)?;
        if !gpu.mig && !while_off {
            return Err(code::NOT_SUPPORTED);
        }
        let table = gpu.board.table();
        let row = table.row(profile).ok_or(code::INVALID_ARGUMENT)?;
        if !placements.is_null() {
            if (*count as usize) < row.starts.len() {
                return Err(code::INSUFFICIENT_SIZE);
            }
            for (at, start) in row.starts.iter().enumerate() {
                placements.add(at).write(nvmlGpuInstancePlacement_t {
                    start: *start,
                    size: row.size,
                });
            }
        }
        put(count, row.starts.len() as c_uint);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceCreateGpuInstance(
    of: nvmlDevice_t,
    profile: c_uint,
    to: *mut nvmlGpuInstance_t,
) -> nvmlReturn_t {
    write(
        "nvmlDeviceCreateGpuInstance",
        named(of).0,
        format!("profile {profile}"),
        |gpu| driver::create_instance(gpu, profile, None),
        |id| put(to, handle(INSTANCE, named(of).0, id, 0)),
    )
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceCreateGpuInstanceWithPlacement(
    of: nvmlDevice_t,
    profile: c_uint,
    placement: *const nvmlGpuInstancePlacement_t,
    to: *mut nvmlGpuInstance_t,
) -> nvmlReturn_t {
    let nvmlGpuInstancePlacement_t { start, size } = *placement;
    write(
        "nvmlDeviceCreateGpuInstanceWithPlacement",
        named(of).0,
        format!("profile {profile} at {start}:{size}"),
        |gpu| {
            let table = gpu.board.table();
            if table.row(profile).is_some_and(|row| row.size != size) {
                return Err(code::INVALID_ARGUMENT);
            }
            driver::create_instance(gpu, profile, Some(start))
        },
        |id| put(to, handle(INSTANCE, named(of).0, id, 0)),
    )
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetGpuInstances(
    of: nvmlDevice_t,
    profile: c_uint,
    to: *mut nvmlGpuInstance_t,
    count: *mut c_uint,
) -> nvmlReturn_t {
    call("nvmlDeviceGetGpuInstances", |state| {
        let gpu = device(state, named(of).0)?;
        if !gpu.mig {
            return Err(code::NOT_SUPPORTED);
        }
        if gpu.board.table().row(profile).is_none() {
            return Err(code::INVALID_ARGUMENT);
        }
        let ids = gpu
            .instances
            .iter()
            .filter(|instance| instance.profile == profile)
            .map(|instance| instance.id);
        let mut found = 0;
        for id in ids {
            to.add(found).write(handle(INSTANCE, named(of).0, id, 0));
            found += 1;
        }
        put(count, found as c_uint);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetGpuInstanceById(
    of: nvmlDevice_t,
    id: c_uint,
    to: *mut nvmlGpuInstance_t,
) -> nvmlReturn_t {
    call("nvmlDeviceGetGpuInstanceById", |state| {
        driver::instance(device(state, named(of).0)?, id)?;
        put(to, handle(INSTANCE, named(of).0, id, 0));
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlGpuInstanceGetInfo(
    of: nvmlGpuInstance_t,
    to: *mut nvmlGpuInstanceInfo_t,
) -> nvmlReturn_t {
    call("nvmlGpuInstanceGetInfo", |state| {
        let (index, id, _) = named(of);
        let instance = driver::instance(device(state, index)?, id)?;
        put(
            to,
            nvmlGpuInstanceInfo_t {
                device: handle(DEVICE, index, 0, 0),
                id,
                profileId: instance.profile,
                placement: nvmlGpuInstancePlacement_t {
                    start: instance.start,
                    size: instance.size,
                },
            },
        );
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlGpuInstanceDestroy(of: nvmlGpuInstance_t) -> nvmlReturn_t {
    let (index, id, _) = named(of);
    write(
        "nvmlGpuInstanceDestroy",
        index,
        format!("instance {id}"),
        |gpu| driver::destroy_instance(gpu, id),
        |()| {},
    )
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlGpuInstanceGetComputeInstanceProfileInfo(
    of: nvmlGpuInstance_t,
    kind: c_uint,
    engine: c_uint,
    to: *mut nvmlComputeInstanceProfileInfo_t,
) -> nvmlReturn_t {
    call("nvmlGpuInstanceGetComputeInstanceProfileInfo", |state| {
        let (index, id, _) = named(of);
        let gpu = device(state, index)?;
        let instance = driver::instance(gpu, id)?;
        if kind >= 9 || engine != 0 {
            return Err(code::INVALID_ARGUMENT);
        }
        let table = gpu.board.table();
        let slices = table.row(instance.profile).map_or(0, |row| row.slices);
        let row = table
            .compute
            .iter()
            .find(|row| row.kind == kind && row.slices <= slices)
            .ok_or(code::NOT_SUPPORTED)?;
        (*to).id = row.id;
        (*to).sliceCount = row.slices;
        (*to).instanceCount = slices / row.slices;
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlGpuInstanceCreateComputeInstance(
    of: nvmlGpuInstance_t,
    profile: c_uint,
    to: *mut nvmlComputeInstance_t,
) -> nvmlReturn_t {
    let (index, id, _) = named(of);
    write(
        "nvmlGpuInstanceCreateComputeInstance",
        index,
        format!("profile {profile} in instance {id}"),
        |gpu| driver::create_compute(gpu, id, profile),
        |compute| put(to, handle(COMPUTE, index, id, compute)),
    )
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlGpuInstanceGetComputeInstances(
    of: nvmlGpuInstance_t,
    profile: c_uint,
    to: *mut nvmlComputeInstance_t,
    count: *mut c_uint,
) -> nvmlReturn_t {
    call("nvmlGpuInstanceGetComputeInstances", |state| {
        let (index, id, _) = named(of);
        let instance = driver::instance(device(state, index)?, id)?;
        let ids = instance
            .compute
            .iter()
            .filter(|compute| compute.profile == profile)
            .map(|compute| compute.id);
        let mut found = 0;
        for compute in ids {
            to.add(found).write(handle(COMPUTE, index, id, compute));
            found += 1;
        }
        put(count, found as c_uint);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlGpuInstanceGetComputeInstanceById(
    of: nvmlGpuInstance_t,
    compute: c_uint,
    to: *mut nvmlComputeInstance_t,
) -> nvmlReturn_t {
    call("nvmlGpuInstanceGetComputeInstanceById", |state| {
        let (index, id, _) = named(of);
        let instance = driver::instance(device(state, index)?, id)?;
        if instance.compute.iter().all(|other| other.id != compute) {
            return Err(code::NOT_FOUND);
        }
        put(to, handle(COMPUTE, index, id, compute));
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlComputeInstanceGetInfo_v2(
    of: nvmlComputeInstance_t,
    to: *mut nvmlComputeInstanceInfo_t,
) -> nvmlReturn_t {
    call("nvmlComputeInstanceGetInfo_v2", |state| {
        let (index, id, compute) = named(of);
        let instance = driver::instance(device(state, index)?, id)?;
        let found = instance
            .compute
            .iter()
            .find(|other| other.id == compute)
            .ok_or(code::NOT_FOUND)?;
        put(
            to,
            nvmlComputeInstanceInfo_t {
                device: handle(COMPUTE, index, id, compute),
                gpuInstance: handle(INSTANCE, index, id, 0),
                id: compute,
                profileId: found.profile,
                placement: nvmlComputeInstancePlacement_t {
                    start: 0,
                    size: found.slices,
                },
            },
        );
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlComputeInstanceDestroy(of: nvmlComputeInstance_t) -> nvmlReturn_t {
    let (index, id, compute) = named(of);
    write(
        "nvmlComputeInstanceDestroy",
        index,
        format!("compute instance {compute} of instance {id}"),
        |gpu| driver::destroy_compute(gpu, id, compute),
        |()| {},
    )
}
