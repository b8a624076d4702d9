//! Where a driver installation keeps its library.

use std::fs;
use std::path::{Component, Path, PathBuf};

use crate::Error;

/// The library's name, the same for every driver since 2010.
pub const LIBRARY: &str = "libnvidia-ml.so.1";

/// Where distributions and driver containers put it, below the driver's root.
const DIRECTORIES: [&str; 12] = [
    "usr/lib64",
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "lib64",
    "lib/x86_64-linux-gnu",
    "lib/aarch64-linux-gnu",
    "usr/lib",
    // Bottlerocket.
    "usr/lib/nvidia/tesla",
    "x86_64-bottlerocket-linux-gnu/sys-root/usr/lib/nvidia/tesla",
    // Container-Optimized OS, as the root and below it.
    "home/kubernetes/bin/nvidia/lib64",
    "usr/local/nvidia/lib64",
    // Talos.
    "usr/local/glibc/usr/lib",
];

/// Most links that are followed to one file.
const MAX_LINKS: usize = 16;

/// The library: a file as it is, or what a driver root such as `/` or `/run/nvidia/driver` holds.
///
/// # Errors
/// When there is none.
pub fn locate(at: &Path) -> Result<PathBuf, Error> {
    if at.is_file() {
        return Ok(at.to_owned());
    }
    DIRECTORIES
        .iter()
        .find_map(|directory| resolved(at, &at.join(directory).join(LIBRARY)))
        .ok_or_else(|| Error::NotFound(at.to_owned()))
}

/// Follows links as somebody whose file system begins at `root` would: an absolute link inside a driver's root means that
/// root.
fn resolved(root: &Path, path: &Path) -> Option<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..MAX_LINKS {
        let Ok(target) = fs::read_link(&path) else {
            return path.is_file().then_some(path);
        };
        path = if target.is_absolute() {
            let below: PathBuf = target
                .components()
                .filter(|part| matches!(part, Component::Normal(_) | Component::ParentDir))
                .collect();
            root.join(below)
        } else {
            path.parent()?.join(target)
        };
    }
    None
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_file_is_taken_as_it_is_and_a_root_is_searched() {
        let root = tempfile::tempdir().unwrap();
        let Error::NotFound(at) = locate(root.path()).unwrap_err() else {
            panic!("nothing is there")
        };
        assert_eq!(at, root.path());

        let directory = root.path().join("usr/lib/aarch64-linux-gnu");
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("libnvidia-ml.so.570.86.15"), "").unwrap();
        symlink("libnvidia-ml.so.570.86.15", directory.join(LIBRARY)).unwrap();
        let found = locate(root.path()).unwrap();
        assert_eq!(found, directory.join("libnvidia-ml.so.570.86.15"));
        assert_eq!(locate(&found).unwrap(), found);
    }

    #[test]
    fn an_absolute_link_means_the_driver_s_own_root() {
        let root = tempfile::tempdir().unwrap();
        let (lib, real) = (
            root.path().join("usr/lib64"),
            root.path().join("opt/driver"),
        );
        fs::create_dir_all(&lib).unwrap();
        fs::create_dir_all(&real).unwrap();
        fs::write(real.join("nvml"), "").unwrap();
        symlink("/opt/driver/nvml", lib.join(LIBRARY)).unwrap();
        assert_eq!(locate(root.path()).unwrap(), real.join("nvml"));
    }

    #[test]
    fn links_in_a_ring_end() {
        let root = tempfile::tempdir().unwrap();
        let lib = root.path().join("usr/lib64");
        fs::create_dir_all(&lib).unwrap();
        symlink(LIBRARY, lib.join("again")).unwrap();
        symlink("again", lib.join(LIBRARY)).unwrap();
        assert!(locate(root.path()).is_err());
    }
}
