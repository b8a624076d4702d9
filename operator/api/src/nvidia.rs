//! NVIDIA settings of a cohort.

use std::collections::BTreeMap;

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// NVIDIA settings.
#[derive(KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Nvidia {
    /// Where the driver is installed on the host: `/` for a driver of the host itself, `/run/nvidia/driver` for a containerised one.
    #[serde(default = "default_driver_root")]
    #[schemars(length(max = 253))]
    #[x_kube(validation = Rule::new("self == '/' || (self.matches('^(/[A-Za-z0-9._-]+)+$') && !self.contains('/../') && !self.endsWith('/..') && !self.contains('/./') && !self.endsWith('/.'))")
        .message("driverRoot must be an absolute path without '.', '..' or a trailing slash, e.g. / or /run/nvidia/driver"))]
    pub driver_root: String,
    /// RuntimeClass of the device plugin's pods; it must exist. The NVIDIA runtime behind it injects the driver and the device
    /// nodes. Without it the driver is mounted from `driverRoot`, and the device nodes come from a default runtime that is
    /// NVIDIA's, or with `devicePlugin.compatWithCPUManager: true`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = Rule::new("self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')")
        .message("runtimeClassName must be the name of a RuntimeClass (lower-case letters, digits, '-' and '.'), e.g. nvidia"))]
    pub runtime_class_name: Option<String>,
    /// Accept a driver whose version cannot be read. Without it such a node is blocked, since a floor cannot be checked.
    #[serde(default)]
    pub accept_unknown_driver: bool,
    /// Device plugin settings, with owner `DevicePlugin`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_plugin: Option<DevicePlugin>,
    /// DRA driver settings, with owner `DRA`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dra: Option<Dra>,
    /// MIG geometry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mig: Option<Mig>,
}

fn default_driver_root() -> String {
    "/".into()
}

/// NVIDIA device plugin settings.
#[derive(KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[x_kube(
    validation = Rule::new("(has(self.timeSlicing) ? 1 : 0) + (has(self.mps) ? 1 : 0) + (has(self.config) ? 1 : 0) <= 1")
        .message("timeSlicing, mps and config exclude each other: the plugin honours one sharing configuration; keep one"),
    validation = Rule::new("!has(self.mps) || !has(self.migStrategy) || self.migStrategy == 'None'")
        .message("mps cannot be combined with migStrategy Single or Mixed: the plugin refuses MPS on MIG devices; set migStrategy: None or remove mps"),
    validation = Rule::new("!has(self.timeSlicing) || (has(self.migStrategy) && self.migStrategy == 'Mixed') || self.timeSlicing.resources.all(r, !r.name.startsWith('nvidia.com/mig-'))")
        .message("timeSlicing of nvidia.com/mig-<profile> needs migStrategy Mixed, which alone advertises it: set migStrategy: Mixed, or share nvidia.com/gpu")
)]
pub struct DevicePlugin {
    /// How MIG devices are advertised.
    #[serde(default)]
    pub mig_strategy: MigStrategy,
    /// How devices are passed to containers, in order of preference.
    #[schemars(length(min = 1, max = 4))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    #[serde(default = "default_device_list_strategy")]
    pub device_list_strategy: Vec<DeviceListStrategy>,
    /// How devices are identified to containers.
    #[serde(rename = "deviceIDStrategy", default)]
    pub device_id_strategy: DeviceIdStrategy,
    /// Whether the plugin fails when the driver cannot be initialised, rather than waiting for ever without a word.
    #[serde(default = "default_true")]
    pub fail_on_init_error: bool,
    /// Pass device nodes explicitly (`PASS_DEVICE_SPECS`), needed with the static CPU manager. Makes the plugin privileged.
    #[serde(rename = "compatWithCPUManager", default)]
    pub compat_with_cpu_manager: bool,
    /// Time-slicing: several consumers on one device, without isolation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_slicing: Option<TimeSlicing>,
    /// Multi-Process Service: several consumers on one GPU through a control daemon, which is run only when this is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mps: Option<Mps>,
    /// A configuration file of your own in a ConfigMap of the operand namespace. Settings beside it that differ from their
    /// defaults win over the file. A change of the file reaches a node through a drain, like every change of what is
    /// advertised. `sharing.mps` has no place in it, since the control daemon comes with `mps` only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<ConfigRef>,
}

impl Default for DevicePlugin {
    fn default() -> Self {
        Self {
            mig_strategy: MigStrategy::default(),
            device_list_strategy: default_device_list_strategy(),
            device_id_strategy: DeviceIdStrategy::default(),
            fail_on_init_error: true,
            compat_with_cpu_manager: false,
            time_slicing: None,
            mps: None,
            config: None,
        }
    }
}

fn default_device_list_strategy() -> Vec<DeviceListStrategy> {
    vec![DeviceListStrategy::Envvar]
}

const fn default_true() -> bool {
    true
}

/// How MIG devices are advertised by the device plugin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum MigStrategy {
    /// MIG is ignored: physical GPUs are advertised.
    #[default]
    None,
    /// All instances are alike and advertised as `nvidia.com/gpu`.
    Single,
    /// Instances are advertised as `nvidia.com/mig-<profile>`.
    Mixed,
}

/// How devices are passed to containers.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
pub enum DeviceListStrategy {
    /// Environment variable `NVIDIA_VISIBLE_DEVICES`.
    Envvar,
    /// Volume mounts under `/var/run/nvidia-container-devices`.
    VolumeMounts,
    /// CDI annotations.
    CdiAnnotations,
    /// CDI through the CRI.
    CdiCri,
}

/// How devices are identified to containers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DeviceIdStrategy {
    /// By UUID.
    #[default]
    Uuid,
    /// By index.
    Index,
}

/// Time-slicing.
#[derive(KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TimeSlicing {
    /// Advertise the shared resource as `<name>.shared`.
    #[serde(default)]
    pub rename_by_default: bool,
    /// Refuse a container that asks for more than one replica: more replicas give no more compute.
    #[serde(default)]
    pub fail_requests_greater_than_one: bool,
    /// Resources and their replicas.
    #[schemars(length(min = 1, max = 16))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub resources: Vec<SharedResource>,
}

/// MPS.
#[derive(KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Mps {
    /// Advertise the shared resource as `<name>.shared`.
    #[serde(default)]
    pub rename_by_default: bool,
    /// Replicas of `nvidia.com/gpu`, the only resource that the plugin shares through MPS.
    #[schemars(range(max = 1024))]
    #[x_kube(validation = Rule::new("self >= 2")
        .message("mps.replicas must be at least 2: the plugin refuses 1; for exclusive GPUs remove mps"))]
    pub replicas: i32,
}

/// A shared resource.
#[derive(KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SharedResource {
    /// Resource name, e.g. `nvidia.com/gpu` or `nvidia.com/mig-1g.5gb`.
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = Rule::new("self == 'nvidia.com/gpu' || self.matches('^nvidia[.]com/mig-[0-9][a-z0-9.-]*$')")
        .message("resources[].name must be nvidia.com/gpu or nvidia.com/mig-<profile> (with '+' written as '.'), as the plugin advertises it before renaming"))]
    pub name: String,
    /// Consumers per device.
    #[schemars(range(max = 1024))]
    #[x_kube(validation = Rule::new("self >= 2")
        .message("timeSlicing replicas must be at least 2: the plugin refuses 1; for exclusive devices remove the resource (or timeSlicing)"))]
    pub replicas: i32,
}

/// A key of a ConfigMap in the operand namespace.
#[derive(KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ConfigRef {
    /// ConfigMap.
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = Rule::new("self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')")
        .message("name must be the name of a ConfigMap (lower-case letters, digits, '-' and '.')"))]
    pub name: String,
    /// Key that holds the plugin's configuration file (`version: v1`).
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = Rule::new("self.matches('^[-._a-zA-Z0-9]+$') && self != '.' && !self.startsWith('..')")
        .message("key must be a key of a ConfigMap (letters, digits, '-', '_' and '.'), e.g. config.yaml"))]
    pub key: String,
}

/// NVIDIA DRA driver settings.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Dra {
    /// Whether the class `gpu.nvidia.com` also answers plain `nvidia.com/gpu` requests, on Kubernetes 1.36 and later.
    #[serde(default)]
    pub extended_resource_name: ExtendedResourceName,
    /// Feature gates of the driver 0.5.0, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 16))]
    #[x_kube(
        validation = Rule::new("self.all(k, k in ['TimeSlicingSettings', 'MPSSupport', 'PassthroughSupport', 'DynamicMIG', 'NVMLDeviceHealthCheck', 'DeviceMetadata', 'DRAListTypeAttributes', 'FabricManagerPartitioning', 'ConsumableShares'])")
            .message("featureGates: unknown gate, or one of ComputeDomains, which Freehold does not run; known: TimeSlicingSettings, MPSSupport, PassthroughSupport, DynamicMIG, NVMLDeviceHealthCheck, DeviceMetadata, DRAListTypeAttributes, FabricManagerPartitioning, ConsumableShares"),
        validation = Rule::new("!('DynamicMIG' in self && self['DynamicMIG']) || !['PassthroughSupport', 'NVMLDeviceHealthCheck', 'MPSSupport'].exists(g, g in self && self[g])")
            .message("featureGates: DynamicMIG excludes PassthroughSupport, NVMLDeviceHealthCheck and MPSSupport (the driver refuses to start); turn one side off"),
        validation = Rule::new("!('PassthroughSupport' in self && self['PassthroughSupport'] && 'NVMLDeviceHealthCheck' in self && self['NVMLDeviceHealthCheck'])")
            .message("featureGates: PassthroughSupport excludes NVMLDeviceHealthCheck (the driver refuses to start); turn one off"),
        validation = Rule::new("!('DeviceMetadata' in self && self['DeviceMetadata']) || ('PassthroughSupport' in self && self['PassthroughSupport'])")
            .message("featureGates: DeviceMetadata needs PassthroughSupport (the driver refuses to start without it); turn PassthroughSupport on or DeviceMetadata off"),
        validation = Rule::new("!('MPSSupport' in self && self['MPSSupport']) || !['NVMLDeviceHealthCheck', 'ConsumableShares'].exists(g, g in self && self[g])")
            .message("featureGates: MPSSupport excludes NVMLDeviceHealthCheck and ConsumableShares (documented as unsupported; claims fail to prepare); turn one side off")
    )]
    pub feature_gates: BTreeMap<String, bool>,
}

/// Whether plain `nvidia.com/gpu` requests are answered through DRA.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ExtendedResourceName {
    /// They are not.
    #[default]
    Omit,
    /// They are.
    Publish,
}

/// MIG geometry of a cohort's nodes.
#[derive(KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Mig {
    /// Which GPUs carry which instances. GPUs that no layout names have MIG off.
    #[schemars(length(min = 1, max = 16))]
    pub layouts: Vec<MigLayout>,
}

/// MIG instances for some GPUs.
#[derive(KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MigLayout {
    /// `All`, or minor numbers such as `0,1,6`.
    #[schemars(length(min = 1, max = 128))]
    #[x_kube(validation = Rule::new("self.matches('^(All|[0-9]{1,3}(,[0-9]{1,3})*)$')")
        .message("gpus must be All or a comma-separated list of GPU minor numbers, e.g. '0,1,6'"))]
    pub gpus: String,
    /// Instances per GPU: profile → count. A profile is named as the driver prints it (`1g.10gb`, `1g.10gb+me`), or by its share
    /// of the board (`1g.1/8`, `3g.1/2+me`: compute slices, fraction of the memory, and the same suffix), which means the same
    /// on every board and under every driver.
    #[schemars(extend("maxProperties" = 16))]
    #[x_kube(
        validation = Rule::new("size(self) > 0 && self.all(k, self[k] >= 1 && self[k] <= 64)")
            .message("instances must name at least one profile, each with a count from 1 to 64; to leave MIG off, name no layout for the GPU"),
        validation = Rule::new("self.all(k, size(k) <= 32 && k.matches('^[1-8]g[.]([0-9]+gb|1/[1-9]|2/[2-9]|3/[3-9]|4/[4-9]|5/[5-9]|6/[6-9]|7/[7-9]|8/[89]|9/9|[1-9]/[1-9][0-9])([+-][a-z.,]+)?$'))")
            .message("instances must be keyed by MIG profile names as the driver prints them, e.g. 1g.10gb or 1g.10gb+me, or by compute slices and a fraction of the board's memory of at most 1, e.g. 1g.1/8 or 3g.1/2+me")
    )]
    pub instances: BTreeMap<String, i32>,
}
