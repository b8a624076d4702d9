//! Behaviour of the protocol, told on facts of one node.

mod back;
mod changes;
mod conflicts;
mod contention;
mod draining;
mod first_ownership;
mod given_up;
mod holding;
mod orders;
mod rules;
mod shaping;
mod walk;

use std::collections::BTreeMap;

use super::*;
use crate::blocker::{Blocker, Reason};
use crate::expect::Expected;
use crate::intent::DrainPolicy;
use crate::report::{NodeReport, VendorReport};
use crate::vendor::{Owner, Vendor};

const UID: &str = "uid-of-node-quince";
const BOOT: &str = "boot-of-tuesday";
const PLUGIN_COHORT: &str = "amber-plugin";
const DRA_COHORT: &str = "violet-dra";
const RESOURCE: &str = "nvidia.com/gpu";

/// Takes one proof away.
type Spoil = fn(&mut Facts);

fn target(owner: Owner) -> Target {
    let (cohort, expected) = match owner {
        Owner::DevicePlugin => (
            PLUGIN_COHORT,
            Expected::Resources(BTreeMap::from([(RESOURCE.to_owned(), 4)])),
        ),
        Owner::Dra => (
            DRA_COHORT,
            Expected::Devices {
                devices: 4,
                mig_devices: 0,
            },
        ),
    };
    Target {
        cohort: cohort.into(),
        owner,
        layout: None,
        shape: format!("shape-of-{cohort}"),
        template: format!("template-of-{cohort}"),
        expected: Ok(expected),
    }
}

fn wants(owner: Owner) -> Want {
    Want::Owner(Box::new(target(owner)))
}

fn target_mut(facts: &mut Facts) -> &mut Target {
    match &mut facts.want {
        Want::Owner(target) => target,
        Want::Nothing | Want::Hold(_) => panic!("this test wants an owner"),
    }
}

/// A candidate node that nothing happened to yet.
fn untouched(want: Want) -> Facts {
    Facts {
        vendor: Vendor::Nvidia,
        want,
        node: NodeFacts {
            uid: UID.into(),
            boot_id: BOOT.into(),
            ready: true,
            owner: None,
            cohort: None,
            fence: None,
            foreign_alias: None,
            allocatable: BTreeMap::from([(RESOURCE.to_owned(), 0)]),
        },
        record: None,
        report: None,
        operands: vec![],
        slices: SliceFacts::default(),
        consumers: None,
        foreign: vec![],
        fresh: false,
        may_start: Ok(()),
        claimed: true,
        contended: None,
        resting: None,
        tearing_down: false,
        drain: DrainPolicy::Wait,
        timing: Timing {
            fence_seen_s: 60,
            step_s: 0,
            advert_stable_s: 60,
            settle_s: 5,
            stable_s: 3,
            drain_timeout_s: 3600,
            patience_s: 300,
        },
    }
}

fn record(owner: Option<Owner>, term: i64) -> RecordFacts {
    RecordFacts {
        node_uid: UID.into(),
        cohort: owner.map(|owner| target(owner).cohort),
        owner,
        term,
        layout: None,
        dra_cohort: owner
            .filter(|owner| *owner == Owner::Dra)
            .map(|owner| target(owner).cohort),
    }
}

/// The agent's answer to the present term: idle, with this word.
fn answer(term: i64, word: Option<Owner>) -> NodeReport {
    let mut part = VendorReport {
        observed_term: term,
        word,
        word_term: term,
        pci_devices: 4,
        ..VendorReport::default()
    };
    part.inventory.devices = 4;
    NodeReport {
        node_uid: UID.into(),
        boot_id: BOOT.into(),
        nvidia: Some(part),
        ..NodeReport::default()
    }
}

fn report_mut(facts: &mut Facts) -> &mut VendorReport {
    facts
        .report
        .as_mut()
        .and_then(|report| report.nvidia.as_mut())
        .expect("this test has a report")
}

fn operand(owner: Owner) -> OperandPod {
    let target = target(owner);
    OperandPod {
        name: format!("operand-{}", owner.word()),
        uid: format!("uid-of-operand-{}", owner.word()),
        owner,
        cohort: target.cohort,
        ready: true,
        terminating: false,
        shape: target.shape,
        template: target.template,
        waiting: None,
    }
}

fn slices(devices: usize) -> SliceFacts {
    SliceFacts {
        count: 1,
        devices,
        mig_devices: 0,
        complete: true,
    }
}

fn advertise(facts: &mut Facts, owner: Owner) {
    facts.operands = vec![operand(owner)];
    match owner {
        Owner::DevicePlugin => {
            facts.node.allocatable = BTreeMap::from([(RESOURCE.to_owned(), 4)]);
            report_mut(facts).plugin_sockets = vec!["nvidia-gpu.sock".into()];
        }
        Owner::Dra => {
            facts.slices = slices(4);
            report_mut(facts).dra_registered = true;
        }
    }
}

/// A node that `owner` holds in term 2, advertising what it should.
fn held_by(owner: Owner, want: Want) -> Facts {
    let mut facts = untouched(want);
    facts.node.owner = Some(Ok(owner));
    facts.node.cohort = Some(target(owner).cohort);
    facts.record = Some(record(Some(owner), 2));
    facts.report = Some(answer(2, Some(owner)));
    advertise(&mut facts, owner);
    facts
}

/// Held by `owner`, fenced with term 3, which the agent has answered.
fn draining(owner: Owner, want: Want) -> Facts {
    let mut facts = held_by(owner, want);
    facts.node.fence = Some(3);
    facts.record = Some(record(Some(owner), 3));
    let part = report_mut(&mut facts);
    part.observed_term = 3;
    part.word_term = 3;
    facts
}

/// Revoked from `owner`, whose operand and advertisements are gone; at this term.
fn free_of(owner: Owner, term: i64, want: Want) -> Facts {
    let mut facts = untouched(want);
    facts.node.fence = Some(3);
    facts.record = Some(record(Some(owner), term));
    facts.report = Some(answer(term, Some(owner)));
    facts
}

fn fresh(mut facts: Facts, consumers: Vec<Consumer>) -> Facts {
    facts.fresh = true;
    facts.consumers = Some(consumers);
    facts
}

fn plugin_pod(name: &str) -> Consumer {
    Consumer {
        name: name.into(),
        uid: format!("uid-of-{name}"),
        kind: ConsumerKind::PluginPod,
        terminating: false,
        daemon_set: None,
        refused: None,
        asked_lately: false,
    }
}

fn claim(name: &str) -> Consumer {
    Consumer {
        kind: ConsumerKind::Claim,
        ..plugin_pod(name)
    }
}

fn claim_pod(name: &str) -> Consumer {
    Consumer {
        kind: ConsumerKind::ClaimPod,
        ..plugin_pod(name)
    }
}

fn reason(decision: &Decision) -> Option<Reason> {
    decision.blocker.as_ref().map(|blocker| blocker.reason)
}

fn message(decision: &Decision) -> &str {
    decision
        .blocker
        .as_ref()
        .map_or("", |blocker| blocker.message.as_str())
}

/// Asserts the blocker that shows once patience has run out, and that until then the answer is to look again by then.
fn assert_blocked_in_time(mut facts: Facts, step_: Step, expected: Reason) -> Decision {
    facts.timing.step_s = 0;
    let early = step(&facts);
    assert_eq!(
        (
            early.step,
            early.blocker.clone(),
            early.write.clone(),
            early.wake_s
        ),
        (step_, None, None, Some(300))
    );
    facts.timing.step_s = 300;
    let late = step(&facts);
    assert_eq!(
        (late.step, reason(&late), late.write.clone(), late.wake_s),
        (step_, Some(expected), None, None)
    );
    late
}
