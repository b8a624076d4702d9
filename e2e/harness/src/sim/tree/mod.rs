//! A node's host file tree below a directory: what procfs, sysfs, `/dev`, the kubelet's root and the CDI directory hold on a
//! machine of this shape. The real agent reads it; the simulated kubelet and operands write it.

mod drivers;
mod nvml;
mod records;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::Context as _;

use super::shapes::{NeuronHardware, NvidiaHardware, Shape, uuid};

/// Where the kubelet keeps device-plugin sockets and its checkpoint of them, whatever its root directory is.
pub const DEVICE_PLUGINS: &str = "/var/lib/kubelet/device-plugins";
/// Where CDI files of dynamically prepared devices live.
pub const CDI: &str = "/var/run/cdi";

/// The tree of one node.
#[derive(Debug)]
pub struct Tree {
    root: PathBuf,
    node: String,
    kubelet_root: String,
    hardware: Mutex<Hardware>,
}

/// What can change about the hardware while the node lives.
#[derive(Debug)]
struct Hardware {
    nvidia: Option<NvidiaHardware>,
    neuron: Option<NeuronHardware>,
    boots: u32,
    boot_id: String,
}

impl Tree {
    /// Builds the tree of a freshly booted machine below `root`.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn create(root: &Path, node: &str, shape: &Shape) -> anyhow::Result<Self> {
        let tree = Self {
            root: root.to_owned(),
            node: node.to_owned(),
            kubelet_root: shape.kubelet_root.clone(),
            hardware: Mutex::new(Hardware {
                nvidia: shape.nvidia.clone(),
                neuron: shape.neuron.clone(),
                boots: 0,
                boot_id: String::new(),
            }),
        };
        for dir in [
            "/proc/sys/kernel/random",
            "/sys/bus/pci/devices",
            "/sys/module",
            "/sys/fs/cgroup/kubepods.slice",
        ] {
            tree.make_dir(dir)?;
        }
        for dir in ["/dev", "/opt/aws/neuron", "/etc", "/run", DEVICE_PLUGINS] {
            tree.make_dir(dir)?;
        }
        for dir in ["pods", "plugins", "plugins_registry"] {
            tree.make_dir(&format!("{}/{dir}", tree.kubelet_root))?;
        }
        // `/var/run` is a link to `/run` on every distribution that EKS runs on.
        symlink("../run", tree.path("/var/run")).context("link /var/run")?;
        tree.make_dir(CDI)?;
        tree.write(
            "/sys/devices/virtual/dmi/id/product_name",
            &format!("{}\n", shape.instance_type),
        )?;
        tree.write_pci(shape)?;
        tree.boot()?;
        tree.write_device_manager(&[], &BTreeMap::new())?;
        tree.write_dra_manager(&[])?;
        if let Some(version) = shape
            .nvidia
            .as_ref()
            .and_then(|hardware| hardware.driver.clone())
        {
            tree.load_nvidia_driver(&version)?;
        }
        if let Some(version) = shape
            .neuron
            .as_ref()
            .and_then(|hardware| hardware.driver.clone())
        {
            tree.load_neuron_driver(&version)?;
        }
        Ok(tree)
    }

    fn hardware(&self) -> MutexGuard<'_, Hardware> {
        self.hardware.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// EC2 instance type, as the firmware says it.
    #[must_use]
    pub fn instance_type(&self) -> String {
        let text = fs::read_to_string(self.path("/sys/devices/virtual/dmi/id/product_name"))
            .unwrap_or_default();
        text.trim().to_owned()
    }

    /// The directory that stands for `/`.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Where an absolute host path lies on this machine.
    #[must_use]
    pub fn path(&self, host: &str) -> PathBuf {
        self.root.join(host.trim_start_matches('/'))
    }

    /// The kubelet's root directory as the host names it.
    #[must_use]
    pub fn kubelet_root(&self) -> &str {
        &self.kubelet_root
    }

    /// A path below the kubelet's root directory.
    #[must_use]
    pub fn kubelet(&self, below: &str) -> PathBuf {
        self.path(&self.kubelet_root).join(below)
    }

    /// A pod's directory.
    #[must_use]
    pub fn pod_dir(&self, uid: &str) -> PathBuf {
        self.kubelet("pods").join(uid)
    }

    fn pod_cgroup(&self, uid: &str) -> PathBuf {
        self.path(&format!(
            "/sys/fs/cgroup/kubepods.slice/kubepods-pod{}.slice",
            uid.replace('-', "_")
        ))
    }

    /// Makes a pod's directory and cgroup, as the kubelet does before anything of the pod runs.
    ///
    /// # Errors
    /// When a directory cannot be made.
    pub fn add_pod(&self, uid: &str) -> anyhow::Result<()> {
        for dir in ["volumes", "containers", "plugins"] {
            make_dir_at(&self.pod_dir(uid).join(dir))?;
        }
        make_dir_at(&self.pod_cgroup(uid))
    }

    /// Removes a pod's cgroup and directory, the last traces of it.
    ///
    /// # Errors
    /// When they exist and cannot be removed.
    pub fn remove_pod(&self, uid: &str) -> anyhow::Result<()> {
        remove_dir_all(&self.pod_cgroup(uid))?;
        remove_dir_all(&self.pod_dir(uid))
    }

    /// What the kubelet leaves of a pod that ended but whose object still exists: its directory, without volumes or cgroup.
    ///
    /// # Errors
    /// When something cannot be removed.
    pub fn empty_pod(&self, uid: &str) -> anyhow::Result<()> {
        remove_dir_all(&self.pod_cgroup(uid))?;
        remove_dir_all(&self.pod_dir(uid).join("volumes"))?;
        make_dir_at(&self.pod_dir(uid).join("volumes"))
    }

    /// A new boot: new boot ID; cgroups, `/run` and with it the CDI files are gone, and so are MIG instances and, but for
    /// Ampere, MIG mode. What lies on disk stays.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn boot(&self) -> anyhow::Result<()> {
        let boot_id = {
            let mut hardware = self.hardware();
            hardware.boots += 1;
            hardware.boot_id = uuid(
                "",
                &format!(
                    "boot/{}/{}/{}",
                    self.root.display(),
                    self.node,
                    hardware.boots
                ),
            );
            hardware.boot_id.clone()
        };
        for volatile in ["/sys/fs/cgroup/kubepods.slice", "/run"] {
            remove_dir_all(&self.path(volatile))?;
            self.make_dir(volatile)?;
        }
        self.make_dir(CDI)?;
        self.reboot_nvml()?;
        self.write("/proc/sys/kernel/random/boot_id", &format!("{boot_id}\n"))
    }

    /// The present boot ID.
    #[must_use]
    pub fn boot_id(&self) -> String {
        self.hardware().boot_id.clone()
    }

    /// Listens on a Unix socket at a host path, replacing what lies there.
    ///
    /// # Errors
    /// When the path is too long for a socket or its directory cannot be made.
    pub fn listen(&self, host: &str) -> anyhow::Result<UnixListener> {
        let path = self.path(host);
        if let Some(parent) = path.parent() {
            make_dir_at(parent)?;
        }
        remove_file(&path)?;
        UnixListener::bind(&path).with_context(|| format!("listen on {}", path.display()))
    }

    /// Removes a file at a host path, if it is there.
    ///
    /// # Errors
    /// When it is there and cannot be removed.
    pub fn remove(&self, host: &str) -> anyhow::Result<()> {
        remove_file(&self.path(host))
    }

    /// Makes a directory at a host path.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn make_dir(&self, host: &str) -> anyhow::Result<()> {
        make_dir_at(&self.path(host))
    }

    /// Replaces a file at a host path by rename, so that readers see the old or the new content and nothing between.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, host: &str, content: &str) -> anyhow::Result<()> {
        write_atomically(&self.path(host), content)
    }
}

fn make_dir_at(path: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(path).with_context(|| format!("make {}", path.display()))
}

/// Replaces a file by rename.
pub(super) fn write_atomically(path: &Path, content: &str) -> anyhow::Result<()> {
    let parent = path.parent().context("a file has a parent directory")?;
    make_dir_at(parent)?;
    let mut file = tempfile::NamedTempFile::new_in(parent)
        .with_context(|| format!("write {}", path.display()))?;
    file.write_all(content.as_bytes())?;
    file.as_file()
        .set_permissions(fs::Permissions::from_mode(0o644))?;
    file.persist(path)
        .with_context(|| format!("write {}", path.display()))?;
    Ok(())
}

/// Removes a directory tree, if it is there.
pub(super) fn remove_dir_all(path: &Path) -> anyhow::Result<()> {
    gone_is_fine(fs::remove_dir_all(path)).with_context(|| format!("remove {}", path.display()))
}

/// Removes a file, if it is there.
pub(super) fn remove_file(path: &Path) -> anyhow::Result<()> {
    gone_is_fine(fs::remove_file(path)).with_context(|| format!("remove {}", path.display()))
}

fn gone_is_fine(result: std::io::Result<()>) -> std::io::Result<()> {
    match result {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}
