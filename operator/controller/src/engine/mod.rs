//! The one task that owns all state.
//!
//! It waits for whatever comes first – a change, the answer to a write, a time that was waited for – and then looks again at just
//! the nodes concerned. A burst of changes is taken in whole before anything is decided, so that a fleet that appears at once is
//! planned once.

mod answers;
mod claims;
mod definitions;
mod given_up;
mod haste;
mod keep;
mod marks;
mod nodes;
mod note;
mod pace;
mod tell;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use freehold_core::tenure::Timing;
use kube::Client;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::JoinHandle;

use crate::metrics::{KindLabel, Metrics};
use crate::observe::entry::LabelKeys;
use crate::observe::fresh::Reader;
use crate::observe::watches::{Event, RIVALS, Watches};
use crate::observe::world::World;
use crate::options::Options;
use crate::publish::events::Events;
use crate::serve::Readiness;
use crate::wanted::Wanted;
use answers::Reply;
use claims::Claimer;
use definitions::Definitions;
use keep::Keeper;
use nodes::NodeState;
use pace::Pacer;
use tell::Teller;

/// Changes under way between the watches and the engine. Enough that a burst does not stop the watches, little enough that a
/// list of thousands is not held twice.
const EVENT_BUFFER: usize = 256;
/// How long discovery of the DRA API waits between two looks while it is missing.
const DISCOVERY_INTERVAL: Duration = Duration::from_secs(60);

/// The engine.
pub(crate) struct Engine {
    client: Client,
    options: Options,
    metrics: Metrics,
    readiness: Readiness,
    leading: watch::Receiver<bool>,
    events: mpsc::Receiver<Event>,
    watches: Watches,
    node_watch: Option<(Arc<LabelKeys>, JoinHandle<()>)>,
    rival_watches: HashMap<&'static str, JoinHandle<()>>,
    replies: mpsc::UnboundedReceiver<Reply>,
    reply: mpsc::UnboundedSender<Reply>,
    permits: Arc<Semaphore>,
    reader: Reader,
    recorder: Events,
    world: World,
    wanted: Option<Arc<Wanted>>,
    nodes: HashMap<String, NodeState>,
    timers: BTreeSet<(Instant, String)>,
    pacer: Pacer,
    keeper: Keeper,
    teller: Teller,
    claimer: Claimer,
    definitions: Definitions,
    server_version: String,
    dra_api: bool,
    next_discovery: Option<Instant>,
    limits: Timing,
}

impl Engine {
    /// Finds out what the API server serves and starts the watches.
    ///
    /// # Errors
    /// When the API server cannot be reached.
    pub(crate) async fn new(
        client: Client,
        options: Options,
        metrics: Metrics,
        readiness: Readiness,
        leading: watch::Receiver<bool>,
    ) -> anyhow::Result<Self> {
        let server_version = client
            .apiserver_version()
            .await
            .context("asking the API server for its version")?
            .git_version;
        let dra_api = serves_dra(&client).await?;
        let (sender, events) = mpsc::channel(EVENT_BUFFER);
        let (reply, replies) = mpsc::unbounded_channel();
        let cache_age = Duration::from_secs(options.cache_age_seconds);
        let watches = Watches::new(client.clone(), sender, !options.paged_lists, cache_age);
        watches.clusters();
        watches.records();
        watches.pods();
        watches.daemon_sets();
        watches.config_maps();
        watches.runtime_classes();
        watches.namespaces();
        watches.crds();
        if dra_api {
            start_dra(&watches);
        }
        tracing::info!(server_version, dra_api, "watching");
        Ok(Self {
            reader: Reader::new(client.clone(), dra_api),
            recorder: Events::new(client.clone(), &options.identity),
            permits: Arc::new(Semaphore::new(options.concurrency)),
            limits: Timing {
                settle_s: options.settle_seconds,
                stable_s: options.stable_seconds,
                patience_s: options.patience_seconds,
                ..Timing::default()
            },
            next_discovery: (!dra_api).then(|| Instant::now() + DISCOVERY_INTERVAL),
            client,
            options,
            metrics,
            readiness,
            leading,
            events,
            watches,
            node_watch: None,
            rival_watches: HashMap::new(),
            replies,
            reply,
            world: World::default(),
            wanted: None,
            nodes: HashMap::new(),
            timers: BTreeSet::new(),
            pacer: Pacer::default(),
            keeper: Keeper::default(),
            teller: Teller::default(),
            claimer: Claimer::default(),
            definitions: Definitions::default(),
            server_version,
            dra_api,
        })
    }

    /// Runs until told to stop. Writes under way are let finish by their own time limit; nothing needs them.
    pub(crate) async fn run(mut self, shutdown: impl Future<Output = ()>) {
        let mut shutdown = std::pin::pin!(shutdown);
        let mut batch = Vec::with_capacity(EVENT_BUFFER);
        loop {
            let alarm = self.alarm();
            tokio::select! {
                () = &mut shutdown => return,
                received = self.events.recv_many(&mut batch, EVENT_BUFFER) => {
                    if received == 0 {
                        return;
                    }
                }
                Some(reply) = self.replies.recv() => self.take_reply(reply),
                changed = self.leading.changed() => {
                    if changed.is_err() {
                        tracing::error!("the lease cannot be kept any more; stopping so that a fresh start takes over");
                        return;
                    }
                    self.take_leadership();
                }
                () = sleep_until(alarm) => {}
            }
            let now = Instant::now();
            for event in batch.drain(..) {
                self.take_event(event, now);
            }
            while let Ok(reply) = self.replies.try_recv() {
                self.take_reply(reply);
            }
            self.rediscover(now).await;
            self.check_definitions(now).await;
            self.look(now);
        }
    }

    fn take_event(&mut self, event: Event, now: Instant) {
        if let Event::WatchFailed { kind, error } = &event {
            self.metrics
                .watch_failures
                .get_or_create(&KindLabel { kind })
                .inc();
            tracing::warn!(kind, error, "watch failed; it starts again by itself");
        }
        if let Event::Crd(crate::observe::store::Change::Applied(name, _)) = &event
            && crate::observe::definitions::is_ours(name)
        {
            self.definitions.changed();
        }
        if matches!(event, Event::Cluster(_)) {
            // The confirmation of a mass change is an annotation.
            self.pacer.something_changed();
        }
        self.world.apply(event, now);
    }

    fn take_leadership(&mut self) {
        let leads = *self.leading.borrow_and_update();
        self.metrics.leading.set(i64::from(leads));
        tracing::info!(leads, "leadership");
        if leads {
            // What another replica wrote meanwhile is no contest.
            for state in self.nodes.values_mut() {
                state.marks = Default::default();
            }
            self.forget_asked_places();
            self.world.dirty.all_nodes = true;
            self.world.dirty.objects = true;
        }
    }

    /// When something is due without any change.
    fn alarm(&self) -> Option<Instant> {
        let too_old = self.too_old_at().filter(|at| *at > Instant::now());
        let looks = [self.next_discovery, self.definitions.due(), too_old];
        // Only a replica that acts takes up what is due; for another it would stay due for ever.
        if !self.acts() {
            return looks.into_iter().flatten().min();
        }
        if !self.definitions.suffice() {
            return [self.teller.due()].into_iter().chain(looks).flatten().min();
        }
        let timer = self.timers.first().map(|(at, _)| *at);
        [
            timer,
            self.pacer.due(),
            self.keeper.due(),
            self.teller.due(),
        ]
        .into_iter()
        .chain(looks)
        .flatten()
        .min()
    }

    /// When what is known will be too old to call this replica ready, or has become so.
    fn too_old_at(&self) -> Option<Instant> {
        let age = Duration::from_secs(self.options.cache_age_seconds);
        self.world.in_doubt_since().map(|since| since + age)
    }

    /// Looks again at what changed or is due.
    fn look(&mut self, now: Instant) {
        // Until the resource is known, or known not to exist, nothing tells which labels matter.
        if self.world.dirty.watches && self.world.clusters.synced() {
            self.world.dirty.watches = false;
            self.adopt_intent();
        }
        let fresh = self.too_old_at().is_none_or(|at| at > now);
        self.readiness.set(fresh && self.world.synced(self.dra_api));
        self.judge_marks();
        if !self.acts() {
            return;
        }
        if !self.definitions.suffice() {
            self.tell_cluster(now);
            return;
        }
        while let Some((at, name)) = self.timers.first().cloned() {
            if at > now {
                break;
            }
            self.timers.remove(&(at, name.clone()));
            self.world.dirty.nodes.insert(name);
        }
        self.look_at_nodes(now);
        self.pace(now);
        // Who was just let start is looked at in the same turn.
        self.look_at_nodes(now);
        self.claim_places(now);
        self.keep_objects(now);
        self.tell_cluster(now);
    }

    /// Whether this replica leads and knows enough to decide.
    fn acts(&self) -> bool {
        self.world.synced(self.dra_api) && *self.leading.borrow()
    }

    /// Parses the resource anew and makes the watches fit it.
    fn adopt_intent(&mut self) {
        for rival in &RIVALS {
            let crd = format!("{}.{}", rival.plural, rival.group);
            let installed = self.world.crds.get(&crd).is_some();
            if installed && !self.rival_watches.contains_key(rival.kind) {
                self.world.rivals.entry(rival.kind).or_default();
                self.rival_watches
                    .insert(rival.kind, self.watches.rivals(rival));
            } else if !installed && let Some(task) = self.rival_watches.remove(rival.kind) {
                task.abort();
                self.world.rivals.remove(rival.kind);
                self.world.dirty.all_nodes = true;
            }
        }
        self.wanted = self
            .world
            .cluster()
            .map(|cluster| Arc::new(Wanted::new(cluster, &self.world, &self.options)));
        self.world.dirty.all_nodes = true;
        self.world.dirty.objects = true;
        let keys = LabelKeys::new(
            self.wanted
                .iter()
                .flat_map(|wanted| wanted.label_keys())
                .chain(self.world.reach_keys()),
            self.owner_alias().as_deref(),
        );
        if !self
            .node_watch
            .as_ref()
            .is_some_and(|(watched, _)| watched.covers(&keys))
        {
            if let Some((_, task)) = self.node_watch.take() {
                task.abort();
            }
            // Until the new list is complete, labels that the new intent reads may be missing from what is known.
            self.world.nodes.unsync();
            let keys = Arc::new(keys);
            self.node_watch = Some((keys.clone(), self.watches.nodes(keys)));
        }
    }

    async fn rediscover(&mut self, now: Instant) {
        if self.next_discovery.is_none_or(|due| due > now) {
            return;
        }
        self.next_discovery = Some(now + DISCOVERY_INTERVAL);
        match serves_dra(&self.client).await {
            Ok(true) => {
                tracing::info!("resource.k8s.io/v1 is served now");
                self.dra_api = true;
                self.next_discovery = None;
                self.reader = Reader::new(self.client.clone(), true);
                start_dra(&self.watches);
                self.world.dirty.all_nodes = true;
                self.world.dirty.objects = true;
            }
            Ok(false) => {}
            Err(error) => tracing::warn!(%error, "discovery failed; trying again"),
        }
    }
}

fn start_dra(watches: &Watches) {
    watches.slices();
    watches.classes();
    watches.templates();
}

/// Whether `resource.k8s.io/v1` is served. Beta versions are not enough: their fields differ and they are on their way out.
async fn serves_dra(client: &Client) -> anyhow::Result<bool> {
    let groups = client
        .list_api_groups()
        .await
        .context("asking the API server for its API groups")?;
    Ok(groups.groups.iter().any(|group| {
        group.name == "resource.k8s.io" && group.versions.iter().any(|v| v.version == "v1")
    }))
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}
