//! Other parties: found by evidence, told with names, nothing of theirs touched, and the node
//! goes on by itself when they are gone. Real controller, real agents, a real control plane.

mod contention;
mod definitions;
#[path = "../fault/mod.rs"]
mod fault;
mod found;

use std::time::Duration;

use anyhow::{Result, ensure};
use fault::{CASE, Case, intent, side_by_side, until};
use found::{
    config_not_found, host_plugin, leftovers_mean_nothing, lost_advertisement, name_taken, no_pod,
    no_slices, plugin_elsewhere,
};
use freehold_core::blocker::Reason;
use freehold_core::names;
use freehold_core::vendor::{Owner, Vendor};
use freehold_e2e::cluster::{Filter, Options};
use freehold_e2e::install::{ControllerOptions, wait_for_cluster};
use freehold_e2e::scenario::Scenario;
use freehold_e2e::sim::Shape;
use futures::FutureExt as _;
use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicyBinding;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};

/// The cases, with the owner that each cohort wants.
const CASES: [(&str, Owner); 10] = [
    ("plugin-elsewhere", Owner::DevicePlugin),
    ("host-plugin", Owner::Dra),
    ("leftovers", Owner::Dra),
    ("no-slices", Owner::Dra),
    ("no-pod", Owner::DevicePlugin),
    ("lost-advert", Owner::DevicePlugin),
    ("config", Owner::DevicePlugin),
    ("name-taken", Owner::DevicePlugin),
    ("alias", Owner::DevicePlugin),
    ("relabelled", Owner::DevicePlugin),
];
/// A node without accelerators in the cohort of the first case.
pub const CPU: &str = "cpu-elsewhere";

/// More CPUs than any node has: the operand's pod stays unscheduled.
const TOO_MUCH: &str = "100000";

fn controller() -> ControllerOptions {
    let arguments = [
        "--settle-seconds=1",
        "--stable-seconds=1",
        "--patience-seconds=6",
        "--status-rest-ms=200",
    ];
    ControllerOptions {
        identity: "replica-1".into(),
        arguments: arguments.map(str::to_owned).into(),
        ..ControllerOptions::default()
    }
}

fn shape(name: &str) -> Shape {
    let mut shape = Shape::h100();
    if name == "host-plugin" {
        // A node image with a plugin of its own, as Bottlerocket's.
        shape.built_in.insert(
            "nvidia.com/gpu".into(),
            (0..8).map(|gpu| format!("GPU-built-in-{gpu}")).collect(),
        );
    }
    shape.with_label(CASE, name)
}

/// Another product's plugin, under a name that says nothing.
const WEIGHTS_LOADER: &str = r"
apiVersion: v1
kind: Namespace
metadata: {name: unrelated}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: weights-loader, namespace: unrelated}
spec:
  selector: {matchLabels: {app: weights-loader}}
  template:
    metadata: {labels: {app: weights-loader}}
    spec:
      nodeSelector: {case.example.com/name: plugin-elsewhere}
      tolerations: [{operator: Exists}]
      containers:
      - name: loader
        image: registry.example.com/nvidia/k8s-device-plugin:v0.14.5
        command: [nvidia-device-plugin]
        volumeMounts: [{name: plugins, mountPath: /var/lib/kubelet/device-plugins}]
      volumes: [{name: plugins, hostPath: {path: /var/lib/kubelet/device-plugins}}]
";

/// The same image on nodes that are not here: it stays for the whole test and is blamed on no node that it cannot reach.
const ELSEWHERE: &str = r"
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: pools-elsewhere, namespace: unrelated}
spec:
  selector: {matchLabels: {app: pools-elsewhere}}
  template:
    metadata: {labels: {app: pools-elsewhere}}
    spec:
      affinity:
        nodeAffinity:
          requiredDuringSchedulingIgnoredDuringExecution:
            nodeSelectorTerms:
            - matchExpressions: [{key: site.example.com/hall, operator: In, values: ['7']}]
      tolerations: [{operator: Exists}]
      containers:
      - name: loader
        image: registry.example.com/nvidia/k8s-device-plugin:v0.14.5
        command: [nvidia-device-plugin]
        volumeMounts: [{name: plugins, mountPath: /var/lib/kubelet/device-plugins}]
      volumes: [{name: plugins, hostPath: {path: /var/lib/kubelet/device-plugins}}]
";

/// Carries our label, copied by somebody, and no owner.
const TAKEN: &str = r"
apiVersion: apps/v1
kind: DaemonSet
metadata:
  name: nvidia-device-plugin-name-taken
  namespace: freehold-operands
  labels: {app.kubernetes.io/managed-by: freehold}
spec:
  selector: {matchLabels: {app: squatter}}
  template:
    metadata: {labels: {app: squatter}}
    spec:
      nodeSelector: {nowhere.example.com/at: all}
      containers: [{name: main, image: 'registry.example.com/squatter:v1'}]
";

#[tokio::test(flavor = "multi_thread")]
async fn other_parties_are_found_by_evidence_and_nothing_of_theirs_is_touched() -> Result<()> {
    let mut nodes: Vec<(String, Shape)> =
        CASES.map(|(name, _)| (name.to_owned(), shape(name))).into();
    nodes.push((
        CPU.into(),
        Shape::cpu().with_label(CASE, "plugin-elsewhere"),
    ));
    let scenario =
        Scenario::start_with("foreign", nodes, Options::named("foreign")?, &controller()).await?;
    let (cluster, fleet) = (&scenario.cluster, &scenario.fleet);

    // Before Freehold is told anything: what each case finds there.
    cluster.apply_yaml(WEIGHTS_LOADER).await?;
    cluster.apply_yaml(ELSEWHERE).await?;
    cluster.apply_yaml(TAKEN).await?;
    fleet
        .node("plugin-elsewhere")?
        .wait_for_allocatable("nvidia.com/gpu", Some(8), fault::SOON)
        .await?;
    let leftovers = fleet.node("leftovers")?;
    leftovers.foreign_plugin("nvidia.com/gpu", 8)?;
    leftovers
        .wait_for_allocatable("nvidia.com/gpu", Some(8), fault::SOON)
        .await?;
    leftovers.foreign_plugin_gone()?;
    leftovers
        .wait_for_allocatable("nvidia.com/gpu", Some(0), fault::SOON)
        .await?;
    cluster
        .apply_yaml(&compute_domain_slice("leftovers").to_string())
        .await?;
    fleet.node("no-slices")?.hold_slices(true)?;
    let cohorts = CASES.map(|(name, owner)| {
        let more = match name {
            "no-pod" => json!({"resources": {"requests": {"cpu": TOO_MUCH}}}),
            _ => json!({}),
        };
        Case::cohort(name, owner, &more)
    });
    intent(&scenario, "Wait", &cohorts).await?;

    let case = |name: &'static str| {
        let owner = CASES
            .iter()
            .find(|(known, _)| *known == name)
            .map_or(Owner::Dra, |(_, owner)| *owner);
        Case::new(&scenario, name, owner)
    };
    side_by_side(vec![
        (
            "another product's plugin is a conflict on GPU nodes only (H10)",
            plugin_elsewhere(case("plugin-elsewhere")).boxed_local(),
        ),
        (
            "a plugin of the host itself is named so under DRA (H05)",
            host_plugin(case("host-plugin")).boxed_local(),
        ),
        (
            "resources at 0 and compute-domain slices mean nothing",
            leftovers_mean_nothing(case("leftovers")).boxed_local(),
        ),
        (
            "a driver that publishes nothing is told apart (H05)",
            no_slices(case("no-slices")).boxed_local(),
        ),
        (
            "an operand that does not run is named",
            no_pod(case("no-pod")).boxed_local(),
        ),
        (
            "an advertisement that is lost is told (H105)",
            lost_advertisement(case("lost-advert")).boxed_local(),
        ),
        (
            "a missing ConfigMap is told before anything changes (H90)",
            config_not_found(case("config")).boxed_local(),
        ),
        (
            "an object that is not ours is not touched (H95)",
            name_taken(case("name-taken")).boxed_local(),
        ),
        (
            "who fights over the alias label is met less and less often (H25)",
            contention::alias(case("alias")).boxed_local(),
        ),
        (
            "and told by name (H25)",
            contention::alias_is_told(case("alias")).boxed_local(),
        ),
    ])
    .await?;

    contention::alias_of_others(case("leftovers")).await?;
    nobody_else_moves_our_labels(case("config"), case("relabelled")).await?;
    for (kind, plural, version) in [
        ("ClusterPolicy", "clusterpolicies", "v1"),
        ("GPUCluster", "gpuclusters", "v1alpha1"),
    ] {
        a_rival_operator_is_a_conflict(&scenario, kind, plural, version).await?;
    }
    definitions::outdated(case("lost-advert")).await?;
    silent_kubelets_lose_nothing(&scenario).await?;
    // The labels that were changed by hand may look like a deselection to the monitor; nothing else may be wrong.
    let verdict = scenario.end().await?;
    let violations: Vec<String> = verdict
        .violations
        .iter()
        .map(ToString::to_string)
        .filter(|one| {
            !["config", "relabelled"]
                .iter()
                .any(|node| one.contains(&format!("on {node}: deselected without a fence")))
        })
        .collect();
    ensure!(violations.is_empty(), "{violations:?}");
    Ok(())
}

fn compute_domain_slice(node: &str) -> Value {
    json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "a-compute-domain"}, "spec": {
        "driver": "compute-domain.nvidia.com", "nodeName": node,
        "pool": {"name": node, "generation": 1, "resourceSliceCount": 1}, "devices": [{"name": "channel-0"}]}})
}

/// H15, H25: admission refuses other writers of our labels; one that gets past it is told of and not fought.
async fn nobody_else_moves_our_labels(case: Case<'_>, relabelled: Case<'_>) -> Result<()> {
    let cluster = &case.scenario.cluster;
    case.held(Owner::DevicePlugin).await?;
    let key = names::owner_label(Vendor::Nvidia);
    let change =
        |value: Value| Patch::Merge(json!({"metadata": {"labels": {(key.clone()): value}}}));
    let kubelet =
        cluster.client_for_user(&format!("system:node:{}", case.name), Some("system:nodes"))?;
    for (who, client) in [
        ("an administrator", cluster.admin()),
        ("its own kubelet", kubelet),
    ] {
        for value in [json!("dra"), json!(null)] {
            let refused = Api::<Node>::all(client.clone())
                .patch(case.name, &PatchParams::default(), &change(value.clone()))
                .await;
            let Err(kube::Error::Api(status)) = refused else {
                anyhow::bail!("{who} set {key} to {value}: {refused:?}")
            };
            ensure!(status.code == 403 || status.code == 422, "{status:?}");
        }
    }
    case.stays(Some(Owner::DevicePlugin), 2).await?;

    // An administrator who takes the policy away, and a writer who flips the label for as long as it is away.
    let bindings = Api::<ValidatingAdmissionPolicyBinding>::all(cluster.admin());
    let mut binding = bindings.get("freehold-node-marks").await?;
    bindings
        .delete("freehold-node-marks", &DeleteParams::default())
        .await?;
    until(
        "the API server to let the writer through",
        fault::SOON,
        async || {
            Ok(case
                .patch_node(json!({"metadata": {"labels": {(key.clone()): "gpu-operator"}}}))
                .await
                .map(drop)
                .map_err(|error| error.to_string()))
        },
    )
    .await?;
    let audit = cluster.audit();
    let since = audit.mark().await?;
    for turn in 0..6 {
        case.patch_node(
            json!({"metadata": {"labels": {(key.clone()): format!("gpu-operator-{}", turn % 2)}}}),
        )
        .await?;
        case.blocked(
            Reason::LabelContention,
            &[&key, &format!("gpu-operator-{}", turn % 2)],
        )
        .await?;
    }
    let ours = Filter::all()
        .service_account(names::SYSTEM_NAMESPACE, names::CONTROLLER_SERVICE_ACCOUNT)
        .resource("nodes");
    let writes = audit.writes_since(since, &ours.name(case.name)).await?;
    ensure!(writes.count() == 0, "it does not fight: {writes:?}");
    case.patch_node(json!({"metadata": {"labels": {(key.clone()): "device-plugin"}}}))
        .await?;
    contention::owner_label(relabelled).await?;
    binding.metadata = kube::core::ObjectMeta {
        name: binding.metadata.name,
        labels: binding.metadata.labels,
        ..Default::default()
    };
    bindings.create(&PostParams::default(), &binding).await?;
    case.held(Owner::DevicePlugin).await?;
    println!(
        "holds: other writers of our labels are refused; one that gets past is told of and not fought (H15, H25)"
    );
    Ok(())
}

/// The object of another operator, whose kind comes into being while we run.
async fn a_rival_operator_is_a_conflict(
    scenario: &Scenario,
    kind: &str,
    plural: &str,
    version: &str,
) -> Result<()> {
    let cluster = &scenario.cluster;
    let held = [
        ("lost-advert", Owner::DevicePlugin),
        ("leftovers", Owner::Dra),
    ];
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.nvidia.com")}, "spec": {"group": "nvidia.com", "scope": "Cluster",
            "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase()},
            "versions": [{"name": version, "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}});
    cluster.apply_yaml(&definition.to_string()).await?;
    // The kind alone is no conflict.
    for (name, owner) in held {
        Case::new(scenario, name, owner).held(owner).await?;
    }
    let object = json!({"apiVersion": format!("nvidia.com/{version}"), "kind": kind, "metadata": {"name": "site-gpus"}});
    let resource = ApiResource::from_gvk_with_plural(
        &GroupVersionKind::gvk("nvidia.com", version, kind),
        plural,
    );
    let api = Api::<DynamicObject>::all_with(cluster.admin(), &resource);
    let made = api
        .create(&PostParams::default(), &serde_json::from_value(object)?)
        .await?;
    for (name, owner) in held {
        let case = Case::new(scenario, name, owner);
        case.blocked(Reason::ForeignOwner, &[&format!("{kind} site-gpus")])
            .await?;
        case.stays(Some(owner), 2).await?;
    }
    ensure!(
        api.get("site-gpus").await?.resource_version() == made.resource_version(),
        "nobody touched it"
    );
    api.delete("site-gpus", &DeleteParams::default()).await?;
    for (name, owner) in held {
        Case::new(scenario, name, owner).held(owner).await?;
    }
    println!("holds: an object of kind {kind} is a conflict for as long as it is there");
    Ok(())
}

/// H30: every node falls silent; nothing is deleted, no owner changes, and nothing is called ready.
async fn silent_kubelets_lose_nothing(scenario: &Scenario) -> Result<()> {
    let cluster = &scenario.cluster;
    let nodes = Api::<Node>::all(cluster.admin());
    let unknown = Patch::Strategic(json!({"status": {"conditions": [
        {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown", "message": "Kubelet stopped posting node status."}]}}));
    for (name, _) in CASES {
        scenario.fleet.node(name)?.kubelet_down()?;
        nodes
            .patch_status(name, &PatchParams::default(), &unknown)
            .await?;
    }
    for (name, owner) in CASES {
        let tenure = Case::new(scenario, name, owner)
            .blocked(Reason::NodeNotReady, &[])
            .await?;
        ensure!(tenure.owner == Some(owner), "{tenure:?}");
    }
    wait_for_cluster(
        cluster,
        "nothing to be called ready",
        fault::SOON,
        |object| {
            object
                .status
                .as_ref()
                .is_some_and(|status| status.nodes.ready == 0)
        },
    )
    .await?;
    let rest = cluster.audit().mark().await?;
    // Longer than every pause of the controller's that is not a matter of minutes.
    tokio::time::sleep(Duration::from_secs(12)).await;
    let ours = Filter::all()
        .service_account(names::SYSTEM_NAMESPACE, names::CONTROLLER_SERVICE_ACCOUNT)
        .without_leases();
    let writes = cluster.audit().writes_since(rest, &ours).await?;
    ensure!(writes.count() == 0, "{:?}", writes.by_user_verb_resource());
    for (name, owner) in CASES {
        scenario.fleet.node(name)?.kubelet_up().await?;
        Case::new(scenario, name, owner).held(owner).await?;
    }
    println!(
        "holds: kubelets that all fall silent cost no node its owner, and no write is made (H30)"
    );
    Ok(())
}
