//! The NVIDIA driver's library in the tree: what the machine's GPUs are cut into is the library's to say, for the real shaper that
//! loads it as for the simulated operands.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use freehold_fake_nvml::{FakeNvml, STATE_FILE, library};

use super::super::shapes::{MigInstance, MigProfile, NvidiaHardware, profiles_of};
use super::Tree;

/// Where distributions put the library.
const DIRECTORY: &str = "/usr/lib/x86_64-linux-gnu";
/// Its name.
const LIBRARY: &str = "libnvidia-ml.so.1";
/// The library's state while no driver is loaded, which leaves it with nothing to answer from.
const WITHOUT_DRIVER: &str = "fake-nvml.without-driver.json";

impl Tree {
    /// The GPUs as the driver's library sees them, for whoever disturbs them.
    #[must_use]
    pub fn nvml(&self) -> FakeNvml {
        FakeNvml::at(self.state_file())
    }

    fn state_file(&self) -> PathBuf {
        self.path(DIRECTORY).join(STATE_FILE)
    }

    /// GPUs and driver as they are now.
    #[must_use]
    pub fn nvidia(&self) -> Option<NvidiaHardware> {
        let mut hardware = self.hardware().nvidia.clone()?;
        // Without a driver, or on boards without MIG, there is no state: what the machine came with holds.
        if let Ok(state) = self.nvml().state() {
            let table = profiles_of(hardware.board);
            for gpu in &mut hardware.gpus {
                let Some(now) = state.gpus.iter().find(|now| now.minor == gpu.minor) else {
                    continue;
                };
                gpu.mig_enabled = now.mig;
                // Plugins and drivers hand out whole compute instances only.
                let whole = now.instances.iter().filter(|i| !i.compute.is_empty());
                gpu.mig = whole
                    .filter_map(|instance| {
                        let row = |profile: &&MigProfile| profile.id == instance.profile;
                        Some(MigInstance {
                            profile: *table.iter().find(row)?,
                            start: instance.start,
                        })
                    })
                    .collect();
            }
        }
        Some(hardware)
    }

    /// Puts the library in its place, with the GPUs as the machine came, or as they were when the driver was last loaded.
    pub(super) fn install_nvml(&self, hardware: &NvidiaHardware) -> anyhow::Result<()> {
        let Some(board) = hardware.board.in_nvml() else {
            return Ok(());
        };
        let directory = self.path(DIRECTORY);
        fs::create_dir_all(&directory)?;
        put_library(&directory.join(LIBRARY))?;
        let fake = self.nvml();
        if fs::rename(directory.join(WITHOUT_DRIVER), self.state_file()).is_err()
            && !self.state_file().exists()
        {
            FakeNvml::create(&directory, &vec![board; hardware.gpus.len()])
                .context("make the driver library's state")?;
            for gpu in &hardware.gpus {
                let instances: Vec<_> = gpu
                    .mig
                    .iter()
                    .map(|instance| (instance.profile.id, instance.start))
                    .collect();
                if gpu.mig_enabled {
                    fake.carve(gpu.minor, &instances)
                        .with_context(|| format!("cut GPU {}", gpu.minor))?;
                }
            }
        }
        let version = hardware.driver.clone().unwrap_or_default();
        fake.change(|state| {
            state.driver_version = version;
            state.host_root = Some(self.root().to_owned());
        })
        .context("show the GPUs in procfs")
    }

    /// The library stays where it is, as files of an unloaded driver do, and finds no driver.
    pub(super) fn lose_nvml(&self) -> io::Result<()> {
        let aside = self.path(DIRECTORY).join(WITHOUT_DRIVER);
        gone_is_fine(fs::rename(self.state_file(), aside))
    }

    /// What a reboot leaves of the GPUs' geometry.
    pub(super) fn reboot_nvml(&self) -> anyhow::Result<()> {
        if self.state_file().exists() {
            self.nvml().reboot().context("reboot the GPUs")?;
        }
        Ok(())
    }
}

/// A link where the file systems allow, since a fleet has many nodes and the library is large.
fn put_library(at: &Path) -> anyhow::Result<()> {
    if at.exists() {
        return Ok(());
    }
    let library = library().context("find the fake driver library")?;
    if fs::hard_link(&library, at).is_err() {
        fs::copy(&library, at).with_context(|| format!("copy {}", library.display()))?;
    }
    Ok(())
}

fn gone_is_fine(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}
