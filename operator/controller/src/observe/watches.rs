//! One watch per kind, each boiled down on arrival and sent to the engine. One LIST per kind at start, one watch after that.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::{Duration, Instant};

use freehold_api::{AcceleratorCluster, AcceleratorNode};
use freehold_core::names;
use futures::{Stream, StreamExt as _};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use k8s_openapi::api::node::v1::RuntimeClass;
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaimTemplate};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind, PartialObjectMeta};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, ResourceExt as _};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc::Sender;
use tokio::task::JoinHandle;

use super::entry::{DaemonSetEntry, LabelKeys, Managed, NodeEntry, PodEntry, SliceEntry};
use super::slim::{SlimDaemonSet, SlimNode, SlimPod, SlimSlice};
use super::store::Change;
use super::trouble::{Due, Trouble};

/// Key of a namespaced object; the namespace is empty for cluster-scoped ones.
pub(crate) type Key = (String, String);

/// Everything the watches tell.
#[derive(Debug)]
pub(crate) enum Event {
    Cluster(Change<String, Box<AcceleratorCluster>>),
    Node(Change<String, Box<NodeEntry>>),
    Record(Change<String, Box<AcceleratorNode>>),
    Pod(Change<String, PodEntry>),
    Slice(Change<String, SliceEntry>),
    DaemonSet(Change<Key, DaemonSetEntry>),
    /// Managed DeviceClasses.
    Class(Change<Key, Managed>),
    /// Managed ResourceClaimTemplates.
    Template(Change<Key, Managed>),
    /// ConfigMaps in the operand namespace: users' plugin configurations.
    ConfigMap(Change<Key, ConfigMapEntry>),
    RuntimeClass(Change<String, ()>),
    Namespace(Change<String, ()>),
    Crd(Change<String, ()>),
    /// Objects of other operators that own a vendor's devices.
    Rival {
        kind: &'static str,
        change: Change<String, ()>,
    },
    /// A watch could not be started or broke; it goes on by itself.
    WatchFailed {
        kind: &'static str,
        error: String,
    },
    /// A watch that had failed goes on.
    WatchBack {
        kind: &'static str,
    },
}

/// A custom resource through which another operator owns a vendor's devices.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Rival {
    pub(crate) group: &'static str,
    pub(crate) version: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) plural: &'static str,
}

/// NVIDIA GPU Operator 26.7: device-plugin mode and DRA mode, each for a whole cluster.
pub(crate) const RIVALS: [Rival; 2] = [
    Rival {
        group: "nvidia.com",
        version: "v1",
        kind: "ClusterPolicy",
        plural: "clusterpolicies",
    },
    Rival {
        group: "nvidia.com",
        version: "v1alpha1",
        kind: "GPUCluster",
        plural: "gpuclusters",
    },
];

/// A ConfigMap of the operand namespace.
#[derive(Clone, Debug)]
pub(crate) struct ConfigMapEntry {
    pub(crate) data: BTreeMap<String, String>,
}

/// Starts watches.
#[derive(Clone)]
pub(crate) struct Watches {
    client: Client,
    events: Sender<Event>,
    streaming: bool,
    /// After so long of nothing but failures a watch begins anew.
    limit: Duration,
}

impl Watches {
    pub(crate) const fn new(
        client: Client,
        events: Sender<Event>,
        streaming: bool,
        limit: Duration,
    ) -> Self {
        Self {
            client,
            events,
            streaming,
            limit,
        }
    }

    /// The resource itself.
    pub(crate) fn clusters(&self) -> JoinHandle<()> {
        self.all::<AcceleratorCluster, _>(
            "AcceleratorCluster",
            watcher::Config::default(),
            |change| Event::Cluster(change.boil(|cluster| Some(Box::new(cluster)))),
        )
    }

    /// Nodes, with only the label keys named.
    pub(crate) fn nodes(&self, keys: Arc<LabelKeys>) -> JoinHandle<()> {
        self.all::<SlimNode, _>("Node", watcher::Config::default(), move |change| {
            Event::Node(change.boil(|node| Some(Box::new(NodeEntry::new(node, &keys)))))
        })
    }

    /// AcceleratorNodes.
    pub(crate) fn records(&self) -> JoinHandle<()> {
        self.all::<AcceleratorNode, _>("AcceleratorNode", watcher::Config::default(), |change| {
            Event::Record(change.boil(|mut record| {
                record.metadata.managed_fields = None;
                Some(Box::new(record))
            }))
        })
    }

    /// Our own operand pods.
    pub(crate) fn pods(&self) -> JoinHandle<()> {
        let config =
            watcher::Config::default().labels(&format!("{}=operand", names::COMPONENT_LABEL));
        let api = Api::<SlimPod>::namespaced(self.client.clone(), names::OPERAND_NAMESPACE);
        self.spawn("Pod", api, config, |change| {
            Event::Pod(change.boil(|pod| PodEntry::new(&pod)))
        })
    }

    /// ResourceSlices of every driver; those of drivers that do not allocate our vendors' devices are dropped on arrival.
    pub(crate) fn slices(&self) -> JoinHandle<()> {
        self.all::<SlimSlice, _>("ResourceSlice", watcher::Config::default(), |change| {
            Event::Slice(change.boil(|slice| SliceEntry::new(&slice)))
        })
    }

    /// DaemonSets of the whole cluster: ours, and those that look like a vendor's plugin.
    pub(crate) fn daemon_sets(&self) -> JoinHandle<()> {
        self.spawn(
            "DaemonSet",
            Api::<SlimDaemonSet>::all(self.client.clone()),
            watcher::Config::default(),
            |change| {
                Event::DaemonSet(keyed(change, |daemon_set: &SlimDaemonSet| {
                    DaemonSetEntry::new(daemon_set)
                }))
            },
        )
    }

    /// DeviceClasses that carry our label.
    pub(crate) fn classes(&self) -> JoinHandle<()> {
        self.spawn(
            "DeviceClass",
            Api::<PartialObjectMeta<DeviceClass>>::all(self.client.clone()),
            managed(),
            |change| {
                Event::Class(keyed(change, |class: &PartialObjectMeta<DeviceClass>| {
                    Managed::new(&class.metadata)
                }))
            },
        )
    }

    /// ResourceClaimTemplates that carry our label.
    pub(crate) fn templates(&self) -> JoinHandle<()> {
        let api = Api::<PartialObjectMeta<ResourceClaimTemplate>>::all(self.client.clone());
        self.spawn("ResourceClaimTemplate", api, managed(), |change| {
            Event::Template(keyed(
                change,
                |t: &PartialObjectMeta<ResourceClaimTemplate>| Managed::new(&t.metadata),
            ))
        })
    }

    /// ConfigMaps of the operand namespace.
    pub(crate) fn config_maps(&self) -> JoinHandle<()> {
        let api = Api::<ConfigMap>::namespaced(self.client.clone(), names::OPERAND_NAMESPACE);
        self.spawn("ConfigMap", api, watcher::Config::default(), |change| {
            Event::ConfigMap(keyed(change, |map: &ConfigMap| {
                Some(ConfigMapEntry {
                    data: map.data.clone().unwrap_or_default(),
                })
            }))
        })
    }

    /// RuntimeClass names.
    pub(crate) fn runtime_classes(&self) -> JoinHandle<()> {
        self.names::<RuntimeClass>("RuntimeClass", Event::RuntimeClass)
    }

    /// Namespace names, for sizes whose namespace does not exist yet.
    pub(crate) fn namespaces(&self) -> JoinHandle<()> {
        self.names::<Namespace>("Namespace", Event::Namespace)
    }

    /// CRD names: tells when another operator is installed, and when our own definitions change.
    pub(crate) fn crds(&self) -> JoinHandle<()> {
        self.names::<CustomResourceDefinition>("CustomResourceDefinition", Event::Crd)
    }

    /// Objects of another operator's kind, once its CRD exists.
    pub(crate) fn rivals(&self, rival: &'static Rival) -> JoinHandle<()> {
        let gvk = GroupVersionKind::gvk(rival.group, rival.version, rival.kind);
        let resource = ApiResource::from_gvk_with_plural(&gvk, rival.plural);
        let api = Api::<PartialObjectMeta<DynamicObject>>::all_with(self.client.clone(), &resource);
        let config = watcher::Config::default().page_size(PAGE);
        let wrap = |change: Change<_, _>| Event::Rival {
            kind: rival.kind,
            change: change.boil(|_| Some(())),
        };
        let trouble = Trouble::new(self.limit);
        tokio::spawn(forward(
            rival.kind,
            move || watcher(api.clone(), config.clone()).default_backoff(),
            trouble,
            self.events.clone(),
            wrap,
        ))
    }

    fn names<K>(&self, kind: &'static str, wrap: fn(Change<String, ()>) -> Event) -> JoinHandle<()>
    where
        K: kube::Resource<DynamicType = ()> + Clone + Debug + Send + Sync + 'static,
        PartialObjectMeta<K>: kube::Resource<DynamicType = ()>,
    {
        self.all::<PartialObjectMeta<K>, _>(kind, watcher::Config::default(), move |change| {
            wrap(change.boil(|_| Some(())))
        })
    }

    fn all<K, F>(&self, kind: &'static str, config: watcher::Config, wrap: F) -> JoinHandle<()>
    where
        K: kube::Resource<DynamicType = ()>
            + Clone
            + Debug
            + DeserializeOwned
            + Send
            + Sync
            + 'static,
        F: FnMut(Change<String, K>) -> Event + Send + 'static,
    {
        self.spawn(kind, Api::<K>::all(self.client.clone()), config, wrap)
    }

    fn spawn<K, F>(
        &self,
        kind: &'static str,
        api: Api<K>,
        config: watcher::Config,
        wrap: F,
    ) -> JoinHandle<()>
    where
        K: kube::Resource + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
        K::DynamicType: Default + Clone + Eq + std::hash::Hash,
        F: FnMut(Change<String, K>) -> Event + Send + 'static,
    {
        let config = if self.streaming {
            config.streaming_lists()
        } else {
            config.page_size(PAGE)
        };
        let trouble = Trouble::new(self.limit);
        tokio::spawn(forward(
            kind,
            move || watcher(api.clone(), config.clone()).default_backoff(),
            trouble,
            self.events.clone(),
            wrap,
        ))
    }
}

/// Objects per page where lists are not streamed: the page, not what is kept of it, sets the peak of memory.
const PAGE: u32 = 100;

fn managed() -> watcher::Config {
    watcher::Config::default().labels(&format!(
        "{}={}",
        names::MANAGED_BY_LABEL,
        names::MANAGED_BY
    ))
}

/// Passes on what a watch tells; begins it anew when it cannot go on.
async fn forward<K, S, F>(
    kind: &'static str,
    begin: impl Fn() -> S + Send,
    mut trouble: Trouble,
    events: Sender<Event>,
    mut wrap: F,
) where
    K: kube::Resource + Clone + Debug + Send + 'static,
    S: Stream<Item = watcher::Result<watcher::Event<K>>> + Send,
    F: FnMut(Change<String, K>) -> Event,
{
    let mut stream = Box::pin(begin());
    loop {
        let event = tokio::select! {
            event = stream.next() => match event {
                Some(event) => event,
                None => return,
            },
            () = sleep_until(trouble.due()) => {
                match trouble.take(Instant::now()) {
                    Due::Relist => {
                        tracing::warn!(kind, "the watch cannot go on from where it was; listing anew");
                        stream = Box::pin(begin());
                    }
                    Due::Back => {
                        if events.send(Event::WatchBack { kind }).await.is_err() {
                            return;
                        }
                    }
                }
                continue;
            }
        };
        if let Ok(event) = &event
            && trouble.worked(event)
            && events.send(Event::WatchBack { kind }).await.is_err()
        {
            return;
        }
        let event = match event {
            Ok(watcher::Event::Init) => wrap(Change::Restarted),
            Ok(watcher::Event::InitDone) => wrap(Change::Synced),
            Ok(watcher::Event::InitApply(object) | watcher::Event::Apply(object)) => {
                wrap(Change::Applied(key(&object), Some(object)))
            }
            Ok(watcher::Event::Delete(object)) => wrap(Change::Deleted(key(&object))),
            Err(error) => {
                trouble.failed(&error, Instant::now());
                Event::WatchFailed {
                    kind,
                    error: error.to_string(),
                }
            }
        };
        if events.send(event).await.is_err() {
            return;
        }
    }
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}

fn key<K: kube::Resource>(object: &K) -> String {
    match object.namespace() {
        Some(namespace) => format!("{namespace}/{}", object.name_any()),
        None => object.name_any(),
    }
}

/// Takes namespace and name of a key apart, and boils the object down.
fn keyed<K, V>(change: Change<String, K>, boil: impl FnOnce(&K) -> Option<V>) -> Change<Key, V> {
    let split = |key: String| match key.split_once('/') {
        Some((namespace, name)) => (namespace.to_owned(), name.to_owned()),
        None => (String::new(), key),
    };
    change.rekey(split).boil(|object| boil(&object))
}
