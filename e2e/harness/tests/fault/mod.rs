//! What fault scenarios share: a node with a cohort of its own, workloads on it, and assertions about what stays as it is.

#![allow(dead_code, reason = "each test program uses a part of it")]

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use freehold_api::{AcceleratorCluster, AcceleratorNode, TenureStatus};
use freehold_core::blocker::Reason;
use freehold_core::names;
use freehold_core::report::VendorReport;
use freehold_core::tenure::Step;
use freehold_core::vendor::{Owner, Vendor};
use freehold_e2e::cluster::Filter;
use freehold_e2e::scenario::Scenario;
use freehold_e2e::sim::NodeHandle;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams};
use kube::{Resource as _, ResourceExt as _};
use serde_json::{Value, json};

/// Long enough for a machine that does other things too; nothing waits for it when things go well.
pub const SOON: Duration = Duration::from_secs(150);
/// Conditions are asked for this often.
const LOOK: Duration = Duration::from_millis(150);
/// Where workloads live.
pub const ML: &str = "ml";
/// A node label that tells the cases apart.
pub const CASE: &str = "case.example.com/name";

/// Waits until `look` finds what it looks for; `Err` in its answer says what it found instead.
pub async fn until<T>(
    what: &str,
    within: Duration,
    mut look: impl AsyncFnMut() -> Result<Result<T, String>>,
) -> Result<T> {
    let deadline = tokio::time::Instant::now() + within;
    loop {
        match look()
            .await
            .with_context(|| format!("waiting for {what}"))?
        {
            Ok(found) => return Ok(found),
            Err(found) if tokio::time::Instant::now() >= deadline => {
                bail!("waited {within:?} for {what}; found {found}")
            }
            Err(_) => tokio::time::sleep(LOOK).await,
        }
    }
}

/// The resource that the cases work on: room for all of them to move at once.
pub async fn intent(scenario: &Scenario, drain: &str, cohorts: &[Value]) -> Result<()> {
    let rollout = json!({"maxUnavailable": 64, "canary": {"nodes": 0}, "drain": {"policy": drain}});
    let object = json!({
        "apiVersion": "freehold.dev/v1alpha1", "kind": "AcceleratorCluster", "metadata": {"name": names::SINGLETON},
        "spec": {"cohorts": cohorts, "rollout": rollout},
    });
    scenario
        .cluster
        .apply_yaml(&object.to_string())
        .await
        .map(drop)
}

/// One node with a cohort of its own. Cases run side by side.
#[derive(Clone, Copy)]
pub struct Case<'a> {
    pub scenario: &'a Scenario,
    pub name: &'static str,
    pub owner: Owner,
}

/// What must not change while a node is blocked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marks {
    /// Freehold's labels.
    labels: BTreeMap<String, String>,
    /// Taints, fences included.
    taints: Vec<String>,
    /// UID of the Node.
    uid: Option<String>,
}

impl<'a> Case<'a> {
    pub const fn new(scenario: &'a Scenario, name: &'static str, owner: Owner) -> Self {
        Self {
            scenario,
            name,
            owner,
        }
    }

    /// The cohort, under one owner.
    pub fn cohort(name: &str, owner: Owner, more: &Value) -> Value {
        let mut cohort = json!({
            "name": name, "vendor": "NVIDIA", "owner": owner, "nodeSelector": {"matchLabels": {CASE: name}},
        });
        if let (Some(cohort), Some(more)) = (cohort.as_object_mut(), more.as_object()) {
            cohort.extend(more.clone());
        }
        cohort
    }

    /// Who has the node after the change.
    pub const fn other(&self) -> Owner {
        match self.owner {
            Owner::DevicePlugin => Owner::Dra,
            Owner::Dra => Owner::DevicePlugin,
        }
    }

    pub fn node(&self) -> Result<NodeHandle> {
        self.scenario.fleet.node(self.name)
    }

    /// Changes this case's cohort, and nobody else's.
    pub async fn want(&self, owner: Owner) -> Result<()> {
        self.want_with(owner, &json!({})).await
    }

    /// The same, with more fields of the cohort.
    pub async fn want_with(&self, owner: Owner, more: &Value) -> Result<()> {
        let resource = kube::core::ApiResource::erase::<AcceleratorCluster>(&());
        let api = Api::<DynamicObject>::all_with(self.scenario.cluster.admin(), &resource);
        let object = json!({
            "apiVersion": AcceleratorCluster::api_version(&()), "kind": "AcceleratorCluster",
            "metadata": {"name": names::SINGLETON}, "spec": {"cohorts": [Self::cohort(self.name, owner, more)]},
        });
        let params = PatchParams::apply(&format!("case-{}", self.name)).force();
        api.patch(names::SINGLETON, &params, &Patch::Apply(&object))
            .await?;
        Ok(())
    }

    pub async fn record(&self) -> Result<AcceleratorNode> {
        Ok(Api::<AcceleratorNode>::all(self.scenario.cluster.admin())
            .get(self.name)
            .await?)
    }

    /// What the agent says about NVIDIA's devices here.
    pub async fn report(&self) -> Result<VendorReport> {
        let report = self
            .record()
            .await?
            .status
            .and_then(|status| status.report)
            .context("a report")?;
        report
            .vendor(Vendor::Nvidia)
            .cloned()
            .context("NVIDIA's part of the report")
    }

    /// Waits for a state of the tenure.
    pub async fn tenure(
        &self,
        what: &str,
        holds: impl Fn(&TenureStatus) -> bool,
    ) -> Result<TenureStatus> {
        let what = format!("{} to be {what}", self.name);
        until(&what, SOON, async || {
            Ok(
                match self.scenario.tenure(self.name, Vendor::Nvidia).await? {
                    Some(tenure) if holds(&tenure) => Ok(tenure),
                    other => Err(format!("{other:?}")),
                },
            )
        })
        .await
    }

    /// Waits until an owner holds the node and nothing stands in the way.
    pub async fn held(&self, owner: Owner) -> Result<TenureStatus> {
        let tenure = self
            .tenure(&format!("held by {owner}"), |tenure| {
                tenure.step == Step::Held && tenure.owner == Some(owner) && tenure.reason.is_none()
            })
            .await?;
        let marks = self.marks().await?;
        ensure!(
            marks
                .labels
                .get(&names::owner_label(Vendor::Nvidia))
                .map(String::as_str)
                == Some(owner.word()),
            "{marks:?}"
        );
        ensure!(
            !marks
                .taints
                .iter()
                .any(|taint| taint.starts_with("freehold.dev/")),
            "unfenced: {marks:?}"
        );
        Ok(tenure)
    }

    /// Waits for a reason whose message has all these words; the next step is part of it.
    pub async fn blocked(&self, reason: Reason, words: &[&str]) -> Result<TenureStatus> {
        let tenure = self
            .tenure(&format!("{reason} with {words:?}"), |tenure| {
                tenure.reason == Some(reason)
                    && tenure
                        .message
                        .as_ref()
                        .is_some_and(|message| words.iter().all(|word| message.contains(word)))
            })
            .await?;
        ensure!(
            tenure
                .next_step
                .as_ref()
                .is_some_and(|step| !step.is_empty()),
            "{tenure:?} says what to do"
        );
        println!(
            "  {:<22} {:<22} {}",
            self.name,
            reason.name(),
            tenure.message.clone().unwrap_or_default()
        );
        Ok(tenure)
    }

    pub async fn marks(&self) -> Result<Marks> {
        let node = self.node()?.object().await?;
        let taints = node
            .spec
            .iter()
            .flat_map(|spec| spec.taints.iter().flatten());
        Ok(Marks {
            uid: node.uid(),
            labels: node
                .labels()
                .clone()
                .into_iter()
                .filter(|(key, _)| key.starts_with(names::NODE_LABEL_PREFIX))
                .collect(),
            taints: taints
                .map(|t| {
                    format!(
                        "{}={}:{}",
                        t.key,
                        t.value.clone().unwrap_or_default(),
                        t.effect
                    )
                })
                .collect(),
        })
    }

    /// For a while, owner labels and fence stay as they are and the controller writes nothing to the Node or about its order.
    pub async fn stays(&self, owner: Option<Owner>, seconds: u64) -> Result<()> {
        let (before, orders) = (self.marks().await?, self.record().await?.spec);
        let label = before
            .labels
            .get(&names::owner_label(Vendor::Nvidia))
            .map(String::as_str);
        ensure!(
            label == owner.map(Owner::word),
            "{}: the owner label is {label:?} while blocked",
            self.name
        );
        let audit = self.scenario.cluster.audit();
        let since = audit.mark().await?;
        // That something does not happen cannot be awaited, only watched for.
        let end = tokio::time::Instant::now() + Duration::from_secs(seconds);
        while tokio::time::Instant::now() < end {
            ensure!(
                self.marks().await? == before,
                "{}: {before:?} became {:?}",
                self.name,
                self.marks().await?
            );
            tokio::time::sleep(LOOK).await;
        }
        ensure!(
            self.record().await?.spec == orders,
            "{}: its orders changed while blocked",
            self.name
        );
        let ours = Filter::all()
            .service_account(names::SYSTEM_NAMESPACE, names::CONTROLLER_SERVICE_ACCOUNT)
            .resource("nodes")
            .name(self.name);
        let writes = audit.writes_since(since, &ours).await?;
        ensure!(
            writes.count() == 0,
            "{}: the controller wrote to the Node while blocked: {writes:?}",
            self.name
        );
        Ok(())
    }

    /// Waits until the owner label is gone.
    pub async fn revoked(&self) -> Result<()> {
        until(&format!("{} to be revoked", self.name), SOON, async || {
            let marks = self.marks().await?;
            Ok(
                if marks
                    .labels
                    .contains_key(&names::owner_label(Vendor::Nvidia))
                {
                    Err(format!("{marks:?}"))
                } else {
                    Ok(())
                },
            )
        })
        .await
    }

    /// Waits until the fence is up.
    pub async fn fenced(&self) -> Result<()> {
        self.fence(true).await
    }

    /// Waits until the fence is down.
    pub async fn unfenced(&self) -> Result<()> {
        self.fence(false).await
    }

    async fn fence(&self, up: bool) -> Result<()> {
        let fence = names::fence_taint(Vendor::Nvidia);
        let what = format!("the fence of {} to be {up}", self.name);
        until(&what, SOON, async || {
            let marks = self.marks().await?;
            let found = marks.taints.iter().any(|taint| taint.starts_with(&fence));
            Ok(if found == up {
                Ok(())
            } else {
                Err(format!("{marks:?}"))
            })
        })
        .await
    }

    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.scenario.cluster.admin(), ML)
    }

    fn claims(&self) -> Api<ResourceClaim> {
        Api::namespaced(self.scenario.cluster.admin(), ML)
    }

    /// A pod that the node's present owner serves, awaited until it runs. The scheduler binds it.
    pub async fn consumer(&self, name: &str) -> Result<Pod> {
        let spec = match self.owner {
            Owner::DevicePlugin => plugin_spec(),
            Owner::Dra => claim_spec(json!({"resourceClaimTemplateName": "two"})),
        };
        self.pod(name, spec).await
    }

    /// A pod on this node, by selector, awaited until it runs.
    pub async fn pod(&self, name: &str, mut spec: Value) -> Result<Pod> {
        if let Some(spec) = spec.as_object_mut() {
            spec.insert("nodeSelector".into(), json!({CASE: self.name}));
        }
        self.create_pod(name, spec).await?;
        self.running(name).await
    }

    /// A pod bound to this node by hand, as a scheduler does that has not seen the fence.
    pub async fn bound_pod(&self, name: &str, mut spec: Value) -> Result<Pod> {
        if let Some(spec) = spec.as_object_mut() {
            spec.insert("nodeName".into(), json!(self.name));
        }
        self.create_pod(name, spec).await
    }

    async fn create_pod(&self, name: &str, spec: Value) -> Result<Pod> {
        let pod = json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": ML, "labels": {"app": name}}, "spec": spec});
        self.scenario.cluster.apply_yaml(&pod.to_string()).await?;
        Ok(self.pods().get(name).await?)
    }

    pub async fn running(&self, name: &str) -> Result<Pod> {
        until(&format!("pod {name} to run"), SOON, async || {
            let pod = self.pods().get(name).await?;
            let status = pod.status.clone().unwrap_or_default();
            Ok(if status.phase.as_deref() == Some("Running") {
                Ok(pod)
            } else {
                Err(serde_json::to_string(&status)?)
            })
        })
        .await
    }

    pub async fn delete_pod(&self, name: &str) -> Result<()> {
        self.pods().delete(name, &DeleteParams::default()).await?;
        Ok(())
    }

    pub async fn force_delete_pod(&self, name: &str) -> Result<()> {
        self.pods()
            .delete(name, &DeleteParams::default().grace_period(0))
            .await?;
        Ok(())
    }

    pub async fn pod_gone(&self, name: &str) -> Result<()> {
        until(&format!("pod {name} to be gone"), SOON, async || {
            Ok(self.pods().get_opt(name).await?.map_or(Ok(()), |pod| {
                Err(format!("{:?}", pod.status.and_then(|s| s.phase)))
            }))
        })
        .await
    }

    /// A claim of this name that a device of this node is allocated to, written by hand as a scheduler does; `holder` says whom
    /// it is reserved for.
    pub async fn allocated_claim(
        &self,
        name: &str,
        device: &str,
        holder: Value,
    ) -> Result<ResourceClaim> {
        // Kubernetes deallocates a claim that nobody uses any more only if it carries the finalizer of whoever allocated it.
        let finalizers = json!(["resource.kubernetes.io/delete-protection"]);
        let claim = json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
            "metadata": {"name": name, "namespace": ML, "finalizers": finalizers},
            "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu.nvidia.com"}}]}}});
        self.scenario.cluster.apply_yaml(&claim.to_string()).await?;
        let driver = Vendor::Nvidia.dra_driver();
        let results =
            json!([{"request": "r", "driver": driver, "pool": self.name, "device": device}]);
        let selector = json!({"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [self.name]}]}]});
        let status = json!({"status": {
            "allocation": {"devices": {"results": results}, "nodeSelector": selector}, "reservedFor": [holder],
        }});
        Ok(self
            .claims()
            .patch_status(name, &PatchParams::default(), &Patch::Merge(status))
            .await?)
    }

    pub async fn claim(&self, name: &str) -> Result<Option<ResourceClaim>> {
        Ok(self.claims().get_opt(name).await?)
    }

    pub async fn patch_claim_status(&self, name: &str, patch: Value) -> Result<()> {
        self.claims()
            .patch_status(name, &PatchParams::default(), &Patch::Merge(patch))
            .await?;
        Ok(())
    }

    pub async fn delete_claim(&self, name: &str) -> Result<()> {
        self.claims().delete(name, &DeleteParams::default()).await?;
        Ok(())
    }

    pub async fn patch_node(&self, patch: Value) -> Result<Node> {
        let nodes = Api::<Node>::all(self.scenario.cluster.admin());
        Ok(nodes
            .patch(self.name, &PatchParams::default(), &Patch::Merge(patch))
            .await?)
    }
}

/// A container that asks the device plugin for one GPU.
pub fn plugin_spec() -> Value {
    json!({"terminationGracePeriodSeconds": 2, "containers": [{"name": "main", "image": "registry.example.com/train:v1",
        "resources": {"limits": {"nvidia.com/gpu": "1"}}}]})
}

/// A container with one claim, from wherever `source` says.
pub fn claim_spec(mut source: Value) -> Value {
    if let Some(source) = source.as_object_mut() {
        source.insert("name".into(), json!("gpus"));
    }
    json!({"terminationGracePeriodSeconds": 2, "resourceClaims": [source],
        "containers": [{"name": "main", "image": "registry.example.com/train:v1", "resources": {"claims": [{"name": "gpus"}]}}]})
}

/// Runs cases side by side and tells of all that fail, not just of the first.
pub async fn side_by_side(
    cases: Vec<(
        &'static str,
        futures::future::LocalBoxFuture<'_, Result<()>>,
    )>,
) -> Result<()> {
    let ended = futures::future::join_all(cases.into_iter().map(async |(name, case)| {
        let began = std::time::Instant::now();
        let result = case.await;
        let verdict = if result.is_ok() { "holds" } else { "FAILS" };
        println!("{verdict} after {:>3} s: {name}", began.elapsed().as_secs());
        (name, result)
    }))
    .await;
    let failures: Vec<String> = ended
        .into_iter()
        .filter_map(|(name, result)| result.err().map(|error| format!("{name}: {error:#}")))
        .collect();
    ensure!(
        failures.is_empty(),
        "{} case(s) failed:\n{}",
        failures.len(),
        failures.join("\n")
    );
    Ok(())
}
