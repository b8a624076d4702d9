//! Cohorts.

use std::collections::BTreeSet;

use freehold_core::intent::{self, DraTraits, Layout, Selector, SelectorTerm, Sharing};
use freehold_core::vendor::{Owner, Vendor};
use k8s_openapi::api::core::v1::Toleration;

use super::check::Checker;
use super::{CohortPlan, Operand, nvidia, rollout, shape};
use crate::{
    Cohort, CohortRollout, ExtendedResourceName, Neuron, NodeSelector, NodeSelectorRequirement,
    Nvidia, SelectorOperator,
};

/// What one vendor's settings come to.
pub(super) struct VendorPart {
    pub(super) operand: Operand,
    pub(super) sharing: Sharing,
    pub(super) mig_strategy: Option<intent::MigStrategy>,
    pub(super) layout: Option<Layout>,
    pub(super) runtime_class: Option<String>,
    pub(super) config_map: Option<(String, String)>,
    pub(super) mps: bool,
    pub(super) accept_unknown_driver: bool,
    pub(super) dra: DraTraits,
}

pub(super) fn parse(checker: &mut Checker, raw: &Cohort) -> CohortPlan {
    let Cohort {
        name,
        vendor,
        owner,
        node_selector,
        tolerations,
        resources,
        image,
        image_pull_secrets,
        kubelet_root_dir,
        nvidia,
        neuron,
        rollout,
    } = raw;
    let at = format!("spec.cohorts[{name}]");
    let name = checker.dns_label(&format!("{at}.name"), name);
    let selector = selector(checker, &format!("{at}.nodeSelector"), node_selector);
    let tolerations: Vec<Toleration> = tolerations
        .iter()
        .enumerate()
        .map(|(index, toleration)| {
            checker.toleration(&format!("{at}.tolerations[{index}]"), toleration)
        })
        .collect();
    let max_unavailable = rollout.as_ref().map(|CohortRollout { max_unavailable }| {
        rollout::budget(
            checker,
            &format!("{at}.rollout.maxUnavailable"),
            max_unavailable,
        )
    });
    let VendorPart {
        operand,
        sharing,
        mig_strategy,
        layout,
        runtime_class,
        config_map,
        mps,
        accept_unknown_driver,
        dra,
    } = vendor_part(
        checker,
        &at,
        *vendor,
        *owner,
        nvidia.as_ref(),
        neuron.as_ref(),
    );

    let mut cohort = intent::Cohort {
        name,
        vendor: *vendor,
        owner: *owner,
        selector,
        tolerations: tolerations.iter().map(core_toleration).collect(),
        sharing,
        mig_strategy,
        layout,
        runtime_class,
        config_map,
        mps,
        accept_unknown_driver,
        dra,
        shape: String::new(),
        template: String::new(),
        max_unavailable,
    };
    cohort.shape = shape::of(&cohort, &operand);
    CohortPlan {
        cohort,
        operand,
        tolerations,
        resources: resources
            .as_ref()
            .map(|resources| checker.resources(&format!("{at}.resources"), resources)),
        image: image
            .as_ref()
            .map(|image| checker.image(&format!("{at}.image"), image)),
        image_pull_secrets: image_pull_secrets
            .iter()
            .map(|secret| checker.dns_subdomain(&format!("{at}.imagePullSecrets"), secret))
            .collect(),
        kubelet_root: kubelet_root(checker, &format!("{at}.kubeletRootDir"), kubelet_root_dir),
    }
}

fn kubelet_root(checker: &mut Checker, field: &str, value: &str) -> super::HostPath {
    let path = checker.host_path(field, value);
    if path.is_root() {
        checker.problem(
            field,
            "'/'",
            "the kubelet's own directory, e.g. /var/lib/kubelet",
        );
    }
    path
}

fn vendor_part(
    checker: &mut Checker,
    at: &str,
    vendor: Vendor,
    owner: Owner,
    nvidia: Option<&Nvidia>,
    neuron: Option<&Neuron>,
) -> VendorPart {
    match vendor {
        Vendor::Nvidia => {
            if neuron.is_some() {
                let expected =
                    "none: this cohort's vendor is NVIDIA; remove 'neuron', or set vendor: Neuron";
                checker.problem(
                    format!("{at}.neuron"),
                    "settings of the other vendor",
                    expected,
                );
            }
            nvidia::parse(checker, &format!("{at}.nvidia"), owner, nvidia)
        }
        Vendor::Neuron => {
            if nvidia.is_some() {
                let expected =
                    "none: this cohort's vendor is Neuron; remove 'nvidia', or set vendor: NVIDIA";
                checker.problem(
                    format!("{at}.nvidia"),
                    "settings of the other vendor",
                    expected,
                );
            }
            let logical_neuron_core = neuron.and_then(
                |Neuron {
                     logical_neuron_core,
                 }| *logical_neuron_core,
            );
            let layout = logical_neuron_core
                .map(|value| {
                    checker.logical_neuron_core(&format!("{at}.neuron.logicalNeuronCore"), value)
                })
                .map(Layout::LogicalNeuronCore);
            VendorPart {
                operand: match owner {
                    Owner::DevicePlugin => Operand::NeuronDevicePlugin,
                    Owner::Dra => Operand::NeuronDra,
                },
                sharing: Sharing::Exclusive,
                mig_strategy: None,
                layout,
                runtime_class: None,
                config_map: None,
                mps: false,
                accept_unknown_driver: false,
                dra: DraTraits::default(),
            }
        }
    }
}

fn selector(checker: &mut Checker, at: &str, raw: &NodeSelector) -> Selector {
    let NodeSelector {
        match_labels,
        match_expressions,
    } = raw;
    if match_labels.is_empty() && match_expressions.is_empty() {
        checker.problem(
            at,
            "an empty selector",
            "at least one label: an empty selector would claim every node, future ones included",
        );
    }
    let mut terms = Vec::with_capacity(match_labels.len() + match_expressions.len());
    for (key, value) in match_labels {
        let key = selector_key(checker, &format!("{at}.matchLabels"), key);
        let value = checker.label_value(&format!("{at}.matchLabels[{key}]"), value);
        terms.push(SelectorTerm::In(key, BTreeSet::from([value])));
    }
    for (
        index,
        NodeSelectorRequirement {
            key,
            operator,
            values,
        },
    ) in match_expressions.iter().enumerate()
    {
        let field = format!("{at}.matchExpressions[{index}]");
        let key = selector_key(checker, &format!("{field}.key"), key);
        let field = format!("{field}.values");
        let wants_values = matches!(operator, SelectorOperator::In | SelectorOperator::NotIn);
        if wants_values == values.is_empty() {
            let found = if values.is_empty() {
                "no values"
            } else {
                "values"
            };
            checker.problem(
                &field,
                found,
                "at least one value with In and NotIn, and none with Exists and DoesNotExist",
            );
        }
        let values: BTreeSet<String> = values
            .iter()
            .map(|value| checker.label_value(&field, value))
            .collect();
        terms.push(match operator {
            SelectorOperator::In => SelectorTerm::In(key, values),
            SelectorOperator::NotIn => SelectorTerm::NotIn(key, values),
            SelectorOperator::Exists => SelectorTerm::Exists(key),
            SelectorOperator::DoesNotExist => SelectorTerm::DoesNotExist(key),
        });
    }
    Selector { terms }
}

fn selector_key(checker: &mut Checker, field: &str, key: &str) -> String {
    if key.starts_with("freehold.") {
        checker.problem(
            field,
            format!("'{key}'"),
            "a label that is not Freehold's own: those are what the selector decides",
        );
    }
    checker.label_key(field, key)
}

fn core_toleration(raw: &Toleration) -> intent::Toleration {
    let Toleration {
        effect,
        key,
        operator,
        toleration_seconds: _,
        value,
    } = raw;
    intent::Toleration {
        key: key.clone().filter(|key| !key.is_empty()),
        value: (operator.as_deref() != Some("Exists")).then(|| value.clone().unwrap_or_default()),
        effect: effect.clone().filter(|effect| !effect.is_empty()),
    }
}

/// Whether the shared class publishes `nvidia.com/gpu`: all NVIDIA cohorts under DRA must agree.
pub(super) fn publish_extended_resource(checker: &mut Checker, cohorts: &[Cohort]) -> bool {
    let mut publish: Vec<&str> = Vec::new();
    let mut omit: Vec<&str> = Vec::new();
    for cohort in cohorts
        .iter()
        .filter(|cohort| cohort.vendor == Vendor::Nvidia && cohort.owner == Owner::Dra)
    {
        let dra = cohort
            .nvidia
            .as_ref()
            .and_then(|nvidia| nvidia.dra.as_ref());
        match dra
            .map(|dra| dra.extended_resource_name)
            .unwrap_or_default()
        {
            ExtendedResourceName::Publish => publish.push(&cohort.name),
            ExtendedResourceName::Omit => omit.push(&cohort.name),
        }
    }
    if !publish.is_empty() && !omit.is_empty() {
        checker.problem(
            "spec.cohorts[].nvidia.dra.extendedResourceName",
            format!("Publish in {} but not in {}", publish.join(", "), omit.join(", ")),
            "the same in every NVIDIA cohort with owner DRA: it is a field of the one DeviceClass that they share",
        );
    }
    !publish.is_empty()
}
