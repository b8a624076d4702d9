//! A fixture whose names are unlike the product's, so that a value in the wrong place is seen.
#![allow(dead_code, reason = "each test binary uses its own part")]
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a fixture that does not hold ends the test"
)]

use std::collections::{BTreeMap, BTreeSet};

use freehold_api::AcceleratorClusterSpec;
use freehold_api::plan::Plan;
use freehold_render::{Rendered, RenderedOperand, Settings, render};
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Container, EnvVar, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

/// One cohort of every kind and variant.
pub const SPEC: &str = r#"
cohorts:
- name: plain
  vendor: NVIDIA
  owner: DevicePlugin
  nodeSelector: {matchLabels: {rack: r1}}
  nvidia: {runtimeClassName: acme-rt}
- name: sliced
  vendor: NVIDIA
  owner: DevicePlugin
  nodeSelector: {matchLabels: {rack: r2}}
  nvidia:
    runtimeClassName: acme-rt
    devicePlugin:
      timeSlicing: {renameByDefault: true, failRequestsGreaterThanOne: false, resources: [{name: nvidia.com/gpu, replicas: 5}]}
- name: shared-mps
  vendor: NVIDIA
  owner: DevicePlugin
  nodeSelector: {matchLabels: {rack: r3}}
  nvidia:
    runtimeClassName: acme-rt
    devicePlugin: {mps: {renameByDefault: false, replicas: 6}}
- name: own-file
  vendor: NVIDIA
  owner: DevicePlugin
  nodeSelector: {matchLabels: {rack: r4}}
  nvidia:
    runtimeClassName: acme-rt
    devicePlugin: {deviceIDStrategy: Index, config: {name: acme-plugin-files, key: night.yaml}}
- name: cut
  vendor: NVIDIA
  owner: DevicePlugin
  nodeSelector:
    matchLabels: {rack: r5}
    matchExpressions:
    - {key: tier, operator: NotIn, values: [frozen, cold]}
    - {key: drained, operator: DoesNotExist}
    - {key: burnt-in, operator: Exists}
  tolerations:
  - {key: acme.example/batch, operator: Equal, value: night, effect: NoExecute}
  - {key: CriticalAddonsOnly, operator: Exists}
  image: mirror.acme.example:5000/gpu-plug@sha256:1111111111111111111111111111111111111111111111111111111111111111
  imagePullSecrets: [acme-pull, acme-pull-2]
  resources: {requests: {cpu: 25m}, limits: {memory: 96Mi}}
  kubeletRootDir: /srv/kubelet
  nvidia:
    driverRoot: /opt/drv
    devicePlugin:
      migStrategy: Mixed
      deviceListStrategy: [CdiCri, VolumeMounts]
      deviceIDStrategy: Index
      failOnInitError: false
      compatWithCPUManager: true
    mig: {layouts: [{gpus: All, instances: {2g.20gb: 3}}]}
- name: quartz
  vendor: NVIDIA
  owner: DRA
  nodeSelector: {matchLabels: {rack: r6}}
- name: basalt
  vendor: NVIDIA
  owner: DRA
  nodeSelector: {matchLabels: {rack: r7}}
  image: mirror.acme.example/gpu-dra:odd-2
  imagePullSecrets: [acme-pull]
  kubeletRootDir: /srv/kubelet
  nvidia:
    driverRoot: /opt/acme/drv
    dra: {featureGates: {TimeSlicingSettings: false, PassthroughSupport: true, DeviceMetadata: true}}
- name: birch
  vendor: Neuron
  owner: DevicePlugin
  nodeSelector: {matchLabels: {rack: r8}}
- name: aspen
  vendor: Neuron
  owner: DRA
  nodeSelector: {matchLabels: {rack: r9}}
  kubeletRootDir: /srv/kubelet
  resources: {limits: {memory: 300Mi}}
  neuron: {logicalNeuronCore: 1}
sizes:
- {name: half, vendor: Neuron, namespaces: [team-b, team-a], devices: {count: 8}, alignBy: resource.aws.com/devicegroup8_id, logicalNeuronCore: 1}
- name: whole-node
  vendor: Neuron
  deviceClassName: acme-neuron-lnc2
  namespaces: [team-a]
  requestName: cores
  devices: {all: true}
  selectors: ["device.attributes['neuron.aws.com'].instanceType == 'trn2.3xlarge'"]
  logicalNeuronCore: 2
- {name: slice, vendor: NVIDIA, deviceType: MIG, namespaces: [team-c], devices: {count: 1}, selectors: ["device.attributes['gpu.nvidia.com'].profile == '2g.20gb'"]}
- {name: big, vendor: NVIDIA, deviceClassName: acme-big-gpu, devices: {count: 1}, selectors: ["device.capacity['gpu.nvidia.com'].memory.isGreaterThan(quantity('40Gi'))"]}
"#;

/// Content of the user's file that the cohort `own-file` names.
pub const USER_FILE: &str = "version: v1\nflags:\n  migStrategy: single\n";

pub fn settings() -> Settings {
    Settings {
        owner: OwnerReference {
            api_version: "freehold.dev/v1alpha1".into(),
            kind: "AcceleratorCluster".into(),
            name: "cluster".into(),
            uid: "8c7d-odd-uid".into(),
            ..OwnerReference::default()
        },
        agent_image: "mirror.acme.example/node-agent:odd-9".into(),
        agent_image_pull_secrets: vec!["acme-agent-pull".into()],
        plugin_configs: BTreeMap::from([(
            ("acme-plugin-files".into(), "night.yaml".into()),
            USER_FILE.into(),
        )]),
        kubelet_roots: BTreeSet::new(),
    }
}

pub fn plan(yaml: &str) -> Plan {
    let spec: AcceleratorClusterSpec = serde_saphyr::from_str(yaml).expect("the fixture is a spec");
    Plan::parse(&spec).unwrap_or_else(|problems| panic!("the fixture is not valid: {problems}"))
}

pub fn rendered() -> Rendered {
    render(&plan(SPEC), &settings())
}

/// [`SPEC`] with one piece replaced, rendered.
pub fn rendered_with(from: &str, to: &str) -> Rendered {
    assert!(SPEC.contains(from), "the fixture does not contain {from:?}");
    render(&plan(&SPEC.replacen(from, to, 1)), &settings())
}

pub fn operand<'a>(rendered: &'a Rendered, cohort: &str) -> &'a RenderedOperand {
    rendered
        .operands
        .iter()
        .find(|operand| operand.cohort == cohort)
        .expect("the cohort is rendered")
}

pub fn daemon_set<'a>(rendered: &'a Rendered, cohort: &str) -> &'a DaemonSet {
    operand(rendered, cohort)
        .daemon_set
        .as_ref()
        .expect("the cohort has a DaemonSet")
}

pub fn daemon_sets(rendered: &Rendered) -> Vec<&DaemonSet> {
    rendered
        .operands
        .iter()
        .filter_map(|operand| operand.daemon_set.as_ref())
        .chain(&rendered.shapers)
        .chain([&rendered.agent])
        .collect()
}

pub fn name(daemon_set: &DaemonSet) -> &str {
    daemon_set.metadata.name.as_deref().expect("a name")
}

pub fn pod(daemon_set: &DaemonSet) -> &PodSpec {
    daemon_set
        .spec
        .as_ref()
        .and_then(|spec| spec.template.spec.as_ref())
        .expect("a pod")
}

pub fn annotation<'a>(daemon_set: &'a DaemonSet, key: &str) -> Option<&'a str> {
    let metadata = daemon_set.spec.as_ref()?.template.metadata.as_ref()?;
    metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

/// Init containers and containers.
pub fn containers(daemon_set: &DaemonSet) -> impl Iterator<Item = &Container> {
    let pod = pod(daemon_set);
    pod.init_containers.iter().flatten().chain(&pod.containers)
}

pub fn container<'a>(daemon_set: &'a DaemonSet, name: &str) -> &'a Container {
    containers(daemon_set)
        .find(|container| container.name == name)
        .expect("the container is there")
}

/// The plain value of a variable.
pub fn env<'a>(container: &'a Container, name: &str) -> Option<&'a str> {
    env_vars(container)
        .find(|var| var.name == name)?
        .value
        .as_deref()
}

pub fn env_vars(container: &Container) -> impl Iterator<Item = &EnvVar> {
    container.env.iter().flatten()
}

/// Whether a container mounts a volume.
pub fn mounts<'a>(container: &'a Container, volume: &'a str) -> bool {
    container
        .volume_mounts
        .iter()
        .flatten()
        .any(|mount| mount.name == volume)
}
