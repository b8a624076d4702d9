//! What runs for each owner, from which image, and what it needs below it.

use super::Version;
use crate::vendor::{Owner, Vendor};

/// Image of the agent and of the interlock sidecar, unless the controller is told another.
pub const AGENT_IMAGE: &str = "ghcr.io/freehold-dev/freehold-agent:v0.1.0";

/// What a floor is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// The vendor's kernel driver on the node.
    Driver,
    /// The node's kubelet.
    Kubelet,
    /// The API server.
    ControlPlane,
}

/// A lowest version, with its reason and source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Floor {
    /// What must be at least this new.
    pub subject: Subject,
    /// The lowest version that will do.
    pub version: Version,
    /// Why; ends a sentence.
    pub reason: &'static str,
    /// Where the fact comes from.
    pub source: &'static str,
}

/// An owner's operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operand {
    /// Whose devices.
    pub vendor: Vendor,
    /// For which owner.
    pub owner: Owner,
    /// As its makers call it.
    pub title: &'static str,
    /// Image repository.
    pub repository: &'static str,
    /// Image tag.
    pub tag: &'static str,
    /// Why this version, and where from.
    pub source: &'static str,
    /// What it needs.
    pub floors: &'static [Floor],
}

impl Operand {
    /// Image with tag.
    #[must_use]
    pub fn image(&self) -> String {
        format!("{}:{}", self.repository, self.tag)
    }

    /// The floor about a subject, if there is one.
    #[must_use]
    pub fn floor(&self, subject: Subject) -> Option<&'static Floor> {
        self.floors.iter().find(|floor| floor.subject == subject)
    }
}

/// What Freehold itself needs of the API server, whoever owns.
pub const CONTROL_PLANE_FLOOR: Floor = Floor {
    subject: Subject::ControlPlane,
    version: Version::new(1, 30, 0),
    reason: "ValidatingAdmissionPolicy is stable from there on, and Freehold's labels and reports are guarded by it",
    source: "Kubernetes feature table, ValidatingAdmissionPolicy",
};

/// What `extendedResourceName: Publish` needs, of the API server and of every kubelet.
pub const PUBLISH_FLOOR: Floor = Floor {
    subject: Subject::ControlPlane,
    version: Version::new(1, 36, 0),
    reason: "DRAExtendedResource is on by default from there on (below, the API server drops the field without a word), and older kubelets refuse pods that were served this way",
    source: "KEP-5004; kubernetes#135669, fixed by #135725",
};

const SIDECAR_KUBELET: Floor = Floor {
    subject: Subject::Kubelet,
    version: Version::new(1, 29, 0),
    reason: "the interlock is a restartable init container, which kubelets run by default from there on",
    source: "KEP-753, SidecarContainers beta and on in 1.29",
};

const DRA_KUBELET: Floor = Floor {
    subject: Subject::Kubelet,
    version: Version::new(1, 34, 2),
    reason: "kubelets 1.34.0 and 1.34.1 lose idle connections to DRA drivers until they are restarted",
    source: "kubernetes#133920; prerequisites of the NVIDIA DRA driver 0.5.0 and of the Neuron DRA driver",
};

const DRA_CONTROL_PLANE: Floor = Floor {
    subject: Subject::ControlPlane,
    version: Version::new(1, 34, 0),
    reason: "resource.k8s.io/v1 is served from there on",
    source: "Kubernetes 1.34 release, DynamicResourceAllocation GA",
};

const NEURON_DRIVER: Floor = Floor {
    subject: Subject::Driver,
    version: Version::new(2, 12, 14),
    reason: "Neuron numbers devices and cores from 0 only from there on, as the operand and the runtime expect",
    source: "Neuron SDK release notes 2.16",
};

const NVIDIA_DEVICE_PLUGIN: Operand = Operand {
    vendor: Vendor::Nvidia,
    owner: Owner::DevicePlugin,
    title: "NVIDIA device plugin",
    repository: "nvcr.io/nvidia/k8s-device-plugin",
    tag: "v0.20.0",
    source: "NVIDIA/k8s-device-plugin chart 0.20.0; one image also holds the MPS control daemon",
    floors: &[
        Floor {
            subject: Subject::Driver,
            version: Version::new(384, 81, 0),
            reason: "NVIDIA's device plugin supports drivers from there on",
            source: "NVIDIA/k8s-device-plugin README, prerequisites",
        },
        SIDECAR_KUBELET,
        CONTROL_PLANE_FLOOR,
    ],
};

const NVIDIA_DRA: Operand = Operand {
    vendor: Vendor::Nvidia,
    owner: Owner::Dra,
    title: "NVIDIA DRA driver",
    repository: "registry.k8s.io/dra-driver-nvidia/dra-driver-nvidia-gpu",
    tag: "v0.5.0",
    source: "kubernetes-sigs/dra-driver-nvidia-gpu 0.5.0, the line this project's rendering was read from",
    floors: &[
        Floor {
            subject: Subject::Driver,
            version: Version::new(565, 0, 0),
            reason: "NVIDIA's DRA driver supports standalone host drivers from there on (580 and later is the GPU Operator's own demand)",
            source: "NVIDIA DRA driver 0.5.0, prerequisites",
        },
        DRA_KUBELET,
        DRA_CONTROL_PLANE,
    ],
};

const NEURON_DEVICE_PLUGIN: Operand = Operand {
    vendor: Vendor::Neuron,
    owner: Owner::DevicePlugin,
    title: "Neuron device plugin",
    repository: "public.ecr.aws/neuron/neuron-device-plugin",
    tag: "2.32.0.0",
    source: "neuron-helm-chart 1.10.0 (SDK 2.32.0)",
    floors: &[NEURON_DRIVER, SIDECAR_KUBELET, CONTROL_PLANE_FLOOR],
};

const NEURON_DRA: Operand = Operand {
    vendor: Vendor::Neuron,
    owner: Owner::Dra,
    title: "Neuron DRA driver",
    repository: "public.ecr.aws/neuron/neuron-dra-driver",
    tag: "1.2.0",
    source: "neuron-helm-chart 1.10.0 (SDK 2.32.0)",
    floors: &[NEURON_DRIVER, DRA_KUBELET, DRA_CONTROL_PLANE],
};

/// The table, one row for each vendor and owner.
pub const OPERANDS: &[Operand] = &[
    NVIDIA_DEVICE_PLUGIN,
    NVIDIA_DRA,
    NEURON_DEVICE_PLUGIN,
    NEURON_DRA,
];

/// The row for a vendor and owner.
#[must_use]
pub const fn operand(vendor: Vendor, owner: Owner) -> &'static Operand {
    match (vendor, owner) {
        (Vendor::Nvidia, Owner::DevicePlugin) => &NVIDIA_DEVICE_PLUGIN,
        (Vendor::Nvidia, Owner::Dra) => &NVIDIA_DRA,
        (Vendor::Neuron, Owner::DevicePlugin) => &NEURON_DEVICE_PLUGIN,
        (Vendor::Neuron, Owner::Dra) => &NEURON_DRA,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_vendor_and_owner_has_exactly_its_own_row() {
        assert_eq!(OPERANDS.len(), Vendor::ALL.len() * Owner::ALL.len());
        for vendor in Vendor::ALL {
            for owner in Owner::ALL {
                let row = operand(vendor, owner);
                assert_eq!((row.vendor, row.owner), (vendor, owner));
                assert!(OPERANDS.contains(row));
            }
        }
    }

    #[test]
    fn dra_needs_a_newer_kubelet_than_the_device_plugin_and_control_planes_one_release_behind_are_fine()
     {
        for vendor in Vendor::ALL {
            let [plugin, dra] = [
                operand(vendor, Owner::DevicePlugin),
                operand(vendor, Owner::Dra),
            ];
            let kubelet = |row: &Operand| {
                row.floor(Subject::Kubelet)
                    .expect("a kubelet floor")
                    .version
            };
            assert!(kubelet(plugin) < kubelet(dra));
            assert_eq!(kubelet(dra), Version::new(1, 34, 2));
            assert_eq!(
                dra.floor(Subject::ControlPlane).expect("a floor").version,
                Version::new(1, 34, 0)
            );
        }
    }

    #[test]
    fn every_image_is_pinned_and_every_row_and_floor_says_where_from() {
        for row in OPERANDS {
            assert!(
                !row.tag.is_empty() && row.tag != "latest" && !row.source.is_empty(),
                "{row:?}"
            );
            assert_eq!(row.image(), format!("{}:{}", row.repository, row.tag));
            for floor in row.floors {
                assert!(
                    !floor.reason.is_empty() && !floor.source.is_empty(),
                    "{floor:?}"
                );
            }
        }
    }
}
