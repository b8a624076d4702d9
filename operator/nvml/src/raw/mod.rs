//! NVML's C functions, each behind a safe one. The only unsafe code of the programs of this workspace.
//!
//! What makes it sound, beside the library keeping NVML's documented interface (which nobody can check from here, and which
//! loading any library takes on trust):
//! - A [`Device`] borrows the [`Raw`] that it came from, so no handle outlives its library, and none reaches another one.
//! - Handles of instances are looked up by ID, used and forgotten, all within one function here.
//! - Every buffer is a local of known length; the lengths that NVML answers are cut to it before they are believed.
#![expect(
    unsafe_code,
    reason = "NVML is a C library; this module is the border to it"
)]
#![deny(
    clippy::undocumented_unsafe_blocks,
    clippy::multiple_unsafe_ops_per_block
)]

mod instance;

use std::ffi::{CString, c_char};
use std::fmt;
use std::path::Path;
use std::ptr;

use nvml_wrapper_sys::bindings::{
    NVML_INIT_FLAG_NO_GPUS, NvmlLib, nvmlComputeInstanceInfo_t, nvmlComputeInstanceProfileInfo_t,
    nvmlDevice_t, nvmlGpuInstanceInfo_t, nvmlGpuInstancePlacement_t, nvmlGpuInstanceProfileInfo_t,
    nvmlGpuInstanceProfileInfo_v2_t, nvmlGpuInstanceProfileInfo_v3_t, nvmlMemory_v2_t,
    nvmlPciInfo_t, nvmlProcessInfo_t, nvmlReturn_t,
};

pub use self::instance::{RawInstance, RawProfile};
use crate::Error;
use crate::error::Code;

/// Longest name or UUID that NVML answers (`NVML_DEVICE_UUID_V2_BUFFER_SIZE`, `NVML_DEVICE_NAME_V2_BUFFER_SIZE`), and room.
const TEXT: usize = 128;
/// Room for processes at the first try.
const PROCESSES: usize = 128;

/// Calls a function of the library, or says that this library has none.
macro_rules! call {
    ($raw:expr, $name:ident($($argument:expr),*)) => {
        match $raw.lib.$name.as_ref() {
            Ok(function) => answer(stringify!($name), function($($argument),*)),
            Err(_) => Err(Error::Missing(stringify!($name))),
        }
    };
}
use call;

fn answer(call: &'static str, code: nvmlReturn_t) -> Result<(), Error> {
    match code {
        0 => Ok(()),
        code => Err(Error::Refused {
            call,
            code: Code::from_number(code),
        }),
    }
}

/// Structures of NVML for which all bits zero is a value.
///
/// # Safety
/// Only for types that consist of integers, raw pointers and arrays of these.
unsafe trait Plain: Copy {}

macro_rules! plain {
    ($($name:ty),*) => {
        $(
            // SAFETY: as declared by bindgen from nvml.h, integers, raw pointers and arrays of these.
            unsafe impl Plain for $name {}
        )*
    };
}

plain!(
    nvmlComputeInstanceInfo_t,
    nvmlComputeInstanceProfileInfo_t,
    nvmlGpuInstanceInfo_t,
    nvmlGpuInstancePlacement_t,
    nvmlGpuInstanceProfileInfo_t,
    nvmlGpuInstanceProfileInfo_v2_t,
    nvmlGpuInstanceProfileInfo_v3_t,
    nvmlMemory_v2_t,
    nvmlPciInfo_t,
    nvmlProcessInfo_t
);

fn zeroed<T: Plain>() -> T {
    // SAFETY: `Plain` says that all bits zero is a value of T.
    unsafe { std::mem::zeroed() }
}

/// A structure's version field: its size, and above that its number (`NVML_STRUCT_VERSION` in nvml.h).
const fn version<T>(number: u32) -> u32 {
    size_of::<T>() as u32 | number << 24
}

/// The text in a buffer that NVML filled, up to the first NUL.
fn text(buffer: &[c_char]) -> String {
    let bytes: Vec<u8> = buffer
        .iter()
        .take_while(|byte| **byte != 0)
        .map(|byte| byte.cast_unsigned())
        .collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A loaded library.
pub struct Raw {
    lib: NvmlLib,
}

impl fmt::Debug for Raw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("libnvidia-ml")
    }
}

impl Raw {
    /// Loads a file.
    pub fn load(path: &Path) -> Result<Self, Error> {
        // SAFETY: runs the library's initialisers, and believes that its symbols are what nvml.h says of their names. The
        // path is the administrator's, like the program that reads it.
        let lib = unsafe { NvmlLib::new(path) };
        lib.map(|lib| Self { lib }).map_err(|error| Error::Load {
            path: path.to_owned(),
            problem: error.to_string(),
        })
    }

    /// Initialises it. A host whose GPUs are all lost is no error.
    pub fn init(&self) -> Result<(), Error> {
        // SAFETY: takes a number; NVML counts its callers and locks by itself.
        unsafe { call!(self, nvmlInitWithFlags(NVML_INIT_FLAG_NO_GPUS)) }
    }

    /// Gives it back. Handles made since are void, which the borrow in [`Device`] sees to: the caller drops the library next.
    pub fn shutdown(&self) -> Result<(), Error> {
        // SAFETY: takes nothing.
        unsafe { call!(self, nvmlShutdown()) }
    }

    pub fn driver_version(&self) -> Result<String, Error> {
        let mut buffer = [0; TEXT];
        // SAFETY: the buffer is TEXT long and outlives the call.
        unsafe {
            call!(
                self,
                nvmlSystemGetDriverVersion(buffer.as_mut_ptr(), TEXT as u32)
            )?;
        }
        Ok(text(&buffer))
    }

    pub fn device_count(&self) -> Result<u32, Error> {
        let mut count = 0;
        // SAFETY: one number, written during the call.
        unsafe { call!(self, nvmlDeviceGetCount_v2(&raw mut count))? };
        Ok(count)
    }

    pub fn device(&self, index: u32) -> Result<Device<'_>, Error> {
        let mut handle = ptr::null_mut();
        // SAFETY: one handle, written during the call.
        unsafe {
            call!(self, nvmlDeviceGetHandleByIndex_v2(index, &raw mut handle))?;
        }
        Ok(Device { raw: self, handle })
    }

    pub fn device_by_uuid(&self, uuid: &str) -> Result<Device<'_>, Error> {
        let name = CString::new(uuid).map_err(|_| Error::Nonsense {
            call: "nvmlDeviceGetUUID",
            found: "a UUID with a NUL in it".to_owned(),
        })?;
        let mut handle = ptr::null_mut();
        // SAFETY: a NUL-terminated string that outlives the call, and one handle, written during it.
        unsafe {
            call!(
                self,
                nvmlDeviceGetHandleByUUID(name.as_ptr(), &raw mut handle)
            )?;
        }
        Ok(Device { raw: self, handle })
    }
}

/// A GPU of a loaded library. NVML keeps a device's handle valid until its shutdown, lost devices included.
#[derive(Clone, Copy)]
pub struct Device<'r> {
    raw: &'r Raw,
    handle: nvmlDevice_t,
}

impl fmt::Debug for Device<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "device {:p}", self.handle)
    }
}

impl Device<'_> {
    pub fn uuid(self) -> Result<String, Error> {
        let mut buffer = [0; TEXT];
        // SAFETY: a handle of this library; the buffer is TEXT long and outlives the call.
        unsafe {
            call!(
                self.raw,
                nvmlDeviceGetUUID(self.handle, buffer.as_mut_ptr(), TEXT as u32)
            )?;
        }
        Ok(text(&buffer))
    }

    pub fn name(self) -> Result<String, Error> {
        let mut buffer = [0; TEXT];
        // SAFETY: as in `uuid`.
        unsafe {
            call!(
                self.raw,
                nvmlDeviceGetName(self.handle, buffer.as_mut_ptr(), TEXT as u32)
            )?;
        }
        Ok(text(&buffer))
    }

    pub fn minor(self) -> Result<u32, Error> {
        let mut minor = 0;
        // SAFETY: a handle of this library; one number, written during the call.
        unsafe {
            call!(
                self.raw,
                nvmlDeviceGetMinorNumber(self.handle, &raw mut minor)
            )?;
        }
        Ok(minor)
    }

    /// Device and vendor as PCI numbers, e.g. 0x2330_10DE.
    pub fn pci_device(self) -> Result<u32, Error> {
        let mut info: nvmlPciInfo_t = zeroed();
        // SAFETY: a handle of this library; a structure of this version, written during the call.
        unsafe {
            call!(
                self.raw,
                nvmlDeviceGetPciInfo_v3(self.handle, &raw mut info)
            )?;
        }
        Ok(info.pciDeviceId)
    }

    /// All of its memory in bytes.
    pub fn memory(self) -> Result<u64, Error> {
        let mut memory: nvmlMemory_v2_t = zeroed();
        memory.version = version::<nvmlMemory_v2_t>(2);
        // SAFETY: a handle of this library; a structure that says its own size, written during the call.
        unsafe {
            call!(
                self.raw,
                nvmlDeviceGetMemoryInfo_v2(self.handle, &raw mut memory)
            )?;
        }
        Ok(memory.total)
    }

    /// Current and pending MIG mode, 0 or 1 each.
    pub fn mig_mode(self) -> Result<(u32, u32), Error> {
        let (mut current, mut pending) = (0, 0);
        // SAFETY: a handle of this library; two numbers, written during the call.
        unsafe {
            call!(
                self.raw,
                nvmlDeviceGetMigMode(self.handle, &raw mut current, &raw mut pending)
            )?;
        }
        Ok((current, pending))
    }

    /// Asks for a MIG mode; answers the activation status. Consumes the handle: the driver may reset the device meanwhile.
    pub fn set_mig_mode(self, mode: u32) -> Result<nvmlReturn_t, Error> {
        let mut activation = 0;
        // SAFETY: a handle of this library; one number, written during the call.
        unsafe {
            call!(
                self.raw,
                nvmlDeviceSetMigMode(self.handle, mode, &raw mut activation)
            )?;
        }
        Ok(activation)
    }

    /// Processes that compute, MPS clients among them, and processes that draw: PID and GPU instance ID.
    pub fn processes(self) -> Result<Vec<(u32, u32)>, Error> {
        let mut processes = self.processes_of(|device, count, buffer| {
            // SAFETY: `processes_of` gives a buffer of this many structures, which outlives the call.
            unsafe {
                call!(
                    device.raw,
                    nvmlDeviceGetComputeRunningProcesses_v3(device.handle, count, buffer)
                )
            }
        })?;
        processes.extend(self.processes_of(|device, count, buffer| {
            // SAFETY: as above.
            unsafe {
                call!(
                    device.raw,
                    nvmlDeviceGetMPSComputeRunningProcesses_v3(device.handle, count, buffer)
                )
            }
        })?);
        processes.extend(self.processes_of(|device, count, buffer| {
            // SAFETY: as above.
            unsafe {
                call!(
                    device.raw,
                    nvmlDeviceGetGraphicsRunningProcesses_v3(device.handle, count, buffer)
                )
            }
        })?);
        Ok(processes)
    }

    fn processes_of(
        self,
        ask: impl Fn(Self, *mut u32, *mut nvmlProcessInfo_t) -> Result<(), Error>,
    ) -> Result<Vec<(u32, u32)>, Error> {
        let mut room = PROCESSES;
        loop {
            let mut buffer: Vec<nvmlProcessInfo_t> = vec![zeroed(); room];
            let mut count = u32::try_from(room).unwrap_or(u32::MAX);
            match ask(self, &raw mut count, buffer.as_mut_ptr()) {
                Ok(()) => {
                    return Ok(buffer
                        .iter()
                        .take(count as usize)
                        .map(|process| (process.pid, process.gpuInstanceId))
                        .collect());
                }
                // Processes come and go: twice what there were.
                Err(error) if error.is(Code::InsufficientSize) && room < 1 << 16 => {
                    room = (count as usize).max(room).saturating_mul(2);
                }
                Err(error) if error.is_unsupported() => return Ok(Vec::new()),
                Err(error) => return Err(error),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_have_the_sizes_that_a_driver_expects() {
        assert_eq!(version::<nvmlGpuInstanceProfileInfo_v2_t>(2), 0x0200_0098);
        assert_eq!(version::<nvmlGpuInstanceProfileInfo_v3_t>(3), 0x0300_0098);
        assert_eq!(version::<nvmlMemory_v2_t>(2), 0x0200_0028);
        assert_eq!(size_of::<nvmlGpuInstanceProfileInfo_t>(), 48);
        assert_eq!(size_of::<nvmlComputeInstanceProfileInfo_t>(), 36);
        assert_eq!(size_of::<nvmlGpuInstanceInfo_t>(), 24);
        assert_eq!(size_of::<nvmlComputeInstanceInfo_t>(), 32);
        assert_eq!(size_of::<nvmlProcessInfo_t>(), 24);
    }

    #[test]
    fn a_text_ends_at_its_nul() {
        let buffer: Vec<c_char> = b"MIG 1g.10gb\0rest"
            .iter()
            .map(|byte| byte.cast_signed())
            .collect();
        assert_eq!(text(&buffer), "MIG 1g.10gb");
        assert_eq!(text(&[]), "");
    }
}
