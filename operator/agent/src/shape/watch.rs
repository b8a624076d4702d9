//! What wakes a shaper: another order, and hardware that looks other than it did.
//!
//! A look at some files and directories, no more: at rest there is no driver session, since others' operations on a GPU can fail
//! while somebody has one.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use freehold_core::vendor::Vendor;

use super::order;
use crate::host::Host;
use crate::host::neuron::{DEVICES as NEURON_DEVICES, LNC_FILE};
use crate::host::{mig, nvidia};

/// How everything looked at one moment. Equal stamps mean that there is nothing new to look into.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stamp(String);

impl Stamp {
    /// Takes one.
    #[must_use]
    pub fn take(host: &Host, vendor: Vendor, directory: &Path) -> Self {
        // What is ordered, and not by which generation: that rises for reasons of its own.
        let order = match order::read_taken(directory) {
            Ok(taken) => format!(
                "{:?}",
                taken.map(|taken| (taken.order.layout, taken.leave, taken.barred_in))
            ),
            Err(error) => error.to_string(),
        };
        let hardware = match vendor {
            // Instances that somebody makes or destroys come and go here, and all of it with the driver.
            Vendor::Nvidia => format!(
                "{:?} {:?}",
                // Its times are those of this look: procfs makes files up as they are asked for.
                host.text(nvidia::VERSION),
                mig::instances(host)
            ),
            Vendor::Neuron => format!(
                "{} {:?}",
                identity(&host.at(LNC_FILE)),
                host.names(NEURON_DEVICES)
                    .map(|names| names.map(|names| names.len()))
            ),
        };
        Self(format!("{order} {hardware}"))
    }
}

/// Tells a file from another of the same name, as far as its metadata does. An error is told apart like a content: while it stays
/// the same there is nothing new in it.
pub(super) fn identity(path: &Path) -> String {
    match fs::metadata(path) {
        Ok(found) if found.ino() != 0 => format!(
            "{}:{}:{}.{}:{}",
            found.dev(),
            found.ino(),
            found.mtime(),
            found.mtime_nsec(),
            found.len()
        ),
        Ok(found) => format!("{}", found.len()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => "-".to_owned(),
        Err(error) => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::order::{LayoutOrder, Moment, obey};
    use super::*;

    #[test]
    fn another_order_and_other_instances_change_it_and_nothing_else_does() {
        let root = tempfile::tempdir().unwrap();
        let host = Host::new(root.path());
        let state = root.path().join("state");
        let stamp = || Stamp::take(&host, Vendor::Nvidia, &state);
        let empty = stamp();
        assert_eq!(empty, stamp());
        let order = LayoutOrder {
            object_uid: "an-1".into(),
            object_created: 0,
            generation: 1,
            layout: Some(freehold_core::intent::Layout::Mig(Vec::new())),
        };
        assert_eq!(
            obey(&state, &order, Moment::Idle),
            crate::interlock::order::Outcome::InForce
        );
        let ordered = stamp();
        assert_ne!(empty, ordered);
        let gpu = root.path().join("proc/driver/nvidia/capabilities/gpu3/mig");
        fs::create_dir_all(gpu.join("gi7/ci0")).unwrap();
        let cut = stamp();
        assert_ne!(ordered, cut);
        assert_eq!(cut, stamp());
        fs::rename(gpu.join("gi7"), gpu.join("gi8")).unwrap();
        assert_ne!(cut, stamp());
    }

    #[test]
    fn a_generation_that_rises_for_other_reasons_and_a_file_made_up_anew_change_nothing() {
        let root = tempfile::tempdir().unwrap();
        let host = Host::new(root.path());
        let state = root.path().join("state");
        let version = host.at(nvidia::VERSION);
        fs::create_dir_all(version.parent().unwrap()).unwrap();
        let stamp = |driver: &str, generation| {
            // Another inode, with another time.
            let draft = version.with_extension("new");
            fs::write(&draft, driver).unwrap();
            fs::rename(draft, &version).unwrap();
            let order = LayoutOrder {
                object_uid: "an-1".into(),
                object_created: 0,
                generation,
                layout: Some(freehold_core::intent::Layout::Mig(Vec::new())),
            };
            let _ = obey(&state, &order, Moment::Idle);
            Stamp::take(&host, Vendor::Nvidia, &state)
        };
        let before = stamp("580.95.05", 1);
        assert_eq!(before, stamp("580.95.05", 2));
        assert_ne!(before, stamp("590.1", 3));
    }

    #[test]
    fn a_setting_written_by_another_hand_changes_it() {
        let root = tempfile::tempdir().unwrap();
        let host = Host::new(root.path());
        fs::create_dir_all(root.path().join("opt/aws/neuron")).unwrap();
        let stamp = || Stamp::take(&host, Vendor::Neuron, root.path());
        let before = stamp();
        fs::write(host.at(LNC_FILE), "NEURON_LOGICAL_NC_CONFIG=1\n").unwrap();
        assert_ne!(before, stamp());
    }
}
