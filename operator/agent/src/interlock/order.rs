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
    /// When that was created, in seconds since 1970. Of two objects the younger's orders count: the other is one that was replaced,
    /// held by an agent that has not heard of it.
    #[serde(default)]
    pub object_created: i64,
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
    /// A younger order of the same object, or one of a younger object, was carried out before.
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
    let this = Origin::of(order);
    if newest.as_ref().is_some_and(|newest| newest.is_after(&this)) {
        return Ok(Outcome::Outdated);
    }
    let remember = || {
        if newest.as_ref() == Some(&this) {
            return Ok(());
        }
        super::replace(directory, ORDER_FILE, &this.text())
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

/// Where an order comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    pub object_uid: String,
    pub object_created: i64,
    pub generation: i64,
}

impl Origin {
    fn of(order: &Order) -> Self {
        Self {
            object_uid: order.object_uid.clone(),
            object_created: order.object_created,
            generation: order.generation,
        }
    }

    /// Whether an order from there makes one from `other` void. Objects made within one second are not told apart.
    pub(crate) fn is_after(&self, other: &Self) -> bool {
        if self.object_uid == other.object_uid {
            self.generation > other.generation
        } else {
            self.object_created > other.object_created
        }
    }

    fn text(&self) -> String {
        let Self {
            object_uid,
            object_created,
            generation,
        } = self;
        format!("{object_uid} {generation} {object_created}\n")
    }

    /// Files of before have no time.
    fn parse(text: &str) -> Option<Self> {
        let mut words = text.split_whitespace();
        let (object_uid, generation) = (words.next()?.to_owned(), words.next()?.parse().ok()?);
        let object_created = words.next().map_or(Ok(0), str::parse).ok()?;
        Some(Self {
            object_uid,
            object_created,
            generation,
        })
    }
}

/// The newest order carried out. A file that does not hold one bars nothing: it is written whole or not at all.
fn newest(directory: &Path) -> io::Result<Option<Origin>> {
    match fs::read_to_string(directory.join(ORDER_FILE)) {
        Ok(text) => Ok(Origin::parse(&text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(owner: Owner, uid: &str, generation: i64) -> Order {
        Order {
            vendor: Vendor::Neuron,
            owner,
            object_uid: uid.into(),
            object_created: 0,
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
    fn two_agents_with_an_object_and_its_replacement_do_not_take_turns() {
        let root = tempfile::tempdir().unwrap();
        let at = root.path();
        let of = |created, owner, uid, generation| Order {
            object_created: created,
            ..order(owner, uid, generation)
        };
        let old = of(1_700, Owner::DevicePlugin, "an-old", 9);
        let new = of(1_800, Owner::Dra, "an-new", 1);
        assert_eq!(obey(at, &old), Outcome::InForce);
        for _ in 0..2 {
            assert_eq!(obey(at, &new), Outcome::InForce);
            assert_eq!(obey(at, &old), Outcome::Outdated);
        }
        assert_eq!(word::read(at).unwrap(), Some(Owner::Dra));
        fs::write(at.join(ORDER_FILE), "an-older 7\n").unwrap();
        assert_eq!(obey(at, &old), Outcome::InForce, "a file of before");
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
