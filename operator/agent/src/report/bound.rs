//! Keeps a report small, whatever the node does. Names go, counts stay.

use freehold_core::report::NodeReport;
use freehold_core::vendor::Vendor;

/// Largest report in bytes of JSON. An object may have 4 KiB; orders, tenures with their messages and the condition need a
/// quarter of it.
pub const MAX_REPORT: usize = 3072;

/// Most errors: the API's bound.
const MAX_ERRORS: usize = 5;
/// Longest error: the API's bound.
const MAX_ERROR: usize = 256;
/// Most models: the API's bound.
const MAX_MODELS: usize = 8;

/// The report within its bounds. Equal input gives equal output.
#[must_use]
pub fn within(mut report: NodeReport) -> NodeReport {
    shorten(&mut report, MAX_ERRORS, MAX_ERROR);
    for vendor in Vendor::ALL {
        if let Some(part) = report.vendor_mut(vendor) {
            part.inventory.models.truncate(MAX_MODELS);
        }
    }
    // Each step gives up what a person misses least.
    let steps: [fn(&mut NodeReport); 5] = [
        |report| each_part_keeps(report, 2, 4, 96),
        |report| shorten(report, 3, 192),
        |report| each_part_keeps(report, 1, 1, 64),
        |report| shorten(report, 1, 128),
        |report| each_part_names(report, 4, 40),
    ];
    for step in steps {
        if size(&report) <= MAX_REPORT {
            break;
        }
        step(&mut report);
    }
    report
}

fn size(report: &NodeReport) -> usize {
    serde_json::to_vec(report).map_or(usize::MAX, |bytes| bytes.len())
}

fn shorten(report: &mut NodeReport, errors: usize, length: usize) {
    report.errors.truncate(errors);
    for error in &mut report.errors {
        cut(error, length);
    }
}

fn each_part_keeps(report: &mut NodeReport, holders: usize, sockets: usize, length: usize) {
    for vendor in Vendor::ALL {
        let Some(part) = report.vendor_mut(vendor) else {
            continue;
        };
        part.in_use.holders.truncate(holders);
        part.plugin_sockets.truncate(sockets);
        for name in part
            .in_use
            .holders
            .iter_mut()
            .chain(&mut part.plugin_sockets)
        {
            cut(name, length);
        }
    }
}

/// The number of devices says how many there are in all.
fn each_part_names(report: &mut NodeReport, models: usize, length: usize) {
    for vendor in Vendor::ALL {
        let Some(part) = report.vendor_mut(vendor) else {
            continue;
        };
        part.inventory.models.truncate(models);
        for model in &mut part.inventory.models {
            cut(&mut model.name, length);
        }
    }
}

/// Keeps the first characters, and shows that there were more.
fn cut(text: &mut String, length: usize) {
    if text.chars().count() > length {
        *text = text
            .chars()
            .take(length.saturating_sub(1))
            .chain(['…'])
            .collect();
    }
}

#[cfg(test)]
mod tests {
    use freehold_core::report::{
        InUse, Inventory, LayoutReport, MigProfileCount, Model, VendorReport,
    };

    use super::*;

    fn full_part() -> VendorReport {
        let mig = (0..16).map(|gpu| {
            (
                gpu.to_string(),
                vec![MigProfileCount {
                    profile: "unknown".into(),
                    count: 7,
                }],
            )
        });
        VendorReport {
            observed_term: i64::MAX,
            pci_devices: 1024,
            inventory: Inventory {
                driver_version: Some("9".repeat(64)),
                devices: 1024,
                models: (0..9)
                    .map(|at| Model {
                        name: format!("{at}{}", "m".repeat(63)),
                        count: 9,
                        memory_mib: None,
                    })
                    .collect(),
                ..Inventory::default()
            },
            in_use: InUse {
                device_plugin: 4711,
                dra: 815,
                holders: vec!["h".repeat(256); 5],
                unknown: true,
            },
            plugin_sockets: vec!["s".repeat(128); 8],
            layout: LayoutReport {
                mig_enabled_gpus: 16,
                mig: mig.collect(),
                ..LayoutReport::default()
            },
            ..VendorReport::default()
        }
    }

    #[test]
    fn the_fullest_report_fits_and_keeps_its_counts() {
        let full = NodeReport {
            nvidia: Some(full_part()),
            neuron: Some(VendorReport {
                layout: LayoutReport::default(),
                ..full_part()
            }),
            errors: vec!["e".repeat(300); 9],
            ..NodeReport::default()
        };
        let bounded = within(full.clone());
        assert!(
            size(&bounded) <= MAX_REPORT,
            "{} bytes: {bounded:#?}",
            size(&bounded)
        );
        for vendor in Vendor::ALL {
            let (before, after) = (
                full.vendor(vendor).unwrap(),
                bounded.vendor(vendor).unwrap(),
            );
            let (used, uses) = (&before.in_use, &after.in_use);
            assert_eq!(
                (used.device_plugin, used.dra, used.unknown),
                (uses.device_plugin, uses.dra, uses.unknown)
            );
            assert_eq!(
                before.layout, after.layout,
                "geometry is what readiness is computed from"
            );
            assert!(
                !after.plugin_sockets.is_empty() && !uses.holders.is_empty(),
                "one name each stays: {after:?}"
            );
        }
        assert_eq!(
            within(bounded.clone()),
            bounded,
            "bounding twice changes nothing"
        );
    }

    #[test]
    fn an_ordinary_report_is_left_alone() {
        let report = NodeReport {
            nvidia: Some(VendorReport {
                plugin_sockets: vec!["nvidia-gpu.sock".into()],
                ..VendorReport::default()
            }),
            errors: vec!["/a: b".into()],
            ..NodeReport::default()
        };
        assert_eq!(within(report.clone()), report);
    }
}
