//! The real scheduler allocates every size against devices as the vendors' drivers publish them.

use std::{collections::BTreeSet, time::Duration};

use freehold_e2e::cluster::{Options, eventually};
use k8s_openapi::api::{
    core::v1::{Node, Pod},
    resource::v1::{ResourceClaim, ResourceClaimTemplate, ResourceSlice},
};
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use crate::{Installed, slices};

/// The scheduler and the claim controller need a moment.
const PATIENCE: Duration = Duration::from_secs(90);

/// A scheduler with nodes, devices and a sample's classes and templates.
struct Fleet {
    installed: Installed,
    namespace: &'static str,
}

impl Fleet {
    async fn with(sample: &str, namespace: &'static str, slices: Vec<Value>) -> Self {
        let installed = Installed::with(Options::named(&format!("{sample}-sizes")).unwrap()).await;
        installed.sample(sample).await;
        let admin = installed.cluster.admin();
        for slice in slices {
            let slice: ResourceSlice = serde_json::from_value(slice).unwrap();
            let node = slice.spec.node_name.clone().unwrap();
            let nodes = Api::<Node>::all(admin.clone());
            let body: Node = serde_json::from_value(json!({"metadata": {"name": node}})).unwrap();
            nodes.create(&PostParams::default(), &body).await.unwrap();
            // A kubelet would say so; the API server's taint on new nodes goes with it.
            let ready = json!({"status": {
                "conditions": [{"type": "Ready", "status": "True", "reason": "Fake", "message": ""}],
                "allocatable": {"cpu": "64", "memory": "512Gi", "pods": "110"}, "capacity": {"cpu": "64", "memory": "512Gi", "pods": "110"},
            }});
            nodes
                .patch_status(&node, &PatchParams::default(), &Patch::Merge(ready))
                .await
                .unwrap();
            nodes
                .patch(
                    &node,
                    &PatchParams::default(),
                    &Patch::Merge(json!({"spec": {"taints": null}})),
                )
                .await
                .unwrap();
            Api::<ResourceSlice>::all(admin.clone())
                .create(&PostParams::default(), &slice)
                .await
                .unwrap();
        }
        Self {
            installed,
            namespace,
        }
    }

    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.installed.cluster.admin(), self.namespace)
    }

    async fn ask(&self, pod: &str, template: &str) {
        let body: Pod = serde_json::from_value(json!({
            "metadata": {"name": pod},
            "spec": {
                "containers": [{"name": "main", "image": "registry.example.invalid/none:1", "resources": {"claims": [{"name": "d"}]}}],
                "resourceClaims": [{"name": "d", "resourceClaimTemplateName": template}],
            },
        }))
        .unwrap();
        self.pods()
            .create(&PostParams::default(), &body)
            .await
            .unwrap();
    }

    /// Devices that a pod got, by name, and their node.
    async fn allocated(&self, pod: &str) -> (String, BTreeSet<String>) {
        let claims =
            Api::<ResourceClaim>::namespaced(self.installed.cluster.admin(), self.namespace);
        eventually(&format!("an allocation for {pod}"), PATIENCE, async || {
            let claim = claims
                .list(&ListParams::default())
                .await?
                .into_iter()
                .find(|claim| {
                    claim
                        .owner_references()
                        .iter()
                        .any(|owner| owner.name == pod)
                });
            let Some(allocation) = claim.and_then(|claim| claim.status?.allocation) else {
                return Ok(None);
            };
            let results = allocation
                .devices
                .and_then(|devices| devices.results)
                .unwrap_or_default();
            let pools: BTreeSet<_> = results.iter().map(|result| result.pool.clone()).collect();
            assert_eq!(
                pools.len(),
                1,
                "{pod} got devices of several nodes: {results:?}"
            );
            let names = results.into_iter().map(|result| result.device).collect();
            Ok(pools.into_iter().next().map(|pool| (pool, names)))
        })
        .await
        .unwrap()
    }

    /// Waits until the scheduler has said that a pod fits nowhere.
    async fn waits(&self, pod: &str) {
        eventually(
            &format!("the scheduler to refuse {pod}"),
            PATIENCE,
            async || {
                let conditions = self
                    .pods()
                    .get(pod)
                    .await?
                    .status
                    .and_then(|status| status.conditions)
                    .unwrap_or_default();
                Ok(conditions
                    .iter()
                    .any(|condition| {
                        condition.type_ == "PodScheduled"
                            && condition.reason.as_deref() == Some("Unschedulable")
                            && condition.message.as_deref().is_some_and(|message| {
                                message.contains("cannot allocate all claims")
                            })
                    })
                    .then_some(()))
            },
        )
        .await
        .unwrap();
    }

    async fn gone(&self, pod: &str) {
        self.pods()
            .delete(pod, &DeleteParams::default().grace_period(0))
            .await
            .unwrap();
        eventually(&format!("{pod} to be gone"), PATIENCE, async || {
            Ok(self.pods().get_opt(pod).await?.is_none().then_some(()))
        })
        .await
        .unwrap();
    }
}

fn devices(range: std::ops::Range<usize>) -> BTreeSet<String> {
    range.map(|n| format!("neuron-device-{n}")).collect()
}

#[tokio::test]
async fn every_size_of_the_demo_is_allocated_as_its_name_promises() {
    let fleet = Fleet::with(
        "acceleratorcluster",
        "ml",
        vec![
            slices::neuron("elm", "trn2.48xlarge", "2.30.2.0", 16),
            slices::gpus("fir", "NVIDIA A100-SXM4-40GB", "40960Mi", 8),
            slices::mig("gum"),
            slices::gpus("hazel", "NVIDIA H100 80GB HBM3", "81559Mi", 1),
        ],
    )
    .await;

    // Only a whole GPU with more than 40 GiB: neither the A100 with exactly 40 nor a MIG instance with 79.
    fleet.ask("train-1", "single-large-gpu").await;
    assert_eq!(
        fleet.allocated("train-1").await,
        ("hazel".into(), BTreeSet::from(["gpu-0".to_owned()]))
    );
    fleet.ask("train-2", "single-large-gpu").await;
    fleet.waits("train-2").await;

    fleet.ask("half-1", "l-trn2").await;
    fleet.ask("half-2", "l-trn2").await;
    let (first, second) = (
        fleet.allocated("half-1").await,
        fleet.allocated("half-2").await,
    );
    let halves = [devices(0..8), devices(8..16)];
    assert!(
        halves.contains(&first.1) && halves.contains(&second.1) && first.1 != second.1,
        "{first:?} {second:?}"
    );
    fleet.ask("whole", "xl-trn2").await;
    fleet.waits("whole").await;
    fleet.gone("half-1").await;
    fleet.gone("half-2").await;
    assert_eq!(
        fleet.allocated("whole").await,
        ("elm".into(), devices(0..16))
    );
    fleet.gone("whole").await;

    fleet.ask("quarter", "m-trn2-lnc1").await;
    let quarter = fleet.allocated("quarter").await.1;
    assert!(
        (0..4).any(|row| quarter == devices(row * 4..row * 4 + 4)),
        "{quarter:?} is no connected group of four"
    );
    fleet.ask("one", "single-neuron-device").await;
    let one = fleet.allocated("one").await.1;
    assert!(one.len() == 1 && one.is_disjoint(&quarter), "{one:?}");
}

#[tokio::test]
async fn the_neuron_write_ups_claims_are_allocated_as_it_saw_them() {
    let fleet = Fleet::with(
        "neuron-dra-on-eks",
        "default",
        vec![
            slices::neuron("elm", "trn2.48xlarge", "2.26.5.0", 16),
            slices::neuron("oak", "trn1.2xlarge", "2.26.5.0", 1),
        ],
    )
    .await;
    fleet.ask("one", "single-neuron-device").await;
    assert_eq!(fleet.allocated("one").await, ("oak".into(), devices(0..1)));
    // The only device is taken; a device of another type with the same driver does not do.
    fleet.ask("versioned", "neuron-with-driver-version").await;
    fleet.waits("versioned").await;
    fleet.gone("one").await;
    assert_eq!(
        fleet.allocated("versioned").await,
        ("oak".into(), devices(0..1))
    );

    fleet.ask("all", "neuron-lnc-1").await;
    assert_eq!(fleet.allocated("all").await, ("elm".into(), devices(0..16)));

    // A driver version that no device has: the pod waits, nothing else gives way.
    let admin = fleet.installed.cluster.admin();
    let templates = Api::<ResourceClaimTemplate>::namespaced(admin, "default");
    let mut other = templates.get("neuron-with-driver-version").await.unwrap();
    let spec = serde_json::to_string(&other.spec)
        .unwrap()
        .replace("2.26.5.0", "9.99.99.0");
    other.spec = serde_json::from_str(&spec).unwrap();
    other.metadata = kube::api::ObjectMeta {
        name: Some("no-such-driver".into()),
        ..Default::default()
    };
    templates
        .create(&PostParams::default(), &other)
        .await
        .unwrap();
    fleet.gone("versioned").await;
    fleet.ask("impossible", "no-such-driver").await;
    fleet.waits("impossible").await;
}
