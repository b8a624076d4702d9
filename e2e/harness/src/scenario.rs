//! What every scenario starts from: a control plane, a fleet, Freehold installed, its controller running.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;
use freehold_api::{AcceleratorCluster, AcceleratorNode, TenureStatus};
use freehold_core::names;
use freehold_core::tenure::Step;
use freehold_core::vendor::{Owner, Vendor};
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::Value;

use crate::cluster::{Filter, Mark, Options, TestCluster};
use crate::install::{Controller, ControllerOptions, Programs, install};
use crate::monitor::{Limits, Monitor, Verdict};
use crate::sim::{Fleet, FleetOptions, Shape, wait_for};

/// Long enough for a busy machine; nothing waits for it when things go well.
pub const SOON: Duration = Duration::from_secs(120);

/// Nothing written for so long: longer than an agent's poll, a status' rest and the simulated kubelet's slowest timer.
const QUIET: Duration = Duration::from_secs(5);

/// A running scenario. Everything ends with it.
pub struct Scenario {
    /// The controller; scenarios kill and restart it.
    pub controller: Controller,
    /// Watches that the invariants hold, from before the controller's start to the end.
    pub monitor: Monitor,
    /// The nodes.
    pub fleet: Fleet,
    /// The control plane.
    pub cluster: TestCluster,
    /// The product's programs.
    pub programs: Programs,
}

impl Scenario {
    /// Starts one; the name tells its folder.
    ///
    /// # Errors
    /// When anything does not start.
    pub async fn start(name: &str, nodes: Vec<(String, Shape)>) -> Result<Self> {
        Self::start_with(
            name,
            nodes,
            Options::named(name)?,
            &ControllerOptions::default(),
        )
        .await
    }

    /// Starts one with other options.
    ///
    /// # Errors
    /// When anything does not start.
    pub async fn start_with(
        name: &str,
        nodes: Vec<(String, Shape)>,
        options: Options,
        controller: &ControllerOptions,
    ) -> Result<Self> {
        let cluster = TestCluster::start(options).await?;
        Self::start_on(cluster, name, nodes, FleetOptions::default(), controller).await
    }

    /// Starts one on a control plane that runs already, with a fleet of other options; the agents are the product's in any case.
    ///
    /// # Errors
    /// When anything does not start.
    pub async fn start_on(
        cluster: TestCluster,
        name: &str,
        nodes: Vec<(String, Shape)>,
        fleet: FleetOptions,
        controller: &ControllerOptions,
    ) -> Result<Self> {
        let programs = Programs::build()?;
        println!(
            "{name}: Kubernetes {} with etcd, kube-apiserver, kube-controller-manager and kube-scheduler; {} simulated nodes with real agents",
            cluster.version(),
            nodes.len()
        );
        let fleet_options = FleetOptions {
            agent: Some(programs.agent.clone()),
            ..fleet
        };
        let fleet = Fleet::start(&cluster, fleet_options, nodes).await?;
        install(&cluster).await?;
        let monitor = Monitor::start(&cluster, &fleet, limits(controller)).await?;
        let controller = Controller::start(&cluster, &programs, controller).await?;
        Ok(Self {
            controller,
            monitor,
            fleet,
            cluster,
            programs,
        })
    }

    /// One vendor's tenure of a node, as its status tells it.
    ///
    /// # Errors
    /// When the API server cannot be asked.
    pub async fn tenure(&self, node: &str, vendor: Vendor) -> Result<Option<TenureStatus>> {
        let record = Api::<AcceleratorNode>::all(self.cluster.admin())
            .get_opt(node)
            .await?;
        Ok(record
            .and_then(|record| record.status)
            .and_then(|status| status.tenures.vendor(vendor).cloned()))
    }

    /// Waits until a tenure satisfies a condition; what was found instead is in the error.
    ///
    /// # Errors
    /// When it does not in time.
    pub async fn wait_for_tenure(
        &self,
        node: &str,
        vendor: Vendor,
        what: &str,
        holds: impl Fn(&TenureStatus) -> bool,
    ) -> Result<TenureStatus> {
        wait_for(&format!("{node} to be {what}"), SOON, async || {
            Ok(match self.tenure(node, vendor).await? {
                Some(tenure) if holds(&tenure) => Ok(tenure),
                other => Err(format!("{other:?}\n{}", self.controller.log_tail())),
            })
        })
        .await
    }

    /// Waits until a node is held by an owner and nothing stands in the way.
    ///
    /// # Errors
    /// When it is not in time.
    pub async fn wait_until_held(
        &self,
        node: &str,
        vendor: Vendor,
        owner: Owner,
    ) -> Result<TenureStatus> {
        let what = format!("held by {owner}");
        self.wait_for_tenure(node, vendor, &what, |tenure| {
            tenure.step == Step::Held && tenure.owner == Some(owner) && tenure.reason.is_none()
        })
        .await
    }

    /// Waits until a node is held and its own record says Ready.
    ///
    /// # Errors
    /// When it is not in time.
    pub async fn wait_until_settled(&self, node: &str, vendor: Vendor, owner: Owner) -> Result<()> {
        self.wait_until_held(node, vendor, owner).await?;
        let records = Api::<AcceleratorNode>::all(self.cluster.admin());
        wait_for(&format!("{node} to say Ready"), SOON, async || {
            let status = records.get(node).await?.status.unwrap_or_default();
            let ready = status
                .conditions
                .iter()
                .any(|condition| condition.type_ == "Ready" && condition.status == "True");
            Ok(if ready {
                Ok(())
            } else {
                Err(format!("{:?}", status.conditions))
            })
        })
        .await
    }

    /// Writes of ours since a mark, the controller's and every agent's, leases aside: by user, verb and resource.
    ///
    /// # Errors
    /// When the audit log cannot be read.
    pub async fn our_writes(
        &self,
        since: Mark,
    ) -> Result<BTreeMap<(String, String, String), usize>> {
        let log = self.cluster.audit();
        let mut writes = BTreeMap::new();
        for (namespace, account) in [
            (names::SYSTEM_NAMESPACE, names::CONTROLLER_SERVICE_ACCOUNT),
            (names::OPERAND_NAMESPACE, names::AGENT_SERVICE_ACCOUNT),
        ] {
            let filter = Filter::all()
                .service_account(namespace, account)
                .without_leases();
            writes.extend(
                log.writes_since(since, &filter)
                    .await?
                    .by_user_verb_resource(),
            );
        }
        for ((user, verb, resource), count) in &writes {
            println!("  {count:>4} {verb:<8} {resource:<40} {user}");
        }
        Ok(writes)
    }

    /// Waits until controller and agents have written nothing for a while: what was under way has been told.
    ///
    /// # Errors
    /// When they go on writing, with what they wrote last.
    pub async fn wait_for_quiet(&self) -> Result<()> {
        wait_for("controller and agents to come to rest", SOON, async || {
            let since = self.cluster.audit().mark().await?;
            tokio::time::sleep(QUIET).await;
            let writes = self.our_writes(since).await?;
            Ok(if writes.is_empty() {
                Ok(())
            } else {
                Err(format!("{writes:?}"))
            })
        })
        .await
    }

    /// Ends everything; fails when an invariant did not hold at any time.
    ///
    /// # Errors
    /// When the monitor found a violation, or a part fails on its way out.
    pub async fn stop(self) -> Result<()> {
        self.end().await?.pass()
    }

    /// Ends everything and gives the monitor's verdict, for scenarios that break the rules on purpose.
    ///
    /// # Errors
    /// When the monitor's history is not complete, or a part fails on its way out.
    pub async fn end(self) -> Result<Verdict> {
        let Self {
            controller,
            monitor,
            fleet,
            cluster,
            programs: _,
        } = self;
        let verdict = monitor.check().await;
        controller.stop()?;
        drop(monitor);
        drop(fleet);
        cluster.stop()?;
        verdict
    }
}

/// The controller's patience, as the monitor must know it.
fn limits(options: &ControllerOptions) -> Limits {
    let mut patience = options
        .arguments
        .iter()
        .filter_map(|argument| argument.strip_prefix("--patience-seconds="));
    let patience = patience
        .next_back()
        .and_then(|seconds| seconds.parse().ok())
        .unwrap_or(300);
    Limits {
        patience: Duration::from_secs(patience),
        ..Limits::default()
    }
}

/// Changes the intent as `kubectl patch --type=json` does.
///
/// # Errors
/// When the API server refuses it.
pub async fn edit_intent(cluster: &TestCluster, changes: Value) -> Result<()> {
    let patch = Patch::<()>::Json(serde_json::from_value(changes)?);
    Api::<AcceleratorCluster>::all(cluster.admin())
        .patch(names::SINGLETON, &PatchParams::default(), &patch)
        .await?;
    Ok(())
}
