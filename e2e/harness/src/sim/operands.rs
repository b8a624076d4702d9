//! The vendors' operands: what their containers do to the host and to the API. They keep the contract of the real ones: a
//! plugin looks at the hardware once at its start, registers anew when the kubelet starts, and removes its sockets when it
//! ends; a DRA driver checks its checkpoint, registers, and publishes slices that nobody but the kubelet takes away.

use std::collections::BTreeMap;

use anyhow::Context as _;
use freehold_core::vendor::{Owner, Vendor};
use k8s_openapi::api::resource::v1::Device;
use kube::ResourceExt as _;

use super::checkpoint::DriverState2;
use super::container::{Exit, PodContext};
use super::devices::{
    PluginConfig, Resources, neuron_devices, neuron_resources, nvidia_devices, nvidia_resources,
};
use super::node::SimNode;
use super::options::real;
use super::slices::publish;
use super::state::{Driver, PluginOwner};
use super::volumes::ContainerRoot;

const NVIDIA_DRIVER: &str = "gpu.nvidia.com";
const NEURON_DRIVER: &str = "neuron.aws.com";

/// An operand's program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operand {
    /// NVIDIA device plugin.
    NvidiaPlugin,
    /// The init container of NVIDIA's DRA driver, which waits for the kernel driver.
    NvidiaPrestart,
    /// NVIDIA's DRA driver.
    NvidiaDra,
    /// Neuron device plugin.
    NeuronPlugin,
    /// Neuron DRA driver.
    NeuronDra,
}

impl Operand {
    /// Whose devices it hands out and in which way; `None` for a program that only prepares the ground.
    #[must_use]
    pub const fn hands_out(self) -> Option<(Vendor, Owner)> {
        match self {
            Self::NvidiaPlugin => Some((Vendor::Nvidia, Owner::DevicePlugin)),
            Self::NvidiaPrestart => None,
            Self::NvidiaDra => Some((Vendor::Nvidia, Owner::Dra)),
            Self::NeuronPlugin => Some((Vendor::Neuron, Owner::DevicePlugin)),
            Self::NeuronDra => Some((Vendor::Neuron, Owner::Dra)),
        }
    }
}

/// Runs until it ends by itself; most never do.
pub async fn run(
    operand: Operand,
    context: &PodContext,
    root: &ContainerRoot,
    env: &BTreeMap<String, String>,
) -> Exit {
    let node = &context.node;
    match operand {
        Operand::NvidiaPrestart => {
            // `nvidia-smi --version` is tried every 10 s until it works; without a driver that is for ever, and no error.
            while nvidia_driver(node).is_none() {
                node.shared.clock.sleep(real::CRASH_BACKOFF).await;
            }
            Exit::clean()
        }
        Operand::NvidiaPlugin => nvidia_plugin(context, root, env).await,
        Operand::NeuronPlugin => {
            let Some(hardware) = node
                .tree
                .neuron()
                .filter(|hardware| hardware.driver.is_some())
            else {
                return Exit::failure(
                    "failed to get the neuron device list: no neuron device found",
                );
            };
            let lnc = node.tree.logical_neuron_core().unwrap_or(1);
            serve(context, &neuron_resources(&hardware, lnc), false).await
        }
        Operand::NvidiaDra => {
            let devices = |node: &SimNode| {
                let hardware = node
                    .tree
                    .nvidia()
                    .filter(|hardware| hardware.driver.is_some());
                Some(nvidia_devices(&node.tree, &hardware?))
            };
            drive(context, root, NVIDIA_DRIVER, devices).await
        }
        Operand::NeuronDra => {
            let devices = |node: &SimNode| {
                let hardware = node
                    .tree
                    .neuron()
                    .filter(|hardware| hardware.driver.is_some());
                Some(neuron_devices(&node.tree.instance_type(), &hardware?))
            };
            drive(context, root, NEURON_DRIVER, devices).await
        }
    }
}

/// What is left to do when it ended, by itself or because it was told to.
///
/// # Errors
/// When files cannot be removed.
pub fn ended(operand: Operand, context: &PodContext) -> anyhow::Result<()> {
    let uid = context.pod.uid().unwrap_or_default();
    let (node, driver) = match operand {
        Operand::NvidiaPrestart => return Ok(()),
        Operand::NvidiaPlugin | Operand::NeuronPlugin => {
            return context.node.unregister_plugins(&PluginOwner::Pod(uid));
        }
        Operand::NvidiaDra => (&context.node, NVIDIA_DRIVER),
        Operand::NeuronDra => (&context.node, NEURON_DRIVER),
    };
    let mine = node.look(|state| {
        state
            .drivers
            .get(driver)
            .is_some_and(|registered| registered.pod_uid == uid)
    });
    if mine {
        for socket in sockets(node, driver, &uid) {
            node.tree.remove(&socket)?;
        }
        node.driver_gone(driver, &uid);
    }
    Ok(())
}

fn nvidia_driver(node: &SimNode) -> Option<String> {
    node.tree.nvidia()?.driver
}

async fn nvidia_plugin(
    context: &PodContext,
    root: &ContainerRoot,
    env: &BTreeMap<String, String>,
) -> Exit {
    let node = &context.node;
    let file = match env.get("CONFIG_FILE").filter(|path| !path.is_empty()) {
        None => None,
        Some(path) => match std::fs::read_to_string(root.path(path)) {
            Ok(text) => Some(text),
            Err(error) => return Exit::failure(format!("unable to load config: {path}: {error}")),
        },
    };
    let config = match PluginConfig::read(file.as_deref(), env) {
        Ok(config) => config,
        Err(error) => return Exit::failure(error),
    };
    let Some(hardware) = node
        .tree
        .nvidia()
        .filter(|hardware| hardware.driver.is_some())
    else {
        if config.fail_on_init_error {
            return Exit::failure("Failed to initialize NVML: ERROR_LIBRARY_NOT_FOUND");
        }
        // It says so once and waits for ever; the pod stays Running.
        return std::future::pending().await;
    };
    match nvidia_resources(&node.tree, &hardware, &config) {
        Ok(resources) => {
            serve(
                context,
                &resources,
                config.fail_requests_greater_than_one && !config.sharing.is_empty(),
            )
            .await
        }
        Err(error) => Exit::failure(error),
    }
}

/// Registers at every start of the kubelet.
async fn serve(context: &PodContext, resources: &Resources, at_most_one: bool) -> Exit {
    let node = &context.node;
    let owner = PluginOwner::Pod(context.pod.uid().unwrap_or_default());
    loop {
        let start = node
            .until(|state| {
                (state.up && !state.faults.hold_registration).then_some(state.kubelet_start)
            })
            .await;
        node.shared.clock.sleep(real::REGISTER).await;
        for (resource, ids) in resources {
            if let Err(error) =
                node.register_plugin(resource, owner.clone(), ids.clone(), at_most_one)
            {
                return Exit::failure(format!("{error:#}"));
            }
        }
        node.until(|state| (state.kubelet_start != start).then_some(()))
            .await;
    }
}

/// Sockets of a DRA driver. NVIDIA's have fixed names; Neuron's carry the pod, so that two may overlap during an update.
fn sockets(node: &SimNode, driver: &str, pod_uid: &str) -> [String; 2] {
    let root = node.tree.kubelet_root();
    if driver == NVIDIA_DRIVER {
        [
            format!("{root}/plugins_registry/{driver}-reg.sock"),
            format!("{root}/plugins/{driver}/dra.sock"),
        ]
    } else {
        // The real name holds the whole UID; a prefix keeps the path within a socket's length below a long root.
        let short = pod_uid.get(..8).unwrap_or(pod_uid);
        [
            format!("{root}/plugins_registry/{driver}-{short}-reg.sock"),
            format!("{root}/plugins/{driver}/dra-{short}.sock"),
        ]
    }
}

async fn drive(
    context: &PodContext,
    root: &ContainerRoot,
    driver: &'static str,
    discover: impl Fn(&SimNode) -> Option<Vec<Device>>,
) -> Exit {
    let node = &context.node;
    let Some(devices) = discover(node) else {
        return Exit::failure(format!(
            "{driver}: failed to enumerate devices: the kernel driver does not answer"
        ));
    };
    let end = async {
        if driver == NVIDIA_DRIVER {
            renew_checkpoint(node)?;
        }
        let mut registered_with = None;
        loop {
            let start = node
                .until(|state| state.up.then_some(state.kubelet_start))
                .await;
            if registered_with != Some(start) {
                node.shared.clock.sleep(real::REPUBLISH).await;
                register(context, driver)?;
                registered_with = Some(start);
            }
            node.until(|state| (!state.faults.hold_slices).then_some(()))
                .await;
            node.shared.clock.sleep(real::PUBLISH).await;
            let wipes = node.look(|state| state.wipes);
            publish(node, root, driver, &devices).await?;
            node.until(|state| {
                (state.kubelet_start != start || state.wipes != wipes).then_some(())
            })
            .await;
        }
    };
    let ended: anyhow::Result<()> = end.await;
    match ended {
        Ok(()) => Exit::clean(),
        Err(error) => Exit::failure(format!("{error:#}")),
    }
}

/// Claims of an earlier boot are void; a corrupt checkpoint keeps the driver from starting.
fn renew_checkpoint(node: &SimNode) -> anyhow::Result<()> {
    let boot_id = node.tree.boot_id();
    let mut state = node
        .tree
        .read_driver_checkpoint(NVIDIA_DRIVER)
        .context("unable to get checkpoint")?;
    if state.node_boot_id != boot_id {
        state = DriverState2::default();
        state.node_boot_id = boot_id;
    }
    node.tree.write_driver_checkpoint(NVIDIA_DRIVER, &state)
}

fn register(context: &PodContext, driver: &str) -> anyhow::Result<()> {
    let node = &context.node;
    let uid = context.pod.uid().unwrap_or_default();
    let listeners = sockets(node, driver, &uid)
        .iter()
        .map(|socket| node.tree.listen(socket))
        .collect::<Result<_, _>>()?;
    node.with(|state| {
        state.drivers.insert(
            driver.to_owned(),
            Driver {
                pod_uid: uid,
                listeners,
            },
        )
    });
    Ok(())
}
