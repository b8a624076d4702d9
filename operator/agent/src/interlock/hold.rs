//! The sidecar of an operand pod: holds lock and word for as long as the pod lives.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::time::Duration;

use freehold_core::vendor::{Owner, Vendor};

use super::lock::Lock;
use super::{started, word};
use crate::host::{BOOT_ID, Host};
use crate::shape::gate;

/// How often a waiting sidecar looks again. The operand's start waits for it, and a look costs three system calls.
const LOOK: Duration = Duration::from_millis(500);
/// How often a holding sidecar makes sure that its lock is still the one that others try.
const CHECK: Duration = Duration::from_secs(5);

/// What one sidecar holds, and for whom.
#[derive(Clone, Debug)]
pub struct Hold {
    /// Whose devices.
    pub vendor: Vendor,
    /// The owner that this pod's operand implements.
    pub owner: Owner,
    /// The vendor's directory on the host.
    pub directory: PathBuf,
    /// The mark for the startup probe.
    pub mark: PathBuf,
    /// Where the cohort wants a layout: the file with the boot ID in which the layout must be verified.
    pub shaped: Option<PathBuf>,
}

impl Hold {
    /// Waits for lock and word, holds them, and lets go when `stop` resolves. Says on stdout, once for each change, what it
    /// waits for.
    pub async fn run(&self, stop: impl Future<Output = ()>) {
        // A mark from before this container started says nothing about now.
        let mut said = String::new();
        let held = async {
            let mut lock = None;
            loop {
                let (state, pause) = self.look(&mut lock);
                if said != state {
                    println!("{state}");
                    said = state;
                }
                tokio::time::sleep(pause).await;
            }
        };
        if let Err(error) = started::remove(&self.mark) {
            println!("cannot remove {}: {error}", self.mark.display());
        }
        // Kept until the end of this function, and the lock with it: the mark goes first.
        tokio::pin!(held);
        tokio::select! {
            () = &mut held => {}
            () = stop => {}
        }
        if let Err(error) = started::remove(&self.mark) {
            println!("cannot remove {}: {error}", self.mark.display());
        }
        println!("let go of {}", self.vendor.key());
    }

    /// One look: what is to be said about it, and when to look again.
    fn look(&self, held: &mut Option<Lock>) -> (String, Duration) {
        if let Some(lock) = held {
            let trouble = self
                .keep(lock)
                .err()
                .map(|trouble| format!(", but {trouble}"))
                .unwrap_or_default();
            return (
                format!(
                    "holding {} for {}{trouble}",
                    self.vendor.key(),
                    self.owner.word()
                ),
                CHECK,
            );
        }
        match self.take() {
            Ok(lock) => {
                *held = Some(lock);
                (
                    format!("holding {} for {}", self.vendor.key(), self.owner.word()),
                    CHECK,
                )
            }
            Err(reason) => (format!("waiting: {reason}"), LOOK),
        }
    }

    /// Takes lock and word, and makes the mark.
    fn take(&self) -> Result<Lock, String> {
        let (vendor, directory) = (self.vendor.key(), self.directory.display());
        // Looked at before the lock is tried, so that pods of the wrong owner never stand in the way of those who may.
        self.has_word()?;
        // Likewise for the geometry: the shaper needs the lock to make it. But an operand that was let in may be running, and
        // its sidecar, started again, leaves the lock to nobody because of what became of the geometry since.
        let boot_id = self.boot_id()?;
        let may_run = boot_id
            .as_deref()
            .is_some_and(|boot_id| started::was_let_in(&self.mark, boot_id));
        let boot_id = boot_id.filter(|_| !may_run);
        self.is_shaped(boot_id.as_deref())?;
        let lock = Lock::try_take(&self.directory)
            .map_err(|error| {
                format!("the lock of {vendor} in {directory} cannot be taken: {error}")
            })?
            .ok_or_else(|| format!("another process of this node holds the lock of {vendor}"))?;
        self.has_word()?;
        self.is_shaped(boot_id.as_deref())?;
        boot_id
            .map_or(Ok(()), |boot_id| started::let_in(&self.mark, &boot_id))
            .and_then(|()| started::put(&self.mark))
            .map_err(|error| format!("{} cannot be written: {error}", self.mark.display()))?;
        Ok(lock)
    }

    /// Looks after what is held. The operand runs, and this process cannot stop it: letting go would let a second owner in, so
    /// whatever somebody did by hand in the directory, the lock is kept, and the one that others will try is taken as well.
    fn keep(&self, lock: &mut Lock) -> Result<(), String> {
        let directory = self.directory.display();
        let current = lock
            .is_current()
            .map_err(|error| format!("the lock in {directory} cannot be checked: {error}"))?;
        if !current {
            let fresh = Lock::try_take(&self.directory)
                .map_err(|error| format!("the lock in {directory}: {error}"))?;
            *lock = fresh.ok_or_else(|| {
                format!("somebody removed the lock in {directory}, and another process holds the new one")
            })?;
        }
        self.has_word()
    }

    /// The present boot, where a layout must be verified in it.
    fn boot_id(&self) -> Result<Option<String>, String> {
        let read = |file: &PathBuf| {
            std::fs::read_to_string(file)
                .map(|text| text.trim().to_owned())
                .map_err(|error| format!("the boot ID in {}: {error}", file.display()))
        };
        self.shaped.as_ref().map(read).transpose()
    }

    fn is_shaped(&self, boot_id: Option<&str>) -> Result<(), String> {
        // The driver shows its instances in the procfs that the boot ID is read from.
        let root = self.shaped.as_deref().and_then(Path::to_str);
        let root = root.and_then(|file| file.strip_suffix(BOOT_ID));
        let host = root.map(|root| Host::new(format!("{root}/")));
        boot_id.map_or(Ok(()), |boot_id| {
            gate::verified(&self.directory, boot_id, host.as_ref())
        })
    }

    fn has_word(&self) -> Result<(), String> {
        let (vendor, mine) = (self.vendor.key(), self.owner.word());
        match word::read(&self.directory) {
            Ok(Some(word)) if word == self.owner => Ok(()),
            Ok(Some(word)) => Err(format!(
                "the owner word of {vendor} is {}, this pod is {mine}",
                word.word()
            )),
            Ok(None) => Err(format!(
                "there is no owner word of {vendor} yet, this pod is {mine}"
            )),
            Err(error) => Err(format!(
                "the owner word of {vendor} in {}: {error}",
                self.directory.display()
            )),
        }
    }
}
