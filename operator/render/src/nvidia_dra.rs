//! NVIDIA DRA driver 0.5.0, the kubelet plugin for GPUs, after the chart of the same version.
//!
//! Left out on purpose: ComputeDomains (container, controller, classes), the admission webhook, the chart's NetworkPolicy and its
//! affinity on feature-discovery labels (the controller grants its labels only to nodes on which the agent has seen devices).
//! Variables that the chart knows and that are not set here:
//! - `NVIDIA_CDI_HOOK_PATH`: empty means the hook in the image, the chart's default.
//! - `ALT_PROC_DEVICES_PATH`: for mocked drivers only. `MASK_NVIDIA_DRIVER_PARAMS`: for several plugins on one host, where it keeps
//!   a plugin from making device nodes that are not its own; off in the chart.
//! - `CONSUMABLE_SHARES`: no field asks for it; the gate alone leaves the driver's default.
//! - `IMEX_*`, `GPU_CLIQUE_LABEL_ENABLED`: of ComputeDomains.

use std::collections::BTreeMap;

use freehold_api::plan::{CohortPlan, HostPath, NvidiaDra};
use k8s_openapi::api::core::v1::{Container, EnvVar, GRPCAction, Probe, Volume, VolumeMount};

use crate::operand::{self, Parts};
use crate::pod::{self, HostPathType};

/// Port of the driver's health service (chart, `healthcheckPort` of `gpus`).
const HEALTH_PORT: i32 = 51516;
/// Verbosity of the driver's log (chart, `logVerbosity`).
const LOG_VERBOSITY: &str = "4";

/// The pod's own parts.
pub(crate) fn parts(plan: &CohortPlan, dra: &NvidiaDra) -> Parts {
    let passthrough = dra
        .feature_gates
        .get("PassthroughSupport")
        .copied()
        .unwrap_or_default();
    let image = operand::image(plan);
    let container = Container {
        name: "gpus".into(),
        image: Some(image.clone()),
        image_pull_policy: Some(pod::IF_NOT_PRESENT.into()),
        // The chart wraps this in a shell for the sake of MASK_NVIDIA_DRIVER_PARAMS.
        command: Some(vec![
            "gpu-kubelet-plugin".into(),
            "-v".into(),
            "$(LOG_VERBOSITY)".into(),
        ]),
        env: Some(env(plan, dra, &image, passthrough)),
        // The chart sets none; these are values in use for nodes with eight GPUs.
        resources: Some(operand::main_resources(
            plan,
            &[("cpu", "50m"), ("memory", "128Mi")],
            &[("cpu", "1"), ("memory", "512Mi")],
        )),
        security_context: Some(pod::privileged()),
        startup_probe: Some(probe(1, 600)),
        liveness_probe: Some(probe(30, 3)),
        volume_mounts: Some(mounts(&plan.kubelet_root, passthrough)),
        ..Container::default()
    };
    Parts {
        name: "nvidia-dra-driver",
        component: "dra-driver",
        init_containers: vec![wait_for_driver(plan, dra, image)],
        containers: vec![container],
        volumes: volumes(plan, dra, passthrough),
        // The driver injects devices through CDI and needs no runtime of NVIDIA's.
        runtime_class: None,
        host_network: false,
        host_pid: false,
        annotations: BTreeMap::new(),
    }
}

fn registrar_dir(kubelet_root: &HostPath) -> String {
    kubelet_root.join("plugins_registry")
}

fn plugins_dir(kubelet_root: &HostPath) -> String {
    kubelet_root.join("plugins")
}

/// Loops until `nvidia-smi --version` succeeds below the driver root (the image's own script).
fn wait_for_driver(plan: &CohortPlan, dra: &NvidiaDra, image: String) -> Container {
    let parent = pod::mount("driver-root-parent", "/driver-root-parent");
    Container {
        name: "init-container".into(),
        image: Some(image),
        image_pull_policy: Some(pod::IF_NOT_PRESENT.into()),
        command: Some(vec![
            "bash".into(),
            "/usr/bin/kubelet-plugin-prestart.sh".into(),
        ]),
        env: Some(vec![
            pod::env("NVIDIA_DRIVER_ROOT", dra.driver_root.as_str()),
            // Else a default NVIDIA runtime would inject everything.
            pod::env("NVIDIA_VISIBLE_DEVICES", "void"),
            pod::env(
                "KUBELET_REGISTRAR_DIRECTORY_PATH",
                registrar_dir(&plan.kubelet_root),
            ),
            pod::env(
                "KUBELET_PLUGINS_DIRECTORY_PATH",
                plugins_dir(&plan.kubelet_root),
            ),
        ]),
        resources: Some(pod::resources(
            &[("cpu", "10m"), ("memory", "32Mi")],
            &[("memory", "256Mi")],
        )),
        security_context: Some(pod::privileged()),
        // A containerised driver is mounted onto the host by another pod, at any time. With `/` the chart mounts without
        // propagation and read-only; the container may wait here for long, and must not pin the host's mounts meanwhile.
        volume_mounts: Some(vec![pod::from_host(if dra.driver_root.is_root() {
            pod::read_only(parent)
        } else {
            parent
        })]),
        ..Container::default()
    }
}

/// The driver makes a no-op prepare through its own sockets when asked.
fn probe(period_s: i32, failures: i32) -> Probe {
    Probe {
        grpc: Some(GRPCAction {
            port: HEALTH_PORT,
            service: Some("liveness".into()),
        }),
        period_seconds: Some(period_s),
        failure_threshold: Some(failures),
        timeout_seconds: Some(10),
        ..Probe::default()
    }
}

fn env(plan: &CohortPlan, dra: &NvidiaDra, image: &str, passthrough: bool) -> Vec<EnvVar> {
    let mut env = vec![
        pod::env("HTTP_ENDPOINT", ":8080"),
        pod::env("METRICS_PATH", "/metrics"),
        pod::env("LOG_VERBOSITY", LOG_VERBOSITY),
        pod::env("NVIDIA_DRIVER_ROOT", dra.driver_root.as_str()),
        pod::env("NVIDIA_VISIBLE_DEVICES", "void"),
        pod::env("CDI_ROOT", "/var/run/cdi"),
    ];
    if passthrough {
        env.push(pod::env("HOST_ROOT", "/host-root"));
    }
    env.extend([
        pod::env("NVIDIA_MIG_CONFIG_DEVICES", "all"),
        pod::env_field("NODE_NAME", "spec.nodeName"),
        pod::env_field("NAMESPACE", "metadata.namespace"),
        pod::env_field("SERVICE_ACCOUNT_NAME", "spec.serviceAccountName"),
        // These three are for the MPS daemons that the driver starts, one for each claim, with the gate MPSSupport. The
        // driver refuses to start without the first.
        pod::env("IMAGE_NAME", image),
    ]);
    if !plan.image_pull_secrets.is_empty() {
        env.push(pod::env(
            "IMAGE_PULL_SECRETS",
            plan.image_pull_secrets.join(","),
        ));
    }
    env.push(pod::env("IMAGE_PULL_POLICY", pod::IF_NOT_PRESENT));
    if !dra.feature_gates.is_empty() {
        // Sorted, being a BTreeMap.
        let gates: Vec<String> = dra
            .feature_gates
            .iter()
            .map(|(gate, on)| format!("{gate}={on}"))
            .collect();
        env.push(pod::env("FEATURE_GATES", gates.join(",")));
    }
    env.extend([
        pod::env(
            "KUBELET_REGISTRAR_DIRECTORY_PATH",
            registrar_dir(&plan.kubelet_root),
        ),
        pod::env(
            "KUBELET_PLUGINS_DIRECTORY_PATH",
            plugins_dir(&plan.kubelet_root),
        ),
        pod::env("HEALTHCHECK_PORT", HEALTH_PORT.to_string()),
    ]);
    env
}

fn mounts(kubelet_root: &HostPath, passthrough: bool) -> Vec<VolumeMount> {
    let mut mounts = vec![
        pod::mount("plugins-registry", registrar_dir(kubelet_root)),
        pod::both_ways(pod::mount("plugins", plugins_dir(kubelet_root))),
        pod::mount("cdi", "/var/run/cdi"),
        pod::from_host(pod::mount("driver-root", "/driver-root")),
        pod::token_mount(),
    ];
    if passthrough {
        mounts.extend([
            pod::from_host(pod::read_only(pod::mount("host-root", "/host-root"))),
            pod::from_host(pod::read_only(pod::mount("lib-modules", "/lib/modules"))),
            pod::both_ways(pod::mount("sysfs", "/sys")),
            pod::both_ways(pod::mount("procfs", "/proc")),
        ]);
    }
    mounts
}

fn volumes(plan: &CohortPlan, dra: &NvidiaDra, passthrough: bool) -> Vec<Volume> {
    let mut volumes = vec![
        // The kubelet makes both of its directories before it starts any pod; CDI's may be absent.
        pod::host_path(
            "plugins-registry",
            registrar_dir(&plan.kubelet_root),
            HostPathType::Any,
        ),
        pod::host_path(
            "plugins",
            plugins_dir(&plan.kubelet_root),
            HostPathType::Any,
        ),
        pod::host_path("cdi", "/var/run/cdi", HostPathType::DirectoryOrCreate),
        pod::host_path(
            "driver-root-parent",
            dra.driver_root.parent().as_str(),
            HostPathType::DirectoryOrCreate,
        ),
        pod::host_path(
            "driver-root",
            dra.driver_root.as_str(),
            HostPathType::DirectoryOrCreate,
        ),
        pod::token_volume(),
    ];
    if passthrough {
        volumes.extend([
            pod::host_path("host-root", "/", HostPathType::Directory),
            pod::host_path("lib-modules", "/lib/modules", HostPathType::Directory),
            pod::host_path("sysfs", "/sys", HostPathType::Directory),
            pod::host_path("procfs", "/proc", HostPathType::Directory),
        ]);
    }
    volumes
}
