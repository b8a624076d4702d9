//! The ordered layout, as the witness leaves it for the shaper.
//!
//! An order lies on the disk and is carried out whenever the shaper gets a turn, also after a reboot and without the controller.
//! So it is taken only at a moment when nothing of the vendor is in use, or when it asks for what was ordered before.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use freehold_core::intent::Layout;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use crate::interlock::order::Outcome;

/// Name of the file.
pub const LAYOUT_FILE: &str = "layout";

/// The layout that an `AcceleratorNode`'s spec orders, and which spec that was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LayoutOrder {
    /// UID of the `AcceleratorNode` that holds the order.
    #[serde(rename = "objectUID")]
    pub object_uid: String,
    /// Its `metadata.generation`: of two orders in one object the younger has the higher.
    pub generation: i64,
    /// The layout; `None` leaves the geometry as it is.
    #[serde(default)]
    pub layout: Option<Layout>,
}

/// Reads the order in force; `None` when none was ever given.
///
/// # Errors
/// When the file cannot be read or holds something else. Then nothing may be shaped, and no operand that needs a layout may start.
pub fn read(directory: &Path) -> io::Result<Option<LayoutOrder>> {
    super::read_json(&directory.join(LAYOUT_FILE))
}

/// Takes an order in a vendor's directory. `idle` tells whether a reading of just now found nothing of the vendor in use.
#[must_use]
pub fn obey(directory: &Path, order: &LayoutOrder, idle: bool) -> Outcome {
    match try_obey(directory, order, idle) {
        Ok(outcome) => outcome,
        Err(error) => Outcome::Failed(error.to_string()),
    }
}

fn try_obey(directory: &Path, order: &LayoutOrder, idle: bool) -> io::Result<Outcome> {
    // Most nodes never get a layout: nothing is made there.
    if order.layout.is_none() && !directory.join(LAYOUT_FILE).try_exists()? {
        return Ok(Outcome::InForce);
    }
    fs::create_dir_all(directory)?;
    // One order at a time, and none beside an order about the word: two agents' host sides may overlap while a pod is replaced.
    let turn = File::open(directory)?;
    match flock(&turn, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(rustix::io::Errno::WOULDBLOCK) => return Ok(Outcome::Busy),
        Err(errno) => return Err(errno.into()),
    }
    // A file that holds no order bars nothing: it is written whole or not at all.
    let newest = match read(directory) {
        Err(error) if error.kind() != io::ErrorKind::InvalidData => return Err(error),
        found => found.unwrap_or(None),
    };
    if newest.as_ref() == Some(order) {
        return Ok(Outcome::InForce);
    }
    let older = |known: &LayoutOrder| {
        known.object_uid == order.object_uid && known.generation > order.generation
    };
    if newest.as_ref().is_some_and(older) {
        return Ok(Outcome::Outdated);
    }
    let same_layout = newest.is_some_and(|known| known.layout == order.layout);
    // To leave the geometry as it is disturbs nobody.
    if same_layout || order.layout.is_none() || idle {
        super::write_json(directory, LAYOUT_FILE, order)?;
        return Ok(Outcome::InForce);
    }
    Ok(Outcome::Busy)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(lnc: Option<u8>, uid: &str, generation: i64) -> LayoutOrder {
        LayoutOrder {
            object_uid: uid.into(),
            generation,
            layout: lnc.map(Layout::LogicalNeuronCore),
        }
    }

    #[test]
    fn another_layout_is_taken_only_while_nothing_is_in_use() {
        let root = tempfile::tempdir().unwrap();
        let at = root.path();
        assert_eq!(obey(at, &order(Some(1), "an-1", 1), false), Outcome::Busy);
        assert_eq!(read(at).unwrap(), None);
        assert_eq!(obey(at, &order(Some(1), "an-1", 1), true), Outcome::InForce);
        assert_eq!(
            obey(at, &order(Some(1), "an-1", 2), false),
            Outcome::InForce,
            "the same layout, asked for again, disturbs nobody"
        );
        assert_eq!(read(at).unwrap(), Some(order(Some(1), "an-1", 2)));
        assert_eq!(obey(at, &order(Some(2), "an-1", 3), false), Outcome::Busy);
        assert_eq!(
            read(at).unwrap().unwrap().layout,
            Some(Layout::LogicalNeuronCore(1))
        );
    }

    #[test]
    fn a_late_order_of_a_forgotten_agent_is_refused() {
        let root = tempfile::tempdir().unwrap();
        let at = root.path();
        assert_eq!(obey(at, &order(Some(1), "an-1", 7), true), Outcome::InForce);
        assert_eq!(
            obey(at, &order(Some(2), "an-1", 6), true),
            Outcome::Outdated
        );
        assert_eq!(
            obey(at, &order(Some(2), "an-2", 1), true),
            Outcome::InForce,
            "a new object starts anew"
        );
    }

    #[test]
    fn no_layout_ends_an_order_under_running_workloads_and_makes_nothing_on_a_fresh_node() {
        let root = tempfile::tempdir().unwrap();
        let at = root.path().join("neuron");
        assert_eq!(obey(&at, &order(None, "an-1", 1), false), Outcome::InForce);
        assert!(!at.exists());
        assert_eq!(
            obey(&at, &order(Some(2), "an-1", 2), true),
            Outcome::InForce
        );
        assert_eq!(obey(&at, &order(None, "an-1", 3), false), Outcome::InForce);
        assert_eq!(read(&at).unwrap().unwrap().layout, None);
    }

    #[test]
    fn an_order_in_force_is_not_written_again() {
        let root = tempfile::tempdir().unwrap();
        let at = root.path();
        assert_eq!(obey(at, &order(Some(1), "an-1", 4), true), Outcome::InForce);
        // Writing through this link fails, so that any write would be seen.
        std::os::unix::fs::symlink("/dev/full", at.join(".layout.new")).unwrap();
        assert_eq!(
            obey(at, &order(Some(1), "an-1", 4), false),
            Outcome::InForce
        );
        assert!(matches!(
            obey(at, &order(Some(1), "an-1", 5), false),
            Outcome::Failed(_)
        ));
        assert_eq!(read(at).unwrap(), Some(order(Some(1), "an-1", 4)));
    }

    #[test]
    fn a_damaged_order_is_replaced_by_the_next_and_never_taken_for_none() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join(LAYOUT_FILE), "{\"objectUID\": \"an").unwrap();
        assert!(read(root.path()).is_err());
        assert_eq!(
            obey(root.path(), &order(Some(1), "an-1", 1), true),
            Outcome::InForce
        );
        assert_eq!(read(root.path()).unwrap(), Some(order(Some(1), "an-1", 1)));
    }
}
