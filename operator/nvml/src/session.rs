//! NVML between its init and its shutdown.

use std::path::Path;

use crate::gpu::Gpu;
use crate::raw::Raw;
use crate::{Error, locate};

/// A loaded and initialised NVML. Ends when dropped.
///
/// An open session is a client of the driver and keeps others from resetting a GPU: open one for a look, and close it.
#[derive(Debug)]
pub struct Session {
    raw: Raw,
}

impl Session {
    /// Loads the library, given as a file or as the root of a driver installation, and initialises it.
    ///
    /// # Errors
    /// When there is none, when it cannot be loaded, or when it finds no driver.
    pub fn open(library: &Path) -> Result<Self, Error> {
        let raw = Raw::load(&locate::locate(library)?)?;
        raw.init()?;
        Ok(Self { raw })
    }

    /// Version of the kernel driver, e.g. `570.86.15`.
    ///
    /// # Errors
    /// When NVML refuses.
    pub fn driver_version(&self) -> Result<String, Error> {
        self.raw.driver_version()
    }

    /// Number of GPUs, lost ones included.
    ///
    /// # Errors
    /// When NVML refuses.
    pub fn gpu_count(&self) -> Result<u32, Error> {
        self.raw.device_count()
    }

    /// The GPU with this index (`0..gpu_count()`, by PCI address). Its minor number may be another.
    ///
    /// # Errors
    /// When NVML refuses: [`Code::GpuIsLost`](crate::Code::GpuIsLost) for one that fell off the bus.
    pub fn gpu(&self, index: u32) -> Result<Gpu<'_>, Error> {
        Ok(Gpu::new(self.raw.device(index)?))
    }

    /// The GPU with this UUID, e.g. after its mode was changed.
    ///
    /// # Errors
    /// When NVML refuses, or knows none.
    pub fn gpu_by_uuid(&self, uuid: &str) -> Result<Gpu<'_>, Error> {
        Ok(Gpu::new(self.raw.device_by_uuid(uuid)?))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // NVML counts inits. Should it refuse, the process still holds it, which only its end can change.
        let _ = self.raw.shutdown();
    }
}
