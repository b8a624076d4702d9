//! MIG devices as procfs shows them.
//!
//! The driver keeps one directory per instance below `/proc/driver/nvidia/capabilities/gpu<minor>/mig/`: `gi<N>` for a GPU
//! instance, `ci<M>` in it for a compute instance. That tells how many there are, on which GPU. It does not tell their
//! profile: only NVML does, and NVML needs privileges that the witness gives up. So a profile comes from whoever implements
//! [`MigProfiles`], and without one it is reported as [`MigProfileCount::UNKNOWN_PROFILE`], never guessed from the board.
//!
//! `gpu<minor>/mig` exists on a capable GPU whatever its mode, and nothing else in procfs tells the mode: a GPU counts as MIG
//! enabled once it has an instance.

use std::collections::BTreeMap;

use freehold_core::report::{LayoutReport, MigProfileCount};

use super::{Host, ReadError};

/// Where the driver shows its capabilities.
pub const CAPABILITIES: &str = "/proc/driver/nvidia/capabilities";
/// Most GPUs whose instances are listed: the API's bound.
const MAX_GPUS: usize = 16;
/// Most instances that are counted: the API's bound, and several times what any board has.
const MAX_COUNT: i32 = 64;

/// One GPU instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GpuInstance {
    /// Minor number of its GPU.
    pub gpu: u32,
    /// Its ID on that GPU.
    pub id: u32,
}

/// Names the profiles of GPU instances.
pub trait MigProfiles {
    /// The profile's name as the driver prints it without the `MIG ` prefix, or `None` when it cannot be told.
    fn name(&self, instance: GpuInstance) -> Option<String>;
}

/// Nobody to ask: this process has no NVML.
pub struct Unnamed;

impl MigProfiles for Unnamed {
    fn name(&self, _: GpuInstance) -> Option<String> {
        None
    }
}

/// The geometry: MIG devices (compute instances, which is what plugin and driver hand out) by GPU and profile.
///
/// # Errors
/// When a directory is there and cannot be read.
pub fn layout(host: &Host, profiles: &dyn MigProfiles) -> Result<LayoutReport, ReadError> {
    let mut layout = LayoutReport::default();
    let mut gpus = numbered(host, CAPABILITIES, "gpu")?;
    gpus.sort_unstable();
    for gpu in gpus {
        let directory = format!("{CAPABILITIES}/gpu{gpu}/mig");
        let instances = numbered(host, &directory, "gi")?;
        if instances.is_empty() {
            continue;
        }
        layout.mig_enabled_gpus = layout.mig_enabled_gpus.saturating_add(1);
        let mut counts = BTreeMap::<String, i32>::new();
        for id in instances {
            let devices = numbered(host, &format!("{directory}/gi{id}"), "ci")?.len();
            if devices > 0 {
                let profile = profiles
                    .name(GpuInstance { gpu, id })
                    .unwrap_or_else(|| MigProfileCount::UNKNOWN_PROFILE.to_owned());
                let count = counts.entry(profile).or_default();
                *count = count.saturating_add(i32::try_from(devices).unwrap_or(i32::MAX));
            }
        }
        if layout.mig.len() < MAX_GPUS && !counts.is_empty() {
            let counts = counts.into_iter().map(|(profile, count)| MigProfileCount {
                profile,
                count: count.min(MAX_COUNT),
            });
            layout.mig.insert(gpu.to_string(), counts.collect());
        }
    }
    Ok(layout)
}

/// Every GPU instance and its compute instances, for telling whether anything changed: GPU, GPU instance, compute instances.
///
/// # Errors
/// As [`layout`].
pub fn instances(host: &Host) -> Result<Vec<(GpuInstance, Vec<u32>)>, ReadError> {
    let mut found = Vec::new();
    for gpu in numbered(host, CAPABILITIES, "gpu")? {
        let directory = format!("{CAPABILITIES}/gpu{gpu}/mig");
        for id in numbered(host, &directory, "gi")? {
            let devices = numbered(host, &format!("{directory}/gi{id}"), "ci")?;
            found.push((GpuInstance { gpu, id }, devices));
        }
    }
    Ok(found)
}

/// The numbers N of the entries `<prefix>N` in a directory.
fn numbered(host: &Host, directory: &str, prefix: &str) -> Result<Vec<u32>, ReadError> {
    let names = host.names(directory)?.unwrap_or_default();
    Ok(names
        .iter()
        .filter_map(|name| name.strip_prefix(prefix)?.parse().ok())
        .collect())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    struct ByGpu;

    impl MigProfiles for ByGpu {
        fn name(&self, instance: GpuInstance) -> Option<String> {
            match (instance.gpu, instance.id) {
                (3, 9) => Some("3g.40gb".into()),
                (3, _) => Some("1g.10gb".into()),
                _ => None,
            }
        }
    }

    fn tree(paths: &[&str]) -> (tempfile::TempDir, Host) {
        let root = tempfile::tempdir().unwrap();
        for path in paths {
            fs::create_dir_all(
                root.path()
                    .join("proc/driver/nvidia/capabilities")
                    .join(path),
            )
            .unwrap();
        }
        let host = Host::new(root.path());
        (root, host)
    }

    #[test]
    fn without_nvml_instances_are_counted_and_their_profile_is_not_guessed() {
        let (_root, host) = tree(&["mig", "gpu0/mig/gi7/ci0", "gpu0/mig/gi8/ci0", "gpu1/mig"]);
        let layout = layout(&host, &Unnamed).unwrap();
        assert_eq!(
            layout.mig_enabled_gpus, 1,
            "a capable GPU without instances does not count: {layout:?}"
        );
        assert_eq!(
            layout.mig["0"],
            [MigProfileCount {
                profile: "unknown".into(),
                count: 2
            }]
        );
        assert!(!layout.mig.contains_key("1"));
    }

    #[test]
    fn named_profiles_are_grouped_and_compute_instances_are_what_counts() {
        let (_root, host) = tree(&[
            "gpu3/mig/gi9/ci0",
            "gpu3/mig/gi9/ci1",
            "gpu3/mig/gi11/ci0",
            "gpu3/mig/gi12",
        ]);
        let layout = layout(&host, &ByGpu).unwrap();
        let count = |profile: &str, count| MigProfileCount {
            profile: profile.into(),
            count,
        };
        assert_eq!(
            layout.mig["3"],
            [count("1g.10gb", 1), count("3g.40gb", 2)],
            "gi12 has no compute instance yet"
        );
    }

    #[test]
    fn no_driver_means_an_empty_layout() {
        let (_root, host) = tree(&[]);
        assert_eq!(layout(&host, &Unnamed).unwrap(), LayoutReport::default());
    }
}
