//! The ordered layout, as the witness leaves it for the shaper.
//!
//! An order lies on the disk and is carried out whenever the shaper gets a turn, also after a reboot and without the controller.
//! So it is taken only at a moment when nothing of the vendor is in use, or when it asks for what was ordered, or is there, anyhow.
//!
//! To have an order is not to have leave to act on it. Workloads outlive their operand, and with it the lock: a geometry that was
//! in force in this boot and was changed by somebody since may have workloads on it while the lock is free. So each leave is good
//! until the layout is in force once; another is given at a moment when nothing is in use and no operand is alive.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use freehold_core::intent::Layout;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use crate::interlock::lock::Lock;
use crate::interlock::order::{Origin, Outcome};

/// Name of the file.
pub const LAYOUT_FILE: &str = "layout";

/// The layout that an `AcceleratorNode`'s spec orders, and which spec that was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LayoutOrder {
    /// UID of the `AcceleratorNode` that holds the order.
    #[serde(rename = "objectUID")]
    pub object_uid: String,
    /// When that was created, in seconds since 1970: of two objects the younger's orders count.
    #[serde(default, skip_serializing_if = "is_unknown")]
    pub object_created: i64,
    /// Its `metadata.generation`: of two orders in one object the younger has the higher.
    pub generation: i64,
    /// The layout; `None` leaves the geometry as it is.
    #[serde(default)]
    pub layout: Option<Layout>,
}

/// A file of before says no time.
const fn is_unknown(created: &i64) -> bool {
    *created == 0
}

impl LayoutOrder {
    fn origin(&self) -> Origin {
        Origin {
            object_uid: self.object_uid.clone(),
            object_created: self.object_created,
            generation: self.generation,
        }
    }
}

/// An order that was taken: what the file holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Taken {
    /// The order.
    #[serde(flatten)]
    pub order: LayoutOrder,
    /// Number of the last leave to change the geometry; counts up.
    #[serde(default)]
    pub leave: u64,
    /// Boot in which the order was taken while devices were in use: the geometry was as ordered, or was to be left as it is. In that
    /// boot it is no leave to change anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub barred_in: Option<String>,
}

impl Taken {
    /// Whether the shaper may change the geometry in this boot. `used` is the leave under which the ordered layout was in force
    /// in it, if it was.
    #[must_use]
    pub fn may_change(&self, boot_id: &str, used: Option<u64>) -> bool {
        self.barred_in.as_deref() != Some(boot_id) && used.is_none_or(|used| self.leave > used)
    }
}

/// What a reading of just now found of the vendor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment<'a> {
    /// Nothing is in use.
    Idle,
    /// Devices are in use, or may be, and the geometry is the ordered one. In this boot.
    Met(&'a str),
    /// Devices are in use, or may be. In this boot.
    InUse(&'a str),
}

/// Reads the order in force; `None` when none was ever given.
///
/// # Errors
/// When the file cannot be read or holds something else. Then nothing may be shaped, and no operand that needs a layout may start.
pub fn read(directory: &Path) -> io::Result<Option<LayoutOrder>> {
    Ok(read_taken(directory)?.map(|taken| taken.order))
}

/// As [`read`], with the leave.
///
/// # Errors
/// See [`read`].
pub fn read_taken(directory: &Path) -> io::Result<Option<Taken>> {
    super::read_json(&directory.join(LAYOUT_FILE))
}

/// Takes an order in a vendor's directory.
#[must_use]
pub fn obey(directory: &Path, order: &LayoutOrder, moment: Moment<'_>) -> Outcome {
    match try_obey(directory, order, moment) {
        Ok(outcome) => outcome,
        Err(error) => Outcome::Failed(error.to_string()),
    }
}

/// Gives leave to bring the ordered geometry back, if no operand is alive. `used` is the leave that the shaper has used up; the
/// caller has found nothing in use just now. Whether it was given.
///
/// # Errors
/// When the file or the lock cannot be read or written.
pub fn give_leave(directory: &Path, used: u64) -> io::Result<bool> {
    let Some(_turn) = turn(directory)? else {
        return Ok(false);
    };
    let Some(taken) = read_taken(directory)? else {
        return Ok(false);
    };
    if taken.leave > used && taken.barred_in.is_none() {
        // Given before, and not used up yet.
        return Ok(false);
    }
    // Held until the file is written: an operand that starts after that waits for the shaper.
    let Some(_lock) = Lock::try_take(directory)? else {
        return Ok(false);
    };
    let leave = taken.leave.max(used).saturating_add(1);
    let taken = Taken {
        leave,
        barred_in: None,
        ..taken
    };
    super::write_json(directory, LAYOUT_FILE, &taken)?;
    Ok(true)
}

/// One order at a time, and none beside an order about the word: two agents' host sides may overlap while a pod is replaced.
/// `None` while another is being carried out.
fn turn(directory: &Path) -> io::Result<Option<File>> {
    let turn = File::open(directory)?;
    match flock(&turn, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(turn)),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

fn try_obey(directory: &Path, order: &LayoutOrder, moment: Moment<'_>) -> io::Result<Outcome> {
    // Most nodes never get a layout: nothing is made there.
    if order.layout.is_none() && !directory.join(LAYOUT_FILE).try_exists()? {
        return Ok(Outcome::InForce);
    }
    fs::create_dir_all(directory)?;
    let Some(_turn) = turn(directory)? else {
        return Ok(Outcome::Busy);
    };
    // A file that holds no order bars nothing: it is written whole or not at all.
    let newest = match read_taken(directory) {
        Err(error) if error.kind() != io::ErrorKind::InvalidData => return Err(error),
        found => found.unwrap_or(None),
    };
    let known = newest.as_ref().map(|newest| &newest.order);
    if known == Some(order) {
        return Ok(Outcome::InForce);
    }
    if known.is_some_and(|known| known.origin().is_after(&order.origin())) {
        return Ok(Outcome::Outdated);
    }
    let same_layout = known.is_some_and(|known| known.layout == order.layout);
    let leave = newest.as_ref().map_or(0, |newest| newest.leave);
    let (leave, barred_in) = match moment {
        // Asked for before: neither more leave nor less.
        _ if same_layout => (leave, newest.and_then(|newest| newest.barred_in)),
        Moment::Idle => (leave.saturating_add(1), None),
        // To leave the geometry as it is disturbs nobody.
        Moment::InUse(_) if order.layout.is_some() => return Ok(Outcome::Busy),
        Moment::Met(boot_id) | Moment::InUse(boot_id) => (leave, Some(boot_id.to_owned())),
    };
    let taken = Taken {
        order: order.clone(),
        leave,
        barred_in,
    };
    super::write_json(directory, LAYOUT_FILE, &taken)?;
    Ok(Outcome::InForce)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(lnc: Option<u8>, uid: &str, generation: i64) -> LayoutOrder {
        LayoutOrder {
            object_uid: uid.into(),
            object_created: 0,
            generation,
            layout: lnc.map(Layout::LogicalNeuronCore),
        }
    }

    #[test]
    fn another_layout_is_taken_only_while_nothing_is_in_use() {
        let root = tempfile::tempdir().unwrap();
        let at = root.path();
        assert_eq!(
            obey(at, &order(Some(1), "an-1", 1), Moment::InUse("boot-1")),
            Outcome::Busy
        );
        assert_eq!(read(at).unwrap(), None);
        assert_eq!(
            obey(at, &order(Some(1), "an-1", 1), Moment::Idle),
            Outcome::InForce
        );
        assert_eq!(
            obey(at, &order(Some(1), "an-1", 2), Moment::InUse("boot-1")),
            Outcome::InForce,
            "the same layout, asked for again, disturbs nobody"
        );
        assert_eq!(read(at).unwrap(), Some(order(Some(1), "an-1", 2)));
        assert_eq!(
            obey(at, &order(Some(2), "an-1", 3), Moment::InUse("boot-1")),
            Outcome::Busy
        );
        assert_eq!(
            read(at).unwrap().unwrap().layout,
            Some(Layout::LogicalNeuronCore(1))
        );
    }

    #[test]
    fn a_late_order_of_a_forgotten_agent_is_refused() {
        let root = tempfile::tempdir().unwrap();
        let at = root.path();
        assert_eq!(
            obey(at, &order(Some(1), "an-1", 7), Moment::Idle),
            Outcome::InForce
        );
        assert_eq!(
            obey(at, &order(Some(2), "an-1", 6), Moment::Idle),
            Outcome::Outdated
        );
        assert_eq!(
            obey(at, &order(Some(2), "an-2", 1), Moment::Idle),
            Outcome::InForce,
            "a new object starts anew"
        );
    }

    #[test]
    fn an_object_that_was_replaced_orders_nothing_any_more() {
        let root = tempfile::tempdir().unwrap();
        let at = root.path();
        let of = |created, lnc, uid, generation| LayoutOrder {
            object_created: created,
            ..order(lnc, uid, generation)
        };
        let new = of(1_800, Some(1), "an-new", 1);
        assert_eq!(obey(at, &new, Moment::Idle), Outcome::InForce);
        for late in [Some(2), Some(1), None] {
            let late = of(1_700, late, "an-old", 9);
            assert_eq!(obey(at, &late, Moment::Idle), Outcome::Outdated);
        }
        assert_eq!(read(at).unwrap(), Some(new));
    }

    #[test]
    fn no_layout_ends_an_order_under_running_workloads_and_makes_nothing_on_a_fresh_node() {
        let root = tempfile::tempdir().unwrap();
        let at = root.path().join("neuron");
        assert_eq!(
            obey(&at, &order(None, "an-1", 1), Moment::InUse("boot-1")),
            Outcome::InForce
        );
        assert!(!at.exists());
        assert_eq!(
            obey(&at, &order(Some(2), "an-1", 2), Moment::Idle),
            Outcome::InForce
        );
        assert_eq!(
            obey(&at, &order(None, "an-1", 3), Moment::InUse("boot-1")),
            Outcome::InForce
        );
        assert_eq!(read(&at).unwrap().unwrap().layout, None);
    }

    #[test]
    fn an_order_in_force_is_not_written_again() {
        let root = tempfile::tempdir().unwrap();
        let at = root.path();
        assert_eq!(
            obey(at, &order(Some(1), "an-1", 4), Moment::Idle),
            Outcome::InForce
        );
        // Writing through this link fails, so that any write would be seen.
        std::os::unix::fs::symlink("/dev/full", at.join(".layout.new")).unwrap();
        assert_eq!(
            obey(at, &order(Some(1), "an-1", 4), Moment::InUse("boot-1")),
            Outcome::InForce
        );
        assert!(matches!(
            obey(at, &order(Some(1), "an-1", 5), Moment::InUse("boot-1")),
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
            obey(root.path(), &order(Some(1), "an-1", 1), Moment::Idle),
            Outcome::InForce
        );
        assert_eq!(read(root.path()).unwrap(), Some(order(Some(1), "an-1", 1)));
    }

    #[test]
    fn leave_is_given_with_another_layout_at_rest_and_not_with_the_same_one_again() {
        let root = tempfile::tempdir().unwrap();
        let at = root.path();
        let leave = || read_taken(at).unwrap().unwrap().leave;
        let _ = obey(at, &order(Some(1), "an-1", 1), Moment::Idle);
        assert_eq!(leave(), 1);
        let _ = obey(at, &order(Some(1), "an-1", 2), Moment::Idle);
        let _ = obey(at, &order(Some(1), "an-2", 1), Moment::InUse("boot-1"));
        assert_eq!(leave(), 1);
        let _ = obey(at, &order(Some(2), "an-2", 2), Moment::Idle);
        assert_eq!(leave(), 2);
        let taken = read_taken(at).unwrap().unwrap();
        assert!(taken.may_change("boot-1", None) && taken.may_change("boot-1", Some(1)));
        assert!(!taken.may_change("boot-1", Some(2)), "used up");
    }

    #[test]
    fn another_leave_is_given_while_no_operand_is_alive() {
        let root = tempfile::tempdir().unwrap();
        let at = root.path();
        assert!(!give_leave(at, 0).unwrap(), "without an order");
        let _ = obey(at, &order(Some(1), "an-1", 1), Moment::Idle);
        let operand = Lock::try_take(at).unwrap().unwrap();
        assert!(!give_leave(at, 1).unwrap());
        drop(operand);
        assert!(give_leave(at, 4).unwrap());
        assert!(!give_leave(at, 4).unwrap(), "one at a time");
        let taken = read_taken(at).unwrap().unwrap();
        assert_eq!((taken.leave, &taken.order), (5, &order(Some(1), "an-1", 1)));
    }

    #[test]
    fn what_is_there_anyhow_is_taken_under_running_workloads_and_changes_nothing_in_that_boot() {
        let root = tempfile::tempdir().unwrap();
        let at = root.path();
        let wanted = order(Some(1), "an-1", 1);
        assert_eq!(obey(at, &wanted, Moment::Met("boot-1")), Outcome::InForce);
        let taken = read_taken(at).unwrap().unwrap();
        assert!(!taken.may_change("boot-1", None));
        assert!(
            taken.may_change("boot-2", None),
            "a layout is made anew after each boot"
        );
        assert!(give_leave(at, 0).unwrap());
        assert!(
            read_taken(at)
                .unwrap()
                .unwrap()
                .may_change("boot-1", Some(0))
        );
    }
}
