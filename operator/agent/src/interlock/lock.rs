//! The lock.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

/// Name of the lock file in a vendor's directory.
pub const LOCK_FILE: &str = "lock";

/// The lock of one vendor on this node, held until dropped or until the process ends, however it ends.
#[derive(Debug)]
pub struct Lock {
    file: File,
    path: PathBuf,
}

impl Lock {
    /// Takes the lock; `None` when somebody else holds it. Makes the directory and the file where they are missing.
    ///
    /// # Errors
    /// When the file cannot be made, opened or locked.
    pub fn try_take(directory: &Path) -> io::Result<Option<Self>> {
        Self::try_take_named(directory, LOCK_FILE)
    }

    /// The same with a file of another name: another lock.
    pub(crate) fn try_take_named(directory: &Path, name: &str) -> io::Result<Option<Self>> {
        fs::create_dir_all(directory)?;
        let path = directory.join(name);
        loop {
            let file = OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .open(&path)?;
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(rustix::io::Errno::WOULDBLOCK) => return Ok(None),
                Err(rustix::io::Errno::INTR) => continue,
                Err(errno) => return Err(errno.into()),
            }
            let lock = Self {
                file,
                path: path.clone(),
            };
            // Between opening and locking the file may have been replaced, and a lock on a nameless file excludes nobody.
            if lock.is_current()? {
                return Ok(Some(lock));
            }
        }
    }

    /// Whether somebody holds the lock of this name. Makes nothing.
    ///
    /// # Errors
    /// When that cannot be told.
    pub(crate) fn is_held(directory: &Path, name: &str) -> io::Result<bool> {
        let file = match File::open(directory.join(name)) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(error),
        };
        // Shared, so that two who ask do not take each other for a holder. Let go at once.
        match flock(&file, FlockOperation::NonBlockingLockShared) {
            Ok(()) => Ok(false),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(true),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Whether the locked file is still the one that others will try.
    ///
    /// # Errors
    /// When that cannot be told.
    pub fn is_current(&self) -> io::Result<bool> {
        let held = self.file.metadata()?;
        match fs::metadata(&self.path) {
            Ok(named) => Ok(named.ino() == held.ino() && named.dev() == held.dev()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_holder_at_a_time_and_the_next_after_it() {
        let root = tempfile::tempdir().unwrap();
        let directory = root.path().join("missing/yet");
        let first = Lock::try_take(&directory).unwrap().unwrap();
        assert!(Lock::try_take(&directory).unwrap().is_none());
        drop(first);
        assert!(Lock::try_take(&directory).unwrap().is_some());
    }

    #[test]
    fn to_ask_who_holds_it_takes_nothing_and_makes_nothing() {
        let root = tempfile::tempdir().unwrap();
        let is_held = || Lock::is_held(root.path(), LOCK_FILE).unwrap();
        assert!(!is_held() && !root.path().join(LOCK_FILE).exists());
        let lock = Lock::try_take(root.path()).unwrap();
        assert!(is_held() && is_held());
        drop(lock);
        assert!(!is_held());
        assert!(Lock::try_take(root.path()).unwrap().is_some());
    }

    #[test]
    fn a_lock_on_a_replaced_file_is_known_to_be_worthless() {
        let root = tempfile::tempdir().unwrap();
        let lock = Lock::try_take(root.path()).unwrap().unwrap();
        assert!(lock.is_current().unwrap());
        fs::remove_file(root.path().join(LOCK_FILE)).unwrap();
        assert!(!lock.is_current().unwrap());
        let other = Lock::try_take(root.path()).unwrap().unwrap();
        assert!(other.is_current().unwrap() && !lock.is_current().unwrap());
    }
}
