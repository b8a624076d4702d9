//! I1: never two live owners of one vendor on one node, and no device handed out by both.

use std::collections::BTreeMap;

use freehold_core::vendor::{Owner, Vendor};

use super::{Findings, Moment};
use crate::monitor::facts::{History, NodeTruth, Object};

/// What really runs. A stranger who comes while we hold the node is not our doing; our operand that starts beside a stranger is.
pub(super) fn on_nodes(history: &History, findings: &mut Findings) {
    let mut known: BTreeMap<&str, &NodeTruth> = BTreeMap::new();
    let nothing = NodeTruth::default();
    for truth in &history.truths {
        let before = known.insert(&truth.node, &truth.state).unwrap_or(&nothing);
        for vendor in Vendor::ALL {
            let alive = |owner| {
                truth
                    .state
                    .operands
                    .iter()
                    .filter(move |(v, o, _)| (*v, *o) == (vendor, owner))
                    .map(|(.., pod)| pod)
            };
            let plugins: Vec<&String> = alive(Owner::DevicePlugin).collect();
            let drivers: Vec<&String> = alive(Owner::Dra).collect();
            if !plugins.is_empty() && !drivers.is_empty() {
                let what = format!(
                    "{vendor}: device plugin in pod {plugins:?} and DRA driver in pod {drivers:?} run at once"
                );
                findings.add("I1", "two operands run", truth.at, &truth.node, what);
            }
            let newcomer = truth
                .state
                .operands
                .difference(&before.operands)
                .find(|(of, ..)| *of == vendor);
            if let Some((_, owner, pod)) = newcomer
                && truth.state.strangers.contains(&vendor)
            {
                let what = format!(
                    "{vendor}: our {owner} started in pod {pod} though somebody else's device plugin serves the node"
                );
                findings.add(
                    "I1",
                    "started beside a stranger",
                    truth.at,
                    &truth.node,
                    what,
                );
            }
            let claims: Vec<&String> = truth
                .state
                .claims
                .iter()
                .filter(|(of, _)| *of == vendor)
                .map(|(_, uid)| uid)
                .collect();
            let given: Vec<&String> = truth
                .state
                .given
                .iter()
                .filter(|(of, _)| *of == vendor)
                .map(|(_, uid)| uid)
                .collect();
            if !claims.is_empty() && !given.is_empty() {
                let what = format!(
                    "{vendor}: claims {claims:?} are prepared while pods {given:?} hold devices of the plugin"
                );
                findings.add("I1", "handed out by both", truth.at, &truth.node, what);
            }
        }
    }
}

/// What schedulers see.
pub(super) fn on_the_api(moment: &Moment<'_>, findings: &mut Findings) {
    let name = match &moment.fact.object {
        Object::Node(node) => node.name.clone(),
        Object::Slice(slice) => slice.node.clone().unwrap_or_default(),
        Object::Pod(_)
        | Object::Claim(_)
        | Object::Record(_)
        | Object::Cluster(_)
        | Object::Kept(_) => return,
    };
    let Some(node) = moment.world.node(&name) else {
        return;
    };
    for vendor in Vendor::ALL {
        let (allocatable, listed) = (node.allocatable(vendor), moment.world.listed(&name, vendor));
        let stranger = moment
            .history
            .truth(&name, moment.fact.at)
            .is_some_and(|truth| truth.strangers.contains(&vendor));
        if allocatable > 0 && listed > 0 && !stranger {
            let what = format!(
                "{vendor}: {allocatable} allocatable and {listed} devices in slices of {}",
                vendor.dra_driver()
            );
            findings.add("I1", "advertised twice", moment.fact.at, &name, what);
        }
    }
}
