//! What the explanation rests on, read piece by piece: a piece that cannot be read is said to be unreadable and spoils no other.

use std::collections::BTreeMap;

use freehold_api::{AcceleratorNode, VendorSpec};
use freehold_core::names;
use freehold_core::report::NodeReport;
use freehold_core::vendor::Vendor;
use jiff::Timestamp;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceSlice};
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt as _};
use serde::{Deserialize, Serialize, Serializer};

pub(super) use crate::seen::Consumer;
use crate::seen::{self, OurPod, Pool};
use crate::session::{Session, words};

/// Events shown; older ones say little about now.
const EVENTS: usize = 5;

/// Something read, or why it could not be.
type Read<T> = Result<T, String>;

/// Everything read about one node.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Evidence {
    #[serde(serialize_with = "readable")]
    pub(super) node: Read<Option<NodeEvidence>>,
    /// Orders to the agent, by vendor.
    pub(super) orders: BTreeMap<&'static str, VendorSpec>,
    /// The agent's answer.
    pub(super) report: Option<NodeReport>,
    #[serde(serialize_with = "readable")]
    pub(super) our_pods: Read<Vec<OurPod>>,
    #[serde(serialize_with = "readable")]
    pub(super) pools: Read<Vec<Pool>>,
    #[serde(serialize_with = "readable")]
    pub(super) consumers: Read<Vec<Consumer>>,
    #[serde(serialize_with = "readable")]
    pub(super) events: Read<Vec<EventEvidence>>,
}

/// What matters of the Node object.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct NodeEvidence {
    pub(super) uid: String,
    pub(super) boot_id: String,
    pub(super) ready: bool,
    pub(super) kubelet_version: String,
    #[serde(skip)]
    pub(super) labels: BTreeMap<String, String>,
    /// Our own labels.
    pub(super) our_labels: BTreeMap<String, String>,
    /// `key=value:effect`.
    pub(super) taints: Vec<String>,
    /// Extended resources of either vendor, zeros included.
    pub(super) allocatable: BTreeMap<String, String>,
}

/// An event about the node that Freehold published.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct EventEvidence {
    pub(super) last_seen: Option<Timestamp>,
    #[serde(rename = "type")]
    pub(super) type_: String,
    pub(super) reason: String,
    pub(super) note: String,
}

fn readable<T: Serialize, S: Serializer>(read: &Read<T>, serializer: S) -> Result<S::Ok, S::Error> {
    match read {
        Ok(value) => value.serialize(serializer),
        Err(why) => BTreeMap::from([("unreadable", why)]).serialize(serializer),
    }
}

/// Objects as read.
pub(super) struct Facts {
    pub(super) node: Read<Option<Node>>,
    pub(super) pods: Read<Vec<Pod>>,
    pub(super) slices: Read<Vec<ResourceSlice>>,
    pub(super) claims: Read<Vec<ResourceClaim>>,
    pub(super) events: Read<Vec<Event>>,
}

impl Evidence {
    /// Reads everything there is about a node.
    pub(super) async fn read(
        session: &Session,
        client: Client,
        name: &str,
        node: Read<Option<Node>>,
        record: Option<&AcceleratorNode>,
    ) -> Self {
        session.busy(format!("listing the pods of node {name}"));
        let pods: Read<Vec<Pod>> = list(&client, &format!("spec.nodeName={name}")).await;
        session.busy(format!("listing the ResourceSlices of node {name}"));
        let slices: Read<Vec<ResourceSlice>> = Api::<ResourceSlice>::all(client.clone())
            .list(&ListParams::default().fields(&format!("spec.nodeName={name}")))
            .await
            .map(|list| list.items)
            .map_err(|error| words(&error));
        session.busy("listing ResourceClaims");
        let claims: Read<Vec<ResourceClaim>> = list(&client, "").await;
        session.busy(format!("listing the events of node {name}"));
        let events: Read<Vec<Event>> = list(&client, &format!("involvedObject.name={name}")).await;
        Self::of(
            name,
            record,
            Facts {
                node,
                pods,
                slices,
                claims,
                events,
            },
        )
    }

    /// Puts together what was read.
    pub(super) fn of(name: &str, record: Option<&AcceleratorNode>, facts: Facts) -> Self {
        let Facts {
            node,
            pods,
            slices,
            claims,
            events,
        } = facts;
        Self {
            node: node.map(|node| node.as_ref().map(NodeEvidence::new)),
            orders: Vendor::ALL
                .into_iter()
                .filter_map(|vendor| Some((vendor.key(), record?.spec.vendor(vendor)?.clone())))
                .collect(),
            report: record.and_then(|record| record.status.as_ref()?.report.clone()),
            our_pods: pods
                .as_ref()
                .map(|pods| seen::our_pods(pods))
                .map_err(Clone::clone),
            pools: slices.map(|slices| seen::pools(name, &slices)),
            consumers: match (&pods, &claims) {
                (Ok(pods), Ok(claims)) => Ok(seen::consumers(name, pods, claims)),
                (Err(why), _) => Err(format!("pods: {why}")),
                (_, Err(why)) => Err(format!("claims: {why}")),
            },
            events: events.map(ours),
        }
    }
}

async fn list<K>(client: &Client, fields: &str) -> Read<Vec<K>>
where
    K: kube::Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + for<'de> Deserialize<'de>,
{
    let params = if fields.is_empty() {
        ListParams::default()
    } else {
        ListParams::default().fields(fields)
    };
    Api::<K>::all(client.clone())
        .list(&params)
        .await
        .map(|list| list.items)
        .map_err(|error| words(&error))
}

impl NodeEvidence {
    fn new(node: &Node) -> Self {
        let status = node.status.clone().unwrap_or_default();
        let info = status.node_info.unwrap_or_default();
        let labels = node.labels().clone();
        let taints = node
            .spec
            .as_ref()
            .and_then(|spec| spec.taints.clone())
            .unwrap_or_default();
        let owned = |resource: &str| {
            Vendor::ALL
                .into_iter()
                .any(|vendor| vendor.owns_resource(resource))
        };
        Self {
            uid: node.uid().unwrap_or_default(),
            boot_id: info.boot_id,
            ready: status
                .conditions
                .iter()
                .flatten()
                .any(|condition| condition.type_ == "Ready" && condition.status == "True"),
            kubelet_version: info.kubelet_version,
            our_labels: labels
                .iter()
                .filter(|(key, _)| key.starts_with(names::NODE_LABEL_PREFIX))
                .map(|(key, value)| (key.clone(), value.clone()))
                .collect(),
            labels,
            taints: taints
                .iter()
                .map(|taint| {
                    format!(
                        "{}={}:{}",
                        taint.key,
                        taint.value.as_deref().unwrap_or_default(),
                        taint.effect
                    )
                })
                .collect(),
            allocatable: status
                .allocatable
                .unwrap_or_default()
                .into_iter()
                .filter(|(resource, _)| owned(resource))
                .map(|(resource, count)| (resource, count.0))
                .collect(),
        }
    }
}

/// Freehold's events about the node and its record, newest first, each told once.
fn ours(events: Vec<Event>) -> Vec<EventEvidence> {
    let mut found: Vec<EventEvidence> = events
        .into_iter()
        .filter(|event| {
            event.reporting_component.as_deref() == Some(names::CONTROLLER_FIELD_MANAGER)
        })
        .map(|event| EventEvidence {
            last_seen: event
                .series
                .as_ref()
                .and_then(|series| series.last_observed_time.as_ref().map(|time| time.0))
                .or_else(|| event.event_time.as_ref().map(|time| time.0))
                .or_else(|| event.last_timestamp.as_ref().map(|time| time.0)),
            type_: event.type_.unwrap_or_default(),
            reason: event.reason.unwrap_or_default(),
            note: event.message.unwrap_or_default(),
        })
        .collect();
    found.sort_by_key(|event| std::cmp::Reverse(event.last_seen));
    // The same transition is told on the Node and on its record.
    found.dedup_by(|later, kept| (&later.reason, &later.note) == (&kept.reason, &kept.note));
    found.truncate(EVENTS);
    found
}
