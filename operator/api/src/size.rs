//! Sizes: names for what workloads need.

use freehold_core::vendor::Vendor;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A name that ML engineers use. Freehold keeps a ResourceClaimTemplate of this name in each of the namespaces, and, when
/// `deviceClassName` is set, a DeviceClass with the selectors.
#[derive(KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[x_kube(
    validation = Rule::new("has(self.deviceClassName) || (has(self.namespaces) && size(self.namespaces) > 0)")
        .message("namespaces or deviceClassName must be set: without either there is nothing to keep for this size"),
    validation = Rule::new("!has(self.logicalNeuronCore) || self.vendor == 'Neuron'")
        .message("logicalNeuronCore is a setting of Neuron devices: remove it, or set vendor: Neuron"),
    // The shortest expression that does: longer ones are beyond the API server's cost budget. The parse looks closer.
    validation = Rule::new("!has(self.logicalNeuronCore) || !has(self.selectors) || !self.selectors.exists(s, s.matches('== *.(trn1|inf)'))")
        .message("logicalNeuronCore has no effect on Trn1, Inf1 and Inf2, and the driver fails every pod that asks for it there (LNC value is not configurable for instance type trn1.2xlarge): remove it, or select trn2 or trn3"),
    validation = Rule::new("!has(self.deviceType) || self.vendor == 'NVIDIA'")
        .message("deviceType tells NVIDIA devices apart: remove it, or set vendor: NVIDIA"),
    validation = Rule::new("(has(self.namespaces) && size(self.namespaces) > 0) || (!has(self.alignBy) && !has(self.requestName) && has(self.devices.count) && self.devices.count == 1)")
        .message("namespaces must be set: alignBy, requestName and more than one device are parts of a claim, and a DeviceClass alone cannot hold them; name the namespaces, or remove these and set devices.count: 1"),
    validation = Rule::new("!has(self.alignBy) || !has(self.devices.count) || self.devices.count > 1")
        .message("alignBy says that several devices share an attribute; with devices.count 1 it has no meaning: remove it or ask for more devices")
)]
pub struct Size {
    /// Name of the ResourceClaimTemplates.
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(
        validation = Rule::new("size(self) <= 63")
            .message("name must have at most 63 characters: pods' generated claim names start with it; shorten it"),
        validation = Rule::new("self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')")
            .message("name must be a DNS label (lower-case letters, digits and '-'), e.g. xl-trn2")
    )]
    pub name: String,
    /// Whose devices.
    pub vendor: Vendor,
    /// Which type of NVIDIA devices; `GPU` unless said otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_type: Option<DeviceType>,
    /// Namespaces to keep a ResourceClaimTemplate in. One that does not exist yet gets it when it appears.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 63)))]
    #[x_kube(
        merge_strategy = ListMerge::Set,
        validation = Rule::new("self.all(n, n.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$'))")
            .message("namespaces must be DNS labels (lower-case letters, digits and '-'): no namespace can have another name")
    )]
    pub namespaces: Vec<String>,
    /// DeviceClass to keep for this size. Without it the templates use the vendor's own class and carry the selectors themselves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    #[x_kube(
        validation = Rule::new("self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')")
            .message("deviceClassName must be a DNS name (lower-case letters, digits, '-' and '.'), e.g. hybrid-large-gpu"),
        validation = Rule::new("!(self in ['gpu.nvidia.com', 'mig.nvidia.com', 'vfio.gpu.nvidia.com', 'neuron.aws.com'])")
            .message("deviceClassName must not be a vendor's own class: Freehold keeps those itself; choose a name of your own")
    )]
    pub device_class_name: Option<String>,
    /// Name of the request inside the claim; `gpu` for NVIDIA and `neurons` for Neuron unless said otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    #[x_kube(validation = Rule::new("self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')")
        .message("requestName must be a DNS label, e.g. gpu"))]
    pub request_name: Option<String>,
    /// How many devices.
    pub devices: SizeDevices,
    /// Attribute that all devices of the claim must share, e.g. `resource.aws.com/devicegroup4_id`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 3, max = 127))]
    #[x_kube(validation = Rule::new("self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/[A-Za-z_][A-Za-z0-9_]{0,31}$') && self.indexOf('/') <= 63")
        .message("alignBy must be a fully qualified device attribute: <domain>/<name> of at most 63 and 32 characters, e.g. resource.aws.com/devicegroup4_id"))]
    pub align_by: Option<String>,
    /// CEL expressions over `device`, all of which must hold; checked by the API server as part of the template.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(length(min = 1, max = 4096)))]
    #[x_kube(validation = Rule::new("self.all(s, s.trim() != '')")
        .message("selectors must be CEL expressions over device, not blank"))]
    pub selectors: Vec<String>,
    /// Logical NeuronCore setting for the claim, 1 or 2, on Trn2 and Trn3 only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("self == 1 || self == 2")
        .message("logicalNeuronCore must be 1 or 2: only these exist; 2 joins two physical cores into one logical core"))]
    pub logical_neuron_core: Option<i32>,
}

/// How many devices: a count, or all that match.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[x_kube(
    validation = Rule::new("has(self.count) != (has(self.all) && self.all)")
        .message("devices must have either a count or all: true")
)]
pub struct SizeDevices {
    /// Exactly so many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 32))]
    pub count: Option<i32>,
    /// Every matching device of a node.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub all: bool,
}

/// Type of NVIDIA devices, as the DRA driver publishes them; each has a class of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DeviceType {
    /// Whole GPUs (`gpu.nvidia.com`).
    #[default]
    #[serde(rename = "GPU")]
    Gpu,
    /// MIG instances (`mig.nvidia.com`).
    #[serde(rename = "MIG")]
    Mig,
    /// GPUs passed through to virtual machines (`vfio.gpu.nvidia.com`), with the gate PassthroughSupport.
    #[serde(rename = "VFIO")]
    Vfio,
}
