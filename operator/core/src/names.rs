//! Every name Freehold puts on Kubernetes objects, in one place.

use crate::vendor::Vendor;

/// Prefix of the labels on nodes. NodeRestriction keeps kubelets from setting keys under it, and an admission policy lets
/// only the controller's service account change them.
pub const NODE_LABEL_PREFIX: &str = "freehold.node-restriction.kubernetes.io/";

/// Field manager of the controller.
pub const CONTROLLER_FIELD_MANAGER: &str = "freehold-controller";
/// Field manager of the agents.
pub const AGENT_FIELD_MANAGER: &str = "freehold-agent";
/// Finalizer on the `AcceleratorCluster`.
pub const FINALIZER: &str = "freehold.dev/teardown";

/// Namespace of the controller.
pub const SYSTEM_NAMESPACE: &str = "freehold-system";
/// Namespace of agents and operands. Vendors' plugins need host paths, so its pod security level is `privileged`; the
/// controller lives elsewhere for that reason.
pub const OPERAND_NAMESPACE: &str = "freehold-operands";
/// The controller's service account, in [`SYSTEM_NAMESPACE`].
pub const CONTROLLER_SERVICE_ACCOUNT: &str = "freehold-controller";
/// The controller's leader election Lease, in [`SYSTEM_NAMESPACE`].
pub const LEASE: &str = "freehold-operator";
/// The agents' service account, in [`OPERAND_NAMESPACE`].
pub const AGENT_SERVICE_ACCOUNT: &str = "freehold-agent";
/// Name of the only `AcceleratorCluster` that may exist.
pub const SINGLETON: &str = "cluster";

/// Kubernetes' label for who keeps an object; on every object that the controller keeps.
pub const MANAGED_BY_LABEL: &str = "app.kubernetes.io/managed-by";
/// Value of [`MANAGED_BY_LABEL`]. It is a hint to look by, never proof: what is ours is told by the owner's UID.
pub const MANAGED_BY: &str = "freehold";
/// Label on operand and agent pods: `operand` or `agent`. The controller watches pods by it.
pub const COMPONENT_LABEL: &str = "freehold.dev/component";
/// Label on operand pods and DaemonSets: `nvidia` or `neuron`.
pub const VENDOR_LABEL: &str = "freehold.dev/vendor";
/// Label on operand pods and DaemonSets: `device-plugin` or `dra`.
pub const OWNER_LABEL: &str = "freehold.dev/owner";
/// Label on operand pods and DaemonSets: the cohort's name.
pub const COHORT_LABEL: &str = "freehold.dev/cohort";
/// Annotation on pod templates: hash of what the operand advertises. A change needs a drained node.
pub const SHAPE_ANNOTATION: &str = "freehold.dev/shape";
/// Annotation on pod templates: hash of the whole template. A change needs a restart.
pub const TEMPLATE_ANNOTATION: &str = "freehold.dev/template";
/// Annotation on every object the controller keeps: hash of what it last wrote, so that equal input means no write.
pub const APPLIED_ANNOTATION: &str = "freehold.dev/applied";

/// Annotation on the `AcceleratorCluster` by which a person confirms a mass change: `<generation>/<nodes>`.
pub const CONFIRM_ANNOTATION: &str = "freehold.dev/confirm-release";

/// Node annotations in which the Neuron scheduler extension, which is part of the device plugin's ownership, books devices and
/// cores. They go stale when the plugin leaves, and the documented remedy is to remove both.
pub const NEURON_USAGE_ANNOTATIONS: [&str; 2] = ["NEURON_DEV_USAGE_MAP", "NEURON_CORE_USAGE_MAP"];

/// Directory on the host that holds locks and owner words.
pub const HOST_STATE_DIR: &str = "/var/lib/freehold";

/// Node label that names the owner: `device-plugin` or `dra`. Operand DaemonSets select on it.
#[must_use]
pub fn owner_label(vendor: Vendor) -> String {
    format!("{NODE_LABEL_PREFIX}{}-owner", vendor.key())
}

/// Node label that names the cohort. Operand DaemonSets select on it.
#[must_use]
pub fn cohort_label(vendor: Vendor) -> String {
    format!("{NODE_LABEL_PREFIX}{}-cohort", vendor.key())
}

/// Node label that keeps the agent on a node while something about it is unfinished, even after it left every cohort.
#[must_use]
pub fn agent_label() -> String {
    format!("{NODE_LABEL_PREFIX}agent")
}

/// Key of the `NoSchedule` taint that fences a node during a handover; its value is the term. Taints are unique by key and
/// effect, hence one key per vendor.
#[must_use]
pub fn fence_taint(vendor: Vendor) -> String {
    format!("freehold.dev/{}-handover", vendor.key())
}
