//! What a node's agent says about its host: the `status.report` of an `AcceleratorNode`.
//!
//! The types are the API's own, so that there is one definition. They stay under 4 KiB as JSON: names are capped by the agent,
//! counts hold the rest.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::geometry::Board;
use crate::vendor::{Owner, Vendor};

/// A MIG profile and how many instances of it.
#[derive(
    Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MigProfileCount {
    /// Name as the driver prints it without the `MIG ` prefix, e.g. `1g.10gb` or `1g.10gb+me`.
    #[schemars(length(min = 1, max = 32))]
    pub profile: String,
    /// Number of instances.
    #[schemars(range(min = 1, max = 64))]
    pub count: i32,
}

/// One agent's statement. Without one nothing is known, and what is not known is never Ready.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeReport {
    /// UID of the Node object that the agent ran on. A report for another UID is void.
    #[serde(rename = "nodeUID")]
    #[schemars(length(max = 64))]
    pub node_uid: String,
    /// Kernel boot ID. A report from another boot is void.
    #[serde(rename = "bootID")]
    #[schemars(length(max = 64))]
    pub boot_id: String,
    /// Version of the agent.
    #[schemars(length(max = 64))]
    pub agent_version: String,
    /// NVIDIA's part. Present where the host has an NVIDIA device, driver, record or socket, and always where the object's
    /// spec names the vendor (so that "nothing here" can answer a term too).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nvidia: Option<VendorReport>,
    /// Neuron's part, under the same rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub neuron: Option<VendorReport>,
    /// What could not be read, each a sentence naming the path. At most 5.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 5), inner(length(max = 256)))]
    pub errors: Vec<String>,
}

impl MigProfileCount {
    /// Stands in a report for a profile that nobody on the node can name: procfs tells how many instances there are, and only
    /// NVML tells what they are.
    pub const UNKNOWN_PROFILE: &str = "unknown";
}

impl NodeReport {
    /// One vendor's part.
    #[must_use]
    pub const fn vendor(&self, vendor: Vendor) -> Option<&VendorReport> {
        match vendor {
            Vendor::Nvidia => self.nvidia.as_ref(),
            Vendor::Neuron => self.neuron.as_ref(),
        }
    }

    /// One vendor's part, to set it.
    pub const fn vendor_mut(&mut self, vendor: Vendor) -> &mut Option<VendorReport> {
        match vendor {
            Vendor::Nvidia => &mut self.nvidia,
            Vendor::Neuron => &mut self.neuron,
        }
    }
}

/// What the host says about one vendor.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VendorReport {
    /// Term of this vendor's tenure that the agent had seen *before* it read the host. The whole part is an answer to it.
    #[schemars(range(min = 0))]
    pub observed_term: i64,
    /// Devices found on the PCI bus, whether or not a driver serves them.
    #[schemars(range(min = 0, max = 1024))]
    pub pci_devices: i32,
    /// Devices that the driver serves.
    pub inventory: Inventory,
    /// The owner word in force, absent when none was ever given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub word: Option<Owner>,
    /// Term at which the word was last confirmed. 0 when never.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub word_term: i64,
    /// Who uses the devices: as an answer to a term always what was just read; between answers up to five minutes old.
    pub in_use: InUse,
    /// Kubelet device-plugin sockets of this vendor, by file name. At most 8. Those of the owner in force come with an answer; that
    /// they have come up is no reason for a report.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8), inner(length(max = 128)))]
    pub plugin_sockets: Vec<String>,
    /// Whether a registration socket of the vendor's DRA driver exists. The same holds for it.
    #[serde(default)]
    pub dra_registered: bool,
    /// Geometry as read back.
    #[serde(default)]
    pub layout: LayoutReport,
    /// The instance type as the host's firmware says it (`/sys/devices/virtual/dmi/id/product_name`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub instance_type: Option<String>,
}

/// Devices that a loaded driver serves.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Inventory {
    /// Driver version; absent without a driver, empty when the driver is there but says nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub driver_version: Option<String>,
    /// Number of devices (GPUs or Neuron devices).
    #[schemars(range(min = 0, max = 1024))]
    pub devices: i32,
    /// Models and how many of each. At most 8.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    pub models: Vec<Model>,
    /// Physical NeuronCores over all devices. Neuron only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 65536))]
    pub physical_cores: Option<i32>,
    /// Logical NeuronCores over all devices, at the LNC setting in force. Neuron only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 65536))]
    pub logical_cores: Option<i32>,
}

/// Devices of one model.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Model {
    /// Model as the driver says it, e.g. `NVIDIA H100 80GB HBM3` or `Trainium2`.
    #[schemars(length(max = 64))]
    pub name: String,
    /// How many.
    #[schemars(range(min = 1, max = 1024))]
    pub count: i32,
    /// Memory of one device in MiB, where the host tells it without a driver library.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub memory_mib: Option<i64>,
}

/// Holders by kind. A device-plugin holder goes away by itself; a DRA holder needs its driver to unprepare.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InUse {
    /// Pods that the kubelet's checkpoint ties to a device and whose directory or cgroup still exists.
    #[schemars(range(min = 0))]
    pub device_plugin: i32,
    /// Claims that the kubelet or the driver still has prepared.
    #[schemars(range(min = 0))]
    pub dra: i32,
    /// Names of the first few holders: `pod <uid>` or `claim <namespace>/<name>`. At most 5.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 5), inner(length(max = 256)))]
    pub holders: Vec<String>,
    /// A record could not be read, so that "no holders" would be a guess. Such a part attests nothing.
    #[serde(default)]
    pub unknown: bool,
}

impl InUse {
    /// Whether the statement is "nothing of this vendor is in use".
    #[must_use]
    pub const fn is_idle(&self) -> bool {
        self.device_plugin == 0 && self.dra == 0 && !self.unknown
    }
}

/// Geometry as read back from the host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LayoutReport {
    /// GPUs with MIG mode on.
    #[serde(default)]
    #[schemars(range(min = 0, max = 1024))]
    pub mig_enabled_gpus: i32,
    /// MIG instances per GPU minor number, sorted. GPUs without instances are absent. At most 16 GPUs.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 16))]
    pub mig: BTreeMap<String, Vec<MigProfileCount>>,
    /// Logical NeuronCore setting in force, 1 or 2. Neuron only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 2))]
    pub logical_neuron_core: Option<i32>,
    /// MIG profiles that the driver offers, one entry for each kind of board, as the node's shaper read them. At most 2 kinds;
    /// empty without a shaper.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 2))]
    pub boards: Vec<Board>,
    /// The boards' tables are known on the node, and this report had no room for them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub boards_left_out: bool,
    /// A layout order lies on the node: a shaper there carries it out at every boot, until it is withdrawn.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ordered: bool,
    /// Where the shaper stands with the ordered layout; absent without a shaper.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shaping: Option<Shaping>,
}

/// What the node's shaper says about the layout it was ordered to make.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Shaping {
    /// Where it stands.
    pub outcome: ShapingOutcome,
    /// What was found, in the shaper's or the driver's words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub message: Option<String>,
}

/// Where a shaper stands.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
pub enum ShapingOutcome {
    /// No layout was ordered: the geometry is left as it is.
    Idle,
    /// The ordered layout is in force, verified in this boot.
    InForce,
    /// Not decided yet: the order has not been looked at in this boot, or the change is under way.
    Working,
    /// The geometry differs, and an operand (or a process) holds the devices. Nothing was changed.
    Busy,
    /// The board cannot have this layout. Nothing was changed.
    Infeasible,
    /// A mode change waits for a GPU reset.
    ResetRequired,
    /// A mode change waits for the host to restart.
    RebootRequired,
    /// The driver refused; the former geometry was restored where it could be.
    Failed,
}
