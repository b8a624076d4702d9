//! Figures: what controller and agents cost, measured on this machine in one run.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use freehold_api::AcceleratorCluster;
use freehold_api::plan::Plan;
use freehold_core::assign::{self, ClusterView, NodeView};
use freehold_core::catalogue::published_board;
use freehold_core::geometry::Board;
use freehold_core::report::{
    Inventory, LayoutReport, Model, NodeReport, Shaping, ShapingOutcome, VendorReport,
};
use freehold_core::tenure::Want;
use freehold_core::vendor::Vendor;
use freehold_e2e::install::{memory_kib, repository};
use freehold_e2e::sample_fleet::{Outcome, members};
use freehold_e2e::scenario::Scenario;

/// Nodes of the planning figure: the size that design and release notes speak of.
const NODES: usize = 5_000;
/// Idle time before memory is read, so that what start-up needed is given back.
const IDLE: Duration = Duration::from_secs(20);

#[tokio::main]
async fn main() -> Result<()> {
    let text =
        std::fs::read_to_string(repository().join("config/samples/acceleratorcluster.yaml"))?;
    let cluster: AcceleratorCluster = serde_saphyr::from_str(&text)?;
    planning(&cluster)?;
    resting(&text).await
}

/// Every decision over a large fleet, from nothing remembered.
fn planning(cluster: &AcceleratorCluster) -> Result<()> {
    let plan = Plan::parse(&cluster.spec).context("the sample is valid")?;
    let view = ClusterView {
        server_version: "v1.36.3".into(),
        dra_api: true,
        ..ClusterView::default()
    };
    let nodes: Vec<(NodeView, NodeReport)> = (0..NODES).map(node).collect();
    let began = Instant::now();
    let mut wanted = 0;
    for (node, report) in &nodes {
        for vendor in Vendor::ALL {
            let assignment = assign::assign(vendor, node, Some(report), &view, &plan.intent);
            wanted += usize::from(matches!(assignment.want, Want::Owner(_)));
        }
    }
    let took = began.elapsed();
    if wanted != NODES {
        bail!("every node of the fleet gets one owner, found {wanted} of {NODES}");
    }
    println!(
        "assignment of {NODES} nodes, both vendors, with expectations and the feasibility of MIG layouts: {:.0} ms",
        took.as_secs_f64() * 1_000.0
    );
    Ok(())
}

fn node(index: usize) -> (NodeView, NodeReport) {
    // Every third node has a MIG layout, which is held against what its boards offer.
    let pool = match index % 3 {
        0 => "a",
        1 => "b",
        _ => "c",
    };
    let uid = format!("uid-{index}");
    let view = NodeView {
        name: format!("node-{index}"),
        uid: uid.clone(),
        labels: BTreeMap::from([("pool".to_owned(), pool.to_owned())]),
        kubelet_version: "v1.36.3".into(),
        boot_id: "boot".into(),
        ready: true,
        ..NodeView::default()
    };
    let inventory = Inventory {
        driver_version: Some("570.158.01".into()),
        devices: 8,
        models: vec![Model {
            name: "NVIDIA H100 80GB HBM3".into(),
            count: 8,
            memory_mib: None,
        }],
        ..Inventory::default()
    };
    let layout = if pool == "c" {
        a100()
    } else {
        LayoutReport::default()
    };
    let nvidia = VendorReport {
        observed_term: 1,
        pci_devices: 8,
        inventory,
        layout,
        ..VendorReport::default()
    };
    let report = NodeReport {
        node_uid: uid,
        boot_id: "boot".into(),
        nvidia: Some(nvidia),
        ..NodeReport::default()
    };
    (view, report)
}

/// Eight boards with what their driver offers, and a shaper that waits for an order.
fn a100() -> LayoutReport {
    let profiles = published_board("A100-40").map(|board| board.profiles());
    LayoutReport {
        boards: vec![Board {
            gpus: (0..8).collect(),
            profiles: profiles.unwrap_or_default(),
        }],
        shaping: Some(Shaping {
            outcome: ShapingOutcome::Idle,
            message: None,
        }),
        ..LayoutReport::default()
    }
}

/// Memory and writes of the sample fleet at rest.
async fn resting(sample: &str) -> Result<()> {
    let fleet = members();
    let nodes = fleet
        .iter()
        .map(|member| (member.name.to_owned(), member.shape.clone()))
        .collect();
    let scenario = Scenario::start("bench", nodes).await?;
    scenario
        .cluster
        .apply_yaml("{apiVersion: v1, kind: Namespace, metadata: {name: ml}}")
        .await?;
    let applied = Instant::now();
    scenario.cluster.apply_yaml(sample).await?;
    for member in &fleet {
        if let Outcome::Held(vendor, owner) = member.outcome {
            scenario.wait_until_held(member.name, vendor, owner).await?;
        }
    }
    println!(
        "{} nodes from nothing to their places (kubelets at a tenth of real time): {:.1} s",
        fleet.len(),
        applied.elapsed().as_secs_f64()
    );
    scenario.wait_for_quiet().await?;
    let rest = scenario.cluster.audit().mark().await?;
    tokio::time::sleep(IDLE).await;
    let writes: usize = scenario.our_writes(rest).await?.values().sum();
    println!(
        "writes of controller and agents over {} s at rest: {writes}",
        IDLE.as_secs()
    );
    let (resident, peak) = scenario.controller.memory_kib()?;
    println!(
        "{:<24} {:>7.1} MiB resident, {:>5.1} at its peak",
        "freehold-operator run",
        mib(resident),
        mib(peak)
    );
    for (part, sizes) in agent_memory(&scenario.programs.agent)? {
        let most = sizes.iter().copied().max().unwrap_or(0);
        let sum: u64 = sizes.iter().sum();
        let mean = mib(sum) / f64::from(u32::try_from(sizes.len().max(1))?);
        println!(
            "{:<24} {mean:>7.1} MiB resident, {:>5.1} the largest of {}",
            format!("freehold-agent {part}"),
            mib(most),
            sizes.len()
        );
    }
    scenario.stop().await
}

/// Resident memory in KiB of every agent process, by subcommand.
fn agent_memory(program: &std::path::Path) -> Result<BTreeMap<String, Vec<u64>>> {
    let mut found: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for entry in std::fs::read_dir("/proc")? {
        let entry = entry?;
        let Some(pid) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse::<u32>().ok())
        else {
            continue;
        };
        // A process may end while it is looked at.
        let Ok(line) = std::fs::read(entry.path().join("cmdline")) else {
            continue;
        };
        let mut arguments = line.split(|byte| *byte == 0).map(String::from_utf8_lossy);
        if arguments.next().as_deref() != program.to_str() {
            continue;
        }
        if let (Some(part), Ok((resident, _))) = (arguments.next(), memory_kib(pid)) {
            found.entry(part.into_owned()).or_default().push(resident);
        }
    }
    if found.is_empty() {
        bail!("no process of {} was found", program.display());
    }
    Ok(found)
}

fn mib(kib: u64) -> f64 {
    f64::from(u32::try_from(kib).unwrap_or(u32::MAX)) / 1024.0
}
