//! A scenario in which controller and agents speak through a [`Faultline`] each.
//!
//! It counts writes and strikes exactly the one that is meant, however close together they come. Clocks are short, since a handover
//! has some twenty writes of the controller in each direction.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use anyhow::{Result, ensure};
use freehold_core::tenure::Step;
use freehold_core::vendor::{Owner, Vendor};
use freehold_e2e::cluster::{Options, TestCluster};
use freehold_e2e::faultline::{Fault, Faultline, Request, Strike};
use freehold_e2e::install::ControllerOptions;
use freehold_e2e::scenario::{SOON, Scenario};
use freehold_e2e::sim::{FleetOptions, Shape};

use super::stage::{INTENT, give_to, settled};

/// The one node.
pub const NODE: &str = "solo-1";
/// No write for so long after a node is held means that there is none to come.
const QUIET: Duration = Duration::from_secs(2);
/// Between two looks.
const LOOK: Duration = Duration::from_millis(50);

/// A scenario whose controller and agents each speak through a faultline.
pub struct Rig {
    pub scenario: Scenario,
    pub options: ControllerOptions,
    pub controller: Faultline,
    pub agents: Faultline,
    pub owner: Owner,
}

impl Rig {
    pub async fn start(name: &str) -> Result<Self> {
        Self::start_with(name, &[]).await
    }

    /// With further arguments of the controller.
    pub async fn start_with(name: &str, arguments: &[&str]) -> Result<Self> {
        let cluster = TestCluster::start(Options::named(name)?).await?;
        let controller = Faultline::start(&cluster).await?;
        let agents = Faultline::start(&cluster).await?;
        let mut options = ControllerOptions {
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
        let more = arguments.iter().map(|argument| (*argument).to_owned());
        options.arguments.extend(more);
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

    pub async fn settled(&self) -> Result<()> {
        settled(&self.scenario, &[(NODE, Vendor::Nvidia, self.owner)]).await
    }

    /// Gives the node to the other owner.
    pub async fn turn(&mut self) -> Result<()> {
        self.owner = self.owner.other();
        give_to(&self.scenario.cluster, 0, self.owner).await
    }

    /// One handover in each direction without faults: for each owner, the kinds of the controller's writes, each as often as it was
    /// written.
    pub async fn learn(&mut self) -> Result<Vec<(Owner, VecDeque<(String, usize)>)>> {
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
    pub async fn over_or_struck(&self, faultline: &Faultline) -> Result<Option<(usize, Request)>> {
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
