//! Preconditions: what must hold before an owner can be wanted on a node.

use super::{ClusterView, NodeView, mig};
use crate::blocker::{Blocker, Reason};
use crate::catalogue::{self, Floor, INSTANCE_TYPE_LABEL, MPS_LABEL, Operand, Subject, Version};
use crate::intent::{Cohort, Layout, Taint};
use crate::names;
use crate::report::VendorReport;
use crate::vendor::{Owner, Vendor};

/// What is the same for every node of the cohort.
pub(super) fn cluster(
    cohort: &Cohort,
    operand: &Operand,
    cluster: &ClusterView,
) -> Result<(), Blocker> {
    let Cohort {
        name,
        owner,
        runtime_class,
        config_map,
        dra,
        ..
    } = cohort;
    let server = cluster.server_version.as_str();
    if let Some(floor) = operand.floor(Subject::ControlPlane) {
        meets(
            floor,
            server,
            Reason::ControlPlaneTooOld,
            "the API server",
            &wants(cohort, operand),
        )?;
    }
    if dra.publishes_extended_resource {
        let who = format!("nvidia.dra.extendedResourceName: Publish in cohort {name}");
        meets(
            &catalogue::PUBLISH_FLOOR,
            server,
            Reason::ControlPlaneTooOld,
            "the API server",
            &who,
        )?;
    }
    if *owner == Owner::Dra && !cluster.dra_api {
        return Err(Blocker::new(
            Reason::DraApiUnavailable,
            format!(
                "the API server ({server}) does not serve resource.k8s.io/v1, which cohort {name} with owner DRA needs"
            ),
        ));
    }
    if let Some(class) = runtime_class
        && !cluster.runtime_classes.contains(class)
    {
        return Err(Blocker::new(
            Reason::RuntimeClassMissing,
            format!("RuntimeClass {class}, which cohort {name} names, does not exist"),
        ));
    }
    if let Some((map, key)) = config_map {
        let space = names::OPERAND_NAMESPACE;
        let missing = match cluster.config_maps.get(map) {
            None => Some(format!(
                "ConfigMap {space}/{map}, which cohort {name} names, does not exist"
            )),
            Some(keys) if !keys.contains(key) => Some(format!(
                "ConfigMap {space}/{map} has no key {key}, which cohort {name} names"
            )),
            Some(_) => None,
        };
        if let Some(message) = missing {
            return Err(Blocker::new(Reason::ConfigNotFound, message));
        }
    }
    Ok(())
}

/// What the Node object says.
pub(super) fn node(cohort: &Cohort, operand: &Operand, node: &NodeView) -> Result<(), Blocker> {
    let what = "the kubelet";
    if let Some(floor) = operand.floor(Subject::Kubelet) {
        meets(
            floor,
            &node.kubelet_version,
            Reason::KubeletTooOld,
            what,
            &wants(cohort, operand),
        )?;
    }
    if cohort.dra.publishes_extended_resource {
        let who = format!(
            "nvidia.dra.extendedResourceName: Publish in cohort {}",
            cohort.name
        );
        meets(
            &catalogue::PUBLISH_FLOOR,
            &node.kubelet_version,
            Reason::KubeletTooOld,
            what,
            &who,
        )?;
    }
    if let Some(taint) = catalogue::untolerated(cohort.vendor, &node.taints, &cohort.tolerations) {
        let Taint { key, value, effect } = taint;
        let equals = if value.is_empty() {
            String::new()
        } else {
            format!("={value}")
        };
        return Err(Blocker::new(
            Reason::UntoleratedTaint,
            format!(
                "taint {key}{equals}:{effect} keeps the {} of cohort {} away",
                operand.title, cohort.name
            ),
        ));
    }
    let mps = cohort.vendor == Vendor::Nvidia
        && cohort.owner == Owner::DevicePlugin
        && !cohort.mps
        && node
            .labels
            .get(MPS_LABEL)
            .is_some_and(|value| value == "true");
    if mps {
        return Err(Blocker::new(
            Reason::UnexpectedMps,
            format!(
                "label {MPS_LABEL}=true, but cohort {} does not ask for MPS",
                cohort.name
            ),
        ));
    }
    Ok(())
}

/// What the agent says about the driver.
pub(super) fn driver(
    cohort: &Cohort,
    operand: &Operand,
    part: &VendorReport,
) -> Result<(), Blocker> {
    if part.inventory.devices == 0 {
        return Err(Blocker::new(
            Reason::DriverMissing,
            format!(
                "{} {} device(s) on the PCI bus, and no driver that serves them",
                part.pci_devices, cohort.vendor
            ),
        ));
    }
    let Some(floor) = operand.floor(Subject::Driver) else {
        return Ok(());
    };
    let found = part.inventory.driver_version.as_deref().unwrap_or_default();
    if cohort.accept_unknown_driver && Version::parse(found).is_none() {
        return Ok(());
    }
    let what = format!("the {} driver", cohort.vendor);
    meets(
        floor,
        found,
        Reason::DriverTooOld,
        &what,
        &wants(cohort, operand),
    )
}

/// Whether this hardware can have the wanted geometry, and somebody is there to make it. Whether a MIG layout fits a board is
/// for the board to say: the rows are those of its own driver, not those of a table.
pub(super) fn layout(cohort: &Cohort, node: &NodeView, part: &VendorReport) -> Result<(), Blocker> {
    let wanted = match &cohort.layout {
        Some(Layout::LogicalNeuronCore(wanted)) => wanted,
        Some(Layout::Mig(layouts)) => {
            let under_way = super::is_ours(cohort.vendor, node)
                && (!super::held_by_another(cohort, node) || super::is_fenced(cohort.vendor, node));
            return mig::fits(cohort, layouts, part, under_way);
        }
        None => return Ok(()),
    };
    let label = node.labels.get(INSTANCE_TYPE_LABEL).map(String::as_str);
    let instance = part.instance_type.as_deref().or(label).unwrap_or("unknown");
    let why = match catalogue::neuron_family(Some(part), label) {
        Some(family) if family.lnc_configurable => {
            return if part.layout.logical_neuron_core == Some(i32::from(*wanted)) {
                Ok(())
            } else {
                mig::shaper_spoke(cohort, part)
            };
        }
        Some(family) => format!("is fixed at {} on {}", family.default_lnc, family.chip),
        None => "is not known to be configurable there".to_owned(),
    };
    Err(Blocker::new(
        Reason::LncNotConfigurable,
        format!(
            "instance type {instance}: the Logical NeuronCore setting {why}; cohort {} asks for {wanted}",
            cohort.name
        ),
    ))
}

/// `the NVIDIA DRA driver of cohort h100-dra`.
fn wants(cohort: &Cohort, operand: &Operand) -> String {
    format!("the {} of cohort {}", operand.title, cohort.name)
}

/// Holds a version against a floor. An unreadable version meets none.
fn meets(
    floor: &Floor,
    found: &str,
    too_old: Reason,
    what: &str,
    who: &str,
) -> Result<(), Blocker> {
    match Version::parse(found) {
        Some(version) if version.meets(floor.version) => Ok(()),
        Some(_) => Err(Blocker::new(
            too_old,
            format!(
                "{what} is {found}; {who} needs {} or later: {}",
                floor.version, floor.reason
            ),
        )),
        None => Err(Blocker::new(
            Reason::VersionUnknown,
            format!(
                "{what} does not tell its version (found {found:?}); {who} needs {} or later",
                floor.version
            ),
        )),
    }
}
