//! Device nodes of MIG instances: `/dev/nvidia-caps/nvidia-cap<minor>`.
//!
//! A process may use an instance only if it can open the nodes of its GPU and compute instance. The kernel driver says which
//! they are and makes none; NVIDIA's tools do when they run (nvidia-modprobe), and nothing here may run them.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};

use crate::host::{Host, ReadError, mig};

/// The driver's name in `/proc/devices`.
const DRIVER: &str = "nvidia-caps";
const DIRECTORY: &str = "/dev/nvidia-caps";

/// Why nodes are missing.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// The kernel's files do not say what nodes there should be.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A node could not be made.
    #[error("{path}: {problem}")]
    Make {
        /// The node.
        path: String,
        /// Why.
        problem: io::Error,
    },
}

/// Makes the nodes of all instances that are there, where they are missing.
///
/// # Errors
/// See [`NodeError`]. Those before the first that cannot be made are made.
pub fn ensure(host: &Host) -> Result<(), NodeError> {
    let instances = mig::instances(host)?;
    if instances.is_empty() {
        return Ok(());
    }
    let major = major(host)?;
    for (instance, computes) in instances {
        let directory = format!(
            "{}/gpu{}/mig/gi{}",
            mig::CAPABILITIES,
            instance.gpu,
            instance.id
        );
        let computes = computes
            .iter()
            .map(|compute| format!("{directory}/ci{compute}/access"));
        for access in std::iter::once(format!("{directory}/access")).chain(computes) {
            let node = Node::read(host, &access)?;
            let path = format!("{DIRECTORY}/nvidia-cap{}", node.minor);
            make(&host.at(&path), major, &node)
                .map_err(|problem| NodeError::Make { path, problem })?;
        }
    }
    Ok(())
}

/// What an `access` file says of its node.
#[derive(Debug, PartialEq, Eq)]
struct Node {
    minor: u32,
    mode: u32,
}

impl Node {
    fn read(host: &Host, path: &str) -> Result<Self, ReadError> {
        let text = host
            .text(path)?
            .ok_or_else(|| ReadError::new(path, "no such file"))?;
        let number = |key: &str| {
            text.lines()
                .filter_map(|line| line.split_once(':'))
                .find(|(name, _)| name.trim() == key)
                .and_then(|(_, value)| value.trim().parse().ok())
        };
        Ok(Self {
            minor: number("DeviceFileMinor")
                .ok_or_else(|| ReadError::new(path, "says no DeviceFileMinor"))?,
            mode: number("DeviceFileMode").unwrap_or(0o444),
        })
    }
}

fn major(host: &Host) -> Result<u32, ReadError> {
    const DEVICES: &str = "/proc/devices";
    let text = host.text(DEVICES)?.unwrap_or_default();
    text.lines()
        .take_while(|line| !line.starts_with("Block devices"))
        .filter_map(|line| line.trim().split_once(' '))
        .find(|(_, name)| *name == DRIVER)
        .and_then(|(number, _)| number.parse().ok())
        .ok_or_else(|| ReadError::new(DEVICES, format_args!("lists no {DRIVER}")))
}

fn make(path: &Path, major: u32, node: &Node) -> io::Result<()> {
    let device = makedev(major, node.minor);
    match fs::symlink_metadata(path) {
        Ok(there) if there.file_type().is_char_device() && there.rdev() == device => return Ok(()),
        // Left from a driver with other numbers.
        Ok(_) => fs::remove_file(path)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            if let Some(directory) = path.parent() {
                fs::create_dir_all(directory)?;
            }
        }
        Err(error) => return Err(error),
    }
    mknodat(
        CWD,
        path,
        FileType::CharacterDevice,
        Mode::from_raw_mode(node.mode),
        device,
    )?;
    // What was asked for, whatever the umask.
    fs::set_permissions(path, Permissions::from_mode(node.mode))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(files: &[(&str, &str)]) -> (tempfile::TempDir, Host) {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let host = Host::new(root.path());
        (root, host)
    }

    const ACCESS: &str = "DeviceFileMinor: 66\nDeviceFileMode: 292\nDeviceFileModify: 1\n";

    #[test]
    fn numbers_are_the_kernel_s() {
        let (_root, host) = host(&[
            (
                "proc/devices",
                "Character devices:\n  1 mem\n195 nvidia-caps-imex-channels\n234 nvidia-caps\n\nBlock devices:\n259 blkext\n",
            ),
            (
                "proc/driver/nvidia/capabilities/gpu0/mig/gi7/access",
                ACCESS,
            ),
        ]);
        assert_eq!(major(&host).unwrap(), 234);
        let node = Node::read(
            &host,
            "/proc/driver/nvidia/capabilities/gpu0/mig/gi7/access",
        );
        assert_eq!(
            node.unwrap(),
            Node {
                minor: 66,
                mode: 0o444
            }
        );
    }

    #[test]
    fn nodes_are_made_or_it_is_said_which_could_not_be() {
        let (root, host) = host(&[
            (
                "proc/devices",
                "Character devices:\n234 nvidia-caps\n\nBlock devices:\n",
            ),
            (
                "proc/driver/nvidia/capabilities/gpu0/mig/gi7/access",
                ACCESS,
            ),
            (
                "proc/driver/nvidia/capabilities/gpu0/mig/gi7/ci0/access",
                "DeviceFileMinor: 67\nDeviceFileMode: 292\n",
            ),
        ]);
        match ensure(&host) {
            Ok(()) => {
                for minor in [66, 67] {
                    let node = root
                        .path()
                        .join(format!("dev/nvidia-caps/nvidia-cap{minor}"));
                    let found = fs::metadata(&node).unwrap();
                    assert_eq!(found.rdev(), makedev(234, minor));
                    assert_eq!(found.mode() & 0o777, 0o444);
                }
                ensure(&host).unwrap();
            }
            // Not everybody who runs tests may make device nodes.
            Err(NodeError::Make { path, problem }) => {
                assert_eq!(path, "/dev/nvidia-caps/nvidia-cap66");
                assert_eq!(problem.kind(), io::ErrorKind::PermissionDenied);
            }
            Err(other) => panic!("{other}"),
        }
    }

    #[test]
    fn without_instances_there_is_nothing_to_make() {
        let (_root, host) = host(&[]);
        ensure(&host).unwrap();
    }
}
