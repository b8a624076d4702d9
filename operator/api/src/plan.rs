//! From the raw `AcceleratorClusterSpec` to a validated [`Plan`]. Nobody reads the raw resource after that.
//!
//! Most of what is refused here is refused at admission as well, by the CEL rules of the schema. The parse repeats them
//! because it must be total: a resource may have been stored under an older schema, come from a file, or hold what CEL cannot
//! check (quantities, label syntax). It never stops at the first problem; every problem names the field, what was found and
//! what was expected.
//!
//! The raw structs are taken apart without `..`, so that a new field cannot be forgotten here.

mod check;
mod cohort;
mod nvidia;
mod problem;
mod rollout;
mod shape;
mod size;

use std::collections::{BTreeMap, BTreeSet};

use freehold_core::intent::{self, Intent};
use k8s_openapi::api::core::v1::{ResourceRequirements, Toleration};

pub use check::{HostPath, ImageRef};
pub use problem::{Problem, Problems};

use crate::size::DeviceType;
use crate::{AcceleratorClusterSpec, DeviceIdStrategy, DeviceListStrategy};
use check::Checker;

/// Everything the administrator wants, validated.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The part that decisions need. Each cohort's [`template`](intent::Cohort::template) is empty here, and its
    /// [`shape`](intent::Cohort::shape) covers the resource alone: rendering fills in both (`freehold_render::render`), and
    /// decisions take the intent that it returns.
    pub intent: Intent,
    /// The cohorts, by name, with what their pod templates need.
    pub cohorts: Vec<CohortPlan>,
    /// The sizes, by name.
    pub sizes: Vec<SizePlan>,
    /// Whether the class `gpu.nvidia.com` also answers plain `nvidia.com/gpu` requests.
    pub publish_extended_resource: bool,
}

/// One cohort with what its pod template needs.
#[derive(Clone, Debug, PartialEq)]
pub struct CohortPlan {
    /// The part that decisions need; equal to the entry of this name in [`Plan::intent`].
    pub cohort: intent::Cohort,
    /// What runs on the nodes, with its settings.
    pub operand: Operand,
    /// The user's tolerations.
    pub tolerations: Vec<Toleration>,
    /// Compute resources of the operand's main container, when the user set them.
    pub resources: Option<ResourceRequirements>,
    /// Image instead of the catalogue's.
    pub image: Option<ImageRef>,
    /// Names of pull secrets in the operand namespace.
    pub image_pull_secrets: Vec<String>,
    /// The kubelet's root directory on these nodes.
    pub kubelet_root: HostPath,
}

/// What runs on a cohort's nodes: vendor and owner decide which, so the four cannot be mixed up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operand {
    /// NVIDIA device plugin.
    NvidiaDevicePlugin(NvidiaDevicePlugin),
    /// NVIDIA DRA driver.
    NvidiaDra(NvidiaDra),
    /// Neuron device plugin; it has no settings of its own.
    NeuronDevicePlugin,
    /// Neuron DRA driver; it has no settings of its own.
    NeuronDra,
}

/// Settings of the NVIDIA device plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NvidiaDevicePlugin {
    /// Where the driver is installed on the host.
    pub driver_root: HostPath,
    /// RuntimeClass of the plugin's pods.
    pub runtime_class: Option<String>,
    /// How MIG devices are advertised.
    pub mig_strategy: intent::MigStrategy,
    /// How devices are passed to containers, in order of preference; at least one.
    pub device_list_strategy: Vec<DeviceListStrategy>,
    /// How devices are identified to containers.
    pub device_id_strategy: DeviceIdStrategy,
    /// Whether the plugin exits when the driver cannot be initialised.
    pub fail_on_init_error: bool,
    /// Whether device nodes are passed explicitly, which takes a privileged plugin.
    pub compat_with_cpu_manager: bool,
    /// Where the plugin's configuration file comes from.
    pub config: PluginConfig,
}

/// Where the NVIDIA device plugin's configuration file comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PluginConfig {
    /// There is none.
    None,
    /// Rendered, with time-slicing.
    TimeSlicing {
        /// Advertise shared resources as `<name>.shared`.
        rename: bool,
        /// Refuse a container that asks for more than one replica.
        fail_requests_greater_than_one: bool,
        /// Resource name → replicas, at least 2.
        replicas: BTreeMap<String, u32>,
    },
    /// Rendered, with MPS on `nvidia.com/gpu`.
    Mps {
        /// Advertise the shared resource as `nvidia.com/gpu.shared`.
        rename: bool,
        /// Replicas, at least 2.
        replicas: u32,
    },
    /// The user's own ConfigMap in the operand namespace.
    User {
        /// Its name.
        config_map: String,
        /// Key of the file.
        key: String,
    },
}

/// Settings of the NVIDIA DRA driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NvidiaDra {
    /// Where the driver is installed on the host.
    pub driver_root: HostPath,
    /// Feature gates, as given.
    pub feature_gates: BTreeMap<String, bool>,
}

/// A size: a name that ML engineers use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SizePlan {
    /// Name of the ResourceClaimTemplates.
    pub name: String,
    /// Which devices, by vendor.
    pub devices: SizeVendor,
    /// Namespaces that get a template.
    pub namespaces: BTreeSet<String>,
    /// DeviceClass to keep, if any.
    pub device_class: Option<String>,
    /// Name of the request inside the claim.
    pub request: String,
    /// How many devices.
    pub count: SizeCount,
    /// Attribute that all devices of the claim must share.
    pub align_by: Option<String>,
    /// CEL expressions, all of which must hold.
    pub selectors: Vec<String>,
}

/// A size's vendor, with what only that vendor has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SizeVendor {
    /// NVIDIA devices of one type.
    Nvidia(DeviceType),
    /// Neuron devices.
    Neuron {
        /// Logical NeuronCore setting for the claim, 1 or 2.
        logical_neuron_core: Option<u8>,
    },
}

/// How many devices a size asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SizeCount {
    /// Exactly so many.
    Exactly(u32),
    /// Every matching device of a node.
    All,
}

impl Plan {
    /// Validates a spec.
    ///
    /// # Errors
    /// Every problem of the spec.
    pub fn parse(spec: &AcceleratorClusterSpec) -> Result<Self, Problems> {
        let AcceleratorClusterSpec {
            owner_label,
            cohorts,
            sizes,
            rollout,
        } = spec;
        let mut checker = Checker::default();

        let owner_alias = owner_label
            .clone()
            .inspect(|label| checker.owner_alias("spec.ownerLabel", label));
        let rollout = rollout::parse(&mut checker, rollout);
        let mut cohorts: Vec<CohortPlan> = cohorts
            .iter()
            .map(|raw| cohort::parse(&mut checker, raw))
            .collect();
        cohorts.sort_by(|a, b| a.cohort.name.cmp(&b.cohort.name));
        checker.unique(
            "spec.cohorts",
            cohorts.iter().map(|cohort| cohort.cohort.name.as_str()),
        );
        for cohort in &cohorts {
            checker.selects_not_by_owner(&cohort.cohort, owner_alias.as_deref());
        }
        let publish_extended_resource =
            cohort::publish_extended_resource(&mut checker, &spec.cohorts);
        let mut sizes: Vec<SizePlan> = sizes
            .iter()
            .map(|raw| size::parse(&mut checker, raw))
            .collect();
        sizes.sort_by(|a, b| a.name.cmp(&b.name));
        checker.unique("spec.sizes", sizes.iter().map(|size| size.name.as_str()));
        checker.unique(
            "spec.sizes[].deviceClassName",
            sizes.iter().filter_map(|size| size.device_class.as_deref()),
        );

        let by_name = cohorts
            .iter()
            .map(|plan| (plan.cohort.name.clone(), plan.cohort.clone()))
            .collect();
        let intent = Intent {
            cohorts: by_name,
            owner_alias,
            rollout,
        };
        checker.finish(Self {
            intent,
            cohorts,
            sizes,
            publish_extended_resource,
        })
    }
}

#[cfg(test)]
mod tests;
