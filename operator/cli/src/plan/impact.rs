//! Who still asks for resource names that a plan takes away (H110): a move to DRA, or to other names, drains the pods that run,
//! and leaves behind templates that ask for what nobody offers any more, and quotas that count what nobody asks for.

use std::collections::{BTreeMap, BTreeSet};

use freehold_core::expect::{Expected, expected};
use freehold_core::intent::{Cohort, Intent};
use freehold_core::vendor::{Owner, Vendor};
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, StatefulSet};
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::{Pod, PodSpec};
use kube::api::ListParams;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::World;
use super::moves::Move;
use crate::session::{is_not_found, words};

/// Objects asked for at once.
const PAGE: u32 = 250;
/// The group of Kueue's queues.
const KUEUE: &str = "kueue.x-k8s.io";

/// One resource name that nodes stop to offer, and who still asks for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Impact {
    /// The name, e.g. `nvidia.com/gpu`.
    pub(super) resource: String,
    /// Nodes that stop to offer it.
    pub(super) nodes: usize,
    /// Nodes that go on offering it.
    pub(super) elsewhere: usize,
    /// Workloads and queues, as `Kind namespace/name`, sorted.
    pub(super) asked_by: Vec<String>,
}

/// Names that each moving node stops to offer.
pub(super) fn lost(world: &World, intent: &Intent, moves: &[Move]) -> Vec<Impact> {
    let mut gone: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    for move_ in moves
        .iter()
        .filter(|move_| move_.class.fences() && move_.from == Some(Owner::DevicePlugin))
    {
        let Some(node) = world.nodes.iter().find(|node| node.name == move_.node) else {
            continue;
        };
        let target = move_
            .to_cohort
            .as_ref()
            .and_then(|name| intent.cohorts.get(name));
        let record = world.records.get(&move_.node);
        let report = record.and_then(|record| record.status.as_ref()?.report.as_ref());
        let report = report.and_then(|report| report.vendor(move_.vendor));
        let Some(kept) = offered(target, report) else {
            continue;
        };
        for (resource, count) in &node.allocatable {
            if *count > 0 && move_.vendor.owns_resource(resource) && !kept.contains(resource) {
                gone.entry(resource.clone()).or_default().insert(&node.name);
            }
        }
    }
    gone.into_iter()
        .map(|(resource, nodes)| Impact {
            nodes: nodes.len(),
            elsewhere: world
                .nodes
                .iter()
                .filter(|node| {
                    node.allocatable
                        .get(&resource)
                        .is_some_and(|count| *count > 0)
                        && !nodes.contains(node.name.as_str())
                })
                .count(),
            asked_by: Vec::new(),
            resource,
        })
        .collect()
}

/// Names that plain requests may use on a node of this cohort; `None` where that is not known.
fn offered(
    cohort: Option<&Cohort>,
    report: Option<&freehold_core::report::VendorReport>,
) -> Option<BTreeSet<String>> {
    let Some(cohort) = cohort else {
        return Some(BTreeSet::new());
    };
    match cohort.owner {
        Owner::DevicePlugin => match expected(cohort, report?) {
            Ok(Expected::Resources(resources)) => Some(resources.into_keys().collect()),
            Ok(Expected::AnyResource | Expected::Devices { .. } | Expected::AtLeastDevices(_))
            | Err(_) => None,
        },
        // A class that answers plain requests answers those for whole devices.
        Owner::Dra => Some(if cohort.dra.publishes_extended_resource {
            let whole = match cohort.vendor {
                Vendor::Nvidia => "nvidia.com/gpu",
                Vendor::Neuron => "aws.amazon.com/neuron",
            };
            BTreeSet::from([whole.to_owned()])
        } else {
            BTreeSet::new()
        }),
    }
}

/// Finds who asks, page by page. What cannot be read is noted, and the rest is told.
pub(super) async fn find(client: &Client, impacts: &mut [Impact], notes: &mut Vec<String>) {
    if impacts.is_empty() {
        return;
    }
    let mut askers = Askers {
        client,
        impacts,
        notes,
    };
    askers
        .all::<Deployment>(|it| it.spec.as_ref()?.template.spec.as_ref())
        .await;
    askers
        .all::<StatefulSet>(|it| it.spec.as_ref()?.template.spec.as_ref())
        .await;
    askers
        .all::<DaemonSet>(|it| it.spec.as_ref()?.template.spec.as_ref())
        .await;
    askers
        .all::<CronJob>(|it| {
            let job = &it.spec.job_template;
            job.spec.as_ref()?.template.spec.as_ref()
        })
        .await;
    // What a controller makes is told by its controller.
    askers
        .all::<Job>(|it| {
            let ended = it
                .status
                .as_ref()
                .is_some_and(|status| status.completion_time.is_some());
            (!ended && !is_controlled(it)).then(|| it.spec.as_ref()?.template.spec.as_ref())?
        })
        .await;
    askers
        .all::<Pod>(|it| {
            let phase = it
                .status
                .as_ref()
                .and_then(|status| status.phase.as_deref());
            let ended = matches!(phase, Some("Succeeded" | "Failed"));
            (!ended && !is_controlled(it)).then_some(it.spec.as_ref())?
        })
        .await;
    askers.queues().await;
    for impact in impacts {
        impact.asked_by.sort();
        impact.asked_by.dedup();
    }
}

fn is_controlled<K: Resource>(object: &K) -> bool {
    let owners = object.meta().owner_references.iter().flatten();
    owners
        .into_iter()
        .any(|owner| owner.controller == Some(true))
}

struct Askers<'a> {
    client: &'a Client,
    impacts: &'a mut [Impact],
    notes: &'a mut Vec<String>,
}

impl Askers<'_> {
    async fn all<K>(&mut self, spec: fn(&K) -> Option<&PodSpec>)
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
    {
        let api = Api::<K>::all(self.client.clone());
        let mut page = ListParams::default().limit(PAGE);
        loop {
            let list = match api.list(&page).await {
                Ok(list) => list,
                Err(error) => {
                    let kind = K::kind(&());
                    self.notes.push(format!(
                        "Whether a {kind} asks for a resource that goes is not known: {}.",
                        words(&error)
                    ));
                    return;
                }
            };
            for item in &list.items {
                let who = || named(&K::kind(&()), item);
                if let Some(spec) = spec(item) {
                    note(self.impacts, |resource| asks(spec, resource), who);
                }
            }
            match list.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => page = page.continue_token(&token),
                None => return,
            }
        }
    }

    /// Kueue's ClusterQueues, where they are served.
    async fn queues(&mut self) {
        let groups = match self.client.list_api_groups().await {
            Ok(groups) => groups.groups,
            Err(error) => {
                let why = words(&error);
                self.notes.push(format!("Queues are not known: {why}."));
                return;
            }
        };
        let served = groups.into_iter().find(|group| group.name == KUEUE);
        let Some(version) = served.and_then(|group| Some(group.preferred_version?.version)) else {
            return;
        };
        let kind = GroupVersionKind::gvk(KUEUE, &version, "ClusterQueue");
        let resource = ApiResource::from_gvk_with_plural(&kind, "clusterqueues");
        let api = Api::<DynamicObject>::all_with(self.client.clone(), &resource);
        match api.list(&ListParams::default()).await {
            Ok(queues) => {
                for queue in &queues.items {
                    let who = || format!("ClusterQueue {}", queue.name_any());
                    note(self.impacts, |resource| covers(&queue.data, resource), who);
                }
            }
            Err(error) if is_not_found(&error) => {}
            Err(error) => {
                let why = words(&error);
                self.notes
                    .push(format!("ClusterQueues cannot be read: {why}."));
            }
        }
    }
}

fn named<K: Resource>(kind: &str, object: &K) -> String {
    match object.namespace() {
        Some(namespace) => format!("{kind} {namespace}/{}", object.name_any()),
        None => format!("{kind} {}", object.name_any()),
    }
}

fn note(impacts: &mut [Impact], asks: impl Fn(&str) -> bool, who: impl Fn() -> String) {
    for impact in impacts {
        if asks(&impact.resource) {
            impact.asked_by.push(who());
        }
    }
}

/// Whether a container, of whatever kind, asks for a resource by name.
fn asks(spec: &PodSpec, resource: &str) -> bool {
    let containers = spec
        .containers
        .iter()
        .chain(spec.init_containers.iter().flatten());
    containers.into_iter().any(|container| {
        container.resources.as_ref().is_some_and(|resources| {
            let asked = [&resources.limits, &resources.requests];
            asked
                .into_iter()
                .flatten()
                .any(|map| map.get(resource).is_some_and(|count| count.0 != "0"))
        })
    })
}

/// Whether a ClusterQueue gives out quota of a resource.
fn covers(queue: &Value, resource: &str) -> bool {
    let groups = queue
        .pointer("/spec/resourceGroups")
        .and_then(Value::as_array);
    groups.into_iter().flatten().any(|group| {
        let covered = group.get("coveredResources").and_then(Value::as_array);
        covered
            .into_iter()
            .flatten()
            .any(|name| name.as_str() == Some(resource))
    })
}

/// Names shown of those who ask for one resource; `-o wide` and structured output have all.
const NAMED: usize = 10;

/// The section for people.
pub(super) fn text(impacts: &[Impact], wide: bool) -> Vec<String> {
    let mut lines = Vec::new();
    for impact in impacts.iter().filter(|impact| !impact.asked_by.is_empty()) {
        let Impact {
            resource,
            nodes,
            elsewhere,
            asked_by,
        } = impact;
        lines.push(format!(
            "ConsumerImpact: {nodes} node(s) stop offering {resource}, {elsewhere} go on; asked for by {}:",
            asked_by.len()
        ));
        let shown = if wide { asked_by.len() } else { NAMED };
        lines.extend(asked_by.iter().take(shown).map(|who| format!("  {who}")));
        if let Some(more) = asked_by.len().checked_sub(shown).filter(|more| *more > 0) {
            lines.push(format!("  and {more} more (-o wide names all)"));
        }
    }
    if !lines.is_empty() {
        lines.push(
            "  Have them ask for claims (a size's ResourceClaimTemplate), or let the class answer plain requests \
             (nvidia.dra.extendedResourceName: Publish, Kubernetes 1.36). A ClusterQueue counts claims only with a mapping of their \
             DeviceClass; without one its quota no longer holds."
                .to_owned(),
        );
    }
    lines
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn impact() -> Impact {
        Impact {
            resource: "nvidia.com/gpu".into(),
            nodes: 2,
            elsewhere: 0,
            asked_by: vec![],
        }
    }

    #[test]
    fn any_container_that_asks_counts_and_a_request_for_none_does_not() {
        let spec = |field: &str, count: &str| -> PodSpec {
            let mut spec = json!({"containers": []});
            spec[field] =
                json!([{"name": "c", "resources": {"limits": {"nvidia.com/gpu": count}}}]);
            serde_json::from_value(spec).unwrap()
        };
        for field in ["containers", "initContainers"] {
            assert!(asks(&spec(field, "1"), "nvidia.com/gpu"), "{field}");
            assert!(!asks(&spec(field, "0"), "nvidia.com/gpu"));
            assert!(!asks(&spec(field, "1"), "nvidia.com/gpu.shared"));
        }
    }

    #[test]
    fn a_queue_covers_what_one_of_its_groups_names() {
        let queue = json!({"spec": {"resourceGroups": [
            {"coveredResources": ["cpu"]}, {"coveredResources": ["memory", "nvidia.com/gpu"]}]}});
        assert!(covers(&queue, "nvidia.com/gpu"));
        assert!(!covers(&queue, "aws.amazon.com/neuron"));
        assert!(!covers(&json!({"spec": {}}), "nvidia.com/gpu"));
    }

    #[test]
    fn who_asks_is_listed_up_to_a_bound_and_nobody_is_no_section() {
        let mut impacts = [impact()];
        assert!(text(&impacts, false).is_empty());
        for n in 0..14 {
            let who = || format!("Deployment ml/train-{n:02}");
            note(&mut impacts, |resource| resource == "nvidia.com/gpu", who);
        }
        let lines = text(&impacts, false).join("\n");
        for word in [
            "ConsumerImpact",
            "2 node(s)",
            "by 14",
            "ml/train-00",
            "and 4 more",
        ] {
            assert!(lines.contains(word), "{lines}");
        }
        assert!(text(&impacts, true).join("\n").contains("ml/train-13"));
    }

    #[test]
    fn a_node_that_leaves_every_cohort_offers_nothing_more() {
        assert_eq!(offered(None, None), Some(BTreeSet::new()));
    }
}
