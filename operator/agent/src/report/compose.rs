//! From a reading and the orders it answers to a report.

use freehold_api::{AcceleratorNode, LayoutSpec, VendorSpec};
use freehold_core::report::{NodeReport, VendorReport};
use freehold_core::vendor::{PerVendor, Vendor};
use kube::ResourceExt as _;

use super::identity::Identity;
use super::link::LinkError;
use crate::interlock::order::{Order, Outcome};
use crate::protocol::{Part, Reading, Request};
use crate::shape::order::LayoutOrder;

/// The version that reports carry.
const AGENT_VERSION: &str = env!("CARGO_PKG_VERSION");

/// What to ask of the witness: an order for each vendor that the spec names an owner for, and a layout, or none, for each that
/// it speaks of. Orders for another node, which had this one's name before, are not ours to carry out, and an object that was only
/// just made orders nothing yet: its predecessor may have been lost while the node kept its owner and its layout.
#[must_use]
pub fn request(identity: &Identity, object: &AcceleratorNode) -> Request {
    if object.spec.node_uid != identity.node_uid {
        return Request::default();
    }
    let created = object.metadata.creation_timestamp.as_ref();
    let created = created.map_or(0, |time| time.0.as_second());
    let order = |vendor| {
        Some(Order {
            vendor,
            owner: object.spec.vendor(vendor)?.owner?,
            object_uid: object.uid()?,
            object_created: created,
            generation: object.metadata.generation?,
        })
    };
    let layout = |vendor| {
        let part = object.spec.vendor(vendor)?;
        let layout = part.layout.as_ref().and_then(LayoutSpec::to_layout);
        let new = part.owner.is_none() && part.term == VendorSpec::FIRST_TERM;
        (layout.is_some() || !new).then_some(LayoutOrder {
            object_uid: object.uid()?,
            object_created: created,
            generation: object.metadata.generation?,
            layout,
        })
    };
    Request {
        orders: Vendor::ALL.into_iter().filter_map(order).collect(),
        layouts: PerVendor::from_fn(layout),
    }
}

/// The report: what was read, as an answer to the terms of `object`, which was read before.
#[must_use]
pub fn report(identity: &Identity, object: &AcceleratorNode, reading: Reading) -> NodeReport {
    let mut report = NodeReport {
        node_uid: identity.node_uid.clone(),
        boot_id: reading.boot_id.clone(),
        agent_version: AGENT_VERSION.to_owned(),
        errors: reading.errors.clone(),
        ..NodeReport::default()
    };
    let PerVendor { nvidia, neuron } = reading.parts();
    for (vendor, part) in [(Vendor::Nvidia, nvidia), (Vendor::Neuron, neuron)] {
        let spec = object.spec.vendor(vendor);
        let troubles = [
            layout_trouble(vendor, &part),
            trouble(vendor, &part, spec.and_then(|spec| spec.owner)),
        ];
        for trouble in troubles.into_iter().flatten() {
            report.errors.insert(0, trouble);
        }
        if spec.is_none() && !part.present {
            continue;
        }
        let term = spec.map_or(0, |spec| spec.term);
        let in_force = matches!(part.order, Some(Outcome::InForce))
            && part.report.word == spec.and_then(|spec| spec.owner);
        *report.vendor_mut(vendor) = Some(VendorReport {
            observed_term: term,
            word_term: if in_force { term } else { 0 },
            ..part.report
        });
    }
    report
}

/// Why the word is not what was ordered, if it is not.
fn trouble(
    vendor: Vendor,
    part: &Part,
    ordered: Option<freehold_core::vendor::Owner>,
) -> Option<String> {
    let why = match part.order.as_ref()? {
        Outcome::InForce => return None,
        Outcome::Busy => "an operand of this node holds the lock",
        Outcome::Outdated => "a younger order was carried out before",
        Outcome::Failed(error) => error,
    };
    let word = part.report.word.map_or("none", |word| word.word());
    Some(format!(
        "owner word of {vendor}: ordered {}, in force {word}: {why}",
        ordered.map_or("none", |owner| owner.word())
    ))
}

/// Why an ordered layout was not even taken, if it was not.
fn layout_trouble(vendor: Vendor, part: &Part) -> Option<String> {
    let why = match part.layout_order.as_ref()? {
        Outcome::InForce => return None,
        Outcome::Busy => "devices are in use",
        Outcome::Outdated => "a younger order was taken before",
        Outcome::Failed(error) => error,
    };
    Some(format!(
        "layout of {vendor}: the order was not taken: {why}"
    ))
}

/// The report while the witness is silent: what was last said, as something that attests nothing.
#[must_use]
pub fn blind(identity: &Identity, last: Option<&NodeReport>, error: &LinkError) -> NodeReport {
    let mut report = last.cloned().unwrap_or_default();
    report.node_uid.clone_from(&identity.node_uid);
    AGENT_VERSION.clone_into(&mut report.agent_version);
    for vendor in Vendor::ALL {
        if let Some(part) = report.vendor_mut(vendor) {
            part.in_use.unknown = true;
        }
    }
    report.errors = vec![format!("the witness does not answer: {error}")];
    report
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn ordered(part: &Value) -> Option<Option<freehold_core::intent::Layout>> {
        let object: AcceleratorNode = serde_json::from_value(json!({
            "apiVersion": "freehold.dev/v1alpha1", "kind": "AcceleratorNode",
            "metadata": {"name": "rack-3", "uid": "an-1", "generation": 7},
            "spec": {"nodeUID": "uid-1", "neuron": part},
        }))
        .unwrap();
        let identity = Identity {
            node_uid: "uid-1".into(),
        };
        let order = request(&identity, &object).layouts.neuron?;
        assert_eq!((order.object_uid.as_str(), order.generation), ("an-1", 7));
        Some(order.layout)
    }

    #[test]
    fn an_object_that_was_just_made_takes_no_layout_from_a_node() {
        assert_eq!(ordered(&json!({"term": 1})), None);
        assert_eq!(ordered(&json!({"term": 1, "cohort": "birch"})), None);
    }

    #[test]
    fn a_layout_is_ordered_and_withdrawn_as_the_spec_says() {
        let layout = json!({"logicalNeuronCore": 1});
        let lnc = freehold_core::intent::Layout::LogicalNeuronCore(1);
        for (part, expected) in [
            (json!({"term": 1, "layout": layout}), Some(lnc.clone())),
            (json!({"term": 4}), None),
            (json!({"term": 1, "owner": "DRA"}), None),
            (
                json!({"term": 9, "owner": "DRA", "layout": layout}),
                Some(lnc),
            ),
        ] {
            assert_eq!(ordered(&part), Some(expected), "{part}");
        }
    }
}
