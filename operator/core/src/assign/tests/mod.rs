mod geometry;
mod preconditions;
mod properties;

use super::*;
use crate::expect::Expected;
use crate::intent::Layout;
use crate::intent::{
    Budget, DraTraits, DrainPolicy, MigStrategy, Rollout, Selector, SelectorTerm, Sharing,
    Toleration,
};
use crate::report::VendorReport;
use crate::report::{Inventory, LayoutReport, Model};
use crate::tenure::Target;
use crate::vendor::Owner;

/// A cohort that selects `pool=<name>`.
fn cohort(name: &str, vendor: Vendor, owner: Owner) -> Cohort {
    Cohort {
        name: name.into(),
        vendor,
        owner,
        selector: Selector {
            terms: vec![SelectorTerm::In("pool".into(), [name.to_owned()].into())],
        },
        tolerations: vec![],
        sharing: Sharing::Exclusive,
        mig_strategy: (vendor == Vendor::Nvidia && owner == Owner::DevicePlugin)
            .then_some(MigStrategy::None),
        layout: None,
        runtime_class: None,
        config_map: None,
        mps: false,
        accept_unknown_driver: false,
        dra: DraTraits::default(),
        shape: "shape-1".into(),
        template: "template-1".into(),
        max_unavailable: None,
    }
}

fn intent(cohorts: impl IntoIterator<Item = Cohort>) -> Intent {
    Intent {
        cohorts: cohorts
            .into_iter()
            .map(|cohort| (cohort.name.clone(), cohort))
            .collect(),
        owner_alias: None,
        rollout: Rollout {
            max_unavailable: Budget::Nodes(1),
            canary_nodes: 0,
            canary_soak_s: 0,
            drain: DrainPolicy::Wait,
            drain_timeout_s: 3600,
            paused: false,
        },
    }
}

fn node(labels: &[(&str, &str)]) -> NodeView {
    NodeView {
        name: "worker-7".into(),
        uid: "uid-7".into(),
        labels: labels
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect(),
        taints: vec![],
        kubelet_version: "v1.35.1-eks-0a1b".into(),
        boot_id: "boot-3".into(),
        ready: true,
        allocatable: BTreeMap::new(),
    }
}

fn owned(mut node: NodeView, vendor: Vendor, owner: Owner, cohort: &str) -> NodeView {
    node.labels
        .insert(names::owner_label(vendor), owner.word().into());
    node.labels
        .insert(names::cohort_label(vendor), cohort.into());
    node
}

fn gpus(devices: i32, driver: Option<&str>) -> VendorReport {
    VendorReport {
        observed_term: 1,
        pci_devices: devices,
        inventory: Inventory {
            driver_version: driver.map(Into::into),
            devices,
            models: vec![Model {
                name: "NVIDIA H200".into(),
                count: devices.max(1),
                memory_mib: Some(143_771),
            }],
            ..Inventory::default()
        },
        ..VendorReport::default()
    }
}

fn chips(model: &str, instance: &str, devices: i32, cores: i32) -> VendorReport {
    VendorReport {
        pci_devices: devices,
        inventory: Inventory {
            driver_version: Some("2.26.5.0".into()),
            devices,
            models: vec![Model {
                name: model.into(),
                count: devices,
                memory_mib: None,
            }],
            physical_cores: Some(cores),
            logical_cores: None,
        },
        instance_type: Some(instance.into()),
        ..VendorReport::default()
    }
}

fn report(nvidia: Option<VendorReport>, neuron: Option<VendorReport>) -> NodeReport {
    NodeReport {
        node_uid: "uid-7".into(),
        boot_id: "boot-3".into(),
        agent_version: "0.9.9".into(),
        nvidia,
        neuron,
        errors: vec![],
    }
}

fn cluster() -> ClusterView {
    ClusterView {
        server_version: "v1.36.3".into(),
        dra_api: true,
        runtime_classes: ["gold".to_owned()].into(),
        config_maps: [("plugin-settings".to_owned(), ["day".to_owned()].into())].into(),
    }
}

fn reason(assignment: &Assignment) -> Option<Reason> {
    match &assignment.want {
        Want::Hold(blocker) => Some(blocker.reason),
        Want::Owner(target) => target.expected.as_ref().err().map(|blocker| blocker.reason),
        Want::Nothing => None,
    }
}

fn message(assignment: &Assignment) -> String {
    match &assignment.want {
        Want::Hold(blocker) => blocker.message.clone(),
        Want::Owner(target) => target
            .expected
            .as_ref()
            .err()
            .map(|b| b.message.clone())
            .unwrap_or_default(),
        Want::Nothing => assignment
            .excluded
            .as_ref()
            .map(|b| b.message.clone())
            .unwrap_or_default(),
    }
}

#[test]
fn a_fit_node_gets_its_cohorts_owner_with_everything_that_must_be_advertised() {
    let intent = intent([cohort("amber", Vendor::Nvidia, Owner::Dra)]);
    let report = report(Some(gpus(8, Some("570.158.01"))), None);
    let assignment = assign(
        Vendor::Nvidia,
        &node(&[("pool", "amber")]),
        Some(&report),
        &cluster(),
        &intent,
    );
    assert_eq!(assignment.cohort.as_deref(), Some("amber"));
    assert_eq!(assignment.excluded, None);
    let Want::Owner(target) = assignment.want else {
        panic!("{assignment:?}")
    };
    assert_eq!(
        *target,
        Target {
            cohort: "amber".into(),
            owner: Owner::Dra,
            layout: None,
            shape: "shape-1".into(),
            template: "template-1".into(),
            expected: Ok(Expected::Devices {
                devices: 8,
                mig_devices: 0
            }),
        }
    );
}

#[test]
fn a_node_that_leaves_every_cohort_is_given_up_and_a_node_of_the_other_vendor_is_not_concerned() {
    let intent = intent([cohort("amber", Vendor::Nvidia, Owner::Dra)]);
    let left = owned(
        node(&[("pool", "other")]),
        Vendor::Nvidia,
        Owner::Dra,
        "amber",
    );
    let assignment = assign(Vendor::Nvidia, &left, None, &cluster(), &intent);
    assert_eq!(
        assignment,
        Assignment {
            cohort: None,
            excluded: None,
            want: Want::Nothing
        }
    );
    let other = assign(
        Vendor::Neuron,
        &node(&[("pool", "amber")]),
        None,
        &cluster(),
        &intent,
    );
    assert_eq!(
        other,
        Assignment {
            cohort: None,
            excluded: None,
            want: Want::Nothing
        }
    );
}

#[test]
fn one_node_may_be_owned_for_both_vendors_in_different_ways() {
    let mut neuron = cohort("copper", Vendor::Neuron, Owner::DevicePlugin);
    neuron.selector = Selector {
        terms: vec![SelectorTerm::Exists("pool".into())],
    };
    let intent = intent([cohort("amber", Vendor::Nvidia, Owner::Dra), neuron]);
    let report = report(
        Some(gpus(2, Some("580.1"))),
        Some(chips("Trainium1", "trn1.32xlarge", 16, 32)),
    );
    let node = node(&[("pool", "amber")]);
    for (vendor, owner) in [
        (Vendor::Nvidia, Owner::Dra),
        (Vendor::Neuron, Owner::DevicePlugin),
    ] {
        let Want::Owner(target) = assign(vendor, &node, Some(&report), &cluster(), &intent).want
        else {
            panic!("{vendor}")
        };
        assert_eq!((target.owner, target.expected.is_ok()), (owner, true));
    }
}

#[test]
fn two_cohorts_that_claim_one_node_conflict_there_and_both_are_named() {
    let mut wide = cohort("zinc", Vendor::Nvidia, Owner::DevicePlugin);
    wide.selector = Selector {
        terms: vec![SelectorTerm::Exists("pool".into())],
    };
    let intent = intent([wide, cohort("amber", Vendor::Nvidia, Owner::Dra)]);
    let report = report(Some(gpus(8, Some("570.158.01"))), None);
    let conflicted = assign(
        Vendor::Nvidia,
        &node(&[("pool", "amber")]),
        Some(&report),
        &cluster(),
        &intent,
    );
    assert_eq!(reason(&conflicted), Some(Reason::CohortOverlap));
    assert_eq!(conflicted.cohort.as_deref(), Some("amber"));
    assert_eq!(
        message(&conflicted),
        "selected for NVIDIA by cohort amber and by zinc; exactly one may be"
    );
    let elsewhere = assign(
        Vendor::Nvidia,
        &node(&[("pool", "zinc")]),
        Some(&report),
        &cluster(),
        &intent,
    );
    assert!(matches!(elsewhere.want, Want::Owner(_)), "{elsewhere:?}");
}

#[test]
fn a_cpu_node_that_two_selectors_catch_is_excluded_rather_than_conflicted() {
    let mut wide = cohort("zinc", Vendor::Nvidia, Owner::DevicePlugin);
    wide.selector = Selector {
        terms: vec![SelectorTerm::Exists("pool".into())],
    };
    let intent = intent([wide, cohort("amber", Vendor::Nvidia, Owner::Dra)]);
    let assignment = assign(
        Vendor::Nvidia,
        &node(&[("pool", "amber")]),
        Some(&report(None, None)),
        &cluster(),
        &intent,
    );
    assert_eq!(
        assignment.excluded.map(|why| why.reason),
        Some(Reason::NoHardware)
    );
}

#[test]
fn provider_nodes_are_left_alone_and_never_taken_from_us_by_a_label() {
    let intent = intent([cohort("amber", Vendor::Nvidia, Owner::DevicePlugin)]);
    let auto = node(&[
        ("pool", "amber"),
        ("eks.amazonaws.com/compute-type", "auto"),
    ]);
    let left_alone = assign(Vendor::Nvidia, &auto, None, &cluster(), &intent);
    assert_eq!(left_alone.want, Want::Nothing);
    let why = left_alone.excluded.expect("excluded");
    assert_eq!(why.reason, Reason::ExcludedByProvider);
    assert!(
        why.message
            .starts_with("EKS Auto Mode runs its own device plugins"),
        "{}",
        why.message
    );
    assert!(!is_candidate(&auto, &intent));

    let ours = owned(auto, Vendor::Nvidia, Owner::DevicePlugin, "amber");
    let held = assign(Vendor::Nvidia, &ours, None, &cluster(), &intent);
    assert_eq!(
        (reason(&held), &held.excluded),
        (Some(Reason::ExcludedByProvider), &None)
    );
}

#[test]
fn before_its_agent_reports_a_node_waits_whatever_labels_suggest() {
    let intent = intent([cohort("amber", Vendor::Nvidia, Owner::Dra)]);
    let mut stale_uid = report(Some(gpus(8, Some("570.1"))), None);
    stale_uid.node_uid = "uid-6".into();
    let mut stale_boot = report(Some(gpus(8, Some("570.1"))), None);
    stale_boot.boot_id = "boot-2".into();
    for (labels, report, expected) in [
        (
            &[("pool", "amber")][..],
            None,
            "the node's agent has not reported yet",
        ),
        (
            &[("pool", "amber"), ("nvidia.com/gpu.present", "true")],
            None,
            "the node's agent has not reported yet (the label nvidia.com/gpu.present=true suggests NVIDIA hardware, the agent's inventory decides)",
        ),
        (
            &[("pool", "amber")],
            Some(&stale_uid),
            "the node's agent last reported for an earlier machine of this name",
        ),
        (
            &[("pool", "amber")],
            Some(&stale_boot),
            "the node's agent last reported before the host restarted",
        ),
    ] {
        let waiting = assign(Vendor::Nvidia, &node(labels), report, &cluster(), &intent);
        assert!(matches!(waiting.want, Want::Owner(_)), "{waiting:?}");
        assert_eq!(
            (reason(&waiting), message(&waiting).as_str()),
            (Some(Reason::AgentSilent), expected)
        );
    }
}

#[test]
fn a_silent_agent_holds_a_node_that_another_owner_has_and_not_one_that_is_as_wanted() {
    let intent = intent([cohort("amber", Vendor::Nvidia, Owner::Dra)]);
    for (owner, cohort, held) in [
        (Owner::DevicePlugin, "amber", true),
        (Owner::Dra, "zinc", true),
        (Owner::Dra, "amber", false),
    ] {
        let node = owned(node(&[("pool", "amber")]), Vendor::Nvidia, owner, cohort);
        let assignment = assign(Vendor::Nvidia, &node, None, &cluster(), &intent);
        assert_eq!(
            matches!(assignment.want, Want::Hold(_)),
            held,
            "{owner} {cohort}: {assignment:?}"
        );
        assert_eq!(reason(&assignment), Some(Reason::AgentSilent));
    }
}

#[test]
fn hardware_is_what_the_agent_finds_not_what_labels_say() {
    let intent = intent([cohort("amber", Vendor::Nvidia, Owner::DevicePlugin)]);
    let labelled = node(&[("pool", "amber"), ("nvidia.com/gpu.present", "true")]);
    let none = assign(
        Vendor::Nvidia,
        &labelled,
        Some(&report(None, None)),
        &cluster(),
        &intent,
    );
    let why = none.excluded.clone().expect("excluded");
    assert_eq!(why.reason, Reason::NoHardware);
    assert_eq!(
        why.message,
        "the agent finds no NVIDIA device on the host, although the label nvidia.com/gpu.present=true suggests one"
    );
    // The report is the reason, so what carries the report must stay.
    assert_eq!(reason(&none), Some(Reason::NoHardware));

    let unlabelled = node(&[("pool", "amber")]);
    let found = assign(
        Vendor::Nvidia,
        &unlabelled,
        Some(&report(Some(gpus(4, Some("570.1"))), None)),
        &cluster(),
        &intent,
    );
    assert!(
        matches!(found.want, Want::Owner(_)) && reason(&found).is_none(),
        "{found:?}"
    );
}

#[test]
fn no_device_seen_by_an_agent_that_could_not_look_everywhere_is_not_no_hardware() {
    let intent = intent([cohort("amber", Vendor::Nvidia, Owner::DevicePlugin)]);
    let mut blind = report(None, None);
    blind.errors = vec!["/sys/bus/pci/devices: permission denied".into()];
    let assignment = assign(
        Vendor::Nvidia,
        &node(&[("pool", "amber")]),
        Some(&blind),
        &cluster(),
        &intent,
    );
    assert_eq!(
        (reason(&assignment), assignment.excluded),
        (Some(Reason::AttestationUnknown), None)
    );
}

#[test]
fn an_owned_node_that_loses_its_hardware_is_held_and_not_quietly_excluded() {
    let intent = intent([cohort("amber", Vendor::Nvidia, Owner::Dra)]);
    let node = owned(
        node(&[("pool", "amber")]),
        Vendor::Nvidia,
        Owner::Dra,
        "amber",
    );
    let held = assign(
        Vendor::Nvidia,
        &node,
        Some(&report(None, None)),
        &cluster(),
        &intent,
    );
    assert_eq!(
        (reason(&held), held.excluded),
        (Some(Reason::NoHardware), None)
    );
}
