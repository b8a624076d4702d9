//! The interlock's sidecar: an operand starts only while the node's lock and owner word are its own.
//!
//! A restartable init container is started before, and ended after, the containers it guards. It takes an exclusive lock in a
//! directory of the host and reads the owner word beside it; its startup probe succeeds once it has both, and only then does
//! the kubelet create the operand's containers. Labels alone cannot do this: a DaemonSet controller that acts on an old view
//! starts the old operand again.

use freehold_core::names;
use freehold_core::vendor::{Owner, Vendor};
use k8s_openapi::api::core::v1::{Container, ExecAction, Probe, Volume};

use crate::Settings;
use crate::pod::{self, HostPathType};

/// Name of the sidecar.
pub(crate) const CONTAINER: &str = "interlock";
/// Program in the agent's image.
pub(crate) const AGENT_BINARY: &str = "freehold-agent";
/// Volume with the lock and the owner word.
const STATE_VOLUME: &str = "interlock-state";
/// Volume with the file that says "held".
const STARTED_VOLUME: &str = "interlock-started";
/// Its directory in the sidecar.
const STARTED_DIR: &str = "/run/freehold";
/// The file that exists while lock and word are held.
const STARTED_FILE: &str = "/run/freehold/held";
/// Seconds between two looks at that file.
const PROBE_PERIOD_S: i32 = 1;
/// Seconds that one look may take: the probe starts a process, which a loaded node delays.
const PROBE_TIMEOUT_S: i32 = 5;
/// Waiting for the lock is a state, not a failure: the kubelet must never restart the sidecar for it.
const PROBE_FAILURES: i32 = i32::MAX;

/// Directory on the host that holds one vendor's lock and owner word.
pub(crate) fn state_dir(vendor: Vendor) -> String {
    format!("{}/{}", names::HOST_STATE_DIR, vendor.key())
}

/// The sidecar. Where the cohort wants a layout it also waits until the node's shaper has verified it in this boot.
pub(crate) fn container(
    vendor: Vendor,
    owner: Owner,
    has_layout: bool,
    settings: &Settings,
) -> Container {
    let hold = [
        AGENT_BINARY,
        "hold",
        "--vendor",
        vendor.key(),
        "--owner",
        owner.word(),
        "--state-dir",
    ];
    let mut command: Vec<String> = hold.into_iter().map(Into::into).collect();
    command.extend([state_dir(vendor), "--started".into(), STARTED_FILE.into()]);
    command.extend(has_layout.then(|| "--shaped".into()));
    let held = [AGENT_BINARY, "held", "--started", STARTED_FILE]
        .into_iter()
        .map(Into::into)
        .collect();
    Container {
        name: CONTAINER.into(),
        image: Some(settings.agent_image.clone()),
        image_pull_policy: Some(pod::IF_NOT_PRESENT.into()),
        command: Some(command),
        restart_policy: Some("Always".into()),
        startup_probe: Some(Probe {
            exec: Some(ExecAction {
                command: Some(held),
            }),
            period_seconds: Some(PROBE_PERIOD_S),
            timeout_seconds: Some(PROBE_TIMEOUT_S),
            failure_threshold: Some(PROBE_FAILURES),
            ..Probe::default()
        }),
        resources: Some(pod::resources(
            &[("cpu", "1m"), ("memory", "8Mi")],
            &[("memory", "32Mi")],
        )),
        security_context: Some(pod::bare_root()),
        volume_mounts: Some(vec![
            pod::mount(STATE_VOLUME, state_dir(vendor)),
            pod::mount(STARTED_VOLUME, STARTED_DIR),
        ]),
        ..Container::default()
    }
}

/// Its volumes.
pub(crate) fn volumes(vendor: Vendor) -> [Volume; 2] {
    [
        pod::host_path(
            STATE_VOLUME,
            state_dir(vendor),
            HostPathType::DirectoryOrCreate,
        ),
        pod::memory_dir(STARTED_VOLUME),
    ]
}
