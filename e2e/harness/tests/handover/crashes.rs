//! The controller dies after every single write of a handover, and two controllers lead at once.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::Result;
use freehold_core::names;
use freehold_core::tenure::Step;
use freehold_core::vendor::{Owner, Vendor};
use freehold_e2e::cluster::{Filter, Mark, Options};
use freehold_e2e::install::{Controller, ControllerOptions};
use freehold_e2e::scenario::{SOON, Scenario};
use freehold_e2e::sim::{Shape, wait_for};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use super::stage::{INTENT, give_to, settled, writes_at_rest};

/// Between two looks at the audit log: less than the controller takes from one write to the next.
const LOOK: Duration = Duration::from_millis(1);
/// No write for so long after a node is held means that there is none to come.
const QUIET: Duration = Duration::from_secs(3);

/// Everything that the controller writes, its leases and events aside: those decide nothing.
fn decisions() -> Filter {
    Filter::all()
        .service_account(names::SYSTEM_NAMESPACE, names::CONTROLLER_SERVICE_ACCOUNT)
        .without_leases()
        .without_resource("events.events.k8s.io")
        .successful()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_that_dies_after_any_write_of_a_handover_finishes_it_when_it_is_back()
-> Result<()> {
    let mut options = ControllerOptions::default();
    // As in a Deployment, the restarted container has the name, and with it the lease, of the one that died.
    options.arguments.push("--lease-seconds=4".into());
    let nodes = vec![("solo-1".to_owned(), Shape::h100().with_label("pool", "duo"))];
    let mut scenario =
        Scenario::start_with("crashes", nodes, Options::named("crashes")?, &options).await?;
    scenario.cluster.apply_yaml(INTENT).await?;
    let mut owner = Owner::DevicePlugin;
    settled(&scenario, &[("solo-1", Vendor::Nvidia, owner)]).await?;

    let (mut points, mut after) = (BTreeSet::new(), 1);
    // One direction after the other at each number, until neither has so many writes.
    let mut whole = 0;
    while whole < 2 {
        whole = 0;
        for _ in 0..2 {
            owner = owner.other();
            let mark = scenario.cluster.audit().mark().await?;
            give_to(&scenario.cluster, 0, owner).await?;
            match crash_after(&mut scenario, mark, after, owner).await? {
                Some((written, point)) => {
                    println!("to {owner}: died after write {written}, {point}");
                    points.insert((owner, point));
                    scenario.controller =
                        Controller::start(&scenario.cluster, &scenario.programs, &options).await?;
                }
                None => whole += 1,
            }
            settled(&scenario, &[("solo-1", Vendor::Nvidia, owner)]).await?;
        }
        after += 1;
    }
    println!(
        "crashes after {} different writes of a handover, in both directions, up to the {}th:",
        points.len(),
        after - 2
    );
    for (owner, point) in &points {
        println!("  to {owner}: {point}");
    }
    // A handover takes seven orders, four to the node and three to its record; each was the last before a crash.
    for resource in [
        "patch nodes",
        "patch acceleratornodes.freehold.dev",
        "patch acceleratornodes.freehold.dev/status",
    ] {
        for owner in Owner::ALL {
            assert!(
                points
                    .iter()
                    .any(|(to, point)| *to == owner && point.starts_with(resource)),
                "a crash after {resource} to {owner}"
            );
        }
    }
    assert_eq!(writes_at_rest(&scenario, Duration::from_secs(10)).await?, 0);
    scenario.stop().await
}

/// Kills the controller once it has written so many times, and gives how often it had by then and the last thing it wrote. `None`
/// when the handover was over before.
async fn crash_after(
    scenario: &mut Scenario,
    mark: Mark,
    writes: usize,
    to: Owner,
) -> Result<Option<(usize, String)>> {
    let audit = scenario.cluster.audit();
    let (mut last, mut since) = (0, tokio::time::Instant::now());
    let deadline = since + SOON;
    loop {
        let seen = audit.writes_seen_since(mark, &decisions())?;
        if seen.count() >= writes {
            scenario.controller.crash()?;
            let written = audit.writes_seen_since(mark, &decisions())?;
            let point = written
                .events
                .last()
                .map(|event| format!("{} {} {}", event.verb, event.resource(), event.name()));
            // Which of a node's patches it was, its number tells.
            let point = format!("{}, number {}", point.unwrap_or_default(), written.count());
            return Ok(Some((written.count(), point)));
        }
        if seen.count() != last {
            (last, since) = (seen.count(), tokio::time::Instant::now());
        }
        if since.elapsed() > QUIET {
            let tenure = scenario.tenure("solo-1", Vendor::Nvidia).await?;
            let held = tenure
                .as_ref()
                .is_some_and(|t| t.step == Step::Held && t.owner == Some(to) && t.reason.is_none());
            if held {
                return Ok(None);
            }
            anyhow::ensure!(
                tokio::time::Instant::now() < deadline,
                "no handover: {tenure:?}\n{}",
                scenario.controller.log_tail()
            );
        }
        tokio::time::sleep(LOOK).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_controllers_that_both_lead_hand_over_once() -> Result<()> {
    let mut options = ControllerOptions::default();
    options.arguments.push("--lease-seconds=300".into());
    let duo = |name: &str| (name.to_owned(), Shape::h100().with_label("pool", "duo"));
    let scenario = Scenario::start_with(
        "two-leaders",
        vec![duo("duo-1"), duo("duo-2")],
        Options::named("two-leaders")?,
        &options,
    )
    .await?;
    let cluster = &scenario.cluster;
    cluster.apply_yaml(INTENT).await?;
    let all = |owner| {
        [
            ("duo-1", Vendor::Nvidia, owner),
            ("duo-2", Vendor::Nvidia, owner),
        ]
    };
    settled(&scenario, &all(Owner::DevicePlugin)).await?;

    let second = ControllerOptions {
        identity: "replica-2".into(),
        ..options
    };
    // The lease is given to the second while the first still believes to hold it, as after a long pause of a machine.
    let leases = Api::<Lease>::namespaced(cluster.admin(), names::SYSTEM_NAMESPACE);
    let stolen = json!({"spec": {"holderIdentity": "replica-2"}});
    leases
        .patch(names::LEASE, &PatchParams::default(), &Patch::Merge(stolen))
        .await?;
    let second = Controller::start(cluster, &scenario.programs, &second).await?;
    wait_for("both to lead", SOON, async || {
        let metrics = [
            scenario.controller.metrics().await?,
            second.metrics().await?,
        ];
        let leading: Vec<bool> = metrics
            .iter()
            .map(|metrics| metrics.contains("freehold_leading 1"))
            .collect();
        Ok(if leading == [true, true] {
            Ok(())
        } else {
            Err(format!("{leading:?}"))
        })
    })
    .await?;
    for owner in [Owner::Dra, Owner::DevicePlugin] {
        give_to(cluster, 0, owner).await?;
        settled(&scenario, &all(owner)).await?;
    }
    for (name, controller) in [("first", &scenario.controller), ("second", &second)] {
        assert!(
            controller.metrics().await?.contains("freehold_leading 1"),
            "the {name} believed to lead all the time"
        );
    }
    second.stop()?;
    scenario.stop().await
}
