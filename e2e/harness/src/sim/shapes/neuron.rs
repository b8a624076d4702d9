//! Neuron devices.

use std::collections::BTreeMap;

use sha2::{Digest as _, Sha256};

use super::hex;

/// A family of Neuron devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NeuronFamily {
    /// Trainium1.
    Trainium1,
    /// Trainium2.
    Trainium2,
    /// Inferentia2.
    Inferentia2,
}

impl NeuronFamily {
    /// `info/architecture/device_name`.
    #[must_use]
    pub const fn device_name(self) -> &'static str {
        match self {
            Self::Trainium1 => "Trainium1",
            Self::Trainium2 => "Trainium2",
            Self::Inferentia2 => "Inferentia2",
        }
    }

    /// `info/architecture/instance_type`: a family, not an EC2 type.
    #[must_use]
    pub const fn instance_family(self) -> &'static str {
        match self {
            Self::Trainium1 => "Trn1",
            Self::Trainium2 => "Trn2",
            Self::Inferentia2 => "Inf2",
        }
    }

    /// `info/architecture/arch_type`. Inferentia2 and Trainium2 say the same.
    #[must_use]
    pub const fn device_arch(self) -> &'static str {
        match self {
            Self::Trainium1 => "NDv2",
            Self::Trainium2 | Self::Inferentia2 => "NDv3",
        }
    }

    /// `neuron_coreK/info/architecture/arch_type`.
    #[must_use]
    pub const fn core_arch(self) -> &'static str {
        match self {
            Self::Trainium1 | Self::Inferentia2 => "NCv2",
            Self::Trainium2 => "NCv3",
        }
    }

    /// PCI device id (vendor 1d0f).
    #[must_use]
    pub const fn pci_device(self) -> u16 {
        match self {
            Self::Trainium1 => 0x7164,
            Self::Trainium2 => 0x7364,
            Self::Inferentia2 => 0x7264,
        }
    }

    /// Physical cores per device.
    #[must_use]
    pub const fn cores(self) -> u32 {
        match self {
            Self::Trainium1 | Self::Inferentia2 => 2,
            Self::Trainium2 => 8,
        }
    }

    /// Logical NeuronCore setting that the family starts with: physical cores per logical one.
    #[must_use]
    pub const fn default_lnc(self) -> u32 {
        match self {
            Self::Trainium1 | Self::Inferentia2 => 1,
            Self::Trainium2 => 2,
        }
    }

    /// Whether LNC can be chosen at all.
    #[must_use]
    pub const fn lnc_configurable(self) -> bool {
        match self {
            Self::Trainium1 | Self::Inferentia2 => false,
            Self::Trainium2 => true,
        }
    }

    /// Whether it is a Trainium, whose devices carry grid coordinates in ResourceSlices.
    #[must_use]
    pub const fn trainium(self) -> bool {
        match self {
            Self::Trainium1 | Self::Trainium2 => true,
            Self::Inferentia2 => false,
        }
    }
}

/// A machine's Neuron devices and their driver.
#[derive(Clone, Debug)]
pub struct NeuronHardware {
    /// Family.
    pub family: NeuronFamily,
    /// Number of devices.
    pub devices: u32,
    /// Kernel driver version; `None` when the module is not loaded.
    pub driver: Option<String>,
}

/// EFA paired with each device of a trn2.48xlarge (connected-device-maps-over-efa-for-neuron, `lookup/neuron/trn2.json`).
const TRN2_EFA: [&str; 16] = [
    "0000:c9:00.0",
    "0000:b4:00.0",
    "0000:b3:00.0",
    "0000:ca:00.0",
    "0000:6c:00.0",
    "0000:57:00.0",
    "0000:56:00.0",
    "0000:6d:00.0",
    "0000:98:00.0",
    "0000:83:00.0",
    "0000:82:00.0",
    "0000:99:00.0",
    "0000:f5:00.0",
    "0000:e0:00.0",
    "0000:df:00.0",
    "0000:f6:00.0",
];

/// The same for a trn1.32xlarge, where two devices share an EFA (`lookup/neuron/trn1.json`).
const TRN1_EFA: [&str; 16] = [
    "0000:10:1a.0",
    "0000:10:1a.0",
    "0000:a0:1a.0",
    "0000:a0:1a.0",
    "0000:20:19.0",
    "0000:20:19.0",
    "0000:90:19.0",
    "0000:90:19.0",
    "0000:20:1a.0",
    "0000:20:1a.0",
    "0000:90:1a.0",
    "0000:90:1a.0",
    "0000:10:19.0",
    "0000:10:19.0",
    "0000:a0:19.0",
    "0000:a0:19.0",
];

impl NeuronHardware {
    /// Devices of one family with the kernel driver of SDK 2.32 loaded.
    #[must_use]
    pub fn new(family: NeuronFamily, devices: u32) -> Self {
        Self {
            family,
            devices,
            driver: Some("2.30.2.0".into()),
        }
    }

    /// PCI address of a device. Synthetic: unlike the EFA's, nothing outside the node depends on it.
    #[must_use]
    pub fn bdf(&self, device: u32) -> String {
        format!("0000:{:02x}:00.0", 0x10 + device)
    }

    /// Neighbours of a device.
    #[must_use]
    pub fn neighbours(&self, device: u32) -> Vec<u32> {
        match (self.family.trainium(), self.devices) {
            // A torus of four by four: row wrap and column wrap.
            (true, 16) => {
                let (row, column) = (device / 4, device % 4);
                vec![
                    (device + 12) % 16,
                    row * 4 + (column + 1) % 4,
                    row * 4 + (column + 3) % 4,
                    (device + 4) % 16,
                ]
            }
            // A ring.
            (false, 12) => vec![(device + 11) % 12, (device + 1) % 12],
            _ => Vec::new(),
        }
    }

    fn efa(&self) -> Option<&'static [&'static str; 16]> {
        match (self.family, self.devices) {
            (NeuronFamily::Trainium1, 16) => Some(&TRN1_EFA),
            (NeuronFamily::Trainium2, 16) => Some(&TRN2_EFA),
            (NeuronFamily::Trainium1 | NeuronFamily::Trainium2 | NeuronFamily::Inferentia2, _) => {
                None
            }
        }
    }

    /// `resource.aws.com/devicegroup<size>_id` of a device: for size 1 the EFA's address, else the first 16 hex digits of the
    /// SHA-256 of the group's EFA addresses, deduplicated, sorted and joined by commas. `None` where the type has no map.
    #[must_use]
    pub fn device_group(&self, device: u32, size: usize) -> Option<String> {
        let map = self.efa()?;
        let device = usize::try_from(device).ok()?;
        if size == 1 {
            return map.get(device).map(|efa| (*efa).to_owned());
        }
        let mut members = map.chunks(size).nth(device / size)?.to_vec();
        members.sort_unstable();
        members.dedup();
        hex(&Sha256::digest(members.join(",").as_bytes()))
            .get(..16)
            .map(str::to_owned)
    }
}

/// What NFD and Karpenter write for such a machine.
pub(super) fn labels(hardware: &NeuronHardware) -> BTreeMap<String, String> {
    let name = match hardware.family {
        NeuronFamily::Trainium1 => "trainium",
        NeuronFamily::Trainium2 => "trainium2",
        NeuronFamily::Inferentia2 => "inferentia2",
    };
    BTreeMap::from(
        [
            ("feature.node.kubernetes.io/aws-neuron", "true".to_owned()),
            ("feature.node.kubernetes.io/pci-1d0f.present", "true".into()),
            ("karpenter.k8s.aws/instance-accelerator-name", name.into()),
            (
                "karpenter.k8s.aws/instance-accelerator-manufacturer",
                "aws".into(),
            ),
            (
                "karpenter.k8s.aws/instance-accelerator-count",
                hardware.devices.to_string(),
            ),
        ]
        .map(|(key, value)| (key.to_owned(), value)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn groups(hardware: &NeuronHardware, size: usize) -> Vec<String> {
        let mut ids: Vec<_> = (0..hardware.devices)
            .filter_map(|device| hardware.device_group(device, size))
            .collect();
        ids.dedup();
        ids
    }

    #[test]
    fn trn2_device_groups_are_those_seen_on_hardware() {
        let trn2 = NeuronHardware::new(NeuronFamily::Trainium2, 16);
        assert_eq!(
            groups(&trn2, 4),
            [
                "13713e551cd37c19",
                "671622785349fddf",
                "237e3ef7b968b4d3",
                "b3d6ce1919d29f8f"
            ]
        );
        assert_eq!(groups(&trn2, 8), ["3593812b8066a078", "614e16dab9ba2f1f"]);
        assert_eq!(groups(&trn2, 16), ["821d14afaf11327d"]);
    }

    #[test]
    fn trn1_pairs_of_devices_share_an_efa_and_groups_match_hardware() {
        let trn1 = NeuronHardware::new(NeuronFamily::Trainium1, 16);
        assert_eq!(groups(&trn1, 1).len(), 8);
        assert_eq!(
            trn1.device_group(13, 4).as_deref(),
            Some("178a9e264a26793e")
        );
        assert_eq!(trn1.device_group(8, 8).as_deref(), Some("aa86c05423d6e8cd"));
        assert_eq!(
            trn1.device_group(0, 16).as_deref(),
            Some("fb838249c99a6341")
        );
    }

    #[test]
    fn small_types_have_no_groups_and_neighbours_are_mutual() {
        assert_eq!(
            NeuronHardware::new(NeuronFamily::Trainium2, 1).device_group(0, 4),
            None
        );
        for hardware in [
            NeuronHardware::new(NeuronFamily::Trainium2, 16),
            NeuronHardware::new(NeuronFamily::Inferentia2, 12),
        ] {
            for device in 0..hardware.devices {
                for other in hardware.neighbours(device) {
                    assert!(
                        hardware.neighbours(other).contains(&device),
                        "{device} and {other}"
                    );
                }
            }
        }
    }
}
