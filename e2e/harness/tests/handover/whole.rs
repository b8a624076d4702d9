//! Whole handovers with running workloads, both vendors, both ways, to none, and the end of it all.

use std::time::Duration;

use anyhow::Result;
use freehold_api::{AcceleratorCluster, AcceleratorNode};
use freehold_core::blocker::Reason;
use freehold_core::names;
use freehold_core::vendor::{Owner, Vendor};
use freehold_e2e::cluster::TestCluster;
use freehold_e2e::scenario::{SOON, Scenario};
use freehold_e2e::sim::{Shape, wait_for};
use freehold_e2e::workload::{self, Devices};
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaimTemplate};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use kube::{Resource, ResourceExt as _};
use serde_json::json;

use super::stage::{INTENT, NodeWrites, edit, give_to, settled, writes_at_rest};

/// The most that may be written about a node for one handover, all together: seven orders of the controller (fence, term, revoke,
/// term, word, grant, unfence), two statuses (who is waited for, and the new owner), and an answer of the agent to each of
/// three terms.
const WRITES: usize = 12;
/// Of these, at least: the orders and the new owner's status, and the answers.
const LEAST: [(&str, usize); 2] = [("controller", 8), ("agent", 3)];

const GPU: Devices = Devices::Resource("nvidia.com/gpu", 1);
const GPU_CLAIM: Devices = Devices::Template("one-gpu");
const TRN: Devices = Devices::Resource("aws.amazon.com/neuron", 1);
const TRN_CLAIM: Devices = Devices::Template("one-trn");

#[tokio::test(flavor = "multi_thread")]
async fn owners_change_both_ways_under_running_workloads_and_in_the_end_nothing_is_left()
-> Result<()> {
    let duo = |name: &str| (name.to_owned(), Shape::h100().with_label("pool", "duo"));
    let nodes = vec![
        duo("duo-1"),
        duo("duo-2"),
        ("trn-1".to_owned(), Shape::trn2_48xlarge()),
    ];
    let scenario = Scenario::start("handover", nodes).await?;
    let cluster = &scenario.cluster;
    cluster.apply_yaml(INTENT).await?;
    settled(&scenario, &all(Owner::DevicePlugin)).await?;

    for (from, to) in [
        (Owner::DevicePlugin, Owner::Dra),
        (Owner::Dra, Owner::DevicePlugin),
    ] {
        hand_over_the_duo(&scenario, from, to).await?;
        hand_over_trainium(&scenario, from, to).await?;
    }
    let writes = writes_at_rest(&scenario, Duration::from_secs(20)).await?;
    println!("writes over 20 s at rest after the handovers: {writes}");
    assert_eq!(writes, 0, "controller and agents write nothing at rest");

    leave_a_cohort(&scenario).await?;
    tear_down(&scenario).await?;
    scenario.stop().await
}

fn all(owner: Owner) -> [(&'static str, Vendor, Owner); 3] {
    [
        ("duo-1", Vendor::Nvidia, owner),
        ("duo-2", Vendor::Nvidia, owner),
        ("trn-1", Vendor::Neuron, owner),
    ]
}

/// Both nodes are busy; one waits behind its fence until its workload ends, the other keeps its place in the queue and its owner.
async fn hand_over_the_duo(scenario: &Scenario, from: Owner, to: Owner) -> Result<()> {
    let (cluster, client) = (&scenario.cluster, scenario.cluster.admin());
    let devices = if from == Owner::Dra { GPU_CLAIM } else { GPU };
    for node in ["duo-1", "duo-2"] {
        workload::start(&client, &format!("job-{node}"), devices, Some(node)).await?;
        workload::wait_until_running(&client, &format!("job-{node}")).await?;
    }
    let mark = cluster.audit().mark().await?;
    give_to(cluster, 0, to).await?;
    let mut waiting = vec!["duo-1", "duo-2"];
    while !waiting.is_empty() {
        let first = fenced(cluster, &waiting).await?;
        let job = format!("job-{first}");
        let drains = |tenure: &freehold_api::TenureStatus| {
            let names_it = tenure
                .message
                .as_deref()
                .is_some_and(|message| message.contains(&job));
            tenure.reason == Some(Reason::ConsumersRemain) && tenure.owner == Some(from) && names_it
        };
        scenario
            .wait_for_tenure(
                &first,
                Vendor::Nvidia,
                "waiting for its workload, by name",
                drains,
            )
            .await?;
        waiting.retain(|node| *node != first);
        for other in &waiting {
            assert!(
                workload::is_running(&client, &format!("job-{other}")).await?,
                "{other} works on while it waits for its turn"
            );
            let asks = |tenure: &freehold_api::TenureStatus| {
                tenure.reason == Some(Reason::BudgetExhausted) && tenure.owner == Some(from)
            };
            scenario
                .wait_for_tenure(other, Vendor::Nvidia, "waiting for its turn", asks)
                .await?;
        }
        assert!(
            workload::is_running(&client, &job).await?,
            "nobody ends a workload under policy Wait"
        );
        workload::finish(&client, &job).await?;
        settled(scenario, &[(first.as_str(), Vendor::Nvidia, to)]).await?;
    }
    report(
        cluster,
        mark,
        &format!("NVIDIA {from} to {to}"),
        &["duo-1", "duo-2"],
    )
    .await
}

async fn hand_over_trainium(scenario: &Scenario, from: Owner, to: Owner) -> Result<()> {
    let (cluster, client) = (&scenario.cluster, scenario.cluster.admin());
    let devices = if from == Owner::Dra { TRN_CLAIM } else { TRN };
    workload::start(&client, "job-trn", devices, Some("trn-1")).await?;
    workload::wait_until_running(&client, "job-trn").await?;
    // What the Neuron scheduler extension books beside the device plugin, and somebody else's note.
    let annotations = json!({"NEURON_DEV_USAGE_MAP": "0:1", "NEURON_CORE_USAGE_MAP": "0:1,1:1", "site.example.com/rack": "4"});
    let nodes = Api::<Node>::all(client.clone());
    let booked = Patch::Merge(json!({"metadata": {"annotations": annotations}}));
    nodes
        .patch("trn-1", &PatchParams::default(), &booked)
        .await?;
    let mark = cluster.audit().mark().await?;
    give_to(cluster, 1, to).await?;
    let drains = |tenure: &freehold_api::TenureStatus| {
        tenure.reason == Some(Reason::ConsumersRemain) && tenure.owner == Some(from)
    };
    scenario
        .wait_for_tenure("trn-1", Vendor::Neuron, "waiting for its workload", drains)
        .await?;
    workload::finish(&client, "job-trn").await?;
    settled(scenario, &[("trn-1", Vendor::Neuron, to)]).await?;
    let left = nodes.get("trn-1").await?.metadata.annotations;
    let left = |key: &str| {
        left.as_ref()
            .is_some_and(|annotations| annotations.contains_key(key))
    };
    let stale = freehold_core::names::NEURON_USAGE_ANNOTATIONS;
    assert_eq!(
        (stale.map(left), left("site.example.com/rack")),
        ([from == Owner::Dra; 2], true),
        "what was booked goes with the device plugin, and nothing else does"
    );
    report(cluster, mark, &format!("Neuron {from} to {to}"), &["trn-1"]).await
}

/// The node among these that is fenced; within the budget of one there is only one.
async fn fenced(cluster: &TestCluster, among: &[&str]) -> Result<String> {
    wait_for("a node to be fenced", SOON, async || {
        let nodes = Api::<Node>::all(cluster.admin())
            .list(&ListParams::default())
            .await?;
        let key = names::fence_taint(Vendor::Nvidia);
        let is_fenced = |node: &&Node| {
            node.spec
                .iter()
                .flat_map(|spec| spec.taints.iter().flatten())
                .any(|taint| taint.key == key)
        };
        let fenced: Vec<String> = nodes
            .iter()
            .filter(is_fenced)
            .map(kube::ResourceExt::name_any)
            .collect();
        let found = fenced.iter().find(|name| among.contains(&name.as_str()));
        Ok(found.cloned().ok_or_else(|| format!("{fenced:?}")))
    })
    .await
}

async fn report(
    cluster: &TestCluster,
    mark: freehold_e2e::cluster::Mark,
    what: &str,
    nodes: &[&str],
) -> Result<()> {
    let writes = NodeWrites::since(cluster, mark).await?;
    println!("{what}: writes of Freehold by node\n{writes}");
    for node in nodes {
        let mut all = 0;
        for (who, least) in LEAST {
            let count = writes.of(node, who);
            assert!(
                count >= least,
                "{what}: {count} writes of the {who} about {node}, of which {least} at least are known"
            );
            all += count;
        }
        assert!(
            all <= WRITES,
            "{what}: {all} writes about {node}, expected at most {WRITES}\n{writes}"
        );
    }
    Ok(())
}

/// A cohort that is removed gives its node up: it ends as it was found.
async fn leave_a_cohort(scenario: &Scenario) -> Result<()> {
    let cluster = &scenario.cluster;
    edit(cluster, json!([{"op": "remove", "path": "/spec/cohorts/1"}, {"op": "remove", "path": "/spec/sizes/1"}])).await?;
    untouched(scenario, &["trn-1"]).await?;
    scenario
        .fleet
        .node("trn-1")?
        .wait_for_allocatable("aws.amazon.com/neuron", Some(0), SOON)
        .await?;
    for node in ["duo-1", "duo-2"] {
        scenario
            .wait_until_held(node, Vendor::Nvidia, Owner::DevicePlugin)
            .await?;
    }
    Ok(())
}

/// Deleting the resource hands every node over to nobody, under running workloads, and takes itself away last.
async fn tear_down(scenario: &Scenario) -> Result<()> {
    let (cluster, client) = (&scenario.cluster, scenario.cluster.admin());
    workload::start(&client, "last-job", GPU, Some("duo-2")).await?;
    workload::wait_until_running(&client, "last-job").await?;
    // With one place, a busy node that takes it first would hold the idle one up until it counts as stuck.
    edit(
        cluster,
        json!([{"op": "replace", "path": "/spec/rollout/maxUnavailable", "value": 2}]),
    )
    .await?;
    let intents = Api::<AcceleratorCluster>::all(client.clone());
    intents
        .delete(names::SINGLETON, &DeleteParams::default())
        .await?;
    untouched(scenario, &["duo-1"]).await?;
    let drains =
        |tenure: &freehold_api::TenureStatus| tenure.reason == Some(Reason::ConsumersRemain);
    scenario
        .wait_for_tenure(
            "duo-2",
            Vendor::Nvidia,
            "waiting for the last workload",
            drains,
        )
        .await?;
    assert!(
        intents.get_opt(names::SINGLETON).await?.is_some(),
        "the resource stays until the last node is handed back"
    );
    assert!(workload::is_running(&client, "last-job").await?);
    workload::finish(&client, "last-job").await?;
    wait_for("the AcceleratorCluster to be gone", SOON, async || {
        Ok(intents
            .get_opt(names::SINGLETON)
            .await?
            .map_or(Ok(()), |object| {
                Err(format!(
                    "{:#?}\n{}",
                    object.status,
                    scenario.controller.log_tail()
                ))
            }))
    })
    .await?;
    untouched(scenario, &["duo-1", "duo-2", "trn-1"]).await?;
    nothing_owned::<DaemonSet>(cluster).await?;
    nothing_owned::<DeviceClass>(cluster).await?;
    nothing_owned::<ResourceClaimTemplate>(cluster).await?;
    wait_for("the last pods of ours to go", SOON, async || {
        let pods = Api::<Pod>::namespaced(client.clone(), names::OPERAND_NAMESPACE)
            .list(&ListParams::default())
            .await?;
        Ok(if pods.items.is_empty() {
            Ok(())
        } else {
            Err(pods
                .iter()
                .map(kube::ResourceExt::name_any)
                .collect::<Vec<_>>()
                .join(", "))
        })
    })
    .await
}

/// Waits until nodes carry nothing of ours and have no AcceleratorNode.
async fn untouched(scenario: &Scenario, nodes: &[&str]) -> Result<()> {
    for name in nodes {
        wait_for(
            &format!("{name} to carry nothing of ours"),
            SOON,
            async || {
                let node = scenario.fleet.node(name)?.object().await?;
                let labels = node
                    .labels()
                    .keys()
                    .filter(|key| key.starts_with(names::NODE_LABEL_PREFIX));
                let taints = node
                    .spec
                    .iter()
                    .flat_map(|spec| spec.taints.iter().flatten())
                    .map(|taint| &taint.key);
                let taints = taints.filter(|key| key.starts_with("freehold.dev/"));
                let record = Api::<AcceleratorNode>::all(scenario.cluster.admin())
                    .get_opt(name)
                    .await?;
                let left: Vec<String> = labels.chain(taints).cloned().collect();
                Ok(match (&record, left.is_empty()) {
                    (None, true) => Ok(()),
                    (record, _) => Err(format!(
                        "{left:?}, {:?}",
                        record.as_ref().map(|record| (&record.spec, &record.status))
                    )),
                })
            },
        )
        .await?;
    }
    Ok(())
}

async fn nothing_owned<K>(cluster: &TestCluster) -> Result<()>
where
    K: Resource<DynamicType = ()> + Clone + serde::de::DeserializeOwned + std::fmt::Debug,
{
    let objects = Api::<K>::all(cluster.admin())
        .list(&ListParams::default())
        .await?;
    let ours = objects.iter().filter(|object| {
        object
            .owner_references()
            .iter()
            .any(|owner| owner.kind == "AcceleratorCluster")
    });
    let ours: Vec<String> = ours.map(kube::ResourceExt::name_any).collect();
    assert!(
        ours.is_empty(),
        "{} of ours are left: {ours:?}",
        K::kind(&())
    );
    Ok(())
}
