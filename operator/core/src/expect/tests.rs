use super::*;
use crate::intent::MigLayout;
use crate::intent::{DraTraits, Selector};
use crate::report::{Inventory, LayoutReport, MigProfileCount, Model};

fn cohort(vendor: Vendor, owner: Owner) -> Cohort {
    Cohort {
        name: "amber".into(),
        vendor,
        owner,
        selector: Selector::default(),
        tolerations: vec![],
        sharing: Sharing::Exclusive,
        mig_strategy: None,
        layout: None,
        runtime_class: None,
        config_map: None,
        mps: false,
        accept_unknown_driver: false,
        dra: DraTraits::default(),
        shape: "s".into(),
        template: "t".into(),
        max_unavailable: None,
    }
}

fn instances(given: &[(&str, i32)]) -> Vec<MigProfileCount> {
    given
        .iter()
        .map(|(profile, count)| MigProfileCount {
            profile: (*profile).into(),
            count: *count,
        })
        .collect()
}

/// `devices` GPUs, MIG on for `enabled` of them, with these instances by minor number.
fn gpus(devices: i32, enabled: i32, mig: &[(&str, &[(&str, i32)])]) -> VendorReport {
    VendorReport {
        pci_devices: devices,
        inventory: Inventory {
            devices,
            ..Inventory::default()
        },
        layout: LayoutReport {
            mig_enabled_gpus: enabled,
            mig: mig
                .iter()
                .map(|(minor, given)| ((*minor).to_owned(), instances(given)))
                .collect(),
            ..LayoutReport::default()
        },
        ..VendorReport::default()
    }
}

/// GPUs (all when absent) and the instances wanted on each.
type Entry<'a> = (Option<&'a [u32]>, &'a [(&'a str, i32)]);

fn layout(entries: &[Entry<'_>]) -> Option<Layout> {
    let entry = |(gpus, given): &Entry<'_>| MigLayout {
        gpus: gpus.map(|gpus| gpus.iter().copied().collect()),
        instances: instances(given),
    };
    Some(Layout::Mig(entries.iter().map(entry).collect()))
}

fn resources(given: &[(&str, i64)]) -> Result<Expected, Reason> {
    Ok(Expected::Resources(
        given
            .iter()
            .map(|(name, count)| ((*name).to_owned(), *count))
            .collect(),
    ))
}

fn slicing(rename: bool, replicas: &[(&str, u32)]) -> Sharing {
    Sharing::TimeSlicing {
        rename,
        replicas: replicas
            .iter()
            .map(|(name, count)| ((*name).to_owned(), *count))
            .collect(),
    }
}

#[test]
fn the_nvidia_plugin_advertises_by_strategy_and_geometry() {
    use MigStrategy::{Mixed, None as Off, Single};
    let sevens: &[(&str, &[(&str, i32)])] = &[("0", &[("1g.10gb", 7)]), ("1", &[("1g.10gb", 7)])];
    let blended: &[(&str, &[(&str, i32)])] =
        &[("1", &[("1g.10gb", 2), ("2g.20gb", 1), ("1g.10gb+me", 1)])];
    for (title, strategy, report, expected) in [
        (
            "no MIG",
            Off,
            gpus(8, 0, &[]),
            resources(&[("nvidia.com/gpu", 8)]),
        ),
        (
            "MIG is ignored",
            Off,
            gpus(2, 2, sevens),
            resources(&[("nvidia.com/gpu", 2)]),
        ),
        (
            "Single without MIG",
            Single,
            gpus(8, 0, &[]),
            resources(&[("nvidia.com/gpu", 8)]),
        ),
        (
            "Single",
            Single,
            gpus(2, 2, sevens),
            resources(&[("nvidia.com/gpu", 14)]),
        ),
        (
            "Single with unlike instances",
            Single,
            gpus(1, 1, blended),
            Err(Reason::LayoutMismatch),
        ),
        (
            "Single with one GPU off",
            Single,
            gpus(3, 2, sevens),
            Err(Reason::LayoutMismatch),
        ),
        (
            "Single with an empty GPU",
            Single,
            gpus(3, 3, sevens),
            Err(Reason::LayoutMismatch),
        ),
        (
            "Mixed without MIG",
            Mixed,
            gpus(4, 0, &[]),
            resources(&[("nvidia.com/gpu", 4)]),
        ),
        (
            "Mixed",
            Mixed,
            gpus(3, 1, blended),
            resources(&[
                ("nvidia.com/gpu", 2),
                ("nvidia.com/mig-1g.10gb", 2),
                ("nvidia.com/mig-1g.10gb.me", 1),
                ("nvidia.com/mig-2g.20gb", 1),
            ]),
        ),
        (
            "Mixed with instances that nobody can name",
            Mixed,
            gpus(2, 1, &[("1", &[(MigProfileCount::UNKNOWN_PROFILE, 7)])]),
            Err(Reason::UnknownGeometry),
        ),
        (
            "Single needs no names",
            Single,
            gpus(1, 1, &[("0", &[(MigProfileCount::UNKNOWN_PROFILE, 7)])]),
            resources(&[("nvidia.com/gpu", 7)]),
        ),
        (
            "Mixed, same profile on two GPUs",
            Mixed,
            gpus(2, 2, sevens),
            resources(&[("nvidia.com/mig-1g.10gb", 14)]),
        ),
        (
            "Mixed with an empty GPU",
            Mixed,
            gpus(2, 1, &[]),
            resources(&[("nvidia.com/gpu", 1)]),
        ),
        (
            "Mixed with empty GPUs alone",
            Mixed,
            gpus(2, 2, &[]),
            Err(Reason::LayoutMismatch),
        ),
        (
            "split instances have no name",
            Mixed,
            gpus(2, 1, &[("0", &[("1c.3g.40gb", 3)])]),
            resources(&[("nvidia.com/gpu", 1)]),
        ),
        ("no GPU", Off, gpus(0, 0, &[]), Err(Reason::NoHardware)),
    ] {
        let cohort = Cohort {
            mig_strategy: Some(strategy),
            ..cohort(Vendor::Nvidia, Owner::DevicePlugin)
        };
        assert_eq!(
            super::expected(&cohort, &report).map_err(|why| why.reason),
            expected,
            "{title}"
        );
    }
}

#[test]
fn a_wanted_layout_counts_rather_than_the_one_it_will_replace() {
    use MigStrategy::{Mixed, Single};
    let before = gpus(4, 1, &[("2", &[("7g.80gb", 1)])]);
    for (title, strategy, layout, expected) in [
        (
            "all GPUs",
            Single,
            layout(&[(None, &[("2g.20gb", 3)])]),
            resources(&[("nvidia.com/gpu", 12)]),
        ),
        (
            "some GPUs; those not named have MIG off",
            Mixed,
            layout(&[(Some(&[1, 3]), &[("1g.10gb", 7)])]),
            resources(&[("nvidia.com/gpu", 2), ("nvidia.com/mig-1g.10gb", 14)]),
        ),
        (
            "a later entry wins",
            Mixed,
            layout(&[(None, &[("1g.10gb", 7)]), (Some(&[0]), &[("3g.40gb", 2)])]),
            resources(&[
                ("nvidia.com/mig-1g.10gb", 21),
                ("nvidia.com/mig-3g.40gb", 2),
            ]),
        ),
        (
            "some GPUs under Single",
            Single,
            layout(&[(Some(&[1]), &[("1g.10gb", 7)])]),
            Err(Reason::LayoutInfeasible),
        ),
        (
            "a GPU that is not there",
            Mixed,
            layout(&[(Some(&[9]), &[("1g.10gb", 7)])]),
            Err(Reason::LayoutInfeasible),
        ),
        (
            "the other vendor's layout",
            Mixed,
            Some(Layout::LogicalNeuronCore(2)),
            Err(Reason::LayoutInfeasible),
        ),
    ] {
        let cohort = Cohort {
            mig_strategy: Some(strategy),
            layout,
            ..cohort(Vendor::Nvidia, Owner::DevicePlugin)
        };
        assert_eq!(
            super::expected(&cohort, &before).map_err(|why| why.reason),
            expected,
            "{title}"
        );
    }
}

#[test]
fn sharing_multiplies_what_it_names_and_renames_on_demand() {
    let blended = gpus(3, 1, &[("0", &[("1g.5gb", 2), ("3g.20gb", 1)])]);
    for (title, sharing, expected) in [
        (
            "renamed",
            slicing(true, &[("nvidia.com/gpu", 4)]),
            resources(&[
                ("nvidia.com/gpu.shared", 8),
                ("nvidia.com/mig-1g.5gb", 2),
                ("nvidia.com/mig-3g.20gb", 1),
            ]),
        ),
        (
            "not renamed",
            slicing(false, &[("nvidia.com/gpu", 4)]),
            resources(&[
                ("nvidia.com/gpu", 8),
                ("nvidia.com/mig-1g.5gb", 2),
                ("nvidia.com/mig-3g.20gb", 1),
            ]),
        ),
        (
            "instances",
            slicing(true, &[("nvidia.com/mig-1g.5gb", 5)]),
            resources(&[
                ("nvidia.com/gpu", 2),
                ("nvidia.com/mig-1g.5gb.shared", 10),
                ("nvidia.com/mig-3g.20gb", 1),
            ]),
        ),
        (
            "what is not there is not made up",
            slicing(true, &[("nvidia.com/mig-7g.40gb", 2)]),
            resources(&[
                ("nvidia.com/gpu", 2),
                ("nvidia.com/mig-1g.5gb", 2),
                ("nvidia.com/mig-3g.20gb", 1),
            ]),
        ),
        (
            "the user's own",
            Sharing::UserConfig,
            Ok(Expected::AnyResource),
        ),
    ] {
        let cohort = Cohort {
            mig_strategy: Some(MigStrategy::Mixed),
            sharing,
            ..cohort(Vendor::Nvidia, Owner::DevicePlugin)
        };
        assert_eq!(
            super::expected(&cohort, &blended).map_err(|why| why.reason),
            expected,
            "{title}"
        );
    }
    let mps = Cohort {
        sharing: Sharing::Mps {
            rename: true,
            replicas: [("nvidia.com/gpu".to_owned(), 10)].into(),
        },
        ..cohort(Vendor::Nvidia, Owner::DevicePlugin)
    };
    assert_eq!(
        super::expected(&mps, &gpus(2, 0, &[])).map_err(|why| why.reason),
        resources(&[("nvidia.com/gpu.shared", 20)])
    );
}

#[test]
fn the_nvidia_dra_driver_publishes_whole_gpus_with_mig_off_and_instances_alone_with_mig_on() {
    for (title, report, wanted, expected) in [
        ("no MIG", gpus(8, 0, &[]), None, Ok((8, 0))),
        (
            "one GPU in instances",
            gpus(8, 1, &[("3", &[("1g.10gb", 7)])]),
            None,
            Ok((14, 7)),
        ),
        (
            "an empty GPU publishes nothing",
            gpus(8, 1, &[]),
            None,
            Ok((7, 0)),
        ),
        (
            "empty GPUs alone",
            gpus(2, 2, &[]),
            None,
            Err(Reason::LayoutMismatch),
        ),
        (
            "a wanted layout",
            gpus(2, 0, &[]),
            layout(&[(Some(&[1]), &[("3g.40gb", 2)])]),
            Ok((3, 2)),
        ),
    ] {
        let cohort = Cohort {
            layout: wanted,
            ..cohort(Vendor::Nvidia, Owner::Dra)
        };
        let expected = expected.map(|(devices, mig_devices)| Expected::Devices {
            devices,
            mig_devices,
        });
        assert_eq!(
            super::expected(&cohort, &report).map_err(|why| why.reason),
            expected,
            "{title}"
        );
    }
}

#[test]
fn where_the_driver_makes_devices_up_only_a_lowest_count_is_held_against_it() {
    let open = Cohort {
        dra: DraTraits {
            open_device_list: true,
            ..DraTraits::default()
        },
        ..cohort(Vendor::Nvidia, Owner::Dra)
    };
    assert_eq!(
        super::expected(&open, &gpus(8, 8, &[])),
        Ok(Expected::AtLeastDevices(8))
    );
}

fn chips(instance: &str, model: &str, devices: i32, physical: Option<i32>) -> VendorReport {
    VendorReport {
        inventory: Inventory {
            devices,
            models: vec![Model {
                name: model.into(),
                count: devices,
                memory_mib: None,
            }],
            physical_cores: physical,
            ..Inventory::default()
        },
        instance_type: Some(instance.into()),
        ..VendorReport::default()
    }
}

#[test]
fn the_neuron_plugin_advertises_devices_and_logical_cores() {
    let with = |mut report: VendorReport, logical: Option<i32>, setting: Option<i32>| {
        report.inventory.logical_cores = logical;
        report.layout.logical_neuron_core = setting;
        report
    };
    let trn2 = || chips("trn2.48xlarge", "Trainium2", 16, Some(128));
    let unknown = || chips("gr9.large", "Graviton9", 2, None);
    for (title, report, wanted, cores) in [
        (
            "as the host says",
            with(trn2(), Some(64), Some(2)),
            None,
            Ok(64),
        ),
        ("at setting 1", with(trn2(), None, Some(1)), None, Ok(128)),
        (
            "nothing set: Trn2 starts at 2",
            with(trn2(), None, None),
            None,
            Ok(64),
        ),
        (
            "a wanted setting counts",
            with(trn2(), Some(64), Some(2)),
            Some(1),
            Ok(128),
        ),
        (
            "Trn1 is fixed",
            with(
                chips("trn1.32xlarge", "Trainium1", 16, Some(32)),
                None,
                None,
            ),
            None,
            Ok(32),
        ),
        (
            "cores unreadable: by family",
            with(chips("inf2.48xlarge", "Inferentia2", 12, None), None, None),
            None,
            Ok(24),
        ),
        (
            "unlisted type of a known family",
            with(chips("trn2x.6xlarge", "Trainium2", 2, None), None, None),
            None,
            Ok(8),
        ),
        (
            "unknown chip that tells its cores",
            with(unknown(), Some(6), None),
            None,
            Ok(6),
        ),
        (
            "unknown chip that tells nothing",
            with(unknown(), None, None),
            None,
            Err(Reason::UnknownGeometry),
        ),
    ] {
        let devices = i64::from(report.inventory.devices);
        let cohort = Cohort {
            layout: wanted.map(Layout::LogicalNeuronCore),
            ..cohort(Vendor::Neuron, Owner::DevicePlugin)
        };
        let expected = cores.and_then(|cores| {
            resources(&[
                ("aws.amazon.com/neuron", devices),
                ("aws.amazon.com/neuroncore", cores),
            ])
        });
        assert_eq!(
            super::expected(&cohort, &report).map_err(|why| why.reason),
            expected,
            "{title}"
        );
    }
}

#[test]
fn the_neuron_dra_driver_publishes_devices_whatever_the_core_setting() {
    let cohort = cohort(Vendor::Neuron, Owner::Dra);
    let exact = |devices| {
        Ok(Expected::Devices {
            devices,
            mig_devices: 0,
        })
    };
    assert_eq!(
        super::expected(&cohort, &chips("trn2.48xlarge", "Trainium2", 16, None)),
        exact(16)
    );
    assert_eq!(
        super::expected(&cohort, &chips("gr9.large", "Graviton9", 3, None)),
        exact(3)
    );
    let ultra = chips("trn2u.48xlarge", "Trainium2", 16, None);
    assert_eq!(
        super::expected(&cohort, &ultra),
        Ok(Expected::AtLeastDevices(16))
    );
}

#[test]
fn messages_show_the_geometry_and_the_rule_that_it_breaks() {
    let single = Cohort {
        mig_strategy: Some(MigStrategy::Single),
        ..cohort(Vendor::Nvidia, Owner::DevicePlugin)
    };
    let why = super::expected(
        &single,
        &gpus(3, 2, &[("0", &[("1g.10gb", 7)]), ("1", &[("1g.10gb", 6)])]),
    )
    .expect_err("blocked");
    assert_eq!(
        why.message,
        "the geometry found on the host is 1 GPU(s) with MIG off, 13 × 1g.10gb, and under migStrategy Single MIG must be on for all \
         GPUs or for none: the plugin would exit"
    );
}
