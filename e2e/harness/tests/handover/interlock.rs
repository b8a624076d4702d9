//! Operand pods placed by hand: the node itself refuses a second owner.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result};
use freehold_core::names;
use freehold_core::vendor::{Owner, Vendor};
use freehold_e2e::cluster::TestCluster;
use freehold_e2e::scenario::{SOON, Scenario};
use freehold_e2e::sim::{Shape, wait_for};
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use kube::{ResourceExt as _, api::ObjectMeta};

use super::stage::settled;

/// One node of each owner.
pub const LEFT_AND_RIGHT: &str = r"
apiVersion: freehold.dev/v1alpha1
kind: AcceleratorCluster
metadata: {name: cluster}
spec:
  cohorts:
  - {name: left, vendor: NVIDIA, owner: DevicePlugin, nodeSelector: {matchLabels: {pool: left}}}
  - {name: right, vendor: NVIDIA, owner: DRA, nodeSelector: {matchLabels: {pool: right}}}
";

pub fn left_and_right() -> Vec<(String, Shape)> {
    ["left", "right"]
        .map(|pool| (format!("{pool}-1"), Shape::h100().with_label("pool", pool)))
        .into()
}

pub const BOTH: [(&str, Vendor, Owner); 2] = [
    ("left-1", Vendor::Nvidia, Owner::DevicePlugin),
    ("right-1", Vendor::Nvidia, Owner::Dra),
];

/// A pod from a DaemonSet's template, on a node of somebody's choice; `without` names a container to leave out.
pub async fn place_by_hand(
    cluster: &TestCluster,
    set: &str,
    node: &str,
    without: Option<&str>,
) -> Result<Pod> {
    let sets = Api::<DaemonSet>::namespaced(cluster.admin(), names::OPERAND_NAMESPACE);
    let template = sets.get(set).await?.spec.context("a spec")?.template;
    let mut spec = template.spec.context("a pod spec")?;
    spec.node_name = Some(node.to_owned());
    spec.node_selector = None;
    if let Some(without) = without {
        let inits = spec.init_containers.get_or_insert_default();
        let count = inits.len();
        inits.retain(|container| container.name != without);
        anyhow::ensure!(inits.len() < count, "{set} has no init container {without}");
    }
    let mut metadata = template.metadata.unwrap_or_default();
    // Of no cohort that has a DaemonSet: its controller would adopt the pod, and delete it for being on the wrong node.
    let labels = metadata.labels.get_or_insert_default();
    labels.insert(names::COHORT_LABEL.into(), "by-hand".into());
    let metadata = ObjectMeta {
        name: Some("by-hand".into()),
        labels: metadata.labels,
        annotations: metadata.annotations,
        ..ObjectMeta::default()
    };
    let pod = Pod {
        metadata,
        spec: Some(spec),
        status: None,
    };
    Ok(Api::namespaced(cluster.admin(), names::OPERAND_NAMESPACE)
        .create(&PostParams::default(), &pod)
        .await?)
}

/// UIDs of the pods whose operands run on a node.
pub fn running(scenario: &Scenario, node: &str) -> Result<BTreeSet<String>> {
    scenario
        .fleet
        .node(node)?
        .kubelet(|state| state.operands.keys().map(|(pod, _)| pod.clone()).collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_operands_on_one_node_only_the_one_whose_word_it_is_ever_starts() -> Result<()> {
    let scenario = Scenario::start("interlock", left_and_right()).await?;
    let cluster = &scenario.cluster;
    cluster.apply_yaml(LEFT_AND_RIGHT).await?;
    settled(&scenario, &BOTH).await?;

    // A device plugin beside a DRA driver that holds lock and word.
    let intruder = place_by_hand(cluster, "nvidia-device-plugin-left", "right-1", None).await?;
    let uid = intruder.uid().context("a UID")?;
    let says = said(&scenario, &intruder).await?;
    println!("the second operand waits and says: {says}");
    assert!(
        says.contains("dra") && says.contains("device-plugin"),
        "both owners are named: {says}"
    );
    assert!(!running(&scenario, "right-1")?.contains(&uid));

    // The rightful owner goes away for a moment: the lock is free, the word is not the intruder's.
    let pods = Api::<Pod>::namespaced(cluster.admin(), names::OPERAND_NAMESPACE);
    let rightful = running(&scenario, "right-1")?;
    let selector = format!("{}=dra", names::OWNER_LABEL);
    for pod in pods.list(&ListParams::default().labels(&selector)).await? {
        pods.delete(&pod.name_any(), &DeleteParams::default())
            .await?;
    }
    wait_for(
        "another pod of the rightful owner to run",
        SOON,
        async || {
            let now = running(&scenario, "right-1")?;
            Ok(
                if now.len() == 1 && now.is_disjoint(&rightful) && !now.contains(&uid) {
                    Ok(())
                } else {
                    Err(format!("{now:?}"))
                },
            )
        },
    )
    .await?;
    let phase = pods
        .get("by-hand")
        .await?
        .status
        .and_then(|status| status.phase);
    assert_eq!(
        phase.as_deref(),
        Some("Pending"),
        "the intruder still waits"
    );
    println!(
        "meanwhile the node's status: {:?}",
        scenario.tenure("right-1", Vendor::Nvidia).await?
    );
    pods.delete("by-hand", &DeleteParams::default()).await?;
    settled(&scenario, &BOTH).await?;
    scenario.stop().await
}

/// What the interlock of a waiting pod says, in its log.
async fn said(scenario: &Scenario, pod: &Pod) -> Result<String> {
    let short: String = pod.uid().unwrap_or_default().chars().take(8).collect();
    let folder = scenario
        .fleet
        .directory()
        .join("logs/right-1")
        .join(format!("{}_{short}", pod.name_any()));
    wait_for("the interlock to say why it waits", SOON, async || {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let text = std::fs::read_to_string(entry.path()).unwrap_or_default();
            if let Some(line) = text.lines().find(|line| line.starts_with("waiting: ")) {
                return Ok(Ok(line.to_owned()));
            }
        }
        Ok(Err(format!("nothing in {}", folder.display())))
    })
    .await
}
