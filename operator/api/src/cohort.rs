//! A cohort.

use std::collections::BTreeMap;

use freehold_core::vendor::{Owner, Vendor};
use k8s_openapi::api::core::v1::{ResourceRequirements, Toleration};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Neuron, Nvidia};

/// A named set of nodes of one vendor with one owner and one configuration.
#[derive(KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[x_kube(
    validation = Rule::new("self.vendor == 'Neuron' || !has(self.neuron)")
        .message("neuron: settings of the other vendor; this cohort's vendor is NVIDIA: remove 'neuron', or set vendor: Neuron"),
    validation = Rule::new("self.vendor == 'NVIDIA' || !has(self.nvidia)")
        .message("nvidia: settings of the other vendor; this cohort's vendor is Neuron: remove 'nvidia', or set vendor: NVIDIA"),
    validation = Rule::new("self.owner == 'DevicePlugin' || !has(self.nvidia) || !has(self.nvidia.devicePlugin)")
        .message("nvidia.devicePlugin has no effect while owner is DRA: remove it, or set owner: DevicePlugin"),
    validation = Rule::new("self.owner == 'DRA' || !has(self.nvidia) || !has(self.nvidia.dra)")
        .message("nvidia.dra has no effect while owner is DevicePlugin: remove it, or set owner: DRA"),
    validation = Rule::new("self.owner == 'DevicePlugin' || !has(self.nvidia) || !has(self.nvidia.runtimeClassName)")
        .message("nvidia.runtimeClassName has no effect while owner is DRA (the DRA driver injects devices through CDI): remove it, or set owner: DevicePlugin"),
    validation = Rule::new("self.owner == 'DRA' || !has(self.nvidia) || !has(self.nvidia.mig) || (has(self.nvidia.devicePlugin) && has(self.nvidia.devicePlugin.migStrategy) && self.nvidia.devicePlugin.migStrategy != 'None')")
        .message("nvidia.mig with migStrategy None would make instances that nobody hands out: set nvidia.devicePlugin.migStrategy to Single or Mixed, or remove nvidia.mig"),
    validation = Rule::new("!has(self.nvidia) || !has(self.nvidia.mig) || !has(self.nvidia.dra) || !has(self.nvidia.dra.featureGates) || !('DynamicMIG' in self.nvidia.dra.featureGates) || !self.nvidia.dra.featureGates['DynamicMIG']")
        .message("nvidia.mig.layouts and the feature gate DynamicMIG exclude each other: the driver would destroy the instances that the layout makes; remove one of them"),
    validation = Rule::new("!has(self.nvidia) || !has(self.nvidia.mig) || !has(self.nvidia.devicePlugin) || !has(self.nvidia.devicePlugin.migStrategy) || self.nvidia.devicePlugin.migStrategy != 'Single' || (self.nvidia.mig.layouts.all(l, size(l.instances) == 1) && self.nvidia.mig.layouts.all(l, self.nvidia.mig.layouts[0].instances.all(p, p in l.instances)))")
        .message("migStrategy Single needs one uniform MIG type on the node: name exactly one and the same profile in every layout, or set migStrategy: Mixed")
)]
pub struct Cohort {
    /// Name; the value of the cohort label on its nodes and part of its DaemonSets' names.
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(
        validation = Rule::new("size(self) <= 63")
            .message("name must have at most 63 characters: it becomes the value of a node label; shorten it"),
        validation = Rule::new("self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')")
            .message("name must be a DNS label (lower-case letters, digits and '-', starting and ending with a letter or digit), e.g. h100-dra")
    )]
    pub name: String,

    /// Whose devices.
    pub vendor: Vendor,

    /// Who hands them out on these nodes.
    pub owner: Owner,

    /// Which nodes.
    pub node_selector: NodeSelector,

    /// Taints that the operand tolerates, beyond the vendor's own, Freehold's fences and `CriticalAddonsOnly`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    #[x_kube(
        validation = Rule::new("self.all(t, !has(t.effect) || t.effect in ['', 'NoSchedule', 'PreferNoSchedule', 'NoExecute'])")
            .message("tolerations[].effect must be NoSchedule, PreferNoSchedule or NoExecute, or absent for all of them"),
        validation = Rule::new("self.all(t, !has(t.operator) || t.operator in ['', 'Equal', 'Exists'])")
            .message("tolerations[].operator must be Equal or Exists"),
        validation = Rule::new("self.all(t, !has(t.operator) || t.operator != 'Exists' || !has(t.value) || t.value == '')")
            .message("tolerations[].value has no meaning with operator Exists: remove it, or set operator: Equal"),
        validation = Rule::new("self.all(t, (has(t.operator) && !(t.operator in ['', 'Equal'])) || (has(t.key) && t.key != ''))")
            .message("tolerations[].key must be set with operator Equal, the default; to tolerate every taint set operator: Exists"),
        validation = Rule::new("self.all(t, !has(t.tolerationSeconds) || (has(t.effect) && t.effect == 'NoExecute'))")
            .message("tolerations[].tolerationSeconds needs effect: NoExecute, the only one it applies to")
    )]
    pub tolerations: Vec<Toleration>,

    /// Compute resources of the operand's main container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("!has(self.claims) || size(self.claims) == 0")
        .message("resources.claims must be absent: an operand hands devices out and cannot claim any"))]
    pub resources: Option<ResourceRequirements>,

    /// Image of the operand instead of the catalogue's, with a tag or a digest: `registry.example.com/k8s-device-plugin@sha256:…`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    #[x_kube(validation = Rule::new("self.matches('^[^\\\\s@]+(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}|@sha256:[a-f0-9]{64})$')")
        .message("image must end in a tag or a digest, e.g. registry.example.com/nvidia/k8s-device-plugin:v0.20.0 or …@sha256:<64 hex digits>: an image without either changes by itself"))]
    pub image: Option<String>,

    /// Secrets in the operand namespace to pull the image with.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8), inner(length(min = 1, max = 253)))]
    #[x_kube(validation = Rule::new("self.all(s, s.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$'))")
        .message("imagePullSecrets must be names of Secrets (lower-case letters, digits, '-' and '.')"))]
    pub image_pull_secrets: Vec<String>,

    /// The kubelet's root directory on these nodes, e.g. `/var/lib/k0s/kubelet`. The device-plugin directory is not affected: the
    /// kubelet fixes it at `/var/lib/kubelet/device-plugins`.
    #[serde(default = "default_kubelet_root")]
    #[schemars(length(max = 253))]
    #[x_kube(validation = Rule::new("self.matches('^(/[A-Za-z0-9._-]+)+$') && !self.contains('/../') && !self.endsWith('/..') && !self.contains('/./') && !self.endsWith('/.')")
        .message("kubeletRootDir must be an absolute path without '.', '..' or a trailing slash, e.g. /var/lib/kubelet"))]
    pub kubelet_root_dir: String,

    /// NVIDIA settings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nvidia: Option<Nvidia>,

    /// Neuron settings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub neuron: Option<Neuron>,

    /// This cohort's own pace, within the cluster's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollout: Option<CohortRollout>,
}

fn default_kubelet_root() -> String {
    "/var/lib/kubelet".into()
}

/// A cohort's own pace.
#[derive(KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CohortRollout {
    /// Nodes of this cohort that may be in handover at once: a number of at least 1, or a percentage such as `10%`; the cluster's
    /// budget applies as well. To stop handovers set `rollout.paused`.
    // Schema keywords rather than a rule: the API server reckons with 3 MB for an int-or-string, so that a regular expression over
    // the value in each of 32 cohorts is beyond its cost budget.
    #[schemars(extend("minimum" = 1, "pattern" = "^([1-9][0-9]?|100)%$"))]
    pub max_unavailable: IntOrString,
}

/// Which nodes: every label and every expression must match.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[x_kube(
    validation = Rule::new("(has(self.matchLabels) && size(self.matchLabels) > 0) || (has(self.matchExpressions) && size(self.matchExpressions) > 0)")
        .message("nodeSelector must name at least one label: an empty selector would claim every node, future ones included; e.g. matchLabels: {pool: a}")
)]
pub struct NodeSelector {
    /// Labels that a node must carry with these values.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 16), extend("additionalProperties" = {"type": "string", "maxLength": 253}))]
    #[x_kube(
        validation = Rule::new("self.all(k, size(self[k]) <= 63)")
            .message("matchLabels values must have at most 63 characters: no node can carry a longer label value (feature discovery drops such labels); select by another label"),
        validation = Rule::new("self.all(k, k.matches('^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$'))")
            .message("matchLabels must be keyed by label keys: an optional DNS prefix and '/', then at most 63 letters, digits, '-', '_' or '.'"),
        validation = Rule::new("self.all(k, size(self[k]) > 63 || self[k].matches('^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$'))")
            .message("matchLabels values must be letters, digits, '-', '_' or '.', starting and ending with a letter or digit: no node can carry another label value"),
        validation = Rule::new("self.all(k, !k.startsWith('freehold.'))")
            .message("matchLabels must not use Freehold's own labels: they are what the selector decides")
    )]
    pub match_labels: BTreeMap<String, String>,
    /// Expressions that must hold.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub match_expressions: Vec<NodeSelectorRequirement>,
}

/// One expression over a label.
#[derive(KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[x_kube(
    validation = Rule::new("self.operator in ['In', 'NotIn'] ? (has(self.values) && size(self.values) > 0) : (!has(self.values) || size(self.values) == 0)")
        .message("values must name at least one value with In and NotIn, and none with Exists and DoesNotExist")
)]
pub struct NodeSelectorRequirement {
    /// Label key.
    #[schemars(length(min = 1, max = 317))]
    #[x_kube(
        validation = Rule::new("self.matches('^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$')")
            .message("key must be a label key: an optional DNS prefix and '/', then at most 63 letters, digits, '-', '_' or '.'"),
        validation = Rule::new("!self.startsWith('freehold.')")
            .message("key must not be one of Freehold's own labels: they are what the selector decides")
    )]
    pub key: String,
    /// How the label is compared.
    pub operator: SelectorOperator,
    /// Values for `In` and `NotIn`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    // 120 rather than 253: what the regular expression may cost grows with it, and 64 is enough to say what is wrong.
    #[schemars(length(max = 32), inner(length(max = 120)))]
    #[x_kube(
        validation = Rule::new("self.all(v, size(v) <= 63)")
            .message("values must have at most 63 characters each: no node can carry a longer label value"),
        validation = Rule::new("self.all(v, size(v) > 63 || v.matches('^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$'))")
            .message("values must be letters, digits, '-', '_' or '.', starting and ending with a letter or digit: no node can carry another label value")
    )]
    pub values: Vec<String>,
}

/// How a label is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum SelectorOperator {
    /// The label has one of the values.
    In,
    /// The label is absent or has none of the values.
    NotIn,
    /// The label is there.
    Exists,
    /// The label is absent.
    DoesNotExist,
}
