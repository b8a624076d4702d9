//! Two controllers lead at once.

use anyhow::Result;
use freehold_core::names;
use freehold_core::vendor::{Owner, Vendor};
use freehold_e2e::cluster::Options;
use freehold_e2e::install::{Controller, ControllerOptions};
use freehold_e2e::scenario::{SOON, Scenario};
use freehold_e2e::sim::{Shape, wait_for};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use super::stage::{INTENT, give_to, settled};

#[tokio::test(flavor = "multi_thread")]
async fn two_controllers_that_both_lead_hand_over_once() -> Result<()> {
    let mut options = ControllerOptions::default();
    options.arguments.push("--lease-seconds=300".into());
    let duo = |name: &str| (name.to_owned(), Shape::h100().with_label("pool", "duo"));
    let scenario = Scenario::start_with(
        "two-leaders",
        vec![duo("duo-1"), duo("duo-2")],
        Options::named("two-leaders")?,
        &options,
    )
    .await?;
    let cluster = &scenario.cluster;
    cluster.apply_yaml(INTENT).await?;
    let all = |owner| {
        [
            ("duo-1", Vendor::Nvidia, owner),
            ("duo-2", Vendor::Nvidia, owner),
        ]
    };
    settled(&scenario, &all(Owner::DevicePlugin)).await?;

    let second = ControllerOptions {
        identity: "replica-2".into(),
        ..options
    };
    // The lease is given to the second while the first still believes to hold it, as after a long pause of a machine.
    let leases = Api::<Lease>::namespaced(cluster.admin(), names::SYSTEM_NAMESPACE);
    let stolen = json!({"spec": {"holderIdentity": "replica-2"}});
    leases
        .patch(names::LEASE, &PatchParams::default(), &Patch::Merge(stolen))
        .await?;
    let second = Controller::start(cluster, &scenario.programs, &second).await?;
    wait_for("both to lead", SOON, async || {
        let metrics = [
            scenario.controller.metrics().await?,
            second.metrics().await?,
        ];
        let leading: Vec<bool> = metrics
            .iter()
            .map(|metrics| metrics.contains("freehold_leading 1"))
            .collect();
        Ok(if leading == [true, true] {
            Ok(())
        } else {
            Err(format!("{leading:?}"))
        })
    })
    .await?;
    for owner in [Owner::Dra, Owner::DevicePlugin] {
        give_to(cluster, 0, owner).await?;
        settled(&scenario, &all(owner)).await?;
    }
    for (name, controller) in [("first", &scenario.controller), ("second", &second)] {
        assert!(
            controller.metrics().await?.contains("freehold_leading 1"),
            "the {name} believed to lead all the time"
        );
    }
    second.stop()?;
    scenario.stop().await
}
