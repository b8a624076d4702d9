//! Places in the budget, claimed in the AcceleratorCluster's status before a fence goes up: who may have one is `core`'s to say,
//! see `freehold_core::rollout::claim`.
//!
//! One claim is under way at a time, for all nodes that ask: fenced nodes are listed, `core` says who fits, and the claims are
//! written on the version of the AcceleratorCluster that was known before the list.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use freehold_api::{AcceleratorCluster, StartingStatus};
use freehold_core::blocker::{Blocker, Reason};
use freehold_core::names;
use freehold_core::rollout::{self, Claim};
use freehold_core::vendor::Vendor;
use jiff::Timestamp;
use kube::api::ListParams;
use kube::{Api, Client};

use super::Engine;
use super::answers::Reply;
use crate::act::{WriteError, timed};
use crate::observe::entry::{LabelKeys, NodeEntry};
use crate::observe::slim::SlimNode;
use crate::publish;

/// Pause of a node whose place turned out to be taken, or whose claim failed. By then the watch has usually told of what took it.
const PAUSE: Duration = Duration::from_secs(1);

/// One vendor on one node.
type Tenure = (String, Vendor);

/// What is remembered about claims.
#[derive(Default)]
pub(super) struct Claimer {
    /// Who asks for a place.
    asked: BTreeSet<Tenure>,
    /// Who got none, and until when it does not ask again.
    refused: BTreeMap<Tenure, Instant>,
    busy: bool,
}

/// What was read before a claim is made.
pub(super) struct Places {
    /// The AcceleratorCluster that was known before.
    cluster: Box<AcceleratorCluster>,
    /// Tenures behind a fence.
    fenced: BTreeSet<Tenure>,
    /// Claims whose node is gone, or has another version than a cache that lags shows.
    void: BTreeSet<Claim>,
}

impl Engine {
    /// Whether a place is claimed for this version of a node.
    pub(super) fn claimed(&self, node: &NodeEntry, vendor: Vendor) -> bool {
        let status = self
            .world
            .cluster()
            .and_then(|cluster| cluster.status.as_ref());
        status.is_some_and(|status| {
            status.starting.iter().any(|starting| {
                starting.node == node.view.name
                    && starting.vendor == vendor
                    && starting.resource_version == node.resource_version
            })
        })
    }

    /// What a tenure that asks for a place, or was refused one, is told while that is so.
    pub(super) fn place_asked(&self, name: &str, vendor: Vendor) -> Option<Result<(), Blocker>> {
        let tenure = (name.to_owned(), vendor);
        if self.claimer.asked.contains(&tenure) {
            return Some(Ok(()));
        }
        let until = self.claimer.refused.get(&tenure)?;
        (*until > Instant::now()).then(|| {
            Err(Blocker::new(
                Reason::BudgetExhausted,
                "waiting for a place: those that were free have just been taken",
            ))
        })
    }

    /// Notes whether a tenure asks for a place.
    pub(super) fn ask_for_place(&mut self, name: &str, vendor: Vendor, asks: bool) {
        let tenure = (name.to_owned(), vendor);
        if asks {
            self.claimer.asked.insert(tenure);
        } else {
            self.claimer.asked.remove(&tenure);
        }
    }

    /// A replica that begins to lead has asked for nothing.
    pub(super) fn forget_asked_places(&mut self) {
        self.claimer.asked.clear();
    }

    /// Starts a claim for all who ask, unless a write of the same object is under way.
    pub(super) fn claim_places(&mut self, now: Instant) {
        self.claimer.refused.retain(|_, until| *until > now);
        if self.claimer.asked.is_empty() || self.claimer.busy || self.teller.is_busy() {
            return;
        }
        let Some(cluster) = self.world.cluster().cloned() else {
            return;
        };
        self.claimer.busy = true;
        self.teller.set_busy(true);
        let unsure = claims(&cluster)
            .filter(|claim| {
                let known = self.world.nodes.get(&claim.node);
                known.is_none_or(|node| {
                    node.resource_version != claim.version
                        && !claim.is_spent(&node.resource_version)
                })
            })
            .collect();
        let (client, reply) = (self.client.clone(), self.reply.clone());
        tokio::spawn(async move {
            let read = timed(async { Ok(read_places(client, cluster, unsure).await?) }).await;
            let _ = reply.send(Reply::Places(read.map(Box::new)));
        });
    }

    /// Decides who gets a place, and writes the claims.
    pub(super) fn take_places(&mut self, read: Result<Box<Places>, WriteError>, now: Instant) {
        let asked = std::mem::take(&mut self.claimer.asked);
        let claimed = read
            .map_err(Some)
            .and_then(|places| self.decide_places(*places, &asked).ok_or(None));
        match claimed {
            Ok((cluster, status, granted)) => {
                let refused = asked.difference(&granted).cloned().collect();
                self.refuse_places(refused, now);
                // They keep asking until the answer is there.
                self.claimer.asked = granted;
                let (client, reply) = (self.client.clone(), self.reply.clone());
                tokio::spawn(async move {
                    let result = publish::cluster::write(client, &cluster, status)
                        .await
                        .map(Box::new);
                    let _ = reply.send(Reply::Claimed { result });
                });
            }
            Err(error) => {
                if let Some(error) = error {
                    tracing::warn!(%error, "fenced nodes not listed; places are claimed later");
                }
                self.claimer.busy = false;
                self.teller.set_busy(false);
                self.refuse_places(asked, now);
            }
        }
    }

    #[allow(
        clippy::type_complexity,
        reason = "handed from one function to the next, and named nowhere else"
    )]
    fn decide_places(
        &self,
        places: Places,
        asked: &BTreeSet<Tenure>,
    ) -> Option<(
        Box<AcceleratorCluster>,
        freehold_api::AcceleratorClusterStatus,
        BTreeSet<Tenure>,
    )> {
        let Places {
            cluster,
            fenced,
            void,
        } = places;
        if !self.acts() {
            return None;
        }
        let now_s = Timestamp::now().as_second();
        let open: Vec<Claim> = self
            .open_claims(&cluster)
            .filter(|claim| !void.contains(claim))
            .collect();
        let asked: Vec<Claim> = asked
            .iter()
            .filter_map(|(node, vendor)| {
                Some(Claim {
                    node: node.clone(),
                    vendor: *vendor,
                    version: self.world.nodes.get(node)?.resource_version.clone(),
                })
            })
            .collect();
        let standings = self.standings(now_s);
        let wanted = self.wanted.as_ref()?;
        let rules = Self::rules(&cluster, wanted, now_s);
        let granted = rollout::claim(&rules, &standings, &open, &fenced, &asked);
        if granted.is_empty() {
            return None;
        }
        let tenures = granted.iter().map(Claim::tenure).collect();
        let mut status = self.cluster_status(&cluster, wanted, &self.outcomes());
        status.starting = open.into_iter().chain(granted).map(starting).collect();
        Some((cluster, status, tenures))
    }

    pub(super) fn take_claimed(
        &mut self,
        result: Result<Box<AcceleratorCluster>, WriteError>,
        now: Instant,
    ) {
        self.claimer.busy = false;
        let asked = std::mem::take(&mut self.claimer.asked);
        if result.is_err() {
            self.refuse_places(asked, now);
        } else {
            self.world
                .dirty
                .nodes
                .extend(asked.into_iter().map(|(node, _)| node));
        }
        self.take_cluster(result, now);
    }

    fn refuse_places(&mut self, refused: BTreeSet<Tenure>, now: Instant) {
        for tenure in refused {
            let again = now + PAUSE;
            self.timers.insert((again, tenure.0.clone()));
            self.world.dirty.nodes.insert(tenure.0.clone());
            self.claimer.refused.insert(tenure, again);
        }
    }

    /// Claims that are not known to be spent.
    pub(super) fn open_claims<'a>(
        &'a self,
        cluster: &'a AcceleratorCluster,
    ) -> impl Iterator<Item = Claim> + 'a {
        claims(cluster).filter(|claim| {
            let known = self.world.nodes.get(&claim.node);
            !known.is_some_and(|node| claim.is_spent(&node.resource_version))
        })
    }
}

/// A claim as the status has it.
pub(super) fn starting(claim: Claim) -> StartingStatus {
    let Claim {
        node,
        vendor,
        version,
    } = claim;
    StartingStatus {
        node,
        vendor,
        resource_version: version,
    }
}

fn claims(cluster: &AcceleratorCluster) -> impl Iterator<Item = Claim> {
    let starting = cluster.status.iter().flat_map(|status| &status.starting);
    starting.map(|starting| Claim {
        node: starting.node.clone(),
        vendor: starting.vendor,
        version: starting.resource_version.clone(),
    })
}

/// Lists fenced nodes from the API server: the label that keeps the agent there goes up and comes down with the fence.
async fn read_places(
    client: Client,
    cluster: AcceleratorCluster,
    unsure: Vec<Claim>,
) -> kube::Result<Places> {
    let api = Api::<SlimNode>::all(client);
    let keys = LabelKeys::default();
    let mut fenced = BTreeSet::new();
    let mut note = |node: SlimNode| {
        let entry = NodeEntry::new(node, &keys);
        for vendor in Vendor::ALL {
            if entry.fence(vendor).is_some() {
                fenced.insert((entry.view.name.clone(), vendor));
            }
        }
        entry.resource_version
    };
    let labelled = ListParams::default().labels(&format!("{}=true", names::agent_label()));
    for node in api.list(&labelled).await?.items {
        note(node);
    }
    let mut void = BTreeSet::new();
    for claim in unsure {
        let version = api.get_opt(&claim.node).await?.map(&mut note);
        if version.as_ref() != Some(&claim.version) {
            void.insert(claim);
        }
    }
    Ok(Places {
        cluster: Box::new(cluster),
        fenced,
        void,
    })
}
