//! The parts of a control plane and how each is started.

use std::fs;

use anyhow::Result;
use serde_json::{Value, json};

use super::{TestCluster, options::AuditScope, pki::Certificate};

/// A process of the control plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Component {
    /// etcd.
    Etcd,
    /// kube-apiserver.
    ApiServer,
    /// kube-controller-manager.
    ControllerManager,
    /// kube-scheduler.
    Scheduler,
}

impl Component {
    /// Name of the program, and of its log.
    #[must_use]
    pub const fn program(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::ApiServer => "kube-apiserver",
            Self::ControllerManager => "kube-controller-manager",
            Self::Scheduler => "kube-scheduler",
        }
    }
}

/// Requests a second that the cluster's own controllers may send. Their defaults are meant for clusters where a minute more or
/// less does not matter.
const CONTROLLER_QPS: u32 = 1_000;

impl TestCluster {
    pub(super) fn flags(&self, component: Component) -> Result<Vec<String>> {
        let mut flags = match component {
            Component::Etcd => return Ok(self.etcd_flags()),
            Component::ApiServer => self.api_server_flags()?,
            Component::ControllerManager => self.controller_manager_flags()?,
            Component::Scheduler => self.scheduler_flags()?,
        };
        if !self.options.feature_gates.is_empty() {
            let gates: Vec<String> = self
                .options
                .feature_gates
                .iter()
                .map(|(gate, enabled)| format!("{gate}={enabled}"))
                .collect();
            flags.push(format!("--feature-gates={}", gates.join(",")));
        }
        Ok(flags)
    }

    fn etcd_flags(&self) -> Vec<String> {
        let client = self.ports.etcd.url("http");
        let peer = self.ports.etcd_peer.url("http");
        vec![
            format!("--data-dir={}", self.file("etcd")),
            format!("--listen-client-urls={client}"),
            format!("--advertise-client-urls={client}"),
            format!("--listen-peer-urls={peer}"),
            format!("--initial-advertise-peer-urls={peer}"),
            format!("--initial-cluster=default={peer}"),
            "--socket-reuse-port=true".into(),
            // The data lives as long as the test.
            "--unsafe-no-fsync=true".into(),
            "--quota-backend-bytes=8589934592".into(),
            "--log-level=warn".into(),
        ]
    }

    fn api_server_flags(&self) -> Result<Vec<String>> {
        fs::write(
            self.file("audit-policy.json"),
            audit_policy(self.options.audit).to_string(),
        )?;
        let serving = self.pki.server("kube-apiserver")?;
        let kubelet = self
            .pki
            .client("kube-apiserver-kubelet-client", Some("system:masters"))?;
        let mut flags = serve(&self.ports.api_server, &serving);
        flags.extend([
            format!("--etcd-servers={}", self.ports.etcd.url("http")),
            "--advertise-address=127.0.0.1".into(),
            // Endpoints must not be loopback addresses; nothing here looks for them.
            "--endpoint-reconciler-type=none".into(),
            format!("--client-ca-file={}", self.pki.authority().display()),
            format!(
                "--service-account-key-file={}",
                self.pki.token_public_key().display()
            ),
            format!(
                "--service-account-signing-key-file={}",
                self.pki.token_key().display()
            ),
            "--service-account-issuer=https://kubernetes.default.svc".into(),
            "--service-cluster-ip-range=10.0.0.0/24".into(),
            "--authorization-mode=Node,RBAC".into(),
            "--enable-admission-plugins=NodeRestriction".into(),
            "--allow-privileged=true".into(),
            format!(
                "--kubelet-client-certificate={}",
                kubelet.certificate.display()
            ),
            format!("--kubelet-client-key={}", kubelet.key.display()),
            "--kubelet-preferred-address-types=InternalIP".into(),
            format!("--audit-policy-file={}", self.file("audit-policy.json")),
            format!("--audit-log-path={}", self.audit_path().display()),
            "--audit-log-mode=blocking".into(),
            // In MiB: marks are offsets, so the file must not be turned over.
            "--audit-log-maxsize=1048576".into(),
        ]);
        flags.extend(self.options.api_server_flags.iter().cloned());
        Ok(flags)
    }

    fn controller_manager_flags(&self) -> Result<Vec<String>> {
        let serving = self.pki.server("kube-controller-manager")?;
        let kubeconfig = self.kubeconfig_for("system:kube-controller-manager", None)?;
        let mut flags = serve(&self.ports.controller_manager, &serving);
        flags.extend([
            format!("--kubeconfig={}", kubeconfig.display()),
            "--leader-elect=false".into(),
            "--use-service-account-credentials=true".into(),
            format!(
                "--service-account-private-key-file={}",
                self.pki.token_key().display()
            ),
            format!("--root-ca-file={}", self.pki.authority().display()),
            format!("--kube-api-qps={CONTROLLER_QPS}"),
            format!("--kube-api-burst={}", 2 * CONTROLLER_QPS),
        ]);
        if !self.options.node_lifecycle {
            flags.push(
                "--controllers=*,-node-lifecycle-controller,-taint-eviction-controller".into(),
            );
        }
        Ok(flags)
    }

    fn scheduler_flags(&self) -> Result<Vec<String>> {
        let serving = self.pki.server("kube-scheduler")?;
        let kubeconfig = self.kubeconfig_for("system:kube-scheduler", None)?;
        let config = json!({
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "leaderElection": {"leaderElect": false},
            "clientConnection": {"kubeconfig": kubeconfig, "qps": CONTROLLER_QPS, "burst": 2 * CONTROLLER_QPS},
        });
        fs::write(self.file("scheduler.json"), config.to_string())?;
        let mut flags = serve(&self.ports.scheduler, &serving);
        flags.push(format!("--config={}", self.file("scheduler.json")));
        Ok(flags)
    }

    fn file(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }
}

fn serve(port: &super::ports::Port, serving: &Certificate) -> Vec<String> {
    vec![
        format!("--secure-port={}", port.number()),
        "--bind-address=127.0.0.1".into(),
        "--permit-port-sharing=true".into(),
        format!("--tls-cert-file={}", serving.certificate.display()),
        format!("--tls-private-key-file={}", serving.key.display()),
    ]
}

fn audit_policy(scope: AuditScope) -> Value {
    let metadata = json!({"level": "Metadata"});
    let rules = match scope {
        AuditScope::Writes => {
            json!([{"level": "None", "verbs": ["get", "list", "watch"]}, metadata])
        }
        AuditScope::Everything => json!([metadata]),
    };
    json!({
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "omitManagedFields": true,
        "rules": rules,
    })
}
