//! Typed Kubernetes objects from a validated plan, byte-identical for equal input.
//!
//! [`render`] is the only entry point: a [`Plan`] and the [`Settings`] of the installation go in, every object that the plan
//! calls for comes out, and with them the intent with each cohort's two hashes filled in. Nothing here decides whether an
//! object may be written or removed now: operands, classes and agents outlive the plan that asked for them until no node needs
//! them.
//!
//! | module | renders |
//! |---|---|
//! | `agent` | the DaemonSet of the node agents |
//! | `operand` | what the four operand DaemonSets share, and the two hashes |
//! | `nvidia_device_plugin`, `nvidia_dra`, `neuron` | what each operand has of its own |
//! | `interlock` | the sidecar that lets an operand start only while it owns the node |
//! | `shaper` | the DaemonSets that make a cohort's layout |
//! | `classes`, `sizes` | DeviceClasses and ResourceClaimTemplates |
#![forbid(unsafe_code)]

mod agent;
mod classes;
mod hash;
mod interlock;
mod meta;
mod neuron;
mod nvidia_device_plugin;
mod nvidia_dra;
mod operand;
mod placement;
mod pod;
mod shaper;
mod sizes;

use std::collections::{BTreeMap, BTreeSet};

use freehold_api::plan::Plan;
use freehold_core::intent::Intent;
use freehold_core::vendor::Vendor;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaimTemplate};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

/// Name of the agents' DaemonSet.
pub const AGENT_NAME: &str = "freehold-agent";

/// What stands between vendor and cohort in the name of a shaper's DaemonSet.
const SHAPER: &str = "shaper";

/// Name of the DaemonSet that makes a cohort's layout.
#[must_use]
pub fn shaper_name(vendor: Vendor, cohort: &str) -> String {
    format!("{}-{SHAPER}-{cohort}", vendor.key())
}

/// Vendor and cohort of a shaper's DaemonSet, told by its name.
#[must_use]
pub fn shaper_of(name: &str) -> Option<(Vendor, &str)> {
    Vendor::ALL.into_iter().find_map(|vendor| {
        let rest = name.strip_prefix(vendor.key())?.strip_prefix('-')?;
        let cohort = rest.strip_prefix(SHAPER)?.strip_prefix('-')?;
        Some((vendor, cohort))
    })
}

/// Annotation on operand DaemonSets: the kubelet root directory they were rendered for.
pub const KUBELET_ROOT_ANNOTATION: &str = "freehold.dev/kubelet-root";

/// The kubelet root directory that an operand DaemonSet was rendered for.
#[must_use]
pub fn kubelet_root(daemon_set: &DaemonSet) -> Option<&str> {
    daemon_set
        .metadata
        .annotations
        .as_ref()?
        .get(KUBELET_ROOT_ANNOTATION)
        .map(String::as_str)
}

/// What an installation adds to a plan.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Reference to the AcceleratorCluster, put on every object.
    pub owner: OwnerReference,
    /// Image of the agent and of the interlock's sidecar; [`freehold_core::catalogue::AGENT_IMAGE`] unless told otherwise.
    pub agent_image: String,
    /// Names of secrets in the operand namespace to pull that image with.
    pub agent_image_pull_secrets: Vec<String>,
    /// Device-plugin configuration files in users' ConfigMaps of the operand namespace, by ConfigMap and key. A cohort whose
    /// file is not here has no DaemonSet in the result.
    pub plugin_configs: BTreeMap<(String, String), String>,
    /// Kubelet root directories beyond the plan's that the agents must go on seeing: [`kubelet_root`] of every operand
    /// DaemonSet of ours that exists. A cohort that leaves the plan leaves owned nodes behind, and only an agent that sees the
    /// kubelet's records can attest that they are free.
    pub kubelet_roots: BTreeSet<String>,
}

/// Every object that a plan calls for.
#[derive(Clone, Debug, PartialEq)]
pub struct Rendered {
    /// The plan's intent with each cohort's shape and template filled in: what decisions take.
    pub intent: Intent,
    /// The agents. Rendered for an empty plan as well: they stay where something is unfinished.
    pub agent: DaemonSet,
    /// The operands, one for each cohort, by cohort name.
    pub operands: Vec<RenderedOperand>,
    /// The shapers, one for each cohort with a layout, by cohort name.
    pub shapers: Vec<DaemonSet>,
    /// DeviceClasses, by name.
    pub device_classes: Vec<DeviceClass>,
    /// ResourceClaimTemplates, by namespace and name.
    pub claim_templates: Vec<ResourceClaimTemplate>,
}

/// A cohort's operand.
#[derive(Clone, Debug, PartialEq)]
pub struct RenderedOperand {
    /// The cohort.
    pub cohort: String,
    /// Hash over what changes advertised names or counts; on every pod as the annotation `freehold.dev/shape`.
    pub shape: String,
    /// Hash over the pod template; on every pod as the annotation `freehold.dev/template`.
    pub template: String,
    /// The DaemonSet, or `None` while the ConfigMap or key that the cohort names is not there: whatever runs goes on with the
    /// configuration it has.
    pub daemon_set: Option<DaemonSet>,
}

/// Renders a plan.
#[must_use]
pub fn render(plan: &Plan, settings: &Settings) -> Rendered {
    let Plan {
        intent,
        cohorts,
        sizes,
        publish_extended_resource,
    } = plan;
    let operands: Vec<RenderedOperand> = cohorts
        .iter()
        .map(|cohort| operand::render(cohort, settings))
        .collect();
    let mut intent = intent.clone();
    for operand in &operands {
        if let Some(cohort) = intent.cohorts.get_mut(&operand.cohort) {
            cohort.shape.clone_from(&operand.shape);
            cohort.template.clone_from(&operand.template);
        }
    }
    let mut device_classes = classes::render(cohorts, *publish_extended_resource, settings);
    device_classes.extend(sizes::device_classes(sizes, settings));
    device_classes.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
    Rendered {
        agent: agent::render(cohorts, settings),
        operands,
        shapers: cohorts
            .iter()
            .filter_map(|cohort| shaper::render(cohort, settings))
            .collect(),
        device_classes,
        claim_templates: sizes::claim_templates(sizes, settings),
        intent,
    }
}
