//! How a vendor's hardware shows: on the PCI bus, which proves it, and in labels, which only hint at it.

use std::collections::BTreeMap;

use super::exclusions::LabelTest;
use crate::vendor::Vendor;

/// PCI vendor ID of NVIDIA.
const PCI_NVIDIA: u32 = 0x10de;
/// PCI vendor ID of Amazon. EFA, ENA and NVMe share it, hence the device IDs below.
const PCI_AMAZON: u32 = 0x1d0f;
/// PCI base and sub-class of a GPU: VGA controller and 3D controller. A board also shows audio, USB and bridge functions, and
/// NVSwitches are bridges.
const GPU_CLASSES: &[u32] = &[0x0300, 0x0302];
/// Device IDs of Neuron devices. Source: aws-neuron-driver 2.24.7.0 (Inf1 to Trn2) and its newest PCI table (Trn3).
const NEURON_DEVICE_IDS: &[u32] = &[
    0x7064, 0x7065, 0x7066, 0x7067, // Inf1
    0x7164, // Trn1
    0x7264, // Inf2
    0x7364, // Trn2
    0x7564, 0x7565, // Trn3
];

/// The vendor of a PCI function, if it is an accelerator of ours, by the numbers in its sysfs files `vendor`, `device` and
/// `class` (24 bits).
#[must_use]
pub fn pci_vendor(vendor: u32, device: u32, class: u32) -> Option<Vendor> {
    match vendor {
        PCI_NVIDIA if GPU_CLASSES.contains(&(class >> 8)) => Some(Vendor::Nvidia),
        PCI_AMAZON if NEURON_DEVICE_IDS.contains(&device) => Some(Vendor::Neuron),
        _ => None,
    }
}

/// A label that hints at a vendor's hardware.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EvidenceLabel {
    /// The hint.
    pub test: LabelTest,
    /// Whose hardware.
    pub vendor: Vendor,
    /// Who sets it.
    pub source: &'static str,
}

const fn hint(test: LabelTest, vendor: Vendor, source: &'static str) -> EvidenceLabel {
    EvidenceLabel {
        test,
        vendor,
        source,
    }
}

const TRUE: &[&str] = &["true"];
const NFD: &str = "Node Feature Discovery, PCI source";
const GFD: &str = "GPU Feature Discovery 0.20.0";
const KARPENTER: &str = "Karpenter (set before the node boots)";

/// Hints. None of them decides: discovery drops labels over 63 characters (k8s-device-plugin 1876), lets them vanish on a
/// restart (796), and people set them by hand. The agent's inventory decides.
pub const EVIDENCE_LABELS: &[EvidenceLabel] = &[
    hint(
        LabelTest::In("feature.node.kubernetes.io/pci-10de.present", TRUE),
        Vendor::Nvidia,
        NFD,
    ),
    hint(
        LabelTest::In("feature.node.kubernetes.io/pci-0302_10de.present", TRUE),
        Vendor::Nvidia,
        NFD,
    ),
    hint(
        LabelTest::In("feature.node.kubernetes.io/pci-0300_10de.present", TRUE),
        Vendor::Nvidia,
        NFD,
    ),
    hint(
        LabelTest::In("nvidia.com/gpu.present", TRUE),
        Vendor::Nvidia,
        "GPU Operator, or a person",
    ),
    hint(
        LabelTest::Exists("nvidia.com/gpu.product"),
        Vendor::Nvidia,
        GFD,
    ),
    hint(
        LabelTest::Exists("nvidia.com/mig.capable"),
        Vendor::Nvidia,
        GFD,
    ),
    hint(
        LabelTest::In("karpenter.k8s.aws/instance-gpu-manufacturer", &["nvidia"]),
        Vendor::Nvidia,
        KARPENTER,
    ),
    hint(
        LabelTest::Exists("cloud.google.com/gke-accelerator"),
        Vendor::Nvidia,
        "GKE",
    ),
    hint(
        LabelTest::In("kubernetes.azure.com/accelerator", &["nvidia"]),
        Vendor::Nvidia,
        "AKS",
    ),
    hint(
        LabelTest::In("feature.node.kubernetes.io/aws-neuron", TRUE),
        Vendor::Neuron,
        "NFD rule of operator-for-ai-chips-on-aws",
    ),
    hint(
        LabelTest::In("neuron.amazonaws.com/present", TRUE),
        Vendor::Neuron,
        "Neuron device plugin, eksctl, or a person",
    ),
    hint(
        LabelTest::In(
            "karpenter.k8s.aws/instance-accelerator-manufacturer",
            &["aws"],
        ),
        Vendor::Neuron,
        KARPENTER,
    ),
];

/// Label by which NVIDIA's MPS control daemon is placed; written by GPU Feature Discovery, or by a person.
pub const MPS_LABEL: &str = "nvidia.com/mps.capable";

/// Well-known label with the instance type.
pub const INSTANCE_TYPE_LABEL: &str = "node.kubernetes.io/instance-type";

/// The first label that hints at this vendor's hardware, as `key=value`.
#[must_use]
pub fn evidence_label(vendor: Vendor, labels: &BTreeMap<String, String>) -> Option<String> {
    let shown = |key: &str| labels.get(key).map(|value| format!("{key}={value}"));
    EVIDENCE_LABELS
        .iter()
        .filter(|row| row.vendor == vendor && row.test.holds(labels))
        .find_map(|row| shown(row.test.key()))
        .or_else(|| match vendor {
            Vendor::Neuron => super::neuron_family(None, Some(labels.get(INSTANCE_TYPE_LABEL)?))
                .and_then(|_| shown(INSTANCE_TYPE_LABEL)),
            Vendor::Nvidia => None,
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_accelerators_count_on_the_bus() {
        for (vendor, device, class, expected) in [
            (0x10de, 0x2330, 0x03_0200, Some(Vendor::Nvidia)), // H100
            (0x10de, 0x1eb8, 0x03_0000, Some(Vendor::Nvidia)), // T4 as a VGA controller
            (0x10de, 0x22a3, 0x06_8000, None),                 // NVSwitch
            (0x10de, 0x0fbb, 0x04_0300, None),                 // its audio function
            (0x1d0f, 0x7364, 0x08_8000, Some(Vendor::Neuron)),
            (0x1d0f, 0x7565, 0x08_8000, Some(Vendor::Neuron)),
            (0x1d0f, 0xefa2, 0x02_0000, None), // EFA
            (0x1d0f, 0xcd01, 0x01_0802, None), // NVMe
            (0x1002, 0x740f, 0x03_8000, None), // AMD
            (0x8086, 0x7364, 0x08_8000, None), // another maker's device of the same number
        ] {
            assert_eq!(
                pci_vendor(vendor, device, class),
                expected,
                "{vendor:04x}:{device:04x} class {class:06x}"
            );
        }
    }

    #[test]
    fn hints_name_the_label_that_gave_them() {
        let node = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
            pairs
                .iter()
                .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
                .collect()
        };
        let mig_only = node(&[("nvidia.com/mig.capable", "true")]);
        assert_eq!(
            evidence_label(Vendor::Nvidia, &mig_only).as_deref(),
            Some("nvidia.com/mig.capable=true")
        );
        assert_eq!(evidence_label(Vendor::Neuron, &mig_only), None);
        let trainium = node(&[("node.kubernetes.io/instance-type", "trn2.48xlarge")]);
        assert_eq!(
            evidence_label(Vendor::Neuron, &trainium).as_deref(),
            Some("node.kubernetes.io/instance-type=trn2.48xlarge")
        );
        assert_eq!(evidence_label(Vendor::Nvidia, &trainium), None);
        assert_eq!(
            evidence_label(
                Vendor::Nvidia,
                &node(&[("nvidia.com/gpu.present", "false")])
            ),
            None
        );
    }
}
