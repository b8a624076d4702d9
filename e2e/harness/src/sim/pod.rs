//! A pod on a simulated node, from the kubelet's first look at it to the removal of its last trace.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use k8s_openapi::api::core::v1::{Container, Pod};
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Api, ResourceExt as _};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use super::allocation;
use super::board::{Board, Kind, Phase};
use super::claims;
use super::container::{self, Image, PodContext, image_of};
use super::node::SimNode;
use super::operands::Operand;
use super::options::real;
use super::state::PodSignal;
use super::volumes::{self, Volumes};

/// Everything the kubelet does about one pod.
pub async fn work(node: Arc<SimNode>, pod: Arc<Pod>, mut signal: watch::Receiver<PodSignal>) {
    let uid = pod.uid().unwrap_or_default();
    let mut life = Life::new(Arc::clone(&node), Arc::clone(&pod));
    let publisher = AbortOnDrop(tokio::spawn(publish(
        Arc::clone(&node),
        Arc::clone(&pod),
        Arc::clone(&life.board),
    )));
    let terminal = pod
        .status
        .as_ref()
        .and_then(|status| status.phase.as_deref())
        .is_some_and(|phase| matches!(phase, "Succeeded" | "Failed"));
    if !terminal {
        let listen = signal.clone();
        let ended = tokio::select! {
            // First: a pod that is already to be deleted is not started any more.
            biased;
            _ = deletion(&mut signal) => false,
            () = life.live(listen) => true,
        };
        if ended {
            life.rest().await;
        }
    }
    let (grace, force) = deletion(&mut signal).await;
    life.stop(grace).await;
    let linger = node.with(|state| state.faults.holders.get(&uid).copied());
    if force && let Some(linger) = linger {
        // A process that no signal reaches (stuck in the driver, say) keeps the pod's cgroup, directory and claims.
        tokio::time::sleep(linger).await;
    }
    life.unprepare().await;
    drop(publisher);
    if !signal.borrow().gone {
        life.report_last_status().await;
    }
    node.shared.clock.sleep(real::CLEANUP).await;
    if let Err(error) = node.tree.remove_pod(&uid) {
        tracing::warn!(node = node.name, pod = pod.name_any(), %error, "remove the pod's directory");
    }
    if !signal.borrow().gone {
        life.delete_object().await;
    }
    node.with(|state| {
        state.workers.remove(&uid);
        if state.assigned.contains_key(&uid) {
            state.done.insert(uid.clone());
        }
        state.finished.remove(&uid);
        state.faults.holders.remove(&uid);
    });
}

/// Waits until the pod is to be deleted, or is gone already. Gives the grace period and whether the deletion
/// is forced.
async fn deletion(signal: &mut watch::Receiver<PodSignal>) -> (Duration, bool) {
    let wanted = signal
        .wait_for(|signal| signal.gone || signal.pod.metadata.deletion_timestamp.is_some())
        .await;
    let wanted = wanted.map(|signal| signal.clone());
    match wanted {
        Ok(signal) if signal.gone => (real::MINIMUM_GRACE, true),
        Ok(signal) => {
            let metadata = &signal.pod.metadata;
            let seconds = metadata.deletion_grace_period_seconds.unwrap_or(30);
            // A forced deletion is seen twice: first with a grace period of 0, a moment later as gone.
            (
                Duration::from_secs(u64::try_from(seconds).unwrap_or(0)).max(real::MINIMUM_GRACE),
                seconds == 0,
            )
        }
        // The node forgot this pod's worker: its task is being aborted.
        Err(_) => std::future::pending().await,
    }
}

/// Sends the pod's status whenever it changed, a moment after the change so that several go together.
async fn publish(node: Arc<SimNode>, pod: Arc<Pod>, board: Arc<Board>) {
    const TOGETHER: Duration = Duration::from_millis(30);
    let mut changes = board.changes();
    let mut last = serde_json::Value::Null;
    while changes.changed().await.is_ok() {
        tokio::time::sleep(TOGETHER).await;
        changes.borrow_and_update();
        let patch = board.patch();
        if patch == last {
            continue;
        }
        node.until(|state| state.up.then_some(())).await;
        match send_status(&node, &pod, &patch).await {
            Ok(()) => last = patch,
            Err(error) => {
                tracing::warn!(node = node.name, pod = pod.name_any(), %error, "report pod status");
                node.shared.clock.sleep(real::MOUNT_RETRY).await;
                changes.mark_changed();
            }
        }
    }
}

async fn send_status(node: &SimNode, pod: &Pod, patch: &serde_json::Value) -> kube::Result<()> {
    let api = Api::<Pod>::namespaced(node.client.clone(), &pod.namespace().unwrap_or_default());
    match api
        .patch_status(
            &pod.name_any(),
            &PatchParams::default(),
            &Patch::Strategic(patch),
        )
        .await
    {
        Ok(_) => Ok(()),
        // Gone, or another pod of the same name by now.
        Err(kube::Error::Api(status)) if status.code == 404 || status.code == 409 => Ok(()),
        Err(error) => Err(error),
    }
}

struct AbortOnDrop(JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

struct Running {
    name: String,
    kind: Kind,
    stop: watch::Sender<Option<Duration>>,
}

struct Life {
    node: Arc<SimNode>,
    pod: Arc<Pod>,
    uid: String,
    board: Arc<Board>,
    running: Vec<Running>,
    // Dropped, and with it every container, when the worker is aborted.
    tasks: JoinSet<()>,
    said: Mutex<Option<String>>,
}

impl Life {
    fn new(node: Arc<SimNode>, pod: Arc<Pod>) -> Self {
        let uid = pod.uid().unwrap_or_default();
        let host_network = pod
            .spec
            .as_ref()
            .is_some_and(|spec| spec.host_network == Some(true));
        let host = node.identity().address();
        let number = node.shared.next();
        let address = if host_network {
            host.clone()
        } else {
            format!(
                "10.{}.{}.{}",
                200 + number / 62_500 % 50,
                number / 250 % 250,
                number % 250 + 2
            )
        };
        let board = Arc::new(Board::new(&pod, host, address));
        Self {
            node,
            pod,
            uid,
            board,
            running: Vec::new(),
            tasks: JoinSet::new(),
            said: Mutex::default(),
        }
    }

    /// Admission, volumes, claims, containers; returns when all containers have ended for good.
    async fn live(&mut self, signal: watch::Receiver<PodSignal>) {
        if let Err(message) = self.admit() {
            self.board
                .set_verdict("Failed", "UnexpectedAdmissionError", message);
            return;
        }
        self.board.set_waiting("ContainerCreating", "");
        let volumes = self.mount().await;
        self.prepare(signal.clone()).await;
        // Which claim a template became is known by now, and so is everything else that containers look at.
        let pod = Arc::clone(&signal.borrow().pod);
        let context = Arc::new(PodContext {
            node: Arc::clone(&self.node),
            pod,
            volumes,
            board: Arc::clone(&self.board),
        });
        let spec = self.pod.spec.clone().unwrap_or_default();
        for init in spec.init_containers.into_iter().flatten() {
            let (name, kind) = (init.name.clone(), Kind::of_init(&init));
            self.start(&context, init, kind);
            match kind {
                Kind::Sidecar => self.board.until(&name, |view| view.started).await,
                Kind::Init | Kind::Main => self.ended(&name).await,
            }
            if self.failed(&name) {
                self.board.set_verdict("Failed", "", String::new());
                return;
            }
        }
        let mains: Vec<_> = spec
            .containers
            .iter()
            .map(|container| container.name.clone())
            .collect();
        for main in spec.containers {
            self.start(&context, main, Kind::Main);
        }
        for main in &mains {
            self.board
                .until(main, |view| matches!(view.phase, Phase::Ended(_)))
                .await;
        }
        let failed = mains.iter().any(|main| self.failed(main));
        self.board.set_verdict(
            if failed { "Failed" } else { "Succeeded" },
            "",
            String::new(),
        );
    }

    async fn ended(&self, name: &str) {
        self.board
            .until(name, |view| matches!(view.phase, Phase::Ended(_)))
            .await;
    }

    fn failed(&self, name: &str) -> bool {
        self.board.views().iter().any(|view| {
            view.name == name && matches!(&view.phase, Phase::Ended(ended) if ended.code != 0)
        })
    }

    fn admit(&self) -> Result<(), String> {
        self.node.with(|state| {
            allocation::allocate(state, &self.pod)?;
            let registered = state.registered();
            let written = self
                .node
                .tree
                .write_device_manager(&state.devices, &registered)
                .and_then(|()| self.node.tree.add_pod(&self.uid));
            written.map_err(|error| format!("{error:#}"))
        })
    }

    async fn mount(&self) -> Volumes {
        let tokens = self
            .containers()
            .any(|(container, kind)| match image_of(container, kind) {
                Image::Agent | Image::Operand(Operand::NvidiaDra | Operand::NeuronDra) => true,
                Image::Operand(
                    Operand::NvidiaPlugin | Operand::NeuronPlugin | Operand::NvidiaPrestart,
                )
                | Image::Companion
                | Image::Workload => false,
            });
        let mut tries = 0_u32;
        loop {
            match volumes::mount(&self.node.tree, &self.node.client, &self.pod, tokens).await {
                Ok(volumes) => return volumes,
                Err(error) => {
                    let message = format!("MountVolume.SetUp failed: {error:#}");
                    self.board.set_waiting("ContainerCreating", &message);
                    // The Node authorizer learns of a pod a moment after the kubelet does: once is nothing to speak of.
                    if tries > 0 {
                        self.complain("FailedMount", &message).await;
                    }
                }
            }
            tries += 1;
            self.node.shared.clock.sleep(real::MOUNT_RETRY).await;
        }
    }

    /// Records an Event, unless it says the same as the last one: the kubelet counts repetitions instead.
    async fn complain(&self, reason: &'static str, message: &str) {
        let said = self
            .said
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .replace(message.to_owned());
        if said.as_deref() != Some(message) {
            self.node.event(&self.pod, reason, message).await;
        }
    }

    fn containers(&self) -> impl Iterator<Item = (&Container, Kind)> {
        let spec = self.pod.spec.iter();
        spec.flat_map(|spec| {
            let inits = spec
                .init_containers
                .iter()
                .flatten()
                .map(|init| (init, Kind::of_init(init)));
            inits.chain(spec.containers.iter().map(|main| (main, Kind::Main)))
        })
    }

    async fn prepare(&self, signal: watch::Receiver<PodSignal>) {
        loop {
            let pod = Arc::clone(&signal.borrow().pod);
            let tried = async {
                let claims = claims::read(&self.node.client, &pod).await?;
                self.node.with(|state| {
                    claims
                        .iter()
                        .try_for_each(|claim| claims::prepare(state, &self.node.tree, &pod, claim))
                })
            };
            let Err(error) = tried.await else { return };
            let message = format!("Failed to prepare dynamic resources: {error:#}");
            self.board.set_waiting("ContainerCreating", &message);
            self.complain("FailedPrepareDynamicResources", &message)
                .await;
            // Tried again at once when a driver registers.
            let drivers = self.node.look(|state| state.drivers.len());
            let sooner = self
                .node
                .until(|state| (state.drivers.len() > drivers).then_some(()));
            tokio::time::timeout(self.node.shared.clock.scaled(real::CLAIM_RETRY), sooner)
                .await
                .ok();
        }
    }

    fn start(&mut self, context: &Arc<PodContext>, container: Container, kind: Kind) {
        let (stop, listen) = watch::channel(None);
        self.running.push(Running {
            name: container.name.clone(),
            kind,
            stop,
        });
        self.tasks
            .spawn(container::run(Arc::clone(context), container, kind, listen));
    }

    /// Ends containers as the kubelet does: the others first and together, then sidecars, last started first.
    async fn stop(&mut self, grace: Duration) {
        let (mut sidecars, others): (Vec<_>, Vec<_>) = self
            .running
            .drain(..)
            .partition(|running| running.kind == Kind::Sidecar);
        for running in &others {
            running.stop.send_replace(Some(grace));
        }
        self.wait_for(&others).await;
        sidecars.reverse();
        for sidecar in sidecars {
            sidecar.stop.send_replace(Some(grace));
            self.wait_for(std::slice::from_ref(&sidecar)).await;
        }
    }

    async fn wait_for(&self, stopped: &[Running]) {
        for running in stopped {
            // Its task ends last of all, and its stop channel has no listener from then on.
            running.stop.closed().await;
            self.board.set(&running.name, |view| view.ready = false);
        }
    }

    /// The containers have ended by themselves: volumes, cgroup and claims go, directory and object stay.
    async fn rest(&mut self) {
        self.stop(real::MINIMUM_GRACE).await;
        self.unprepare().await;
        self.node
            .with(|state| state.finished.insert(self.uid.clone()));
        if let Err(error) = self.node.tree.empty_pod(&self.uid) {
            tracing::warn!(node = self.node.name, pod = self.pod.name_any(), %error, "empty the pod's directory");
        }
    }

    /// Gives claims back; waits for as long as a driver that must do it is away. The pod hangs in Terminating meanwhile.
    async fn unprepare(&self) {
        loop {
            let Err(error) = self
                .node
                .with(|state| claims::unprepare(state, &self.node.tree, &self.uid))
            else {
                return;
            };
            self.complain("FailedKillPod", &format!("error killing pod: {error:#}"))
                .await;
            let drivers = self.node.look(|state| state.drivers.len());
            let sooner = self
                .node
                .until(|state| (state.drivers.len() > drivers).then_some(()));
            tokio::time::timeout(self.node.shared.clock.scaled(real::CLAIM_RETRY), sooner)
                .await
                .ok();
        }
    }

    async fn report_last_status(&self) {
        if let Err(error) = send_status(&self.node, &self.pod, &self.board.patch()).await {
            tracing::debug!(node = self.node.name, pod = self.pod.name_any(), %error, "report the last pod status");
        }
    }

    /// Removes the object, which the API server has kept until the kubelet is done.
    async fn delete_object(&self) {
        let api = Api::<Pod>::namespaced(
            self.node.client.clone(),
            &self.pod.namespace().unwrap_or_default(),
        );
        let preconditions = Preconditions {
            uid: Some(self.uid.clone()),
            resource_version: None,
        };
        let now = DeleteParams {
            grace_period_seconds: Some(0),
            preconditions: Some(preconditions),
            ..DeleteParams::default()
        };
        loop {
            self.node.until(|state| state.up.then_some(())).await;
            match api
                .delete(&self.pod.name_any(), &now)
                .await
                .context("delete the pod")
            {
                Ok(_) => return,
                Err(error) => {
                    let gone = error.downcast_ref::<kube::Error>().is_some_and(|error| matches!(error, kube::Error::Api(status) if status.code == 404 || status.code == 409));
                    if gone {
                        return;
                    }
                    tracing::debug!(node = self.node.name, pod = self.pod.name_any(), %error, "delete the pod");
                }
            }
            self.node.shared.clock.sleep(real::MOUNT_RETRY).await;
        }
    }
}
