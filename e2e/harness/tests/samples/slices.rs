//! Devices as the drivers publish them.

use serde_json::{Value, json};

/// Connected groups of a trn2.48xlarge, as seen on hardware.
const FOURS: [&str; 4] = [
    "13713e551cd37c19",
    "671622785349fddf",
    "237e3ef7b968b4d3",
    "b3d6ce1919d29f8f",
];
const EIGHTS: [&str; 2] = ["3593812b8066a078", "614e16dab9ba2f1f"];

fn slice(driver: &str, node: &str, devices: &[Value]) -> Value {
    json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": format!("{node}-{driver}")},
        "spec": {"driver": driver, "nodeName": node, "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": devices},
    })
}

pub fn neuron(node: &str, instance_type: &str, driver_version: &str, count: usize) -> Value {
    let devices = (0..count).map(|n| {
        let mut attributes = json!({
            "deviceId": {"int": n}, "instanceType": {"string": instance_type},
            "neuronDriverVersion": {"string": driver_version}, "draDriverVersion": {"version": "1.2.0"},
            "resourceType": {"string": "neuron_device"},
        });
        if count == 16 {
            attributes["resource.aws.com/devicegroup4_id"] = json!({"string": FOURS[n / 4]});
            attributes["resource.aws.com/devicegroup8_id"] = json!({"string": EIGHTS[n / 8]});
            attributes["resource.aws.com/devicegroup16_id"] = json!({"string": "821d14afaf11327d"});
        }
        json!({"name": format!("neuron-device-{n}"), "attributes": attributes})
    });
    slice("neuron.aws.com", node, &devices.collect::<Vec<_>>())
}

pub fn gpus(node: &str, product: &str, memory: &str, count: usize) -> Value {
    let devices = (0..count).map(|n| device(&format!("gpu-{n}"), "gpu", product, memory));
    slice("gpu.nvidia.com", node, &devices.collect::<Vec<_>>())
}

/// Whole-board MIG instances: larger than 40 GiB, and still no whole GPU.
pub fn mig(node: &str) -> Value {
    let devices = (0..2).map(|n| {
        let mut device = device(
            &format!("gpu-{n}-mig-7g80gb-0-0"),
            "mig",
            "NVIDIA H100 80GB HBM3",
            "81152Mi",
        );
        device["attributes"]["profile"] = json!({"string": "7g.80gb"});
        device
    });
    slice("gpu.nvidia.com", node, &devices.collect::<Vec<_>>())
}

fn device(name: &str, kind: &str, product: &str, memory: &str) -> Value {
    json!({
        "name": name,
        "attributes": {"type": {"string": kind}, "productName": {"string": product}, "driverVersion": {"version": "580.95.5"}},
        "capacity": {"memory": {"value": memory}},
    })
}
