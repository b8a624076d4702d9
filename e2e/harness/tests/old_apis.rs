//! A control plane that serves only beta versions of the DRA API (H70): Kubernetes 1.34 with `resource.k8s.io/v1` switched off.
//! From 1.36 on it cannot be switched off, so this needs that release; `make old-apis` builds it first.

use anyhow::{Result, ensure};
use freehold_core::blocker::Reason;
use freehold_core::names;
use freehold_core::tenure::Step;
use freehold_core::vendor::{Owner, Vendor};
use freehold_e2e::cluster::{Options, Release};
use freehold_e2e::install::ControllerOptions;
use freehold_e2e::scenario::Scenario;
use freehold_e2e::sim::Shape;
use kube::ResourceExt as _;

const INTENT: &str = r"
apiVersion: freehold.dev/v1alpha1
kind: AcceleratorCluster
metadata: {name: cluster}
spec:
  cohorts:
  - {name: by-plugin, vendor: NVIDIA, owner: DevicePlugin, nodeSelector: {matchLabels: {pool: a}}}
  - {name: by-claim, vendor: NVIDIA, owner: DRA, nodeSelector: {matchLabels: {pool: b}}}
  sizes:
  - {name: single, vendor: NVIDIA, namespaces: [default], devices: {count: 1}}
";

#[tokio::test(flavor = "multi_thread")]
#[ignore = "builds and runs Kubernetes 1.34: `make old-apis`"]
async fn without_the_dra_api_its_cohorts_are_blocked_and_the_others_work() -> Result<()> {
    let mut options = Options::named("old-apis")?;
    options.release = Release::V1_34;
    options
        .api_server_flags
        .push("--runtime-config=resource.k8s.io/v1=false,resource.k8s.io/v1beta1=true".into());
    options
        .feature_gates
        .push(("DynamicResourceAllocation".into(), false));
    let node = |name: &str, pool: &str| (name.to_owned(), Shape::h100().with_label("pool", pool));
    let scenario = Scenario::start_with(
        "old-apis",
        vec![node("plugin-1", "a"), node("claim-1", "b")],
        options,
        &ControllerOptions::default(),
    )
    .await?;
    let versions = scenario.cluster.admin().list_api_groups().await?;
    let served: Vec<&str> = versions
        .groups
        .iter()
        .filter(|group| group.name == "resource.k8s.io")
        .flat_map(|group| &group.versions)
        .map(|version| version.version.as_str())
        .collect();
    ensure!(
        served == ["v1beta1"],
        "this is about beta alone: {served:?}"
    );
    scenario.cluster.apply_yaml(INTENT).await?;
    scenario
        .wait_for_tenure("plugin-1", Vendor::Nvidia, "held", |tenure| {
            tenure.step == Step::Held && tenure.owner == Some(Owner::DevicePlugin)
        })
        .await?;
    let blocked = scenario
        .wait_for_tenure("claim-1", Vendor::Nvidia, "blocked", |tenure| {
            tenure.reason == Some(Reason::DraApiUnavailable)
        })
        .await?;
    ensure!(
        blocked.owner.is_none() && blocked.next_step.is_some(),
        "{blocked:?}"
    );
    println!("claim-1: {}", blocked.message.unwrap_or_default());
    let node = scenario.fleet.node("claim-1")?.object().await?;
    ensure!(
        !node
            .labels()
            .contains_key(&names::owner_label(Vendor::Nvidia)),
        "{:?}",
        node.labels()
    );
    // A controller that watched what is not served would not be ready, or crash.
    ensure!(
        scenario
            .controller
            .metrics()
            .await?
            .contains("freehold_leading 1"),
        "the controller runs"
    );
    scenario.stop().await
}
