//! Extended resources: what the device plugins advertise.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::super::shapes::{Gpu, MigProfile, NeuronHardware, NvidiaHardware};
use super::super::tree::Tree;

/// Extended resource → device ids.
pub type Resources = BTreeMap<String, Vec<String>>;

/// The parts of the NVIDIA device plugin's configuration that change what is advertised.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PluginConfig {
    /// `none`, `single` or `mixed`.
    pub mig_strategy: String,
    /// Sharing by resource name.
    pub sharing: Vec<Shared>,
    /// Advertise shared resources as `<name>.shared`.
    pub rename: bool,
    /// Refuse containers that ask for more than one replica.
    pub fail_requests_greater_than_one: bool,
    /// Exit when the driver cannot be initialised, rather than wait.
    pub fail_on_init_error: bool,
}

/// A shared resource.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Shared {
    /// Resource.
    pub name: String,
    /// Consumers per device.
    pub replicas: u32,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ConfigFile {
    version: String,
    flags: ConfigFlags,
    sharing: ConfigSharing,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ConfigFlags {
    mig_strategy: Option<String>,
    fail_on_init_error: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ConfigSharing {
    time_slicing: Option<Sharing>,
    mps: Option<Sharing>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Sharing {
    rename_by_default: bool,
    fail_requests_greater_than_one: Option<bool>,
    resources: Vec<Shared>,
}

impl PluginConfig {
    /// Reads the plugin's configuration as it does itself: environment over file over default.
    ///
    /// # Errors
    /// What makes the real plugin exit at start: a file that does not parse, an unknown version, replicas below two.
    pub fn read(file: Option<&str>, env: &BTreeMap<String, String>) -> Result<Self, String> {
        let file = match file {
            Some(text) => {
                let file: ConfigFile = serde_saphyr::from_str(text)
                    .map_err(|error| format!("unable to parse config: {error}"))?;
                if file.version != "v1" {
                    return Err(format!("unknown config version: {:?}", file.version));
                }
                file
            }
            None => ConfigFile::default(),
        };
        // Where both are given MPS wins, and its default is to refuse more than one replica.
        let (sharing, fail_default) = match (file.sharing.mps, file.sharing.time_slicing) {
            (Some(mps), _) => (mps, true),
            (None, Some(time_slicing)) => (time_slicing, false),
            (None, None) => (Sharing::default(), false),
        };
        if let Some(shared) = sharing.resources.iter().find(|shared| shared.replicas < 2) {
            return Err(format!(
                "number of replicas must be >= 2: {} has {}",
                shared.name, shared.replicas
            ));
        }
        let flag = |name: &str| env.get(name).filter(|value| !value.is_empty()).cloned();
        Ok(Self {
            mig_strategy: flag("MIG_STRATEGY")
                .or(file.flags.mig_strategy)
                .unwrap_or_else(|| "none".into()),
            rename: sharing.rename_by_default,
            fail_requests_greater_than_one: sharing
                .fail_requests_greater_than_one
                .unwrap_or(fail_default),
            sharing: sharing.resources,
            fail_on_init_error: flag("FAIL_ON_INIT_ERROR")
                .map(|value| value == "true")
                .or(file.flags.fail_on_init_error)
                .unwrap_or(true),
        })
    }

    fn share(&self, resources: Resources) -> Resources {
        let shared = |name: String, ids: Vec<String>| match self
            .sharing
            .iter()
            .find(|shared| shared.name == name)
        {
            None => (name, ids),
            Some(shared) => {
                let ids = ids
                    .iter()
                    .flat_map(|id| (0..shared.replicas).map(move |n| format!("{id}::{n}")))
                    .collect();
                (
                    if self.rename {
                        format!("{name}.shared")
                    } else {
                        name
                    },
                    ids,
                )
            }
        };
        resources
            .into_iter()
            .map(|(name, ids)| shared(name, ids))
            .collect()
    }
}

/// What the NVIDIA device plugin advertises.
///
/// # Errors
/// What makes the real plugin exit: a geometry that the `single` strategy cannot express.
pub fn nvidia_resources(
    tree: &Tree,
    hardware: &NvidiaHardware,
    config: &PluginConfig,
) -> Result<Resources, String> {
    let mut resources = Resources::new();
    let gpu = |gpu: &Gpu| tree.gpu_uuid(gpu.minor);
    let instances = |gpu: &Gpu| {
        let minor = gpu.minor;
        gpu.mig
            .iter()
            .map(|instance| (instance.profile, tree.mig_uuid(minor, instance)))
            .collect::<Vec<_>>()
    };
    let enabled = hardware.gpus.iter().filter(|gpu| gpu.mig_enabled).count();
    match config.mig_strategy.as_str() {
        "none" => drop(resources.insert(
            "nvidia.com/gpu".into(),
            hardware.gpus.iter().map(gpu).collect(),
        )),
        "single" if enabled == 0 => drop(resources.insert(
            "nvidia.com/gpu".into(),
            hardware.gpus.iter().map(gpu).collect(),
        )),
        "single" => {
            if enabled != hardware.gpus.len() || hardware.gpus.iter().any(|gpu| gpu.mig.is_empty())
            {
                return Err("more than one MIG device type, or a GPU without MIG devices, present on the node".into());
            }
            let all: Vec<_> = hardware.gpus.iter().flat_map(instances).collect();
            if all.windows(2).any(|pair| {
                pair.first().map(|first| first.0.name) != pair.last().map(|last| last.0.name)
            }) {
                return Err("more than one MIG device type present on node".into());
            }
            resources.insert(
                "nvidia.com/gpu".into(),
                all.into_iter().map(|(_, uuid)| uuid).collect(),
            );
        }
        "mixed" => {
            let full: Vec<_> = hardware
                .gpus
                .iter()
                .filter(|gpu| !gpu.mig_enabled)
                .map(gpu)
                .collect();
            if !full.is_empty() {
                resources.insert("nvidia.com/gpu".into(), full);
            }
            for (profile, uuid) in hardware
                .gpus
                .iter()
                .filter(|gpu| gpu.mig_enabled)
                .flat_map(instances)
            {
                resources
                    .entry(mig_resource(&profile))
                    .or_default()
                    .push(uuid);
            }
        }
        other => return Err(format!("unknown MIG strategy: {other}")),
    }
    Ok(config.share(resources))
}

fn mig_resource(profile: &MigProfile) -> String {
    format!("nvidia.com/mig-{}", profile.name.replace('+', "."))
}

/// What the Neuron device plugin advertises: the same silicon under two names.
#[must_use]
pub fn neuron_resources(hardware: &NeuronHardware, lnc: u32) -> Resources {
    let cores = hardware.devices * hardware.family.cores() / lnc.max(1);
    Resources::from([
        (
            "aws.amazon.com/neuron".into(),
            (0..hardware.devices)
                .map(|device| format!("neuron{device}"))
                .collect(),
        ),
        (
            "aws.amazon.com/neuroncore".into(),
            (0..cores).map(|core| format!("nc{core}")).collect(),
        ),
    ])
}
