//! Whether a wanted geometry is the one in force.

use std::collections::BTreeMap;

use crate::geometry::wanted_on;
use crate::intent::Layout;
use crate::report::{MigProfileCount, VendorReport};

/// Whether the agent read back exactly this layout. GPUs that no entry names must have no instances; where entries overlap
/// the later one counts. Symbolic requests are compared by the names that the GPU's own table has for them.
///
/// Instances that the agent could count but not name stand for any profile: their number per GPU must be right, and what they
/// are is proven by what the device plugin or driver, which asks NVML, then advertises.
#[must_use]
pub fn layout_in_force(layout: &Layout, report: &VendorReport) -> bool {
    match layout {
        Layout::LogicalNeuronCore(value) => {
            report.layout.logical_neuron_core == Some(i32::from(*value))
        }
        Layout::Mig(layouts) => {
            let Ok(wanted) = wanted_on(layouts, report) else {
                return false;
            };
            let found: Option<BTreeMap<u32, Vec<MigProfileCount>>> = report
                .layout
                .mig
                .iter()
                .filter(|(_, instances)| !instances.is_empty())
                .map(|(gpu, instances)| {
                    let mut instances = instances.clone();
                    instances.sort();
                    Some((gpu.parse().ok()?, instances))
                })
                .collect();
            let Some(found) = found else {
                return false;
            };
            wanted.keys().eq(found.keys())
                && wanted
                    .values()
                    .zip(found.values())
                    .all(|(wanted, found)| same_instances(wanted, found))
        }
    }
}

fn same_instances(wanted: &[MigProfileCount], found: &[MigProfileCount]) -> bool {
    let total = |instances: &[MigProfileCount]| -> i32 { instances.iter().map(|i| i.count).sum() };
    if found
        .iter()
        .any(|i| i.profile == MigProfileCount::UNKNOWN_PROFILE)
    {
        total(wanted) == total(found)
    } else {
        wanted == found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::intent::MigLayout;

    fn instances(profile: &str, count: i32) -> Vec<MigProfileCount> {
        vec![MigProfileCount {
            profile: profile.into(),
            count,
        }]
    }

    fn report(devices: i32, mig: &[(&str, Vec<MigProfileCount>)]) -> VendorReport {
        let mut report = VendorReport::default();
        report.inventory.devices = devices;
        report.layout.mig = mig
            .iter()
            .map(|(gpu, instances)| ((*gpu).to_owned(), instances.clone()))
            .collect();
        report
    }

    #[test]
    fn a_layout_for_all_gpus_is_in_force_only_when_every_gpu_has_it() {
        let layout = Layout::Mig(vec![MigLayout {
            gpus: None,
            instances: instances("2g.20gb", 3),
        }]);
        assert!(layout_in_force(
            &layout,
            &report(
                2,
                &[
                    ("0", instances("2g.20gb", 3)),
                    ("1", instances("2g.20gb", 3))
                ]
            )
        ));
        assert!(!layout_in_force(
            &layout,
            &report(2, &[("0", instances("2g.20gb", 3))])
        ));
    }

    #[test]
    fn a_gpu_that_no_entry_names_must_have_no_instances() {
        let layout = Layout::Mig(vec![MigLayout {
            gpus: Some([1].into()),
            instances: instances("1g.12gb", 7),
        }]);
        assert!(layout_in_force(
            &layout,
            &report(2, &[("1", instances("1g.12gb", 7))])
        ));
        assert!(!layout_in_force(
            &layout,
            &report(
                2,
                &[
                    ("0", instances("1g.12gb", 1)),
                    ("1", instances("1g.12gb", 7))
                ]
            )
        ));
    }

    #[test]
    fn instances_that_cannot_be_named_are_compared_by_their_number() {
        let layout = Layout::Mig(vec![MigLayout {
            gpus: None,
            instances: instances("2g.20gb", 3),
        }]);
        for (count, holds) in [(3, true), (2, false)] {
            let unnamed = report(
                1,
                &[("0", instances(MigProfileCount::UNKNOWN_PROFILE, count))],
            );
            assert_eq!(layout_in_force(&layout, &unnamed), holds, "{count}");
        }
    }

    #[test]
    fn a_later_entry_overrides_an_earlier_one() {
        let layout = Layout::Mig(vec![
            MigLayout {
                gpus: None,
                instances: instances("3g.40gb", 2),
            },
            MigLayout {
                gpus: Some([0].into()),
                instances: vec![],
            },
        ]);
        assert!(layout_in_force(
            &layout,
            &report(2, &[("1", instances("3g.40gb", 2))])
        ));
    }

    #[test]
    fn the_logical_core_setting_is_compared_as_a_number() {
        let mut report = VendorReport::default();
        report.layout.logical_neuron_core = Some(2);
        assert!(layout_in_force(&Layout::LogicalNeuronCore(2), &report));
        assert!(!layout_in_force(&Layout::LogicalNeuronCore(1), &report));
    }
}
