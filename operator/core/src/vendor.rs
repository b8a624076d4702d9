//! Vendors and the two ways their devices are handed out.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A maker of accelerators. Ownership is decided per vendor per node: one node may carry both.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
pub enum Vendor {
    /// NVIDIA GPUs.
    #[serde(rename = "NVIDIA")]
    Nvidia,
    /// AWS Neuron devices (Trainium, Inferentia).
    Neuron,
}

impl Vendor {
    /// Both vendors, in the order in which they are always processed and printed.
    pub const ALL: [Self; 2] = [Self::Nvidia, Self::Neuron];

    /// Lower-case form used in label keys, taint keys, file names and metric labels.
    #[must_use]
    pub const fn key(self) -> &'static str {
        match self {
            Self::Nvidia => "nvidia",
            Self::Neuron => "neuron",
        }
    }

    /// The form used in the API and in messages.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nvidia => "NVIDIA",
            Self::Neuron => "Neuron",
        }
    }

    /// Domain of the vendor's extended resources, e.g. `nvidia.com` in `nvidia.com/gpu`.
    #[must_use]
    pub const fn resource_domain(self) -> &'static str {
        match self {
            Self::Nvidia => "nvidia.com",
            Self::Neuron => "aws.amazon.com",
        }
    }

    /// Whether an extended resource name is one of this vendor's *allocatable devices*.
    ///
    /// `nvidia.com/*` is all NVIDIA's; `aws.amazon.com/*` is shared with other AWS devices, so only the Neuron names count
    /// (`neuron`, `neuroncore` and the dropped `neurondevice`).
    #[must_use]
    pub fn owns_resource(self, resource: &str) -> bool {
        let Some((domain, name)) = resource.split_once('/') else {
            return false;
        };
        match self {
            Self::Nvidia => domain == "nvidia.com",
            Self::Neuron => {
                domain == "aws.amazon.com"
                    && matches!(name, "neuron" | "neuroncore" | "neurondevice")
            }
        }
    }

    /// Name of the DRA driver that *allocates* this vendor's devices (`compute-domain.nvidia.com` does not).
    #[must_use]
    pub const fn dra_driver(self) -> &'static str {
        match self {
            Self::Nvidia => "gpu.nvidia.com",
            Self::Neuron => "neuron.aws.com",
        }
    }

    /// The vendor whose allocating DRA driver has this name.
    #[must_use]
    pub fn of_dra_driver(driver: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|vendor| vendor.dra_driver() == driver)
    }
}

impl std::fmt::Display for Vendor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// Who hands out a vendor's devices on a node.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
pub enum Owner {
    /// The kubelet device plugin: extended resources such as `nvidia.com/gpu`.
    DevicePlugin,
    /// The Dynamic Resource Allocation driver: `ResourceSlice`s and `ResourceClaim`s.
    #[serde(rename = "DRA")]
    Dra,
}

impl Owner {
    /// Both owners.
    pub const ALL: [Self; 2] = [Self::DevicePlugin, Self::Dra];

    /// Value of owner labels, and the owner word on a node: `device-plugin` or `dra`.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::DevicePlugin => "device-plugin",
            Self::Dra => "dra",
        }
    }

    /// Parses an owner word or owner label value.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|owner| owner.word() == word)
    }

    /// The other one.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::DevicePlugin => Self::Dra,
            Self::Dra => Self::DevicePlugin,
        }
    }

    /// The form used in the API and in messages.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::DevicePlugin => "DevicePlugin",
            Self::Dra => "DRA",
        }
    }
}

impl std::fmt::Display for Owner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// One value for each vendor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PerVendor<T> {
    /// NVIDIA's.
    pub nvidia: T,
    /// Neuron's.
    pub neuron: T,
}

impl<T> PerVendor<T> {
    /// Builds both values.
    pub fn from_fn(mut make: impl FnMut(Vendor) -> T) -> Self {
        Self {
            nvidia: make(Vendor::Nvidia),
            neuron: make(Vendor::Neuron),
        }
    }

    /// One vendor's value.
    pub const fn get(&self, vendor: Vendor) -> &T {
        match vendor {
            Vendor::Nvidia => &self.nvidia,
            Vendor::Neuron => &self.neuron,
        }
    }

    /// One vendor's value, to change it.
    pub const fn get_mut(&mut self, vendor: Vendor) -> &mut T {
        match vendor {
            Vendor::Nvidia => &mut self.nvidia,
            Vendor::Neuron => &mut self.neuron,
        }
    }
}
