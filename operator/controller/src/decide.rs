//! From the world to [`Facts`], and from those, through `core`, to decisions. Nothing here decides; it only puts together what was
//! observed.

use std::time::Instant;

use freehold_api::{AcceleratorNode, LayoutSpec};
use freehold_core::assign::{self, Assignment, ClusterView};
use freehold_core::blocker::Blocker;
use freehold_core::intent::Intent;
use freehold_core::names;
use freehold_core::tenure::{
    self, Contended, Decision, Facts, ForeignOwner, NodeFacts, RecordFacts, Rest, Step, Timing,
    Want,
};
use freehold_core::vendor::{Owner, Vendor};

use crate::observe::consumers::{Refusals, consumers};
use crate::observe::entry::{LabelKeys, NodeEntry, PodEntry, foreign_pod};
use crate::observe::fresh::FreshView;
use crate::observe::slim::SlimPod;
use crate::observe::world::World;

/// What every decision of one pass shares.
pub(crate) struct Pass<'a> {
    pub(crate) world: &'a World,
    pub(crate) intent: &'a Intent,
    pub(crate) cluster: &'a ClusterView,
    /// The resource is being deleted: nothing is wanted anywhere.
    pub(crate) tearing_down: bool,
    pub(crate) limits: Timing,
    pub(crate) label_keys: &'a LabelKeys,
    /// Evictions on this node that were refused.
    pub(crate) refusals: &'a Refusals,
    pub(crate) now: Instant,
}

/// What is remembered about one vendor on one node.
pub(crate) struct Memory {
    /// The step that the tenure was in so far, and for how many seconds.
    pub(crate) lasted: Option<(Step, u64)>,
    /// The pause after others changed our marks.
    pub(crate) contended: Option<Contended>,
    /// The rest after a drain that was given up.
    pub(crate) resting: Option<Rest>,
}

/// One vendor on one node.
pub(crate) struct Verdict {
    pub(crate) assignment: Assignment,
    pub(crate) decision: Decision,
}

impl Pass<'_> {
    /// Decides from caches, or from `fresh` reads where given. `may_start` is asked with the cohort that is wanted,
    /// `claimed` with the Node that the decision is about.
    pub(crate) fn decide(
        &self,
        vendor: Vendor,
        node: &NodeEntry,
        fresh: Option<&FreshView>,
        may_start: impl Fn(Option<&str>) -> Result<(), Blocker>,
        claimed: impl Fn(&NodeEntry) -> bool,
        memory: Memory,
    ) -> Verdict {
        let Memory {
            lasted,
            contended,
            resting,
        } = memory;
        let read = fresh
            .and_then(|fresh| fresh.node.clone())
            .map(|node| NodeEntry::new(node, self.label_keys));
        let node = read.as_ref().unwrap_or(node);
        let name = &node.view.name;
        let record = match fresh {
            Some(fresh) => fresh.record.as_ref(),
            None => self.world.records.get(name).map(|record| &**record),
        };
        let report = record.and_then(|record| record.status.as_ref()?.report.as_ref());
        let mut assignment = assign::assign(vendor, &node.view, report, self.cluster, self.intent);
        if self.tearing_down {
            assignment = Assignment {
                cohort: None,
                excluded: None,
                want: Want::Nothing,
            };
        }
        // A matched node that is left out keeps a record all the same: people find it listed there with the reason, and the
        // agent's answer about it has a place to go.
        if let Some(why) = &assignment.excluded
            && assignment.cohort.is_some()
            && assignment.want == Want::Nothing
            && node.owner(vendor).is_none()
            && node.fence(vendor).is_none()
        {
            assignment.want = Want::Hold(why.clone());
        }
        let wanted_cohort = match &assignment.want {
            Want::Owner(target) => Some(target.cohort.as_str()),
            Want::Nothing | Want::Hold(_) => None,
        };
        let (may_start, claimed) = (may_start(wanted_cohort), claimed(node));
        // Whoever reads freshly sees pods that the watch has not told of yet.
        let mut operands = self.world.operands(name, vendor);
        let read_pods = fresh.iter().flat_map(|fresh| &fresh.pods);
        let read_operands = read_pods
            .filter(|pod| is_operand(pod))
            .filter_map(PodEntry::new);
        for pod in read_operands.filter(|pod| pod.vendor == vendor) {
            operands.retain(|known| known.uid != pod.operand.uid);
            operands.push(pod.operand);
        }
        operands.sort();
        let (fence_seen_s, advert_stable_s) =
            self.world
                .held_for(name, vendor, node.fence(vendor), self.now);
        let mut facts = Facts {
            vendor,
            want: assignment.want.clone(),
            node: NodeFacts {
                uid: node.view.uid.clone(),
                boot_id: node.view.boot_id.clone(),
                ready: node.view.ready,
                owner: node.owner(vendor),
                cohort: node.cohort(vendor).cloned(),
                fence: node.fence(vendor),
                foreign_alias: self
                    .intent
                    .owner_alias
                    .as_deref()
                    .filter(|key| node.alias_is_foreign(key))
                    .and_then(|key| Some(format!("{key}={}", node.view.labels.get(key)?))),
                allocatable: node
                    .view
                    .allocatable
                    .iter()
                    .filter(|(resource, _)| vendor.owns_resource(resource))
                    .map(|(resource, count)| (resource.clone(), *count))
                    .collect(),
            },
            record: record.and_then(|record| record_facts(record, vendor)),
            report: report.cloned(),
            slices: self.world.slice_facts(name, vendor),
            consumers: fresh.map(|fresh| {
                self.refusals.mark(
                    consumers(vendor, name, &fresh.pods, &fresh.claims),
                    self.now,
                )
            }),
            foreign: self.foreign(vendor, node, record, fresh, &operands),
            operands,
            fresh: fresh.is_some(),
            may_start,
            claimed,
            contended,
            resting,
            tearing_down: self.tearing_down,
            drain: self.intent.rollout.drain,
            timing: Timing {
                fence_seen_s,
                advert_stable_s,
                step_s: lasted.map_or(0, |(_, seconds)| seconds),
                drain_timeout_s: self.intent.rollout.drain_timeout_s,
                ..self.limits
            },
        };
        let mut decision = tenure::step(&facts);
        if lasted.is_some_and(|(step, _)| step != decision.step) {
            // A step that only begins has taken no time yet, however long the one before it took.
            facts.timing.step_s = 0;
            decision = tenure::step(&facts);
        }
        Verdict {
            decision,
            assignment,
        }
    }

    /// Evidence that another party hands out the vendor's devices here. What our own operand leaves behind while it is being
    /// replaced is not foreign: the word that was last ordered says whose leftovers they may be.
    fn foreign(
        &self,
        vendor: Vendor,
        node: &NodeEntry,
        record: Option<&AcceleratorNode>,
        fresh: Option<&FreshView>,
        operands: &[tenure::OperandPod],
    ) -> Vec<ForeignOwner> {
        let mut found = Vec::new();
        let report =
            record.and_then(|record| record.status.as_ref()?.report.as_ref()?.vendor(vendor));
        let last_word = record.and_then(|record| record.spec.vendor(vendor)?.owner);
        let foreign = |owner: Owner| {
            last_word != Some(owner) && !operands.iter().any(|operand| operand.owner == owner)
        };
        if foreign(Owner::DevicePlugin) {
            let advertised: Vec<String> = node
                .view
                .allocatable
                .iter()
                .filter(|(resource, count)| vendor.owns_resource(resource) && **count > 0)
                .map(|(resource, count)| format!("{resource}={count}"))
                .collect();
            if !advertised.is_empty() {
                let evidence = format!(
                    "allocatable {} without an operand pod of Freehold",
                    advertised.join(", ")
                );
                found.push(self.suspect(node, vendor, Owner::DevicePlugin, evidence));
            }
            if let Some(sockets) = report
                .map(|report| &report.plugin_sockets)
                .filter(|sockets| !sockets.is_empty())
            {
                let evidence = format!("kubelet device-plugin sockets {}", sockets.join(", "));
                found.push(self.suspect(node, vendor, Owner::DevicePlugin, evidence));
            }
        }
        if foreign(Owner::Dra) {
            let slices = self.world.slice_facts(&node.view.name, vendor);
            if slices.count > 0 {
                let evidence = format!(
                    "{} ResourceSlices of driver {} without an operand pod of Freehold",
                    slices.count,
                    vendor.dra_driver()
                );
                found.push(self.suspect(node, vendor, Owner::Dra, evidence));
            }
            if report.is_some_and(|report| report.dra_registered) {
                let evidence = format!(
                    "a kubelet registration of DRA driver {}",
                    vendor.dra_driver()
                );
                found.push(self.suspect(node, vendor, Owner::Dra, evidence));
            }
        }
        if vendor == Vendor::Nvidia {
            for (kind, objects) in &self.world.rivals {
                for (name, ()) in objects.iter() {
                    let evidence = "its operator hands out every GPU of the cluster".to_owned();
                    found.push(ForeignOwner {
                        who: format!("{kind} {name}"),
                        evidence,
                        host_plugin: false,
                    });
                }
            }
        }
        for pod in fresh.iter().flat_map(|fresh| &fresh.pods) {
            let labels = pod.metadata.labels.as_ref();
            let ours = pod.metadata.namespace.as_deref() == Some(names::OPERAND_NAMESPACE)
                && labels.is_some_and(|labels| labels.contains_key(names::COMPONENT_LABEL));
            if !ours && foreign_pod(&pod.spec).is_some_and(|(of, _)| of == vendor) {
                let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
                let who = pod
                    .metadata
                    .owner_references
                    .iter()
                    .flatten()
                    .find(|owner| owner.controller == Some(true))
                    .map_or_else(
                        || {
                            format!(
                                "Pod {namespace}/{}",
                                pod.metadata.name.as_deref().unwrap_or_default()
                            )
                        },
                        |owner| format!("{} {namespace}/{}", owner.kind, owner.name),
                    );
                let evidence = "its pod on this node mounts the kubelet's plugin directory with the vendor's image".to_owned();
                found.push(ForeignOwner {
                    who,
                    evidence,
                    host_plugin: false,
                });
            }
        }
        found.sort();
        found.dedup();
        found
    }

    /// Who it probably is: DaemonSets that look like the vendor's plugin, by image and host path, and can reach this node.
    fn suspect(
        &self,
        node: &NodeEntry,
        vendor: Vendor,
        owner: Owner,
        evidence: String,
    ) -> ForeignOwner {
        let mut names: Vec<&str> = self
            .world
            .daemon_sets
            .iter()
            .filter(|(_, entry)| entry.foreign == Some((vendor, owner)))
            .filter(|(_, entry)| entry.reach.reaches(&node.view.name, &node.view.labels))
            .map(|(_, entry)| entry.name.as_str())
            .collect();
        names.sort_unstable();
        let who = match names.as_slice() {
            [] => format!(
                "an unknown {vendor} {owner} (no DaemonSet with its image was found: look at the host and its provider)"
            ),
            [one] => format!("DaemonSet {one}"),
            [one, rest @ ..] => format!("DaemonSet {one} (or {} more)", rest.len()),
        };
        ForeignOwner {
            who,
            evidence,
            host_plugin: names.is_empty() && owner == Owner::DevicePlugin,
        }
    }
}

fn is_operand(pod: &SlimPod) -> bool {
    let component = pod
        .metadata
        .labels
        .as_ref()
        .and_then(|labels| labels.get(names::COMPONENT_LABEL));
    pod.metadata.namespace.as_deref() == Some(names::OPERAND_NAMESPACE)
        && component.is_some_and(|component| component == "operand")
}

fn record_facts(record: &AcceleratorNode, vendor: Vendor) -> Option<RecordFacts> {
    let spec = record.spec.vendor(vendor)?;
    Some(RecordFacts {
        node_uid: record.spec.node_uid.clone(),
        cohort: spec.cohort.clone(),
        owner: spec.owner,
        term: spec.term,
        dra_cohort: spec.dra_cohort.clone(),
        layout: spec.layout.as_ref().and_then(LayoutSpec::to_layout),
    })
}
