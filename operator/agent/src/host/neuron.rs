//! AWS Neuron's driver, devices and Logical NeuronCore setting, from sysfs.

use std::collections::{BTreeMap, BTreeSet};

use freehold_core::report::{Inventory, LayoutReport, Model};

use super::inventory::noted;
use super::{Host, ReadError};
use crate::shape::lnc::file::KEYS;

/// One entry for each device.
pub const DEVICES: &str = "/sys/devices/virtual/neuron_device";
const MODULE: &str = "/sys/module/neuron";
/// The node's setting; AWS documents it for launch templates.
pub const LNC_FILE: &str = "/opt/aws/neuron/logical_nc_config";

/// Driver, devices and the Logical NeuronCore setting in force.
pub fn inventory(host: &Host, errors: &mut Vec<ReadError>) -> (Inventory, LayoutReport) {
    let names = noted(errors, Vec::new(), || {
        host.names(DEVICES).map(Option::unwrap_or_default)
    });
    let devices: Vec<_> = names.into_iter().filter(|name| is_device(name)).collect();
    let driver_version = noted(errors, None, || driver_version(host));
    let mut models = BTreeMap::<String, i32>::new();
    let mut physical = Some(0_i32);
    for device in &devices {
        let name = noted(errors, None, || {
            host.text(&format!("{DEVICES}/{device}/info/architecture/device_name"))
        });
        let name = name.filter(|name| !name.is_empty()).map_or_else(
            || "unknown".to_owned(),
            |name| name.chars().take(64).collect(),
        );
        let count = models.entry(name).or_default();
        *count = count.saturating_add(1);
        let cores = noted(errors, None, || core_count(host, device).map(Some));
        physical = physical
            .zip(cores)
            .map(|(sum, cores)| sum.saturating_add(cores));
    }
    // Cores that cannot be read make the sum unknown, not smaller.
    let physical = physical.filter(|_| !devices.is_empty());
    let lnc = if devices.is_empty() {
        None
    } else {
        noted(errors, None, || lnc_in_force(host, models.keys()))
    };
    let inventory = Inventory {
        driver_version: driver_version.or_else(|| (!devices.is_empty()).then(String::new)),
        devices: i32::try_from(devices.len()).unwrap_or(i32::MAX),
        models: models
            .into_iter()
            .map(|(name, count)| Model {
                name,
                count,
                memory_mib: None,
            })
            .collect(),
        physical_cores: physical,
        logical_cores: physical.zip(lnc).map(|(cores, lnc)| cores / lnc),
    };
    (
        inventory,
        LayoutReport {
            logical_neuron_core: lnc,
            ..LayoutReport::default()
        },
    )
}

fn is_device(name: &str) -> bool {
    name.strip_prefix("neuron").is_some_and(|number| {
        !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
    })
}

/// `None` without a driver, empty when it is loaded and says nothing.
fn driver_version(host: &Host) -> Result<Option<String>, ReadError> {
    if let Some(version) = host.text(&format!("{MODULE}/version"))? {
        return Ok(Some(version.chars().take(64).collect()));
    }
    Ok(host.exists(MODULE)?.then(String::new))
}

/// Physical cores of one device. Drivers before 2.28 keep the file at mode 0400.
fn core_count(host: &Host, device: &str) -> Result<i32, ReadError> {
    let path = format!("{DEVICES}/{device}/core_count");
    let text = host
        .text(&path)?
        .ok_or_else(|| ReadError::new(path.as_str(), "no such file"))?;
    match text.parse() {
        Ok(cores) if (1..=1024).contains(&cores) => Ok(cores),
        Ok(_) | Err(_) => Err(ReadError::new(
            path,
            format_args!("{text:?} is not a number of cores"),
        )),
    }
}

/// How a family of devices treats the Logical NeuronCore setting (AWS Neuron documentation, Logical NeuronCore configuration).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    /// Trainium2 and Trainium3: 1 or 2, and 2 where nothing is set.
    Configurable,
    /// Inferentia, Inferentia2, Trainium1: always 1.
    Fixed,
    /// A name that this version does not know.
    Unknown,
}

impl Family {
    fn of(device_name: &str) -> Self {
        match device_name {
            "Trainium2" | "Trainium3" => Self::Configurable,
            "Inferentia" | "Inferentia1" | "Inferentia2" | "Trainium" | "Trainium1" => Self::Fixed,
            _ => Self::Unknown,
        }
    }
}

/// The setting in force; `None` when the family's rule is not known.
fn lnc_in_force<'a>(
    host: &Host,
    models: impl Iterator<Item = &'a String>,
) -> Result<Option<i32>, ReadError> {
    let families: Vec<_> = models.map(|name| Family::of(name)).collect();
    let [family] = families.as_slice() else {
        return Err(ReadError::new(
            DEVICES,
            "devices of different families on one host: no common Logical NeuronCore setting",
        ));
    };
    let set = host
        .text(LNC_FILE)?
        .map(|text| parse_lnc(&text))
        .unwrap_or_default();
    if let Some(odd) = set
        .iter()
        .find(|value| !matches!(value.as_str(), "1" | "2"))
    {
        return Err(ReadError::new(
            LNC_FILE,
            format_args!("{odd:?} is not 1 or 2; write one line NEURON_LOGICAL_NC_CONFIG=<1|2>"),
        ));
    }
    let set: Vec<i32> = set.iter().filter_map(|value| value.parse().ok()).collect();
    match (family, set.as_slice()) {
        (Family::Configurable, []) => Ok(Some(2)),
        (Family::Configurable, [value]) => Ok(Some(*value)),
        // The documented way to set the value appends to the file, so that setting it back leaves both.
        (Family::Configurable, _) => Err(ReadError::new(
            LNC_FILE,
            "holds both 1 and 2, and which one holds is not defined; leave one line",
        )),
        (Family::Fixed, _) => Ok(Some(1)),
        (Family::Unknown, _) => Ok(None),
    }
}

/// The distinct values in a setting file. AWS's snippet appends without a newline, so `KEY=1KEY=2` on one line is real.
fn parse_lnc(text: &str) -> BTreeSet<String> {
    let mut values = BTreeSet::new();
    for line in text
        .lines()
        .map(str::trim)
        .filter(|line| !line.starts_with('#'))
    {
        for key in KEYS {
            for piece in line.split(key).skip(1) {
                let Some(value) = piece.trim_start().strip_prefix('=') else {
                    continue;
                };
                let value = value.trim_start().trim_start_matches(['"', '\'']);
                // The value ends where the next key, a quote or a blank begins.
                let value: String = value
                    .chars()
                    .take_while(|char| char.is_ascii_digit() || *char == '-')
                    .take(8)
                    .collect();
                values.insert(value);
            }
        }
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(text: &str) -> Vec<String> {
        parse_lnc(text).into_iter().collect()
    }

    #[test]
    fn a_setting_is_read_with_and_without_its_newline() {
        assert_eq!(values("NEURON_LOGICAL_NC_CONFIG=1\n"), ["1"]);
        assert_eq!(values("NEURON_LOGICAL_NC_CONFIG=2"), ["2"]);
        assert_eq!(values("export NEURON_LOGICAL_NC_CONFIG=\"1\""), ["1"]);
        assert_eq!(
            values("NEURON_RT_VIRTUAL_CORE_SIZE=1\n"),
            ["1"],
            "the older alias"
        );
        assert!(values("# NEURON_LOGICAL_NC_CONFIG=1\n").is_empty());
    }

    #[test]
    fn appended_duplicates_are_all_seen() {
        assert_eq!(
            values("NEURON_LOGICAL_NC_CONFIG=1NEURON_LOGICAL_NC_CONFIG=2"),
            ["1", "2"]
        );
        assert_eq!(
            values("NEURON_LOGICAL_NC_CONFIG=2\nNEURON_LOGICAL_NC_CONFIG=2\n"),
            ["2"]
        );
    }

    #[test]
    fn only_numbered_entries_are_devices() {
        assert!(is_device("neuron0") && is_device("neuron15"));
        assert!(!is_device("neuron") && !is_device("neuron_core0") && !is_device("power"));
    }
}
