//! What the containers of one pod are doing, and the pod status that follows from it.

use std::sync::{Mutex, PoisonError};

use k8s_openapi::api::core::v1::{Container, Pod};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::node_object::now;
use super::shapes::uuid;

/// When a container runs, relative to the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// To its end, before the next one.
    Init,
    /// From before the next one starts until after the last one ended.
    Sidecar,
    /// Beside the others.
    Main,
}

impl Kind {
    /// Kind of an init container.
    #[must_use]
    pub fn of_init(container: &Container) -> Self {
        if container.restart_policy.as_deref() == Some("Always") {
            Self::Sidecar
        } else {
            Self::Init
        }
    }
}

/// How a container ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Exit code.
    pub code: i32,
    /// Last words.
    pub message: String,
    /// When it had started.
    pub started: String,
    /// When it ended.
    pub finished: String,
}

/// What a container is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Phase {
    /// It does not run, for this reason.
    Waiting(&'static str, String),
    /// It runs since then.
    Running(String),
    /// It ended for good.
    Ended(Ended),
}

/// One container.
#[derive(Clone, Debug)]
pub struct View {
    /// Name.
    pub name: String,
    image: String,
    /// Kind.
    pub kind: Kind,
    /// What it is doing.
    pub phase: Phase,
    /// How often it was started again.
    pub restarts: i32,
    /// How it ended the last time.
    pub last: Option<Ended>,
    /// The startup probe, if any, succeeded.
    pub started: bool,
    /// The readiness probe, if any, succeeds.
    pub ready: bool,
}

#[derive(Clone, Debug)]
struct Content {
    views: Vec<View>,
    verdict: Option<(&'static str, &'static str, String)>,
}

/// The containers of a pod.
#[derive(Debug)]
pub struct Board {
    uid: String,
    host: String,
    address: String,
    since: String,
    content: Mutex<Content>,
    changed: watch::Sender<u64>,
}

impl Board {
    /// All containers of a pod, waiting. `address` becomes the pod's.
    #[must_use]
    pub fn new(pod: &Pod, host: String, address: String) -> Self {
        let spec = pod.spec.as_ref();
        let inits = spec
            .into_iter()
            .flat_map(|spec| spec.init_containers.iter().flatten())
            .map(|init| (Kind::of_init(init), init));
        let mains = spec
            .into_iter()
            .flat_map(|spec| &spec.containers)
            .map(|container| (Kind::Main, container));
        let has_inits =
            spec.is_some_and(|spec| spec.init_containers.iter().flatten().next().is_some());
        let waiting = if has_inits {
            "PodInitializing"
        } else {
            "ContainerCreating"
        };
        let previous = |name: &str| {
            let status = pod.status.as_ref()?;
            let all = status
                .init_container_statuses
                .iter()
                .flatten()
                .chain(status.container_statuses.iter().flatten());
            all.into_iter()
                .find(|status| status.name == name)
                .map(|status| status.restart_count)
        };
        let views = inits
            .chain(mains)
            .map(|(kind, container)| View {
                name: container.name.clone(),
                image: container.image.clone().unwrap_or_default(),
                kind,
                phase: Phase::Waiting(waiting, String::new()),
                // A machine that comes up again finds containers that had run before.
                restarts: previous(&container.name).map_or(0, |restarts| restarts + 1),
                last: None,
                started: false,
                ready: false,
            })
            .collect();
        Self {
            uid: pod.metadata.uid.clone().unwrap_or_default(),
            host,
            address,
            since: now(),
            content: Mutex::new(Content {
                views,
                verdict: None,
            }),
            changed: watch::Sender::new(0),
        }
    }

    /// Changes one container's entry.
    pub fn set(&self, name: &str, change: impl FnOnce(&mut View)) {
        let mut content = self.content.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(view) = content.views.iter_mut().find(|view| view.name == name) {
            change(view);
        }
        drop(content);
        self.changed.send_modify(|version| *version += 1);
    }

    /// Says why no container was ever started.
    pub fn set_waiting(&self, reason: &'static str, message: &str) {
        let mut content = self.content.lock().unwrap_or_else(PoisonError::into_inner);
        for view in content
            .views
            .iter_mut()
            .filter(|view| matches!(view.phase, Phase::Waiting(..)))
        {
            view.phase = Phase::Waiting(reason, message.to_owned());
        }
        drop(content);
        self.changed.send_modify(|version| *version += 1);
    }

    /// Ends the pod: phase, reason and message for good.
    pub fn set_verdict(&self, phase: &'static str, reason: &'static str, message: String) {
        self.content
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .verdict = Some((phase, reason, message));
        self.changed.send_modify(|version| *version += 1);
    }

    /// All entries.
    #[must_use]
    pub fn views(&self) -> Vec<View> {
        self.content
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .views
            .clone()
    }

    /// Tells about changes.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Waits for a container's entry to satisfy something.
    pub async fn until(&self, name: &str, mut satisfied: impl FnMut(&View) -> bool) {
        let mut changes = self.changes();
        loop {
            changes.borrow_and_update();
            if self
                .views()
                .iter()
                .any(|view| view.name == name && satisfied(view))
            {
                return;
            }
            if changes.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// The pod status, as a strategic merge patch that can meet only this very pod.
    #[must_use]
    pub fn patch(&self) -> Value {
        let Content { views, verdict } = self
            .content
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let initialized = views.iter().all(|view| match view.kind {
            Kind::Init => matches!(&view.phase, Phase::Ended(ended) if ended.code == 0),
            Kind::Sidecar => view.started || matches!(view.phase, Phase::Ended(_)),
            Kind::Main => true,
        });
        let ready = verdict.is_none()
            && initialized
            && views
                .iter()
                .all(|view| view.kind == Kind::Init || view.ready);
        let begun = views
            .iter()
            .any(|view| !matches!(view.phase, Phase::Waiting(..)));
        let (phase, reason, message) = match &verdict {
            Some((phase, reason, message)) => (*phase, *reason, message.as_str()),
            None if initialized
                && begun
                && views.iter().any(|view| {
                    view.kind == Kind::Main
                        && (view.last.is_some() || !matches!(view.phase, Phase::Waiting(..)))
                }) =>
            {
                ("Running", "", "")
            }
            None => ("Pending", "", ""),
        };
        let unready = || {
            views
                .iter()
                .filter(|view| view.kind != Kind::Init && !view.ready)
                .map(|view| view.name.as_str())
                .collect::<Vec<_>>()
                .join(" ")
        };
        let condition = |kind: &str, holds: bool, why: &str| {
            if holds {
                json!({"type": kind, "status": "True", "lastTransitionTime": self.since, "reason": null, "message": null})
            } else {
                json!({"type": kind, "status": "False", "reason": why, "lastTransitionTime": self.since,
                    "message": format!("containers with unready status: [{}]", unready())})
            }
        };
        let statuses = |kinds: &[Kind]| {
            let chosen = views.iter().filter(|view| kinds.contains(&view.kind));
            chosen.map(|view| self.container(view)).collect::<Vec<_>>()
        };
        json!({
            "metadata": {"uid": self.uid},
            "status": {
                "phase": phase,
                "reason": (!reason.is_empty()).then_some(reason),
                "message": (!message.is_empty()).then_some(message),
                "startTime": self.since,
                "hostIP": self.host,
                "hostIPs": [{"$patch": "replace"}, {"ip": self.host}],
                "podIP": begun.then_some(&self.address),
                "podIPs": if begun { json!([{"$patch": "replace"}, {"ip": self.address}]) } else { json!(null) },
                "qosClass": null,
                "conditions": [
                    condition("PodReadyToStartContainers", begun, "PodSandboxNotReady"),
                    condition("Initialized", initialized, "ContainersNotInitialized"),
                    condition("Ready", ready, "ContainersNotReady"),
                    condition("ContainersReady", ready, "ContainersNotReady"),
                ],
                "initContainerStatuses": statuses(&[Kind::Init, Kind::Sidecar]),
                "containerStatuses": statuses(&[Kind::Main]),
            },
        })
    }

    fn container(&self, view: &View) -> Value {
        let id = format!(
            "containerd://{}",
            uuid("", &format!("{}/{}/{}", self.uid, view.name, view.restarts)).replace('-', "")
        );
        let ended = |ended: &Ended| {
            json!({"terminated": {"exitCode": ended.code, "reason": if ended.code == 0 { "Completed" } else { "Error" },
                "message": (!ended.message.is_empty()).then_some(&ended.message),
                "startedAt": ended.started, "finishedAt": ended.finished, "containerID": id}})
        };
        let state = match &view.phase {
            Phase::Waiting(reason, message) => {
                json!({"waiting": {"reason": reason, "message": (!message.is_empty()).then_some(message)}})
            }
            Phase::Running(since) => json!({"running": {"startedAt": since}}),
            Phase::Ended(how) => ended(how),
        };
        json!({
            "name": view.name,
            "image": view.image,
            "imageID": if view.restarts > 0 || !matches!(view.phase, Phase::Waiting(..)) { format!("{}@sha256:simulated", view.image) } else { String::new() },
            "containerID": (!matches!(view.phase, Phase::Waiting(..))).then_some(&id),
            "ready": view.ready || (view.kind == Kind::Init && matches!(&view.phase, Phase::Ended(how) if how.code == 0)),
            "started": view.started,
            "restartCount": view.restarts,
            "state": state,
            "lastState": view.last.as_ref().map_or_else(|| json!({}), ended),
        })
    }
}
