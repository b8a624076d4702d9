//! The monitor on a real cluster finds what is planted there: one violation of each invariant, done by hand.

use std::collections::BTreeSet;

use anyhow::Result;
use freehold_api::{AcceleratorCluster, AcceleratorNode};
use freehold_core::names;
use freehold_core::vendor::Vendor;
use freehold_e2e::scenario::{SOON, Scenario};
use freehold_e2e::sim::wait_for;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::json;

use super::interlock::{BOTH, LEFT_AND_RIGHT, left_and_right, place_by_hand, running};
use super::stage::{as_controller, settled};

#[tokio::test(flavor = "multi_thread")]
async fn a_violation_of_each_invariant_planted_by_hand_is_found() -> Result<()> {
    let mut scenario = Scenario::start("planted", left_and_right()).await?;
    scenario.cluster.apply_yaml(LEFT_AND_RIGHT).await?;
    settled(&scenario, &BOTH).await?;
    let verdict = scenario.monitor.check().await?;
    assert_eq!(
        verdict.violations,
        [],
        "nothing is wrong before anything is planted"
    );
    // Nobody repairs what is planted.
    scenario.controller.crash()?;
    let (cluster, admin) = (&scenario.cluster, scenario.cluster.admin());
    let params = PatchParams::default();

    // I6: a status that says Ready, and nothing is advertised.
    scenario
        .fleet
        .node("right-1")?
        .stop_slices(Vendor::Nvidia.dra_driver())
        .await?;

    // I1: the other owner's operand, without its interlock.
    let intruder = place_by_hand(
        cluster,
        "nvidia-device-plugin-left",
        "right-1",
        Some("interlock"),
    )
    .await?;
    wait_for("the intruder to run", SOON, async || {
        let running = running(&scenario, "right-1")?;
        Ok(if running.contains(&intruder.uid().unwrap_or_default()) {
            Ok(())
        } else {
            Err(format!("{running:?}"))
        })
    })
    .await?;

    // I5: both nodes fenced, the budget is one. I2: an owner taken away at once.
    let nodes = Api::<Node>::all(as_controller(cluster).await?);
    for (index, name) in ["left-1", "right-1"].into_iter().enumerate() {
        let taint = json!({"key": names::fence_taint(Vendor::Nvidia), "value": (index + 90).to_string(), "effect": "NoSchedule"});
        nodes
            .patch(
                name,
                &params,
                &Patch::Merge(json!({"spec": {"taints": [taint]}})),
            )
            .await?;
    }
    let labels = json!({names::owner_label(Vendor::Nvidia): null, names::cohort_label(Vendor::Nvidia): null});
    nodes
        .patch(
            "left-1",
            &params,
            &Patch::Merge(json!({"metadata": {"labels": labels}})),
        )
        .await?;

    // I4: an object of somebody else, written by the controller's field manager.
    let theirs: DaemonSet = serde_json::from_value(json!({
        "metadata": {"name": "theirs", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "theirs"}}, "template": {
            "metadata": {"labels": {"app": "theirs"}},
            "spec": {"nodeSelector": {"pool": "nowhere"}, "containers": [{"name": "main", "image": "registry.example.invalid/theirs:v1"}]}}},
    }))?;
    let post = PostParams {
        field_manager: Some(names::CONTROLLER_FIELD_MANAGER.into()),
        ..PostParams::default()
    };
    Api::<DaemonSet>::namespaced(admin.clone(), "default")
        .create(&post, &theirs)
        .await?;

    // I3: the finalizer taken away while nodes are owned.
    let intents = Api::<AcceleratorCluster>::all(admin.clone());
    intents
        .patch(
            names::SINGLETON,
            &params,
            &Patch::Merge(json!({"metadata": {"finalizers": null}})),
        )
        .await?;

    let record = Api::<AcceleratorNode>::all(admin).get("right-1").await?;
    let ready = record.status.is_some_and(|status| {
        status
            .conditions
            .iter()
            .any(|c| c.type_ == "Ready" && c.status == "True")
    });
    assert!(
        ready,
        "the dead controller's last word on right-1 was Ready"
    );
    let found = wait_for("every planted violation to be found", SOON, async || {
        let verdict = scenario.monitor.check().await?;
        let found: BTreeSet<&str> = verdict
            .violations
            .iter()
            .map(|violation| violation.invariant)
            .collect();
        Ok(if found.len() == 6 {
            Ok(verdict.violations)
        } else {
            Err(format!("{found:?}"))
        })
    })
    .await?;
    for violation in &found {
        println!("  {violation}");
    }
    let on = |invariant: &str, subject: &str| {
        found
            .iter()
            .any(|v| v.invariant == invariant && v.subject.contains(subject))
    };
    for (invariant, subject) in [
        ("I1", "right-1"),
        ("I2", "left-1"),
        ("I3", names::SINGLETON),
        ("I4", "theirs"),
        ("I5", "right-1"),
        ("I6", "right-1"),
    ] {
        assert!(on(invariant, subject), "{invariant} on {subject}");
    }
    let error = scenario
        .end()
        .await?
        .pass()
        .err()
        .map(|error| error.to_string())
        .unwrap_or_default();
    assert!(
        error.contains("right-1"),
        "a scenario that ends like this fails, and says where: {error}"
    );
    Ok(())
}
