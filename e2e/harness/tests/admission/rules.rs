//! One row per CEL rule: what a person might write, and the sentence that the API server answers.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::{Desk, complaints, document, refusal, schema};

/// Changes to the full document, and the single complaint about them.
struct Row {
    changes: Vec<(&'static str, Value)>,
    field: &'static str,
    message: &'static str,
}

fn row(pointer: &'static str, value: Value, field: &'static str, message: &'static str) -> Row {
    Row {
        changes: vec![(pointer, value)],
        field,
        message,
    }
}

fn long(length: usize) -> Value {
    json!("a".repeat(length))
}

/// Place in the schema, pointer to what is changed, what it is changed to, field and sentence of the refusal.
#[rustfmt::skip]
fn rows() -> Vec<Row> {
    vec![
        // The whole intent.
        row("/spec/ownerLabel", json!("workshop.example.com/-allocation"), "spec.ownerLabel",
            "ownerLabel must be a label key: an optional DNS prefix and '/', then at most 63 letters, digits, '-', '_' or '.'; e.g. workload.example.com/gpu-allocation"),
        row("/spec/ownerLabel", json!(format!("workshop.example.com/{}", "a".repeat(64))), "spec.ownerLabel",
            "ownerLabel must be a label key: an optional DNS prefix and '/', then at most 63 letters, digits, '-', '_' or '.'; e.g. workload.example.com/gpu-allocation"),
        row("/spec/ownerLabel", json!("node.kubernetes.io/allocation"), "spec.ownerLabel",
            "ownerLabel must not use a prefix that Kubernetes or Freehold reserves (kubernetes.io, k8s.io, freehold.dev); use a domain of your own"),
        row("/spec/ownerLabel", json!("freehold.dev/allocation"), "spec.ownerLabel",
            "ownerLabel must not use a prefix that Kubernetes or Freehold reserves (kubernetes.io, k8s.io, freehold.dev); use a domain of your own"),
        Row {
            changes: vec![("/spec/cohorts/3/owner", json!("DRA")), ("/spec/cohorts/3/nvidia", json!({"dra": {}}))],
            field: "spec",
            message: "nvidia.dra.extendedResourceName must be the same in every NVIDIA cohort with owner DRA: it is a field of the one DeviceClass gpu.nvidia.com that they share; set Publish in all of them or in none",
        },
        row("/spec/cohorts/0/nodeSelector/matchLabels", json!({"workshop.example.com/allocation": "dra"}), "spec",
            "ownerLabel must not be used in a cohort's nodeSelector: it says who owns a node, so that a handover would take the node out of its cohort; select nodes by a label of your own"),
        row("/spec/cohorts/0/nodeSelector/matchExpressions/1/key", json!("workshop.example.com/allocation"), "spec",
            "ownerLabel must not be used in a cohort's nodeSelector: it says who owns a node, so that a handover would take the node out of its cohort; select nodes by a label of your own"),

        // A cohort: vendor, owner and their settings.
        row("/spec/cohorts/0/neuron", json!({}), "spec.cohorts[0]",
            "neuron: settings of the other vendor; this cohort's vendor is NVIDIA: remove 'neuron', or set vendor: Neuron"),
        row("/spec/cohorts/2/nvidia", json!({}), "spec.cohorts[2]",
            "nvidia: settings of the other vendor; this cohort's vendor is Neuron: remove 'nvidia', or set vendor: NVIDIA"),
        row("/spec/cohorts/1/nvidia/devicePlugin", json!({}), "spec.cohorts[1]",
            "nvidia.devicePlugin has no effect while owner is DRA: remove it, or set owner: DevicePlugin"),
        row("/spec/cohorts/0/nvidia/dra", json!({}), "spec.cohorts[0]",
            "nvidia.dra has no effect while owner is DevicePlugin: remove it, or set owner: DRA"),
        row("/spec/cohorts/1/nvidia/runtimeClassName", json!("accelerated"), "spec.cohorts[1]",
            "nvidia.runtimeClassName has no effect while owner is DRA (the DRA driver injects devices through CDI): remove it, or set owner: DevicePlugin"),
        row("/spec/cohorts/0/nvidia/mig", json!({"layouts": [{"gpus": "All", "instances": {"1g.5gb": 7}}]}), "spec.cohorts[0]",
            "nvidia.mig with migStrategy None would make instances that nobody hands out: set nvidia.devicePlugin.migStrategy to Single or Mixed, or remove nvidia.mig"),
        row("/spec/cohorts/4/nvidia/devicePlugin", Value::Null, "spec.cohorts[4]",
            "nvidia.mig with migStrategy None would make instances that nobody hands out: set nvidia.devicePlugin.migStrategy to Single or Mixed, or remove nvidia.mig"),
        row("/spec/cohorts/1/nvidia/dra/featureGates/DynamicMIG", json!(true), "spec.cohorts[1]",
            "nvidia.mig.layouts and the feature gate DynamicMIG exclude each other: the driver would destroy the instances that the layout makes; remove one of them"),
        row("/spec/cohorts/4/nvidia/mig/layouts/0/instances/1g.10gb", json!(1), "spec.cohorts[4]",
            "migStrategy Single needs one uniform MIG type on the node: name exactly one and the same profile in every layout, or set migStrategy: Mixed"),
        row("/spec/cohorts/4/nvidia/mig/layouts", json!([{"gpus": "0", "instances": {"1g.5gb": 7}}, {"gpus": "1", "instances": {"2g.10gb": 3}}]), "spec.cohorts[4]",
            "migStrategy Single needs one uniform MIG type on the node: name exactly one and the same profile in every layout, or set migStrategy: Mixed"),

        // A cohort: names, image, nodes.
        row("/spec/cohorts/0/name", long(64), "spec.cohorts[0].name",
            "name must have at most 63 characters: it becomes the value of a node label; shorten it"),
        row("/spec/cohorts/0/name", json!("Forge"), "spec.cohorts[0].name",
            "name must be a DNS label (lower-case letters, digits and '-', starting and ending with a letter or digit), e.g. h100-dra"),
        row("/spec/cohorts/0/name", json!("forge-"), "spec.cohorts[0].name",
            "name must be a DNS label (lower-case letters, digits and '-', starting and ending with a letter or digit), e.g. h100-dra"),
        row("/spec/cohorts/0/image", json!("registry.example.com/team/plugin"), "spec.cohorts[0].image",
            "image must end in a tag or a digest, e.g. registry.example.com/nvidia/k8s-device-plugin:v0.20.0 or …@sha256:<64 hex digits>: an image without either changes by itself"),
        row("/spec/cohorts/0/image", json!("registry.example.com:5000/team/plugin"), "spec.cohorts[0].image",
            "image must end in a tag or a digest, e.g. registry.example.com/nvidia/k8s-device-plugin:v0.20.0 or …@sha256:<64 hex digits>: an image without either changes by itself"),
        row("/spec/cohorts/0/image", json!("registry.example.com/team/plugin@sha256:a1b2"), "spec.cohorts[0].image",
            "image must end in a tag or a digest, e.g. registry.example.com/nvidia/k8s-device-plugin:v0.20.0 or …@sha256:<64 hex digits>: an image without either changes by itself"),
        row("/spec/cohorts/0/kubeletRootDir", json!("data/kubelet"), "spec.cohorts[0].kubeletRootDir",
            "kubeletRootDir must be an absolute path without '.', '..' or a trailing slash, e.g. /var/lib/kubelet"),
        row("/spec/cohorts/0/kubeletRootDir", json!("/data/../etc"), "spec.cohorts[0].kubeletRootDir",
            "kubeletRootDir must be an absolute path without '.', '..' or a trailing slash, e.g. /var/lib/kubelet"),
        row("/spec/cohorts/0/nodeSelector", json!({}), "spec.cohorts[0].nodeSelector",
            "nodeSelector must name at least one label: an empty selector would claim every node, future ones included; e.g. matchLabels: {pool: a}"),
        row("/spec/cohorts/0/nodeSelector", json!({"matchLabels": {}, "matchExpressions": []}), "spec.cohorts[0].nodeSelector",
            "nodeSelector must name at least one label: an empty selector would claim every node, future ones included; e.g. matchLabels: {pool: a}"),
        row("/spec/cohorts/0/nodeSelector/matchLabels/shelf", long(64), "spec.cohorts[0].nodeSelector.matchLabels",
            "matchLabels values must have at most 63 characters: no node can carry a longer label value (feature discovery drops such labels); select by another label"),
        row("/spec/cohorts/0/nodeSelector/matchLabels/freehold.node-restriction.kubernetes.io~1nvidia-owner", json!("dra"), "spec.cohorts[0].nodeSelector.matchLabels",
            "matchLabels must not use Freehold's own labels: they are what the selector decides"),
        row("/spec/cohorts/0/nodeSelector/matchExpressions/0/key", json!("freehold.node-restriction.kubernetes.io/agent"), "spec.cohorts[0].nodeSelector.matchExpressions[0].key",
            "key must not be one of Freehold's own labels: they are what the selector decides"),
        row("/spec/cohorts/0/nodeSelector/matchExpressions/0/values", json!([]), "spec.cohorts[0].nodeSelector.matchExpressions[0]",
            "values must name at least one value with In and NotIn, and none with Exists and DoesNotExist"),
        row("/spec/cohorts/0/nodeSelector/matchExpressions/1/values", json!(["z3"]), "spec.cohorts[0].nodeSelector.matchExpressions[1]",
            "values must name at least one value with In and NotIn, and none with Exists and DoesNotExist"),
        row("/spec/cohorts/0/nodeSelector/matchExpressions/0/values/0", long(64), "spec.cohorts[0].nodeSelector.matchExpressions[0].values",
            "values must have at most 63 characters each: no node can carry a longer label value"),

        row("/spec/cohorts/0/nodeSelector/matchLabels/room number", json!("4"), "spec.cohorts[0].nodeSelector.matchLabels",
            "matchLabels must be keyed by label keys: an optional DNS prefix and '/', then at most 63 letters, digits, '-', '_' or '.'"),
        row("/spec/cohorts/0/nodeSelector/matchLabels/shelf", json!("top/left"), "spec.cohorts[0].nodeSelector.matchLabels",
            "matchLabels values must be letters, digits, '-', '_' or '.', starting and ending with a letter or digit: no node can carry another label value"),
        row("/spec/cohorts/0/nodeSelector/matchExpressions/0/key", json!("zone/"), "spec.cohorts[0].nodeSelector.matchExpressions[0].key",
            "key must be a label key: an optional DNS prefix and '/', then at most 63 letters, digits, '-', '_' or '.'"),
        row("/spec/cohorts/0/nodeSelector/matchExpressions/0/values/0", json!("z1,z2"), "spec.cohorts[0].nodeSelector.matchExpressions[0].values",
            "values must be letters, digits, '-', '_' or '.', starting and ending with a letter or digit: no node can carry another label value"),
        row("/spec/cohorts/0/tolerations/0/effect", json!("NoSchedul"), "spec.cohorts[0].tolerations",
            "tolerations[].effect must be NoSchedule, PreferNoSchedule or NoExecute, or absent for all of them"),
        row("/spec/cohorts/0/tolerations/0/operator", json!("Equals"), "spec.cohorts[0].tolerations",
            "tolerations[].operator must be Equal or Exists"),
        row("/spec/cohorts/0/tolerations/0/value", json!("high"), "spec.cohorts[0].tolerations",
            "tolerations[].value has no meaning with operator Exists: remove it, or set operator: Equal"),
        row("/spec/cohorts/0/tolerations/0", json!({"value": "high"}), "spec.cohorts[0].tolerations",
            "tolerations[].key must be set with operator Equal, the default; to tolerate every taint set operator: Exists"),
        row("/spec/cohorts/0/tolerations/0/tolerationSeconds", json!(30), "spec.cohorts[0].tolerations",
            "tolerations[].tolerationSeconds needs effect: NoExecute, the only one it applies to"),
        row("/spec/cohorts/0/resources/claims", json!([{"name": "gpu"}]), "spec.cohorts[0].resources",
            "resources.claims must be absent: an operand hands devices out and cannot claim any"),
        row("/spec/cohorts/0/imagePullSecrets/0", json!("Registry_Key"), "spec.cohorts[0].imagePullSecrets",
            "imagePullSecrets must be names of Secrets (lower-case letters, digits, '-' and '.')"),
        row("/spec/cohorts/0/kubeletRootDir", json!("/data/./kubelet"), "spec.cohorts[0].kubeletRootDir",
            "kubeletRootDir must be an absolute path without '.', '..' or a trailing slash, e.g. /var/lib/kubelet"),

        // NVIDIA.
        row("/spec/cohorts/0/nvidia/driverRoot", json!("run/nvidia/driver"), "spec.cohorts[0].nvidia.driverRoot",
            "driverRoot must be an absolute path without '.', '..' or a trailing slash, e.g. / or /run/nvidia/driver"),
        row("/spec/cohorts/0/nvidia/driverRoot", json!("/run/nvidia/.."), "spec.cohorts[0].nvidia.driverRoot",
            "driverRoot must be an absolute path without '.', '..' or a trailing slash, e.g. / or /run/nvidia/driver"),
        row("/spec/cohorts/0/nvidia/devicePlugin/mps", json!({"replicas": 2}), "spec.cohorts[0].nvidia.devicePlugin",
            "timeSlicing, mps and config exclude each other: the plugin honours one sharing configuration; keep one"),
        row("/spec/cohorts/0/nvidia/devicePlugin/config", json!({"name": "plugin-settings", "key": "a.yaml"}), "spec.cohorts[0].nvidia.devicePlugin",
            "timeSlicing, mps and config exclude each other: the plugin honours one sharing configuration; keep one"),
        row("/spec/cohorts/3/nvidia/devicePlugin/migStrategy", json!("Mixed"), "spec.cohorts[3].nvidia.devicePlugin",
            "mps cannot be combined with migStrategy Single or Mixed: the plugin refuses MPS on MIG devices; set migStrategy: None or remove mps"),
        row("/spec/cohorts/0/nvidia/runtimeClassName", json!("Accelerated"), "spec.cohorts[0].nvidia.runtimeClassName",
            "runtimeClassName must be the name of a RuntimeClass (lower-case letters, digits, '-' and '.'), e.g. nvidia"),
        row("/spec/cohorts/4/nvidia/devicePlugin/config/name", json!("plugin settings"), "spec.cohorts[4].nvidia.devicePlugin.config.name",
            "name must be the name of a ConfigMap (lower-case letters, digits, '-' and '.')"),
        row("/spec/cohorts/4/nvidia/devicePlugin/config/key", json!("../config.yaml"), "spec.cohorts[4].nvidia.devicePlugin.config.key",
            "key must be a key of a ConfigMap (letters, digits, '-', '_' and '.'), e.g. config.yaml"),
        row("/spec/cohorts/0/nvidia/devicePlugin/timeSlicing/resources/0/name", json!("nvidia.com/mig-1g.10gb"), "spec.cohorts[0].nvidia.devicePlugin",
            "timeSlicing of nvidia.com/mig-<profile> needs migStrategy Mixed, which alone advertises it: set migStrategy: Mixed, or share nvidia.com/gpu"),
        row("/spec/cohorts/3/nvidia/devicePlugin/mps/replicas", json!(1), "spec.cohorts[3].nvidia.devicePlugin.mps.replicas",
            "mps.replicas must be at least 2: the plugin refuses 1; for exclusive GPUs remove mps"),
        row("/spec/cohorts/0/nvidia/devicePlugin/timeSlicing/resources/0/name", json!("example.com/gpu"), "spec.cohorts[0].nvidia.devicePlugin.timeSlicing.resources[0].name",
            "resources[].name must be nvidia.com/gpu or nvidia.com/mig-<profile> (with '+' written as '.'), as the plugin advertises it before renaming"),
        row("/spec/cohorts/0/nvidia/devicePlugin/timeSlicing/resources/0/replicas", json!(1), "spec.cohorts[0].nvidia.devicePlugin.timeSlicing.resources[0].replicas",
            "timeSlicing replicas must be at least 2: the plugin refuses 1; for exclusive devices remove the resource (or timeSlicing)"),
        row("/spec/cohorts/1/nvidia/dra/featureGates/IMEXDaemonsWithDNSNames", json!(true), "spec.cohorts[1].nvidia.dra.featureGates",
            "featureGates: unknown gate, or one of ComputeDomains, which Freehold does not run; known: TimeSlicingSettings, MPSSupport, PassthroughSupport, DynamicMIG, NVMLDeviceHealthCheck, DeviceMetadata, DRAListTypeAttributes, FabricManagerPartitioning, ConsumableShares"),
        row("/spec/cohorts/1/nvidia", json!({"dra": {"extendedResourceName": "Publish", "featureGates": {"DynamicMIG": true, "PassthroughSupport": true}}}), "spec.cohorts[1].nvidia.dra.featureGates",
            "featureGates: DynamicMIG excludes PassthroughSupport, NVMLDeviceHealthCheck and MPSSupport (the driver refuses to start); turn one side off"),
        row("/spec/cohorts/1/nvidia/dra/featureGates", json!({"PassthroughSupport": true, "NVMLDeviceHealthCheck": true}), "spec.cohorts[1].nvidia.dra.featureGates",
            "featureGates: PassthroughSupport excludes NVMLDeviceHealthCheck (the driver refuses to start); turn one off"),
        row("/spec/cohorts/1/nvidia/dra/featureGates", json!({"DeviceMetadata": true, "PassthroughSupport": false}), "spec.cohorts[1].nvidia.dra.featureGates",
            "featureGates: DeviceMetadata needs PassthroughSupport (the driver refuses to start without it); turn PassthroughSupport on or DeviceMetadata off"),
        row("/spec/cohorts/1/nvidia/dra/featureGates", json!({"MPSSupport": true, "ConsumableShares": true}), "spec.cohorts[1].nvidia.dra.featureGates",
            "featureGates: MPSSupport excludes NVMLDeviceHealthCheck and ConsumableShares (documented as unsupported; claims fail to prepare); turn one side off"),
        row("/spec/cohorts/1/nvidia/mig/layouts/0/gpus", json!("0-3"), "spec.cohorts[1].nvidia.mig.layouts[0].gpus",
            "gpus must be All or a comma-separated list of GPU minor numbers, e.g. '0,1,6'"),
        row("/spec/cohorts/1/nvidia/mig/layouts/0/instances", json!({}), "spec.cohorts[1].nvidia.mig.layouts[0].instances",
            "instances must name at least one profile, each with a count from 1 to 64; to leave MIG off, name no layout for the GPU"),
        row("/spec/cohorts/1/nvidia/mig/layouts/0/instances/1g.10gb", json!(0), "spec.cohorts[1].nvidia.mig.layouts[0].instances",
            "instances must name at least one profile, each with a count from 1 to 64; to leave MIG off, name no layout for the GPU"),
        row("/spec/cohorts/1/nvidia/mig/layouts/0/instances/1g.10gb", json!(65), "spec.cohorts[1].nvidia.mig.layouts[0].instances",
            "instances must name at least one profile, each with a count from 1 to 64; to leave MIG off, name no layout for the GPU"),
        row("/spec/cohorts/1/nvidia/mig/layouts/0/instances/MIG 1g.10gb", json!(1), "spec.cohorts[1].nvidia.mig.layouts[0].instances",
            "instances must be keyed by MIG profile names as the driver prints them, e.g. 1g.10gb or 1g.10gb+me, or by compute slices and a fraction of the board's memory of at most 1, e.g. 1g.1/8 or 3g.1/2+me"),
        row("/spec/cohorts/1/nvidia/mig/layouts/0/instances/3g.9~18", json!(1), "spec.cohorts[1].nvidia.mig.layouts[0].instances",
            "instances must be keyed by MIG profile names as the driver prints them, e.g. 1g.10gb or 1g.10gb+me, or by compute slices and a fraction of the board's memory of at most 1, e.g. 1g.1/8 or 3g.1/2+me"),

        // Neuron.
        row("/spec/cohorts/2/neuron/logicalNeuronCore", json!(3), "spec.cohorts[2].neuron.logicalNeuronCore",
            "logicalNeuronCore must be 1 or 2: only these exist; 2 joins two physical cores into one logical core"),

        // Sizes.
        Row {
            changes: vec![("/spec/sizes/1/namespaces", Value::Null), ("/spec/sizes/1/devices", json!({"count": 1}))],
            field: "spec.sizes[1]",
            message: "namespaces or deviceClassName must be set: without either there is nothing to keep for this size",
        },
        row("/spec/sizes/1/logicalNeuronCore", json!(1), "spec.sizes[1]",
            "logicalNeuronCore is a setting of Neuron devices: remove it, or set vendor: Neuron"),
        row("/spec/sizes/0/selectors/0", json!("device.attributes['neuron.aws.com'].instanceType == 'trn1.2xlarge'"), "spec.sizes[0]",
            "logicalNeuronCore has no effect on Trn1, Inf1 and Inf2, and the driver fails every pod that asks for it there (LNC value is not configurable for instance type trn1.2xlarge): remove it, or select trn2 or trn3"),
        row("/spec/sizes/0/selectors/0", json!(r#"device.attributes["neuron.aws.com"].instanceType=="inf2.48xlarge""#), "spec.sizes[0]",
            "logicalNeuronCore has no effect on Trn1, Inf1 and Inf2, and the driver fails every pod that asks for it there (LNC value is not configurable for instance type trn1.2xlarge): remove it, or select trn2 or trn3"),
        row("/spec/sizes/0/deviceType", json!("GPU"), "spec.sizes[0]",
            "deviceType tells NVIDIA devices apart: remove it, or set vendor: NVIDIA"),
        row("/spec/sizes/0/namespaces", Value::Null, "spec.sizes[0]",
            "namespaces must be set: alignBy, requestName and more than one device are parts of a claim, and a DeviceClass alone cannot hold them; name the namespaces, or remove these and set devices.count: 1"),
        row("/spec/sizes/0/devices/count", json!(1), "spec.sizes[0]",
            "alignBy says that several devices share an attribute; with devices.count 1 it has no meaning: remove it or ask for more devices"),
        row("/spec/sizes/0/alignBy", json!("devicegroup4_id"), "spec.sizes[0].alignBy",
            "alignBy must be a fully qualified device attribute: <domain>/<name> of at most 63 and 32 characters, e.g. resource.aws.com/devicegroup4_id"),
        row("/spec/sizes/0/deviceClassName", json!("Bench_Class"), "spec.sizes[0].deviceClassName",
            "deviceClassName must be a DNS name (lower-case letters, digits, '-' and '.'), e.g. hybrid-large-gpu"),
        row("/spec/sizes/0/deviceClassName", json!("neuron.aws.com"), "spec.sizes[0].deviceClassName",
            "deviceClassName must not be a vendor's own class: Freehold keeps those itself; choose a name of your own"),
        row("/spec/sizes/0/devices/all", json!(true), "spec.sizes[0].devices",
            "devices must have either a count or all: true"),
        row("/spec/sizes/1/devices", json!({"all": false}), "spec.sizes[1].devices",
            "devices must have either a count or all: true"),
        row("/spec/sizes/0/logicalNeuronCore", json!(4), "spec.sizes[0].logicalNeuronCore",
            "logicalNeuronCore must be 1 or 2: only these exist; 2 joins two physical cores into one logical core"),
        row("/spec/sizes/0/name", long(64), "spec.sizes[0].name",
            "name must have at most 63 characters: pods' generated claim names start with it; shorten it"),
        row("/spec/sizes/0/name", json!("bench.large"), "spec.sizes[0].name",
            "name must be a DNS label (lower-case letters, digits and '-'), e.g. xl-trn2"),
        row("/spec/sizes/0/requestName", json!("Cores"), "spec.sizes[0].requestName",
            "requestName must be a DNS label, e.g. gpu"),

        row("/spec/sizes/0/namespaces/0", json!("Atelier"), "spec.sizes[0].namespaces",
            "namespaces must be DNS labels (lower-case letters, digits and '-'): no namespace can have another name"),
        row("/spec/sizes/1/deviceClassName", json!("bench-class"), "spec.sizes",
            "deviceClassName must differ from size to size: each keeps its own DeviceClass; rename one, or remove it from all but one"),
        row("/spec/sizes/0/selectors/0", json!("  "), "spec.sizes[0].selectors",
            "selectors must be CEL expressions over device, not blank"),
        row("/spec/sizes/0/alignBy", json!(format!("resource.example.com/{}", "a".repeat(33))), "spec.sizes[0].alignBy",
            "alignBy must be a fully qualified device attribute: <domain>/<name> of at most 63 and 32 characters, e.g. resource.aws.com/devicegroup4_id"),

        // Pace.
        row("/spec/rollout/canary/soak", json!("ten minutes"), "spec.rollout.canary.soak",
            "soak must be a duration such as 10m or 1h30m"),
        row("/spec/rollout/drain/timeout", json!("1d"), "spec.rollout.drain.timeout",
            "timeout must be a duration such as 1h or 90m"),
        row("/spec/rollout/maxUnavailable", json!(0), "spec.rollout.maxUnavailable",
            "maxUnavailable must be a number of at least 1 or a percentage from 1% to 100%; to stop handovers set rollout.paused"),
        row("/spec/rollout/maxUnavailable", json!("120%"), "spec.rollout.maxUnavailable",
            "maxUnavailable must be a number of at least 1 or a percentage from 1% to 100%; to stop handovers set rollout.paused"),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn every_rule_refuses_what_it_is_about_with_its_own_sentence_alone() {
    let desk = Desk::open().await;
    let rows = rows();
    let schema = schema::places("freehold.dev_acceleratorclusters.yaml");
    let mut wrong = Vec::new();
    for Row {
        changes,
        field,
        message,
    } in &rows
    {
        let mut document = document::full();
        for (pointer, value) in changes {
            document::put(&mut document, pointer, value.clone());
        }
        let found = match desk.try_create(&document).await {
            Ok(_) => Vec::new(),
            Err(status) => complaints(&status),
        };
        let said = refusal(&schema, &document, field, message);
        let expected = [((*field).to_owned(), said)];
        if found != expected {
            wrong.push(format!(
                "{changes:?}\n  expected {expected:?}\n  found    {found:#?}"
            ));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {} rows:\n{}",
        wrong.len(),
        rows.len(),
        wrong.join("\n")
    );
    println!("{} refusals in the API server's own words", rows.len());
}

#[test]
fn no_rule_is_without_a_row() {
    let covered: BTreeSet<(String, String)> = rows()
        .iter()
        .map(|row| (schema::place_of(row.field), row.message.to_owned()))
        .collect();
    let mut expected = BTreeSet::new();
    for place in schema::places("freehold.dev_acceleratorclusters.yaml") {
        // The rule about the object's own name has a test of its own: a document has one name.
        for rule in place
            .schema
            .get("x-kubernetes-validations")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
        {
            if !place.path.is_empty() {
                expected.insert((
                    place.path.clone(),
                    rule["message"].as_str().unwrap().to_owned(),
                ));
            }
        }
    }
    assert!(expected.len() > 40, "only {} rules found", expected.len());
    assert_eq!(covered, expected);
}
