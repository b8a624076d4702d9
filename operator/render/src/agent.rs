//! The DaemonSet of the node agents: one pod on every node that a cohort may claim or that something unfinished holds.
//!
//! Two containers, so that none holds both an API credential and a look into the host: `witness` reads the host as UID 0 without
//! capabilities and without a token; `report` talks to the API server as another user and sees nothing of the host. They meet
//! at a Unix socket in a shared directory in memory.
//!
//! **Kubelet roots.** Cohorts may name different kubelet root directories, but an agent starts before anybody knows which cohort
//! its node belongs to, and stays when the node has left every cohort. So there is one DaemonSet with every root mounted, and
//! the witness takes them all: it reads each, and counts a device in use when any record says so. A directory that is not the
//! kubelet's is made empty on that node and adds nothing. A stale one from an earlier installation may add a holder that is
//! none; that keeps the node waiting with a reason, and never frees it too early. Roots of cohorts that are gone from the plan
//! stay mounted while their operands are there, see [`crate::Settings::kubelet_roots`].

use std::collections::BTreeSet;

use freehold_api::plan::CohortPlan;
use freehold_core::names;
use freehold_core::vendor::Vendor;
use k8s_openapi::api::apps::v1::{
    DaemonSet, DaemonSetSpec, DaemonSetUpdateStrategy, RollingUpdateDaemonSet,
};
use k8s_openapi::api::core::v1::{
    Affinity, Container, PodSecurityContext, PodSpec, PodTemplateSpec, Toleration, Volume,
    VolumeMount,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::interlock::AGENT_BINARY;
use crate::meta::{APP_COMPONENT, APP_NAME};
use crate::placement::{cohort_nodes, nodes_with, one_of};
use crate::pod::{self, HostPathType};
use crate::{AGENT_NAME, Settings, meta};

/// Value of the component label on the agents' pods.
const COMPONENT: &str = "agent";
/// Where host paths are mounted in the witness.
const HOST: &str = "/host";
/// The kubelet's usual root directory. The device-plugin directory is below it whatever the root is.
const KUBELET_ROOT: &str = "/var/lib/kubelet";
/// Directory of the socket between the two containers.
const SOCKET_DIR: &str = "/run/freehold";
/// The socket.
const SOCKET: &str = "/run/freehold/witness.sock";
/// Agents that may be away at once while they are updated. They hold no state, and an order waits for its agent.
const MAX_UNAVAILABLE: &str = "10%";
/// Seconds to end in: there is nothing to finish.
const GRACE_S: i64 = 10;

/// Renders the agents.
pub(crate) fn render(cohorts: &[CohortPlan], settings: &Settings) -> DaemonSet {
    let labels = meta::map([
        (names::COMPONENT_LABEL, COMPONENT),
        (APP_NAME, AGENT_NAME),
        (APP_COMPONENT, COMPONENT),
        (names::MANAGED_BY_LABEL, names::MANAGED_BY),
    ]);
    let host_paths = HostPaths::of(cohorts, settings);
    let mut volumes: Vec<Volume> = host_paths.0.iter().map(HostPath::volume).collect();
    volumes.extend([pod::memory_dir("socket"), pod::token_volume()]);
    let secrets = &settings.agent_image_pull_secrets;
    let template = PodTemplateSpec {
        metadata: Some(ObjectMeta {
            labels: Some(labels.clone()),
            ..ObjectMeta::default()
        }),
        spec: Some(PodSpec {
            service_account_name: Some(names::AGENT_SERVICE_ACCOUNT.into()),
            automount_service_account_token: Some(false),
            enable_service_links: Some(false),
            priority_class_name: Some(pod::NODE_CRITICAL.into()),
            termination_grace_period_seconds: Some(GRACE_S),
            image_pull_secrets: (!secrets.is_empty()).then(|| pod::pull_secrets(secrets)),
            affinity: Some(affinity(cohorts)),
            // Whatever the node's trouble is, its agent must be there to say what holds the devices.
            tolerations: Some(vec![Toleration {
                operator: Some("Exists".into()),
                ..Toleration::default()
            }]),
            // The socket's directory belongs to this group, so that both users reach it.
            security_context: Some(PodSecurityContext {
                fs_group: Some(pod::NON_ROOT),
                ..PodSecurityContext::default()
            }),
            containers: vec![witness(&host_paths, settings), report(settings)],
            volumes: Some(volumes),
            ..PodSpec::default()
        }),
    };
    let rolling_update = RollingUpdateDaemonSet {
        max_unavailable: Some(IntOrString::String(MAX_UNAVAILABLE.into())),
        max_surge: None,
    };
    meta::seal(DaemonSet {
        metadata: meta::object(AGENT_NAME, Some(names::OPERAND_NAMESPACE), labels, settings),
        spec: Some(DaemonSetSpec {
            selector: LabelSelector {
                match_labels: Some(meta::map([(names::COMPONENT_LABEL, COMPONENT)])),
                match_expressions: None,
            },
            template,
            update_strategy: Some(DaemonSetUpdateStrategy {
                type_: Some("RollingUpdate".into()),
                rolling_update: Some(rolling_update),
            }),
            revision_history_limit: Some(1),
            min_ready_seconds: None,
        }),
        status: None,
    })
}

fn witness(host_paths: &HostPaths, settings: &Settings) -> Container {
    let mut command: Vec<String> = [AGENT_BINARY, "witness", "--host-root", HOST]
        .into_iter()
        .map(Into::into)
        .collect();
    for root in host_paths
        .0
        .iter()
        .filter(|path| path.kind == Kind::KubeletRoot)
    {
        command.extend(["--kubelet-root".into(), root.path.clone()]);
    }
    command.extend(["--socket".into(), SOCKET.into()]);
    let mut mounts: Vec<VolumeMount> = host_paths.0.iter().map(HostPath::mount).collect();
    mounts.push(pod::mount("socket", SOCKET_DIR));
    Container {
        name: "witness".into(),
        image: Some(settings.agent_image.clone()),
        image_pull_policy: Some(pod::IF_NOT_PRESENT.into()),
        command: Some(command),
        resources: Some(pod::resources(
            &[("cpu", "5m"), ("memory", "16Mi")],
            &[("memory", "64Mi")],
        )),
        security_context: Some(pod::bare_root()),
        volume_mounts: Some(mounts),
        ..Container::default()
    }
}

fn report(settings: &Settings) -> Container {
    let command = [
        AGENT_BINARY,
        "report",
        "--node-name",
        "$(NODE_NAME)",
        "--socket",
        SOCKET,
    ];
    Container {
        name: "report".into(),
        image: Some(settings.agent_image.clone()),
        image_pull_policy: Some(pod::IF_NOT_PRESENT.into()),
        command: Some(command.into_iter().map(Into::into).collect()),
        env: Some(vec![pod::env_field("NODE_NAME", "spec.nodeName")]),
        resources: Some(pod::resources(
            &[("cpu", "5m"), ("memory", "16Mi")],
            &[("memory", "64Mi")],
        )),
        security_context: Some(pod::bare_user()),
        volume_mounts: Some(vec![
            pod::read_only(pod::mount("socket", SOCKET_DIR)),
            pod::token_mount(),
        ]),
        ..Container::default()
    }
}

/// Required: any cohort's nodes that no provider keeps for itself, and every node that something of ours still holds. No label
/// of ours has to be written before an agent can look.
fn affinity(cohorts: &[CohortPlan]) -> Affinity {
    let selected = cohorts.iter().map(|plan| cohort_nodes(&plan.cohort));
    let held = Vendor::ALL
        .map(names::owner_label)
        .into_iter()
        .chain([names::agent_label()])
        .map(nodes_with);
    one_of(selected.chain(held).collect())
}

/// How the witness sees a path of the host.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Read-only.
    Fixed,
    /// Read-only, and made where it is absent.
    Made,
    /// A kubelet's root: as `Made`, and mounts under it come and go with the host's. Pods' volumes are mounted below; without
    /// it this container would keep each of them mounted for ever.
    KubeletRoot,
    /// Our own directory: the only one that can be written.
    Own,
}

/// One path of the host, seen at the same path below [`HOST`].
struct HostPath {
    name: String,
    path: String,
    kind: Kind,
}

impl HostPath {
    fn new(name: &str, path: &str, kind: Kind) -> Self {
        Self {
            name: name.into(),
            path: path.into(),
            kind,
        }
    }

    fn volume(&self) -> Volume {
        let type_ = match self.kind {
            Kind::Fixed => HostPathType::Directory,
            Kind::Made | Kind::KubeletRoot | Kind::Own => HostPathType::DirectoryOrCreate,
        };
        pod::host_path(&self.name, self.path.as_str(), type_)
    }

    fn mount(&self) -> VolumeMount {
        let mount = pod::mount(&self.name, format!("{HOST}{}", self.path));
        match self.kind {
            Kind::Fixed | Kind::Made => pod::read_only(mount),
            Kind::KubeletRoot => pod::from_host(pod::read_only(mount)),
            Kind::Own => mount,
        }
    }
}

/// Everything of the host that the witness sees.
struct HostPaths(Vec<HostPath>);

impl HostPaths {
    fn of(cohorts: &[CohortPlan], settings: &Settings) -> Self {
        let mut roots: BTreeSet<&str> = cohorts
            .iter()
            .map(|plan| plan.kubelet_root.as_str())
            .collect();
        roots.extend(settings.kubelet_roots.iter().map(String::as_str));
        if roots.is_empty() {
            roots.insert(KUBELET_ROOT);
        }
        let mut paths = vec![
            HostPath::new("proc", "/proc", Kind::Fixed),
            HostPath::new("sys", "/sys", Kind::Fixed),
            HostPath::new("dev", "/dev", Kind::Fixed),
            HostPath::new("cdi", "/var/run/cdi", Kind::Made),
        ];
        // Holds the Logical NeuronCore setting. On other nodes the directory means nothing, and some cannot have it made.
        if cohorts
            .iter()
            .any(|plan| plan.cohort.vendor == Vendor::Neuron)
        {
            paths.push(HostPath::new("neuron", "/opt/aws/neuron", Kind::Made));
        }
        // The kubelet fixes this directory; it needs a mount of its own only where no mounted root holds it.
        if !roots.contains(KUBELET_ROOT) {
            paths.push(HostPath::new(
                "device-plugins",
                "/var/lib/kubelet/device-plugins",
                Kind::Made,
            ));
        }
        // Named by position: a path has no form that every volume name could hold.
        paths.extend(roots.into_iter().enumerate().map(|(index, root)| {
            HostPath::new(&format!("kubelet-{index}"), root, Kind::KubeletRoot)
        }));
        paths.push(HostPath::new("state", names::HOST_STATE_DIR, Kind::Own));
        Self(paths)
    }
}
