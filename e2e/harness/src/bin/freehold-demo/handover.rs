//! The second act: two busy nodes go from the device plugin to DRA and back while the cluster keeps running.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use freehold_api::{AcceleratorNode, TenureStatus};
use freehold_core::blocker::Reason;
use freehold_core::names;
use freehold_core::tenure::Step;
use freehold_core::vendor::{Owner, Vendor};
use freehold_e2e::cluster::TestCluster;
use freehold_e2e::scenario::Scenario;
use freehold_e2e::sim::Shape;
use freehold_e2e::workload::{self, Devices};
use k8s_openapi::api::core::v1::Node;
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};

use super::say;

const NODES: [&str; 2] = ["duo-1", "duo-2"];

const INTENT: &str = r"
apiVersion: v1
kind: Namespace
metadata: {name: ml}
---
apiVersion: freehold.dev/v1alpha1
kind: AcceleratorCluster
metadata: {name: cluster}
spec:
  cohorts:
  - {name: duo, vendor: NVIDIA, owner: DevicePlugin, nodeSelector: {matchLabels: {pool: duo}}}
  sizes:
  - {name: two-gpus, vendor: NVIDIA, namespaces: [ml], devices: {count: 2}}
  rollout: {maxUnavailable: 1, canary: {nodes: 1, soak: 2s}, drain: {policy: Wait}}
";

/// One part of the story, at a tenth of real time, on a busy machine.
const LIMIT: Duration = Duration::from_secs(180);
/// Between two looks; people see changes at this pace as happening at once.
const INTERVAL: Duration = Duration::from_millis(100);

pub(super) async fn run(keep: bool) -> Result<()> {
    let started = Instant::now();
    say("Starting a real control plane, two nodes with eight H100 each, and Freehold …");
    let duo = NODES.map(|name| (name.to_owned(), Shape::h100().with_label("pool", "duo")));
    let scenario = Scenario::start("demo-handover", duo.into()).await?;
    if let Err(error) = tell(&scenario).await {
        say("\nSomething is off. The end of the controller's log:");
        say(&scenario.controller.log_tail());
        return Err(error);
    }
    if keep {
        say("\nEverything keeps running. Ctrl-C ends it.");
        say(&format!(
            "  export KUBECONFIG={}",
            scenario.cluster.kubeconfig_admin().display()
        ));
        tokio::signal::ctrl_c().await?;
    }
    say(
        "\nAn independent monitor watched every state of every object, and what ran on the nodes, from the start:",
    );
    let verdict = scenario.end().await?;
    verdict.pass()?;
    say(
        "  never two owners, never an operand taken from under a workload, never more than one node at a time.",
    );
    say(&format!(
        "\nDone in {:.0} s. `make demo-handover KEEP=1` leaves the cluster running.",
        started.elapsed().as_secs_f64()
    ));
    Ok(())
}

async fn tell(scenario: &Scenario) -> Result<()> {
    let cluster = &scenario.cluster;
    let mut story = Story::new(cluster);
    say("\nOne cohort, owner DevicePlugin, at most one node at a time:");
    say(INTENT.split("---\n").nth(1).unwrap_or_default().trim_end());
    cluster.apply_yaml(INTENT).await?;
    story
        .until("both nodes to be held by the device plugin", |nodes| {
            all_held(nodes, Owner::DevicePlugin)
        })
        .await?;
    let plugin_pods = Devices::Resource("nvidia.com/gpu", 2);
    let claim_pods = Devices::Template("two-gpus");
    migrate(
        &mut story,
        Owner::DevicePlugin,
        Owner::Dra,
        plugin_pods,
        "nvidia.com/gpu: 2",
    )
    .await?;
    migrate(
        &mut story,
        Owner::Dra,
        Owner::DevicePlugin,
        claim_pods,
        "a claim from template two-gpus",
    )
    .await?;
    say("\nEvents of duo-1, as `kubectl get events` has them (transitions only):");
    show(
        cluster,
        &[
            "get",
            "events",
            "--field-selector",
            "involvedObject.kind=AcceleratorNode,involvedObject.name=duo-1",
            "-o",
            "custom-columns=TYPE:.type,REASON:.reason,MESSAGE:.message",
        ],
    )
}

/// One way, with a training job on each node.
async fn migrate(
    story: &mut Story<'_>,
    from: Owner,
    to: Owner,
    devices: Devices,
    asks: &str,
) -> Result<()> {
    let (cluster, client) = (story.cluster, story.cluster.admin());
    say(&format!("\n=== {from} to {to} ==="));
    for node in NODES {
        workload::start(&client, &job(node), devices, Some(node)).await?;
        workload::wait_until_running(&client, &job(node)).await?;
        say(&format!("  {:<10} runs on {node} with {asks}", job(node)));
    }
    let patch = format!(
        r#"[{{"op": "replace", "path": "/spec/cohorts/0/owner", "value": "{}"}}]"#,
        to.name()
    );
    show(
        cluster,
        &[
            "patch",
            "acceleratorcluster",
            "cluster",
            "--type=json",
            "-p",
            &patch,
        ],
    )?;

    let mut left = NODES.to_vec();
    while !left.is_empty() {
        let waiting = story.until("a node to wait for its job", |nodes| {
            let drains = |tenure: &TenureStatus| {
                tenure.reason == Some(Reason::ConsumersRemain) && tenure.owner == Some(from)
            };
            let told = |node: &&str| {
                nodes
                    .get(*node)
                    .is_some_and(|tenure| drains(tenure) && names_it(tenure, &job(node)))
            };
            left.iter().copied().find(told).map(str::to_owned)
        });
        let busy = waiting.await?;
        left.retain(|node| *node != busy);
        for node in &left {
            if !workload::is_running(&client, &job(node)).await? {
                bail!("{} should work on while {busy} hands over", job(node));
            }
            say(&format!(
                "  {:<10} works on undisturbed on {node}, which waits for its turn",
                job(node)
            ));
        }
        show(cluster, &["get", "acceleratornodes"])?;
        say(&format!(
            "  The fence on {busy} lets no new job in; its owner stays until {} ends. Now it ends:",
            job(&busy)
        ));
        workload::finish(&client, &job(&busy)).await?;
        story
            .until(&format!("{busy} to be held by {to}"), |nodes| {
                nodes
                    .get(&busy)
                    .is_some_and(|tenure| is_held(tenure, to))
                    .then_some(())
            })
            .await?;
    }
    story
        .until("both nodes to be held", |nodes| all_held(nodes, to))
        .await?;
    show(cluster, &["get", "acceleratorcluster"])
}

fn job(node: &str) -> String {
    format!("job-{node}")
}

fn names_it(tenure: &TenureStatus, job: &str) -> bool {
    tenure
        .message
        .as_deref()
        .is_some_and(|message| message.contains(job))
}

fn is_held(tenure: &TenureStatus, by: Owner) -> bool {
    tenure.step == Step::Held && tenure.owner == Some(by) && tenure.reason.is_none()
}

fn all_held(nodes: &BTreeMap<String, TenureStatus>, by: Owner) -> Option<()> {
    NODES
        .iter()
        .all(|node| nodes.get(*node).is_some_and(|tenure| is_held(tenure, by)))
        .then_some(())
}

/// Tells what changes, as it changes.
struct Story<'a> {
    cluster: &'a TestCluster,
    began: Instant,
    told: BTreeMap<(String, &'static str), String>,
}

impl<'a> Story<'a> {
    fn new(cluster: &'a TestCluster) -> Self {
        Self {
            cluster,
            began: Instant::now(),
            told: BTreeMap::new(),
        }
    }

    /// Goes on telling until something is so.
    async fn until<T>(
        &mut self,
        what: &str,
        so: impl Fn(&BTreeMap<String, TenureStatus>) -> Option<T>,
    ) -> Result<T> {
        let deadline = Instant::now() + LIMIT;
        loop {
            let tenures = self.look().await?;
            if let Some(found) = so(&tenures) {
                return Ok(found);
            }
            if Instant::now() > deadline {
                bail!("waited {LIMIT:?} for {what}; found {tenures:#?}");
            }
            tokio::time::sleep(INTERVAL).await;
        }
    }

    async fn look(&mut self) -> Result<BTreeMap<String, TenureStatus>> {
        let nodes = Api::<Node>::all(self.cluster.admin())
            .list(&ListParams::default())
            .await?;
        let records = Api::<AcceleratorNode>::all(self.cluster.admin())
            .list(&ListParams::default())
            .await?;
        let mut tenures = BTreeMap::new();
        for node in &nodes {
            let name = node.name_any();
            self.tell(&name, "node", marks(node));
            self.tell(&name, "advertised", allocatable(node));
        }
        for record in records {
            let name = record.name_any();
            if let Some(order) = record.spec.vendor(Vendor::Nvidia) {
                let owner = order.owner.map_or("nobody", Owner::word);
                self.tell(
                    &name,
                    "order",
                    format!(
                        "controller asks in term {}; the node's word is to be {owner}",
                        order.term
                    ),
                );
            }
            let status = record.status.unwrap_or_default();
            if let Some(part) = status
                .report
                .as_ref()
                .and_then(|report| report.vendor(Vendor::Nvidia))
            {
                let word = part.word.map_or("none", Owner::word);
                let text = format!(
                    "agent answers term {}: in use by {} pods and {} claims, word {word}, {} plugin sockets, DRA driver {}",
                    part.observed_term,
                    part.in_use.device_plugin,
                    part.in_use.dra,
                    part.plugin_sockets.len(),
                    if part.dra_registered {
                        "registered"
                    } else {
                        "absent"
                    }
                );
                self.tell(&name, "agent", text);
            }
            if let Some(tenure) = status.tenures.vendor(Vendor::Nvidia) {
                let owner = tenure.owner.map_or_else(
                    || "owned by nobody".to_owned(),
                    |owner| format!("owned by {owner}"),
                );
                let why = tenure
                    .message
                    .as_ref()
                    .map_or_else(String::new, |message| format!(" – waits: {message}"));
                self.tell(
                    &name,
                    "step",
                    format!("STEP {:?}, {owner}{why}", tenure.step),
                );
                tenures.insert(name, tenure.clone());
            }
        }
        Ok(tenures)
    }

    fn tell(&mut self, node: &str, about: &'static str, line: String) {
        let key = (node.to_owned(), about);
        if self.told.get(&key) != Some(&line) {
            say(&format!(
                "  {:>6.1} s  {node}  {line}",
                self.began.elapsed().as_secs_f64()
            ));
            self.told.insert(key, line);
        }
    }
}

fn marks(node: &Node) -> String {
    let owner = node
        .labels()
        .get(&names::owner_label(Vendor::Nvidia))
        .map_or("none", String::as_str);
    let key = names::fence_taint(Vendor::Nvidia);
    let fence = node
        .spec
        .iter()
        .flat_map(|spec| spec.taints.iter().flatten())
        .find(|taint| taint.key == key);
    let fence = fence.map_or_else(
        || "down".to_owned(),
        |taint| {
            format!(
                "up with value {}",
                taint.value.as_deref().unwrap_or_default()
            )
        },
    );
    format!("owner label {owner}, fence {fence}")
}

fn allocatable(node: &Node) -> String {
    let allocatable = node
        .status
        .iter()
        .flat_map(|status| status.allocatable.iter().flatten());
    let gpus = allocatable.filter(|(resource, _)| Vendor::Nvidia.owns_resource(resource));
    let gpus: Vec<String> = gpus
        .map(|(resource, count)| format!("{resource}={}", count.0))
        .collect();
    format!(
        "allocatable {}",
        if gpus.is_empty() {
            "without GPUs".to_owned()
        } else {
            gpus.join(", ")
        }
    )
}

/// Runs kubectl as a person would, and shows command and answer.
fn show(cluster: &TestCluster, arguments: &[&str]) -> Result<()> {
    say(&format!("\n$ kubectl {}", arguments.join(" ")));
    let output = cluster
        .kubectl()
        .args(arguments)
        .output()
        .context("running kubectl")?;
    if !output.status.success() {
        bail!(
            "kubectl {}: {}",
            arguments.join(" "),
            String::from_utf8_lossy(&output.stderr)
        );
    }
    say(&format!(
        "{}\n",
        String::from_utf8_lossy(&output.stdout).trim_end()
    ));
    Ok(())
}
