//! NVIDIA boards.

use std::collections::BTreeMap;

use super::MigInstance;

/// A board.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Board {
    /// H100 80 GB, SXM5.
    H100,
    /// A100 40 GB, SXM4.
    A100_40,
    /// L4.
    L4,
}

impl Board {
    /// Name as NVML and procfs print it.
    #[must_use]
    pub const fn product(self) -> &'static str {
        match self {
            Self::H100 => "NVIDIA H100 80GB HBM3",
            Self::A100_40 => "NVIDIA A100-SXM4-40GB",
            Self::L4 => "NVIDIA L4",
        }
    }

    /// Name in GPU Feature Discovery's product label.
    #[must_use]
    pub fn product_label(self) -> String {
        self.product().replace(' ', "-")
    }

    /// PCI device id (vendor 10de).
    #[must_use]
    pub const fn pci_device(self) -> u16 {
        match self {
            Self::H100 => 0x2330,
            Self::A100_40 => 0x20b0,
            Self::L4 => 0x27b8,
        }
    }

    /// Architecture as the DRA driver writes it.
    #[must_use]
    pub const fn architecture(self) -> &'static str {
        match self {
            Self::H100 => "Hopper",
            Self::A100_40 => "Ampere",
            Self::L4 => "Ada Lovelace",
        }
    }

    /// CUDA compute capability, as a semantic version.
    #[must_use]
    pub const fn compute_capability(self) -> &'static str {
        match self {
            Self::H100 => "9.0.0",
            Self::A100_40 => "8.0.0",
            Self::L4 => "8.9.0",
        }
    }

    /// Memory in MiB.
    #[must_use]
    pub const fn memory_mib(self) -> u64 {
        match self {
            Self::H100 => 81_559,
            Self::A100_40 => 40_960,
            Self::L4 => 23_034,
        }
    }

    /// The same board as the fake driver library knows it; `None` without MIG.
    #[must_use]
    pub const fn in_nvml(self) -> Option<freehold_fake_nvml::Board> {
        match self {
            Self::H100 => Some(freehold_fake_nvml::Board::H100),
            Self::A100_40 => Some(freehold_fake_nvml::Board::A100x40),
            Self::L4 => None,
        }
    }
}

/// One GPU.
#[derive(Clone, Debug)]
pub struct Gpu {
    /// Minor number.
    pub minor: u32,
    /// PCI address, e.g. `0000:53:00.0`.
    pub bdf: String,
    /// NUMA node.
    pub numa: u32,
    /// MIG mode is on, at first; asked of a tree, now.
    pub mig_enabled: bool,
    /// MIG instances, likewise.
    pub mig: Vec<MigInstance>,
}

/// A machine's GPUs and their driver.
#[derive(Clone, Debug)]
pub struct NvidiaHardware {
    /// Board.
    pub board: Board,
    /// Driver version; `None` when no driver is loaded.
    pub driver: Option<String>,
    /// CUDA version of the driver, as a semantic version.
    pub cuda: String,
    /// GPUs by minor number.
    pub gpus: Vec<Gpu>,
}

/// Bus numbers of a p5.48xlarge, of which smaller machines use the first few.
const BUSES: [&str; 8] = ["53", "64", "75", "86", "97", "a8", "b9", "ca"];

impl NvidiaHardware {
    /// Up to eight GPUs of one board, driver 580 loaded, MIG off.
    #[must_use]
    pub fn new(board: Board, gpus: u32) -> Self {
        let gpus = (0..gpus)
            .zip(BUSES)
            .map(|(minor, bus)| Gpu {
                minor,
                bdf: format!("0000:{bus}:00.0"),
                numa: u32::from(minor >= gpus.div_ceil(2)),
                mig_enabled: false,
                mig: Vec::new(),
            })
            .collect();
        Self {
            board,
            driver: Some("580.95.05".into()),
            cuda: "13.0.0".into(),
            gpus,
        }
    }
}

/// What NFD and GPU Feature Discovery write for such a machine.
pub(super) fn labels(hardware: &NvidiaHardware, instance_type: &str) -> BTreeMap<String, String> {
    let board = hardware.board;
    let mut labels = BTreeMap::from(
        [
            (
                "feature.node.kubernetes.io/pci-10de.present",
                "true".to_owned(),
            ),
            (
                "feature.node.kubernetes.io/pci-0302_10de.present",
                "true".into(),
            ),
            ("nvidia.com/gpu.present", "true".into()),
            ("nvidia.com/gpu.count", hardware.gpus.len().to_string()),
            ("nvidia.com/gpu.product", board.product_label()),
            ("nvidia.com/gpu.memory", board.memory_mib().to_string()),
            (
                "nvidia.com/gpu.family",
                board.architecture().to_lowercase().replace(' ', "-"),
            ),
            ("nvidia.com/gpu.machine", instance_type.to_owned()),
            (
                "nvidia.com/mig.capable",
                board.in_nvml().is_some().to_string(),
            ),
        ]
        .map(|(key, value)| (key.to_owned(), value)),
    );
    if let Some(driver) = &hardware.driver {
        labels.insert("nvidia.com/cuda.driver-version.full".into(), driver.clone());
    }
    labels
}
