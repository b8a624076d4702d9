//! A world that behaves from now on: everybody acts in turn and sees the present. From wherever it starts, the plan must be
//! reached, and kept without a further write.

use std::hash::{Hash as _, Hasher as _};

use freehold_core::tenure::Step;
use freehold_core::vendor::Owner;

use crate::check::Protocol;
use crate::view::{Lag, decide, flight};
use crate::world::{Action, Phase, Plan, World, at};

/// Rounds in which every way must end; the longest seen take about half.
const ROUNDS: usize = 100;

/// Rounds after which people delete a pod that never started.
const PATIENCE: usize = 30;

/// Whether this state is one of the sample.
pub fn sampled(world: &World, one_in: u64) -> bool {
    if one_in == 0 {
        return false;
    }
    let mut hasher = std::hash::DefaultHasher::new();
    world.hash(&mut hasher);
    hasher.finish().is_multiple_of(one_in)
}

/// The plan is in force and nothing is left to do.
pub fn is_goal(world: &World) -> bool {
    if world.node.fence.is_some() || !world.flights.is_empty() {
        return false;
    }
    match world.plan {
        Plan::Nothing => world.node.label.is_none() && world.record.is_none(),
        Plan::Owner(owner, layout) => {
            world.node.label == Some(owner)
                && world.pods[at(owner)] == Some(Phase::Running)
                && world.pods[at(owner.other())].is_none()
                && (layout == 0 || world.layout == layout)
        }
    }
}

/// Runs such a world to its rest.
pub fn reaches_and_keeps(model: &Protocol, world: &World) -> bool {
    let mut world = world.clone();
    if world.broken.is_some() {
        return true;
    }
    world.flights.clear();
    for number in 0..ROUNDS {
        let before = world.clone();
        round(model, &mut world, number > PATIENCE);
        if world == before && number > PATIENCE {
            let (decision, _) = decide(&world, Lag::NONE, model.guards);
            let settled = matches!(decision.step, Step::Held | Step::None)
                && decision.write.is_none()
                && decision.blocker.is_none();
            return (is_goal(&world) && settled)
                || (lost_track(&world) && decision.blocker.is_some());
        }
    }
    false
}

/// A claim is still prepared, and the record that knew which cohort DRA had was cleared meanwhile: people are told, since
/// nobody else can know which driver to bring back.
fn lost_track(world: &World) -> bool {
    world.holders[1] && !world.alive(Owner::Dra) && world.record.is_some_and(|record| !record.dra)
}

fn round(model: &Protocol, world: &mut World, give_up: bool) {
    world.node_was = world.node;
    world.record_was = world.record;
    world.pods_was = world.pods;
    world.plan_was = world.plan;
    world.believed = world.node.label;
    for owner in Owner::ALL {
        if world.pods[at(owner)] == Some(Phase::Ending) {
            model.apply(world, Action::OperandEnds(owner));
        } else if world.pods[at(owner)].is_some() && world.believed != Some(owner) {
            model.apply(world, Action::DaemonSetDeletes(owner));
        } else if world.pods[at(owner)].is_none() && world.believed == Some(owner) {
            model.apply(world, Action::DaemonSetCreates(owner));
        } else if world.may_check(model.guards, owner) {
            model.apply(world, Action::OperandChecks(owner));
        } else if world.may_start(model.guards, owner) {
            model.apply(world, Action::OperandStarts(owner));
        }
        model.apply(world, Action::AdvertisementFollows(owner));
        if world.pending[at(owner)] && !world.holders[at(owner)] && world.alive(owner) {
            model.apply(world, Action::KubeletAdmits(owner));
        } else if world.pending[at(owner)]
            && (!world.consumers[at(owner)] || owner == Owner::DevicePlugin)
        {
            model.apply(world, Action::KubeletRejects(owner));
        } else if (world.pending[at(owner)] && give_up)
            || (world.consumers[at(owner)] && world.can_release(owner))
        {
            model.apply(world, Action::ConsumerEnds(owner));
        } else if world.can_release(owner) {
            model.apply(world, Action::HolderEnds(owner));
        }
    }
    model.apply(world, Action::AgentReads);
    model.apply(world, Action::AgentWrites);
    if let Some(flight) = flight(world, Lag::NONE, model.guards) {
        world.land(model.guards, &flight);
    }
    world.node_was = world.node;
    world.record_was = world.record;
    world.pods_was = world.pods;
}
