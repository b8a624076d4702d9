//! The owner word.

use std::fs;
use std::io;
use std::path::Path;

use freehold_core::vendor::Owner;

/// Name of the owner word's file in a vendor's directory.
pub const WORD_FILE: &str = "owner";

/// Reads the word; `None` when there is none.
///
/// # Errors
/// When the file cannot be read or holds something else: then nobody may start, and nobody is said to be the owner.
pub fn read(directory: &Path) -> io::Result<Option<Owner>> {
    let path = directory.join(WORD_FILE);
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let word = text.strip_suffix('\n').and_then(Owner::from_word);
    word.map(Some).ok_or_else(|| {
        let start: String = text.chars().take(32).collect();
        io::Error::new(
            io::ErrorKind::InvalidData,
            format!("holds {start:?}, which is no owner word"),
        )
    })
}

/// Replaces the word. Only for the holder of the lock, hence the parameter.
///
/// # Errors
/// When it cannot be written; the old word is in force then.
pub fn write(directory: &Path, owner: Owner, _held: &super::lock::Lock) -> io::Result<()> {
    super::replace(directory, WORD_FILE, &format!("{}\n", owner.word()))
}

#[cfg(test)]
mod tests {
    use super::super::lock::Lock;
    use super::*;

    #[test]
    fn a_word_is_read_back_as_written_and_its_bytes_are_the_contract() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(read(root.path()).unwrap(), None);
        let lock = Lock::try_take(root.path()).unwrap().unwrap();
        for (owner, bytes) in [
            (Owner::DevicePlugin, "device-plugin\n"),
            (Owner::Dra, "dra\n"),
        ] {
            write(root.path(), owner, &lock).unwrap();
            assert_eq!(
                fs::read_to_string(root.path().join(WORD_FILE)).unwrap(),
                bytes
            );
            assert_eq!(read(root.path()).unwrap(), Some(owner));
        }
    }

    #[test]
    fn anything_else_is_an_error_and_not_an_absent_word() {
        let root = tempfile::tempdir().unwrap();
        for text in ["", "dra", "dra\n\n", "DRA\n", "device-plugi"] {
            fs::write(root.path().join(WORD_FILE), text).unwrap();
            assert!(read(root.path()).is_err(), "{text:?}");
        }
    }
}
