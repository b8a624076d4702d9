//! The controller dies after every single write of a handover; every write, of controller and agent, gets lost on its way there or
//! back. A handover without faults is learnt from first: which kinds of writes there are, and how many of each.

use std::time::Duration;

use anyhow::{Result, ensure};
use freehold_core::vendor::Owner;
use freehold_e2e::faultline::{Fault, Strike};
use freehold_e2e::install::Controller;

use super::rig::{NODE, Rig};
use super::stage::writes_at_rest;

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_that_dies_after_any_write_of_a_handover_finishes_it_when_it_is_back()
-> Result<()> {
    let mut rig = Rig::start("crashes").await?;
    let mut points = rig.learn().await?;
    let (mut died, mut absent) = (Vec::new(), Vec::new());
    while points.iter().any(|(_, left)| !left.is_empty()) {
        let to = rig.owner.other();
        let point = points
            .iter_mut()
            .find(|(owner, _)| *owner == to)
            .and_then(|(_, left)| left.pop_front());
        let Some((kind, nth)) = point else {
            // Back for the next point in the other direction.
            rig.turn().await?;
            rig.settled().await?;
            continue;
        };
        rig.controller
            .strike(Strike::Of(kind.clone(), nth), Fault::LastOfAll);
        rig.turn().await?;
        let Some((ordinal, _)) = rig.over_or_struck(&rig.controller).await? else {
            rig.controller.calm();
            println!("to {to}: {kind}, number {nth}, was not needed this time");
            absent.push((to, kind));
            continue;
        };
        rig.scenario.controller.crash()?;
        let written = rig.controller.writes().len();
        rig.controller.calm();
        ensure!(
            written == ordinal,
            "{written} writes arrived, of which {ordinal} was to be the last"
        );
        println!("to {to}: died after {kind}, number {nth}, write {ordinal} of the handover");
        died.push((to, kind));
        let Rig {
            scenario, options, ..
        } = &mut rig;
        scenario.controller =
            Controller::start(&scenario.cluster, &scenario.programs, options).await?;
        rig.settled().await?;
    }
    println!(
        "crashes after {} writes of a handover to either owner; {} writes of the first one were not needed again",
        died.len(),
        absent.len()
    );
    covers_the_orders(&died);
    assert_eq!(
        writes_at_rest(&rig.scenario, Duration::from_secs(10)).await?,
        0
    );
    rig.scenario.stop().await
}

/// A handover takes seven orders, four to the node and three to its record, and two statuses at least.
fn covers_the_orders(struck: &[(Owner, String)]) {
    for (what, least) in [
        (format!("PATCH nodes/{NODE}"), 4),
        (format!("PATCH acceleratornodes/{NODE}"), 3),
        (format!("PATCH acceleratornodes/{NODE}/status"), 2),
    ] {
        for owner in Owner::ALL {
            let count = struck
                .iter()
                .filter(|(to, write)| *to == owner && *write == what)
                .count();
            assert!(
                count >= least,
                "{count} of {what} were struck on the way to {owner}, expected {least} at least: {struck:#?}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_that_get_lost_on_their_way_there_or_back_are_got_over() -> Result<()> {
    let mut rig = Rig::start("lost-writes").await?;
    let points = rig.learn().await?;
    let most = points
        .iter()
        .flat_map(|(_, kinds)| kinds)
        .map(|(_, nth)| *nth)
        .max();
    for fault in [Fault::NeverArrives, Fault::LostReply] {
        let (mut controllers, mut agents) = (Vec::new(), Vec::new());
        // In each of these handovers, the nth write of every kind.
        for nth in 1..=most.unwrap_or_default() {
            for _ in Owner::ALL {
                rig.controller.strike(Strike::OfEach(nth), fault);
                rig.agents.strike(Strike::OfEach(nth), fault);
                rig.turn().await?;
                rig.settled().await?;
                for (faultline, struck) in [
                    (&rig.controller, &mut controllers),
                    (&rig.agents, &mut agents),
                ] {
                    let ours = faultline.all_struck().into_iter();
                    struck.extend(ours.map(|(_, write)| (rig.owner, write.to_string())));
                    faultline.calm();
                }
            }
        }
        println!(
            "{fault:?}: {} writes of the controller and {} of the agent in handovers to either owner",
            controllers.len(),
            agents.len()
        );
        covers_the_orders(&controllers);
        let reports = format!("PATCH acceleratornodes/{NODE}/status");
        for owner in Owner::ALL {
            let count = agents
                .iter()
                .filter(|(to, write)| *to == owner && *write == reports)
                .count();
            assert!(
                count >= 3,
                "{count} answers to terms were struck on the way to {owner}: {agents:#?}"
            );
        }
    }
    assert_eq!(
        writes_at_rest(&rig.scenario, Duration::from_secs(10)).await?,
        0
    );
    rig.scenario.stop().await
}
