//! Kinds of machines to simulate, as data: what the hardware is, what the node's labels say, and what a provider's node image
//! already advertises by itself.

mod mig;
mod neuron;
mod nvidia;

use std::collections::BTreeMap;

use sha2::{Digest as _, Sha256};

pub use mig::{MigInstance, MigProfile, profiles_of};
pub use neuron::{NeuronFamily, NeuronHardware};
pub use nvidia::{Board, Gpu, NvidiaHardware};

/// Kubelet version that nodes report unless told otherwise: the version of the control plane under test.
pub const KUBELET_VERSION: &str = "v1.36.3";

/// One machine.
#[derive(Clone, Debug)]
pub struct Shape {
    /// Short name for messages.
    pub key: &'static str,
    /// EC2 instance type, as DMI and the node label say it.
    pub instance_type: String,
    /// Kubelet version, with the leading `v`.
    pub kubelet_version: String,
    /// Labels besides those that every node carries.
    pub labels: BTreeMap<String, String>,
    /// Virtual CPUs.
    pub cpus: u32,
    /// Memory in GiB.
    pub memory_gib: u32,
    /// NVIDIA GPUs.
    pub nvidia: Option<NvidiaHardware>,
    /// Neuron devices.
    pub neuron: Option<NeuronHardware>,
    /// Extended resources that the node image's built-in plugin advertises, without any pod (EKS Auto Mode).
    pub built_in: BTreeMap<String, Vec<String>>,
    /// Where the kubelet keeps its state on the host.
    pub kubelet_root: String,
}

impl Shape {
    fn new(key: &'static str, instance_type: &str, cpus: u32, memory_gib: u32) -> Self {
        Self {
            key,
            instance_type: instance_type.into(),
            kubelet_version: KUBELET_VERSION.into(),
            labels: BTreeMap::new(),
            cpus,
            memory_gib,
            nvidia: None,
            neuron: None,
            built_in: BTreeMap::new(),
            kubelet_root: "/var/lib/kubelet".into(),
        }
    }

    /// `p5.48xlarge`: 8 × H100 80 GB, driver loaded, MIG off.
    #[must_use]
    pub fn h100() -> Self {
        Self::gpu(
            "h100x8",
            "p5.48xlarge",
            192,
            2048,
            NvidiaHardware::new(Board::H100, 8),
        )
    }

    /// `p4d.24xlarge`: 8 × A100 40 GB, MIG on everywhere. GPUs 0–3 are cut into 7 × 1g.5gb, 4–7 into 3g.20gb, 2g.10gb and
    /// two 1g.5gb.
    #[must_use]
    pub fn a100_mig() -> Self {
        let mut hardware = NvidiaHardware::new(Board::A100_40, 8);
        for gpu in &mut hardware.gpus {
            gpu.mig_enabled = true;
            gpu.mig = if gpu.minor < 4 {
                mig::instances(
                    Board::A100_40,
                    &[
                        ("1g.5gb", 0),
                        ("1g.5gb", 1),
                        ("1g.5gb", 2),
                        ("1g.5gb", 3),
                        ("1g.5gb", 4),
                        ("1g.5gb", 5),
                        ("1g.5gb", 6),
                    ],
                )
            } else {
                mig::instances(
                    Board::A100_40,
                    &[("3g.20gb", 4), ("2g.10gb", 0), ("1g.5gb", 2), ("1g.5gb", 3)],
                )
            };
        }
        Self::gpu("a100x8-mig", "p4d.24xlarge", 96, 1152, hardware)
    }

    /// `p4d.24xlarge` with MIG off.
    #[must_use]
    pub fn a100() -> Self {
        Self::gpu(
            "a100x8",
            "p4d.24xlarge",
            96,
            1152,
            NvidiaHardware::new(Board::A100_40, 8),
        )
    }

    /// `p5.48xlarge` whose driver was never installed: the GPUs are on the PCI bus and nothing serves them.
    #[must_use]
    pub fn h100_without_driver() -> Self {
        let mut shape = Self::h100();
        shape.key = "h100x8-no-driver";
        if let Some(hardware) = &mut shape.nvidia {
            hardware.driver = None;
        }
        shape
    }

    /// `trn2.48xlarge`: 16 Trainium2 devices, 128 physical and 64 logical cores at LNC 2.
    #[must_use]
    pub fn trn2_48xlarge() -> Self {
        Self::trainium(
            "trn2.48xlarge",
            192,
            2048,
            NeuronHardware::new(NeuronFamily::Trainium2, 16),
        )
    }

    /// `trn2.3xlarge`: **one** Trainium2 device.
    #[must_use]
    pub fn trn2_3xlarge() -> Self {
        Self::trainium(
            "trn2.3xlarge",
            12,
            128,
            NeuronHardware::new(NeuronFamily::Trainium2, 1),
        )
    }

    /// `trn1.2xlarge`: one Trainium1 device.
    #[must_use]
    pub fn trn1_2xlarge() -> Self {
        Self::trainium(
            "trn1.2xlarge",
            8,
            32,
            NeuronHardware::new(NeuronFamily::Trainium1, 1),
        )
    }

    /// `trn1.32xlarge`: 16 Trainium1 devices, of which pairs share an EFA.
    #[must_use]
    pub fn trn1_32xlarge() -> Self {
        Self::trainium(
            "trn1.32xlarge",
            128,
            512,
            NeuronHardware::new(NeuronFamily::Trainium1, 16),
        )
    }

    /// `inf2.48xlarge`: 12 Inferentia2 devices in a ring.
    #[must_use]
    pub fn inf2_48xlarge() -> Self {
        Self::trainium(
            "inf2.48xlarge",
            192,
            768,
            NeuronHardware::new(NeuronFamily::Inferentia2, 12),
        )
    }

    /// `m7i.4xlarge`: no accelerator.
    #[must_use]
    pub fn cpu() -> Self {
        Self::new("cpu", "m7i.4xlarge", 16, 64).managed_node_group()
    }

    /// An EKS Auto Mode node: GPUs advertised by the node image itself, without a pod to be found.
    #[must_use]
    pub fn eks_auto_mode() -> Self {
        let mut shape = Self::gpu(
            "eks-auto",
            "g6.12xlarge",
            48,
            192,
            NvidiaHardware::new(Board::L4, 4),
        );
        shape.labels.remove("eks.amazonaws.com/nodegroup");
        shape.labels.extend(
            [
                ("eks.amazonaws.com/compute-type", "auto"),
                ("eks.amazonaws.com/instance-family", "g6"),
                ("karpenter.sh/nodepool", "general-gpu"),
                ("karpenter.sh/registered", "true"),
                ("karpenter.sh/initialized", "true"),
                ("karpenter.sh/capacity-type", "on-demand"),
            ]
            .map(|(key, value)| (key.into(), value.into())),
        );
        let ids = (0..4)
            .map(|gpu| uuid("GPU-", &format!("eks-auto/{gpu}")))
            .collect();
        shape.built_in.insert("nvidia.com/gpu".into(), ids);
        shape
    }

    fn gpu(
        key: &'static str,
        instance_type: &str,
        cpus: u32,
        memory_gib: u32,
        hardware: NvidiaHardware,
    ) -> Self {
        let mut shape = Self::new(key, instance_type, cpus, memory_gib).managed_node_group();
        shape
            .labels
            .extend(nvidia::labels(&hardware, instance_type));
        shape.nvidia = Some(hardware);
        shape
    }

    fn trainium(
        instance_type: &'static str,
        cpus: u32,
        memory_gib: u32,
        hardware: NeuronHardware,
    ) -> Self {
        let mut shape =
            Self::new(instance_type, instance_type, cpus, memory_gib).managed_node_group();
        shape.labels.extend(neuron::labels(&hardware));
        shape.neuron = Some(hardware);
        shape
    }

    fn managed_node_group(mut self) -> Self {
        let group = format!("ng-{}", self.key.replace('.', "-"));
        self.labels
            .insert("eks.amazonaws.com/nodegroup".into(), group);
        self
    }

    /// The same machine with fewer GPUs.
    #[must_use]
    pub fn with_gpus(mut self, gpus: u32) -> Self {
        if let Some(hardware) = &mut self.nvidia {
            hardware.gpus.truncate(gpus as usize);
        }
        self.labels
            .insert("nvidia.com/gpu.count".into(), gpus.to_string());
        self
    }

    /// The same machine with one more label.
    #[must_use]
    pub fn with_label(mut self, key: &str, value: &str) -> Self {
        self.labels.insert(key.into(), value.into());
        self
    }

    /// The same machine with its kubelet's state elsewhere (`--root-dir`).
    #[must_use]
    pub fn with_kubelet_root(mut self, root: &str) -> Self {
        self.kubelet_root = root.into();
        self
    }

    /// The same machine with another kubelet version, e.g. `v1.34.1`.
    #[must_use]
    pub fn with_kubelet_version(mut self, version: &str) -> Self {
        self.kubelet_version = version.into();
        self
    }
}

/// A stable UUID-like name made from a seed, so that runs repeat and nodes differ.
#[must_use]
pub fn uuid(prefix: &str, seed: &str) -> String {
    let hex = hex(&Sha256::digest(seed.as_bytes()));
    let part = |from: usize, to: usize| hex.get(from..to).unwrap_or_default();
    format!(
        "{prefix}{}-{}-4{}-a{}-{}",
        part(0, 8),
        part(8, 12),
        part(13, 16),
        part(17, 20),
        part(20, 32)
    )
}

/// Lower-case hexadecimal.
#[must_use]
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
