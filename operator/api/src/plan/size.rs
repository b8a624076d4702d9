//! Sizes.

use std::collections::BTreeSet;

use freehold_core::catalogue::neuron_family;
use freehold_core::vendor::Vendor;

use super::check::{Checker, is_dns_subdomain, quoted};
use super::{SizeCount, SizePlan, SizeVendor};
use crate::{Size, SizeDevices};

/// Most devices in one claim (`resource.k8s.io/v1`, AllocationResultsMaxSize).
const MAX_DEVICES: u32 = 32;
/// Longest name of a DeviceClass that still has an implicit extended resource name.
const MAX_CLASS_NAME: usize = 63;
/// The vendors' own classes, which Freehold keeps itself.
const VENDOR_CLASSES: [&str; 4] = [
    "gpu.nvidia.com",
    "mig.nvidia.com",
    "vfio.gpu.nvidia.com",
    "neuron.aws.com",
];

pub(super) fn parse(checker: &mut Checker, raw: &Size) -> SizePlan {
    let Size {
        name,
        vendor,
        device_type,
        namespaces,
        device_class_name,
        request_name,
        devices,
        align_by,
        selectors,
        logical_neuron_core,
    } = raw;
    let at = format!("spec.sizes[{name}]");
    let name = checker.dns_label(&format!("{at}.name"), name);
    let namespaces: BTreeSet<String> = namespaces
        .iter()
        .map(|namespace| checker.dns_label(&format!("{at}.namespaces"), namespace))
        .collect();
    let device_class = device_class_name.as_ref().inspect(|class| {
        let field = format!("{at}.deviceClassName");
        if class.len() > MAX_CLASS_NAME || !is_dns_subdomain(class) {
            checker.problem(
                &field,
                quoted(class),
                "a DNS name of at most 63 characters, e.g. hybrid-large-gpu",
            );
        }
        if VENDOR_CLASSES.contains(&class.as_str()) {
            checker.problem(
                &field,
                quoted(class),
                "a name of your own: Freehold keeps the vendors' classes itself",
            );
        }
    });
    let count = count(checker, &format!("{at}.devices"), devices);
    let default_request = match vendor {
        Vendor::Nvidia => "gpu",
        Vendor::Neuron => "neurons",
    };
    let request = request_name.as_deref().map_or_else(
        || default_request.to_owned(),
        |request| checker.dns_label(&format!("{at}.requestName"), request),
    );
    if let Some(attribute) = align_by {
        check_align_by(checker, &format!("{at}.alignBy"), attribute, count);
    }
    for (index, selector) in selectors
        .iter()
        .enumerate()
        .filter(|(_, selector)| selector.trim().is_empty())
    {
        checker.problem(
            format!("{at}.selectors[{index}]"),
            quoted(selector),
            "a CEL expression over device",
        );
    }
    if namespaces.is_empty() {
        if device_class.is_none() {
            checker.problem(
                &at,
                "neither namespaces nor deviceClassName",
                "one of them: there is nothing to keep for this size",
            );
        }
        // Counts, alignment and the request's name are parts of a claim; a DeviceClass has no place for them.
        if align_by.is_some() || request_name.is_some() || count != SizeCount::Exactly(1) {
            let found = "alignBy, requestName or more than one device, without namespaces";
            checker.problem(&at, found, "namespaces as well: these are parts of the templates, a DeviceClass cannot hold them");
        }
    }
    let devices = match vendor {
        Vendor::Nvidia => {
            if logical_neuron_core.is_some() {
                checker.problem(
                    format!("{at}.logicalNeuronCore"),
                    "a setting of Neuron devices",
                    "none with vendor NVIDIA",
                );
            }
            SizeVendor::Nvidia(device_type.unwrap_or_default())
        }
        Vendor::Neuron => {
            if device_type.is_some() {
                checker.problem(
                    format!("{at}.deviceType"),
                    "a type of NVIDIA devices",
                    "none with vendor Neuron",
                );
            }
            let field = format!("{at}.logicalNeuronCore");
            if logical_neuron_core.is_some() {
                for instance_type in selectors
                    .iter()
                    .flat_map(|selector| instance_types(selector))
                {
                    check_lnc(checker, &field, instance_type);
                }
            }
            SizeVendor::Neuron {
                logical_neuron_core: logical_neuron_core
                    .map(|value| checker.logical_neuron_core(&field, value)),
            }
        }
    };
    SizePlan {
        name,
        devices,
        namespaces,
        device_class: device_class.cloned(),
        request,
        count,
        align_by: align_by.clone(),
        selectors: selectors.clone(),
    }
}

/// Instance types that a selector asks for: the literals of `….instanceType == '…'`.
fn instance_types(selector: &str) -> impl Iterator<Item = &str> {
    selector.split("instanceType").skip(1).filter_map(|after| {
        let literal = after.trim_start().strip_prefix("==")?.trim_start();
        let quote = literal.chars().next().filter(|c| ['\'', '"'].contains(c))?;
        Some(literal.get(1..)?.split_once(quote)?.0)
    })
}

/// A setting that the driver refuses for an instance type would fail every pod of the size, and only there.
fn check_lnc(checker: &mut Checker, field: &str, instance_type: &str) {
    if neuron_family(None, Some(instance_type)).is_some_and(|family| !family.lnc_configurable) {
        checker.problem(
            field,
            format!("a setting for {instance_type}"),
            format!("none: LNC value is not configurable for instance type {instance_type}, only for trn2 and trn3"),
        );
    }
}

fn count(checker: &mut Checker, field: &str, raw: &SizeDevices) -> SizeCount {
    let SizeDevices { count, all } = raw;
    match (count, all) {
        (Some(count), false) => {
            SizeCount::Exactly(checker.count(&format!("{field}.count"), *count, 1, MAX_DEVICES))
        }
        (None, true) => SizeCount::All,
        (Some(_), true) | (None, false) => {
            checker.problem(
                field,
                if *all {
                    "a count and all"
                } else {
                    "neither a count nor all"
                },
                "either a count or all: true",
            );
            SizeCount::All
        }
    }
}

fn check_align_by(checker: &mut Checker, field: &str, attribute: &str, count: SizeCount) {
    let name_ok = |name: &str| {
        name.len() <= 32
            && name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    if !attribute.split_once('/').is_some_and(|(domain, name)| {
        is_dns_subdomain(domain) && domain.len() <= 63 && name_ok(name)
    }) {
        checker.problem(
            field,
            quoted(attribute),
            "a fully qualified device attribute, e.g. resource.aws.com/devicegroup4_id",
        );
    }
    if count == SizeCount::Exactly(1) {
        checker.problem(
            field,
            "one device",
            "more than one: alignment says what several devices share",
        );
    }
}
