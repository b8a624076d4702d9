//! What a test may choose.

use anyhow::Result;

use super::release::Release;

/// How a test cluster is put together. The default suits tests of the controller with simulated nodes.
#[derive(Clone, Debug)]
pub struct Options {
    /// Name of its folder, to tell clusters apart by.
    pub name: String,
    /// Which Kubernetes.
    pub release: Release,
    /// Runs the controller manager. Without it there are no DaemonSet pods, no garbage collection and no service accounts made
    /// by themselves.
    pub controller_manager: bool,
    /// Runs the scheduler.
    pub scheduler: bool,
    /// Lets the controller manager judge nodes by their Leases: a node whose Lease nobody renews becomes unreachable after
    /// 50 s and its pods are evicted. Off, a node stays as its status says; but the taint `node.kubernetes.io/not-ready` that
    /// the API server puts on every new node is then removed by nobody, except by whoever made the node.
    pub node_lifecycle: bool,
    /// What the audit log records.
    pub audit: AuditScope,
    /// Feature gates of every component, e.g. `("DRAExtendedResource", true)`.
    pub feature_gates: Vec<(String, bool)>,
    /// Further flags of the API server, e.g. `--runtime-config=resource.k8s.io/v1beta2=true`.
    pub api_server_flags: Vec<String>,
}

/// What the audit log records, with user and verb, never with bodies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuditScope {
    /// Every request that is not get, list or watch.
    Writes,
    /// Every request.
    Everything,
}

impl Options {
    /// The default, with a name of its own.
    ///
    /// # Errors
    /// When the environment names a release that cannot be built.
    pub fn named(name: &str) -> Result<Self> {
        Ok(Self {
            name: name.into(),
            release: Release::from_env()?,
            controller_manager: true,
            scheduler: true,
            node_lifecycle: false,
            audit: AuditScope::Writes,
            feature_gates: Vec::new(),
            api_server_flags: Vec::new(),
        })
    }

    /// An API server alone, for tests of admission and schemas: up in about half the time.
    #[must_use]
    pub fn api_server_only(self) -> Self {
        Self {
            controller_manager: false,
            scheduler: false,
            ..self
        }
    }
}
