//! I4: nothing that is not ours is written; identity is UID, never name or label.

use std::collections::{BTreeMap, BTreeSet};

use super::{Findings, Moment};
use crate::monitor::facts::{History, Object, WriteSeen, is_our_label};

/// What the controller may ask for at all: verb and resource.
const CONTROLLER_WRITES: [(&str, &str); 22] = [
    ("patch", "acceleratorclusters.freehold.dev"),
    ("patch", "acceleratorclusters.freehold.dev/status"),
    ("create", "acceleratornodes.freehold.dev"),
    ("patch", "acceleratornodes.freehold.dev"),
    ("delete", "acceleratornodes.freehold.dev"),
    ("patch", "acceleratornodes.freehold.dev/status"),
    ("patch", "nodes"),
    ("delete", "pods"),
    ("create", "pods/eviction"),
    ("create", "daemonsets.apps"),
    ("update", "daemonsets.apps"),
    ("delete", "daemonsets.apps"),
    ("create", "deviceclasses.resource.k8s.io"),
    ("update", "deviceclasses.resource.k8s.io"),
    ("delete", "deviceclasses.resource.k8s.io"),
    ("create", "resourceclaimtemplates.resource.k8s.io"),
    ("update", "resourceclaimtemplates.resource.k8s.io"),
    ("delete", "resourceclaimtemplates.resource.k8s.io"),
    ("create", "events.events.k8s.io"),
    ("patch", "events.events.k8s.io"),
    ("create", "leases.coordination.k8s.io"),
    ("patch", "leases.coordination.k8s.io"),
];

/// Kinds whose deletions are counted against what was ours, by resource.
const KEPT: [(&str, &str); 3] = [
    ("daemonsets.apps", "DaemonSet"),
    ("deviceclasses.resource.k8s.io", "DeviceClass"),
    (
        "resourceclaimtemplates.resource.k8s.io",
        "ResourceClaimTemplate",
    ),
];

/// What the audit log says.
pub(super) fn writes(history: &History, findings: &mut Findings) {
    let mut deletions: BTreeMap<(&'static str, &str, &str), Vec<&WriteSeen>> = BTreeMap::new();
    for write in &history.writes {
        let subject = format!("{} {}/{}", write.resource, write.namespace, write.name);
        if write.by_agent {
            let own = write.token_node.as_deref() == Some(write.name.as_str());
            let allowed = ("patch", "acceleratornodes.freehold.dev/status")
                == (write.verb.as_str(), write.resource.as_str());
            if !(own && allowed) {
                let what = format!("{} by the agent of {:?}", write.verb, write.token_node);
                findings.add(
                    "I4",
                    "an agent wrote what is not its own",
                    write.at,
                    &subject,
                    what,
                );
            }
            continue;
        }
        if !CONTROLLER_WRITES.contains(&(write.verb.as_str(), write.resource.as_str())) {
            findings.add(
                "I4",
                "unexpected write",
                write.at,
                &subject,
                format!("{} by the controller", write.verb),
            );
        }
        if let Some((_, kind)) = KEPT
            .iter()
            .find(|(resource, _)| write.verb == "delete" && *resource == write.resource)
        {
            deletions
                .entry((kind, &write.namespace, &write.name))
                .or_default()
                .push(write);
        }
    }
    for ((kind, namespace, name), asked) in deletions {
        let gone = history.facts.iter().filter(|fact| fact.gone);
        let kept = gone.filter_map(|fact| {
            if let Object::Kept(kept) = &fact.object {
                Some(kept)
            } else {
                None
            }
        });
        let named = kept.filter(|kept| {
            (kept.kind, kept.namespace.as_str(), kept.name.as_str()) == (kind, namespace, name)
        });
        let ours = named.filter(|kept| kept.owner.is_some()).count();
        if let Some(last) = asked.last()
            && asked.len() > ours
        {
            let what = format!(
                "{} deletions by the controller, {ours} of an object that an AcceleratorCluster owned",
                asked.len()
            );
            findings.add(
                "I4",
                "a foreign object was deleted",
                last.at,
                &format!("{kind} {namespace}/{name}"),
                what,
            );
        }
    }
}

/// What the objects themselves say.
pub(super) fn check(moment: &Moment<'_>, findings: &mut Findings) {
    let at = moment.fact.at;
    match &moment.fact.object {
        Object::Node(node) if !moment.fact.gone => {
            let aliases = &moment.world.aliases;
            if let Some(Object::Node(before)) = &moment.before
                && before.uid == node.uid
                && before.marks() != node.marks()
            {
                let (had, has) = (before.foreign_marks(aliases), node.foreign_marks(aliases));
                if had != has {
                    let changed: Vec<&String> = had.symmetric_difference(&has).collect();
                    findings.add(
                        "I4",
                        "a write of ours changed a foreign mark",
                        at,
                        &node.name,
                        format!("{changed:?}"),
                    );
                }
            }
            let foreign: Vec<&String> = node
                .controller_fields
                .iter()
                .filter(|path| !is_our_field(path, aliases))
                .collect();
            if !foreign.is_empty() {
                findings.add(
                    "I4",
                    "the controller wrote a foreign field",
                    at,
                    &node.name,
                    format!("{foreign:?}"),
                );
            }
        }
        Object::Kept(kept) if kept.written_by_controller && kept.owner.is_none() => {
            let subject = format!("{} {}/{}", kept.kind, kept.namespace, kept.name);
            findings.add(
                "I4",
                "the controller wrote an object of somebody else",
                at,
                &subject,
                "no AcceleratorCluster owns it".into(),
            );
        }
        Object::Record(record) if !moment.fact.gone => {
            let name = record.metadata.name.as_deref().unwrap_or_default();
            let owners: Vec<&str> = record
                .metadata
                .owner_references
                .iter()
                .flatten()
                .map(|owner| owner.uid.as_str())
                .collect();
            if owners != [record.spec.node_uid.as_str()] {
                let what = format!(
                    "made for node UID {}, owned by {owners:?}",
                    record.spec.node_uid
                );
                findings.add("I4", "a record of another node", at, name, what);
            }
        }
        Object::Node(_)
        | Object::Kept(_)
        | Object::Record(_)
        | Object::Pod(_)
        | Object::Slice(_)
        | Object::Claim(_)
        | Object::Cluster(_) => {}
    }
}

fn is_our_field(path: &str, aliases: &BTreeSet<String>) -> bool {
    let label = path.strip_prefix("f:metadata/f:labels/f:");
    matches!(path, "" | "f:spec/f:taints" | "f:metadata/f:labels")
        || label.is_some_and(|label| is_our_label(label) || aliases.contains(label))
}
