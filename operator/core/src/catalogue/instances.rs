//! Neuron instance types and families.
//!
//! Types that are not listed are accepted: the agent's inventory says what a host has. The tables answer only what the host
//! cannot: whether the Logical NeuronCore setting can be changed, what it is when nobody set it, and how many physical cores a
//! device has where the driver does not tell.

use crate::report::VendorReport;

/// A family of Neuron chips.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NeuronFamily {
    /// Chip as the driver says it (`info/architecture/device_name`).
    pub chip: &'static str,
    /// What the family's EC2 instance types begin with.
    pub prefixes: &'static [&'static str],
    /// Physical NeuronCores of one device.
    pub cores_per_device: i32,
    /// Logical NeuronCore setting in force when nobody set one.
    pub default_lnc: i32,
    /// Whether the setting can be 1 or 2; otherwise it is fixed at 1.
    pub lnc_configurable: bool,
    /// Where the facts come from.
    pub source: &'static str,
}

const LNC_SOURCE: &str =
    "Neuron SDK 2.32, Logical NeuronCore configuration (Trn2 and Trn3 only, values 1 and 2)";

const INFERENTIA: NeuronFamily = NeuronFamily {
    chip: "Inferentia",
    prefixes: &["inf1."],
    cores_per_device: 4,
    default_lnc: 1,
    lnc_configurable: false,
    source: LNC_SOURCE,
};
const INFERENTIA2: NeuronFamily = NeuronFamily {
    chip: "Inferentia2",
    prefixes: &["inf2."],
    cores_per_device: 2,
    ..INFERENTIA
};
const TRAINIUM: NeuronFamily = NeuronFamily {
    chip: "Trainium1",
    prefixes: &["trn1.", "trn1n."],
    cores_per_device: 2,
    ..INFERENTIA
};
const TRAINIUM2: NeuronFamily = NeuronFamily {
    chip: "Trainium2",
    prefixes: &["trn2"],
    cores_per_device: 8,
    default_lnc: 2,
    lnc_configurable: true,
    source: LNC_SOURCE,
};
/// That Trn3 starts at 2 like Trn2 is inferred: AWS documents the values, not this default.
const TRAINIUM3: NeuronFamily = NeuronFamily {
    chip: "Trainium3",
    prefixes: &["trn3"],
    ..TRAINIUM2
};

/// The families.
pub const NEURON_FAMILIES: &[NeuronFamily] =
    &[INFERENTIA, INFERENTIA2, TRAINIUM, TRAINIUM2, TRAINIUM3];

/// An EC2 instance type with Neuron devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NeuronInstance {
    /// Name.
    pub name: &'static str,
    /// Neuron devices.
    pub devices: i32,
    /// Its chips.
    pub family: &'static NeuronFamily,
    /// Part of an UltraServer, where the DRA driver may publish devices beyond the node's own (`neuron_node`).
    pub ultra_server: bool,
}

const fn row(name: &'static str, devices: i32, family: &'static NeuronFamily) -> NeuronInstance {
    NeuronInstance {
        name,
        devices,
        family,
        ultra_server: false,
    }
}

const fn ultra(name: &'static str, devices: i32, family: &'static NeuronFamily) -> NeuronInstance {
    NeuronInstance {
        name,
        devices,
        family,
        ultra_server: true,
    }
}

/// Instance types. Sources: EC2 instance type pages and Karpenter's table for devices; the kernel driver's own map for
/// UltraServers. Trn3 device counts follow the published server generations (16 in a 48xlarge, 4 in a 24xlarge).
pub const NEURON_INSTANCES: &[NeuronInstance] = &[
    row("inf1.xlarge", 1, &INFERENTIA),
    row("inf1.2xlarge", 1, &INFERENTIA),
    row("inf1.6xlarge", 4, &INFERENTIA),
    row("inf1.24xlarge", 16, &INFERENTIA),
    row("inf2.xlarge", 1, &INFERENTIA2),
    row("inf2.8xlarge", 1, &INFERENTIA2),
    row("inf2.24xlarge", 6, &INFERENTIA2),
    row("inf2.48xlarge", 12, &INFERENTIA2),
    row("trn1.2xlarge", 1, &TRAINIUM),
    row("trn1.32xlarge", 16, &TRAINIUM),
    row("trn1n.32xlarge", 16, &TRAINIUM),
    row("trn2.3xlarge", 1, &TRAINIUM2),
    row("trn2.48xlarge", 16, &TRAINIUM2),
    ultra("trn2u.48xlarge", 16, &TRAINIUM2),
    ultra("trn2p.48xlarge", 16, &TRAINIUM2),
    ultra("trn2eu.48xlarge", 16, &TRAINIUM2),
    ultra("trn3.48xlarge", 16, &TRAINIUM3),
    ultra("trn3s-es.48xlarge", 16, &TRAINIUM3),
    ultra("trn3sn.48xlarge", 16, &TRAINIUM3),
    ultra("trn3p.48xlarge", 16, &TRAINIUM3),
    ultra("trn3e.24xlarge", 4, &TRAINIUM3),
    ultra("trn3en.24xlarge", 4, &TRAINIUM3),
];

/// SageMaker HyperPod puts this before EC2's names.
const SAGEMAKER_PREFIX: &str = "ml.";

/// The row of an instance type, with or without SageMaker's `ml.`.
#[must_use]
pub fn neuron_instance(name: &str) -> Option<&'static NeuronInstance> {
    let name = name.strip_prefix(SAGEMAKER_PREFIX).unwrap_or(name);
    NEURON_INSTANCES.iter().find(|row| row.name == name)
}

/// The family of a host: by the chips that its driver names, else by the instance type (of the host's firmware, then of the
/// node's label). `None` when none of these is known.
#[must_use]
pub fn neuron_family(
    report: Option<&VendorReport>,
    instance_type: Option<&str>,
) -> Option<&'static NeuronFamily> {
    let by_chip = report.and_then(|report| {
        let name = &report.inventory.models.first()?.name;
        NEURON_FAMILIES.iter().find(|family| family.chip == name)
    });
    let by_type = |name: &str| {
        let name = name.strip_prefix(SAGEMAKER_PREFIX).unwrap_or(name);
        NEURON_FAMILIES.iter().find(|family| {
            family
                .prefixes
                .iter()
                .any(|prefix| name.starts_with(prefix))
        })
    };
    by_chip
        .or_else(|| {
            report
                .and_then(|report| report.instance_type.as_deref())
                .and_then(by_type)
        })
        .or_else(|| instance_type.and_then(by_type))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Inventory, Model};

    #[test]
    fn listed_types_carry_the_counts_that_aws_publishes() {
        // (type, devices, physical cores over all devices)
        for (name, devices, cores) in [
            ("inf1.24xlarge", 16, 64),
            ("inf2.24xlarge", 6, 12),
            ("inf2.48xlarge", 12, 24),
            ("trn1.2xlarge", 1, 2),
            ("trn1.32xlarge", 16, 32),
            ("ml.trn1n.32xlarge", 16, 32),
            ("trn2.3xlarge", 1, 8),
            ("trn2.48xlarge", 16, 128),
        ] {
            let row = neuron_instance(name).unwrap_or_else(|| panic!("{name} is listed"));
            assert_eq!(
                (row.devices, row.devices * row.family.cores_per_device),
                (devices, cores),
                "{name}"
            );
        }
    }

    #[test]
    fn every_listed_type_belongs_to_the_family_that_its_name_says() {
        for row in NEURON_INSTANCES {
            assert_eq!(
                neuron_family(None, Some(row.name)),
                Some(row.family),
                "{}",
                row.name
            );
        }
    }

    #[test]
    fn an_unlisted_type_is_known_by_its_family_and_a_foreign_one_is_not() {
        for (name, chip, configurable) in [
            ("trn2e.48xlarge", Some("Trainium2"), true),
            ("trn3pd98.3xlarge", Some("Trainium3"), true),
            ("inf2.96xlarge", Some("Inferentia2"), false),
            ("trn1n.2xlarge", Some("Trainium1"), false),
            ("p5.48xlarge", None, false),
            ("", None, false),
        ] {
            let family = neuron_family(None, Some(name));
            assert_eq!(family.map(|f| f.chip), chip, "{name}");
            assert_eq!(
                family.is_some_and(|f| f.lnc_configurable),
                configurable,
                "{name}"
            );
        }
    }

    #[test]
    fn what_the_host_says_counts_more_than_the_label() {
        let report = VendorReport {
            instance_type: Some("trn2.48xlarge".into()),
            inventory: Inventory {
                models: vec![Model {
                    name: "Trainium3".into(),
                    count: 4,
                    memory_mib: None,
                }],
                ..Inventory::default()
            },
            ..VendorReport::default()
        };
        assert_eq!(
            neuron_family(Some(&report), Some("trn1.2xlarge")).map(|f| f.chip),
            Some("Trainium3")
        );
        let nameless = VendorReport {
            inventory: Inventory::default(),
            ..report
        };
        assert_eq!(
            neuron_family(Some(&nameless), Some("trn1.2xlarge")).map(|f| f.chip),
            Some("Trainium2")
        );
    }
}
