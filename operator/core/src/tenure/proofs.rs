//! What must be proven before a step, each proof in one place.

use super::goal::Goal;
use super::layout::layout_in_force;
use super::unmet::Unmet;
use super::{Facts, RecordFacts, consumers, shaping};
use crate::blocker::Reason;
use crate::intent::Layout;
use crate::report::VendorReport;
use crate::vendor::Owner;

/// The report about this vendor, if it is about this node and this boot. Whether it answers the present term is another
/// question, see [`answer`].
pub(super) fn report(facts: &Facts) -> Result<&VendorReport, Unmet> {
    let Some(report) = &facts.report else {
        return Err(silent(
            facts,
            "the node's agent has not reported yet".to_owned(),
        ));
    };
    if report.node_uid != facts.node.uid {
        return Err(silent(
            facts,
            format!(
                "the agent's report is for Node UID {}, the Node has UID {}",
                report.node_uid, facts.node.uid
            ),
        ));
    }
    if facts.node.boot_id.is_empty() || report.boot_id != facts.node.boot_id {
        return Err(silent(
            facts,
            format!(
                "the agent's report is from boot {}, the Node is in boot {:?}",
                report.boot_id, facts.node.boot_id
            ),
        ));
    }
    report.vendor(facts.vendor).ok_or_else(|| {
        silent(
            facts,
            format!("the agent's report says nothing about {} yet", facts.vendor),
        )
    })
}

/// The report, if it was read after the agent had seen the present term.
pub(super) fn answer<'a>(
    facts: &'a Facts,
    record: &RecordFacts,
) -> Result<&'a VendorReport, Unmet> {
    let report = report(facts)?;
    if report.observed_term == record.term {
        Ok(report)
    } else {
        Err(silent(
            facts,
            format!(
                "the agent's report answers term {}, term {} was asked for",
                report.observed_term, record.term
            ),
        ))
    }
}

/// "Nothing of this vendor is in use here", for this node, this boot and this term.
pub(super) fn attested(facts: &Facts, record: &RecordFacts) -> Result<(), Unmet> {
    let report = answer(facts, record)?;
    readable(facts, report)?;
    if report.in_use.is_idle() {
        Ok(())
    } else {
        Err(in_use(report))
    }
}

/// Whether a valid report, of whatever term, shows claims that are still prepared.
pub(super) fn dra_holders(facts: &Facts) -> bool {
    report(facts).is_ok_and(|report| report.in_use.dra > 0)
}

/// The vacate proof: the node is free of every owner, so that the goal may take it. On the way back to DRA the proof is about
/// the device plugin alone: what DRA holds is the reason to go.
pub(super) fn vacated(facts: &Facts, record: &RecordFacts, goal: Goal<'_>) -> Result<(), Unmet> {
    let back = matches!(goal, Goal::BackToDra(_));
    no_operand(facts)?;
    let report = answer(facts, record)?;
    if let Some((resource, count)) = facts.node.allocatable.iter().find(|(_, count)| **count > 0) {
        return Err(Unmet::soon(
            Reason::AdvertisementLingers,
            format!(
                "the Node still has {count} allocatable {resource}, expected 0: no device plugin of ours runs here any more"
            ),
        ));
    }
    if !back && facts.slices.count > 0 {
        return Err(Unmet::soon(
            Reason::AdvertisementLingers,
            format!(
                "{} ResourceSlice(s) of driver {} for this node still exist, expected none: no DRA driver of ours runs here any more",
                facts.slices.count,
                facts.vendor.dra_driver()
            ),
        ));
    }
    if let Some(socket) = report.plugin_sockets.iter().min() {
        return Err(Unmet::soon(
            Reason::SocketLingers,
            format!("the device-plugin socket {socket} still exists on the node"),
        ));
    }
    if !back && report.dra_registered {
        return Err(Unmet::soon(
            Reason::SocketLingers,
            format!(
                "a registration socket of driver {} still exists on the node",
                facts.vendor.dra_driver()
            ),
        ));
    }
    readable(facts, report)?;
    if report.in_use.device_plugin > 0 || (!back && report.in_use.dra > 0) {
        return Err(in_use(report));
    }
    consumers::gone(facts, back)
}

/// Our own operands are gone from the node, by UID: a new pod under an old name is another operand.
pub(super) fn no_operand(facts: &Facts) -> Result<(), Unmet> {
    facts.operands.iter().min().map_or(Ok(()), |pod| {
        let state = if pod.terminating {
            "is still ending"
        } else {
            "is still there, though the node's label no longer asks for it"
        };
        Err(Unmet::soon(
            Reason::OperandLingers,
            format!(
                "Pod {}/{} (UID {}) {state}",
                crate::names::OPERAND_NAMESPACE,
                pod.name,
                pod.uid
            ),
        ))
    })
}

/// The node's owner word is the ordered one, confirmed for the order's own term.
pub(super) fn word(facts: &Facts, record: &RecordFacts, owner: Owner) -> Result<(), Unmet> {
    let report = answer(facts, record)?;
    if report.word == Some(owner) && report.word_term == record.term {
        return Ok(());
    }
    Err(Unmet::soon(
        Reason::WordPending,
        format!(
            "the owner word on the node is {} (term {}), ordered is {} (term {}): it changes when no operand holds the node's lock",
            report.word.map_or("none", Owner::word),
            report.word_term,
            owner.word(),
            record.term
        ),
    ))
}

/// The geometry read back is the wanted one, and the node's shaper, if it has one, says nothing against it.
pub(super) fn layout(
    facts: &Facts,
    record: &RecordFacts,
    wanted: Option<&Layout>,
) -> Result<(), Unmet> {
    let Some(layout) = wanted else { return Ok(()) };
    let report = answer(facts, record)?;
    let read_back = layout_in_force(layout, report);
    if let Some(objection) = shaping::objection(report, read_back) {
        return Err(objection);
    }
    if read_back {
        return Ok(());
    }
    let said = facts
        .report
        .as_ref()
        .and_then(|report| report.errors.first());
    Err(Unmet::soon(
        Reason::LayoutMismatch,
        said.map_or_else(
            || "the geometry read back from the node is not the ordered layout yet".to_owned(),
            |error| format!("the geometry read back from the node is not the ordered layout; the agent says: {error}"),
        ),
    ))
}

/// No layout order lies on the node any more. Asked for once the term was raised with or after the withdrawal, so that the
/// agent has passed it on before it read.
pub(super) fn withdrawn(facts: &Facts, record: &RecordFacts) -> Result<(), Unmet> {
    if answer(facts, record)?.layout.ordered {
        return Err(Unmet::soon(
            Reason::LayoutPending,
            "the node still keeps the former layout order, which is withdrawn",
        ));
    }
    Ok(())
}

fn readable(facts: &Facts, report: &VendorReport) -> Result<(), Unmet> {
    if !report.in_use.unknown {
        return Ok(());
    }
    let errors = facts.report.iter().flat_map(|report| &report.errors).min();
    Err(Unmet::at_once(
        Reason::AttestationUnknown,
        errors.map_or_else(
            || "the agent could not read who uses the devices".to_owned(),
            |error| format!("the agent could not read who uses the devices: {error}"),
        ),
    ))
}

fn in_use(report: &VendorReport) -> Unmet {
    let holders = &report.in_use;
    let names = if holders.holders.is_empty() {
        String::new()
    } else {
        format!(": {}", holders.holders.join(", "))
    };
    Unmet::at_once(
        Reason::DevicesInUse,
        format!(
            "on the node itself devices are still in use by {} pod(s) of the device plugin and {} prepared claim(s){names}",
            holders.device_plugin, holders.dra
        ),
    )
}

fn silent(facts: &Facts, message: String) -> Unmet {
    if facts.node.ready {
        Unmet::soon(Reason::AgentSilent, message)
    } else {
        Unmet::soon(
            Reason::NodeNotReady,
            format!("the Node is not Ready, and {message}"),
        )
    }
}
