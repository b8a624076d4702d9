//! Neuron device plugin 2.32.0.0 and Neuron DRA driver 1.2.0, after AWS's chart 1.10.0.
//!
//! The chart's node affinity (a closed list of instance types, and `eks.amazonaws.com/compute-type` NotIn fargate, hybrid, auto)
//! is left out: the controller grants its labels only to nodes on which the agent has seen the devices and that the catalogue
//! does not exclude. The chart's `maxSurge: 1` is left out with its RollingUpdate: two drivers at a time on a node is what the
//! interlock forbids.

use std::collections::BTreeMap;

use freehold_api::plan::CohortPlan;
use k8s_openapi::api::core::v1::{Capabilities, Container, GRPCAction, Probe, SecurityContext};

use crate::operand::{self, Parts};
use crate::pod::{self, HostPathType};

/// Where the kubelet looks for plugins, whatever its root directory is.
const DEVICE_PLUGINS: &str = "/var/lib/kubelet/device-plugins";
/// Port of the DRA driver's health service (chart, `HEALTHCHECK_PORT`).
const HEALTH_PORT: i32 = 51515;

/// The device plugin's own parts.
pub(crate) fn device_plugin(plan: &CohortPlan) -> Parts {
    let container = Container {
        name: "neuron-device-plugin".into(),
        image: Some(operand::image(plan)),
        image_pull_policy: Some(pod::IF_NOT_PRESENT.into()),
        env: Some(vec![
            // The chart's value. Nothing is at that path in the container, and the plugin falls back to its service account
            // (aws-neuron-sdk issue 312 shows the message).
            pod::env("KUBECONFIG", "/etc/kubernetes/kubelet.conf"),
            pod::env_field("NODE_NAME", "spec.nodeName"),
        ]),
        // The chart sets none. Requests keep the pod from being the first to be killed.
        resources: Some(operand::main_resources(
            plan,
            &[("cpu", "10m"), ("memory", "64Mi")],
            &[],
        )),
        security_context: Some(SecurityContext {
            allow_privilege_escalation: Some(false),
            capabilities: Some(Capabilities {
                drop: Some(vec!["ALL".into()]),
                add: None,
            }),
            ..SecurityContext::default()
        }),
        volume_mounts: Some(vec![
            pod::mount("device-plugin", DEVICE_PLUGINS),
            // The chart's "infa-map": the plugin writes its map of devices for the runtime there.
            pod::mount("run", "/run"),
            // Holds the Logical NeuronCore setting, which decides how many cores are advertised.
            pod::read_only(pod::mount("aws-config", "/opt/aws")),
            pod::token_mount(),
        ]),
        ..Container::default()
    };
    Parts {
        name: "neuron-device-plugin",
        component: "device-plugin",
        init_containers: Vec::new(),
        containers: vec![container],
        volumes: vec![
            pod::host_path("device-plugin", DEVICE_PLUGINS, HostPathType::Any),
            pod::host_path("run", "/run", HostPathType::Any),
            pod::host_path("aws-config", "/opt/aws", HostPathType::Any),
            pod::token_volume(),
        ],
        runtime_class: None,
        host_network: false,
        host_pid: false,
        annotations: BTreeMap::new(),
    }
}

/// The DRA driver's own parts.
pub(crate) fn dra(plan: &CohortPlan) -> Parts {
    let registrar = plan.kubelet_root.join("plugins_registry");
    let plugins = plan.kubelet_root.join("plugins");
    let container = Container {
        name: "neuron-dra-driver".into(),
        image: Some(operand::image(plan)),
        image_pull_policy: Some(pod::IF_NOT_PRESENT.into()),
        command: Some(vec!["k8s-neuron-dra-driver".into()]),
        env: Some(vec![
            pod::env_field("NODE_NAME", "spec.nodeName"),
            pod::env_field("POD_UID", "metadata.uid"),
            pod::env("CDI_ROOT", "/var/run/cdi"),
            pod::env("KUBELET_REGISTRAR_DIRECTORY_PATH", registrar.clone()),
            pod::env("KUBELET_PLUGINS_DIRECTORY_PATH", plugins.clone()),
            pod::env("HEALTHCHECK_PORT", HEALTH_PORT.to_string()),
        ]),
        // No security context: the chart's default is empty, and the driver finds devices in the container's own view of sysfs.
        resources: Some(operand::main_resources(
            plan,
            &[("cpu", "10m"), ("memory", "128Mi")],
            &[("cpu", "20m"), ("memory", "256Mi")],
        )),
        liveness_probe: Some(Probe {
            grpc: Some(GRPCAction {
                port: HEALTH_PORT,
                service: Some("liveness".into()),
            }),
            initial_delay_seconds: Some(30),
            period_seconds: Some(10),
            timeout_seconds: Some(5),
            failure_threshold: Some(3),
            ..Probe::default()
        }),
        volume_mounts: Some(vec![
            pod::mount("plugins", plugins.clone()),
            pod::mount("plugins-registry", registrar.clone()),
            pod::mount("cdi", "/var/run/cdi"),
            pod::token_mount(),
        ]),
        ..Container::default()
    };
    Parts {
        name: "neuron-dra-driver",
        component: "dra-driver",
        init_containers: Vec::new(),
        containers: vec![container],
        volumes: vec![
            pod::host_path("plugins", plugins, HostPathType::Any),
            pod::host_path("plugins-registry", registrar, HostPathType::Any),
            pod::host_path("cdi", "/var/run/cdi", HostPathType::DirectoryOrCreate),
            pod::token_volume(),
        ],
        runtime_class: None,
        // The chart's: the driver asks the instance metadata service, which answers one network hop away only.
        host_network: true,
        host_pid: false,
        annotations: BTreeMap::new(),
    }
}
