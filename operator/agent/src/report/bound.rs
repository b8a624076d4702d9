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
    let steps: [fn(&mut NodeReport); 8] = [
        |report| each_part_keeps(report, 2, 4, 96),
        |report| shorten(report, 3, 192),
        |report| each_part_keeps(report, 1, 1, 64),
        |report| shorten(report, 1, 128),
        |report| each_part_names(report, 4, 40),
        |report| each_shaper_says(report, 96),
        |report| each_part_names(report, 2, 24),
        // Last: without them a new layout has to wait, and with them cut short one would be judged wrongly.
        without_boards,
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

fn each_shaper_says(report: &mut NodeReport, length: usize) {
    for vendor in Vendor::ALL {
        let part = report.vendor_mut(vendor).as_mut();
        if let Some(message) = part
            .and_then(|part| part.layout.shaping.as_mut())
            .and_then(|shaping| shaping.message.as_mut())
        {
            cut(message, length);
        }
    }
}

fn without_boards(report: &mut NodeReport) {
    for vendor in Vendor::ALL {
        if let Some(part) = report.vendor_mut(vendor) {
            part.layout.boards_left_out |= !part.layout.boards.is_empty();
            part.layout.boards.clear();
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
    use freehold_core::geometry::{Board, Profile};
    use freehold_core::report::{
        InUse, Inventory, LayoutReport, MigProfileCount, Model, Shaping, ShapingOutcome,
        VendorReport,
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

    /// The two longest tables that are known, as boards of two families print them (NVIDIA MIG user guide).
    const RTX_PRO_6000: [&str; 11] = [
        "1g.24gb",
        "1g.24gb+me",
        "1g.24gb+gfx",
        "1g.24gb+me.all",
        "1g.24gb-me",
        "2g.48gb",
        "2g.48gb+gfx",
        "2g.48gb+me.all",
        "2g.48gb-me",
        "4g.96gb",
        "4g.96gb+gfx",
    ];
    const H200: [&str; 7] = [
        "1g.18gb",
        "1g.18gb+me",
        "1g.35gb",
        "2g.35gb",
        "3g.71gb",
        "4g.71gb",
        "7g.141gb",
    ];

    fn board(gpus: std::ops::Range<u32>, names: &[&str]) -> Board {
        let row = |(name, id): (&&str, u32)| Profile {
            name: (*name).to_owned(),
            id,
            slices: 4,
            size: 12,
            starts: vec![0, 3, 6, 9],
            max: 4,
        };
        Board {
            gpus: gpus.collect(),
            profiles: names.iter().zip(40..).map(row).collect(),
        }
    }

    /// A full report of GPUs of two families, each GPU cut into some of its kinds of instances.
    fn shaped(gpus: u32, kinds: usize) -> NodeReport {
        let mut report = NodeReport {
            node_uid: "u".repeat(36),
            boot_id: "b".repeat(36),
            agent_version: "0.1.0".into(),
            nvidia: Some(full_part()),
            errors: vec!["e".repeat(300); 9],
            ..NodeReport::default()
        };
        let part = report.nvidia.as_mut().unwrap();
        part.layout.shaping = Some(Shaping {
            outcome: ShapingOutcome::Failed,
            message: Some("s".repeat(256)),
        });
        part.layout.boards = vec![
            board(0..gpus / 2, &RTX_PRO_6000),
            board(gpus / 2..gpus, &H200),
        ];
        let cut: Vec<_> = RTX_PRO_6000
            .iter()
            .take(kinds)
            .map(|profile| MigProfileCount {
                profile: (*profile).to_owned(),
                count: 2,
            })
            .collect();
        part.layout.mig = (0..gpus)
            .map(|gpu| (gpu.to_string(), cut.clone()))
            .collect();
        report
    }

    #[test]
    fn a_node_with_two_kinds_of_boards_tells_both_tables_whole_and_where_its_shaper_stands() {
        let full = shaped(8, 2);
        let bounded = within(full.clone());
        assert!(size(&bounded) <= MAX_REPORT, "{} bytes", size(&bounded));
        let (before, after) = (
            &full.nvidia.unwrap().layout,
            &bounded.nvidia.as_ref().unwrap().layout,
        );
        assert_eq!((&before.mig, &before.boards), (&after.mig, &after.boards));
        assert!(!after.boards_left_out);
        let shaping = after.shaping.as_ref().unwrap();
        assert_eq!(shaping.outcome, ShapingOutcome::Failed);
        assert!(shaping.message.as_ref().unwrap().len() >= 96);
        assert_eq!(within(bounded.clone()), bounded);
    }

    #[test]
    fn a_table_that_has_no_room_is_left_out_whole_and_the_instances_stay() {
        let full = shaped(16, 3);
        let bounded = within(full.clone());
        assert!(size(&bounded) <= MAX_REPORT, "{} bytes", size(&bounded));
        let (before, after) = (full.nvidia.unwrap().layout, bounded.nvidia.unwrap().layout);
        assert_eq!(before.mig, after.mig);
        assert!(after.boards.is_empty() && after.boards_left_out);
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
