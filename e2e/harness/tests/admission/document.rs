//! Valid documents that the rows change one thing of. Names differ from the product's and from each other.

use serde_json::{Value, json};

/// As little as there can be.
pub fn smallest() -> Value {
    json!({
        "apiVersion": "freehold.dev/v1alpha1",
        "kind": "AcceleratorCluster",
        "metadata": {"name": "cluster"},
        "spec": {"cohorts": []},
    })
}

/// Every field of the schema at least once.
pub fn full() -> Value {
    let mut document = smallest();
    document["spec"] = json!({
        "ownerLabel": "workshop.example.com/allocation",
        "cohorts": [forge(), mill(), loom(), kiln(), press()],
        "sizes": [
            {
                "name": "bench", "vendor": "Neuron", "namespaces": ["atelier"], "deviceClassName": "bench-class",
                "requestName": "cores", "devices": {"count": 4}, "alignBy": "resource.aws.com/devicegroup4_id",
                "selectors": ["device.attributes['neuron.aws.com'].exists"], "logicalNeuronCore": 1,
            },
            {"name": "anvil", "vendor": "NVIDIA", "deviceType": "MIG", "namespaces": ["atelier", "yard"], "devices": {"all": true}},
        ],
        "rollout": {
            "maxUnavailable": "15%",
            "canary": {"nodes": 2, "soak": "1h30m"},
            "drain": {"policy": "Evict", "timeout": "90m"},
            "paused": true,
        },
    });
    document
}

fn forge() -> Value {
    json!({
        "name": "forge",
        "vendor": "NVIDIA",
        "owner": "DevicePlugin",
        "nodeSelector": {
            "matchLabels": {"room": "north", "shelf": "3"},
            "matchExpressions": [
                {"key": "zone", "operator": "In", "values": ["z1", "z2"]},
                {"key": "retired", "operator": "DoesNotExist"},
            ],
        },
        "tolerations": [{"key": "heat", "operator": "Exists", "effect": "NoSchedule"}],
        "resources": {"requests": {"cpu": "20m"}, "limits": {"memory": "64Mi"}},
        "image": "registry.example.com/team/plugin:v9",
        "imagePullSecrets": ["registry-key"],
        "kubeletRootDir": "/data/kubelet",
        "rollout": {"maxUnavailable": 2},
        "nvidia": {
            "driverRoot": "/run/nvidia/driver",
            "runtimeClassName": "accelerated",
            "acceptUnknownDriver": true,
            "devicePlugin": {
                "migStrategy": "None", "deviceListStrategy": ["Envvar", "CdiCri"], "deviceIDStrategy": "Index",
                "failOnInitError": false, "compatWithCPUManager": true,
                "timeSlicing": {
                    "renameByDefault": true, "failRequestsGreaterThanOne": true,
                    "resources": [{"name": "nvidia.com/gpu", "replicas": 3}],
                },
            },
        },
    })
}

fn mill() -> Value {
    json!({
        "name": "mill",
        "vendor": "NVIDIA",
        "owner": "DRA",
        "nodeSelector": {"matchLabels": {"room": "south"}},
        "image": format!("registry.example.com/team/driver@sha256:{}", "a1".repeat(32)),
        "nvidia": {
            "dra": {"extendedResourceName": "Publish", "featureGates": {"TimeSlicingSettings": true, "DynamicMIG": false}},
            "mig": {"layouts": [{"gpus": "0,1", "instances": {"1g.10gb": 5}}, {"gpus": "2", "instances": {"1g.10gb+me": 1, "3g.1/2": 1}}]},
        },
    })
}

fn loom() -> Value {
    json!({
        "name": "loom",
        "vendor": "Neuron",
        "owner": "DRA",
        "nodeSelector": {"matchLabels": {"room": "west"}},
        "neuron": {"logicalNeuronCore": 2},
    })
}

fn kiln() -> Value {
    json!({
        "name": "kiln",
        "vendor": "NVIDIA",
        "owner": "DevicePlugin",
        "nodeSelector": {"matchLabels": {"room": "east"}},
        "nvidia": {"devicePlugin": {"mps": {"renameByDefault": true, "replicas": 6}}},
    })
}

fn press() -> Value {
    json!({
        "name": "press",
        "vendor": "NVIDIA",
        "owner": "DevicePlugin",
        "nodeSelector": {"matchLabels": {"room": "attic"}},
        "nvidia": {
            "devicePlugin": {"migStrategy": "Single", "config": {"name": "plugin-settings", "key": "config.yaml"}},
            "mig": {"layouts": [{"gpus": "All", "instances": {"2g.20gb": 3}}]},
        },
    })
}

/// The controller's part of a node's object, every field at least once.
pub fn node() -> Value {
    json!({
        "apiVersion": "freehold.dev/v1alpha1",
        "kind": "AcceleratorNode",
        "metadata": {"name": "sim-21"},
        "spec": {
            "nodeUID": "6d9a",
            "nvidia": {
                "cohort": "mill", "owner": "DRA", "term": 5, "draCohort": "mill",
                "layout": {"logicalNeuronCore": 1, "mig": [{"gpus": "All", "instances": [{"profile": "1g.10gb", "count": 7}]}]},
            },
            "neuron": {
                "cohort": "loom", "owner": "DevicePlugin", "term": 2, "draCohort": "loom",
                "layout": {"logicalNeuronCore": 2, "mig": [{"gpus": "0", "instances": [{"profile": "1g.10gb", "count": 1}]}]},
            },
        },
    })
}

/// The example that the design and the manual show.
pub fn manual() -> Value {
    serde_saphyr::from_str(
        r#"
apiVersion: freehold.dev/v1alpha1
kind: AcceleratorCluster
metadata:
  name: cluster
spec:
  ownerLabel: workload.example.com/gpu-allocation
  cohorts:
  - name: hybrid-plugin
    vendor: NVIDIA
    owner: DevicePlugin
    nodeSelector: {matchLabels: {eks.amazonaws.com/compute-type: hybrid, pool: a}}
    nvidia:
      driverRoot: /
      runtimeClassName: nvidia
      devicePlugin: {migStrategy: None, deviceListStrategy: [Envvar], failOnInitError: true,
                     timeSlicing: {renameByDefault: true, failRequestsGreaterThanOne: true, resources: [{name: nvidia.com/gpu, replicas: 4}]}}
  - name: h100-dra
    vendor: NVIDIA
    owner: DRA
    nodeSelector: {matchLabels: {pool: b}}
    nvidia:
      dra: {extendedResourceName: Omit}
      mig: {layouts: [{gpus: All, instances: {1g.10gb: 7}}]}
  - name: trn2-dra
    vendor: Neuron
    owner: DRA
    nodeSelector: {matchLabels: {node.kubernetes.io/instance-type: trn2.48xlarge}}
    neuron: {}
  sizes:
  - {name: xl-trn2, vendor: Neuron, namespaces: [ml], devices: {count: 16}, alignBy: resource.aws.com/devicegroup16_id}
  - {name: single-large-gpu, vendor: NVIDIA, namespaces: [ml], devices: {count: 1}, selectors: ['device.capacity["gpu.nvidia.com"].memory.isGreaterThan(quantity("40Gi"))']}
  rollout:
    maxUnavailable: 1
    canary: {nodes: 1, soak: 10m}
    drain: {policy: Wait, timeout: 1h}
    paused: false
"#,
    )
    .unwrap()
}

/// Sets what a JSON pointer names, making objects on the way; null removes.
pub fn put(document: &mut Value, pointer: &str, value: Value) {
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    let mut place = document;
    for part in parent.split('/').skip(1) {
        place = match part.parse::<usize>() {
            Ok(index) => &mut place[index],
            Err(_) => &mut place[part],
        };
    }
    let key = key.replace("~1", "/");
    match (place, value) {
        (Value::Object(map), Value::Null) => drop(
            map.remove(&key)
                .unwrap_or_else(|| panic!("{pointer}: nothing to remove")),
        ),
        (Value::Array(list), value) => list[key.parse::<usize>().unwrap()] = value,
        (place, value) => place[&key] = value,
    }
}
