//! Devices in ResourceSlices: what the DRA drivers publish.

use k8s_openapi::api::resource::v1::{Device, DeviceAttribute, DeviceCapacity};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::super::shapes::{Gpu, MigInstance, NeuronHardware, NvidiaHardware};
use super::super::tree::Tree;

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
