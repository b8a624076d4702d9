//! `AcceleratorNode`.

use std::collections::BTreeSet;

use freehold_core::blocker::Reason as BlockReason;
use freehold_core::intent::{Layout, MigLayout};
use freehold_core::report::{MigProfileCount, NodeReport};
use freehold_core::tenure::Step;
use freehold_core::vendor::{Owner, Vendor};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

/// The conversation about one node: the controller orders through the spec, the node's agent answers in `status.report`, the
/// controller tells people in the rest of the status. Named after the Node and owned by it.
#[expect(
    clippy::duplicated_attributes,
    reason = "each column has its own name, type and path"
)]
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "freehold.dev",
    version = "v1alpha1",
    kind = "AcceleratorNode",
    plural = "acceleratornodes",
    singular = "acceleratornode",
    shortname = "an",
    category = "freehold",
    status = "AcceleratorNodeStatus",
    derive = "PartialEq",
    printcolumn(
        name = "NVIDIA",
        type_ = "string",
        json_path = ".status.tenures.nvidia.owner"
    ),
    printcolumn(
        name = "Step",
        type_ = "string",
        json_path = ".status.tenures.nvidia.step"
    ),
    printcolumn(
        name = "Neuron",
        type_ = "string",
        json_path = ".status.tenures.neuron.owner"
    ),
    printcolumn(
        name = "Step ",
        type_ = "string",
        json_path = ".status.tenures.neuron.step"
    ),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status"
    ),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].reason"
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    ),
    printcolumn(
        name = "Message",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].message",
        priority = 1
    )
)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AcceleratorNodeSpec {
    /// UID of the Node that this object was made for.
    #[serde(rename = "nodeUID")]
    #[schemars(length(min = 1, max = 64))]
    pub node_uid: String,
    /// Orders about NVIDIA devices; absent when no cohort concerns them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nvidia: Option<VendorSpec>,
    /// Orders about Neuron devices; absent when no cohort concerns them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub neuron: Option<VendorSpec>,
}

impl AcceleratorNodeSpec {
    /// One vendor's orders.
    #[must_use]
    pub const fn vendor(&self, vendor: Vendor) -> Option<&VendorSpec> {
        match vendor {
            Vendor::Nvidia => self.nvidia.as_ref(),
            Vendor::Neuron => self.neuron.as_ref(),
        }
    }
}

/// Orders about one vendor's devices.
#[derive(KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[x_kube(validation = Rule::new("self.term >= oldSelf.term").message("term only grows"))]
pub struct VendorSpec {
    /// Cohort concerned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub cohort: Option<String>,
    /// Owner word to put in force on the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<Owner>,
    /// Term of the tenure; only grows. A report answers exactly one term.
    #[schemars(range(min = 1))]
    pub term: i64,
    /// Geometry to make.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layout: Option<LayoutSpec>,
    /// Cohort under which the DRA driver last owned the node: where it goes back to should a prepared claim turn up, since
    /// only that driver can unprepare it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub dra_cohort: Option<String>,
}

impl VendorSpec {
    /// The term that a new object begins with. It asks who is there, and orders nothing.
    pub const FIRST_TERM: i64 = 1;
}

/// Geometry to make.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LayoutSpec {
    /// MIG instances.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub mig: Vec<MigLayoutSpec>,
    /// Logical NeuronCore setting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 2))]
    pub logical_neuron_core: Option<i32>,
}

impl LayoutSpec {
    /// The layout as decisions know it; `None` when nothing is ordered.
    #[must_use]
    pub fn to_layout(&self) -> Option<Layout> {
        if let Some(lnc) = self.logical_neuron_core {
            return u8::try_from(lnc).ok().map(Layout::LogicalNeuronCore);
        }
        let layouts: Vec<MigLayout> = self
            .mig
            .iter()
            .map(|layout| MigLayout {
                // `All`, or anything that names no number, is every GPU.
                gpus: Some(
                    layout
                        .gpus
                        .split(',')
                        .filter_map(|gpu| gpu.parse().ok())
                        .collect::<BTreeSet<u32>>(),
                )
                .filter(|gpus| !gpus.is_empty()),
                instances: layout.instances.clone(),
            })
            .collect();
        (!layouts.is_empty()).then_some(Layout::Mig(layouts))
    }
}

impl From<&Layout> for LayoutSpec {
    fn from(layout: &Layout) -> Self {
        match layout {
            Layout::LogicalNeuronCore(lnc) => Self {
                mig: Vec::new(),
                logical_neuron_core: Some(i32::from(*lnc)),
            },
            Layout::Mig(layouts) => Self {
                mig: layouts
                    .iter()
                    .map(|layout| MigLayoutSpec {
                        gpus: layout.gpus.as_ref().map_or_else(
                            || "All".to_owned(),
                            |gpus| {
                                gpus.iter()
                                    .map(ToString::to_string)
                                    .collect::<Vec<_>>()
                                    .join(",")
                            },
                        ),
                        instances: layout.instances.clone(),
                    })
                    .collect(),
                logical_neuron_core: None,
            },
        }
    }
}

/// MIG instances for some GPUs.
#[derive(KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MigLayoutSpec {
    /// `All`, or minor numbers such as `0,1,6`.
    #[schemars(length(min = 1, max = 128))]
    pub gpus: String,
    /// Instances per GPU.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub instances: Vec<MigProfileCount>,
}

/// What is known about the node.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AcceleratorNodeStatus {
    /// The agent's statement. Only the agent of this node may write it, and nothing else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report: Option<NodeReport>,
    /// Where each vendor's tenure stands.
    #[serde(default)]
    pub tenures: Tenures,
    /// `Ready`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 4))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
}

/// Tenures by vendor.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Tenures {
    /// NVIDIA's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nvidia: Option<TenureStatus>,
    /// Neuron's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub neuron: Option<TenureStatus>,
}

impl Tenures {
    /// One vendor's tenure.
    #[must_use]
    pub const fn vendor(&self, vendor: Vendor) -> Option<&TenureStatus> {
        match vendor {
            Vendor::Nvidia => self.nvidia.as_ref(),
            Vendor::Neuron => self.neuron.as_ref(),
        }
    }

    /// One vendor's tenure, to set it.
    pub const fn vendor_mut(&mut self, vendor: Vendor) -> &mut Option<TenureStatus> {
        match vendor {
            Vendor::Nvidia => &mut self.nvidia,
            Vendor::Neuron => &mut self.neuron,
        }
    }
}

/// Where one vendor's tenure stands.
#[derive(KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TenureStatus {
    /// Cohort concerned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub cohort: Option<String>,
    /// Owner whose labels the node carries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<Owner>,
    /// Step.
    pub step: Step,
    /// Since when the step, or its blocker, is what it is.
    pub since: Time,
    /// Why it does not go on, or why the node is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<BlockReason>,
    /// What was found and expected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    pub message: Option<String>,
    /// What a person does next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    pub next_step: Option<String>,
}

#[cfg(test)]
mod tests {
    use freehold_core::intent::{Layout, MigLayout};
    use freehold_core::report::MigProfileCount;

    use super::LayoutSpec;

    #[test]
    fn a_layout_survives_the_way_through_the_api() {
        let seven = vec![MigProfileCount {
            profile: "1g.10gb".into(),
            count: 7,
        }];
        for layout in [
            Layout::LogicalNeuronCore(1),
            Layout::Mig(vec![
                MigLayout {
                    gpus: None,
                    instances: seven.clone(),
                },
                MigLayout {
                    gpus: Some([0, 6].into()),
                    instances: seven,
                },
            ]),
        ] {
            assert_eq!(LayoutSpec::from(&layout).to_layout(), Some(layout));
        }
        assert_eq!(LayoutSpec::default().to_layout(), None);
    }
}
