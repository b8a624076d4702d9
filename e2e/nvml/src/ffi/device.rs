//! The library itself, and devices.

use std::ffi::{CStr, c_char, c_uint};

use nvml_wrapper_sys::bindings::{
    nvmlDevice_t, nvmlMemory_v2_t, nvmlPciInfo_t, nvmlProcessInfo_t, nvmlReturn_t,
};

use super::{DEVICE, call, device, handle, named, put, put_text, write};
use crate::board::Architecture;
use crate::driver::{self, code};

#[unsafe(no_mangle)]
pub extern "C" fn nvmlInit_v2() -> nvmlReturn_t {
    call("nvmlInit_v2", |_| Ok(()))
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlInitWithFlags(_flags: c_uint) -> nvmlReturn_t {
    call("nvmlInitWithFlags", |_| Ok(()))
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlShutdown() -> nvmlReturn_t {
    call("nvmlShutdown", |_| Ok(()))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlSystemGetDriverVersion(
    version: *mut c_char,
    length: c_uint,
) -> nvmlReturn_t {
    call("nvmlSystemGetDriverVersion", |state| {
        put_text(version, length, &state.driver_version)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetCount_v2(count: *mut c_uint) -> nvmlReturn_t {
    call("nvmlDeviceGetCount_v2", |state| {
        put(count, state.gpus.len() as c_uint);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetHandleByIndex_v2(
    index: c_uint,
    to: *mut nvmlDevice_t,
) -> nvmlReturn_t {
    call("nvmlDeviceGetHandleByIndex_v2", |state| {
        device(state, index)?;
        put(to, handle(DEVICE, index, 0, 0));
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetHandleByUUID(
    uuid: *const c_char,
    to: *mut nvmlDevice_t,
) -> nvmlReturn_t {
    call("nvmlDeviceGetHandleByUUID", |state| {
        let uuid = CStr::from_ptr(uuid).to_string_lossy();
        let found = state.gpus.iter().zip(0..).find(|(gpu, _)| gpu.uuid == uuid);
        let index = found.map(|(_, index)| index).ok_or(code::NOT_FOUND)?;
        device(state, index)?;
        put(to, handle(DEVICE, index, 0, 0));
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetUUID(
    of: nvmlDevice_t,
    uuid: *mut c_char,
    length: c_uint,
) -> nvmlReturn_t {
    call("nvmlDeviceGetUUID", |state| {
        put_text(uuid, length, &device(state, named(of).0)?.uuid)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetName(
    of: nvmlDevice_t,
    name: *mut c_char,
    length: c_uint,
) -> nvmlReturn_t {
    call("nvmlDeviceGetName", |state| {
        put_text(
            name,
            length,
            &device(state, named(of).0)?.board.table().name,
        )
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetIndex(of: nvmlDevice_t, index: *mut c_uint) -> nvmlReturn_t {
    call("nvmlDeviceGetIndex", |state| {
        device(state, named(of).0)?;
        put(index, named(of).0);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetMinorNumber(
    of: nvmlDevice_t,
    minor: *mut c_uint,
) -> nvmlReturn_t {
    call("nvmlDeviceGetMinorNumber", |state| {
        put(minor, device(state, named(of).0)?.minor);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetPciInfo_v3(
    of: nvmlDevice_t,
    to: *mut nvmlPciInfo_t,
) -> nvmlReturn_t {
    call("nvmlDeviceGetPciInfo_v3", |state| {
        let table = device(state, named(of).0)?.board.table();
        put(
            to,
            nvmlPciInfo_t {
                busIdLegacy: [0; 16],
                domain: 0,
                bus: 0x40 + named(of).0,
                device: 0,
                pciDeviceId: table.pci_device << 16 | 0x10DE,
                pciSubSystemId: 0,
                busId: [0; 32],
            },
        );
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetMemoryInfo_v2(
    of: nvmlDevice_t,
    to: *mut nvmlMemory_v2_t,
) -> nvmlReturn_t {
    call("nvmlDeviceGetMemoryInfo_v2", |state| {
        let table = device(state, named(of).0)?.board.table();
        if (*to).version != 0x0200_0028 {
            return Err(code::ARGUMENT_VERSION_MISMATCH);
        }
        (*to).total = table.memory_mib << 20;
        (*to).free = (*to).total;
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetArchitecture(
    of: nvmlDevice_t,
    to: *mut c_uint,
) -> nvmlReturn_t {
    call("nvmlDeviceGetArchitecture", |state| {
        let number = match device(state, named(of).0)?.board.table().architecture {
            Architecture::Ampere => 7,
            Architecture::Hopper => 9,
            Architecture::Blackwell => 10,
        };
        put(to, number);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetMigMode(
    of: nvmlDevice_t,
    current: *mut c_uint,
    pending: *mut c_uint,
) -> nvmlReturn_t {
    call("nvmlDeviceGetMigMode", |state| {
        let gpu = device(state, named(of).0)?;
        put(current, gpu.mig.into());
        put(pending, gpu.pending.into());
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceSetMigMode(
    of: nvmlDevice_t,
    mode: c_uint,
    activation: *mut nvmlReturn_t,
) -> nvmlReturn_t {
    write(
        "nvmlDeviceSetMigMode",
        named(of).0,
        format!("mode {mode}"),
        |gpu| Ok(driver::set_mode(gpu, mode != 0)),
        |status| put(activation, status),
    )
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetComputeRunningProcesses_v3(
    of: nvmlDevice_t,
    count: *mut c_uint,
    to: *mut nvmlProcessInfo_t,
) -> nvmlReturn_t {
    call("nvmlDeviceGetComputeRunningProcesses_v3", |state| {
        let gpu = device(state, named(of).0)?;
        let room = *count as usize;
        put(count, gpu.processes.len() as c_uint);
        if gpu.processes.len() > room {
            return Err(code::INSUFFICIENT_SIZE);
        }
        for (at, process) in gpu.processes.iter().enumerate() {
            to.add(at).write(nvmlProcessInfo_t {
                pid: process.pid,
                usedGpuMemory: 1 << 20,
                gpuInstanceId: process.instance.unwrap_or(u32::MAX),
                computeInstanceId: process.instance.map_or(u32::MAX, |_| 0),
            });
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetMPSComputeRunningProcesses_v3(
    of: nvmlDevice_t,
    count: *mut c_uint,
    _to: *mut nvmlProcessInfo_t,
) -> nvmlReturn_t {
    call("nvmlDeviceGetMPSComputeRunningProcesses_v3", |state| {
        device(state, named(of).0)?;
        put(count, 0);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetGraphicsRunningProcesses_v3(
    of: nvmlDevice_t,
    _count: *mut c_uint,
    _to: *mut nvmlProcessInfo_t,
) -> nvmlReturn_t {
    call("nvmlDeviceGetGraphicsRunningProcesses_v3", |state| {
        device(state, named(of).0)?;
        // As boards without a display say while MIG is on.
        Err(code::NOT_SUPPORTED)
    })
}
