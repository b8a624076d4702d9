//! The host's files, read below a root and within bounds.

pub mod inventory;
pub mod mig;
pub mod neuron;
pub mod nvidia;
pub mod pci;

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

/// Largest record that is read: the device manager's checkpoint carries a plugin's answer for every container, some tens of
/// KiB each at worst, and a node runs at most a few hundred.
pub const MAX_RECORD_BYTES: u64 = 16 << 20;
/// Largest procfs, sysfs or setting file that is read.
pub const MAX_SMALL_BYTES: u64 = 16 << 10;

/// The kernel's name for the present boot.
pub const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// A file or directory that is there and could not be read, or is not what it should be. The path is the host's own.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {problem}")]
pub struct ReadError {
    /// Path on the host.
    pub path: String,
    /// What is wrong with it.
    pub problem: String,
}

impl ReadError {
    /// Says what is wrong with a path of the host.
    pub fn new(path: impl Into<String>, problem: impl std::fmt::Display) -> Self {
        Self {
            path: path.into(),
            problem: problem.to_string(),
        }
    }
}

/// The host's file system as mounted below a root, normally `/host`.
#[derive(Clone, Debug)]
pub struct Host {
    root: PathBuf,
}

impl Host {
    /// The host below this root.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Where a host path is found from here.
    #[must_use]
    pub fn at(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// Reads a file whole; `None` when it does not exist.
    ///
    /// # Errors
    /// When it exists and cannot be read, or is larger than `limit` bytes.
    pub fn bytes(&self, path: &str, limit: u64) -> Result<Option<Vec<u8>>, ReadError> {
        let file = match File::open(self.at(path)) {
            Ok(file) => file,
            Err(error) if is_absent(&error) => return Ok(None),
            Err(error) => return Err(ReadError::new(path, error)),
        };
        let mut bytes = Vec::new();
        file.take(limit + 1)
            .read_to_end(&mut bytes)
            .map_err(|error| ReadError::new(path, error))?;
        if bytes.len() as u64 > limit {
            return Err(ReadError::new(
                path,
                format_args!("larger than {limit} bytes"),
            ));
        }
        Ok(Some(bytes))
    }

    /// Reads a small text file, trimmed; `None` when it does not exist.
    ///
    /// # Errors
    /// As [`Host::bytes`].
    pub fn text(&self, path: &str) -> Result<Option<String>, ReadError> {
        Ok(self
            .bytes(path, MAX_SMALL_BYTES)?
            .map(|bytes| String::from_utf8_lossy(&bytes).trim().to_owned()))
    }

    /// The boot ID.
    ///
    /// # Errors
    /// When it cannot be read, or is empty.
    pub fn boot_id(&self) -> Result<String, ReadError> {
        match self.text(BOOT_ID)? {
            Some(id) if !id.is_empty() => Ok(id),
            Some(_) => Err(ReadError::new(BOOT_ID, "empty")),
            None => Err(ReadError::new(BOOT_ID, "no such file")),
        }
    }

    /// Names in a directory, sorted; `None` when it does not exist.
    ///
    /// # Errors
    /// When it exists and cannot be read.
    pub fn names(&self, path: &str) -> Result<Option<Vec<String>>, ReadError> {
        names_in(&self.at(path)).map_err(|error| ReadError::new(path, error))
    }

    /// Whether a path exists.
    ///
    /// # Errors
    /// When that cannot be told.
    pub fn exists(&self, path: &str) -> Result<bool, ReadError> {
        match fs::symlink_metadata(self.at(path)) {
            Ok(_) => Ok(true),
            Err(error) if is_absent(&error) => Ok(false),
            Err(error) => Err(ReadError::new(path, error)),
        }
    }
}

/// Names in a directory, sorted; `None` when it does not exist. Names that are not UTF-8 are nobody's here and left out.
fn names_in(path: &Path) -> io::Result<Option<Vec<String>>> {
    let entries = match fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) if is_absent(&error) => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut names = Vec::new();
    for entry in entries {
        if let Ok(name) = entry?.file_name().into_string() {
            names.push(name);
        }
    }
    names.sort_unstable();
    Ok(Some(names))
}

/// "Not there" in both its forms: a missing name, and a missing (non-)directory on the way to it.
fn is_absent(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}
