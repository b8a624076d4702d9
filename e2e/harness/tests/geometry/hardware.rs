//! Hardware that does not do as it is told, or that nobody knows.

use anyhow::Result;
use freehold_api::TenureStatus;
use freehold_core::blocker::Reason;
use freehold_core::report::ShapingOutcome;
use freehold_core::vendor::{Owner, Vendor};
use freehold_e2e::scenario::Scenario;
use freehold_e2e::sim::{Shape, wait_for};
use freehold_fake_nvml::state::ModeChange;

use super::stage::{disturbances, shaper_says};

const INTENT: &str = r"
apiVersion: freehold.dev/v1alpha1
kind: AcceleratorCluster
metadata: {name: cluster}
spec:
  cohorts:
  - name: guest
    vendor: NVIDIA
    owner: DevicePlugin
    nodeSelector: {matchLabels: {pool: guest}}
    nvidia:
      devicePlugin: {migStrategy: Single}
      mig: {layouts: [{gpus: All, instances: {3g.20gb: 2}}]}
  - name: new
    vendor: NVIDIA
    owner: DRA
    nodeSelector: {matchLabels: {pool: new}}
    nvidia:
      mig: {layouts: [{gpus: All, instances: {1g.10gb: 7}}]}
  rollout: {maxUnavailable: 2, canary: {nodes: 0, soak: 1s}}
";

#[tokio::test(flavor = "multi_thread")]
async fn a_mode_that_waits_for_a_restart_and_a_board_without_a_table_are_told_and_waited_for()
-> Result<()> {
    let nodes = vec![
        (
            "guest-1".to_owned(),
            Shape::a100().with_gpus(2).with_label("pool", "guest"),
        ),
        (
            "new-1".to_owned(),
            Shape::h100().with_gpus(1).with_label("pool", "new"),
        ),
    ];
    let scenario = Scenario::start("geometry-hardware", nodes).await?;
    let cluster = &scenario.cluster;
    let (guest, new) = (
        scenario.fleet.node("guest-1")?,
        scenario.fleet.node("new-1")?,
    );
    // A virtual machine: the driver accepts the mode, and says that the guest must restart.
    guest.tree(|tree| {
        for gpu in [0, 1] {
            tree.nvml()
                .change_gpu(gpu, |gpu| gpu.mode_change = ModeChange::NeedsReboot)?;
        }
        Ok(())
    })?;
    // A driver that lists no profiles while MIG is off.
    new.tree(|tree| {
        Ok(tree
            .nvml()
            .change(|state| state.profiles_while_off = false)?)
    })?;
    let mark = cluster.audit().mark().await?;
    cluster.apply_yaml(INTENT).await?;

    let unknown = |tenure: &TenureStatus| {
        tenure.reason == Some(Reason::UnknownGeometry) && tenure.owner.is_none()
    };
    let tenure = scenario
        .wait_for_tenure("new-1", Vendor::Nvidia, "of unknown geometry", unknown)
        .await?;
    println!("new-1: {}", tenure.message.unwrap_or_default());
    let waits = |tenure: &TenureStatus| tenure.reason == Some(Reason::RebootRequired);
    let tenure = scenario
        .wait_for_tenure("guest-1", Vendor::Nvidia, "waiting for a restart", waits)
        .await?;
    println!("guest-1: {}", tenure.message.unwrap_or_default());
    shaper_says(
        cluster,
        "guest-1",
        Vendor::Nvidia,
        ShapingOutcome::RebootRequired,
    )
    .await?;
    scenario.wait_for_quiet().await?;
    let guessed = new.tree(|tree| Ok(tree.nvml().take_writes()?))?;
    assert!(guessed.is_empty(), "nothing is guessed: {guessed:?}");
    let disturbed = disturbances(cluster, mark).await?;
    let labelled: Vec<_> = disturbed
        .iter()
        .filter(|write| write.contains(" nodes "))
        .collect();
    println!("writes while both wait: {disturbed:?}");
    assert!(
        labelled.iter().all(|write| !write.contains("new-1")),
        "{labelled:?}"
    );

    // Somebody restarts the guest, for whatever reason: everything goes on by itself.
    guest.reboot().await?;
    scenario
        .wait_until_settled("guest-1", Vendor::Nvidia, Owner::DevicePlugin)
        .await?;
    guest
        .wait_for_allocatable("nvidia.com/gpu", Some(4), freehold_e2e::scenario::SOON)
        .await?;
    // A newer driver is loaded, which lists its profiles.
    new.tree(|tree| {
        Ok(tree
            .nvml()
            .change(|state| state.profiles_while_off = true)?)
    })?;
    new.load_driver("590.11.03")?;
    scenario
        .wait_until_settled("new-1", Vendor::Nvidia, Owner::Dra)
        .await?;
    wait_for(
        "the slices of new-1",
        freehold_e2e::scenario::SOON,
        async || {
            let slices = new.slices("gpu.nvidia.com").await?;
            let devices: usize = slices
                .iter()
                .map(|slice| slice.spec.devices.iter().flatten().count())
                .sum();
            Ok(if devices == 7 {
                Ok(())
            } else {
                Err(format!("{devices} devices"))
            })
        },
    )
    .await?;
    scenario.stop().await
}
