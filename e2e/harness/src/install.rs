//! Freehold as an administrator installs it, except that the controller runs as a process of this machine: under its own service
//! account, with the RBAC and the admission policies of `config/`, never as cluster admin.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use freehold_core::names;
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Bytes;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;

use crate::cluster::{Process, TestCluster, eventually};

/// From the controller's start until its caches are filled and it leads, on a busy machine.
const READY_LIMIT: Duration = Duration::from_secs(60);

/// How long the controller may take to end by itself.
const STOP_LIMIT: Duration = Duration::from_secs(10);

/// The root of the repository.
#[must_use]
pub fn repository() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.ancestors().nth(2).unwrap_or(manifest).to_owned()
}

/// The product's programs, built in the profile that this program was built in.
#[derive(Clone, Debug)]
pub struct Programs {
    /// `freehold-operator`.
    pub operator: PathBuf,
    /// `freehold-agent`.
    pub agent: PathBuf,
    /// `kubectl-freehold`.
    pub cli: PathBuf,
}

impl Programs {
    /// Builds what is out of date, which takes no time when nothing is, so that no test ever runs against old programs.
    ///
    /// # Errors
    /// When they do not build.
    pub fn build() -> Result<Self> {
        let release = std::env::current_exe()?
            .components()
            .any(|part| part.as_os_str() == "release");
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo
            .current_dir(repository())
            .args(["build", "--quiet", "--locked"]);
        cargo.args([
            "-p",
            "freehold-controller",
            "-p",
            "freehold-agent",
            "-p",
            "freehold-cli",
        ]);
        if release {
            cargo.arg("--release");
        }
        if !cargo.status().context("running cargo")?.success() {
            bail!("the product's programs do not build");
        }
        let target = std::env::var_os("CARGO_TARGET_DIR")
            .map_or_else(|| repository().join("target"), PathBuf::from);
        let folder = target.join(if release { "release" } else { "debug" });
        Ok(Self {
            operator: folder.join("freehold-operator"),
            agent: folder.join("freehold-agent"),
            cli: folder.join("kubectl-freehold"),
        })
    }
}

/// How the controller is run.
#[derive(Clone, Debug)]
pub struct ControllerOptions {
    /// Name of this replica.
    pub identity: String,
    /// Further arguments of `freehold-operator run`.
    pub arguments: Vec<String>,
    /// Where it finds the API server, when not at the cluster's own address.
    pub server: Option<String>,
}

impl Default for ControllerOptions {
    /// Clocks about as much faster as a fleet at a tenth of real time is.
    fn default() -> Self {
        let arguments = [
            "--settle-seconds=1",
            "--stable-seconds=1",
            "--patience-seconds=20",
            "--status-rest-ms=300",
        ];
        Self {
            identity: "replica-1".into(),
            arguments: arguments.map(str::to_owned).into(),
            server: None,
        }
    }
}

/// Applies the CRDs and everything of `config/` but the Deployment, in whose place the process stands.
///
/// # Errors
/// When the API server refuses anything.
pub async fn install(cluster: &TestCluster) -> Result<()> {
    cluster.apply_dir(repository().join("crds")).await?;
    let folder = repository().join("config/install");
    let mut files: Vec<PathBuf> = Vec::new();
    for folder in [folder.clone(), folder.join("policies")] {
        for entry in
            fs::read_dir(&folder).with_context(|| format!("reading {}", folder.display()))?
        {
            let path = entry?.path();
            if path
                .extension()
                .is_some_and(|extension| extension == "yaml")
            {
                files.push(path);
            }
        }
    }
    // Namespaces come before what lives in them.
    files.sort_by_key(|file| (!file.ends_with("namespaces.yaml"), file.clone()));
    for file in files {
        let text = fs::read_to_string(&file)?;
        let documents: Vec<&str> = text
            .split("\n---")
            .filter(|document| !document.contains("\nkind: Deployment"))
            .collect();
        cluster
            .apply_yaml(&documents.join("\n---"))
            .await
            .with_context(|| format!("applying {}", file.display()))?;
    }
    Ok(())
}

/// A running controller.
pub struct Controller {
    process: Process,
    address: SocketAddr,
    crashed: bool,
}

impl Controller {
    /// Starts it and waits until its caches are filled.
    ///
    /// # Errors
    /// When it ends or does not become ready; the text holds the end of its log.
    pub async fn start(
        cluster: &TestCluster,
        programs: &Programs,
        options: &ControllerOptions,
    ) -> Result<Self> {
        let token = cluster
            .service_account_token(
                names::SYSTEM_NAMESPACE,
                names::CONTROLLER_SERVICE_ACCOUNT,
                None,
            )
            .await?;
        let server = options.server.clone().unwrap_or_else(|| cluster.url());
        let login = format!("controller-{}", options.identity);
        let kubeconfig = cluster.kubeconfig_with_token_at(&login, &server, &token)?;
        let address = free_address()?;
        let mut arguments = vec![
            format!("KUBECONFIG={}", kubeconfig.display()),
            "RUST_LOG=info".to_owned(),
            programs.operator.display().to_string(),
            "run".to_owned(),
            format!("--listen={address}"),
            format!("--identity={}", options.identity),
        ];
        arguments.extend(options.arguments.iter().cloned());
        let name = format!("freehold-operator-{}", options.identity);
        let process = Process::spawn(
            &name,
            Path::new("/usr/bin/env"),
            &arguments,
            cluster.folder(),
        )?;
        let mut controller = Self {
            process,
            address,
            crashed: false,
        };
        controller.wait_until_ready().await?;
        Ok(controller)
    }

    async fn wait_until_ready(&mut self) -> Result<()> {
        let deadline = std::time::Instant::now() + READY_LIMIT;
        loop {
            self.process.check()?;
            if matches!(get(self.address, "/readyz").await, Ok((200, _))) {
                return Ok(());
            }
            if std::time::Instant::now() > deadline {
                bail!(
                    "the controller did not become ready within {READY_LIMIT:?}:\n{}",
                    self.process.tail()
                );
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Whether it says that it is ready.
    ///
    /// # Errors
    /// When it does not answer, as when its process has ended.
    pub async fn is_ready(&self) -> Result<bool> {
        Ok(get(self.address, "/readyz").await?.0 == 200)
    }

    /// The text of `/metrics`.
    ///
    /// # Errors
    /// When it cannot be read.
    pub async fn metrics(&self) -> Result<String> {
        Ok(get(self.address, "/metrics").await?.1)
    }

    /// Resident memory in KiB, as the kernel counts it: now, and at its peak.
    ///
    /// # Errors
    /// When the process is gone.
    pub fn memory_kib(&self) -> Result<(u64, u64)> {
        memory_kib(self.process.id())
    }

    /// The end of its log.
    #[must_use]
    pub fn log_tail(&self) -> String {
        self.process.tail()
    }

    /// Ends it at once, as a crash does.
    pub fn kill(self) {
        drop(self.process);
    }

    /// Ends it at once, as a crash does, and keeps its place for a successor.
    ///
    /// # Errors
    /// When it is gone already.
    pub fn crash(&mut self) -> Result<()> {
        self.crashed = true;
        self.process.kill()
    }

    /// Asks it to end and waits until it has; one that was crashed has.
    ///
    /// # Errors
    /// When it cannot be signalled.
    pub fn stop(self) -> Result<()> {
        if self.crashed {
            return Ok(());
        }
        self.process.terminate(STOP_LIMIT)
    }
}

/// Resident memory of a process in KiB: now, and at its peak.
///
/// # Errors
/// When the process is gone.
pub fn memory_kib(pid: u32) -> Result<(u64, u64)> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let field = |name: &str| -> Result<u64> {
        let line = status
            .lines()
            .find(|line| line.starts_with(name))
            .with_context(|| format!("{name} of process {pid}"))?;
        line.split_whitespace()
            .nth(1)
            .and_then(|value| value.parse().ok())
            .with_context(|| format!("{name} is no number"))
    };
    Ok((field("VmRSS:")?, field("VmHWM:")?))
}

/// An address that nothing listens on.
fn free_address() -> Result<SocketAddr> {
    Ok(std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?)
}

async fn get(address: SocketAddr, path: &str) -> Result<(u16, String)> {
    let client = Client::builder(TokioExecutor::new()).build_http::<Empty<Bytes>>();
    let reply = client
        .get(format!("http://{address}{path}").parse()?)
        .await?;
    let status = reply.status().as_u16();
    let body = reply.into_body().collect().await?.to_bytes();
    Ok((status, String::from_utf8_lossy(&body).into_owned()))
}

/// Waits until the AcceleratorCluster's status satisfies a condition; on failure the last status is part of the text.
///
/// # Errors
/// When it does not within `limit`.
pub async fn wait_for_cluster(
    cluster: &TestCluster,
    what: &str,
    limit: Duration,
    holds: impl Fn(&freehold_api::AcceleratorCluster) -> bool,
) -> Result<freehold_api::AcceleratorCluster> {
    let api = kube::Api::<freehold_api::AcceleratorCluster>::all(cluster.admin());
    let looked = eventually(what, limit, async || {
        let object = api.get(names::SINGLETON).await?;
        Ok(holds(&object).then_some(object))
    })
    .await;
    match looked {
        Ok(object) => Ok(object),
        Err(error) => {
            let last = api
                .get(names::SINGLETON)
                .await
                .map(|object| format!("{:#?}", object.status));
            Err(error.context(format!(
                "last status: {}",
                last.unwrap_or_else(|error| error.to_string())
            )))
        }
    }
}
