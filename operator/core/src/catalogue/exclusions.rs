//! Nodes that are not ours to own: the provider hands out the devices itself, or no pod of ours can run there.

use std::collections::BTreeMap;

use crate::vendor::Vendor;

/// A test on one node label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LabelTest {
    /// The label has one of these values.
    In(&'static str, &'static [&'static str]),
    /// The label is there.
    Exists(&'static str),
    /// The label is absent or has another value.
    NotIn(&'static str, &'static [&'static str]),
}

impl LabelTest {
    /// The label's key.
    #[must_use]
    pub const fn key(self) -> &'static str {
        match self {
            Self::In(key, _) | Self::Exists(key) | Self::NotIn(key, _) => key,
        }
    }

    /// Whether a node's labels pass.
    #[must_use]
    pub fn holds(self, labels: &BTreeMap<String, String>) -> bool {
        match self {
            Self::In(key, values) => labels
                .get(key)
                .is_some_and(|value| values.contains(&value.as_str())),
            Self::Exists(key) => labels.contains_key(key),
            Self::NotIn(key, values) => labels
                .get(key)
                .is_none_or(|value| !values.contains(&value.as_str())),
        }
    }
}

/// A row: nodes that pass every test are left alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exclusion {
    /// All must hold.
    pub when: &'static [LabelTest],
    /// Vendors whose devices are concerned.
    pub vendors: &'static [Vendor],
    /// Who or what owns such a node, as people call it.
    pub who: &'static str,
    /// Why it is left alone; ends a sentence that begins with the node's name and `who`.
    pub reason: &'static str,
    /// Where the fact comes from.
    pub source: &'static str,
}

const BOTH: &[Vendor] = &Vendor::ALL;
const NVIDIA: &[Vendor] = &[Vendor::Nvidia];
const NEURON: &[Vendor] = &[Vendor::Neuron];

/// Label of every EKS compute type that is not a plain EC2 node.
const EKS_COMPUTE_TYPE: &str = "eks.amazonaws.com/compute-type";

/// The table. Rows that test a single `In` also keep the agent away, see [`exclusion_terms`].
///
/// EKS Auto Mode carries Karpenter's labels too, so its row must come before anything that is ever keyed on those.
pub const EXCLUSIONS: &[Exclusion] = &[
    Exclusion {
        when: &[LabelTest::In(EKS_COMPUTE_TYPE, &["auto"])],
        vendors: BOTH,
        who: "EKS Auto Mode",
        reason: "runs its own device plugins inside the node image (no pod to see), and from Kubernetes 1.36 NVIDIA's DRA driver too",
        source: "EKS user guide, managing NVIDIA and Neuron devices (three generations in circulation during 2026; all agree that Auto Mode manages them itself)",
    },
    Exclusion {
        when: &[LabelTest::In(EKS_COMPUTE_TYPE, &["fargate"])],
        vendors: BOTH,
        who: "AWS Fargate",
        reason: "runs no DaemonSets and has no accelerators",
        source: "EKS user guide, Fargate considerations; neuron-helm-chart 1.10.0 node affinity",
    },
    Exclusion {
        when: &[LabelTest::In(EKS_COMPUTE_TYPE, &["hybrid"])],
        vendors: NEURON,
        who: "EKS Hybrid Nodes",
        reason: "cannot carry Neuron devices: they exist in EC2 only, and AWS's chart excludes hybrid nodes",
        source: "neuron-helm-chart 1.10.0, required node affinity of both operands",
    },
    Exclusion {
        when: &[LabelTest::In("type", &["virtual-kubelet"])],
        vendors: BOTH,
        who: "a virtual kubelet",
        reason: "is no machine: neither operand nor agent can run there",
        source: "virtual-kubelet, node setup (label `type`)",
    },
    Exclusion {
        when: &[LabelTest::In("kubernetes.io/os", &["windows"])],
        vendors: BOTH,
        who: "Windows",
        reason: "runs no Linux containers, and every operand is one",
        source: "Kubernetes well-known labels; images of the operands",
    },
    Exclusion {
        when: &[
            LabelTest::Exists("cloud.google.com/gke-accelerator"),
            LabelTest::NotIn("gke-no-default-nvidia-gpu-device-plugin", &["true"]),
        ],
        vendors: NVIDIA,
        who: "GKE's managed device plugin",
        reason: "hands out the GPUs of this node; to own it, create the node pool with the label gke-no-default-nvidia-gpu-device-plugin=true",
        source: "NVIDIA AI Cluster Runtime, GKE GPU setup (device-plugin ownership); GKE's own DaemonSet selects on the first label",
    },
    Exclusion {
        when: &[LabelTest::In(
            "kubernetes.azure.com/dcgm-exporter",
            &["enabled"],
        )],
        vendors: NVIDIA,
        who: "AKS managed GPU nodes",
        reason: "run NVIDIA's device plugin as a service of the host (no pod to see); to own the node, create the pool with managementMode Unmanaged",
        source: "AKS documentation, fully managed GPU node pools (preview). The label marks the DCGM exporter, which comes with the managed stack alone; AKS documents no label for the plugin itself",
    },
];

/// The first row that concerns a node, if any.
#[must_use]
pub fn exclusion(vendor: Vendor, labels: &BTreeMap<String, String>) -> Option<&'static Exclusion> {
    EXCLUSIONS
        .iter()
        .find(|row| row.vendors.contains(&vendor) && row.when.iter().all(|test| test.holds(labels)))
}

/// Label keys and the values that exclude a node, for `NotIn` expressions of a node affinity.
///
/// Only rows that a conjunction of such expressions can say. On the nodes of the other rows the agent runs, finds no object
/// of its own to answer, and does nothing.
#[must_use]
pub fn exclusion_terms(vendor: Vendor) -> BTreeMap<&'static str, Vec<&'static str>> {
    let mut terms: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for row in EXCLUSIONS
        .iter()
        .filter(|row| row.vendors.contains(&vendor))
    {
        if let [LabelTest::In(key, values)] = row.when {
            terms.entry(key).or_default().extend(values.iter());
        }
    }
    terms
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect()
    }

    #[test]
    fn nodes_are_excluded_by_what_their_labels_say_about_their_provider() {
        let auto = &[
            ("eks.amazonaws.com/compute-type", "auto"),
            ("karpenter.sh/nodepool", "gpus"),
        ];
        for (vendor, given, who) in [
            (Vendor::Nvidia, &auto[..], Some("EKS Auto Mode")),
            (Vendor::Neuron, auto, Some("EKS Auto Mode")),
            (
                Vendor::Neuron,
                &[("eks.amazonaws.com/compute-type", "fargate")],
                Some("AWS Fargate"),
            ),
            (
                Vendor::Neuron,
                &[("eks.amazonaws.com/compute-type", "hybrid")],
                Some("EKS Hybrid Nodes"),
            ),
            (
                Vendor::Nvidia,
                &[("eks.amazonaws.com/compute-type", "hybrid")],
                None,
            ),
            (
                Vendor::Nvidia,
                &[("type", "virtual-kubelet")],
                Some("a virtual kubelet"),
            ),
            (
                Vendor::Nvidia,
                &[("kubernetes.io/os", "windows")],
                Some("Windows"),
            ),
            (Vendor::Nvidia, &[("kubernetes.io/os", "linux")], None),
            (
                Vendor::Nvidia,
                &[("cloud.google.com/gke-accelerator", "nvidia-l4")],
                Some("GKE's managed device plugin"),
            ),
            (
                Vendor::Nvidia,
                &[
                    ("cloud.google.com/gke-accelerator", "nvidia-l4"),
                    ("gke-no-default-nvidia-gpu-device-plugin", "true"),
                ],
                None,
            ),
            (
                Vendor::Nvidia,
                &[("gke-no-default-nvidia-gpu-device-plugin", "false")],
                None,
            ),
            (
                Vendor::Nvidia,
                &[("kubernetes.azure.com/dcgm-exporter", "enabled")],
                Some("AKS managed GPU nodes"),
            ),
            (Vendor::Nvidia, &[("karpenter.sh/nodepool", "gpus")], None),
            (Vendor::Nvidia, &[], None),
        ] {
            assert_eq!(
                exclusion(vendor, &labels(given)).map(|row| row.who),
                who,
                "{vendor} {given:?}"
            );
        }
    }

    #[test]
    fn affinity_terms_keep_the_agent_off_hybrid_nodes_for_neuron_only() {
        let nvidia = exclusion_terms(Vendor::Nvidia);
        assert_eq!(
            nvidia.get("eks.amazonaws.com/compute-type"),
            Some(&vec!["auto", "fargate"])
        );
        let neuron = exclusion_terms(Vendor::Neuron);
        assert_eq!(
            neuron.get("eks.amazonaws.com/compute-type"),
            Some(&vec!["auto", "fargate", "hybrid"])
        );
        assert!(
            !nvidia.contains_key("cloud.google.com/gke-accelerator"),
            "a NotIn cannot say this row"
        );
    }

    #[test]
    fn every_row_says_why_and_where_from() {
        for row in EXCLUSIONS {
            assert!(!row.when.is_empty() && !row.vendors.is_empty(), "{row:?}");
            assert!(
                !row.who.is_empty() && !row.reason.is_empty() && !row.source.is_empty(),
                "{row:?}"
            );
        }
    }
}
