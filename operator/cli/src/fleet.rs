//! What the controller has published about the whole cluster, read once.

use freehold_api::{AcceleratorCluster, AcceleratorNode};
use freehold_core::blocker::Reason;
use freehold_core::names;
use freehold_core::tenure::Step;
use freehold_core::vendor::{Owner, Vendor};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt as _};
use serde::Serialize;

use crate::age;
use crate::exit::{Exit, Failure};
use crate::health::Health;
use crate::session::{is_not_found, words};

/// Nodes asked for at once. A page of 500 AcceleratorNodes is at most 2 MiB.
const PAGE: u32 = 500;

/// A lease that was not renewed for this many of its durations belongs to a controller that is gone. It is renewed every
/// half duration, and clocks differ.
const LEASE_PATIENCE: i64 = 3;

/// One vendor on one node.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Place {
    pub(crate) node: String,
    pub(crate) vendor: Vendor,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cohort: Option<String>,
    /// Owner whose labels the node carries.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) owner: Option<Owner>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) step: Option<Step>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) since: Option<Timestamp>,
    pub(crate) health: Health,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<Reason>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) id: Option<&'static str>,
    /// Where the documentation tells more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) docs: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) message: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next_step: Option<String>,
}

/// Reads the places off the records: every vendor that a record orders something about or tells something about.
pub(crate) fn places(records: &[AcceleratorNode]) -> Vec<Place> {
    let mut places: Vec<Place> = records
        .iter()
        .flat_map(|record| {
            Vendor::ALL
                .into_iter()
                .filter_map(|vendor| place(record, vendor))
        })
        .collect();
    sort(&mut places);
    places
}

/// Sorts by node as people count, then by vendor.
pub(crate) fn sort(places: &mut [Place]) {
    places.sort_by_cached_key(|place| (natural(&place.node), place.vendor));
}

/// One vendor's place in a record.
pub(crate) fn place(record: &AcceleratorNode, vendor: Vendor) -> Option<Place> {
    let node = record.name_any();
    let tenure = record
        .status
        .as_ref()
        .and_then(|status| status.tenures.vendor(vendor));
    if let Some(tenure) = tenure {
        let next_step = tenure
            .next_step
            .as_ref()
            .map(|step| step.replace("<node>", &node));
        return Some(Place {
            vendor,
            cohort: tenure.cohort.clone(),
            owner: tenure.owner,
            step: Some(tenure.step),
            since: Some(tenure.since.0),
            health: Health::of(tenure),
            reason: tenure.reason,
            id: tenure.reason.map(Reason::id),
            docs: tenure.reason.map(Reason::anchor),
            message: tenure.message.clone(),
            next_step,
            node,
        });
    }
    let order = record.spec.vendor(vendor)?;
    Some(Place {
        node,
        vendor,
        cohort: order.cohort.clone(),
        owner: None,
        step: None,
        since: record
            .metadata
            .creation_timestamp
            .as_ref()
            .map(|time| time.0),
        health: Health::Unknown,
        reason: None,
        id: None,
        docs: None,
        message: None,
        next_step: None,
    })
}

/// A key that sorts `n2` before `n10`.
fn natural(name: &str) -> Vec<(u64, String)> {
    let mut key = Vec::new();
    let mut rest = name;
    while !rest.is_empty() {
        let digits = rest
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(rest.len());
        let (number, tail) = rest.split_at(digits);
        let text = tail
            .find(|c: char| c.is_ascii_digit())
            .unwrap_or(tail.len());
        let (text, tail) = tail.split_at(text);
        // Names that begin with text sort before numbers; a number too long for u64 sorts last.
        let number = if number.is_empty() {
            0
        } else {
            number
                .parse()
                .map_or(u64::MAX, |n: u64| n.saturating_add(1))
        };
        key.push((number, text.to_owned()));
        rest = tail;
    }
    key
}

/// Whether somebody keeps the published state up to date.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "camelCase")]
pub(crate) enum Controller {
    /// The lease is being renewed.
    Alive,
    /// The lease was not renewed since.
    Silent {
        /// Last renewal.
        since: Timestamp,
    },
    /// There is no lease, or nobody holds it.
    Absent,
    /// The lease could not be read.
    Unreadable {
        /// Why.
        why: String,
    },
}

impl Controller {
    fn of(lease: Option<&Lease>, now: Timestamp) -> Self {
        let Some(spec) = lease.and_then(|lease| lease.spec.as_ref()) else {
            return Self::Absent;
        };
        let held = spec
            .holder_identity
            .as_deref()
            .is_some_and(|holder| !holder.is_empty());
        let (true, Some(renewed)) = (held, spec.renew_time.as_ref()) else {
            return Self::Absent;
        };
        let patience =
            i64::from(spec.lease_duration_seconds.unwrap_or(60)).saturating_mul(LEASE_PATIENCE);
        if now.as_second().saturating_sub(renewed.0.as_second()) > patience {
            Self::Silent { since: renewed.0 }
        } else {
            Self::Alive
        }
    }

    /// What it means for the exit code. A viewer who may not read leases is not told off for it.
    pub(crate) const fn exit(&self) -> Exit {
        match self {
            Self::Alive | Self::Unreadable { .. } => Exit::Fine,
            Self::Silent { .. } | Self::Absent => Exit::Undetermined,
        }
    }

    /// What a reader must know about it.
    pub(crate) fn note(&self, now: Timestamp) -> Option<String> {
        let look = format!("See: kubectl -n {} get pods", names::SYSTEM_NAMESPACE);
        match self {
            Self::Alive => None,
            Self::Silent { since } => {
                let age = age::since(*since, now);
                Some(format!(
                    "The controller last renewed its lease {age} ago: this may be out of date. {look}"
                ))
            }
            Self::Absent => Some(format!(
                "No controller holds the lease: this may be out of date. {look}"
            )),
            Self::Unreadable { why } => Some(format!(
                "Whether the controller runs is not known: its lease is unreadable ({why})."
            )),
        }
    }

    /// Reads the controller's lease.
    pub(crate) async fn read(client: Client, now: Timestamp) -> Self {
        match Api::<Lease>::namespaced(client, names::SYSTEM_NAMESPACE)
            .get_opt(names::LEASE)
            .await
        {
            Ok(lease) => Self::of(lease.as_ref(), now),
            Err(error) => Self::Unreadable { why: words(&error) },
        }
    }
}

/// Everything `status` and `watch` start from.
pub(crate) struct Fleet {
    pub(crate) cluster: AcceleratorCluster,
    pub(crate) places: Vec<Place>,
    pub(crate) controller: Controller,
    /// The AcceleratorCluster was deleted, and its teardown is over.
    pub(crate) gone: bool,
}

impl Fleet {
    /// Reads it, saying what it is busy with.
    pub(crate) async fn read(
        client: Client,
        now: Timestamp,
        busy: impl Fn(&'static str),
    ) -> Result<Self, Failure> {
        busy("reading the AcceleratorCluster");
        let cluster = cluster(client.clone()).await?;
        busy("listing AcceleratorNodes");
        let records = records(client.clone()).await?;
        busy("reading the controller's lease");
        let controller = Controller::read(client, now).await;
        Ok(Self {
            cluster,
            places: places(&records),
            controller,
            gone: false,
        })
    }
}

/// The one AcceleratorCluster.
pub(crate) async fn cluster(client: Client) -> Result<AcceleratorCluster, Failure> {
    cluster_opt(client).await?.ok_or_else(|| {
        Failure::undetermined(
            "there is no AcceleratorCluster \"cluster\": Freehold owns nothing here. Create one (kubectl apply -f <file>), \
             or check the installation: kubectl freehold preflight",
        )
    })
}

/// The one AcceleratorCluster, if there is one.
pub(crate) async fn cluster_opt(client: Client) -> Result<Option<AcceleratorCluster>, Failure> {
    // A list tells a missing CRD (404) from a missing object (empty).
    let list = Api::<AcceleratorCluster>::all(client)
        .list(&ListParams::default())
        .await;
    let list = list.map_err(|error| unreadable("AcceleratorClusters", &error))?;
    Ok(list
        .items
        .into_iter()
        .find(|cluster| cluster.name_any() == names::SINGLETON))
}

/// Every AcceleratorNode.
pub(crate) async fn records(client: Client) -> Result<Vec<AcceleratorNode>, Failure> {
    let api = Api::<AcceleratorNode>::all(client);
    let mut records = Vec::new();
    let mut page = ListParams::default().limit(PAGE);
    loop {
        let list = api
            .list(&page)
            .await
            .map_err(|error| unreadable("AcceleratorNodes", &error))?;
        records.extend(list.items);
        match list.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => page = page.continue_token(&token),
            None => return Ok(records),
        }
    }
}

/// Says why something at the heart of the answer could not be read.
pub(crate) fn unreadable(what: &str, error: &kube::Error) -> Failure {
    if is_not_found(error) {
        Failure::undetermined(format!(
            "the API server knows no {what}: the custom resource definitions of freehold.dev are not installed. See: \
             kubectl freehold preflight"
        ))
    } else {
        Failure::undetermined(format!("cannot read {what}: {}", words(error)))
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::coordination::v1::LeaseSpec;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

    use super::*;

    #[test]
    fn names_sort_as_people_count() {
        let mut names = vec!["n10", "n2", "gpu-b1", "n2-a", "10.0.0.9", "10.0.0.10"];
        names.sort_by_key(|name| natural(name));
        assert_eq!(
            names,
            ["gpu-b1", "n2", "n2-a", "n10", "10.0.0.9", "10.0.0.10"]
        );
    }

    fn lease(holder: &str, renewed: i64) -> Lease {
        Lease {
            spec: Some(LeaseSpec {
                holder_identity: Some(holder.into()),
                lease_duration_seconds: Some(60),
                renew_time: Some(MicroTime(Timestamp::from_second(renewed).expect("a time"))),
                ..LeaseSpec::default()
            }),
            ..Lease::default()
        }
    }

    #[test]
    fn a_controller_counts_as_silent_only_well_after_its_lease_ended() {
        let now = Timestamp::from_second(10_000).expect("a time");
        assert_eq!(
            Controller::of(Some(&lease("pod-1", 9_850)), now),
            Controller::Alive
        );
        assert!(matches!(
            Controller::of(Some(&lease("pod-1", 9_800)), now),
            Controller::Silent { .. }
        ));
        assert_eq!(
            Controller::of(Some(&lease("", 9_999)), now),
            Controller::Absent
        );
        assert_eq!(Controller::of(None, now), Controller::Absent);
    }
}
