//! I2: an owner's operand is never deselected or deleted while the vendor is in use on that node, as seen by the API and attested
//! by the agent for this node UID, boot ID and term, after the fence went up.

use std::time::Duration;

use freehold_core::names;
use freehold_core::vendor::Vendor;

use super::{Findings, Moment};
use crate::monitor::facts::{KeptSeen, NodeSeen, Object, PodSeen};

/// From the answer to a write until the monitor hears of the object's new state, on a busy machine.
const ANSWER_TO_EVENT: Duration = Duration::from_secs(5);

pub(super) fn check(moment: &Moment<'_>, findings: &mut Findings) {
    match (&moment.fact.object, &moment.before) {
        (Object::Node(after), Some(Object::Node(before)))
            if !moment.fact.gone && before.uid == after.uid =>
        {
            for vendor in Vendor::ALL {
                let (had, has) = (
                    (before.owner(vendor), before.cohort(vendor)),
                    (after.owner(vendor), after.cohort(vendor)),
                );
                if had.0.is_some() && had != has && by_us(moment, before, after, vendor) {
                    deselected(moment, before, vendor, findings);
                }
            }
        }
        (Object::Kept(kept), Some(_)) if moment.fact.gone => {
            daemon_set_gone(moment, kept, findings);
        }
        (Object::Pod(pod), Some(Object::Pod(before)))
            if (pod.deleting || moment.fact.gone) && !before.deleting =>
        {
            pod_deleted(moment, pod, findings);
        }
        (
            Object::Node(_)
            | Object::Kept(_)
            | Object::Pod(_)
            | Object::Slice(_)
            | Object::Claim(_)
            | Object::Record(_)
            | Object::Cluster(_),
            _,
        ) => {}
    }
}

/// Whether the controller changed a node's labels; what others do to them is told of, and not its doing. A label that is set has
/// a field manager; one that is gone has none, and then the audit log tells who wrote.
fn by_us(moment: &Moment<'_>, before: &NodeSeen, after: &NodeSeen, vendor: Vendor) -> bool {
    let keys = [names::owner_label(vendor), names::cohort_label(vendor)];
    let mut changed = keys
        .iter()
        .filter(|key| before.labels.get(*key) != after.labels.get(*key));
    changed.any(|key| {
        if after.labels.contains_key(key) {
            return after
                .controller_fields
                .contains(&format!("f:metadata/f:labels/f:{key}"));
        }
        moment.history.writes.iter().any(|write| {
            let near = write.at.abs_diff(moment.fact.at) <= ANSWER_TO_EVENT;
            near && !write.by_agent && write.resource == "nodes" && write.name == after.name
        })
    })
}

fn deselected(moment: &Moment<'_>, node: &NodeSeen, vendor: Vendor, findings: &mut Findings) {
    let (at, name) = (moment.fact.at, node.name.as_str());
    let key = (name.to_owned(), vendor);
    let mut add =
        |rule, what: String| findings.add("I2", rule, at, name, format!("{vendor}: {what}"));
    let Some((fence, fenced)) = moment
        .world
        .fenced
        .get(&key)
        .filter(|(fence, _)| node.fence(vendor) == Some(fence.as_str()))
    else {
        return add(
            "deselected without a fence",
            format!("owner {:?} was taken away", node.owner(vendor)),
        );
    };
    let record = moment.world.record(name);
    let term = record
        .and_then(|record| record.spec.vendor(vendor))
        .map(|part| part.term);
    if term.map(|term| term.to_string()).as_ref() != Some(fence) {
        add(
            "deselected at another term than the fence's",
            format!("fence {fence}, term {term:?}"),
        );
    }
    let report = record.and_then(|record| record.status.as_ref()?.report.as_ref());
    let answers = report.is_some_and(|report| {
        let about_this_node = report.node_uid == node.uid && report.boot_id == node.boot_id;
        let part = report.vendor(vendor);
        about_this_node
            && part.is_some_and(|part| Some(part.observed_term) == term && part.in_use.is_idle())
    });
    if !answers {
        let what = format!(
            "node UID {}, boot {}, term {term:?}; the report is {report:?}",
            node.uid, node.boot_id
        );
        add("deselected without an attestation", what);
    }
    // The controller read everything freshly after it had seen the attestation. Whoever was there by then, it must have seen; who
    // came in the moment between the read and the write, it could not.
    let attested = moment.world.attested.get(&key).map(|(_, since)| *since);
    for (who, since) in moment.world.consumers.get(&key).into_iter().flatten() {
        let before_the_read = attested.is_none_or(|attested| since.version < attested.version);
        if before_the_read || at.saturating_sub(since.at) > moment.limits.read_to_write {
            add(
                "deselected over a consumer",
                format!("{who} is there since {:.3} s", since.at.as_secs_f64()),
            );
        }
    }
    // The node's own truth: whoever held a device already when the fence went up, and all the time since, was there to be seen.
    let mut held = moment
        .history
        .truth(name, fenced.at)
        .map(|truth| truth.holders(vendor))
        .unwrap_or_default();
    for truth in &moment.history.truths {
        if truth.node == name && truth.at > fenced.at && truth.at <= at {
            let present = truth.state.holders(vendor);
            held.retain(|holder| present.contains(holder));
        }
    }
    if !held.is_empty() {
        add(
            "deselected while in use on the node",
            format!("{held:?} since before the fence"),
        );
    }
}

/// A DaemonSet that goes takes its pods with it.
fn daemon_set_gone(moment: &Moment<'_>, set: &KeptSeen, findings: &mut Findings) {
    if set.kind != "DaemonSet" || set.owner.is_none() {
        return;
    }
    let label = |key: &str| set.labels.get(key).map(String::as_str);
    let vendor = Vendor::ALL
        .into_iter()
        .find(|vendor| label(names::VENDOR_LABEL) == Some(vendor.key()));
    for node in moment.world.nodes() {
        let needed = match vendor {
            Some(vendor) => {
                node.owner(vendor) == label(names::OWNER_LABEL)
                    && node.cohort(vendor) == label(names::COHORT_LABEL)
            }
            // The agents': whatever is ours on a node needs its agent.
            None => !node.marks().is_empty(),
        };
        if needed {
            let what = format!(
                "DaemonSet {} is gone, the node carries {:?}",
                set.name,
                node.marks()
            );
            findings.add(
                "I2",
                "DaemonSet deleted under its nodes",
                moment.fact.at,
                &node.name,
                what,
            );
        }
    }
}

/// An operand of a node that keeps its owner may be restarted for a new template, and for nothing else.
fn pod_deleted(moment: &Moment<'_>, pod: &PodSeen, findings: &mut Findings) {
    let (Some((vendor, owner, cohort)), Some(name)) = (pod.operand(), &pod.node) else {
        return;
    };
    let Some(node) = moment.world.node(name) else {
        return;
    };
    let by_us = moment.history.writes.iter().any(|write| {
        let same = write.namespace == pod.namespace && write.name == pod.name;
        !write.by_agent && same && write.verb == "delete" && write.resource == "pods"
    });
    if !by_us || node.owner(vendor) != Some(owner) || node.cohort(vendor) != Some(cohort) {
        return;
    }
    let current = moment.world.kept().find(|kept| {
        kept.kind == "DaemonSet"
            && kept.labels.get(names::VENDOR_LABEL).map(String::as_str) == Some(vendor.key())
            && kept.labels.get(names::OWNER_LABEL).map(String::as_str) == Some(owner)
            && kept.labels.get(names::COHORT_LABEL).map(String::as_str) == Some(cohort)
    });
    if current.is_some_and(|current| current.template == pod.template) {
        let what = format!(
            "{vendor}: pod {} ({}) had the current template {:?}",
            pod.name, pod.uid, pod.template
        );
        findings.add(
            "I2",
            "operand deleted though it was current",
            moment.fact.at,
            name,
            what,
        );
    }
}
