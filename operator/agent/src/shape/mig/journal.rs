//! What is being changed, on disk, so that a crash leaves nobody in between.
//!
//! Written before the first change of a GPU, forgotten once the GPU is where it was to go, or back where it was. Whoever finds
//! one goes on to what is ordered now; where that cannot be, back to what was.

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::super::{read_json, write_json};
use super::aim::Geometry;

/// Name of the file in the vendor's directory.
pub const JOURNAL_FILE: &str = "journal";

/// Changes that are under way.
#[derive(Debug)]
pub struct Journal {
    directory: PathBuf,
    content: Content,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Content {
    /// Boot in which it was written: instances do not outlive one.
    #[serde(rename = "bootID")]
    boot_id: String,
    changes: Vec<Change>,
}

/// One GPU's change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Change {
    /// UUID of the GPU.
    pub uuid: String,
    /// Its minor number, for people.
    pub gpu: u32,
    /// What it carried.
    pub before: Geometry,
    /// What it is to carry.
    pub after: Geometry,
}

impl Journal {
    /// Reads what was left; what another boot left means nothing any more.
    ///
    /// # Errors
    /// When the file cannot be read, or is no journal: then what it holds would be lost.
    pub fn read(directory: &Path, boot_id: &str) -> io::Result<Self> {
        let left: Option<Content> = read_json(&directory.join(JOURNAL_FILE))?;
        let content = left
            .filter(|content| content.boot_id == boot_id)
            .unwrap_or_else(|| Content {
                boot_id: boot_id.to_owned(),
                changes: Vec::new(),
            });
        Ok(Self {
            directory: directory.to_owned(),
            content,
        })
    }

    /// Changes that are under way.
    pub fn changes(&self) -> &[Change] {
        &self.content.changes
    }

    /// Puts changes on record. A GPU that is on record keeps what it carried before the first one.
    ///
    /// # Errors
    /// When it cannot be written; nothing may be changed then.
    pub fn begin(&mut self, changes: &[Change]) -> io::Result<()> {
        for change in changes {
            let known = self
                .content
                .changes
                .iter_mut()
                .find(|known| known.uuid == change.uuid);
            match known {
                Some(known) => known.after = change.after.clone(),
                None => self.content.changes.push(change.clone()),
            }
        }
        write_json(&self.directory, JOURNAL_FILE, &self.content)
    }

    /// What a GPU carried before.
    pub fn before(&self, uuid: &str) -> Option<&Geometry> {
        self.content
            .changes
            .iter()
            .find(|change| change.uuid == uuid)
            .map(|change| &change.before)
    }

    /// Forgets GPUs that are settled, and the file with the last one.
    ///
    /// # Errors
    /// When the file cannot be changed.
    pub fn settle(&mut self, is_settled: impl Fn(&str) -> bool) -> io::Result<()> {
        let before = self.content.changes.len();
        self.content
            .changes
            .retain(|change| !is_settled(&change.uuid));
        if self.content.changes.is_empty() {
            match std::fs::remove_file(self.directory.join(JOURNAL_FILE)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                Ok(()) | Err(_) => Ok(()),
            }
        } else if self.content.changes.len() < before {
            write_json(&self.directory, JOURNAL_FILE, &self.content)
        } else {
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use freehold_core::geometry::Placement;

    use super::*;

    fn change(uuid: &str, from: u32, to: u32) -> Change {
        let at = |profile| Geometry {
            mig: true,
            instances: vec![(profile, Placement { start: 4, size: 4 })],
        };
        Change {
            uuid: uuid.into(),
            gpu: 3,
            before: at(from),
            after: at(to),
        }
    }

    #[test]
    fn what_was_before_the_first_change_is_kept_through_crashes_of_one_boot() {
        let root = tempfile::tempdir().unwrap();
        let mut journal = Journal::read(root.path(), "boot-1").unwrap();
        assert_eq!(journal.changes(), []);
        journal
            .begin(&[change("a", 19, 9), change("b", 14, 5)])
            .unwrap();
        let mut journal = Journal::read(root.path(), "boot-1").unwrap();
        journal.begin(&[change("a", 9, 0)]).unwrap();
        let journal_after = Journal::read(root.path(), "boot-1").unwrap();
        assert_eq!(
            journal_after.changes(),
            [change("a", 19, 0), change("b", 14, 5)]
        );
        assert_eq!(
            Journal::read(root.path(), "boot-2").unwrap().changes(),
            [],
            "instances of another boot are gone"
        );
        journal.settle(|uuid| uuid == "a").unwrap();
        assert_eq!(
            Journal::read(root.path(), "boot-1").unwrap().changes(),
            [change("b", 14, 5)]
        );
        journal.settle(|_| true).unwrap();
        assert!(!root.path().join(JOURNAL_FILE).exists());
        journal.settle(|_| true).unwrap();
    }

    #[test]
    fn a_damaged_journal_is_an_error_and_not_an_absent_one() {
        let root = tempfile::tempdir().unwrap();
        std::fs::write(root.path().join(JOURNAL_FILE), "{").unwrap();
        assert!(Journal::read(root.path(), "boot-1").is_err());
    }
}
