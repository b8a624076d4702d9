//! An API server that is away, refuses, or forgets, in the middle of things.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use freehold_api::AcceleratorNode;
use freehold_core::names;
use freehold_core::report::NodeReport;
use freehold_core::vendor::Vendor;
use freehold_e2e::faultline::{Fault, Faultline, Kind, Strike, Weather};
use freehold_e2e::scenario::SOON;
use freehold_e2e::sim::wait_for;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};

use super::rig::{NODE, Rig};
use super::stage::writes_at_rest;

/// How long it lasts: several tries of everybody.
const LASTS: Duration = Duration::from_secs(4);

const ALL: [Kind; 5] = [
    Kind::Write,
    Kind::Minor,
    Kind::Resume,
    Kind::List,
    Kind::Read,
];

fn answer(to: &[Kind], status: u16, reason: &'static str) -> Weather {
    Weather::Answer {
        to: to.into(),
        status,
        reason,
    }
}

/// Requests seen since they were last forgotten, by what they were about.
fn tally(faultline: &Faultline, kind: Kind) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for request in faultline.requests() {
        if request.kind == kind {
            *counts.entry(request.to_string()).or_default() += 1;
        }
    }
    counts
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outage_at_any_step_of_a_handover_is_waited_out() -> Result<()> {
    // The most that one process asks for in this time while all is refused: some fourteen watches, each with its backoff, and
    // the lease.
    const MOST: usize = 150;
    let mut rig = Rig::start("outages").await?;
    let outages = [
        Weather::Unreachable,
        answer(&ALL, 503, "ServiceUnavailable"),
    ];
    // Each of the four writes to the Node is the first that does not arrive.
    for nth in 1..=4 {
        for outage in &outages {
            let kind = format!("PATCH nodes/{NODE}");
            rig.controller
                .strike(Strike::Of(kind, nth), Fault::NeverArrives);
            rig.turn().await?;
            let (_, write) = rig.controller.struck().await?;
            rig.controller.calm();
            for faultline in [&rig.controller, &rig.agents] {
                faultline.forget();
                faultline.weather(outage.clone());
            }
            tokio::time::sleep(LASTS).await;
            let asked = [&rig.controller, &rig.agents].map(|line| line.requests().len());
            for faultline in [&rig.controller, &rig.agents] {
                faultline.weather(Weather::Clear);
            }
            println!(
                "to {}: {outage:?} from {write}, number {nth}, on; {} requests of the controller and {} of the agent meanwhile",
                rig.owner, asked[0], asked[1]
            );
            ensure!(asked.iter().all(|asked| *asked <= MOST), "{asked:?}");
            rig.settled().await?;
            ensure!(
                rig.scenario.controller.is_ready().await?,
                "it is the same process still"
            );
        }
    }
    assert_eq!(
        writes_at_rest(&rig.scenario, Duration::from_secs(10)).await?,
        0
    );
    rig.scenario.stop().await
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_writes_are_tried_again_at_a_bounded_rate() -> Result<()> {
    /// Status is told again after 200 ms where it was overtaken; nothing is tried more often.
    const A_SECOND: u64 = 6;
    let mut rig = Rig::start("refusals").await?;
    for (status, reason) in [
        (429, "TooManyRequests"),
        (409, "Conflict"),
        (500, "InternalError"),
    ] {
        rig.controller.forget();
        rig.controller
            .weather(answer(&[Kind::Write], status, reason));
        rig.turn().await?;
        tokio::time::sleep(LASTS).await;
        let tried = tally(&rig.controller, Kind::Write);
        rig.controller.weather(Weather::Clear);
        println!("{status}, tried in {LASTS:?}: {tried:?}");
        let most = usize::try_from(A_SECOND * LASTS.as_secs())?;
        ensure!(
            !tried.is_empty() && tried.values().all(|count| *count <= most),
            "{status}: {tried:?}"
        );
        rig.settled().await?;
    }
    assert_eq!(
        writes_at_rest(&rig.scenario, Duration::from_secs(10)).await?,
        0
    );
    rig.scenario.stop().await
}

#[tokio::test(flavor = "multi_thread")]
async fn watches_that_can_never_be_resumed_are_listed_anew_now_and_then_and_told_of() -> Result<()>
{
    let arguments = ["--paged-lists", "--cache-age-seconds=8"];
    let mut rig = Rig::start_with("expired-watches", &arguments).await?;
    rig.controller.forget();
    rig.controller
        .weather(answer(&[Kind::Resume], 410, "Expired"));
    let began = std::time::Instant::now();
    readiness(&rig, false).await?;
    println!("not ready after {:.1} s", began.elapsed().as_secs_f64());
    // What is known is renewed all the same: the controller learns of the change, and puts up the fence.
    rig.turn().await?;
    wait_for("the fence", SOON, async || {
        let node = Api::<Node>::all(rig.scenario.cluster.admin())
            .get(NODE)
            .await?;
        let taints = node.spec.and_then(|spec| spec.taints).unwrap_or_default();
        let key = names::fence_taint(Vendor::Nvidia);
        Ok(if taints.iter().any(|taint| taint.key == key) {
            Ok(())
        } else {
            Err(format!("{taints:?}"))
        })
    })
    .await?;
    let lasted = began.elapsed();
    let (lists, resumes) = (
        tally(&rig.controller, Kind::List),
        tally(&rig.controller, Kind::Resume),
    );
    println!("in {lasted:?}: lists {lists:#?}, tries to resume {resumes:#?}");
    // One at once, and one in 30 s after that.
    let most = 2 + usize::try_from(lasted.as_secs() / 30)?;
    let fenced = format!("labelSelector={}", names::agent_label().replace('/', "%2F"));
    for (kind, count) in &lists {
        // Read for decisions as well: the node's pods and claims, fenced Nodes where a place in the budget is claimed, and our own
        // two definitions, each after it was listed.
        let read_fresh = kind.contains("spec.nodeName")
            || kind.contains("resourceclaims")
            || kind.contains(&fenced)
            || kind.contains("metadata.name");
        ensure!(
            read_fresh || *count <= most,
            "{count} times {kind}, expected {most} at most"
        );
    }
    ensure!(
        resumes
            .values()
            .all(|count| *count as u64 <= 5 + lasted.as_secs()),
        "tried in vain: {resumes:?}"
    );
    rig.controller.weather(Weather::Clear);
    readiness(&rig, true).await?;
    rig.settled().await?;
    assert_eq!(
        writes_at_rest(&rig.scenario, Duration::from_secs(10)).await?,
        0
    );
    rig.scenario.stop().await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_starts_while_the_api_server_is_away_waits_for_it() -> Result<()> {
    let rig = Rig::start("lonely-agent").await?;
    let before = report(&rig).await?;
    rig.agents.weather(Weather::Unreachable);
    let restarts = agent_restarts(&rig).await?;
    rig.scenario.fleet.node(NODE)?.reboot().await?;
    let started = wait_for("the agent to be started anew", SOON, async || {
        let now = agent_restarts(&rig).await?;
        Ok(if now > restarts {
            Ok(now)
        } else {
            Err(format!("{now:?}"))
        })
    })
    .await?;
    tokio::time::sleep(LASTS).await;
    ensure!(
        agent_restarts(&rig).await? == started,
        "it waits and does not end: {:?}, then {:?}",
        started,
        agent_restarts(&rig).await?
    );
    ensure!(
        report(&rig).await? == before,
        "what it said last stays visible"
    );
    rig.agents.weather(Weather::Clear);
    wait_for("a report of the new boot", SOON, async || {
        let now = report(&rig).await?;
        Ok(if now.boot_id == before.boot_id {
            Err(format!("{now:?}"))
        } else {
            Ok(())
        })
    })
    .await?;
    rig.settled().await?;
    ensure!(agent_restarts(&rig).await? == started);
    rig.scenario.stop().await
}

async fn readiness(rig: &Rig, wanted: bool) -> Result<()> {
    wait_for(&format!("readiness to be {wanted}"), SOON, async || {
        let ready = rig.scenario.controller.is_ready().await?;
        Ok(if ready == wanted {
            Ok(())
        } else {
            Err(rig.scenario.controller.log_tail())
        })
    })
    .await
}

async fn report(rig: &Rig) -> Result<NodeReport> {
    let record = Api::<AcceleratorNode>::all(rig.scenario.cluster.admin())
        .get(NODE)
        .await?;
    let status = record.status.context("a status")?;
    status.report.context("a report")
}

/// How often each container of the node's agent was started anew.
async fn agent_restarts(rig: &Rig) -> Result<BTreeMap<String, i32>> {
    let pods = Api::<Pod>::namespaced(rig.scenario.cluster.admin(), names::OPERAND_NAMESPACE);
    let of_agents = ListParams::default()
        .labels(&format!("{}=agent", names::COMPONENT_LABEL))
        .fields(&format!("spec.nodeName={NODE}"));
    let mut restarts = BTreeMap::new();
    for pod in pods.list(&of_agents).await? {
        let name = pod.name_any();
        let statuses = pod.status.and_then(|status| status.container_statuses);
        for container in statuses.into_iter().flatten() {
            restarts.insert(
                format!("{name}/{}", container.name),
                container.restart_count,
            );
        }
    }
    ensure!(!restarts.is_empty(), "the node has an agent");
    Ok(restarts)
}
