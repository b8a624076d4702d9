use super::*;

/// Changes one thing about a fit node of a DRA cohort (or plugin cohort) and says which reason must come of it.
type Change = fn(&mut Cohort, &mut NodeView, &mut NodeReport, &mut ClusterView);

#[test]
fn each_missing_precondition_is_named_and_holds_the_node_owned_or_not() {
    let nothing: Change = |_, _, _, _| {};
    let cases: &[(&str, Owner, Option<Reason>, Change)] = &[
        ("fit for DRA", Owner::Dra, None, nothing),
        ("fit for the plugin", Owner::DevicePlugin, None, nothing),
        (
            "no driver",
            Owner::Dra,
            Some(Reason::DriverMissing),
            |_, _, report, _| {
                report.nvidia = Some(VendorReport {
                    pci_devices: 8,
                    ..VendorReport::default()
                });
            },
        ),
        (
            "old driver under DRA",
            Owner::Dra,
            Some(Reason::DriverTooOld),
            |_, _, report, _| {
                report.nvidia = Some(gpus(8, Some("550.54.15")));
            },
        ),
        (
            "the same driver is enough for the plugin",
            Owner::DevicePlugin,
            None,
            |_, _, report, _| {
                report.nvidia = Some(gpus(8, Some("550.54.15")));
            },
        ),
        (
            "empty driver version",
            Owner::Dra,
            Some(Reason::VersionUnknown),
            |_, _, report, _| {
                report.nvidia = Some(gpus(8, Some("")));
            },
        ),
        (
            "no driver version, for the plugin too",
            Owner::DevicePlugin,
            Some(Reason::VersionUnknown),
            |_, _, report, _| {
                report.nvidia = Some(gpus(8, None));
            },
        ),
        (
            "unreadable version, accepted on demand",
            Owner::Dra,
            None,
            |cohort, _, report, _| {
                cohort.accept_unknown_driver = true;
                report.nvidia = Some(gpus(8, Some("")));
            },
        ),
        (
            "an old driver is not accepted on that demand",
            Owner::Dra,
            Some(Reason::DriverTooOld),
            |cohort, _, report, _| {
                cohort.accept_unknown_driver = true;
                report.nvidia = Some(gpus(8, Some("390.157")));
            },
        ),
        (
            "old kubelet under DRA",
            Owner::Dra,
            Some(Reason::KubeletTooOld),
            |_, node, _, _| {
                node.kubelet_version = "v1.34.1-eks-ffff".into();
            },
        ),
        (
            "the same kubelet is enough for the plugin",
            Owner::DevicePlugin,
            None,
            |_, node, _, _| {
                node.kubelet_version = "v1.34.1-eks-ffff".into();
            },
        ),
        (
            "unknown kubelet",
            Owner::Dra,
            Some(Reason::VersionUnknown),
            |_, node, _, _| {
                node.kubelet_version = String::new();
            },
        ),
        (
            "old control plane",
            Owner::Dra,
            Some(Reason::ControlPlaneTooOld),
            |_, _, _, cluster| {
                cluster.server_version = "v1.33.9-gke.100".into();
            },
        ),
        (
            "the same control plane is enough for the plugin",
            Owner::DevicePlugin,
            None,
            |_, _, _, cluster| {
                cluster.server_version = "v1.33.9-gke.100".into();
            },
        ),
        (
            "beta DRA API alone",
            Owner::Dra,
            Some(Reason::DraApiUnavailable),
            |_, _, _, cluster| cluster.dra_api = false,
        ),
        (
            "no DRA API does not concern the plugin",
            Owner::DevicePlugin,
            None,
            |_, _, _, cluster| cluster.dra_api = false,
        ),
        (
            "publish on 1.35",
            Owner::Dra,
            Some(Reason::ControlPlaneTooOld),
            |cohort, _, _, cluster| {
                cohort.dra.publishes_extended_resource = true;
                cluster.server_version = "v1.35.4".into();
            },
        ),
        (
            "publish with a 1.35 kubelet",
            Owner::Dra,
            Some(Reason::KubeletTooOld),
            |cohort, node, _, _| {
                cohort.dra.publishes_extended_resource = true;
                node.kubelet_version = "v1.35.4".into();
            },
        ),
        (
            "runtime class there",
            Owner::DevicePlugin,
            None,
            |cohort, _, _, _| cohort.runtime_class = Some("gold".into()),
        ),
        (
            "runtime class missing",
            Owner::DevicePlugin,
            Some(Reason::RuntimeClassMissing),
            |cohort, _, _, _| {
                cohort.runtime_class = Some("silver".into());
            },
        ),
        (
            "config there",
            Owner::DevicePlugin,
            None,
            |cohort, _, _, _| {
                cohort.config_map = Some(("plugin-settings".into(), "day".into()));
            },
        ),
        (
            "config map missing",
            Owner::DevicePlugin,
            Some(Reason::ConfigNotFound),
            |cohort, _, _, _| {
                cohort.config_map = Some(("no-such-map".into(), "day".into()));
            },
        ),
        (
            "config key missing",
            Owner::DevicePlugin,
            Some(Reason::ConfigNotFound),
            |cohort, _, _, _| {
                cohort.config_map = Some(("plugin-settings".into(), "night".into()));
            },
        ),
        (
            "strange taint",
            Owner::Dra,
            Some(Reason::UntoleratedTaint),
            |_, node, _, _| {
                node.taints = vec![Taint {
                    key: "team".into(),
                    value: "ml".into(),
                    effect: "NoSchedule".into(),
                }];
            },
        ),
        (
            "strange taint, tolerated",
            Owner::Dra,
            None,
            |cohort, node, _, _| {
                node.taints = vec![Taint {
                    key: "team".into(),
                    value: "ml".into(),
                    effect: "NoSchedule".into(),
                }];
                cohort.tolerations = vec![Toleration {
                    key: Some("team".into()),
                    value: None,
                    effect: None,
                }];
            },
        ),
        (
            "our own fences and transient taints",
            Owner::Dra,
            None,
            |_, node, _, _| {
                let taint = |key: String| Taint {
                    key,
                    value: String::new(),
                    effect: "NoSchedule".into(),
                };
                node.taints = vec![
                    taint(names::fence_taint(Vendor::Nvidia)),
                    taint(names::fence_taint(Vendor::Neuron)),
                    taint("node.kubernetes.io/unschedulable".into()),
                ];
            },
        ),
        (
            "MPS nobody asked for",
            Owner::DevicePlugin,
            Some(Reason::UnexpectedMps),
            |_, node, _, _| {
                node.labels
                    .insert("nvidia.com/mps.capable".into(), "true".into());
            },
        ),
        ("no MPS", Owner::DevicePlugin, None, |_, node, _, _| {
            node.labels
                .insert("nvidia.com/mps.capable".into(), "false".into());
        }),
        (
            "MPS as asked for",
            Owner::DevicePlugin,
            None,
            |cohort, node, _, _| {
                cohort.mps = true;
                node.labels
                    .insert("nvidia.com/mps.capable".into(), "true".into());
            },
        ),
        (
            "mixed instances under Single",
            Owner::DevicePlugin,
            Some(Reason::LayoutMismatch),
            |cohort, _, report, _| {
                cohort.mig_strategy = Some(MigStrategy::Single);
                let part = report.nvidia.as_mut().expect("set");
                let instance = |profile: &str| crate::report::MigProfileCount {
                    profile: profile.into(),
                    count: 1,
                };
                part.layout = LayoutReport {
                    mig_enabled_gpus: 8,
                    mig: (0..8)
                        .map(|gpu| {
                            (
                                gpu.to_string(),
                                vec![instance("1g.18gb"), instance("3g.71gb")],
                            )
                        })
                        .collect(),
                    ..LayoutReport::default()
                };
            },
        ),
    ];
    for (title, owner, expected, change) in cases {
        let mut cohort = cohort("amber", Vendor::Nvidia, *owner);
        let mut node = node(&[("pool", "amber")]);
        node.kubelet_version = "v1.36.0".into();
        let mut report = report(Some(gpus(8, Some("570.158.01"))), None);
        let mut cluster = cluster();
        change(&mut cohort, &mut node, &mut report, &mut cluster);
        let intent = intent([cohort]);
        for other in [None, Some(owner.other()), Some(*owner)] {
            let node = match other {
                Some(held) => owned(node.clone(), Vendor::Nvidia, held, "zinc"),
                None => node.clone(),
            };
            let assignment = assign(Vendor::Nvidia, &node, Some(&report), &cluster, &intent);
            assert_eq!(
                reason(&assignment),
                *expected,
                "{title}, owner before: {other:?}"
            );
            assert_eq!(assignment.excluded, None, "{title}");
            assert_eq!(
                matches!(assignment.want, Want::Owner(_)),
                expected.is_none(),
                "{title}: {assignment:?}"
            );
        }
    }
}

#[test]
fn messages_say_what_was_found_and_what_is_needed() {
    let mut intent = intent([cohort("amber", Vendor::Nvidia, Owner::Dra)]);
    let node = node(&[("pool", "amber")]);
    let old = report(Some(gpus(8, Some("550.54.15"))), None);
    assert_eq!(
        message(&assign(
            Vendor::Nvidia,
            &node,
            Some(&old),
            &cluster(),
            &intent
        )),
        "the NVIDIA driver is 550.54.15; the NVIDIA DRA driver of cohort amber needs 565.0.0 or later: NVIDIA's DRA \
         driver supports standalone host drivers from there on (580 and later is the GPU Operator's own demand)"
    );
    let empty = report(Some(gpus(8, Some(""))), None);
    assert_eq!(
        message(&assign(
            Vendor::Nvidia,
            &node,
            Some(&empty),
            &cluster(),
            &intent
        )),
        "the NVIDIA driver does not tell its version (found \"\"); the NVIDIA DRA driver of cohort amber needs 565.0.0 \
         or later"
    );
    let amber = intent.cohorts.get_mut("amber").expect("there");
    amber.vendor = Vendor::Neuron;
    amber.owner = Owner::DevicePlugin;
    amber.layout = Some(Layout::LogicalNeuronCore(1));
    let trn1 = report(None, Some(chips("Trainium1", "trn1.32xlarge", 16, 32)));
    assert_eq!(
        message(&assign(
            Vendor::Neuron,
            &node,
            Some(&trn1),
            &cluster(),
            &intent
        )),
        "instance type trn1.32xlarge: the Logical NeuronCore setting is fixed at 1 on Trainium1; cohort amber asks for 1"
    );
}

#[test]
fn the_logical_core_setting_is_refused_where_it_is_fixed_or_unknown() {
    for (model, instance, refused) in [
        ("Trainium2", "trn2.48xlarge", false),
        ("Trainium3", "trn3x.48xlarge", false),
        ("Trainium1", "trn1.2xlarge", true),
        ("Inferentia2", "inf2.48xlarge", true),
        ("Graviton9", "gr9.large", true),
    ] {
        let mut cohort = cohort("copper", Vendor::Neuron, Owner::DevicePlugin);
        cohort.layout = Some(Layout::LogicalNeuronCore(2));
        let mut part = chips(model, instance, 4, 32);
        part.layout.shaping = Some(crate::report::Shaping {
            outcome: crate::report::ShapingOutcome::Idle,
            message: None,
        });
        let report = report(None, Some(part));
        let assignment = assign(
            Vendor::Neuron,
            &node(&[("pool", "copper")]),
            Some(&report),
            &cluster(),
            &intent([cohort]),
        );
        let expected = refused.then_some(Reason::LncNotConfigurable);
        assert_eq!(
            reason(&assignment),
            expected,
            "{model} {instance}: {assignment:?}"
        );
    }
}
