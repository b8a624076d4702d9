//! Whether a pod's processes can still live: its directory and its cgroup.
//!
//! The kubelet makes a pod's cgroup before its directory and removes it after the last process; both outlive the processes of
//! a force-deleted pod slightly. A pod that *finished* but still exists as an object keeps its directory for as long as the
//! object lives, which for a Job may be for ever. Such a pod is told by what the kubelet does when it terminates a pod
//! (`SyncTerminatedPod`, kubelet 1.36): first every volume leaves the disk, then the cgroup goes. So a pod is gone when it
//! has no cgroup, and no directory or one without volumes; and while the node has no pod cgroups at all
//! (`cgroupsPerQOS: false`) the directory alone decides.

use std::cell::OnceCell;

use crate::host::{Host, ReadError};

const CGROUPS: &str = "/sys/fs/cgroup";
/// How deep the kubelet's cgroup is looked for: a v1 controller, then at most two levels of `--cgroup-root`.
const SEARCH_DEPTH: usize = 3;
/// Classes of service that have a cgroup of their own; guaranteed pods sit beside them.
const QOS: [&str; 2] = ["burstable", "besteffort"];

/// Directories and cgroups of pods. The cgroup tree is searched only once something needs it.
pub struct Homes<'a> {
    host: &'a Host,
    roots: &'a [&'a str],
    parents: OnceCell<Vec<Parent>>,
}

/// A kubelet's top cgroup, in one hierarchy.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Parent {
    path: String,
    /// Prefix of the slice names below, for the systemd driver: `kubepods` or `<cgroup root>-kubepods`.
    slice: Option<String>,
}

impl<'a> Homes<'a> {
    /// Looks below these kubelet roots.
    #[must_use]
    pub const fn new(host: &'a Host, roots: &'a [&'a str]) -> Self {
        Self {
            host,
            roots,
            parents: OnceCell::new(),
        }
    }

    /// Whether nothing of the pod can be alive any more.
    ///
    /// # Errors
    /// When that cannot be told.
    pub fn is_gone(&self, uid: &str) -> Result<bool, ReadError> {
        let mut directory = false;
        let mut volumes = false;
        for root in self.roots {
            let path = format!("{root}/pods/{uid}");
            directory |= self.host.exists(&path)?;
            volumes |= self.has_volumes(&path)?;
        }
        if volumes {
            return Ok(false);
        }
        let parents = self.parents()?;
        if parents.is_empty() && directory {
            return Ok(false);
        }
        for parent in parents {
            for path in parent.homes_of(uid) {
                if self.host.exists(&path)? {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// The kubelet's own test: any entry in `volumes/<plugin>/`.
    fn has_volumes(&self, pod: &str) -> Result<bool, ReadError> {
        let volumes = format!("{pod}/volumes");
        for plugin in self.host.names(&volumes)?.unwrap_or_default() {
            if self
                .host
                .names(&format!("{volumes}/{plugin}"))?
                .is_some_and(|names| !names.is_empty())
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn parents(&self) -> Result<&[Parent], ReadError> {
        if let Some(parents) = self.parents.get() {
            return Ok(parents);
        }
        let mut parents = Vec::new();
        find_parents(self.host, CGROUPS, SEARCH_DEPTH, &mut parents)?;
        Ok(self.parents.get_or_init(|| parents))
    }
}

fn find_parents(
    host: &Host,
    directory: &str,
    depth: usize,
    found: &mut Vec<Parent>,
) -> Result<(), ReadError> {
    for name in host.names(directory)?.unwrap_or_default() {
        let path = format!("{directory}/{name}");
        match name.strip_suffix(".slice") {
            None if name == "kubepods" => found.push(Parent { path, slice: None }),
            Some(slice) if slice == "kubepods" || slice.ends_with("-kubepods") => {
                found.push(Parent {
                    path,
                    slice: Some(slice.to_owned()),
                });
            }
            // Services and sessions hold no pods, and there may be hundreds of them.
            _ if depth > 0 && !is_leaf(&name) => find_parents(host, &path, depth - 1, found)?,
            _ => {}
        }
    }
    Ok(())
}

/// Entries of a cgroup directory that cannot lead to the kubelet's cgroup: units other than slices, and interface files.
fn is_leaf(name: &str) -> bool {
    let unit = [".service", ".scope", ".mount", ".socket", ".swap"]
        .iter()
        .any(|suffix| name.ends_with(suffix));
    let interface = [
        "cgroup.", "cpu.", "cpuset.", "memory.", "io.", "pids.", "hugetlb.", "rdma.", "misc.",
        "dmem.",
    ]
    .iter()
    .any(|prefix| name.starts_with(prefix));
    unit || interface
        || matches!(
            name,
            "system.slice" | "user.slice" | "tasks" | "notify_on_release" | "release_agent"
        )
}

impl Parent {
    /// Where a pod's cgroup may be, for either cgroup driver.
    fn homes_of(&self, uid: &str) -> Vec<String> {
        let Self { path, slice } = self;
        match slice {
            // In a slice's name a dash is a level.
            Some(slice) => {
                let pod = uid.replace('-', "_");
                let below = QOS
                    .iter()
                    .map(|qos| format!("{path}/{slice}-{qos}.slice/{slice}-{qos}-pod{pod}.slice"));
                below
                    .chain([format!("{path}/{slice}-pod{pod}.slice")])
                    .collect()
            }
            None => {
                let below = QOS.iter().map(|qos| format!("{path}/{qos}/pod{uid}"));
                below.chain([format!("{path}/pod{uid}")]).collect()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const UID: &str = "4f9c1d2a-1111-4222-8333-944455556666";
    const ROOT: &str = "/var/lib/k0s/kubelet";

    struct Tree {
        dir: tempfile::TempDir,
        host: Host,
    }

    impl Tree {
        fn with(paths: &[String]) -> Self {
            let dir = tempfile::tempdir().unwrap();
            let host = Host::new(dir.path());
            for path in paths {
                fs::create_dir_all(host.at(path)).unwrap();
            }
            Self { dir, host }
        }

        fn is_gone(&self) -> bool {
            let _ = &self.dir;
            Homes::new(&self.host, &[ROOT]).is_gone(UID).unwrap()
        }
    }

    fn pod_dir() -> String {
        format!("{ROOT}/pods/{UID}")
    }

    #[test]
    fn a_pod_is_alive_while_its_cgroup_exists_in_any_layout() {
        let flat = UID.replace('-', "_");
        for cgroup in [
            format!("kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{flat}.slice"),
            format!("kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{flat}.slice"),
            format!("kubepods.slice/kubepods-pod{flat}.slice"),
            format!(
                "kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/kubelet-kubepods-burstable-pod{flat}.slice"
            ),
            format!("kubepods/burstable/pod{UID}"),
            format!("kubepods/pod{UID}"),
            format!("kubelet/kubepods/besteffort/pod{UID}"),
            format!("memory/kubepods/burstable/pod{UID}"),
            format!(
                "systemd/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{flat}.slice"
            ),
        ] {
            assert!(
                !Tree::with(&[format!("{CGROUPS}/{cgroup}")]).is_gone(),
                "{cgroup}"
            );
        }
    }

    #[test]
    fn a_pod_without_directory_and_cgroup_is_gone() {
        assert!(Tree::with(&[format!("{CGROUPS}/kubepods/burstable/podother")]).is_gone());
        assert!(Tree::with(&[]).is_gone());
    }

    #[test]
    fn a_directory_with_volumes_keeps_a_pod_after_its_cgroup_went() {
        let volume = format!(
            "{}/volumes/kubernetes.io~projected/kube-api-access-x",
            pod_dir()
        );
        assert!(
            !Tree::with(&[volume, format!("{CGROUPS}/kubepods")]).is_gone(),
            "after a reboot, before the kubelet is back"
        );
    }

    #[test]
    fn a_finished_pod_whose_object_lingers_is_gone() {
        let torn_down = format!("{}/volumes/kubernetes.io~projected", pod_dir());
        assert!(Tree::with(&[torn_down, format!("{CGROUPS}/kubepods/burstable")]).is_gone());
    }

    #[test]
    fn without_pod_cgroups_the_directory_decides() {
        assert!(!Tree::with(&[pod_dir()]).is_gone());
        assert!(
            !Tree::with(&[pod_dir(), format!("{CGROUPS}/system.slice/sshd.service")]).is_gone()
        );
    }

    #[test]
    fn what_cannot_be_looked_at_is_an_error_and_not_a_gone_pod() {
        let tree = Tree::with(&[]);
        fs::create_dir_all(tree.host.at(CGROUPS)).unwrap();
        // A loop of links cannot be resolved, whoever asks.
        let pods = tree.host.at(&format!("{ROOT}/pods"));
        fs::create_dir_all(pods.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(&pods, &pods).unwrap();
        assert!(Homes::new(&tree.host, &[ROOT]).is_gone(UID).is_err());
    }
}
