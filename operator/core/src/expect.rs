//! What the owner must advertise on a node: inventory × layout (× replicas).

use std::collections::BTreeMap;

use crate::blocker::Blocker;
use crate::intent::Cohort;
use crate::report::VendorReport;

/// What must be seen before a node counts as ready.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Expected {
    /// Device plugin: exactly these extended resources with these counts, and every other one of the vendor 0 or absent.
    Resources(BTreeMap<String, i64>),
    /// Device plugin with the user's own configuration: at least one resource of the vendor above 0.
    AnyResource,
    /// DRA: this many devices in the pool's newest, complete generation.
    Devices {
        /// All devices.
        devices: usize,
        /// Of these, MIG devices.
        mig_devices: usize,
    },
}

/// Computes it from the cohort and the agent's report, or says why it cannot be.
///
/// # Errors
/// A blocker naming the layout that the strategy cannot advertise (mixed instances under `Single`), or the inventory that is
/// missing.
pub fn expected(cohort: &Cohort, report: &VendorReport) -> Result<Expected, Blocker> {
    let _ = (cohort, report);
    unimplemented!()
}
