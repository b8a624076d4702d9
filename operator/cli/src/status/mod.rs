//! `status`: whether everything is as it should be; if not, where and why.

mod text;
mod verdict;

use std::collections::{BTreeMap, BTreeSet};

use clap::Args;
use freehold_api::{AcceleratorCluster, BlockerStatus};
use freehold_core::vendor::{Owner, Vendor};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::ListParams;
use kube::{Api, Client};
use serde::Serialize;

use crate::exit::{Exit, Failure};
use crate::fleet::{Controller, Fleet, Place, unreadable};
use crate::health::Health;
use crate::output::{self, Answer, Look};
use crate::session::Session;

pub(crate) use verdict::{Verdict, place_name};

/// Options of `status`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    /// Only nodes with these labels; the verdict is about them alone.
    #[arg(short = 'l', long, value_name = "LABELS")]
    selector: Option<String>,
    /// List only nodes that are doing so; the verdict stays that of all.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "HEALTH")]
    status_selector: Vec<Health>,
    /// Put nodes with the same trouble together; with false, one line per node.
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set, value_name = "BOOL")]
    grouping: bool,
}

/// Runs the command.
pub(crate) async fn run(session: &Session, options: Options) -> Result<Exit, Failure> {
    let mut fleet = Fleet::read(session.client().await?, session.now(), |doing| {
        session.busy(doing);
    })
    .await?;
    if let Some(selector) = &options.selector {
        session.busy("listing Nodes by label");
        let nodes = nodes_with(session.client().await?, selector).await?;
        fleet.places.retain(|place| nodes.contains(&place.node));
    }
    let status = Status::new(&fleet, &options, session.now());
    output::print(session, &status)?;
    Ok(status.verdict.exit)
}

async fn nodes_with(client: Client, selector: &str) -> Result<BTreeSet<String>, Failure> {
    let nodes = Api::<Node>::all(client)
        .list_metadata(&ListParams::default().labels(selector))
        .await
        .map_err(|error| {
            if let kube::Error::Api(status) = &error
                && status.code == 400
            {
                Failure::usage(format!("--selector {selector:?}: {}", status.message))
            } else {
                unreadable("Nodes", &error)
            }
        })?;
    Ok(nodes
        .items
        .iter()
        .map(kube::ResourceExt::name_any)
        .collect())
}

/// The answer in text, for those who have read the fleet already.
pub(crate) fn final_text(fleet: &Fleet, now: Timestamp, look: Look) -> String {
    let options = Options {
        selector: None,
        status_selector: Vec::new(),
        grouping: true,
    };
    Status::new(fleet, &options, now).text(look)
}

/// The answer.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    verdict: Verdict,
    controller: Controller,
    #[serde(skip_serializing_if = "Option::is_none")]
    generation: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    observed_generation: Option<i64>,
    paused: bool,
    conditions: Vec<Condition>,
    cohorts: Vec<Cohort>,
    /// Places by owner in force.
    owners: BTreeMap<String, usize>,
    /// Places by step.
    steps: BTreeMap<String, usize>,
    /// What stands in the way of no node in particular.
    cluster_wide: Vec<BlockerStatus>,
    nodes: Vec<Place>,
    #[serde(skip)]
    grouping: bool,
    #[serde(skip)]
    now: Timestamp,
}

/// A cohort's numbers.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Cohort {
    name: String,
    vendor: Vendor,
    owner: Owner,
    nodes: usize,
    /// Nodes that carry an owner label for it.
    owned: usize,
    by_health: BTreeMap<&'static str, usize>,
}

impl Status {
    fn new(fleet: &Fleet, options: &Options, now: Timestamp) -> Self {
        let Fleet {
            cluster,
            places,
            controller,
            gone: _,
        } = fleet;
        let published = cluster.status.clone().unwrap_or_default();
        let cluster_wide: Vec<BlockerStatus> = published
            .blockers
            .into_iter()
            .filter(|blocker| blocker.node.is_none())
            .collect();
        let shown = |place: &&Place| {
            options.status_selector.is_empty() || options.status_selector.contains(&place.health)
        };
        Self {
            verdict: Verdict::new(fleet, now),
            controller: controller.clone(),
            generation: cluster.metadata.generation,
            observed_generation: published.observed_generation,
            paused: cluster.spec.rollout.paused,
            conditions: published.conditions,
            cohorts: cohorts(cluster, places),
            owners: count(
                places
                    .iter()
                    .map(|place| place.owner.map_or("none", Owner::name).to_owned()),
            ),
            steps: count(places.iter().map(|place| {
                place
                    .step
                    .map_or_else(|| "unknown".to_owned(), |step| format!("{step:?}"))
            })),
            cluster_wide,
            nodes: places.iter().filter(shown).cloned().collect(),
            grouping: options.grouping,
            now,
        }
    }
}

impl Answer for Status {
    const KIND: &'static str = "Status";

    fn text(&self, look: Look) -> String {
        text::render(self, look)
    }
}

/// The cohorts of the resource, by name.
fn cohorts(cluster: &AcceleratorCluster, places: &[Place]) -> Vec<Cohort> {
    let mut cohorts: Vec<Cohort> = cluster
        .spec
        .cohorts
        .iter()
        .map(|cohort| {
            let own: Vec<&Place> = places
                .iter()
                .filter(|place| {
                    place.vendor == cohort.vendor && place.cohort.as_ref() == Some(&cohort.name)
                })
                .collect();
            Cohort {
                name: cohort.name.clone(),
                vendor: cohort.vendor,
                owner: cohort.owner,
                nodes: own.len(),
                owned: own
                    .iter()
                    .filter(|place| place.owner == Some(cohort.owner))
                    .count(),
                by_health: count(own.iter().map(|place| place.health.word())),
            }
        })
        .collect();
    cohorts.sort_by(|a, b| a.name.cmp(&b.name));
    cohorts
}

fn count<K: Ord>(keys: impl Iterator<Item = K>) -> BTreeMap<K, usize> {
    keys.fold(BTreeMap::new(), |mut counts, key| {
        *counts.entry(key).or_default() += 1;
        counts
    })
}

#[cfg(test)]
mod tests;
