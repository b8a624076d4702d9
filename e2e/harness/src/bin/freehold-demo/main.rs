//! The main job, end to end, on a real control plane: one resource in, every accelerator node owned by exactly one operand.

mod handover;
mod rollout;
mod workloads;

use std::collections::BTreeMap;
use std::io::{IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use clap::Parser;
use freehold_api::AcceleratorNode;
use freehold_core::tenure::Step;
use freehold_e2e::cluster::{Options, TestCluster};
use freehold_e2e::install::{Controller, ControllerOptions, Programs, install, repository};
use freehold_e2e::sample_fleet::{Member, Outcome, members};
use freehold_e2e::sim::{Fleet, FleetOptions};
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};

/// Simulated nodes run ten times as fast as real ones, so that 30 s of a kubelet take 3.
const SCALE: f64 = 0.1;

/// Shows Freehold at work: a real control plane, simulated accelerator nodes, the sample resource rolled out.
#[derive(Parser)]
struct Arguments {
    /// Leave everything running at the end, to look around, until Ctrl-C.
    #[arg(long)]
    keep: bool,
    /// The second act instead: a live migration of two busy nodes from the device plugin to DRA and back.
    #[arg(long)]
    handover: bool,
}

#[tokio::main]
async fn main() -> Result<()> {
    let arguments = Arguments::parse();
    if arguments.handover {
        return handover::run(arguments.keep).await;
    }
    let started = Instant::now();
    say(
        "Building the control plane where it is not built yet (minutes the first time), then starting it …",
    );
    let programs = Programs::build()?;
    let cluster = TestCluster::start(Options::named("demo")?).await?;
    say(&format!(
        "  Kubernetes {}: etcd, kube-apiserver, kube-controller-manager and kube-scheduler are up",
        cluster.version()
    ));

    let fleet_members = members();
    say(&format!(
        "Joining {} simulated nodes, each with a host tree that the real agent reads …",
        fleet_members.len()
    ));
    let options = FleetOptions {
        scale: SCALE,
        agent: Some(programs.agent.clone()),
        ..FleetOptions::default()
    };
    let nodes = fleet_members
        .iter()
        .map(|member| (member.name.to_owned(), member.shape.clone()))
        .collect();
    let fleet = Fleet::start(&cluster, options, nodes).await?;

    say(
        "Installing Freehold: CRDs, least RBAC, admission policies; the controller runs under its own service account …",
    );
    install(&cluster).await?;
    let controller = Controller::start(&cluster, &programs, &ControllerOptions::default()).await?;

    say("Applying config/samples/acceleratorcluster.yaml …");
    cluster
        .apply_yaml("{apiVersion: v1, kind: Namespace, metadata: {name: ml}}")
        .await?;
    let sample =
        std::fs::read_to_string(repository().join("config/samples/acceleratorcluster.yaml"))?;
    cluster.apply_yaml(&sample).await?;
    let outcome = show(&cluster, &fleet_members, started).await;
    if let Err(error) = outcome {
        say("\nSomething is off. The end of the controller's log:");
        say(&controller.log_tail());
        return Err(error);
    }
    if arguments.keep {
        say("\nEverything keeps running. Ctrl-C ends it.");
        tokio::signal::ctrl_c().await?;
    }
    drop(fleet);
    controller.stop()?;
    cluster.stop()
}

async fn show(cluster: &TestCluster, fleet: &[Member], started: Instant) -> Result<()> {
    let rolled_out = Instant::now();
    rollout::watch(cluster, fleet, std::io::stdout().is_terminal()).await?;
    say(&format!(
        "  every node is where it should be, {:.1} s after the resource was applied",
        rolled_out.elapsed().as_secs_f64()
    ));
    check(cluster, fleet).await?;
    say(&format!(
        "  a100-mig-c-1 came with MIG off; its shaper has cut it into {}",
        instances(cluster, "a100-mig-c-1").await?
    ));

    say("\nRunning a pod through each owner's path …");
    workloads::run(cluster).await?;

    for (arguments, title) in [
        (
            &["get", "acceleratorcluster"][..],
            "kubectl get acceleratorcluster",
        ),
        (
            &["get", "acceleratornodes", "-o", "wide"][..],
            "kubectl get acceleratornodes -o wide",
        ),
    ] {
        say(&format!("\n$ {title}"));
        let output = cluster.kubectl().args(arguments).output()?;
        if !output.status.success() {
            bail!("{title}: {}", String::from_utf8_lossy(&output.stderr));
        }
        say(String::from_utf8_lossy(&output.stdout).trim_end());
    }
    say(&format!(
        "\nDone in {:.0} s. To look around, run `make demo KEEP=1` and, in another terminal:",
        started.elapsed().as_secs_f64()
    ));
    say(&format!(
        "  export KUBECONFIG={}",
        cluster.kubeconfig_admin().display()
    ));
    say(&format!(
        "  {} get acceleratornodes",
        cluster.kubectl().get_program().to_string_lossy()
    ));
    say(
        "  kubectl get acceleratorcluster cluster -o yaml     # counts, conditions, what stands in the way and the next step",
    );
    say("  kubectl get acceleratornode h100-bare-1 -o yaml    # one node: orders, report, tenure");
    say(
        "  kubectl get daemonsets -n freehold-operands        # one for each cohort, and the agents",
    );
    say("  kubectl get resourceslices,deviceclasses           # what DRA nodes offer");
    Ok(())
}

/// What the tables will show is what must be, node by node; anything else fails loudly.
async fn check(cluster: &TestCluster, fleet: &[Member]) -> Result<()> {
    let records = Api::<AcceleratorNode>::all(cluster.admin())
        .list(&ListParams::default())
        .await?;
    for Member {
        name,
        shape: _,
        outcome,
    } in fleet
    {
        let record = records
            .iter()
            .find(|record| record.name_any() == *name)
            .with_context(|| format!("{name} has no AcceleratorNode"))?;
        let vendor = match outcome {
            Outcome::Held(vendor, _) | Outcome::Left(vendor, _) => *vendor,
        };
        let tenure = record
            .status
            .as_ref()
            .and_then(|status| status.tenures.vendor(vendor));
        let tenure = tenure.with_context(|| format!("{name} has no {vendor} tenure"))?;
        let right = match outcome {
            Outcome::Held(_, owner) => {
                tenure.step == Step::Held && tenure.owner == Some(*owner) && tenure.reason.is_none()
            }
            Outcome::Left(_, reason) => tenure.owner.is_none() && tenure.reason == Some(*reason),
        };
        if !right {
            bail!("{name} should be {outcome:?}, found {tenure:?}");
        }
    }
    Ok(())
}

/// The MIG instances of a node, over all its GPUs, as its agent reports them.
async fn instances(cluster: &TestCluster, node: &str) -> Result<String> {
    let record = Api::<AcceleratorNode>::all(cluster.admin())
        .get(node)
        .await?;
    let report = record.status.and_then(|status| status.report);
    let part = report
        .and_then(|report| report.nvidia)
        .with_context(|| format!("{node} has no report about NVIDIA"))?;
    let mut sum = BTreeMap::<String, i32>::new();
    for one in part.layout.mig.into_values().flatten() {
        *sum.entry(one.profile).or_default() += one.count;
    }
    if sum.is_empty() {
        bail!("{node} has no MIG instances");
    }
    let all: Vec<String> = sum
        .iter()
        .map(|(profile, count)| format!("{count} × {profile}"))
        .collect();
    Ok(all.join(", "))
}

fn say(text: &str) {
    let mut out = std::io::stdout().lock();
    // A reader that went away is no reason to leave a control plane behind half started.
    let _ = writeln!(out, "{text}").and_then(|()| out.flush());
}

/// From the resource to the last node, at a tenth of real time, on a busy machine.
const ROLLOUT_LIMIT: Duration = Duration::from_secs(180);
