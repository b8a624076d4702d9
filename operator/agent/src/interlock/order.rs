//! Changing the owner word on the controller's order.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use freehold_core::vendor::{Owner, Vendor};
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use super::lock::Lock;
use super::word;

/// Name of the file that remembers the newest order.
pub const ORDER_FILE: &str = "order";

/// An order to put a word in force, taken from an `AcceleratorNode`'s spec.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Order {
    /// Whose devices.
    pub vendor: Vendor,
    /// The word.
    pub owner: Owner,
    /// UID of the `AcceleratorNode` that holds the order.
    #[serde(rename = "objectUID")]
    pub object_uid: String,
    /// Its `metadata.generation`: of two orders in one object the younger has the higher.
    pub generation: i64,
}

/// What became of an order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum Outcome {
    /// The word ordered is in force.
    InForce,
    /// Somebody holds the lock: an operand is alive, or another order is being carried out. Worth asking again.
    Busy,
    /// A younger order of the same object was carried out before.
    Outdated,
    /// The word could not be changed, and the old one is in force.
    Failed(String),
}

/// Carries out an order in a vendor's directory.
#[must_use]
pub fn obey(directory: &Path, order: &Order) -> Outcome {
    match try_obey(directory, order) {
        Ok(outcome) => outcome,
        Err(error) => Outcome::Failed(error.to_string()),
    }
}

fn try_obey(directory: &Path, order: &Order) -> io::Result<Outcome> {
    fs::create_dir_all(directory)?;
    // One order at a time: two agents' host sides may overlap while a pod is replaced.
    let turn = File::open(directory)?;
    match flock(&turn, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(rustix::io::Errno::WOULDBLOCK) => return Ok(Outcome::Busy),
        Err(errno) => return Err(errno.into()),
    }
    let newest = newest(directory)?;
    if newest
        .as_ref()
        .is_some_and(|(uid, generation)| *uid == order.object_uid && *generation > order.generation)
    {
        return Ok(Outcome::Outdated);
    }
    let remember = || {
        if newest.as_ref().is_some_and(|(uid, generation)| {
            *uid == order.object_uid && *generation == order.generation
        }) {
            return Ok(());
        }
        super::replace(
            directory,
            ORDER_FILE,
            &format!("{} {}\n", order.object_uid, order.generation),
        )
    };
    // A word that cannot be read is replaced like any other: nobody can be running under it.
    if word::read(directory).ok().flatten() == Some(order.owner) {
        remember()?;
        return Ok(Outcome::InForce);
    }
    let Some(lock) = Lock::try_take(directory)? else {
        return Ok(Outcome::Busy);
    };
    // The order first: should the word fail, an older order is refused all the same.
    remember()?;
    word::write(directory, order.owner, &lock)?;
    Ok(Outcome::InForce)
}

/// The newest order carried out. A file that does not hold one bars nothing: it is written whole or not at all.
fn newest(directory: &Path) -> io::Result<Option<(String, i64)>> {
    let text = match fs::read_to_string(directory.join(ORDER_FILE)) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    Ok(text
        .trim_end()
        .split_once(' ')
        .and_then(|(uid, generation)| Some((uid.to_owned(), generation.parse().ok()?))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(owner: Owner, uid: &str, generation: i64) -> Order {
        Order {
            vendor: Vendor::Neuron,
            owner,
            object_uid: uid.into(),
            generation,
        }
    }

    #[test]
    fn an_order_changes_the_word_only_while_nobody_holds_the_lock() {
        let root = tempfile::tempdir().unwrap();
        let at = root.path();
        assert_eq!(
            obey(at, &order(Owner::DevicePlugin, "an-1", 1)),
            Outcome::InForce
        );
        let operand = Lock::try_take(at).unwrap().unwrap();
        assert_eq!(obey(at, &order(Owner::Dra, "an-1", 2)), Outcome::Busy);
        assert_eq!(word::read(at).unwrap(), Some(Owner::DevicePlugin));
        assert_eq!(
            obey(at, &order(Owner::DevicePlugin, "an-1", 3)),
            Outcome::InForce,
            "the word in force needs no lock"
        );
        drop(operand);
        assert_eq!(obey(at, &order(Owner::Dra, "an-1", 4)), Outcome::InForce);
        assert_eq!(word::read(at).unwrap(), Some(Owner::Dra));
    }

    #[test]
    fn a_late_order_of_a_forgotten_agent_is_refused() {
        let root = tempfile::tempdir().unwrap();
        let at = root.path();
        assert_eq!(obey(at, &order(Owner::Dra, "an-1", 7)), Outcome::InForce);
        assert_eq!(
            obey(at, &order(Owner::DevicePlugin, "an-1", 6)),
            Outcome::Outdated
        );
        assert_eq!(word::read(at).unwrap(), Some(Owner::Dra));
        assert_eq!(
            obey(at, &order(Owner::DevicePlugin, "an-2", 1)),
            Outcome::InForce,
            "a new object starts anew"
        );
    }

    #[test]
    fn a_full_disk_keeps_the_old_word() {
        let root = tempfile::tempdir().unwrap();
        let at = root.path();
        assert_eq!(obey(at, &order(Owner::Dra, "an-1", 1)), Outcome::InForce);
        // Writing through this link fails as writing to a full disk does.
        std::os::unix::fs::symlink("/dev/full", at.join(".owner.new")).unwrap();
        let Outcome::Failed(message) = obey(at, &order(Owner::DevicePlugin, "an-1", 2)) else {
            panic!("must fail")
        };
        assert!(message.contains("No space left"), "{message}");
        assert_eq!(word::read(at).unwrap(), Some(Owner::Dra));
        assert_eq!(
            obey(at, &order(Owner::DevicePlugin, "an-1", 2)),
            Outcome::InForce,
            "and the next try finds room"
        );
    }

    #[test]
    fn a_damaged_word_is_replaced_by_the_next_order() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join(word::WORD_FILE), "dr").unwrap();
        assert_eq!(
            obey(root.path(), &order(Owner::Dra, "an-1", 1)),
            Outcome::InForce
        );
        assert_eq!(word::read(root.path()).unwrap(), Some(Owner::Dra));
    }
}
