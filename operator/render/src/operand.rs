//! What the operand DaemonSets share: names, placement, interlock, and the two hashes.

use std::collections::BTreeMap;

use freehold_api::plan::{CohortPlan, Operand, PluginConfig};
use freehold_core::catalogue::{OPERAND_TOLERATIONS, operand as catalogue_row};
use freehold_core::names;
use freehold_core::vendor::{Owner, Vendor};
use k8s_openapi::api::apps::v1::{DaemonSet, DaemonSetSpec, DaemonSetUpdateStrategy};
use k8s_openapi::api::core::v1::{
    Container, PodSpec, PodTemplateSpec, ResourceRequirements, Toleration, Volume,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};

use crate::meta::{APP_COMPONENT, APP_NAME};
use crate::{
    KUBELET_ROOT_ANNOTATION, RenderedOperand, Settings, hash, interlock, meta, neuron,
    nvidia_device_plugin, nvidia_dra, pod,
};

/// Value of the component label on operands and their pods; the controller finds pods by it.
const COMPONENT: &str = "operand";
/// Old templates that the DaemonSet controller keeps: one to compare with is enough, as nothing is rolled back by it.
const REVISIONS: i32 = 1;

/// What an operand has of its own.
pub(crate) struct Parts {
    /// Its service account, and its name in the label `app.kubernetes.io/name`.
    pub(crate) name: &'static str,
    /// Value of `app.kubernetes.io/component`.
    pub(crate) component: &'static str,
    /// Init containers after the interlock's.
    pub(crate) init_containers: Vec<Container>,
    /// Containers.
    pub(crate) containers: Vec<Container>,
    /// Volumes beside the interlock's.
    pub(crate) volumes: Vec<Volume>,
    /// RuntimeClass.
    pub(crate) runtime_class: Option<String>,
    /// Whether it runs in the host's network.
    pub(crate) host_network: bool,
    /// Whether it runs in the host's process namespace.
    pub(crate) host_pid: bool,
    /// Annotations of the pod.
    pub(crate) annotations: BTreeMap<String, String>,
}

/// Renders a cohort's operand.
pub(crate) fn render(plan: &CohortPlan, settings: &Settings) -> RenderedOperand {
    let cohort = &plan.cohort;
    let parts = match &plan.operand {
        Operand::NvidiaDevicePlugin(plugin) => match config_file(&plugin.config, settings) {
            ConfigFile::Known(config) => nvidia_device_plugin::parts(plan, plugin, config),
            ConfigFile::Absent => {
                // Neither hash can say what would run. They differ from those of every real template, and the cohort's nodes
                // are blocked for want of the configuration before anybody compares.
                let absent = hash::of(&(&cohort.shape, "configuration absent"));
                return RenderedOperand {
                    cohort: cohort.name.clone(),
                    shape: absent.clone(),
                    template: absent,
                    daemon_set: None,
                };
            }
        },
        Operand::NvidiaDra(dra) => nvidia_dra::parts(plan, dra),
        Operand::NeuronDevicePlugin => neuron::device_plugin(plan),
        Operand::NeuronDra => neuron::dra(plan),
    };
    let labels = labels(plan, &parts);
    let mut annotations = parts.annotations.clone();
    let config = annotations
        .get(nvidia_device_plugin::CONFIG_ANNOTATION)
        .cloned();
    let mut template = template(plan, parts, labels.clone(), settings);
    let template_hash = hash::of(&template);
    let shape = shape(plan, config.as_deref(), &template_hash);
    annotations.insert(names::SHAPE_ANNOTATION.into(), shape.clone());
    annotations.insert(names::TEMPLATE_ANNOTATION.into(), template_hash.clone());
    template.metadata.get_or_insert_default().annotations = Some(annotations);

    let name = format!(
        "{}-{}-{}",
        cohort.vendor.key(),
        cohort.owner.word(),
        cohort.name
    );
    let mut metadata = meta::object(
        &name,
        Some(names::OPERAND_NAMESPACE),
        labels.clone(),
        settings,
    );
    metadata.annotations = Some(meta::map([(
        KUBELET_ROOT_ANNOTATION,
        plan.kubelet_root.as_str(),
    )]));
    let daemon_set = DaemonSet {
        metadata,
        spec: Some(DaemonSetSpec {
            selector: LabelSelector {
                match_labels: Some(selector(labels)),
                match_expressions: None,
            },
            template,
            // The controller restarts pods itself, node by node within the budget.
            update_strategy: Some(DaemonSetUpdateStrategy {
                type_: Some("OnDelete".into()),
                rolling_update: None,
            }),
            revision_history_limit: Some(REVISIONS),
            min_ready_seconds: None,
        }),
        status: None,
    };
    RenderedOperand {
        cohort: cohort.name.clone(),
        shape,
        template: template_hash,
        daemon_set: Some(meta::seal(daemon_set)),
    }
}

/// The plugin's configuration file.
enum ConfigFile {
    /// There is none, or this is its content.
    Known(Option<String>),
    /// The user's ConfigMap or key is not there.
    Absent,
}

fn config_file(config: &PluginConfig, settings: &Settings) -> ConfigFile {
    let content = match config {
        PluginConfig::None => None,
        PluginConfig::TimeSlicing {
            rename,
            fail_requests_greater_than_one,
            replicas,
        } => Some(nvidia_device_plugin::time_slicing_file(
            *rename,
            *fail_requests_greater_than_one,
            replicas,
        )),
        PluginConfig::Mps { rename, replicas } => {
            Some(nvidia_device_plugin::mps_file(*rename, *replicas))
        }
        PluginConfig::User { config_map, key } => {
            match settings
                .plugin_configs
                .get(&(config_map.clone(), key.clone()))
            {
                Some(content) => Some(content.clone()),
                None => return ConfigFile::Absent,
            }
        }
    };
    ConfigFile::Known(content)
}

/// The plan's own shape, and beside it what only rendering knows.
fn shape(plan: &CohortPlan, config: Option<&str>, template: &str) -> String {
    let shape = &plan.cohort.shape;
    match &plan.operand {
        Operand::NvidiaDevicePlugin(plugin) => match &plugin.config {
            // What a user's file makes the plugin advertise cannot be told from outside, so every change of it counts.
            PluginConfig::User { .. } => hash::of(&(shape, config)),
            // The MPS daemon ends with its pod, and its clients with it: no template of it is replaced under consumers.
            PluginConfig::Mps { .. } => hash::of(&(shape, template)),
            PluginConfig::None | PluginConfig::TimeSlicing { .. } => shape.clone(),
        },
        Operand::NvidiaDra(_) | Operand::NeuronDevicePlugin | Operand::NeuronDra => shape.clone(),
    }
}

fn labels(plan: &CohortPlan, parts: &Parts) -> BTreeMap<String, String> {
    meta::map([
        (names::COMPONENT_LABEL, COMPONENT),
        (names::VENDOR_LABEL, plan.cohort.vendor.key()),
        (names::OWNER_LABEL, plan.cohort.owner.word()),
        (names::COHORT_LABEL, &plan.cohort.name),
        (APP_NAME, parts.name),
        (APP_COMPONENT, parts.component),
        (names::MANAGED_BY_LABEL, names::MANAGED_BY),
    ])
}

/// The labels that make up the DaemonSet's identity. A selector cannot be changed later, so labels that merely describe stay
/// out of it.
fn selector(mut labels: BTreeMap<String, String>) -> BTreeMap<String, String> {
    labels.retain(|key, _| key.starts_with("freehold.dev/"));
    labels
}

fn template(
    plan: &CohortPlan,
    parts: Parts,
    labels: BTreeMap<String, String>,
    settings: &Settings,
) -> PodTemplateSpec {
    let Parts {
        name,
        component: _,
        init_containers,
        containers,
        mut volumes,
        runtime_class,
        host_network,
        host_pid,
        annotations,
    } = parts;
    let cohort = &plan.cohort;
    let (vendor, owner) = (cohort.vendor, cohort.owner);
    // First, so that nothing of the operand runs before the node is its own.
    let mut all_init = vec![interlock::container(
        vendor,
        owner,
        cohort.layout.is_some(),
        settings,
    )];
    all_init.extend(init_containers);
    volumes.extend(interlock::volumes(vendor));
    let mut secrets = plan.image_pull_secrets.clone();
    secrets.extend(settings.agent_image_pull_secrets.iter().cloned());
    secrets.sort();
    secrets.dedup();
    PodTemplateSpec {
        metadata: Some(ObjectMeta {
            labels: Some(labels),
            annotations: Some(annotations),
            ..ObjectMeta::default()
        }),
        spec: Some(PodSpec {
            service_account_name: Some(name.into()),
            // The credential is mounted only where it is needed, and never into the sidecar.
            automount_service_account_token: Some(false),
            // Variables for every Service of the namespace: nothing here reads them.
            enable_service_links: Some(false),
            priority_class_name: Some(pod::NODE_CRITICAL.into()),
            runtime_class_name: runtime_class,
            image_pull_secrets: (!secrets.is_empty()).then(|| pod::pull_secrets(&secrets)),
            node_selector: Some(BTreeMap::from([
                (names::owner_label(vendor), owner.word().to_owned()),
                (names::cohort_label(vendor), cohort.name.clone()),
            ])),
            tolerations: Some(tolerations(plan)),
            host_network: host_network.then_some(true),
            // A pod in the host's network resolves cluster names only when told so.
            dns_policy: host_network.then(|| "ClusterFirstWithHostNet".into()),
            host_pid: host_pid.then_some(true),
            init_containers: Some(all_init),
            containers,
            volumes: Some(volumes),
            ..PodSpec::default()
        }),
    }
}

/// The vendor's own, both fences (a node may carry devices of both vendors), and the user's.
fn tolerations(plan: &CohortPlan) -> Vec<Toleration> {
    let vendor = plan.cohort.vendor;
    let mut tolerations: Vec<Toleration> = OPERAND_TOLERATIONS
        .iter()
        .filter(|row| row.vendors.contains(&vendor))
        .map(|row| Toleration {
            key: Some(row.key.into()),
            operator: Some(
                if row.value.is_some() {
                    "Equal"
                } else {
                    "Exists"
                }
                .into(),
            ),
            value: row.value.map(Into::into),
            effect: row.effect.map(Into::into),
            toleration_seconds: None,
        })
        .collect();
    tolerations.extend(Vendor::ALL.map(|vendor| Toleration {
        key: Some(names::fence_taint(vendor)),
        operator: Some("Exists".into()),
        ..Toleration::default()
    }));
    for toleration in &plan.tolerations {
        if !tolerations.contains(toleration) {
            tolerations.push(toleration.clone());
        }
    }
    tolerations
}

/// The cohort's image, or the catalogue's.
pub(crate) fn image(plan: &CohortPlan) -> String {
    let (vendor, owner): (Vendor, Owner) = (plan.cohort.vendor, plan.cohort.owner);
    plan.image.as_ref().map_or_else(
        || catalogue_row(vendor, owner).image(),
        |image| image.as_str().to_owned(),
    )
}

/// The user's compute resources, or the operand's own.
pub(crate) fn main_resources(
    plan: &CohortPlan,
    requests: &[(&str, &str)],
    limits: &[(&str, &str)],
) -> ResourceRequirements {
    plan.resources
        .clone()
        .unwrap_or_else(|| pod::resources(requests, limits))
}
