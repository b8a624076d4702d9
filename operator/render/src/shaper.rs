//! The DaemonSet that makes a cohort's layout: one pod on every node that the cohort may claim, or that is still its own.
//!
//! It runs before anybody owns the node, since what a board offers decides whether the layout can be wanted at all, and beside
//! the operand afterwards: after a reboot the operand waits for it. It holds no credential, has no network code, and acts only
//! under the interlock's lock.
//!
//! For NVIDIA it is privileged: to change a GPU's MIG geometry takes the driver's device nodes and CAP_SYS_ADMIN, and the driver
//! makes device nodes for new instances as it goes. For Neuron it is UID 0 without capabilities, and one directory of the host
//! can be written.

use freehold_api::plan::{CohortPlan, HostPath, Operand};
use freehold_core::names;
use freehold_core::vendor::Vendor;
use k8s_openapi::api::apps::v1::{
    DaemonSet, DaemonSetSpec, DaemonSetUpdateStrategy, RollingUpdateDaemonSet,
};
use k8s_openapi::api::core::v1::{
    Container, PodSpec, PodTemplateSpec, Toleration, Volume, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::interlock::{AGENT_BINARY, state_dir};
use crate::meta::{APP_COMPONENT, APP_NAME};
use crate::placement::{cohort_nodes, nodes_with_value, one_of};
use crate::pod::{self, HostPathType};
use crate::{SHAPER, Settings, meta, shaper_name};

/// Value of the label `app.kubernetes.io/name`.
const NAME: &str = "freehold-shaper";
/// Where host paths are mounted.
const HOST: &str = "/host";
/// Where the NVIDIA driver's files are mounted.
const DRIVER_ROOT: &str = "/driver-root";
/// Shapers that may be away at once while they are updated: they hold no state, and an order waits.
const MAX_UNAVAILABLE: &str = "10%";
/// Seconds to end in. A step that is under way is finished: on a full node that is some hundred instances destroyed or made, at
/// up to a second each (NVIDIA's own tools allow as much).
const GRACE_S: i64 = 120;

/// Renders a cohort's shaper, if the cohort wants a layout.
pub(crate) fn render(plan: &CohortPlan, settings: &Settings) -> Option<DaemonSet> {
    let cohort = &plan.cohort;
    cohort.layout.as_ref()?;
    let vendor = cohort.vendor;
    let identity = meta::map([
        (names::COMPONENT_LABEL, SHAPER),
        (names::VENDOR_LABEL, vendor.key()),
        (names::COHORT_LABEL, &cohort.name),
    ]);
    let mut labels = meta::map([
        (APP_NAME, NAME),
        (APP_COMPONENT, SHAPER),
        (names::MANAGED_BY_LABEL, names::MANAGED_BY),
    ]);
    labels.extend(identity.clone());
    let host = Sight::of(plan);
    let secrets = &settings.agent_image_pull_secrets;
    let template = PodTemplateSpec {
        metadata: Some(ObjectMeta {
            labels: Some(labels.clone()),
            ..ObjectMeta::default()
        }),
        spec: Some(PodSpec {
            automount_service_account_token: Some(false),
            enable_service_links: Some(false),
            priority_class_name: Some(pod::NODE_CRITICAL.into()),
            termination_grace_period_seconds: Some(GRACE_S),
            image_pull_secrets: (!secrets.is_empty()).then(|| pod::pull_secrets(secrets)),
            // NVML lists only processes that its caller's PID namespace shows, and an instance in use must be known for one
            // before anything is destroyed.
            host_pid: (vendor == Vendor::Nvidia).then_some(true),
            affinity: Some(one_of(vec![
                cohort_nodes(cohort),
                // A node that left the selector keeps its operand until it is drained, and with it the layout.
                nodes_with_value(names::cohort_label(vendor), &cohort.name),
            ])),
            // Where an operand tolerates a taint, the layout that it waits for must be made.
            tolerations: Some(vec![Toleration {
                operator: Some("Exists".into()),
                ..Toleration::default()
            }]),
            containers: vec![container(vendor, &host, settings)],
            volumes: Some(host.volumes),
            ..PodSpec::default()
        }),
    };
    let name = shaper_name(vendor, &cohort.name);
    Some(meta::seal(DaemonSet {
        metadata: meta::object(&name, Some(names::OPERAND_NAMESPACE), labels, settings),
        spec: Some(DaemonSetSpec {
            selector: LabelSelector {
                match_labels: Some(identity),
                match_expressions: None,
            },
            template,
            update_strategy: Some(DaemonSetUpdateStrategy {
                type_: Some("RollingUpdate".into()),
                rolling_update: Some(RollingUpdateDaemonSet {
                    max_unavailable: Some(IntOrString::String(MAX_UNAVAILABLE.into())),
                    max_surge: None,
                }),
            }),
            revision_history_limit: Some(1),
            min_ready_seconds: None,
        }),
        status: None,
    }))
}

fn container(vendor: Vendor, host: &Sight, settings: &Settings) -> Container {
    let mut command: Vec<String> = [
        AGENT_BINARY,
        "shaper",
        "--vendor",
        vendor.key(),
        "--state-dir",
        &state_dir(vendor),
        "--host-root",
        HOST,
    ]
    .into_iter()
    .map(Into::into)
    .collect();
    let (context, memory) = match vendor {
        Vendor::Nvidia => {
            command.extend(["--nvml".into(), DRIVER_ROOT.into()]);
            // The driver's library is loaded for a look and dropped again.
            (pod::privileged(), "256Mi")
        }
        Vendor::Neuron => (pod::bare_root(), "64Mi"),
    };
    Container {
        name: SHAPER.into(),
        image: Some(settings.agent_image.clone()),
        image_pull_policy: Some(pod::IF_NOT_PRESENT.into()),
        command: Some(command),
        resources: Some(pod::resources(
            &[("cpu", "1m"), ("memory", "16Mi")],
            &[("memory", memory)],
        )),
        security_context: Some(context),
        volume_mounts: Some(host.mounts.clone()),
        ..Container::default()
    }
}

/// What a shaper sees of the host.
#[derive(Default)]
struct Sight {
    volumes: Vec<Volume>,
    mounts: Vec<VolumeMount>,
}

impl Sight {
    fn of(plan: &CohortPlan) -> Self {
        let vendor = plan.cohort.vendor;
        let mut sight = Self::default();
        let state = state_dir(vendor);
        sight.add(
            "state",
            &state,
            HostPathType::DirectoryOrCreate,
            pod::mount("state", state.as_str()),
        );
        // The boot ID; the instances that there are; whose open files are devices.
        sight.add(
            "proc",
            "/proc",
            HostPathType::Directory,
            pod::read_only(pod::mount("proc", format!("{HOST}/proc"))),
        );
        match &plan.operand {
            Operand::NvidiaDevicePlugin(plugin) => sight.add_nvidia(&plugin.driver_root),
            Operand::NvidiaDra(dra) => sight.add_nvidia(&dra.driver_root),
            Operand::NeuronDevicePlugin | Operand::NeuronDra => sight.add_neuron(),
        }
        sight
    }

    fn add_nvidia(&mut self, driver_root: &HostPath) {
        // The driver's library opens its device nodes in one place, and nodes of new instances are made on the host, which is
        // seen in the other.
        self.add(
            "dev",
            "/dev",
            HostPathType::Directory,
            pod::mount("dev", "/dev"),
        );
        self.mounts.push(pod::mount("dev", format!("{HOST}/dev")));
        // A driver in a container is mounted there at any time, also after this pod has started.
        let kind = if driver_root.is_root() {
            HostPathType::Directory
        } else {
            HostPathType::DirectoryOrCreate
        };
        let mount = pod::from_host(pod::read_only(pod::mount("driver-root", DRIVER_ROOT)));
        self.add("driver-root", driver_root.as_str(), kind, mount);
    }

    fn add_neuron(&mut self) {
        self.add(
            "sys",
            "/sys",
            HostPathType::Directory,
            pod::read_only(pod::mount("sys", format!("{HOST}/sys"))),
        );
        self.add(
            "neuron",
            "/opt/aws/neuron",
            HostPathType::DirectoryOrCreate,
            pod::mount("neuron", format!("{HOST}/opt/aws/neuron")),
        );
    }

    fn add(&mut self, name: &str, path: &str, kind: HostPathType, mount: VolumeMount) {
        self.volumes.push(pod::host_path(name, path, kind));
        self.mounts.push(mount);
    }
}
