//! What operands advertise on a machine: the device plugins' extended resources and the DRA drivers' devices.

use std::collections::BTreeMap;

use k8s_openapi::api::resource::v1::{Device, DeviceAttribute, DeviceCapacity};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde::Deserialize;

use super::shapes::{Gpu, MigInstance, MigProfile, NeuronHardware, NvidiaHardware};
use super::tree::Tree;

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

fn text(value: impl Into<String>) -> DeviceAttribute {
    DeviceAttribute {
        string: Some(value.into()),
        ..DeviceAttribute::default()
    }
}

fn version(value: impl Into<String>) -> DeviceAttribute {
    DeviceAttribute {
        version: Some(value.into()),
        ..DeviceAttribute::default()
    }
}

fn int(value: u32) -> DeviceAttribute {
    DeviceAttribute {
        int: Some(i64::from(value)),
        ..DeviceAttribute::default()
    }
}

fn amount(value: impl Into<String>) -> DeviceCapacity {
    DeviceCapacity {
        value: Quantity(value.into()),
        ..DeviceCapacity::default()
    }
}

fn device(
    name: String,
    attributes: Vec<(&str, DeviceAttribute)>,
    capacity: Vec<(String, DeviceCapacity)>,
) -> Device {
    Device {
        name,
        attributes: Some(
            attributes
                .into_iter()
                .map(|(name, value)| (name.to_owned(), value))
                .collect(),
        ),
        capacity: (!capacity.is_empty()).then(|| capacity.into_iter().collect()),
        ..Device::default()
    }
}

/// What the NVIDIA DRA driver publishes with static geometry: GPUs with MIG off as GPUs, the others as their instances only.
#[must_use]
pub fn nvidia_devices(tree: &Tree, hardware: &NvidiaHardware) -> Vec<Device> {
    hardware
        .gpus
        .iter()
        .flat_map(|gpu| {
            if gpu.mig_enabled {
                gpu.mig
                    .iter()
                    .map(|instance| mig_device(tree, hardware, gpu, instance))
                    .collect()
            } else {
                vec![gpu_device(tree, hardware, gpu)]
            }
        })
        .collect()
}

fn gpu_attributes(
    hardware: &NvidiaHardware,
    gpu: &Gpu,
    kind: &str,
    uuid: String,
) -> Vec<(&'static str, DeviceAttribute)> {
    let board = hardware.board;
    // The driver drops leading zeros (`580.95.05` is no semantic version).
    let driver: Vec<_> = hardware
        .driver
        .iter()
        .flat_map(|driver| driver.split('.'))
        .map(|part| part.trim_start_matches('0'))
        .map(|part| if part.is_empty() { "0" } else { part })
        .collect();
    vec![
        ("type", text(kind)),
        ("uuid", text(uuid)),
        ("productName", text(board.product())),
        ("brand", text("Nvidia")),
        ("architecture", text(board.architecture())),
        ("cudaComputeCapability", version(board.compute_capability())),
        ("driverVersion", version(driver.join("."))),
        ("cudaDriverVersion", version(hardware.cuda.clone())),
        ("resource.kubernetes.io/pciBusID", text(gpu.bdf.clone())),
        (
            "resource.kubernetes.io/pcieRoot",
            text(format!("pci0000:{}", gpu.bdf.get(5..7).unwrap_or_default())),
        ),
        ("resource.kubernetes.io/numaNode", int(gpu.numa)),
    ]
}

fn gpu_device(tree: &Tree, hardware: &NvidiaHardware, gpu: &Gpu) -> Device {
    let attributes = gpu_attributes(hardware, gpu, "gpu", tree.gpu_uuid(gpu.minor));
    device(
        format!("gpu-{}", gpu.minor),
        attributes,
        vec![(
            "memory".into(),
            amount(format!("{}Mi", hardware.board.memory_mib())),
        )],
    )
}

fn mig_device(tree: &Tree, hardware: &NvidiaHardware, gpu: &Gpu, instance: &MigInstance) -> Device {
    let profile = instance.profile;
    let mut attributes = gpu_attributes(hardware, gpu, "mig", tree.mig_uuid(gpu.minor, instance));
    attributes.push(("parentUUID", text(tree.gpu_uuid(gpu.minor))));
    attributes.push(("profile", text(profile.name)));
    let mut capacity: Vec<_> = [
        ("multiprocessors", profile.multiprocessors),
        ("copyEngines", profile.copy_engines),
        ("decoders", profile.decoders),
        ("encoders", profile.encoders),
        ("jpegEngines", profile.jpeg_engines),
        ("ofaEngines", profile.ofa_engines),
    ]
    .map(|(name, count)| (name.to_owned(), amount(count.to_string())))
    .into();
    capacity.push(("memory".into(), amount(format!("{}Mi", profile.memory_mib))));
    let slices = instance.start..instance.start + profile.memory_slices;
    capacity.extend(slices.map(|slice| (format!("memorySlice{slice}"), amount("1"))));
    let name = format!(
        "gpu-{}-mig-{}-{}-{}",
        gpu.minor,
        profile.name.replace(['.', '+'], ""),
        profile.id,
        instance.start
    );
    device(name, attributes, capacity)
}

/// What the Neuron DRA driver publishes.
#[must_use]
pub fn neuron_devices(instance_type: &str, hardware: &NeuronHardware) -> Vec<Device> {
    (0..hardware.devices)
        .map(|id| neuron_device(instance_type, hardware, id))
        .collect()
}

fn neuron_device(instance_type: &str, hardware: &NeuronHardware, id: u32) -> Device {
    let mut attributes = vec![
        ("deviceId", int(id)),
        ("instanceType", text(instance_type)),
        (
            "neuronDriverVersion",
            text(hardware.driver.clone().unwrap_or_default()),
        ),
        ("draDriverVersion", version("1.2.0")),
        ("resourceType", text("neuron_device")),
        ("networkNodeLayer1", text("nn-0a1b2c3d4e5f60718")),
        ("networkNodeLayer2", text("nn-1b2c3d4e5f6071829")),
        ("networkNodeLayer3", text("nn-2c3d4e5f607182930")),
    ];
    if hardware.family.trainium() && hardware.devices > 1 {
        attributes.push(("topology_x", int(id / 4)));
        attributes.push(("topology_y", int(id % 4)));
        attributes.push(("topology4_id", int(id / 4)));
        if hardware.devices >= 8 {
            attributes.push(("topology8_id", int(id / 8)));
        }
    }
    for (name, size) in [
        ("resource.aws.com/devicegroup1_id", 1),
        ("resource.aws.com/devicegroup4_id", 4),
        ("resource.aws.com/devicegroup8_id", 8),
        ("resource.aws.com/devicegroup16_id", 16),
    ] {
        attributes.extend(
            hardware
                .device_group(id, size)
                .map(|group| (name, text(group))),
        );
    }
    device(format!("neuron-device-{id}"), attributes, Vec::new())
}

#[cfg(test)]
mod tests {
    use super::super::shapes::Shape;
    use super::*;

    fn counts(
        shape: &Shape,
        file: Option<&str>,
        env: &[(&str, &str)],
    ) -> Result<BTreeMap<String, usize>, String> {
        let dir = tempfile::tempdir().unwrap();
        let tree = Tree::create(dir.path(), "basalt-7", shape).unwrap();
        let env = env
            .iter()
            .map(|(key, value)| ((*key).into(), (*value).into()))
            .collect();
        let config = PluginConfig::read(file, &env)?;
        let resources = nvidia_resources(&tree, &tree.nvidia().unwrap(), &config)?;
        Ok(resources
            .into_iter()
            .map(|(name, ids)| (name, ids.len()))
            .collect())
    }

    fn map(pairs: &[(&str, usize)]) -> BTreeMap<String, usize> {
        pairs
            .iter()
            .map(|(name, count)| ((*name).into(), *count))
            .collect()
    }

    #[test]
    fn mig_strategies_advertise_what_the_plugin_would() {
        assert_eq!(
            counts(&Shape::h100(), None, &[]).unwrap(),
            map(&[("nvidia.com/gpu", 8)])
        );
        assert_eq!(
            counts(&Shape::a100_mig(), None, &[("MIG_STRATEGY", "none")]).unwrap(),
            map(&[("nvidia.com/gpu", 8)])
        );
        assert_eq!(
            counts(&Shape::a100_mig(), None, &[("MIG_STRATEGY", "mixed")]).unwrap(),
            map(&[
                ("nvidia.com/mig-1g.5gb", 36),
                ("nvidia.com/mig-2g.10gb", 4),
                ("nvidia.com/mig-3g.20gb", 4)
            ])
        );
        assert!(
            counts(&Shape::a100_mig(), None, &[("MIG_STRATEGY", "single")])
                .unwrap_err()
                .contains("more than one MIG")
        );
    }

    #[test]
    fn time_slicing_multiplies_and_renames() {
        let file = "version: v1\nsharing:\n  timeSlicing:\n    renameByDefault: true\n    resources:\n    - {name: nvidia.com/gpu, replicas: 4}\n";
        assert_eq!(
            counts(&Shape::h100(), Some(file), &[]).unwrap(),
            map(&[("nvidia.com/gpu.shared", 32)])
        );
        let kept = file.replace("renameByDefault: true", "renameByDefault: false");
        assert_eq!(
            counts(&Shape::h100(), Some(&kept), &[]).unwrap(),
            map(&[("nvidia.com/gpu", 32)])
        );
        let one = file.replace("replicas: 4", "replicas: 1");
        assert!(
            counts(&Shape::h100(), Some(&one), &[])
                .unwrap_err()
                .contains(">= 2")
        );
    }

    #[test]
    fn the_environment_overrides_the_file() {
        let file = "version: v1\nflags: {migStrategy: mixed}\n";
        let env = BTreeMap::from([("MIG_STRATEGY".to_owned(), "none".to_owned())]);
        assert_eq!(
            PluginConfig::read(Some(file), &env).unwrap().mig_strategy,
            "none"
        );
        assert_eq!(
            PluginConfig::read(Some(file), &BTreeMap::new())
                .unwrap()
                .mig_strategy,
            "mixed"
        );
    }

    #[test]
    fn neuron_cores_follow_the_lnc_setting_and_devices_do_not() {
        let hardware = Shape::trn2_48xlarge().neuron.unwrap();
        let count = |lnc: u32, name: &str| neuron_resources(&hardware, lnc).get(name).map(Vec::len);
        assert_eq!(
            (
                count(2, "aws.amazon.com/neuron"),
                count(2, "aws.amazon.com/neuroncore")
            ),
            (Some(16), Some(64))
        );
        assert_eq!(
            (
                count(1, "aws.amazon.com/neuron"),
                count(1, "aws.amazon.com/neuroncore")
            ),
            (Some(16), Some(128))
        );
    }

    #[test]
    fn mig_enabled_gpus_are_published_as_instances_only() {
        let dir = tempfile::tempdir().unwrap();
        let tree = Tree::create(dir.path(), "basalt-7", &Shape::a100_mig()).unwrap();
        let devices = nvidia_devices(&tree, &tree.nvidia().unwrap());
        assert_eq!(devices.len(), 4 * 7 + 4 * 4);
        assert!(
            devices
                .iter()
                .any(|device| device.name == "gpu-0-mig-1g5gb-19-0")
        );
        assert!(devices.iter().all(|device| device.name.contains("-mig-")));
    }

    #[test]
    fn only_large_trainium_types_carry_topology_and_device_groups() {
        let keys = |shape: Shape| {
            let hardware = shape.neuron.unwrap();
            neuron_devices(&shape.instance_type, &hardware)
                .pop()
                .unwrap()
                .attributes
                .unwrap()
                .len()
        };
        assert_eq!(keys(Shape::trn1_2xlarge()), 8);
        assert_eq!(keys(Shape::inf2_48xlarge()), 8);
        assert_eq!(keys(Shape::trn2_48xlarge()), 8 + 4 + 4);
    }
}
