//! The kubelet's and the DRA drivers' records in the tree.

use std::collections::BTreeMap;
use std::fs;

use super::super::checkpoint::{self, ClaimInfo, DriverState2, PodDevices};
use super::{DEVICE_PLUGINS, Tree};

impl Tree {
    /// Replaces the kubelet's record of devices given out by device plugins.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write_device_manager(
        &self,
        entries: &[PodDevices],
        registered: &BTreeMap<String, Vec<String>>,
    ) -> anyhow::Result<()> {
        self.write(
            &format!("{DEVICE_PLUGINS}/kubelet_internal_checkpoint"),
            &checkpoint::device_manager(entries, registered)?,
        )
    }

    /// Replaces the kubelet's record of prepared claims.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write_dra_manager(&self, claims: &[ClaimInfo]) -> anyhow::Result<()> {
        self.write(
            &format!("{}/dra_manager_state", self.kubelet_root),
            &checkpoint::dra_manager(claims)?,
        )
    }

    fn driver_checkpoint(&self, driver: &str) -> String {
        format!("{}/plugins/{driver}/checkpoint.json", self.kubelet_root)
    }

    /// Replaces a DRA driver's own record.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write_driver_checkpoint(
        &self,
        driver: &str,
        state: &DriverState2,
    ) -> anyhow::Result<()> {
        self.write(
            &self.driver_checkpoint(driver),
            &checkpoint::dra_driver(state)?,
        )
    }

    /// Reads a DRA driver's own record; a missing file is an empty one.
    ///
    /// # Errors
    /// When the file is corrupt.
    pub fn read_driver_checkpoint(&self, driver: &str) -> anyhow::Result<DriverState2> {
        match fs::read_to_string(self.path(&self.driver_checkpoint(driver))) {
            Ok(text) => checkpoint::read_dra_driver(&text),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                Ok(DriverState2::default())
            }
            Err(error) => Err(error.into()),
        }
    }
}
