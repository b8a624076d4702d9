//! Real `freehold-agent` processes in the place of containers.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::Context as _;
use k8s_openapi::api::core::v1::Container;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use tokio::process::{Child, Command};

use super::node::SimNode;
use super::volumes::{ContainerRoot, expand};

/// Where a pod's service account token is mounted.
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// How processes reach the API server.
#[derive(Clone, Debug)]
pub struct ApiServer {
    /// `https://host:port`.
    pub url: String,
    /// PEM file of its certificate authority.
    pub authority: PathBuf,
}

/// A container's program as a process: what to run and with what.
#[derive(Clone, Debug)]
pub struct Program {
    binary: PathBuf,
    arguments: Vec<String>,
    environment: BTreeMap<String, String>,
    log: PathBuf,
    group: i32,
}

impl Program {
    /// The process for a container that runs the agent's image. The binary stands for the image's entry point; a command that
    /// names it is dropped, everything else becomes arguments.
    ///
    /// # Errors
    /// When the kubeconfig that stands for the in-cluster configuration cannot be written.
    pub fn new(
        binary: &Path,
        container: &Container,
        root: &ContainerRoot,
        env: &BTreeMap<String, String>,
        node: &SimNode,
        log: PathBuf,
    ) -> anyhow::Result<Self> {
        let shared = &node.shared;
        let command: Vec<_> = container
            .command
            .iter()
            .flatten()
            .map(String::as_str)
            .collect();
        let inside = arguments_after_binary(&command)
            .iter()
            .copied()
            .chain(container.args.iter().flatten().map(String::as_str));
        let mut arguments: Vec<_> = inside
            .map(|argument| root.argument(&expand(argument, env)))
            .collect();
        if arguments.iter().any(|argument| argument == "--shaped") {
            // A container asks the kernel that it runs on, which is another one out here.
            let boot_id = node.tree.path("/proc/sys/kernel/random/boot_id");
            arguments.extend(["--boot-id-file".into(), boot_id.display().to_string()]);
        }
        let mut environment: BTreeMap<_, _> = env
            .iter()
            .map(|(name, value)| (name.clone(), root.argument(value)))
            .collect();
        let token = root.path(SERVICE_ACCOUNT).join("token");
        if token.exists() {
            // Stands for the in-cluster configuration, whose paths are fixed and mean another file out here.
            let kubeconfig = root.root().join("kubeconfig");
            fs::write(&kubeconfig, kubeconfig_of(&shared.api, &token).to_string())?;
            environment.insert("KUBECONFIG".into(), kubeconfig.display().to_string());
            if arguments.first().is_some_and(|command| command == "report")
                && !arguments
                    .iter()
                    .any(|argument| argument.starts_with("--token-file"))
            {
                arguments.extend(["--token-file".into(), token.display().to_string()]);
            }
        }
        Ok(Self {
            binary: binary.to_owned(),
            arguments,
            environment,
            log,
            group: shared.agent_group,
        })
    }

    /// The same container's probe command.
    #[must_use]
    pub fn probe(&self, command: &[String], root: &ContainerRoot) -> Self {
        let command: Vec<_> = command.iter().map(String::as_str).collect();
        let arguments = arguments_after_binary(&command)
            .iter()
            .map(|argument| root.argument(argument))
            .collect();
        Self {
            arguments,
            ..self.clone()
        }
    }

    /// The path given with `--started`, where the interlock's sidecar shows that it holds the lock.
    #[must_use]
    pub fn started_file(&self) -> Option<PathBuf> {
        let mut arguments = self.arguments.iter();
        arguments
            .find_map(|argument| argument.strip_prefix("--started=").map(PathBuf::from))
            .or_else(|| {
                let at = self
                    .arguments
                    .iter()
                    .position(|argument| argument == "--started")?;
                self.arguments.get(at + 1).map(PathBuf::from)
            })
    }

    /// Starts it.
    ///
    /// # Errors
    /// When the binary cannot be started.
    pub fn start(&self) -> anyhow::Result<Process> {
        if let Some(parent) = self.log.parent() {
            fs::create_dir_all(parent)?;
        }
        let log = File::options().create(true).append(true).open(&self.log)?;
        let child = Command::new(&self.binary)
            .args(&self.arguments)
            .env_clear()
            .envs(&self.environment)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .process_group(self.group)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| {
                format!(
                    "start {} {}",
                    self.binary.display(),
                    self.arguments.join(" ")
                )
            })?;
        Ok(Process { child })
    }

    /// Runs it to its end, for a probe.
    ///
    /// # Errors
    /// When it cannot be started.
    pub async fn run(&self) -> anyhow::Result<i32> {
        self.start()?.wait().await
    }

    /// Where its output goes.
    #[must_use]
    pub fn log(&self) -> &Path {
        &self.log
    }
}

/// A command without its first word when that word is the agent's binary.
fn arguments_after_binary<'a>(command: &'a [&'a str]) -> &'a [&'a str] {
    match command.split_first() {
        Some((first, rest)) if first.rsplit('/').next() == Some("freehold-agent") => rest,
        _ => command,
    }
}

fn kubeconfig_of(api: &ApiServer, token: &Path) -> serde_json::Value {
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "pod",
        "contexts": [{"name": "pod", "context": {"cluster": "pod", "user": "pod"}}],
        "clusters": [{"name": "pod", "cluster": {"server": api.url, "certificate-authority": api.authority}}],
        "users": [{"name": "pod", "user": {"tokenFile": token}}],
    })
}

/// A running process; killed when dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
}

impl Process {
    /// Its exit code; 128 + signal when a signal ended it.
    ///
    /// # Errors
    /// When the operating system cannot tell.
    pub async fn wait(&mut self) -> anyhow::Result<i32> {
        use std::os::unix::process::ExitStatusExt as _;
        let status = self.child.wait().await?;
        Ok(status
            .code()
            .unwrap_or_else(|| 128 + status.signal().unwrap_or(0)))
    }

    /// SIGTERM, then SIGKILL after the grace period.
    ///
    /// # Errors
    /// When the operating system cannot tell how it ended.
    pub async fn stop(&mut self, grace: Duration) -> anyhow::Result<i32> {
        if let Some(pid) = self
            .child
            .id()
            .and_then(|id| i32::try_from(id).ok())
            .and_then(Pid::from_raw)
        {
            // A process that has just ended by itself is as good as stopped.
            kill_process(pid, Signal::TERM).ok();
        }
        match tokio::time::timeout(grace, self.wait()).await {
            Ok(code) => code,
            Err(_) => {
                self.child.start_kill()?;
                self.wait().await
            }
        }
    }
}
