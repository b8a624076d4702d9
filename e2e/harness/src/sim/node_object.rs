//! The Node object as a kubelet writes it: as large as real ones, since what a controller keeps per node is measured here too.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Node;
use serde_json::{Value, json};

use super::shapes::{Shape, hex, uuid};
use sha2::{Digest as _, Sha256};

/// Labels that a kubelet may not set on itself: a cloud controller adds them.
const CLOUD_LABELS: [(&str, &str); 2] = [
    ("k8s.io/cloud-provider-aws", "7c1d2e9f"),
    ("node-role.kubernetes.io/worker", ""),
];

/// What is known about a node besides its shape.
#[derive(Clone, Debug)]
pub struct Identity {
    /// Name.
    pub name: String,
    /// A number unique in the fleet, for addresses.
    pub index: u32,
    /// Boot ID.
    pub boot_id: String,
}

impl Identity {
    /// The node's address.
    #[must_use]
    pub fn address(&self) -> String {
        format!(
            "10.{}.{}.{}",
            32 + self.index / 62_500,
            self.index / 250 % 250,
            self.index % 250 + 2
        )
    }
}

/// The object with which a kubelet registers.
///
/// # Errors
/// None in practice: the literal has the Node's form.
pub fn node(identity: &Identity, shape: &Shape) -> serde_json::Result<Node> {
    serde_json::from_value(json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": identity.name,
            "labels": labels(identity, shape),
            "annotations": annotations(identity),
        },
        "spec": {
            "providerID": format!("aws:///eu-north-1{}/i-{}", zone(identity), hex_of(&format!("instance/{}", identity.name), 17)),
        },
        "status": status(identity, shape, &BTreeMap::new()),
    }))
}

/// Labels that a cloud controller adds after registration.
#[must_use]
pub fn cloud_labels() -> BTreeMap<String, String> {
    CLOUD_LABELS
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into()
}

/// Capacity and allocatable of one extended resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quantity {
    /// Devices that exist.
    pub capacity: usize,
    /// Devices that can be given out.
    pub allocatable: usize,
}

/// The status that a kubelet reports.
#[must_use]
pub fn status(identity: &Identity, shape: &Shape, extended: &BTreeMap<String, Quantity>) -> Value {
    let now = now();
    let condition = |kind: &str, status: &str, reason: &str, message: &str| {
        json!({"type": kind, "status": status, "reason": reason, "message": message,
            "lastHeartbeatTime": now, "lastTransitionTime": now})
    };
    let (capacity, allocatable) = resources(shape, extended);
    json!({
        "capacity": capacity,
        "allocatable": allocatable,
        "conditions": [
            condition("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
            condition("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
            condition("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
            condition("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
        ],
        "addresses": [
            {"type": "InternalIP", "address": identity.address()},
            {"type": "Hostname", "address": identity.name},
            {"type": "InternalDNS", "address": format!("{}.eu-north-1.compute.internal", identity.name)},
        ],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
        "nodeInfo": {
            "machineID": hex_of(&format!("machine/{}", identity.name), 32),
            "systemUUID": uuid("", &format!("system/{}", identity.name)),
            "bootID": identity.boot_id,
            "kernelVersion": "6.12.46-66.121.amzn2023.x86_64",
            "osImage": "Amazon Linux 2023.9.20261027",
            "containerRuntimeVersion": "containerd://2.1.4",
            "kubeletVersion": shape.kubelet_version,
            "kubeProxyVersion": "",
            "operatingSystem": "linux",
            "architecture": "amd64",
        },
        "images": images(),
        "runtimeHandlers": [{"name": "runc", "features": {"recursiveReadOnlyMounts": true, "userNamespaces": true}},
            {"name": "nvidia", "features": {"recursiveReadOnlyMounts": true, "userNamespaces": true}}],
        "features": {"supplementalGroupsPolicy": true},
    })
}

/// Capacity and allocatable maps, extended resources included.
#[must_use]
pub fn resources(shape: &Shape, extended: &BTreeMap<String, Quantity>) -> (Value, Value) {
    let map = |cpu: String, memory_ki: u64, count: fn(&Quantity) -> usize| {
        let mut map = BTreeMap::from([
            ("cpu".to_owned(), cpu),
            ("memory".into(), format!("{memory_ki}Ki")),
            ("pods".into(), "110".into()),
            ("ephemeral-storage".into(), "104779756Ki".into()),
            ("hugepages-1Gi".into(), "0".into()),
            ("hugepages-2Mi".into(), "0".into()),
        ]);
        map.extend(
            extended
                .iter()
                .map(|(name, quantity)| (name.clone(), count(quantity).to_string())),
        );
        json!(map)
    };
    let memory_ki = u64::from(shape.memory_gib) * 1024 * 1024;
    // What kube-reserved and the eviction threshold leave on nodes of this kind.
    let reserved_ki = 1_465_344;
    (
        map(shape.cpus.to_string(), memory_ki, |quantity| {
            quantity.capacity
        }),
        map(
            format!("{}m", shape.cpus * 1000 - 110),
            memory_ki - reserved_ki,
            |quantity| quantity.allocatable,
        ),
    )
}

fn zone(identity: &Identity) -> char {
    match identity.index % 3 {
        0 => 'a',
        1 => 'b',
        _ => 'c',
    }
}

fn labels(identity: &Identity, shape: &Shape) -> BTreeMap<String, String> {
    let zone = format!("eu-north-1{}", zone(identity));
    let mut labels: BTreeMap<String, String> = [
        ("beta.kubernetes.io/arch", "amd64"),
        ("beta.kubernetes.io/instance-type", &shape.instance_type),
        ("beta.kubernetes.io/os", "linux"),
        ("failure-domain.beta.kubernetes.io/region", "eu-north-1"),
        ("failure-domain.beta.kubernetes.io/zone", &zone),
        ("kubernetes.io/arch", "amd64"),
        ("kubernetes.io/hostname", &identity.name),
        ("kubernetes.io/os", "linux"),
        ("node.kubernetes.io/instance-type", &shape.instance_type),
        ("topology.kubernetes.io/region", "eu-north-1"),
        ("topology.kubernetes.io/zone", &zone),
        ("topology.k8s.aws/zone-id", "eun1-az1"),
        (
            "topology.k8s.aws/network-node-layer-1",
            "nn-0a1b2c3d4e5f60718",
        ),
        (
            "topology.k8s.aws/network-node-layer-2",
            "nn-1b2c3d4e5f6071829",
        ),
        (
            "topology.k8s.aws/network-node-layer-3",
            "nn-2c3d4e5f607182930",
        ),
        ("eks.amazonaws.com/capacityType", "ON_DEMAND"),
        ("eks.amazonaws.com/nodegroup-image", "ami-0b7d8f9c2e4a61357"),
        (
            "eks.amazonaws.com/sourceLaunchTemplateId",
            "lt-0c9e8d7f6a5b43210",
        ),
        ("eks.amazonaws.com/sourceLaunchTemplateVersion", "3"),
    ]
    .map(|(key, value)| (key.to_owned(), value.to_owned()))
    .into();
    labels.extend(shape.labels.clone());
    // Node Feature Discovery writes dozens of these on every node.
    for feature in [
        "ADX",
        "AESNI",
        "AMXBF16",
        "AMXINT8",
        "AMXTILE",
        "AVX",
        "AVX2",
        "AVX512BF16",
        "AVX512BW",
        "AVX512CD",
        "AVX512DQ",
        "AVX512F",
    ] {
        labels.insert(
            format!("feature.node.kubernetes.io/cpu-cpuid.{feature}"),
            "true".into(),
        );
    }
    for (key, value) in [
        ("kernel-version.full", "6.12.46-66.121.amzn2023.x86_64"),
        ("kernel-version.major", "6"),
        ("system-os_release.ID", "amzn"),
    ] {
        labels.insert(format!("feature.node.kubernetes.io/{key}"), value.into());
    }
    labels
}

fn annotations(identity: &Identity) -> BTreeMap<String, String> {
    let features: Vec<_> = (0..150)
        .map(|n| format!("feature.node.kubernetes.io/cpu-cpuid.F{n}"))
        .collect();
    BTreeMap::from([
        (
            "alpha.kubernetes.io/provided-node-ip".into(),
            identity.address(),
        ),
        (
            "csi.volume.kubernetes.io/nodeid".into(),
            format!(
                "{{\"ebs.csi.aws.com\":\"i-{}\"}}",
                hex_of(&identity.name, 17)
            ),
        ),
        ("node.alpha.kubernetes.io/ttl".into(), "0".into()),
        (
            "volumes.kubernetes.io/controller-managed-attach-detach".into(),
            "true".into(),
        ),
        (
            "nfd.node.kubernetes.io/feature-labels".into(),
            features.join(","),
        ),
    ])
}

/// Thirty images with their digests in two registries and their tag, as a kubelet behind a pull-through cache lists them.
fn images() -> Vec<Value> {
    (0..30_u64)
        .map(|n| {
            let name = format!(
                "platform/{}/workload-component-{n:02}",
                if n % 2 == 0 {
                    "observability"
                } else {
                    "networking"
                }
            );
            let (mirror, origin) = (
                "602401143452.dkr.ecr.eu-north-1.amazonaws.com/pull-through/public-ecr-aws",
                "public.ecr.aws",
            );
            let digest = hex_of(&name, 64);
            let names = [
                format!("{mirror}/{name}@sha256:{digest}"),
                format!("{origin}/{name}@sha256:{digest}"),
                format!("{mirror}/{name}:v1.{n}.3-eksbuild.1"),
            ];
            json!({"names": names, "sizeBytes": 40_000_000 + n * 7_654_321})
        })
        .collect()
}

fn hex_of(seed: &str, length: usize) -> String {
    hex(&Sha256::digest(seed.as_bytes()))
        .get(..length)
        .unwrap_or_default()
        .to_owned()
}

/// Now, as the API writes times.
#[must_use]
pub fn now() -> String {
    jiff::Timestamp::now()
        .strftime("%Y-%m-%dT%H:%M:%SZ")
        .to_string()
}

#[cfg(test)]
mod tests {
    use kube::ResourceExt as _;

    use super::*;

    #[test]
    fn a_node_is_as_large_as_a_real_one() {
        let identity = Identity {
            name: "basalt-7".into(),
            index: 7,
            boot_id: "b".into(),
        };
        for shape in [
            Shape::h100(),
            Shape::trn2_48xlarge(),
            Shape::eks_auto_mode(),
        ] {
            let node = node(&identity, &shape).unwrap();
            assert!(
                node.labels().len() + CLOUD_LABELS.len() >= 40,
                "{}: {} labels",
                shape.key,
                node.labels().len()
            );
            let status = node.status.as_ref().unwrap();
            assert_eq!(status.images.as_ref().unwrap().len(), 30);
            let size = serde_json::to_string(&node).unwrap().len();
            assert!(
                size > 20_000,
                "{}: {size} bytes without managed fields",
                shape.key
            );
        }
    }

    #[test]
    fn addresses_differ_between_nodes() {
        let address = |index| {
            Identity {
                name: "n".into(),
                index,
                boot_id: String::new(),
            }
            .address()
        };
        assert_ne!(address(0), address(250));
        assert_ne!(address(1), address(62_501));
    }
}
