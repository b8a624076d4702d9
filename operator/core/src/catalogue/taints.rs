//! Taints: what operands tolerate by default, and which taints never keep a DaemonSet's pod away for long.

use crate::intent::{Taint, Toleration};
use crate::vendor::Vendor;

/// A toleration with `Exists`, as every operand carries it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DefaultToleration {
    /// Taint key.
    pub key: &'static str,
    /// Value; `None` is `Exists`.
    pub value: Option<&'static str>,
    /// Effect; `None` is every effect.
    pub effect: Option<&'static str>,
    /// Vendors whose operands carry it.
    pub vendors: &'static [Vendor],
    /// Why, and where from.
    pub source: &'static str,
}

/// What operands tolerate beside Freehold's fences and the cohort's own tolerations.
pub const OPERAND_TOLERATIONS: &[DefaultToleration] = &[
    DefaultToleration {
        key: "CriticalAddonsOnly",
        value: None,
        effect: None,
        vendors: &Vendor::ALL,
        source: "charts of the NVIDIA device plugin 0.20.0 and of Neuron 1.10.0",
    },
    DefaultToleration {
        key: "nvidia.com/gpu",
        value: None,
        effect: Some("NoSchedule"),
        vendors: &[Vendor::Nvidia],
        source: "charts of the NVIDIA device plugin 0.20.0 and DRA driver 0.5.0",
    },
    DefaultToleration {
        key: "aws.amazon.com/neuron",
        value: None,
        effect: Some("NoSchedule"),
        vendors: &[Vendor::Neuron],
        source: "neuron-helm-chart 1.10.0",
    },
    DefaultToleration {
        key: "sagemaker.amazonaws.com/node-health-status",
        value: Some("Unschedulable"),
        effect: Some("NoSchedule"),
        vendors: &[Vendor::Neuron],
        source: "neuron-helm-chart 1.10.0 (SageMaker HyperPod)",
    },
];

/// Taints that are not held against a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IgnoredTaint {
    /// What the key begins with.
    pub prefix: &'static str,
    /// Why it may be ignored.
    pub reason: &'static str,
}

/// Taints that come and go by themselves.
pub const IGNORED_TAINTS: &[IgnoredTaint] = &[
    IgnoredTaint {
        prefix: "node.kubernetes.io/",
        reason: "the DaemonSet controller tolerates these (not-ready, unreachable, pressure, unschedulable) for every pod of a DaemonSet; network-unavailable goes when the network is up",
    },
    IgnoredTaint {
        prefix: "node.cloudprovider.kubernetes.io/",
        reason: "the cloud controller removes `uninitialized` when it has set the node up, and `shutdown` nodes are going",
    },
    IgnoredTaint {
        prefix: "karpenter.sh/",
        reason: "`unregistered` goes when the node has joined; `disrupted` nodes are going",
    },
    IgnoredTaint {
        prefix: "ToBeDeletedByClusterAutoscaler",
        reason: "the node is going",
    },
    IgnoredTaint {
        prefix: "freehold.dev/",
        reason: "our own fences: every operand tolerates them",
    },
];

/// The first taint that keeps the vendor's operand off a node for good, given the cohort's own tolerations.
#[must_use]
pub fn untolerated<'a>(
    vendor: Vendor,
    taints: &'a [Taint],
    tolerations: &[Toleration],
) -> Option<&'a Taint> {
    taints.iter().find(|taint| {
        let keeps_away = matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute");
        let ignored = IGNORED_TAINTS
            .iter()
            .any(|row| taint.key.starts_with(row.prefix));
        let by_default = OPERAND_TOLERATIONS
            .iter()
            .filter(|row| row.vendors.contains(&vendor))
            .any(|row| {
                row.key == taint.key
                    && row.value.is_none_or(|value| value == taint.value)
                    && row.effect.is_none_or(|effect| effect == taint.effect)
            });
        keeps_away
            && !ignored
            && !by_default
            && !tolerations
                .iter()
                .any(|toleration| toleration.tolerates(taint))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names;

    fn taint(key: &str, value: &str, effect: &str) -> Taint {
        Taint {
            key: key.into(),
            value: value.into(),
            effect: effect.into(),
        }
    }

    fn toleration(key: Option<&str>, value: Option<&str>, effect: Option<&str>) -> Toleration {
        Toleration {
            key: key.map(Into::into),
            value: value.map(Into::into),
            effect: effect.map(Into::into),
        }
    }

    #[test]
    fn only_taints_that_stay_and_that_nobody_tolerates_keep_the_operand_away() {
        let team = toleration(Some("team"), Some("ml"), None);
        let everything = toleration(None, None, None);
        for (vendor, given, tolerations, kept_away) in [
            (
                Vendor::Nvidia,
                taint("team", "ml", "NoSchedule"),
                &[][..],
                true,
            ),
            (Vendor::Nvidia, taint("team", "ml", "NoExecute"), &[], true),
            (
                Vendor::Nvidia,
                taint("team", "ml", "PreferNoSchedule"),
                &[],
                false,
            ),
            (
                Vendor::Nvidia,
                taint("team", "ml", "NoSchedule"),
                std::slice::from_ref(&team),
                false,
            ),
            (
                Vendor::Nvidia,
                taint("team", "web", "NoSchedule"),
                std::slice::from_ref(&team),
                true,
            ),
            (
                Vendor::Nvidia,
                taint("anything", "", "NoExecute"),
                std::slice::from_ref(&everything),
                false,
            ),
            (
                Vendor::Nvidia,
                taint("nvidia.com/gpu", "present", "NoSchedule"),
                &[],
                false,
            ),
            (
                Vendor::Nvidia,
                taint("nvidia.com/gpu", "present", "NoExecute"),
                &[],
                true,
            ),
            (
                Vendor::Neuron,
                taint("nvidia.com/gpu", "present", "NoSchedule"),
                &[],
                true,
            ),
            (
                Vendor::Neuron,
                taint("aws.amazon.com/neuron", "", "NoSchedule"),
                &[],
                false,
            ),
            (
                Vendor::Neuron,
                taint(
                    "sagemaker.amazonaws.com/node-health-status",
                    "Unschedulable",
                    "NoSchedule",
                ),
                &[],
                false,
            ),
            (
                Vendor::Neuron,
                taint(
                    "sagemaker.amazonaws.com/node-health-status",
                    "Sick",
                    "NoSchedule",
                ),
                &[],
                true,
            ),
            (
                Vendor::Nvidia,
                taint("node.kubernetes.io/unreachable", "", "NoExecute"),
                &[],
                false,
            ),
            (
                Vendor::Nvidia,
                taint("node.kubernetes.io/unschedulable", "", "NoSchedule"),
                &[],
                false,
            ),
            (
                Vendor::Nvidia,
                taint(&names::fence_taint(Vendor::Neuron), "7", "NoSchedule"),
                &[],
                false,
            ),
            (
                Vendor::Nvidia,
                taint("CriticalAddonsOnly", "true", "NoSchedule"),
                &[],
                false,
            ),
        ] {
            let taints = [given];
            assert_eq!(
                untolerated(vendor, &taints, tolerations).is_some(),
                kept_away,
                "{vendor} {taints:?}"
            );
        }
    }
}
