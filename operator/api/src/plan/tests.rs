use std::collections::{BTreeMap, BTreeSet};

use freehold_core::intent::{Budget, DrainPolicy, Layout, SelectorTerm, Sharing};

use super::*;

/// A spec with one cohort of each operand, in YAML as a user writes it.
const SPEC: &str = r#"
ownerLabel: acme.example/allocator
cohorts:
- name: zebra
  vendor: NVIDIA
  owner: DevicePlugin
  nodeSelector:
    matchLabels: {rack: r7}
    matchExpressions: [{key: tier, operator: NotIn, values: [cold, frozen]}]
  tolerations: [{key: acme.example/batch, operator: Exists, effect: NoExecute}]
  image: mirror.acme.example:5000/gpu-plug:odd-1
  imagePullSecrets: [acme-pull]
  kubeletRootDir: /srv/kubelet
  resources: {requests: {cpu: 25m}, limits: {cpu: "1", memory: 96Mi}}
  rollout: {maxUnavailable: 7%}
  nvidia:
    driverRoot: /opt/drv
    runtimeClassName: acme-rt
    acceptUnknownDriver: true
    devicePlugin:
      migStrategy: Mixed
      deviceListStrategy: [CdiCri, Envvar]
      deviceIDStrategy: Index
      failOnInitError: false
      compatWithCPUManager: true
      timeSlicing:
        renameByDefault: true
        failRequestsGreaterThanOne: true
        resources: [{name: nvidia.com/mig-2g.20gb, replicas: 3}]
    mig: {layouts: [{gpus: "1,4", instances: {2g.20gb: 3}}]}
- name: quartz
  vendor: NVIDIA
  owner: DRA
  nodeSelector: {matchLabels: {rack: r8}}
  nvidia: {dra: {extendedResourceName: Publish, featureGates: {TimeSlicingSettings: true}}}
- name: birch
  vendor: Neuron
  owner: DevicePlugin
  nodeSelector: {matchLabels: {rack: r9}}
  neuron: {logicalNeuronCore: 1}
- name: aspen
  vendor: Neuron
  owner: DRA
  nodeSelector: {matchLabels: {rack: r10}}
sizes:
- {name: half, vendor: Neuron, namespaces: [team-b, team-a], devices: {count: 8}, alignBy: resource.aws.com/devicegroup8_id, logicalNeuronCore: 2}
- {name: slice, vendor: NVIDIA, deviceType: MIG, deviceClassName: acme-slice, devices: {count: 1}}
rollout:
  maxUnavailable: 3
  canary: {nodes: 2, soak: 90s}
  drain: {policy: Evict, timeout: 500ms}
  paused: true
"#;

fn spec(yaml: &str) -> AcceleratorClusterSpec {
    serde_saphyr::from_str(yaml).expect("the fixture is a spec")
}

/// The problems of [`SPEC`] after replacing one piece of it, as lines.
fn problems_with(from: &str, to: &str) -> Vec<String> {
    assert!(SPEC.contains(from), "the fixture does not contain {from:?}");
    let problems =
        Plan::parse(&spec(&SPEC.replacen(from, to, 1))).expect_err("the spec was accepted");
    problems.list().iter().map(ToString::to_string).collect()
}

fn cohort<'a>(plan: &'a Plan, name: &str) -> &'a CohortPlan {
    plan.cohorts
        .iter()
        .find(|cohort| cohort.cohort.name == name)
        .expect("the cohort is in the plan")
}

#[test]
fn every_field_of_a_valid_spec_arrives_in_the_plan() {
    let plan = Plan::parse(&spec(SPEC)).expect("valid");
    assert!(plan.publish_extended_resource);
    assert_eq!(
        plan.intent.owner_alias.as_deref(),
        Some("acme.example/allocator")
    );
    let rollout = &plan.intent.rollout;
    assert_eq!(
        (
            rollout.max_unavailable,
            rollout.canary_nodes,
            rollout.canary_soak_s
        ),
        (Budget::Nodes(3), 2, 90)
    );
    // Half a second becomes one: a wait never gets shorter than asked for.
    assert_eq!(
        (rollout.drain, rollout.drain_timeout_s, rollout.paused),
        (DrainPolicy::Evict, 1, true)
    );

    let names: Vec<&str> = plan
        .cohorts
        .iter()
        .map(|cohort| cohort.cohort.name.as_str())
        .collect();
    assert_eq!(names, ["aspen", "birch", "quartz", "zebra"]);
    for plan_of_one in &plan.cohorts {
        assert_eq!(
            plan.intent.cohorts.get(&plan_of_one.cohort.name),
            Some(&plan_of_one.cohort)
        );
    }

    let zebra = cohort(&plan, "zebra");
    assert_eq!(
        zebra.cohort.selector.terms,
        [
            SelectorTerm::In("rack".into(), BTreeSet::from(["r7".into()])),
            SelectorTerm::NotIn(
                "tier".into(),
                BTreeSet::from(["cold".into(), "frozen".into()])
            ),
        ]
    );
    assert_eq!(zebra.cohort.tolerations.len(), 1);
    assert_eq!(
        zebra.cohort.tolerations[0].key.as_deref(),
        Some("acme.example/batch")
    );
    assert_eq!(zebra.cohort.tolerations[0].value, None);
    assert_eq!(zebra.cohort.max_unavailable, Some(Budget::Percent(7)));
    assert!(zebra.cohort.accept_unknown_driver);
    assert_eq!(
        zebra.cohort.sharing,
        Sharing::TimeSlicing {
            rename: true,
            replicas: BTreeMap::from([("nvidia.com/mig-2g.20gb".into(), 3)])
        }
    );
    assert!(
        matches!(&zebra.cohort.layout, Some(Layout::Mig(layouts)) if layouts[0].gpus == Some(BTreeSet::from([1, 4])))
    );
    assert_eq!(
        zebra.image.as_ref().map(ImageRef::as_str),
        Some("mirror.acme.example:5000/gpu-plug:odd-1")
    );
    assert_eq!(zebra.image_pull_secrets, ["acme-pull"]);
    assert_eq!(zebra.kubelet_root.as_str(), "/srv/kubelet");
    let Operand::NvidiaDevicePlugin(plugin) = &zebra.operand else {
        panic!("{:?}", zebra.operand)
    };
    assert_eq!(plugin.driver_root.as_str(), "/opt/drv");
    assert_eq!(plugin.runtime_class.as_deref(), Some("acme-rt"));
    assert_eq!(
        plugin.device_list_strategy,
        [DeviceListStrategy::CdiCri, DeviceListStrategy::Envvar]
    );
    assert_eq!(plugin.device_id_strategy, DeviceIdStrategy::Index);
    assert!(!plugin.fail_on_init_error && plugin.compat_with_cpu_manager);

    assert_eq!(
        cohort(&plan, "birch").cohort.layout,
        Some(Layout::LogicalNeuronCore(1))
    );
    assert_eq!(cohort(&plan, "birch").operand, Operand::NeuronDevicePlugin);
    assert_eq!(cohort(&plan, "aspen").operand, Operand::NeuronDra);

    let [half, slice] = &plan.sizes[..] else {
        panic!("{:?}", plan.sizes)
    };
    assert_eq!(
        half.namespaces,
        BTreeSet::from(["team-a".to_owned(), "team-b".to_owned()])
    );
    assert_eq!(
        (half.request.as_str(), half.count),
        ("neurons", SizeCount::Exactly(8))
    );
    assert_eq!(
        half.devices,
        SizeVendor::Neuron {
            logical_neuron_core: Some(2)
        }
    );
    assert_eq!(
        (slice.request.as_str(), slice.device_class.as_deref()),
        ("gpu", Some("acme-slice"))
    );
    assert_eq!(slice.devices, SizeVendor::Nvidia(DeviceType::Mig));
}

#[test]
fn a_problem_names_the_field_what_was_found_and_what_was_expected() {
    for (from, to, expected) in [
        (
            "acme.example/allocator",
            "acme.kubernetes.io/x",
            "spec.ownerLabel: found 'acme.kubernetes.io/x'",
        ),
        (
            "{rack: r7}",
            "{acme.example/allocator: dra}",
            ".nodeSelector: found 'acme.example/allocator', expected a label of your own",
        ),
        (
            "logicalNeuronCore: 2}",
            "logicalNeuronCore: 2, selectors: [\"device.attributes['neuron.aws.com'].instanceType == 'trn1.2xlarge'\"]}",
            "spec.sizes[half].logicalNeuronCore: found a setting for trn1.2xlarge, expected none: LNC value is not configurable for instance type trn1.2xlarge",
        ),
        (
            "name: zebra",
            "name: Zebra",
            "spec.cohorts[Zebra].name: found 'Zebra'",
        ),
        (
            "name: birch",
            "name: aspen",
            "spec.cohorts: found 'aspen' more than once",
        ),
        (
            "{rack: r7}",
            "{rack: r 7}",
            "nodeSelector.matchLabels[rack]: found 'r 7'",
        ),
        (
            "{rack: r8}",
            "{freehold.x/y: r8}",
            "nodeSelector.matchLabels: found 'freehold.x/y'",
        ),
        (
            "{matchLabels: {rack: r10}}",
            "{}",
            "spec.cohorts[aspen].nodeSelector: found an empty selector",
        ),
        (
            "operator: NotIn, values: [cold, frozen]",
            "operator: Exists, values: [cold]",
            "matchExpressions[0].values: found values",
        ),
        (
            "operator: Exists, effect",
            "operator: Exists, value: v, effect",
            "tolerations[0].value: found 'v'",
        ),
        (
            "effect: NoExecute",
            "effect: Sometimes",
            "tolerations[0].effect: found 'Sometimes'",
        ),
        (
            ":5000/gpu-plug:odd-1",
            ":5000/gpu-plug",
            "image: found 'mirror.acme.example:5000/gpu-plug'",
        ),
        ("acme-pull", "Acme", "imagePullSecrets: found 'Acme'"),
        (
            "/srv/kubelet",
            "/srv/../kubelet",
            "kubeletRootDir: found '/srv/../kubelet'",
        ),
        ("/srv/kubelet", "/", "kubeletRootDir: found '/'"),
        (
            "cpu: 25m",
            "cpu: 25mm",
            "resources.requests[cpu]: found '25mm'",
        ),
        (
            "cpu: 25m",
            "cpu: 1001m",
            "resources.requests[cpu]: found more than its limit",
        ),
        (
            "maxUnavailable: 7%",
            "maxUnavailable: 0%",
            "rollout.maxUnavailable: found '0%'",
        ),
        (
            "maxUnavailable: 3",
            "maxUnavailable: 0",
            "spec.rollout.maxUnavailable: found 0",
        ),
        (
            "timeout: 500ms",
            "timeout: -1h",
            "spec.rollout.drain.timeout: found",
        ),
        ("/opt/drv", "opt/drv", "nvidia.driverRoot: found 'opt/drv'"),
        (
            "replicas: 3}",
            "replicas: 1}",
            "replicas: found 1, expected a number from 2",
        ),
        (
            "migStrategy: Mixed",
            "migStrategy: None",
            "nvidia.mig: found MIG layouts",
        ),
        (
            "migStrategy: Mixed",
            "migStrategy: Single",
            "found 'nvidia.com/mig-2g.20gb', expected nvidia.com/gpu",
        ),
        ("2g.20gb: 3}", "twog: 3}", "instances[twog]: found 'twog'"),
        (
            "2g.20gb: 3}",
            "2g.5/4: 3}",
            "instances[2g.5/4]: found '2g.5/4'",
        ),
        ("gpus: \"1,4\"", "gpus: \"1,+4\"", "gpus: found '1,+4'"),
        (
            "TimeSlicingSettings: true",
            "Teleport: true",
            "featureGates: found 'Teleport'",
        ),
        (
            "TimeSlicingSettings: true",
            "DynamicMIG: true, MPSSupport: true",
            "found DynamicMIG and MPSSupport",
        ),
        (
            "TimeSlicingSettings: true",
            "DeviceMetadata: true",
            "found DeviceMetadata, expected PassthroughSupport",
        ),
        (
            "logicalNeuronCore: 1}",
            "logicalNeuronCore: 3}",
            "spec.cohorts[birch].neuron.logicalNeuronCore: found 3",
        ),
        (
            "neuron: {logicalNeuronCore: 1}",
            "nvidia: {}",
            "spec.cohorts[birch].nvidia: found settings of the other vendor",
        ),
        (
            "nvidia: {dra: {ext",
            "neuron: {}\n  nvidia: {dra: {ext",
            "spec.cohorts[quartz].neuron: found settings",
        ),
        (
            "vendor: NVIDIA\n  owner: DRA",
            "vendor: NVIDIA\n  owner: DevicePlugin",
            "spec.cohorts[quartz].nvidia.dra: found",
        ),
        (
            "count: 8}",
            "count: 33}",
            "spec.sizes[half].devices.count: found 33",
        ),
        (
            "{count: 8}",
            "{count: 8, all: true}",
            "spec.sizes[half].devices: found a count and all",
        ),
        (
            "{count: 8}",
            "{count: 1}",
            "spec.sizes[half].alignBy: found one device",
        ),
        (
            "resource.aws.com/devicegroup8_id",
            "devicegroup8_id",
            "spec.sizes[half].alignBy: found 'devicegroup8_id'",
        ),
        (
            "deviceClassName: acme-slice, ",
            "",
            "spec.sizes[slice]: found neither namespaces nor deviceClassName",
        ),
        (
            "acme-slice, devices: {count: 1}",
            "acme-slice, devices: {count: 2}",
            "spec.sizes[slice]: found alignBy, requestName or more",
        ),
        (
            "acme-slice",
            "mig.nvidia.com",
            "spec.sizes[slice].deviceClassName: found 'mig.nvidia.com'",
        ),
        (
            "deviceType: MIG, ",
            "logicalNeuronCore: 1, ",
            "spec.sizes[slice].logicalNeuronCore: found",
        ),
        (
            "name: half, vendor: Neuron",
            "name: half, deviceType: VFIO, vendor: Neuron",
            "spec.sizes[half].deviceType: found",
        ),
    ] {
        let problems = problems_with(from, to);
        assert!(
            problems.iter().any(|problem| problem.contains(expected)),
            "{from} -> {to}: {problems:#?}"
        );
    }
}

#[test]
fn all_problems_are_reported_at_once() {
    let broken = SPEC
        .replace("/opt/drv", "drv")
        .replace("logicalNeuronCore: 2}", "logicalNeuronCore: 7}")
        .replace("odd-1", "odd 1");
    let problems = Plan::parse(&spec(&broken)).expect_err("three faults");
    assert_eq!(problems.list().len(), 3, "{problems}");
}

#[test]
fn cohorts_that_disagree_about_the_shared_class_are_refused() {
    let second = "- name: topaz\n  vendor: NVIDIA\n  owner: DRA\n  nodeSelector: {matchLabels: {rack: r11}}\nsizes:";
    let problems = problems_with("sizes:", second);
    assert_eq!(problems.len(), 1, "{problems:#?}");
    assert!(
        problems[0].contains("found Publish in quartz but not in topaz"),
        "{problems:#?}"
    );
}

/// A changed value here would drain every node of the cohorts concerned when the controller is upgraded.
#[test]
fn shapes_are_the_same_as_in_earlier_releases() {
    let plan = Plan::parse(&spec(SPEC)).expect("valid");
    let shapes: Vec<(&str, &str)> = plan
        .cohorts
        .iter()
        .map(|cohort| (cohort.cohort.name.as_str(), cohort.cohort.shape.as_str()))
        .collect();
    assert_eq!(
        shapes,
        [
            ("aspen", "c82b0ad20e97383e"),
            ("birch", "623417a619ba6ae6"),
            ("quartz", "a9e9806bad9dbe39"),
            ("zebra", "2c8f94b5f2eafd03")
        ]
    );
}

#[test]
fn the_shape_changes_with_what_is_advertised_and_with_nothing_else() {
    let before = Plan::parse(&spec(SPEC)).expect("valid");
    let shape_of = |from: &str, to: &str, name: &str| {
        assert!(SPEC.contains(from), "the fixture does not contain {from:?}");
        let after = Plan::parse(&spec(&SPEC.replacen(from, to, 1))).expect("still valid");
        (
            cohort(&before, name).cohort.shape.clone(),
            cohort(&after, name).cohort.shape.clone(),
        )
    };
    for (from, to, name) in [
        ("replicas: 3", "replicas: 4", "zebra"),
        ("renameByDefault: true", "renameByDefault: false", "zebra"),
        ("{2g.20gb: 3}", "{2g.20gb: 2}", "zebra"),
        ("gpus: \"1,4\"", "gpus: \"1,5\"", "zebra"),
        (
            "TimeSlicingSettings: true",
            "PassthroughSupport: true",
            "quartz",
        ),
        ("logicalNeuronCore: 1}", "logicalNeuronCore: 2}", "birch"),
        (
            "vendor: Neuron\n  owner: DRA",
            "vendor: Neuron\n  owner: DevicePlugin",
            "aspen",
        ),
    ] {
        let (before, after) = shape_of(from, to, name);
        assert_ne!(before, after, "{from} -> {to}");
    }
    for (from, to, name) in [
        ("gpu-plug:odd-1", "gpu-plug:odd-2", "zebra"),
        ("cpu: 25m", "cpu: 26m", "zebra"),
        ("failOnInitError: false", "failOnInitError: true", "zebra"),
        ("/opt/drv", "/opt/drive", "zebra"),
        (
            "TimeSlicingSettings: true",
            "TimeSlicingSettings: true, DynamicMIG: false",
            "quartz",
        ),
        (
            "extendedResourceName: Publish",
            "extendedResourceName: Omit",
            "quartz",
        ),
        ("{rack: r10}", "{rack: r12}", "aspen"),
    ] {
        let (before, after) = shape_of(from, to, name);
        assert_eq!(before, after, "{from} -> {to}");
    }
}
