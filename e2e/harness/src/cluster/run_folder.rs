//! The folder of one running cluster.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process,
    sync::{
        Mutex, Once, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, SystemTime},
};

use anyhow::{Context as _, Result};

/// How long logs of ended clusters stay readable. Long enough to look after a failed run, short enough not to fill a disk.
const KEPT_FOR: Duration = Duration::from_secs(60 * 60);

/// Clusters of this process, for the line that a failing test prints.
static LIVE: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Data, certificates, kubeconfigs, logs. Locked for as long as the cluster lives, so that the next cluster of any process can
/// tell what was left behind. After the end only logs and the audit log stay, for an hour.
#[derive(Debug)]
pub(super) struct RunFolder {
    path: PathBuf,
    _lock: File,
}

impl RunFolder {
    pub(super) fn create(root: &Path, name: &str) -> Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let runs = root.join("runs");
        fs::create_dir_all(&runs)?;
        // Process numbers come back after a restart of the machine, hence the loop.
        let path = loop {
            let path = runs.join(format!(
                "{name}-{}-{}",
                process::id(),
                NEXT.fetch_add(1, Ordering::Relaxed)
            ));
            match fs::create_dir(&path) {
                Ok(()) => break path,
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => {
                    return Err(error).with_context(|| format!("creating {}", path.display()));
                }
            }
        };
        let lock = File::create(path.join("lock"))?;
        lock.lock()?;
        sweep(&runs)?;
        announce(&path);
        Ok(Self { path, _lock: lock })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for RunFolder {
    fn drop(&mut self) {
        forget_data(&self.path);
        LIVE.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .retain(|path| *path != self.path);
    }
}

/// Says on a panic where the logs are.
fn announce(path: &Path) {
    static HOOK: Once = Once::new();
    LIVE.lock()
        .unwrap_or_else(PoisonError::into_inner)
        .push(path.into());
    HOOK.call_once(|| {
        let previous = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            previous(info);
            for path in LIVE.lock().unwrap_or_else(PoisonError::into_inner).iter() {
                eprintln!(
                    "logs of the test cluster (kept for an hour): {}",
                    path.display()
                );
            }
        }));
    });
}

/// Removes data of clusters whose process is gone, and their logs once they are old.
fn sweep(runs: &Path) -> Result<()> {
    for entry in fs::read_dir(runs)? {
        let path = entry?.path();
        // Another process may be sweeping or starting as well: whatever is not there or is locked is not ours to remove.
        let Ok(lock) = File::open(path.join("lock")) else {
            continue;
        };
        if lock.try_lock().is_err() {
            continue;
        }
        forget_data(&path);
        // The folder last changed when its data went, here or at the cluster's own end.
        let changed = fs::metadata(&path)
            .and_then(|folder| folder.modified())
            .ok();
        let age = changed.and_then(|changed| SystemTime::now().duration_since(changed).ok());
        if age.is_some_and(|age| age > KEPT_FOR) {
            let _ = fs::remove_dir_all(&path);
        }
    }
    Ok(())
}

/// Best effort: what cannot be removed now is removed by a later sweep.
fn forget_data(path: &Path) {
    for data in ["etcd", "pki", "kubeconfig"] {
        let _ = fs::remove_dir_all(path.join(data));
    }
}
