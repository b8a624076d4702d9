//! A real Kubernetes control plane for one test: etcd, API server, controller manager and scheduler, up within seconds, gone
//! with the test.
//!
//! ```no_run
//! # async fn example() -> anyhow::Result<()> {
//! use freehold_e2e::cluster::{Options, TestCluster};
//!
//! let cluster = TestCluster::start(Options::named("handover")?).await?;
//! cluster.apply_dir("crds").await?;
//! let nodes = kube::Api::<k8s_openapi::api::core::v1::Node>::all(cluster.admin());
//! assert!(nodes.list(&Default::default()).await?.items.is_empty());
//! # Ok(())
//! # }
//! ```
//!
//! Many may run side by side. A cluster ends when it is dropped, when the test panics, and also when the test's process is
//! killed. Logs and the audit log stay for an hour; a panic prints where they are.

mod access;
mod apply;
mod audit;
mod binaries;
mod component;
mod options;
mod pki;
mod ports;
mod process;
mod release;
mod run_folder;
mod wait;

use std::{
    collections::BTreeMap,
    fmt,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::{Api, Client, config::AuthInfo};

pub(crate) use self::process::Process;
pub use self::{
    apply::Applied,
    audit::{AuditEvent, AuditLog, Filter, Mark, Writes},
    binaries::{Binaries, FOLDER_VARIABLE},
    component::Component,
    options::{AuditScope, Options},
    pki::Certificate,
    release::{RELEASE_VARIABLE, Release},
    wait::eventually,
};
use self::{pki::Pki, ports::Port, run_folder::RunFolder};

/// How long a component may take to become ready. Seconds on an idle machine; a machine busy with other tests needs more.
const START_LIMIT: Duration = Duration::from_secs(120);

/// How long a component may take to end by itself. The API server would hold open watches for up to a minute.
const STOP_PATIENCE: Duration = Duration::from_secs(3);

/// A running control plane.
pub struct TestCluster {
    options: Options,
    binaries: Binaries,
    ports: Ports,
    pki: Pki,
    admin: Certificate,
    started_in: Duration,
    processes: Mutex<BTreeMap<Component, Process>>,
    /// Last, so that the processes are gone before their data.
    folder: RunFolder,
}

struct Ports {
    etcd: Port,
    etcd_peer: Port,
    api_server: Port,
    controller_manager: Port,
    scheduler: Port,
}

impl TestCluster {
    /// Builds what is missing and starts a cluster; returns once everything asked for is ready.
    ///
    /// # Errors
    /// When something cannot be built or a component does not become ready; the text holds the end of its log.
    pub async fn start(options: Options) -> Result<Self> {
        let release = options.release;
        let binaries = tokio::task::spawn_blocking(move || Binaries::ensure(release)).await??;
        let started = Instant::now();
        let folder = RunFolder::create(&binaries::folder()?, &options.name)?;
        let pki = Pki::create(&folder.path().join("pki"))?;
        let admin = pki.client("test-admin", Some("system:masters"))?;
        let ports = Ports {
            etcd: Port::reserve()?,
            etcd_peer: Port::reserve()?,
            api_server: Port::reserve()?,
            controller_manager: Port::reserve()?,
            scheduler: Port::reserve()?,
        };
        let processes = Mutex::default();
        let mut cluster = Self {
            options,
            binaries,
            ports,
            pki,
            admin,
            started_in: Duration::ZERO,
            processes,
            folder,
        };
        cluster.write_admin_kubeconfig()?;
        // Answers an invalid configuration here, once, so that admin() cannot fail later.
        drop(cluster.client(AuthInfo::default())?);

        cluster.start_component(Component::Etcd).await?;
        cluster.start_component(Component::ApiServer).await?;
        tokio::try_join!(
            async {
                if !cluster.options.controller_manager {
                    return Ok(());
                }
                cluster
                    .start_component(Component::ControllerManager)
                    .await?;
                cluster.wait_for_service_accounts().await
            },
            async {
                if cluster.options.scheduler {
                    cluster.start_component(Component::Scheduler).await
                } else {
                    Ok(())
                }
            },
        )?;
        cluster.started_in = started.elapsed();
        tracing::info!(
            kubernetes = cluster.version(),
            seconds = cluster.started_in.as_secs_f64(),
            folder = %cluster.folder.path().display(),
            "test cluster is up"
        );
        Ok(cluster)
    }

    /// Time from nothing but built binaries to everything ready.
    #[must_use]
    pub const fn started_in(&self) -> Duration {
        self.started_in
    }

    /// Version such as `v1.36.3`.
    #[must_use]
    pub fn version(&self) -> &str {
        self.binaries.version()
    }

    /// Which Kubernetes.
    #[must_use]
    pub const fn release(&self) -> Release {
        self.options.release
    }

    /// The binaries it runs, for a kubelet or a second component.
    #[must_use]
    pub const fn binaries(&self) -> &Binaries {
        &self.binaries
    }

    /// Folder with one log per component, the audit log, and whatever a test wants to keep beside them.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// What was asked of the API server, by whom.
    #[must_use]
    pub fn audit(&self) -> AuditLog {
        AuditLog::new(self.audit_path(), self.admin())
    }

    fn audit_path(&self) -> PathBuf {
        self.folder.path().join("audit.log")
    }

    /// Ends everything now. Dropping the cluster does the same; this one reports what went wrong.
    ///
    /// # Errors
    /// When a component had died on its own before.
    pub fn stop(self) -> Result<()> {
        for process in self.lock().values_mut() {
            process.check()?;
        }
        Ok(())
    }

    /// Stops a component's clock, as a machine under heavy load or a network partition would; connections stay open.
    ///
    /// # Errors
    /// When it does not run.
    pub fn pause(&self, component: Component) -> Result<()> {
        self.running(&self.lock(), component)?.pause()
    }

    /// Undoes [`pause`](Self::pause).
    ///
    /// # Errors
    /// When it does not run.
    pub fn resume(&self, component: Component) -> Result<()> {
        self.running(&self.lock(), component)?.resume()
    }

    /// Ends a component without a warning.
    ///
    /// # Errors
    /// When it does not run.
    pub fn kill(&self, component: Component) -> Result<()> {
        let process = self.lock().remove(&component);
        process
            .map(drop)
            .with_context(|| format!("{} does not run", component.program()))
    }

    /// Ends a component as an administrator would and waits until it is gone. [`start_component`](Self::start_component)
    /// brings it back at the same address with the same data.
    ///
    /// # Errors
    /// When it does not run.
    pub async fn stop_component(&self, component: Component) -> Result<()> {
        let process = self.lock().remove(&component);
        let process = process.with_context(|| format!("{} does not run", component.program()))?;
        tokio::task::spawn_blocking(move || process.terminate(STOP_PATIENCE)).await?
    }

    /// Starts a component that does not run and waits until it is ready.
    ///
    /// # Errors
    /// When it runs already or does not become ready.
    pub async fn start_component(&self, component: Component) -> Result<()> {
        let program = self.binaries.path(component.program());
        let flags = self.flags(component)?;
        {
            let mut processes = self.lock();
            if processes.contains_key(&component) {
                bail!("{} runs already", component.program());
            }
            let process =
                Process::spawn(component.program(), &program, &flags, self.folder.path())?;
            processes.insert(component, process);
        }
        let deadline = Instant::now() + START_LIMIT;
        loop {
            let not_ready = match self.probe(component).await {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            self.give_up_if_hopeless(component, deadline, &not_ready)?;
            tokio::time::sleep(wait::INTERVAL).await;
        }
    }

    fn give_up_if_hopeless(
        &self,
        component: Component,
        deadline: Instant,
        not_ready: &anyhow::Error,
    ) -> Result<()> {
        let mut processes = self.lock();
        let process = processes
            .get_mut(&component)
            .with_context(|| format!("{} was stopped", component.program()))?;
        process.check()?;
        if Instant::now() > deadline {
            bail!(
                "{} was not ready within {START_LIMIT:?}: {not_ready:#}; its log in {} ends with\n{}",
                component.program(),
                self.folder.path().display(),
                process.tail()
            );
        }
        Ok(())
    }

    /// Ends the API server and starts it again: watches break, requests fail for a few seconds, data and address stay.
    ///
    /// # Errors
    /// As [`stop_component`](Self::stop_component) and [`start_component`](Self::start_component).
    pub async fn restart_apiserver(&self) -> Result<()> {
        self.stop_component(Component::ApiServer).await?;
        self.start_component(Component::ApiServer).await
    }

    /// Asks a component whether it is ready.
    async fn probe(&self, component: Component) -> Result<()> {
        let (url, path) = match component {
            Component::Etcd => (self.ports.etcd.url("http"), "/readyz"),
            Component::ApiServer => return get(&self.admin(), "/readyz").await,
            Component::ControllerManager => {
                (self.ports.controller_manager.url("https"), "/healthz")
            }
            Component::Scheduler => (self.ports.scheduler.url("https"), "/readyz"),
        };
        get(&self.client_at(&url, AuthInfo::default())?, path).await
    }

    /// Pods are refused in a namespace until the controller manager has made its default service account.
    async fn wait_for_service_accounts(&self) -> Result<()> {
        let accounts = Api::<ServiceAccount>::namespaced(self.admin(), "default");
        eventually("the default service account", START_LIMIT, async || {
            Ok(accounts.get_opt("default").await?)
        })
        .await?;
        Ok(())
    }

    fn running<'a>(
        &self,
        processes: &'a MutexGuard<'_, BTreeMap<Component, Process>>,
        component: Component,
    ) -> Result<&'a Process> {
        processes.get(&component).with_context(|| {
            format!(
                "{} does not run in {}",
                component.program(),
                self.folder.path().display()
            )
        })
    }

    /// No code panics while holding the lock, so a poisoned map is a whole one.
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Component, Process>> {
        self.processes
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for TestCluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestCluster")
            .field("version", &self.version())
            .field("folder", &self.folder.path())
            .finish_non_exhaustive()
    }
}

async fn get(client: &Client, path: &str) -> Result<()> {
    /// A listening process that does not answer is not ready.
    const PATIENCE: Duration = Duration::from_secs(5);
    let request = http::Request::get(path).body(Vec::new())?;
    let answer = tokio::time::timeout(PATIENCE, client.request_text(request)).await?;
    answer.map(drop).with_context(|| format!("GET {path}"))
}
