//! One container: started, restarted with growing pauses, stopped. What runs in it is a real process for our own image, a
//! simulated operand for the vendors' images, and nothing that does anything for every other.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use k8s_openapi::api::core::v1::{Container, Pod};
use kube::ResourceExt as _;
use tokio::sync::watch;

use super::board::{Board, Ended, Kind, Phase};
use super::node::SimNode;
use super::node_object::now;
use super::operands::{self, Operand};
use super::options::real;
use super::process::Program;
use super::tree::remove_dir_all;
use super::volumes::{ContainerRoot, Volumes, environment};

/// Annotation on workload pods: how long the container runs, in seconds of a real node, before it exits.
pub const RUN_FOR: &str = "sim.freehold.dev/run-for-seconds";
/// Annotation on workload pods: the exit code then, 0 unless given.
pub const EXIT_CODE: &str = "sim.freehold.dev/exit-code";
/// Annotation on workload pods: `true` for a container that does not stop before its grace period ends.
pub const IGNORES_SIGTERM: &str = "sim.freehold.dev/ignores-sigterm";

/// What containers of one pod share.
#[derive(Debug)]
pub struct PodContext {
    /// The node.
    pub node: Arc<SimNode>,
    /// The pod as it was when its containers started.
    pub pod: Arc<Pod>,
    /// Volumes.
    pub volumes: Volumes,
    /// States.
    pub board: Arc<Board>,
}

/// What a container's image holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Image {
    /// `freehold-agent`.
    Agent,
    /// A vendor's operand.
    Operand(Operand),
    /// A vendor's program that hands out no devices.
    Companion,
    /// Anything else.
    Workload,
}

/// Tells by the image's last path segment and the command's program, since registries differ.
#[must_use]
pub fn image_of(container: &Container, kind: Kind) -> Image {
    let image = container.image.as_deref().unwrap_or_default();
    let name = image.rsplit('/').next().unwrap_or_default();
    let name = name.split(['@', ':']).next().unwrap_or_default();
    let program = container
        .command
        .iter()
        .flatten()
        .next()
        .map_or("", String::as_str);
    match (name, program.rsplit('/').next().unwrap_or_default()) {
        ("freehold-agent", _) => Image::Agent,
        ("k8s-device-plugin", "" | "nvidia-device-plugin") => Image::Operand(Operand::NvidiaPlugin),
        ("dra-driver-nvidia-gpu", _) if kind == Kind::Init => {
            Image::Operand(Operand::NvidiaPrestart)
        }
        ("dra-driver-nvidia-gpu", "gpu-kubelet-plugin") => Image::Operand(Operand::NvidiaDra),
        ("neuron-device-plugin", _) => Image::Operand(Operand::NeuronPlugin),
        ("neuron-dra-driver", _) => Image::Operand(Operand::NeuronDra),
        ("k8s-device-plugin" | "dra-driver-nvidia-gpu", _) => Image::Companion,
        _ => Image::Workload,
    }
}

/// How one run of a container ended.
#[derive(Clone, Debug)]
pub struct Exit {
    /// Exit code.
    pub code: i32,
    /// Last words.
    pub message: String,
}

impl Exit {
    /// A clean end.
    #[must_use]
    pub const fn clean() -> Self {
        Self {
            code: 0,
            message: String::new(),
        }
    }

    /// A failure.
    #[must_use]
    pub fn failure(message: impl std::fmt::Display) -> Self {
        Self {
            code: 1,
            message: message.to_string(),
        }
    }
}

/// Tells a container to stop within a grace period.
pub type Stop = watch::Receiver<Option<Duration>>;

/// Waits for the order to stop.
pub async fn stopped(stop: &mut Stop) -> Duration {
    let told = stop.wait_for(Option::is_some).await.map(|grace| *grace);
    match told {
        Ok(grace) => grace.unwrap_or_default(),
        // Nobody is left to stop us: the pod's worker was aborted, and this task with it.
        Err(_) => std::future::pending().await,
    }
}

/// Runs a container until it ends for good or is told to stop.
pub async fn run(context: Arc<PodContext>, container: Container, kind: Kind, mut stop: Stop) {
    let board = &context.board;
    let clock = context.node.shared.clock;
    let name = container.name.as_str();
    let policy = context
        .pod
        .spec
        .as_ref()
        .and_then(|spec| spec.restart_policy.as_deref())
        .unwrap_or("Always");
    let mut crashes = 0_u32;
    loop {
        tokio::select! {
            () = clock.sleep(real::CONTAINER_START) => {}
            _ = stopped(&mut stop) => return,
        }
        let started = now();
        board.set(name, |view| view.phase = Phase::Running(started.clone()));
        let (exit, told) = attempt(&context, &container, kind, &mut stop).await;
        let ended = Ended {
            code: exit.code,
            message: exit.message,
            started,
            finished: now(),
        };
        let again = !told
            && match kind {
                Kind::Sidecar => true,
                Kind::Init => exit.code != 0 && policy != "Never",
                Kind::Main => policy == "Always" || (policy == "OnFailure" && exit.code != 0),
            };
        board.set(name, |view| {
            view.ready = false;
            view.started = false;
            if again {
                view.restarts += 1;
                view.last = Some(ended.clone());
                let why = format!("back-off restarting failed container {name}");
                view.phase = Phase::Waiting("CrashLoopBackOff", why);
            } else {
                view.phase = Phase::Ended(ended);
            }
        });
        if !again {
            return;
        }
        // The first restart is immediate, as the kubelet's is.
        if let Some(doublings) = crashes.checked_sub(1) {
            let pause = (real::CRASH_BACKOFF * 2_u32.saturating_pow(doublings.min(8)))
                .min(real::MAX_CRASH_BACKOFF);
            tokio::select! {
                () = clock.sleep(pause) => {}
                _ = stopped(&mut stop) => return,
            }
        }
        crashes += 1;
    }
}

/// One run. The second value tells that it was told to stop.
async fn attempt(
    context: &PodContext,
    container: &Container,
    kind: Kind,
    stop: &mut Stop,
) -> (Exit, bool) {
    let node = &context.node;
    let root = node
        .shared
        .directory
        .join(format!("c{}", node.shared.next()));
    let root = match ContainerRoot::build(root, container, &context.volumes) {
        Ok(root) => root,
        Err(error) => return (Exit::failure(format!("{error:#}")), false),
    };
    let up = || {
        context.board.set(&container.name, |view| {
            (view.started, view.ready) = (true, true);
        });
    };
    let ended = match image_of(container, kind) {
        Image::Agent => match process(context, container, &root, stop).await {
            Ok(ended) => ended,
            Err(error) => (Exit::failure(format!("{error:#}")), false),
        },
        Image::Operand(operand) => {
            let env = environment(&context.pod, container);
            let key = (
                context.pod.uid().unwrap_or_default(),
                container.name.clone(),
            );
            if let Some(tenant) = operand.hands_out() {
                node.with(|state| state.operands.insert(key.clone(), tenant));
            }
            up();
            let (exit, told) = tokio::select! {
                exit = operands::run(operand, context, &root, &env) => (exit, false),
                _ = stopped(stop) => (Exit::clean(), true),
            };
            if told {
                node.shared.clock.sleep(real::CONTAINER_STOP).await;
            }
            let ended = operands::ended(operand, context);
            node.with(|state| state.operands.remove(&key));
            match ended {
                Ok(()) => (exit, told),
                Err(error) => (Exit::failure(format!("{error:#}")), told),
            }
        }
        Image::Companion if kind == Kind::Init => (Exit::clean(), false),
        Image::Companion | Image::Workload => {
            up();
            workload(context, kind, stop).await
        }
    };
    // Links only: what they lead to is the host's.
    if let Err(error) = remove_dir_all(root.root()) {
        tracing::warn!(node = node.name, container = container.name, %error, "remove the container's root");
    }
    ended
}

async fn workload(context: &PodContext, kind: Kind, stop: &mut Stop) -> (Exit, bool) {
    let clock = context.node.shared.clock;
    let annotation = |key: &str| context.pod.annotations().get(key).map(String::as_str);
    let length = match kind {
        Kind::Init => Some(Duration::ZERO),
        Kind::Sidecar | Kind::Main => annotation(RUN_FOR)
            .and_then(|text| text.parse().ok())
            .map(Duration::from_secs_f64),
    };
    let finished = async {
        match length {
            Some(length) => clock.sleep(length).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        () = finished => {
            let code = annotation(EXIT_CODE).and_then(|text| text.parse().ok()).unwrap_or(0);
            (Exit { code, message: String::new() }, false)
        }
        grace = stopped(stop) => {
            let stubborn = annotation(IGNORES_SIGTERM) == Some("true");
            clock.sleep(if stubborn { grace } else { real::CONTAINER_STOP.min(grace) }).await;
            (Exit { code: if stubborn { 137 } else { 143 }, message: String::new() }, true)
        }
    }
}

/// A real process, with its startup and readiness probes.
async fn process(
    context: &PodContext,
    container: &Container,
    root: &ContainerRoot,
    stop: &mut Stop,
) -> anyhow::Result<(Exit, bool)> {
    let node = &context.node;
    let binary = node
        .shared
        .agent
        .as_ref()
        .context("this fleet was started without a freehold-agent binary")?;
    let log = log_file(context, container);
    let env = environment(&context.pod, container);
    let program = Program::new(binary, container, root, &env, node, log)?;
    let mut process = program.start()?;
    let probing = async {
        if let Some(command) = container
            .startup_probe
            .as_ref()
            .and_then(|probe| probe.exec.as_ref()?.command.as_ref())
        {
            let probe = program.probe(command, root);
            let period = probe_period(
                container
                    .startup_probe
                    .as_ref()
                    .and_then(|probe| probe.period_seconds),
            );
            // A look at the file costs nothing; the real probe is run once it can succeed.
            while !probe.started_file().is_none_or(|file| file.exists()) || probe.run().await? != 0
            {
                tokio::time::sleep(period).await;
            }
        }
        context
            .board
            .set(&container.name, |view| view.started = true);
        if let Some(command) = container
            .readiness_probe
            .as_ref()
            .and_then(|probe| probe.exec.as_ref()?.command.as_ref())
        {
            let probe = program.probe(command, root);
            let period = probe_period(
                container
                    .readiness_probe
                    .as_ref()
                    .and_then(|probe| probe.period_seconds),
            );
            while probe.run().await? != 0 {
                tokio::time::sleep(period).await;
            }
        }
        context.board.set(&container.name, |view| view.ready = true);
        std::future::pending::<anyhow::Result<()>>().await
    };
    let (code, told) = tokio::select! {
        code = process.wait() => (code?, false),
        grace = stopped(stop) => (process.stop(grace).await?, true),
        Err(error) = probing => return Err(error),
    };
    let message = if code == 0 || told {
        String::new()
    } else {
        last_line(program.log())
    };
    Ok((Exit { code, message }, told))
}

/// Probes look once a second on a real node; here the file system is asked at most ten times a second.
fn probe_period(seconds: Option<i32>) -> Duration {
    Duration::from_millis(
        u64::try_from(seconds.unwrap_or(1))
            .unwrap_or(1)
            .clamp(1, 10)
            * 100,
    )
}

fn log_file(context: &PodContext, container: &Container) -> PathBuf {
    let pod = format!(
        "{}_{}",
        context.pod.name_any(),
        context
            .pod
            .uid()
            .unwrap_or_default()
            .get(..8)
            .unwrap_or_default()
    );
    context
        .node
        .shared
        .directory
        .join("logs")
        .join(&context.node.name)
        .join(pod)
        .join(format!("{}.log", container.name))
}

fn last_line(log: &std::path::Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    text.lines()
        .rev()
        .find(|line| !line.trim().is_empty())
        .unwrap_or_default()
        .to_owned()
}
