//! Watches of the monitor's own. A watch goes on where it broke off, so that every state is seen; where the API server no longer
//! has what was in between, the gap is written down.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;
use freehold_api::{AcceleratorCluster, AcceleratorNode};
use freehold_core::vendor::Vendor;
use futures::StreamExt as _;
use futures::future::BoxFuture;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::resource::v1::{
    DeviceClass, ResourceClaim, ResourceClaimTemplate, ResourceSlice,
};
use kube::api::{ListParams, WatchEvent, WatchParams};
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use tokio::task::JoinHandle;

use super::facts::{Fact, History, KeptSeen, NodeTruth, Object, Truth};
use crate::sim::{PluginOwner, State};

/// Pause before a broken watch or list is tried again.
const RETRY: Duration = Duration::from_millis(100);

/// What is being written down.
#[derive(Clone)]
pub(super) struct Log {
    started: Instant,
    history: Arc<Mutex<History>>,
}

impl Log {
    pub(super) fn new() -> Self {
        let history = History {
            started_s: jiff::Timestamp::now().as_second(),
            ..History::default()
        };
        Self {
            started: Instant::now(),
            history: Arc::new(Mutex::new(history)),
        }
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// No code panics while holding it.
    pub(super) fn lock(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, version: u64, object: Object, gone: bool) {
        let mut history = self.lock();
        let at = self.started.elapsed();
        history.facts.push(Fact {
            at,
            version,
            object,
            gone,
        });
    }

    /// Takes in a state of a node itself, if it differs from the last one.
    pub(super) fn observe(
        &self,
        last: &Mutex<BTreeMap<String, NodeTruth>>,
        node: &str,
        state: &State,
    ) {
        let truth = truth_of(state);
        let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.get(node) == Some(&truth) {
            return;
        }
        last.insert(node.to_owned(), truth.clone());
        let mut history = self.lock();
        let at = self.started.elapsed();
        history.truths.push(Truth {
            at,
            node: node.to_owned(),
            state: truth,
        });
    }
}

fn truth_of(state: &State) -> NodeTruth {
    let lives = |uid: &String| state.workers.contains_key(uid) && !state.finished.contains(uid);
    let vendors_of = |resource: &str| {
        Vendor::ALL
            .into_iter()
            .find(|vendor| vendor.owns_resource(resource))
    };
    let claims = state.claims.iter().flat_map(|claim| {
        let vendors = claim
            .driver_state
            .keys()
            .filter_map(|driver| Vendor::of_dra_driver(driver));
        vendors.map(|vendor| (vendor, claim.claim_uid.clone()))
    });
    let strangers = state
        .plugins
        .iter()
        .filter(|(_, plugin)| match &plugin.owner {
            PluginOwner::Pod(_) => false,
            PluginOwner::NodeImage | PluginOwner::Stranger => true,
        });
    let given = state.devices.iter().filter(|entry| lives(&entry.pod_uid));
    NodeTruth {
        operands: state
            .operands
            .iter()
            .map(|((pod, _), (vendor, owner))| (*vendor, *owner, pod.clone()))
            .collect(),
        strangers: strangers
            .filter_map(|(resource, _)| vendors_of(resource))
            .collect(),
        claims: claims.collect(),
        given: given
            .filter_map(|entry| Some((vendors_of(&entry.resource_name)?, entry.pod_uid.clone())))
            .collect(),
    }
}

/// One kind being watched.
pub(super) struct Eye {
    kind: &'static str,
    task: JoinHandle<()>,
    behind: Box<dyn Fn() -> BoxFuture<'static, Result<Option<String>>> + Send + Sync>,
}

impl Drop for Eye {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Eye {
    /// What the API server has and this eye has not seen yet.
    pub(super) async fn behind(&self) -> Result<Option<String>> {
        Ok((self.behind)()
            .await?
            .map(|what| format!("{} {what}", self.kind)))
    }
}

/// Starts watching everything.
pub(super) fn watch_all(client: &Client, log: &Log) -> Vec<Eye> {
    vec![
        eye::<Node>(client, log, "Node", |node| Object::Node(node.into())),
        eye::<Pod>(client, log, "Pod", |pod| Object::Pod(pod.into())),
        eye::<ResourceSlice>(client, log, "ResourceSlice", |slice| {
            Object::Slice(slice.into())
        }),
        eye::<ResourceClaim>(client, log, "ResourceClaim", |claim| {
            Object::Claim(claim.into())
        }),
        eye::<AcceleratorNode>(client, log, "AcceleratorNode", |record| {
            let mut record = record.clone();
            record.metadata.managed_fields = None;
            Object::Record(Box::new(record))
        }),
        eye::<AcceleratorCluster>(client, log, "AcceleratorCluster", |cluster| {
            let mut cluster = cluster.clone();
            cluster.metadata.managed_fields = None;
            Object::Cluster(Box::new(cluster))
        }),
        eye::<DaemonSet>(client, log, "DaemonSet", |set| {
            let template = set
                .spec
                .as_ref()
                .and_then(|spec| spec.template.metadata.as_ref());
            Object::Kept(KeptSeen::new("DaemonSet", &set.metadata, template))
        }),
        eye::<DeviceClass>(client, log, "DeviceClass", |class| {
            Object::Kept(KeptSeen::new("DeviceClass", &class.metadata, None))
        }),
        eye::<ResourceClaimTemplate>(client, log, "ResourceClaimTemplate", |template| {
            Object::Kept(KeptSeen::new(
                "ResourceClaimTemplate",
                &template.metadata,
                None,
            ))
        }),
    ]
}

/// What is known of one kind: version and last state by namespace and name.
type Known = Arc<Mutex<BTreeMap<(String, String), (u64, Object)>>>;

struct Watcher<K> {
    api: Api<K>,
    convert: fn(&K) -> Object,
    known: Known,
    log: Log,
    kind: &'static str,
}

fn eye<K>(client: &Client, log: &Log, kind: &'static str, convert: fn(&K) -> Object) -> Eye
where
    K: Resource<DynamicType = ()>
        + Clone
        + DeserializeOwned
        + std::fmt::Debug
        + Send
        + Sync
        + 'static,
{
    let api = Api::<K>::all(client.clone());
    let known = Known::default();
    let watcher = Watcher {
        api: api.clone(),
        convert,
        known: known.clone(),
        log: log.clone(),
        kind,
    };
    let behind = move || -> BoxFuture<'static, Result<Option<String>>> {
        let (api, known) = (api.clone(), known.clone());
        Box::pin(async move {
            let items = match api.list(&ListParams::default()).await {
                Ok(list) => list.items,
                // A control plane without the DRA API has nothing of this kind to see.
                Err(kube::Error::Api(status)) if status.code == 404 => Vec::new(),
                Err(error) => return Err(error.into()),
            };
            let known = known.lock().unwrap_or_else(PoisonError::into_inner);
            let mut present = BTreeSet::new();
            for item in &items {
                let key = key(item);
                if known
                    .get(&key)
                    .is_none_or(|(version, _)| *version < version_of(item))
                {
                    return Ok(Some(format!(
                        "{}/{} at version {}",
                        key.0,
                        key.1,
                        version_of(item)
                    )));
                }
                present.insert(key);
            }
            Ok(known
                .keys()
                .find(|key| !present.contains(*key))
                .map(|(namespace, name)| format!("{namespace}/{name} to be gone")))
        })
    };
    Eye {
        kind,
        task: tokio::spawn(watcher.run()),
        behind: Box::new(behind),
    }
}

fn key<K: Resource>(object: &K) -> (String, String) {
    (object.namespace().unwrap_or_default(), object.name_any())
}

fn version_of<K: Resource>(object: &K) -> u64 {
    object
        .meta()
        .resource_version
        .as_deref()
        .and_then(|version| version.parse().ok())
        .unwrap_or(0)
}

impl<K> Watcher<K>
where
    K: Resource<DynamicType = ()>
        + Clone
        + DeserializeOwned
        + std::fmt::Debug
        + Send
        + Sync
        + 'static,
{
    async fn run(self) {
        let mut first = true;
        loop {
            let Ok(list) = self.api.list(&ListParams::default()).await else {
                tokio::time::sleep(RETRY).await;
                continue;
            };
            let version = list.metadata.resource_version.clone().unwrap_or_default();
            if !first {
                self.log.lock().gaps.push(format!(
                    "{}: states before version {version} may be missing",
                    self.kind
                ));
            }
            first = false;
            self.take_list(&list.items, version.parse().unwrap_or(0));
            self.follow(version).await;
        }
    }

    /// Follows until the API server no longer has what comes next.
    async fn follow(&self, mut version: String) {
        loop {
            let Ok(stream) = self.api.watch(&WatchParams::default(), &version).await else {
                tokio::time::sleep(RETRY).await;
                continue;
            };
            let mut stream = std::pin::pin!(stream);
            while let Some(event) = stream.next().await {
                match event {
                    Ok(WatchEvent::Added(object) | WatchEvent::Modified(object)) => {
                        version = object.resource_version().unwrap_or(version);
                        self.take(&object, false);
                    }
                    Ok(WatchEvent::Deleted(object)) => {
                        version = object.resource_version().unwrap_or(version);
                        self.take(&object, true);
                    }
                    Ok(WatchEvent::Bookmark(bookmark)) => {
                        version = bookmark.metadata.resource_version;
                    }
                    Ok(WatchEvent::Error(status)) if status.code == 410 => return,
                    Ok(WatchEvent::Error(_)) | Err(_) => break,
                }
            }
            tokio::time::sleep(RETRY).await;
        }
    }

    fn take(&self, object: &K, gone: bool) {
        let (key, version, seen) = (key(object), version_of(object), (self.convert)(object));
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if gone {
            known.remove(&key);
        } else {
            known.insert(key, (version, seen.clone()));
        }
        self.log.push(version, seen, gone);
    }

    fn take_list(&self, items: &[K], version: u64) {
        let present: BTreeSet<_> = items.iter().map(key).collect();
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let gone: Vec<_> = known
            .keys()
            .filter(|key| !present.contains(*key))
            .cloned()
            .collect();
        for key in gone {
            if let Some((_, last)) = known.remove(&key) {
                self.log.push(version, last, true);
            }
        }
        drop(known);
        for item in items {
            let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            let seen = known
                .get(&key(item))
                .is_some_and(|(version, _)| *version >= version_of(item));
            drop(known);
            if !seen {
                self.take(item, false);
            }
        }
    }
}
