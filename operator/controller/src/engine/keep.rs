//! The objects that the controller keeps, and teardown.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use freehold_core::blocker::{Blocker, Reason};
use freehold_core::names;
use freehold_core::vendor::{Owner, Vendor};
use jiff::Timestamp;
use kube::ResourceExt as _;

use super::Engine;
use super::answers::Reply;
use crate::act::WriteError;
use crate::act::objects::{Kind, ObjectAct, describe};
use crate::observe::entry::{Managed, NodeEntry};
use crate::publish;
use crate::wanted::{ObjectKey, Wanted};

/// Pause before an object that could not be written is tried again.
const RETRY: Duration = Duration::from_secs(10);

/// What is remembered about kept objects.
#[derive(Default)]
pub(super) struct Keeper {
    busy: bool,
    pub(super) finalizing: bool,
    due: Option<Instant>,
    /// Objects that could not be written, with why and since when.
    troubles: BTreeMap<ObjectKey, (Blocker, i64)>,
}

impl Keeper {
    pub(super) const fn due(&self) -> Option<Instant> {
        if self.busy { None } else { self.due }
    }

    pub(super) const fn retry_at(&mut self, at: Instant) {
        self.due = Some(at);
    }

    pub(super) fn blockers(&self) -> Vec<(Blocker, i64)> {
        self.troubles.values().cloned().collect()
    }
}

/// How the write of one object ended.
pub(super) struct Kept {
    key: ObjectKey,
    result: Result<(), WriteError>,
}

impl Engine {
    /// Makes the kept objects what they should be.
    pub(super) fn keep_objects(&mut self, now: Instant) {
        let due = self.keeper.due.is_some_and(|due| due <= now);
        if self.keeper.busy || !(self.world.dirty.objects || due) {
            return;
        }
        self.world.dirty.objects = false;
        self.keeper.due = None;
        let Some(wanted) = self
            .wanted
            .clone()
            .filter(|wanted| wanted.problems.is_none())
        else {
            return;
        };
        if self.finalize(&wanted) {
            return;
        }
        let acts = self.object_acts(&wanted);
        if acts.is_empty() {
            return;
        }
        self.keeper.busy = true;
        let (client, reply, owner_uid) =
            (self.client.clone(), self.reply.clone(), wanted.uid.clone());
        tokio::spawn(async move {
            let mut kept = Vec::with_capacity(acts.len());
            // One after the other: what a pod needs (its class) is there before its DaemonSet.
            for (key, act) in acts {
                let result = act.perform(client.clone(), &owner_uid).await;
                kept.push(Kept { key, result });
            }
            let _ = reply.send(Reply::Kept(kept));
        });
    }

    /// Adds the finalizer before anything is owned, and removes it when nothing is left. True while that is under way.
    fn finalize(&mut self, wanted: &Wanted) -> bool {
        if self.keeper.finalizing {
            return true;
        }
        let Some(cluster) = self.world.cluster() else {
            return true;
        };
        let has = cluster
            .finalizers()
            .iter()
            .any(|finalizer| finalizer == names::FINALIZER);
        let present = !wanted.tearing_down;
        if has == present || (wanted.tearing_down && !self.is_vacant(wanted)) {
            return false;
        }
        self.keeper.finalizing = true;
        let (client, reply, cluster) = (self.client.clone(), self.reply.clone(), cluster.clone());
        tokio::spawn(async move {
            let result = publish::cluster::set_finalizer(client, &cluster, present)
                .await
                .map(Box::new);
            let _ = reply.send(Reply::Cluster { result });
        });
        true
    }

    /// Nothing is owned, fenced, recorded or kept any more.
    fn is_vacant(&self, wanted: &Wanted) -> bool {
        self.nodes_are_vacant()
            && Kind::ALL
                .iter()
                .all(|kind| self.live(*kind).iter().all(|(_, live)| !wanted.owns(live)))
    }

    fn nodes_are_vacant(&self) -> bool {
        self.world
            .nodes
            .iter()
            .all(|(_, node)| !node.carries_ours())
            && self.world.records.len() == 0
    }

    fn object_acts(&mut self, wanted: &Wanted) -> Vec<(ObjectKey, ObjectAct)> {
        let mut acts = Vec::new();
        let nodes_vacant = self.nodes_are_vacant();
        for kind in Kind::ALL {
            if !self.dra_api && matches!(kind, Kind::DeviceClass | Kind::ResourceClaimTemplate) {
                continue;
            }
            let live: BTreeMap<ObjectKey, Managed> = self.live(kind).into_iter().collect();
            for (key, object) in wanted.objects.iter().filter(|(key, _)| key.kind == kind) {
                if kind == Kind::ResourceClaimTemplate
                    && self.world.namespaces.get(&key.namespace).is_none()
                {
                    continue;
                }
                match live.get(key) {
                    None => acts.push((
                        key.clone(),
                        ObjectAct::Create {
                            kind,
                            object: Box::new(object.clone()),
                        },
                    )),
                    Some(live) if !wanted.owns(live) => {
                        self.trouble(
                            key,
                            &WriteError::NotOurs(describe(kind, &key.namespace, &key.name)),
                        );
                    }
                    Some(live) if live.deleting => {}
                    Some(live)
                        if live.applied.as_deref()
                            == object
                                .annotations()
                                .get(names::APPLIED_ANNOTATION)
                                .map(String::as_str) =>
                    {
                        self.keeper.troubles.remove(key);
                    }
                    Some(live) => {
                        acts.push((
                            key.clone(),
                            ObjectAct::Replace {
                                kind,
                                object: Box::new(object.clone()),
                                live: live.clone(),
                            },
                        ));
                    }
                }
            }
            for (key, live) in live {
                let keep =
                    wanted.objects.contains_key(&key) || !wanted.owns(&live) || live.deleting;
                if keep || !self.may_delete(&key, nodes_vacant, wanted) {
                    continue;
                }
                let ObjectKey {
                    kind,
                    namespace,
                    name,
                } = key.clone();
                acts.push((
                    key,
                    ObjectAct::Delete {
                        kind,
                        namespace,
                        name,
                        live,
                    },
                ));
            }
        }
        acts
    }

    /// An object that is not wanted any more may still be needed: a DaemonSet while any node carries its labels or any pod of it
    /// runs, a shaper while its layout is ordered anywhere, the agent while any node is unfinished, classes
    /// until nobody can hold a claim of theirs.
    fn may_delete(&self, key: &ObjectKey, nodes_vacant: bool, wanted: &Wanted) -> bool {
        match key.kind {
            Kind::ResourceClaimTemplate => true,
            Kind::DaemonSet => match wanted.operand_of(&key.name) {
                Some((vendor, owner, cohort)) => !self.is_in_use(vendor, owner, cohort),
                None => freehold_render::shaper_of(&key.name).map_or(nodes_vacant, |shaper| {
                    let (vendor, cohort) = shaper;
                    !self.is_shaping(vendor, cohort)
                }),
            },
            Kind::DeviceClass => {
                let vendors_left = Vendor::ALL.iter().any(|vendor| {
                    self.world.nodes.iter().any(|(name, node)| {
                        matches!(node.owner(*vendor), Some(Ok(Owner::Dra)))
                            || self.way_back(*vendor, name, node).is_some()
                    })
                });
                // Finalizers, classes and RBAC go last.
                !vendors_left && (!wanted.tearing_down || nodes_vacant)
            }
        }
    }

    fn is_in_use(&self, vendor: Vendor, owner: Owner, cohort: &str) -> bool {
        self.world.has_operand_pods(vendor, owner, cohort)
            || self.world.nodes.iter().any(|(name, node)| {
                (node.cohort(vendor).is_some_and(|label| label == cohort)
                    && matches!(node.owner(vendor), Some(Ok(of)) if of == owner))
                    || (owner == Owner::Dra && self.way_back(vendor, name, node) == Some(cohort))
            })
    }

    /// A layout stays ordered until the operand that waits for it is gone: until its node is handed to somebody who wants none, or
    /// to nobody. A driver that a node may have to go back to waits for it as well.
    fn is_shaping(&self, vendor: Vendor, cohort: &str) -> bool {
        self.world.records.iter().any(|(name, record)| {
            let Some(part) = record.spec.vendor(vendor) else {
                return false;
            };
            let node = self.world.nodes.get(name);
            let label = node.and_then(|node| node.cohort(vendor));
            let back = node.and_then(|node| self.way_back(vendor, name, node));
            let concerned = part.cohort.as_deref() == Some(cohort)
                || label.is_some_and(|label| label == cohort)
                || back == Some(cohort);
            part.layout.is_some() && concerned
        })
    }

    /// The DRA cohort that a node amid a handover goes back to should a claim turn up that only its driver can unprepare: its
    /// operand has to be there then, although no label asks for it now.
    fn way_back(&self, vendor: Vendor, name: &str, node: &NodeEntry) -> Option<&str> {
        node.fence(vendor)?;
        let record = self.world.records.get(&name.to_owned())?;
        record.spec.vendor(vendor)?.dra_cohort.as_deref()
    }

    fn live(&self, kind: Kind) -> Vec<(ObjectKey, Managed)> {
        let key = |(namespace, name): &(String, String)| ObjectKey {
            kind,
            namespace: namespace.clone(),
            name: name.clone(),
        };
        match kind {
            Kind::DeviceClass => self
                .world
                .classes
                .iter()
                .map(|(k, live)| (key(k), live.clone()))
                .collect(),
            Kind::ResourceClaimTemplate => self
                .world
                .templates
                .iter()
                .map(|(k, live)| (key(k), live.clone()))
                .collect(),
            Kind::DaemonSet => self
                .world
                .daemon_sets
                .iter()
                .filter_map(|(k, set)| Some((key(k), set.managed.clone()?)))
                .collect(),
        }
    }

    pub(super) fn take_kept(&mut self, kept: Vec<Kept>, now: Instant) {
        self.keeper.busy = false;
        for Kept { key, result } in kept {
            match result {
                Ok(()) => {
                    self.metrics.wrote("object", "ok");
                    tracing::info!(
                        object = describe(key.kind, &key.namespace, &key.name),
                        "kept"
                    );
                    self.keeper.troubles.remove(&key);
                }
                Err(error) => {
                    self.metrics.wrote("object", error.category());
                    self.keeper.due = Some(now + RETRY);
                    match error {
                        // The cache is behind; the watch tells soon.
                        WriteError::Stale => {}
                        WriteError::Refused(_)
                        | WriteError::NotOurs(_)
                        | WriteError::Unavailable(_)
                        | WriteError::DisruptionBudget { .. } => {
                            self.trouble(&key, &error);
                        }
                    }
                }
            }
        }
        // The watch brings what was written; whatever else changed meanwhile is looked at then.
        self.teller.something_changed(now);
    }

    fn trouble(&mut self, key: &ObjectKey, error: &WriteError) {
        let object = describe(key.kind, &key.namespace, &key.name);
        let blocker = match error {
            WriteError::NotOurs(_) => Blocker::new(
                Reason::NameTaken,
                format!(
                    "{object} exists and is not owned by this AcceleratorCluster; Freehold does not touch it"
                ),
            ),
            WriteError::Refused(why) => Blocker::new(
                Reason::ObjectRefused,
                format!("{object} was refused by the API server: {why}"),
            ),
            WriteError::Stale
            | WriteError::Unavailable(_)
            | WriteError::DisruptionBudget { .. } => return,
        };
        tracing::warn!(object, reason = ?blocker.reason, message = blocker.message, "object not kept");
        match self.keeper.troubles.get_mut(key) {
            Some((known, _)) if *known == blocker => {}
            _ => {
                self.keeper
                    .troubles
                    .insert(key.clone(), (blocker, Timestamp::now().as_second()));
            }
        }
    }
}
