//! The fleet, kept up to date by two watches.

use std::collections::BTreeMap;

use freehold_api::{AcceleratorCluster, AcceleratorNode};
use freehold_core::names;
use futures::{Stream, StreamExt as _};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, ResourceExt as _};

use crate::fleet::{Fleet, Place, places};

/// What is known.
pub(super) struct State {
    pub(super) fleet: Fleet,
    /// By node, in the order of their names.
    records: BTreeMap<String, Vec<Place>>,
    /// A list that is being read again after a break.
    listing: Option<BTreeMap<String, Vec<Place>>>,
    /// The fleet's places are older than the records.
    stale: bool,
}

/// What a watch told.
pub(super) enum Told {
    Cluster(Box<Result<Event<AcceleratorCluster>, watcher::Error>>),
    Record(Box<Result<Event<AcceleratorNode>, watcher::Error>>),
}

/// Both watches.
pub(super) fn events(client: Client) -> impl Stream<Item = Told> {
    let one = watcher::Config::default().fields(&format!("metadata.name={}", names::SINGLETON));
    let clusters = watcher(Api::<AcceleratorCluster>::all(client.clone()), one)
        .default_backoff()
        .map(|event| Told::Cluster(Box::new(event)));
    let records = watcher(
        Api::<AcceleratorNode>::all(client),
        watcher::Config::default(),
    )
    .default_backoff()
    .map(|event| Told::Record(Box::new(event)));
    futures::stream::select(clusters, records)
}

impl State {
    pub(super) fn new(fleet: Fleet) -> Self {
        let mut records: BTreeMap<String, Vec<Place>> = BTreeMap::new();
        for place in &fleet.places {
            records
                .entry(place.node.clone())
                .or_default()
                .push(place.clone());
        }
        Self {
            fleet,
            records,
            listing: None,
            stale: false,
        }
    }

    fn record(&mut self, event: Event<AcceleratorNode>) {
        match event {
            Event::Apply(record) => {
                self.records
                    .insert(record.name_any(), places(std::slice::from_ref(&record)));
            }
            Event::Delete(record) => {
                self.records.remove(&record.name_any());
            }
            Event::Init => self.listing = Some(BTreeMap::new()),
            Event::InitApply(record) => {
                if let Some(listing) = &mut self.listing {
                    listing.insert(record.name_any(), places(std::slice::from_ref(&record)));
                }
            }
            Event::InitDone => {
                if let Some(listing) = self.listing.take() {
                    self.records = listing;
                }
            }
        }
        self.stale = true;
    }

    /// Brings the fleet up to date; once for all that arrived since the last time.
    pub(super) fn refresh(&mut self) {
        if std::mem::take(&mut self.stale) {
            self.fleet.places = self.records.values().flatten().cloned().collect();
            crate::fleet::sort(&mut self.fleet.places);
        }
    }

    fn cluster(&mut self, event: Event<AcceleratorCluster>) -> Option<String> {
        match event {
            Event::Apply(cluster) | Event::InitApply(cluster) => {
                self.fleet.cluster = cluster;
                None
            }
            Event::Delete(_) => {
                self.fleet.gone = true;
                Some("the AcceleratorCluster is gone".to_owned())
            }
            Event::Init | Event::InitDone => None,
        }
    }
}

impl Told {
    /// Takes it in; gives what a person should know.
    pub(super) fn apply(self, state: &mut State) -> Option<String> {
        match self {
            Self::Cluster(event) => match *event {
                Ok(event) => state.cluster(event),
                Err(error) => Some(format!(
                    "watching the AcceleratorCluster: {error}; trying again"
                )),
            },
            Self::Record(event) => match *event {
                Ok(event) => {
                    state.record(event);
                    None
                }
                Err(error) => Some(format!("watching AcceleratorNodes: {error}; trying again")),
            },
        }
    }
}
