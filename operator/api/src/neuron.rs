//! Neuron settings of a cohort.

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

/// Neuron settings.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Neuron {
    /// Logical NeuronCore setting of the node, 1 or 2, on Trn2 and Trn3 only; absent leaves it as it is. Under DRA a claim may
    /// override it (see `sizes[].logicalNeuronCore`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("self == 1 || self == 2")
        .message("logicalNeuronCore must be 1 or 2: only these exist; 2 joins two physical cores into one logical core"))]
    pub logical_neuron_core: Option<i32>,
}
