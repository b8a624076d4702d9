//! The model for the checker: which actions are possible, what they do, what must always hold.

use stateright::{Model, Property};

use freehold_core::vendor::Owner;

use crate::fair;
use crate::view::{Lag, flight, give_up};
use crate::world::{
    Action, Guards, Limits, Limits8, Node, Phase, Plan, Reading, Record, World, at,
};

const ONE_LIVE_OPERAND: &str = "I1: never two live operands";
const ONE_USE: &str = "no device is used by both";
const NO_OWNER_LOST: &str = "I2: nobody loses an owner that was in use at the fence";
/// What must never be broken.
pub const INVARIANTS: [&str; 3] = [ONE_LIVE_OPERAND, ONE_USE, NO_OWNER_LOST];

#[derive(Clone, Debug)]
pub struct Protocol {
    pub guards: Guards,
    pub limits: Limits,
    /// The intents that may follow one another.
    pub plans: Vec<Plan>,
    pub start: World,
    /// Check from one in so many states whether a fair world reaches and keeps the goal; 0 for none.
    pub fairness: u64,
}

impl Protocol {
    /// A node that `owner` holds and always held; `dra` when DRA had it before.
    pub fn held(owner: Owner, limits: Limits) -> World {
        let mut world = Self::untouched(Plan::Owner(owner, 0), limits);
        world.node.label = Some(owner);
        world.record = Some(Record {
            life: 0,
            owner: Some(owner),
            term: 2,
            layout: 0,
            dra: true,
        });
        world.word = Some(owner);
        world.believed = Some(owner);
        world.pods[at(owner)] = Some(Phase::Running);
        world.advertised[at(owner)] = true;
        world.report = Some(Reading {
            life: 0,
            boot: 0,
            term: 2,
            word: Some(owner),
            confirmed: true,
            holders: [false; 2],
            sockets: Owner::ALL.map(|other| other == owner),
            layout: 0,
        });
        Self::settled(world)
    }

    /// A node that nothing happened to.
    pub fn untouched(plan: Plan, limits: Limits) -> World {
        let node = Node {
            life: 0,
            boot: 0,
            label: None,
            fence: None,
        };
        let Limits {
            writers: _,
            flips,
            arrivals,
            force_deletions,
            pod_deletions,
            restarts,
            replacements,
            given_up,
            lags: _,
        } = limits;
        World {
            plan,
            plan_was: plan,
            node,
            node_was: node,
            record: None,
            record_was: None,
            report: None,
            hand: None,
            pods: [None; 2],
            pods_was: [None; 2],
            believed: None,
            word: None,
            layout: 0,
            advertised: [false; 2],
            consumers: [false; 2],
            pending: [false; 2],
            holders: [false; 2],
            early: [false; 2],
            flights: vec![],
            left: Limits8 {
                flips,
                arrivals,
                force_deletions,
                pod_deletions,
                restarts,
                replacements,
                given_up,
            },
            broken: None,
        }
    }

    fn settled(mut world: World) -> World {
        world.node_was = world.node;
        world.record_was = world.record;
        world.pods_was = world.pods;
        world.plan_was = world.plan;
        world
    }

    fn actions_of(&self, world: &World, owner: Owner, actions: &mut Vec<Action>) {
        let i = at(owner);
        let pod = world.pods[i];
        if pod.is_none() && world.believed == Some(owner) {
            actions.push(Action::DaemonSetCreates(owner));
        }
        if !matches!(pod, None | Some(Phase::Ending)) {
            if world.believed != Some(owner) {
                actions.push(Action::DaemonSetDeletes(owner));
            } else if world.left.pod_deletions > 0 {
                actions.push(Action::SomebodyDeletes(owner));
            }
        }
        if world.may_check(self.guards, owner) {
            actions.push(Action::OperandChecks(owner));
        }
        if world.may_start(self.guards, owner) {
            actions.push(Action::OperandStarts(owner));
        }
        if pod == Some(Phase::Ending) {
            actions.push(Action::OperandEnds(owner));
        }
        if world.advertised[i] != (pod == Some(Phase::Running)) {
            actions.push(Action::AdvertisementFollows(owner));
        }
        let busy = world.consumers[i] || world.pending[i] || world.holders[i];
        if world.left.arrivals > 0 && !busy {
            actions.push(Action::Binds(owner));
        }
        if world.pending[i] && world.alive(owner) && !world.holders[i] {
            actions.push(Action::KubeletAdmits(owner));
        }
        if world.pending[i]
            && (!world.consumers[i] || (owner == Owner::DevicePlugin && !world.alive(owner)))
        {
            actions.push(Action::KubeletRejects(owner));
        }
        if world.consumers[i] && (world.can_release(owner) || !world.holders[i]) {
            actions.push(Action::ConsumerEnds(owner));
        }
        if world.consumers[i] && world.left.force_deletions > 0 {
            actions.push(Action::ForceDeleted(owner));
        }
        if !world.consumers[i] && world.can_release(owner) {
            actions.push(Action::HolderEnds(owner));
        }
    }

    pub fn apply(&self, world: &mut World, action: Action) {
        let guards = self.guards;
        match action {
            Action::Flip(plan) => {
                world.left.flips -= 1;
                world.plan_was = world.plan;
                world.plan = plan;
            }
            Action::Decide { flight, old_plan } => {
                if old_plan {
                    world.plan_was = world.plan;
                }
                world.flights.push(flight);
                world
                    .flights
                    .sort_by_cached_key(|flight| format!("{flight:?}"));
            }
            Action::GiveUp(flight) => {
                world.left.given_up -= 1;
                self.apply(
                    world,
                    Action::Decide {
                        flight,
                        old_plan: false,
                    },
                );
            }
            Action::Land(i) => {
                let flight = world.flights.remove(i);
                world.land(guards, &flight);
            }
            Action::Lose(i) => {
                world.flights.remove(i);
            }
            Action::AgentReads => world.hand = world.agent_reads(guards),
            Action::AgentWrites => world.agent_writes(guards),
            Action::DaemonSetsSync => world.believed = world.node.label,
            Action::DaemonSetCreates(owner) => world.set_pod(owner, Some(Phase::Waiting)),
            Action::DaemonSetDeletes(owner) => delete_pod(world, owner),
            Action::SomebodyDeletes(owner) => {
                world.left.pod_deletions -= 1;
                delete_pod(world, owner);
            }
            Action::OperandChecks(owner) => world.set_pod(owner, Some(Phase::Checked)),
            Action::OperandStarts(owner) => world.set_pod(owner, Some(Phase::Running)),
            Action::OperandEnds(owner) => world.set_pod(owner, None),
            Action::AdvertisementFollows(owner) => {
                world.advertised[at(owner)] = world.pods[at(owner)] == Some(Phase::Running);
            }
            Action::Binds(owner) => {
                world.left.arrivals -= 1;
                world.consumers[at(owner)] = true;
                world.pending[at(owner)] = true;
            }
            Action::KubeletAdmits(owner) => {
                world.pending[at(owner)] = false;
                world.holders[at(owner)] = true;
            }
            Action::KubeletRejects(owner) => {
                world.pending[at(owner)] = false;
                world.consumers[at(owner)] = false;
            }
            Action::ConsumerEnds(owner) => {
                world.consumers[at(owner)] = false;
                world.pending[at(owner)] = false;
                release(world, owner);
            }
            Action::ForceDeleted(owner) => {
                world.left.force_deletions -= 1;
                world.consumers[at(owner)] = false;
            }
            Action::HolderEnds(owner) => release(world, owner),
            Action::Reboots => {
                world.left.restarts -= 1;
                world.node.boot += 1;
                world.hand = None;
                world.advertised = [false; 2];
                world.pods_was = world.pods;
                for pod in &mut world.pods {
                    *pod = match *pod {
                        None | Some(Phase::Ending) => None,
                        Some(Phase::Waiting | Phase::Checked | Phase::Running) => {
                            Some(Phase::Waiting)
                        }
                    };
                }
                // The plugin's consumers are gone with the boot; the DRA driver's record survives it.
                release(world, Owner::DevicePlugin);
                world.consumers[0] = false;
                world.pending[0] = false;
            }
            Action::KubeletRestarts => {
                world.left.restarts -= 1;
                world.advertised = [false; 2];
            }
            Action::NodeReplaced => {
                world.left.replacements -= 1;
                let fresh = Self::untouched(world.plan, self.limits);
                world.set_node(Node {
                    life: world.node.life + 1,
                    boot: world.node.boot + 1,
                    ..fresh.node
                });
                world.pods_was = world.pods;
                world.pods = fresh.pods;
                world.hand = None;
                world.word = None;
                world.layout = 0;
                world.advertised = fresh.advertised;
                world.consumers = fresh.consumers;
                world.pending = fresh.pending;
                world.holders = fresh.holders;
                world.early = fresh.early;
            }
            Action::RecordCollected => {
                world.set_record(None);
                world.report = None;
            }
        }
    }
}

fn delete_pod(world: &mut World, owner: Owner) {
    let running = world.alive(owner);
    world.set_pod(owner, running.then_some(Phase::Ending));
}

fn release(world: &mut World, owner: Owner) {
    world.holders[at(owner)] = false;
    world.early[at(owner)] = false;
}

impl Model for Protocol {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        vec![self.start.clone()]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        if world.broken.is_some() {
            return;
        }
        if world.left.flips > 0 {
            actions.extend(
                self.plans
                    .iter()
                    .filter(|plan| **plan != world.plan)
                    .map(|plan| Action::Flip(*plan)),
            );
        }
        if world.flights.len() < self.limits.writers {
            for old_plan in [false, true] {
                let mut flights: Vec<_> = Lag::all(world)
                    .into_iter()
                    .filter(|lag| lag.plan == old_plan)
                    .filter_map(|lag| flight(world, lag, self.guards))
                    .collect();
                // A write that its precondition refuses changes nothing and need not be sent.
                flights.retain(|flight| flight.current || !self.guards.preconditions);
                flights.sort_by_cached_key(|flight| format!("{flight:?}"));
                flights.dedup();
                flights.retain(|flight| !world.flights.contains(flight));
                actions.extend(
                    flights
                        .into_iter()
                        .map(|flight| Action::Decide { flight, old_plan }),
                );
            }
        }
        if world.left.given_up > 0 && world.flights.len() < self.limits.writers {
            let mut flights: Vec<_> = Lag::all(world)
                .into_iter()
                .filter_map(|lag| give_up(world, lag, self.guards))
                .filter(|flight| !world.flights.contains(flight))
                .collect();
            flights.dedup();
            actions.extend(flights.into_iter().map(Action::GiveUp));
        }
        for i in 0..world.flights.len() {
            actions.push(Action::Land(i));
            actions.push(Action::Lose(i));
        }
        // Reading again drops what was read before, as a restart does.
        if world
            .record
            .is_some_and(|record| record.life == world.node.life)
        {
            actions.push(Action::AgentReads);
        }
        if world.hand.is_some() {
            actions.push(Action::AgentWrites);
        }
        if world.believed != world.node.label {
            actions.push(Action::DaemonSetsSync);
        }
        for owner in Owner::ALL {
            self.actions_of(world, owner, actions);
        }
        if world.left.restarts > 0 {
            actions.push(Action::Reboots);
            actions.push(Action::KubeletRestarts);
        }
        if world.left.replacements > 0 {
            actions.push(Action::NodeReplaced);
        }
        if world
            .record
            .is_some_and(|record| record.life != world.node.life)
        {
            actions.push(Action::RecordCollected);
        }
    }

    fn next_state(&self, world: &World, action: Action) -> Option<World> {
        let mut next = world.clone();
        self.apply(&mut next, action);
        next.forget(self.limits.lags);
        (next != *world).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(ONE_LIVE_OPERAND, |_, world: &World| {
                !(world.alive(Owner::DevicePlugin) && world.alive(Owner::Dra))
            }),
            Property::always(ONE_USE, |_, world: &World| world.holders != [true; 2]),
            Property::always(NO_OWNER_LOST, |_, world: &World| world.broken.is_none()),
            Property::always(
                "a fair world reaches and keeps the goal",
                |model: &Self, world: &World| {
                    !fair::sampled(world, model.fairness) || fair::reaches_and_keeps(model, world)
                },
            ),
            Property::sometimes(
                "a change of plan is carried out",
                |model: &Self, world: &World| {
                    world.plan != model.start.plan && fair::is_goal(world)
                },
            ),
            Property::sometimes("an owner is revoked", |_, world: &World| {
                world.node.label.is_none() && world.node.fence.is_some()
            }),
            Property::sometimes(
                "as many writes as allowed are under way",
                |model: &Self, world: &World| world.flights.len() == model.limits.writers,
            ),
        ]
    }
}
