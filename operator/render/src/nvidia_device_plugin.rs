//! NVIDIA device plugin 0.20.0, after the chart of the same version.
//!
//! Variables that the chart knows and that are not set here, each on purpose:
//! - `NVIDIA_DEV_ROOT`, `NVIDIA_CDI_HOOK_PATH`, `CDI_FEATURE_FLAGS`, `DEVICE_DISCOVERY_STRATEGY`: the plugin's defaults fit a
//!   driver in `driverRoot`, and the chart leaves them unset as well.
//! - `GDRCOPY_ENABLED`, `GDS_ENABLED`, `MOFED_ENABLED`: unset by default in the chart; no field asks for them.
//! - everything of `config-manager` (`NODE_LABEL`, `DEFAULT_CONFIG`, …): that sidecar picks a file by a node label, at once and
//!   without a drain. Here the file is known when the pod is made, so there is nothing to pick.
//! - `MPS_ROOT`: only with MPS, the only thing that reads it. A user's file with `sharing.mps` then makes the plugin exit with a
//!   message, where it would otherwise wait for ever for a daemon that nobody runs.
//!
//! The chart's affinity on feature-discovery labels is left out: the controller grants its labels only to nodes on which the
//! agent has seen the devices.

use std::collections::BTreeMap;

use freehold_api::plan::{CohortPlan, NvidiaDevicePlugin, PluginConfig};
use freehold_api::{DeviceIdStrategy, DeviceListStrategy};
use freehold_core::intent::MigStrategy;
use k8s_openapi::api::core::v1::{
    Capabilities, Container, EnvVar, SecurityContext, Volume, VolumeMount,
};
use serde::Serialize;

use crate::operand::{self, Parts};
use crate::pod::{self, HostPathType};

/// Annotation with the plugin's configuration file.
///
/// The file reaches the plugin as an annotation of its own pod, not through a ConfigMap: the plugin reads the file again
/// whenever the kubelet restarts, so a ConfigMap edited in place would change what is advertised under running consumers.
/// Annotations of a running pod stay as they were, and a new file comes with a new pod, after the drain that its shape asks for.
pub(crate) const CONFIG_ANNOTATION: &str = "freehold.dev/device-plugin-config";

/// Where the kubelet looks for plugins, whatever its root directory is (measured on 1.36).
const DEVICE_PLUGINS: &str = "/var/lib/kubelet/device-plugins";
/// Directory of the configuration file in the container.
const CONFIG_DIR: &str = "/config";
/// Its name there.
const CONFIG_FILE: &str = "config.yaml";
/// The daemon's directory on the host (the chart's `mps.root`).
const MPS_ROOT: &str = "/run/nvidia/mps";

/// The pod's own parts; `config` is the content of the configuration file.
pub(crate) fn parts(
    plan: &CohortPlan,
    plugin: &NvidiaDevicePlugin,
    config: Option<String>,
) -> Parts {
    let mps = matches!(plugin.config, PluginConfig::Mps { .. });
    let mut volumes = vec![
        pod::host_path(
            "kubelet-device-plugins",
            DEVICE_PLUGINS,
            HostPathType::Directory,
        ),
        pod::host_path("cdi", "/var/run/cdi", HostPathType::DirectoryOrCreate),
    ];
    let mut mounts = vec![
        pod::mount("kubelet-device-plugins", DEVICE_PLUGINS),
        pod::mount("cdi", "/var/run/cdi"),
    ];
    if needs_driver_root(plugin) {
        volumes.push(pod::host_path(
            "driver-root",
            plugin.driver_root.as_str(),
            HostPathType::Directory,
        ));
        // The chart mounts it without propagation. A driver in a container is mounted there after this pod starts, and with
        // driverRoot / every mount of the host would be pinned.
        mounts.push(pod::from_host(pod::read_only(pod::mount(
            "driver-root",
            "/driver-root",
        ))));
    }
    let mut annotations = BTreeMap::new();
    if let Some(config) = config {
        volumes.push(pod::annotation_file(
            "config",
            CONFIG_ANNOTATION,
            CONFIG_FILE,
        ));
        mounts.push(config_mount());
        annotations.insert(CONFIG_ANNOTATION.into(), config);
    }
    let mut init_containers = Vec::new();
    let mut mps_daemon = None;
    if mps {
        volumes.extend(mps_volumes());
        // The plugin checks the daemon's health through both.
        mounts.extend(mps_mounts());
        init_containers.push(mps_mount_shm(plan));
        mps_daemon = Some(mps_control_daemon(plan, plugin));
    }
    let container = Container {
        name: "nvidia-device-plugin".into(),
        image: Some(operand::image(plan)),
        image_pull_policy: Some(pod::IF_NOT_PRESENT.into()),
        command: Some(vec!["nvidia-device-plugin".into()]),
        env: Some(env(plugin)),
        // The chart sets none; these are values in use (50m/64Mi, 500m/256Mi) for nodes with eight GPUs.
        resources: Some(operand::main_resources(
            plan,
            &[("cpu", "50m"), ("memory", "64Mi")],
            &[("cpu", "500m"), ("memory", "256Mi")],
        )),
        security_context: Some(security_context(plugin)),
        volume_mounts: Some(mounts),
        ..Container::default()
    };
    Parts {
        name: "nvidia-device-plugin",
        component: "device-plugin",
        init_containers,
        containers: std::iter::once(container).chain(mps_daemon).collect(),
        volumes,
        runtime_class: plugin.runtime_class.clone(),
        host_network: false,
        // The daemon tells its clients apart by process ID (the chart's mps.enableHostPID).
        host_pid: mps,
        annotations,
    }
}

/// Whether the plugin needs the host's driver files: always for a driver outside of `/`, and for one in `/` when no
/// RuntimeClass makes the NVIDIA runtime inject the library.
fn needs_driver_root(plugin: &NvidiaDevicePlugin) -> bool {
    !plugin.driver_root.is_root() || plugin.runtime_class.is_none()
}

/// Variables win over the configuration file (plugin 0.20.0). A file that we render holds sharing alone, so all of them are
/// set. A user's file may hold flags, and a variable set to its mere default would silently defeat those: there only what
/// differs from the default is set, as an override that the user wrote down.
fn env(plugin: &NvidiaDevicePlugin) -> Vec<EnvVar> {
    let user_file = match plugin.config {
        PluginConfig::User { .. } => true,
        PluginConfig::None | PluginConfig::TimeSlicing { .. } | PluginConfig::Mps { .. } => false,
    };
    let unless_default = |is_default: bool, name: &str, value: String| {
        (!user_file || !is_default).then(|| pod::env(name, value))
    };
    let strategies: Vec<&str> = plugin
        .device_list_strategy
        .iter()
        .map(|strategy| device_list_strategy(*strategy))
        .collect();
    let id_strategy = match plugin.device_id_strategy {
        DeviceIdStrategy::Uuid => "uuid",
        DeviceIdStrategy::Index => "index",
    };
    let mig = plugin.mig_strategy;
    let mut env: Vec<EnvVar> = [
        unless_default(
            mig == MigStrategy::None,
            "MIG_STRATEGY",
            mig_strategy(mig).into(),
        ),
        unless_default(
            plugin.fail_on_init_error,
            "FAIL_ON_INIT_ERROR",
            plugin.fail_on_init_error.to_string(),
        ),
        unless_default(
            !plugin.compat_with_cpu_manager,
            "PASS_DEVICE_SPECS",
            plugin.compat_with_cpu_manager.to_string(),
        ),
        unless_default(
            plugin.device_list_strategy == [DeviceListStrategy::Envvar],
            "DEVICE_LIST_STRATEGY",
            strategies.join(","),
        ),
        unless_default(
            plugin.device_id_strategy == DeviceIdStrategy::Uuid,
            "DEVICE_ID_STRATEGY",
            id_strategy.into(),
        ),
        needs_driver_root(plugin)
            .then(|| pod::env("NVIDIA_DRIVER_ROOT", plugin.driver_root.as_str())),
    ]
    .into_iter()
    .flatten()
    .collect();
    match plugin.config {
        PluginConfig::None => {}
        PluginConfig::TimeSlicing { .. } | PluginConfig::User { .. } => env.push(config_env()),
        PluginConfig::Mps { .. } => env.extend([pod::env("MPS_ROOT", MPS_ROOT), config_env()]),
    }
    env.extend(driver_env(plugin));
    env
}

/// What the NVIDIA runtime reads, for every container that uses the driver.
fn driver_env(plugin: &NvidiaDevicePlugin) -> Vec<EnvVar> {
    let mut env = Vec::new();
    if mig_possible(plugin) {
        env.push(pod::env("NVIDIA_MIG_MONITOR_DEVICES", "all"));
    }
    env.extend([
        pod::env("NVIDIA_VISIBLE_DEVICES", "all"),
        pod::env("NVIDIA_DRIVER_CAPABILITIES", "compute,utility"),
    ]);
    env
}

fn config_env() -> EnvVar {
    pod::env("CONFIG_FILE", format!("{CONFIG_DIR}/{CONFIG_FILE}"))
}

fn config_mount() -> VolumeMount {
    pod::read_only(pod::mount("config", CONFIG_DIR))
}

/// Whether the plugin may meet MIG devices: the strategy says so, or a user's file might.
fn mig_possible(plugin: &NvidiaDevicePlugin) -> bool {
    plugin.mig_strategy != MigStrategy::None || matches!(plugin.config, PluginConfig::User { .. })
}

/// The chart's precedence: device nodes passed explicitly need a privileged plugin; MIG, volume mounts or a configuration that
/// may ask for either need SYS_ADMIN; anything else needs nothing. Time-slicing alone asks for neither, and we know our file.
fn security_context(plugin: &NvidiaDevicePlugin) -> SecurityContext {
    let volume_mounts = plugin
        .device_list_strategy
        .contains(&DeviceListStrategy::VolumeMounts);
    // The chart adds SYS_ADMIN for any ConfigMap unless its values rule MIG out; whether MPS needs it by itself could not be
    // established, so MPS keeps it.
    let mps = matches!(plugin.config, PluginConfig::Mps { .. });
    if plugin.compat_with_cpu_manager {
        return pod::privileged();
    }
    if mig_possible(plugin) || volume_mounts || mps {
        let add = Some(vec!["SYS_ADMIN".into()]);
        return SecurityContext {
            capabilities: Some(Capabilities { add, drop: None }),
            ..SecurityContext::default()
        };
    }
    SecurityContext {
        allow_privilege_escalation: Some(false),
        capabilities: Some(Capabilities {
            drop: Some(vec!["ALL".into()]),
            add: None,
        }),
        ..SecurityContext::default()
    }
}

const fn mig_strategy(strategy: MigStrategy) -> &'static str {
    match strategy {
        MigStrategy::None => "none",
        MigStrategy::Single => "single",
        MigStrategy::Mixed => "mixed",
    }
}

const fn device_list_strategy(strategy: DeviceListStrategy) -> &'static str {
    match strategy {
        DeviceListStrategy::Envvar => "envvar",
        DeviceListStrategy::VolumeMounts => "volume-mounts",
        DeviceListStrategy::CdiAnnotations => "cdi-annotations",
        DeviceListStrategy::CdiCri => "cdi-cri",
    }
}

// MPS. The chart runs the daemon in a DaemonSet of its own, with the plugin's selector, wherever a node label says so. Here it
// is part of the plugin's pod: the daemon sets every GPU to EXCLUSIVE_PROCESS, so it must be under the node's interlock, end
// before the next owner starts, and never run where nobody asked for it. The lock is exclusive, so one pod must hold it for both.

fn mps_volumes() -> [Volume; 2] {
    [
        pod::host_path("mps-root", MPS_ROOT, HostPathType::DirectoryOrCreate),
        // Made by the init container below; no type, as in the chart.
        pod::host_path("mps-shm", format!("{MPS_ROOT}/shm"), HostPathType::Any),
    ]
}

fn mps_mounts() -> [VolumeMount; 2] {
    [
        pod::mount("mps-root", "/mps"),
        pod::mount("mps-shm", "/dev/shm"),
    ]
}

/// Makes the shared-memory mount that daemon and clients use.
fn mps_mount_shm(plan: &CohortPlan) -> Container {
    Container {
        name: "mps-control-daemon-mounts".into(),
        image: Some(operand::image(plan)),
        image_pull_policy: Some(pod::IF_NOT_PRESENT.into()),
        command: Some(vec!["mps-control-daemon".into(), "mount-shm".into()]),
        resources: Some(pod::resources(
            &[("cpu", "10m"), ("memory", "32Mi")],
            &[("memory", "128Mi")],
        )),
        security_context: Some(pod::privileged()),
        volume_mounts: Some(vec![pod::both_ways(pod::mount("mps-root", "/mps"))]),
        ..Container::default()
    }
}

fn mps_control_daemon(plan: &CohortPlan, plugin: &NvidiaDevicePlugin) -> Container {
    let mut env = vec![
        pod::env_field("NODE_NAME", "spec.nodeName"),
        pod::env("MIG_STRATEGY", mig_strategy(plugin.mig_strategy)),
        config_env(),
    ];
    env.extend(driver_env(plugin));
    let mut mounts = mps_mounts().to_vec();
    mounts.push(config_mount());
    Container {
        name: "mps-control-daemon".into(),
        image: Some(operand::image(plan)),
        image_pull_policy: Some(pod::IF_NOT_PRESENT.into()),
        command: Some(vec!["mps-control-daemon".into()]),
        env: Some(env),
        resources: Some(pod::resources(
            &[("cpu", "50m"), ("memory", "64Mi")],
            &[("cpu", "500m"), ("memory", "256Mi")],
        )),
        security_context: Some(pod::privileged()),
        volume_mounts: Some(mounts),
        ..Container::default()
    }
}

/// The plugin's configuration file, version `v1`, as far as it is rendered here.
#[derive(Serialize)]
struct ConfigFile<'a> {
    version: &'static str,
    sharing: Sharing<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
enum Sharing<'a> {
    TimeSlicing(Replicated<'a>),
    Mps(Replicated<'a>),
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Replicated<'a> {
    rename_by_default: bool,
    fail_requests_greater_than_one: bool,
    resources: Vec<Replicas<'a>>,
}

#[derive(Serialize)]
struct Replicas<'a> {
    name: &'a str,
    replicas: u32,
}

/// The file for time-slicing.
pub(crate) fn time_slicing_file(
    rename: bool,
    fail_requests_greater_than_one: bool,
    replicas: &BTreeMap<String, u32>,
) -> String {
    let resources = replicas
        .iter()
        .map(|(name, replicas)| Replicas {
            name,
            replicas: *replicas,
        })
        .collect();
    file(Sharing::TimeSlicing(Replicated {
        rename_by_default: rename,
        fail_requests_greater_than_one,
        resources,
    }))
}

/// The file for MPS. The plugin refuses requests for more than one replica unless told otherwise; it is written down.
pub(crate) fn mps_file(rename: bool, replicas: u32) -> String {
    let resources = vec![Replicas {
        name: "nvidia.com/gpu",
        replicas,
    }];
    file(Sharing::Mps(Replicated {
        rename_by_default: rename,
        fail_requests_greater_than_one: true,
        resources,
    }))
}

/// JSON is YAML to the plugin's parser (sigs.k8s.io/yaml turns YAML into JSON first).
fn file(sharing: Sharing<'_>) -> String {
    // These types serialize without fail; an error text would be refused by the plugin with a message.
    serde_json::to_string_pretty(&ConfigFile {
        version: "v1",
        sharing,
    })
    .unwrap_or_else(|error| error.to_string())
}
