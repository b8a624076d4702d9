//! What a node is found with, one case each.

use anyhow::{Context as _, Result, ensure};
use freehold_core::blocker::Reason;
use freehold_core::names;
use freehold_core::tenure::Step;
use freehold_core::vendor::{Owner, Vendor};
use freehold_e2e::cluster::Filter;
use freehold_e2e::install::wait_for_cluster;
use freehold_e2e::sim::Shape;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;

use crate::CPU;
use crate::fault::{self, CASE, Case};

pub async fn plugin_elsewhere(case: Case<'_>) -> Result<()> {
    case.blocked(
        Reason::ForeignOwner,
        &["DaemonSet unrelated/weights-loader"],
    )
    .await?;
    case.stays(None, 5).await?;
    let cpu = case
        .scenario
        .tenure(CPU, Vendor::Nvidia)
        .await?
        .context("the CPU node is listed")?;
    ensure!(
        cpu.reason == Some(Reason::NoHardware) && cpu.owner.is_none(),
        "{cpu:?}"
    );
    let node = case.scenario.fleet.node(CPU)?.object().await?;
    ensure!(
        !node
            .labels()
            .keys()
            .any(|key| key.starts_with(names::NODE_LABEL_PREFIX)),
        "{:?}",
        node.labels()
    );
    let sets = Api::<DaemonSet>::namespaced(case.scenario.cluster.admin(), "unrelated");
    ensure!(
        sets.get("weights-loader").await?.metadata.generation == Some(1),
        "nobody touched it"
    );
    sets.delete("weights-loader", &DeleteParams::default())
        .await?;
    case.held(Owner::DevicePlugin).await.map(drop)
}

pub async fn host_plugin(case: Case<'_>) -> Result<()> {
    let tenure = case
        .blocked(
            Reason::HostPluginActive,
            // Not DaemonSet unrelated/pools-elsewhere, which does not reach this node.
            &["nvidia.com/gpu=8", "look at the host"],
        )
        .await?;
    ensure!(tenure.step == Step::Hold, "{tenure:?}");
    case.stays(None, 5).await?;
    // Switched off in the host's settings; another machine of the same name is the shortest way to say that here.
    case.node()?.delete().await?;
    case.node()?
        .recreate_same_name(Some(Shape::h100().with_label(CASE, case.name)))
        .await?;
    case.held(Owner::Dra).await.map(drop)
}

pub async fn leftovers_mean_nothing(case: Case<'_>) -> Result<()> {
    case.held(Owner::Dra).await?;
    ensure!(
        case.node()?.allocatable("nvidia.com/gpu").await? == Some(0),
        "the zero is still there"
    );
    ensure!(
        case.node()?
            .slices("compute-domain.nvidia.com")
            .await?
            .len()
            == 1,
        "so is the slice: nobody removed it"
    );
    Ok(())
}

pub async fn no_slices(case: Case<'_>) -> Result<()> {
    let tenure = case
        .blocked(
            Reason::AdvertisementLost,
            &[
                "Pod freehold-operands/nvidia-dra-no-slices-",
                "gpu.nvidia.com",
            ],
        )
        .await?;
    ensure!(tenure.step == Step::Verify, "{tenure:?}");
    case.stays(Some(Owner::Dra), 4).await?;
    case.node()?.hold_slices(false)?;
    case.node()?.kubelet_restart().await?;
    case.held(Owner::Dra).await.map(drop)
}

pub async fn no_pod(case: Case<'_>) -> Result<()> {
    case.blocked(
        Reason::OperandNotRunning,
        &[
            "Pod freehold-operands/nvidia-device-plugin-no-pod-",
            "Pending",
        ],
    )
    .await?;
    case.stays(Some(Owner::DevicePlugin), 4).await?;
    case.want_with(
        Owner::DevicePlugin,
        &json!({"resources": {"requests": {"cpu": "50m"}}}),
    )
    .await?;
    case.held(Owner::DevicePlugin).await.map(drop)
}

pub async fn lost_advertisement(case: Case<'_>) -> Result<()> {
    case.held(Owner::DevicePlugin).await?;
    let node = case.node()?;
    node.hold_registration(true)?;
    node.kubelet_restart().await?;
    case.blocked(
        Reason::AdvertisementLost,
        &[
            "Pod freehold-operands/nvidia-device-plugin-lost-advert-",
            "nvidia.com/gpu=8",
        ],
    )
    .await?;
    case.stays(Some(Owner::DevicePlugin), 4).await?;
    node.hold_registration(false)?;
    node.kubelet_restart().await?;
    case.held(Owner::DevicePlugin).await.map(drop)
}

pub async fn config_not_found(case: Case<'_>) -> Result<()> {
    case.held(Owner::DevicePlugin).await?;
    let sets =
        Api::<DaemonSet>::namespaced(case.scenario.cluster.admin(), names::OPERAND_NAMESPACE);
    let before = sets.get("nvidia-device-plugin-config").await?;
    let config =
        json!({"nvidia": {"devicePlugin": {"config": {"name": "site-settings", "key": "quiet"}}}});
    case.want_with(Owner::DevicePlugin, &config).await?;
    case.blocked(
        Reason::ConfigNotFound,
        &["ConfigMap freehold-operands/site-settings", "cohort config"],
    )
    .await?;
    case.stays(Some(Owner::DevicePlugin), 4).await?;
    let after = sets.get("nvidia-device-plugin-config").await?;
    ensure!(
        before.metadata.generation == after.metadata.generation,
        "the DaemonSet is as it was: {:?}",
        after.spec
    );
    // The map, but not the key.
    let maps =
        Api::<ConfigMap>::namespaced(case.scenario.cluster.admin(), names::OPERAND_NAMESPACE);
    let map = json!({"metadata": {"name": "site-settings"}, "data": {"loud": "version: v1"}});
    maps.create(&PostParams::default(), &serde_json::from_value(map)?)
        .await?;
    case.blocked(Reason::ConfigNotFound, &["no key quiet"])
        .await?;
    let key = Patch::Merge(json!({"data": {"quiet": "version: v1\n"}}));
    maps.patch("site-settings", &PatchParams::default(), &key)
        .await?;
    case.held(Owner::DevicePlugin).await.map(drop)
}

pub async fn name_taken(case: Case<'_>) -> Result<()> {
    let name = "nvidia-device-plugin-name-taken";
    let sets =
        Api::<DaemonSet>::namespaced(case.scenario.cluster.admin(), names::OPERAND_NAMESPACE);
    let before = sets.get(name).await?;
    wait_for_cluster(
        &case.scenario.cluster,
        "the name to be told of as taken",
        fault::SOON,
        |object| {
            let blockers = object.status.iter().flat_map(|status| &status.blockers);
            blockers.into_iter().any(|blocker| {
                blocker.reason == Reason::NameTaken && blocker.message.contains(name)
            })
        },
    )
    .await?;
    case.blocked(Reason::OperandNotRunning, &["cohort name-taken"])
        .await?;
    let after = sets.get(name).await?;
    ensure!(
        before.metadata.generation == after.metadata.generation
            && before.labels() == after.labels(),
        "{after:?}"
    );
    let ours = Filter::all()
        .service_account(names::SYSTEM_NAMESPACE, names::CONTROLLER_SERVICE_ACCOUNT)
        .resource("daemonsets.apps");
    let since = case.scenario.cluster.audit().mark().await?;
    case.stays(Some(Owner::DevicePlugin), 4).await?;
    let writes = case
        .scenario
        .cluster
        .audit()
        .writes_since(since, &ours.name(name))
        .await?;
    ensure!(writes.count() == 0, "{writes:?}");
    sets.delete(name, &DeleteParams::default()).await?;
    case.held(Owner::DevicePlugin).await?;
    wait_for_cluster(
        &case.scenario.cluster,
        "the name to be ours",
        fault::SOON,
        |object| {
            object.status.as_ref().is_some_and(|status| {
                status
                    .blockers
                    .iter()
                    .all(|blocker| blocker.reason != Reason::NameTaken)
            })
        },
    )
    .await
    .map(drop)
}
