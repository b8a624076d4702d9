//! One node and everything that acts on it, small enough to visit every state.
//!
//! Deliberately more hostile than a cluster: consumers may be bound at any moment whatever the taints say (a scheduler that
//! lags without bound), controllers may decide on the version before the present one of every object, and a write may land
//! at any later time.

use freehold_core::tenure::{NodeWrite, RecordWrite, Write};
use freehold_core::vendor::Owner;

/// The guards of the protocol and its environment; a twin has one of them removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guards {
    /// Writes carry the resourceVersion that they were decided on.
    pub preconditions: bool,
    /// "Fresh" includes the AcceleratorNode.
    pub fresh_record: bool,
    /// A fence's value is two above the term, out of reach of every other write under way.
    pub fence_out_of_reach: bool,
    /// The report counts before revoke.
    pub first_attestation: bool,
    /// The report counts after revoke.
    pub second_attestation: bool,
    /// Going back to DRA needs the proof about the device plugin.
    pub proof_before_back: bool,
    /// An operand starts, and the word changes, only under the lock.
    pub lock: bool,
    /// An operand starts only while the word is its own.
    pub word: bool,
    /// The agent reads who uses the devices after it has put the word in force, not before.
    pub word_before_reading: bool,
}

pub const ALL_GUARDS: Guards = Guards {
    preconditions: true,
    fresh_record: true,
    fence_out_of_reach: true,
    first_attestation: true,
    second_attestation: true,
    proof_before_back: true,
    lock: true,
    word: true,
    word_before_reading: true,
};

/// How much may happen on one way through the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Writes under way at once: controllers that believe they lead.
    pub writers: usize,
    /// Changes of mind.
    pub flips: u8,
    /// Consumers that arrive.
    pub arrivals: u8,
    /// Force deletions of consumers.
    pub force_deletions: u8,
    /// Operand pods deleted by somebody else.
    pub pod_deletions: u8,
    /// Reboots and kubelet restarts.
    pub restarts: u8,
    /// Nodes replaced under the same name.
    pub replacements: u8,
    /// Drains that are given up past their deadline.
    pub given_up: u8,
    /// Which caches may lag.
    pub lags: Lags,
}

/// Caches that may hold the version before the present one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lags {
    pub node: bool,
    pub record: bool,
    pub pods: bool,
}

/// What the intent may say in the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Plan {
    Nothing,
    /// Owner, and the Logical NeuronCore setting as layout (0: none).
    Owner(Owner, u8),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Node {
    /// Stands for the UID.
    pub life: u8,
    pub boot: u8,
    pub label: Option<Owner>,
    pub fence: Option<i8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Record {
    pub life: u8,
    pub owner: Option<Owner>,
    pub term: i8,
    pub layout: u8,
    /// Whether DRA owned the node under this record.
    pub dra: bool,
}

/// What an agent read at one moment, and writes at another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Reading {
    pub life: u8,
    pub boot: u8,
    pub term: i8,
    pub word: Option<Owner>,
    /// The word is the ordered one.
    pub confirmed: bool,
    pub holders: [bool; 2],
    pub sockets: [bool; 2],
    pub layout: u8,
}

/// An operand pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Its sidecar waits for lock and word.
    Waiting,
    /// Without the lock: the word was read, the operand is about to start.
    Checked,
    /// The operand runs.
    Running,
    /// Deleted, still running.
    Ending,
}

/// A write that was decided and has not landed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Flight {
    pub write: Write,
    /// The node that it was decided for.
    pub life: u8,
    /// The object it goes to has not changed since it was looked at.
    pub current: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    pub plan: Plan,
    pub plan_was: Plan,
    pub node: Node,
    pub node_was: Node,
    pub record: Option<Record>,
    pub record_was: Option<Record>,
    pub report: Option<Reading>,
    /// Read and not yet written.
    pub hand: Option<Reading>,
    pub pods: [Option<Phase>; 2],
    /// Presence of the pods one change ago.
    pub pods_was: [Option<Phase>; 2],
    /// What the DaemonSet controller believes the label to be.
    pub believed: Option<Owner>,
    pub word: Option<Owner>,
    pub layout: u8,
    /// Allocatable above zero; slices exist.
    pub advertised: [bool; 2],
    /// Consumers in the API.
    pub consumers: [bool; 2],
    /// Consumers that the kubelet has not admitted yet.
    pub pending: [bool; 2],
    /// Devices in use on the node itself.
    pub holders: [bool; 2],
    /// Holders that were there when the fence went up.
    pub early: [bool; 2],
    pub flights: Vec<Flight>,
    pub left: Limits8,
    /// A property that was broken on the way here.
    pub broken: Option<&'static str>,
}

/// What is left of the [`Limits`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Limits8 {
    pub flips: u8,
    pub arrivals: u8,
    pub force_deletions: u8,
    pub pod_deletions: u8,
    pub restarts: u8,
    pub replacements: u8,
    pub given_up: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    Flip(Plan),
    /// A controller decides; `old_plan` when on the intent before the present one, which happens once a change.
    Decide {
        flight: Flight,
        old_plan: bool,
    },
    /// A controller gives a drain up.
    GiveUp(Flight),
    Land(usize),
    Lose(usize),
    AgentReads,
    AgentWrites,
    DaemonSetsSync,
    DaemonSetCreates(Owner),
    DaemonSetDeletes(Owner),
    SomebodyDeletes(Owner),
    OperandChecks(Owner),
    OperandStarts(Owner),
    OperandEnds(Owner),
    AdvertisementFollows(Owner),
    Binds(Owner),
    KubeletAdmits(Owner),
    KubeletRejects(Owner),
    ConsumerEnds(Owner),
    ForceDeleted(Owner),
    HolderEnds(Owner),
    Reboots,
    KubeletRestarts,
    NodeReplaced,
    RecordCollected,
}

pub const fn at(owner: Owner) -> usize {
    match owner {
        Owner::DevicePlugin => 0,
        Owner::Dra => 1,
    }
}

impl World {
    pub fn alive(&self, owner: Owner) -> bool {
        matches!(self.pods[at(owner)], Some(Phase::Running | Phase::Ending))
    }

    fn lock_is_free(&self) -> bool {
        !Owner::ALL.into_iter().any(|owner| self.alive(owner))
    }

    pub fn may_start(&self, guards: Guards, owner: Owner) -> bool {
        let from = if guards.lock {
            Phase::Waiting
        } else {
            Phase::Checked
        };
        self.pods[at(owner)] == Some(from)
            && (!guards.lock || (self.lock_is_free() && (!guards.word || self.word == Some(owner))))
    }

    pub fn may_check(&self, guards: Guards, owner: Owner) -> bool {
        !guards.lock
            && self.pods[at(owner)] == Some(Phase::Waiting)
            && (!guards.word || self.word == Some(owner))
    }

    /// Whether a device-plugin holder, or a DRA holder whose driver runs, can end.
    pub fn can_release(&self, owner: Owner) -> bool {
        self.holders[at(owner)] && (owner == Owner::DevicePlugin || self.alive(owner))
    }

    pub fn set_node(&mut self, node: Node) {
        self.node_was = self.node;
        self.node = node;
        self.outdate(|write| matches!(write, Write::Node(_)));
    }

    pub fn set_record(&mut self, record: Option<Record>) {
        self.record_was = self.record;
        self.record = record;
        self.outdate(|write| matches!(write, Write::Record(_)));
    }

    pub fn set_pod(&mut self, owner: Owner, phase: Option<Phase>) {
        // What counts is whether a pod is there at all.
        if self.pods[at(owner)].is_some() != phase.is_some() {
            self.pods_was = self.pods;
        }
        self.pods[at(owner)] = phase;
    }

    /// Drops former versions that no cache may hold, and a reading that says nothing new.
    pub fn forget(&mut self, lags: Lags) {
        if !lags.node {
            self.node_was = self.node;
        }
        if !lags.record {
            self.record_was = self.record;
        }
        if !lags.pods {
            self.pods_was = self.pods;
        }
        if self.hand == self.report {
            self.hand = None;
        }
    }

    fn outdate(&mut self, concerned: impl Fn(&Write) -> bool) {
        for flight in &mut self.flights {
            flight.current &= !concerned(&flight.write);
        }
    }

    /// The agent: sees the record, changes word and geometry while it holds the lock (the geometry only when nothing is in
    /// use), and only then reads the host.
    pub fn agent_reads(&mut self, guards: Guards) -> Option<Reading> {
        let record = self.record.filter(|record| record.life == self.node.life)?;
        if guards.word_before_reading {
            self.put_word_in_force(guards, record);
        }
        let free = self.lock_is_free() && self.holders == [false; 2];
        if record.layout != 0 && record.layout != self.layout && (free || !guards.lock) {
            if !free {
                self.broken = Some("the geometry was changed under a holder or an operand");
            }
            self.layout = record.layout;
        }
        Some(Reading {
            life: self.node.life,
            boot: self.node.boot,
            term: record.term,
            word: self.word,
            confirmed: record.owner.is_some() && record.owner == self.word,
            holders: self.holders,
            sockets: Owner::ALL.map(|owner| self.alive(owner)),
            layout: self.layout,
        })
    }

    fn put_word_in_force(&mut self, guards: Guards, record: Record) {
        if record.owner.is_some() && (self.lock_is_free() || !guards.lock) {
            self.word = record.owner;
        }
    }

    /// Carries the resourceVersion of the object that the agent saw: a successor refuses it.
    pub fn agent_writes(&mut self, guards: Guards) {
        let Some(mut hand) = self.hand.take() else {
            return;
        };
        let Some(record) = self.record.filter(|record| record.life == hand.life) else {
            return;
        };
        if !guards.word_before_reading {
            self.put_word_in_force(guards, record);
            hand.word = self.word;
            hand.confirmed =
                record.term == hand.term && record.owner.is_some() && record.owner == self.word;
        }
        self.report = Some(hand);
    }

    pub fn land(&mut self, guards: Guards, flight: &Flight) {
        if guards.preconditions && !flight.current {
            return;
        }
        match &flight.write {
            Write::Record(write) => self.land_record(write, flight.life),
            // A node of another UID refuses even a write without resourceVersion.
            Write::Node(_) if flight.life != self.node.life => {}
            Write::Node(write) => self.land_node(write),
            Write::Pod(_) => {}
        }
    }

    fn land_record(&mut self, write: &RecordWrite, life: u8) {
        let small = |term: &i64| i8::try_from(*term).expect("terms stay small in the model");
        match write {
            RecordWrite::Create { .. } => {
                let replaces = self.record.is_some_and(|record| record.life != life);
                if self.record.is_none() || replaces {
                    self.set_record(Some(Record {
                        life,
                        owner: None,
                        term: 1,
                        layout: 0,
                        dra: false,
                    }));
                }
                if replaces {
                    self.report = None;
                    self.hand = None;
                }
            }
            RecordWrite::Clear => self.set_record(None),
            RecordWrite::RaiseTerm { term } => {
                self.change_record(|record| record.term = small(term));
            }
            RecordWrite::Withdraw { term } => self.change_record(|record| {
                record.term = small(term);
                record.layout = 0;
            }),
            RecordWrite::Layout { layout } => self.change_record(|record| {
                record.layout = match layout {
                    Some(freehold_core::intent::Layout::LogicalNeuronCore(value)) => *value,
                    Some(freehold_core::intent::Layout::Mig(_)) | None => 0,
                };
            }),
            RecordWrite::HandWord {
                cohort: _,
                owner,
                term,
                dra_cohort,
            } => self.change_record(|record| {
                record.owner = Some(*owner);
                record.term = small(term);
                record.dra = dra_cohort.is_some();
            }),
        }
    }

    fn change_record(&mut self, change: impl FnOnce(&mut Record)) {
        if let Some(mut record) = self.record {
            change(&mut record);
            self.set_record(Some(record));
        }
    }

    fn land_node(&mut self, write: &NodeWrite) {
        let mut node = self.node;
        match write {
            NodeWrite::Fence { term } => {
                node.fence = Some(i8::try_from(*term).expect("terms stay small in the model"));
                self.early = self.holders;
            }
            NodeWrite::Grant { owner, cohort: _ } => node.label = Some(*owner),
            NodeWrite::Revoke => {
                if self.early != [false; 2] {
                    self.broken = Some(
                        "I2: an owner was deselected under a holder that was there before the fence",
                    );
                }
                node.label = None;
            }
            NodeWrite::Unfence => node.fence = None,
        }
        self.set_node(node);
    }
}
