//! The controller dies after every single write of a handover; every write, of controller and agent, gets lost on its way there or
//! back.
//!
//! Both speak through a [`Faultline`] of their own, which counts writes and strikes exactly the one that is meant, however close
//! together they come. A handover without faults is learnt from first: which kinds of writes there are, and how many of each.
//! Clocks are short, since it has some twenty writes of the controller in each direction.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use anyhow::{Result, ensure};
use freehold_core::tenure::Step;
use freehold_core::vendor::{Owner, Vendor};
use freehold_e2e::cluster::{Options, TestCluster};
use freehold_e2e::faultline::{Fault, Faultline, Request, Strike};
use freehold_e2e::install::{Controller, ControllerOptions};
use freehold_e2e::scenario::{SOON, Scenario};
use freehold_e2e::sim::{FleetOptions, Shape};

use super::stage::{INTENT, give_to, settled, writes_at_rest};

const NODE: &str = "solo-1";
/// No write for so long after a node is held means that there is none to come.
const QUIET: Duration = Duration::from_secs(2);
/// Between two looks.
const LOOK: Duration = Duration::from_millis(50);
/// A scenario whose controller and agents each speak through a faultline.
struct Rig {
    scenario: Scenario,
    options: ControllerOptions,
    controller: Faultline,
    agents: Faultline,
    owner: Owner,
}

impl Rig {
    async fn start(name: &str) -> Result<Self> {
        let cluster = TestCluster::start(Options::named(name)?).await?;
        let controller = Faultline::start(&cluster).await?;
        let agents = Faultline::start(&cluster).await?;
        let options = ControllerOptions {
            server: Some(controller.url()),
            // As in a Deployment, the restarted container has the name, and with it the lease, of the one that died.
            arguments: [
                "--settle-seconds=0",
                "--stable-seconds=0",
                "--patience-seconds=20",
                "--status-rest-ms=100",
                "--lease-seconds=60",
            ]
            .map(str::to_owned)
            .into(),
            ..ControllerOptions::default()
        };
        let fleet = FleetOptions {
            scale: 0.02,
            server: Some(agents.url()),
            ..FleetOptions::default()
        };
        let nodes = vec![(NODE.to_owned(), Shape::h100().with_label("pool", "duo"))];
        let scenario = Scenario::start_on(cluster, name, nodes, fleet, &options).await?;
        scenario.cluster.apply_yaml(INTENT).await?;
        let rig = Self {
            scenario,
            options,
            controller,
            agents,
            owner: Owner::DevicePlugin,
        };
        rig.settled().await?;
        Ok(rig)
    }

    async fn settled(&self) -> Result<()> {
        settled(&self.scenario, &[(NODE, Vendor::Nvidia, self.owner)]).await
    }

    /// Gives the node to the other owner.
    async fn turn(&mut self) -> Result<()> {
        self.owner = self.owner.other();
        give_to(&self.scenario.cluster, 0, self.owner).await
    }

    /// One handover in each direction without faults: for each owner, the kinds of the controller's writes, each as often as it was
    /// written.
    async fn learn(&mut self) -> Result<Vec<(Owner, VecDeque<(String, usize)>)>> {
        let mut points = Vec::new();
        for _ in Owner::ALL {
            // Nothing comes after so many.
            self.controller
                .strike(Strike::At(usize::MAX), Fault::NeverArrives);
            self.turn().await?;
            self.over_or_struck(&self.controller).await?;
            let mut seen = BTreeMap::<String, usize>::new();
            let kinds = self
                .controller
                .writes()
                .iter()
                .map(|write| {
                    let kind = write.to_string();
                    let nth = seen.entry(kind.clone()).or_default();
                    *nth += 1;
                    (kind, *nth)
                })
                .collect::<VecDeque<_>>();
            println!(
                "to {}: {} writes of the controller",
                self.owner,
                kinds.len()
            );
            points.push((self.owner, kinds));
        }
        Ok(points)
    }

    /// Waits until the handover is over and nothing more is written, or, if that comes first, until a write was struck.
    async fn over_or_struck(&self, faultline: &Faultline) -> Result<Option<(usize, Request)>> {
        let deadline = tokio::time::Instant::now() + SOON;
        let over = async {
            let (mut seen, mut since) = (0, tokio::time::Instant::now());
            loop {
                let writes = self.controller.writes().len() + self.agents.writes().len();
                if writes != seen {
                    (seen, since) = (writes, tokio::time::Instant::now());
                }
                if since.elapsed() > QUIET {
                    let tenure = self.scenario.tenure(NODE, Vendor::Nvidia).await?;
                    let held = tenure.as_ref().is_some_and(|tenure| {
                        tenure.step == Step::Held
                            && tenure.owner == Some(self.owner)
                            && tenure.reason.is_none()
                    });
                    if held {
                        return Ok(None);
                    }
                    ensure!(
                        tokio::time::Instant::now() < deadline,
                        "no handover: {tenure:?}\n{}",
                        self.scenario.controller.log_tail()
                    );
                }
                tokio::time::sleep(LOOK).await;
            }
        };
        tokio::select! {
            struck = faultline.struck() => struck.map(Some),
            over = over => over,
        }
    }
}

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
