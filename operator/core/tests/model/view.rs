//! What a controller sees of the world, as the facts that the real `step` takes.

use std::collections::BTreeMap;

use freehold_core::blocker::Reason;
use freehold_core::expect::Expected;
use freehold_core::intent::{DrainPolicy, Layout};
use freehold_core::report::{NodeReport, VendorReport};
use freehold_core::tenure::{
    Consumer, ConsumerKind, Decision, Facts, NodeFacts, NodeWrite, OperandPod, RecordFacts,
    SliceFacts, Target, Timing, Want, Write, step,
};
use freehold_core::vendor::{Owner, Vendor};

use crate::world::{Flight, Guards, Node, Phase, Plan, Reading, Record, World, at};

const RESOURCE: &str = "aws.amazon.com/neuroncore";

/// Which version of each object a controller's cache holds: the present one or the one before.
#[derive(Clone, Copy, Debug)]
pub struct Lag {
    pub plan: bool,
    pub node: bool,
    pub record: bool,
    pub pods: bool,
}

impl Lag {
    pub const NONE: Self = Self {
        plan: false,
        node: false,
        record: false,
        pods: false,
    };

    /// Every combination that differs in this world.
    pub fn all(world: &World) -> Vec<Self> {
        let both = |differs: bool| {
            if differs {
                &[false, true][..]
            } else {
                &[false][..]
            }
        };
        let mut lags = vec![];
        for plan in both(world.plan != world.plan_was) {
            for node in both(world.node != world.node_was) {
                for record in both(world.record != world.record_was) {
                    for pods in both(world.pods != world.pods_was) {
                        lags.push(Self {
                            plan: *plan,
                            node: *node,
                            record: *record,
                            pods: *pods,
                        });
                    }
                }
            }
        }
        lags
    }
}

fn cohort(owner: Owner) -> String {
    format!("cohort-{}", owner.word())
}

fn uid(life: u8) -> String {
    format!("uid-{life}")
}

fn layout(value: u8) -> Option<Layout> {
    (value != 0).then_some(Layout::LogicalNeuronCore(value))
}

fn want(plan: Plan) -> Want {
    match plan {
        Plan::Nothing => Want::Nothing,
        Plan::Owner(owner, lnc) => Want::Owner(Box::new(Target {
            cohort: cohort(owner),
            owner,
            layout: layout(lnc),
            shape: "shape".into(),
            template: "template".into(),
            expected: Ok(match owner {
                Owner::DevicePlugin => Expected::Resources(BTreeMap::from([(RESOURCE.into(), 1)])),
                Owner::Dra => Expected::Devices {
                    devices: 1,
                    mig_devices: 0,
                },
            }),
        })),
    }
}

fn node_facts(world: &World, node: Node) -> NodeFacts {
    NodeFacts {
        uid: uid(node.life),
        boot_id: format!("boot-{}", node.boot),
        ready: true,
        owner: node.label.map(Ok),
        cohort: node.label.map(cohort),
        fence: node.fence.map(i64::from),
        foreign_alias: None,
        allocatable: BTreeMap::from([(RESOURCE.into(), i64::from(world.advertised[0]))]),
    }
}

fn record_facts(record: Record) -> RecordFacts {
    RecordFacts {
        node_uid: uid(record.life),
        cohort: record.owner.map(cohort),
        owner: record.owner,
        term: i64::from(record.term),
        layout: layout(record.layout),
        dra_cohort: record.dra.then(|| cohort(Owner::Dra)),
    }
}

fn report_facts(reading: Reading) -> NodeReport {
    let mut part = VendorReport {
        observed_term: i64::from(reading.term),
        word: reading.word,
        word_term: if reading.confirmed {
            i64::from(reading.term)
        } else {
            0
        },
        dra_registered: reading.sockets[1],
        ..VendorReport::default()
    };
    part.in_use.device_plugin = i32::from(reading.holders[0]);
    part.in_use.dra = i32::from(reading.holders[1]);
    if reading.sockets[0] {
        part.plugin_sockets.push("neuron.sock".into());
    }
    part.layout.logical_neuron_core = (reading.layout != 0).then_some(i32::from(reading.layout));
    NodeReport {
        node_uid: uid(reading.life),
        boot_id: format!("boot-{}", reading.boot),
        neuron: Some(part),
        ..NodeReport::default()
    }
}

fn facts(world: &World, lag: Lag, fresh: bool, guards: Guards) -> Facts {
    let node = if lag.node && !fresh {
        world.node_was
    } else {
        world.node
    };
    let stale_record = lag.record && !(fresh && guards.fresh_record);
    let record = if stale_record {
        world.record_was
    } else {
        world.record
    };
    let pods = if lag.pods { world.pods_was } else { world.pods };
    let operands = Owner::ALL
        .into_iter()
        .filter_map(|owner| pods[at(owner)].map(|phase| (owner, phase)))
        .map(|(owner, phase)| OperandPod {
            name: owner.word().into(),
            uid: owner.word().into(),
            owner,
            cohort: cohort(owner),
            ready: phase == Phase::Running,
            terminating: phase == Phase::Ending,
            shape: "shape".into(),
            template: "template".into(),
            waiting: None,
        })
        .collect();
    let consumers = Owner::ALL
        .into_iter()
        .filter(|owner| world.consumers[at(*owner)])
        .map(|owner| Consumer {
            name: owner.word().into(),
            uid: owner.word().into(),
            kind: match owner {
                Owner::DevicePlugin => ConsumerKind::PluginPod,
                Owner::Dra => ConsumerKind::ClaimPod,
            },
            terminating: false,
            daemon_set: None,
            refused: None,
            asked_lately: false,
        })
        .collect();
    let slices = usize::from(world.advertised[1]);
    Facts {
        vendor: Vendor::Neuron,
        want: want(if lag.plan { world.plan_was } else { world.plan }),
        node: node_facts(world, node),
        record: record.map(record_facts),
        report: world.report.map(report_facts),
        operands,
        slices: SliceFacts {
            count: slices,
            devices: slices,
            mig_devices: 0,
            complete: slices > 0,
        },
        consumers: fresh.then_some(consumers),
        foreign: vec![],
        fresh,
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

/// Takes a guard away by telling `step` what it wants to hear.
fn weaken(facts: &mut Facts, guards: Guards) {
    let granted = facts.node.owner.is_some();
    let term = facts.record.as_ref().map(|record| record.term);
    // Without consumers at hand, so that fresh reads are asked for.
    let back = facts.consumers.is_none()
        || facts
            .consumers
            .iter()
            .flatten()
            .any(|consumer| consumer.kind == ConsumerKind::ClaimPod)
        || facts
            .report
            .iter()
            .flat_map(|report| &report.neuron)
            .any(|part| part.in_use.dra > 0);
    let Some(part) = facts
        .report
        .as_mut()
        .and_then(|report| report.neuron.as_mut())
    else {
        return;
    };
    if granted && !guards.first_attestation {
        part.in_use = freehold_core::report::InUse::default();
        part.observed_term = term.unwrap_or(part.observed_term);
    }
    if !granted && !guards.second_attestation {
        part.in_use = freehold_core::report::InUse::default();
    }
    if !granted && back && !guards.proof_before_back {
        part.in_use.device_plugin = 0;
        part.plugin_sockets.clear();
        facts.operands.clear();
        facts.node.allocatable.clear();
        if let Some(consumers) = &mut facts.consumers {
            consumers.retain(|consumer| consumer.kind != ConsumerKind::PluginPod);
        }
    }
}

/// What a controller decides with such a cache: the real `step`, asked again on fresh reads where it wants them.
pub fn decide(world: &World, lag: Lag, guards: Guards) -> (Decision, bool) {
    let mut cached = facts(world, lag, false, guards);
    weaken(&mut cached, guards);
    let decision = step(&cached);
    if !decision.needs_fresh {
        return (decision, false);
    }
    let mut fresh = facts(world, lag, true, guards);
    weaken(&mut fresh, guards);
    let decision = step(&fresh);
    assert!(
        !decision.needs_fresh,
        "fresh reads must be enough: {fresh:?}"
    );
    (decision, true)
}

/// The write by which a drain is given up, if there is one that does not end.
pub fn give_up(world: &World, lag: Lag, guards: Guards) -> Option<Flight> {
    let mut late = facts(world, lag, true, guards);
    late.drain = DrainPolicy::Evict;
    late.timing.step_s = late.timing.drain_timeout_s;
    let decision = step(&late);
    let why = decision.blocker.as_ref()?;
    (why.reason == Reason::DrainTimeout).then(|| sent(world, lag, guards, decision, true))?
}

/// The write that comes of it, with what its precondition will say.
pub fn flight(world: &World, lag: Lag, guards: Guards) -> Option<Flight> {
    let (decision, fresh) = decide(world, lag, guards);
    sent(world, lag, guards, decision, fresh)
}

fn sent(
    world: &World,
    lag: Lag,
    guards: Guards,
    decision: Decision,
    fresh: bool,
) -> Option<Flight> {
    let mut write = decision.write?;
    if let (false, Write::Node(NodeWrite::Fence { term })) = (guards.fence_out_of_reach, &mut write)
    {
        *term -= 1;
    }
    let current = match &write {
        Write::Node(_) => fresh || !lag.node,
        Write::Record(_) => (fresh && guards.fresh_record) || !lag.record,
        Write::Pod(_) => true,
    };
    let life = if lag.node && !fresh {
        world.node_was.life
    } else {
        world.node.life
    };
    Some(Flight {
        write,
        life,
        current,
    })
}
