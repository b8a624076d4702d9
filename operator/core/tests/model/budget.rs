//! I5: no more nodes than the budget are in handover, whoever leads.
//!
//! Two nodes, budget 1, and controllers that lag, are restarted and have writes under way that land at any later time or
//! never. What a controller decides comes from the real [`rollout::admit`](freehold_core::rollout::admit),
//! [`rollout::claim`](freehold_core::rollout::claim()) and [`Claim::is_spent`]; how it comes to its facts is what the controller
//! does: a claim on the AcceleratorCluster as it knows it, after a fresh list of fenced nodes, and a fence on the version of the
//! node that the claim names.

use std::collections::{BTreeMap, BTreeSet};

use freehold_core::intent::{Budget, DrainPolicy, Intent, Rollout};
use freehold_core::rollout::{Claim, Rules, Stage, Standing, admit, claim};
use freehold_core::vendor::Vendor;
use stateright::{Checker as _, HasDiscoveries, Model, Property};

const NODES: [&str; 2] = ["n0", "n1"];
const BUDGET: u32 = 1;
const WITHIN: &str = "I5: no more nodes than the budget are in handover";

/// What keeps the budget; a twin has one of them removed.
#[derive(Clone, Copy, Debug)]
struct Guards {
    /// A place is claimed before a fence goes up at all.
    claims: bool,
    /// Claims carry the version of the AcceleratorCluster that they were made on.
    claim_precondition: bool,
    /// Fenced nodes are listed from the API server, after that version was known.
    fresh_list: bool,
    /// A fence carries the version of the node that its claim names, not any version.
    fence_on_claimed_version: bool,
    /// A claim is dropped only when its node is seen with a later version.
    drop_spent_only: bool,
}

const ALL: Guards = Guards {
    claims: true,
    claim_precondition: true,
    fresh_list: true,
    fence_on_claimed_version: true,
    drop_spent_only: true,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Node {
    version: u8,
    fenced: bool,
    /// Handovers still wanted here.
    wanted: u8,
}

/// A version of the AcceleratorCluster: the claims in its status (node, version of the node), and whether nobody has written it
/// since. Counting versions would make the model endless.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Cluster {
    current: bool,
    claims: Vec<(usize, u8)>,
}

/// What a controller's caches hold.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct View {
    nodes: [Node; 2],
    cluster: Cluster,
}

/// A write under way.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Flight {
    Claim {
        current: bool,
        claims: Vec<(usize, u8)>,
    },
    Fence {
        node: usize,
        on: u8,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct World {
    nodes: [Node; 2],
    cluster: Cluster,
    views: [View; 2],
    /// A list taken for a claim that is not decided yet: the cluster known before it, and who was fenced.
    lists: [Option<(Cluster, Vec<usize>)>; 2],
    flights: Vec<Flight>,
    bumps: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Action {
    /// A controller's cache of one node, or of the cluster, catches up.
    SeesNode(usize, usize),
    SeesCluster(usize),
    /// It lists fenced nodes, for a claim on the cluster as it knows it.
    Lists(usize),
    /// It sends the claim that comes of it.
    Claims(usize, Flight),
    /// It sends a fence.
    Fences(Flight),
    Land(usize),
    Lose(usize),
    /// A handover ends, or is taken back.
    Ends(usize),
    /// Somebody else, the kubelet for one, writes to the node.
    Bumped(usize),
    /// A controller is restarted: what it sent stays under way, what it had in mind is gone. Its caches may catch up at once, as
    /// any other's.
    Restarts(usize),
}

#[derive(Clone, Debug)]
struct Protocol {
    guards: Guards,
    wanted: [u8; 2],
    bumps: u8,
    /// Also check that a controller that acts alone goes on from every state.
    progress: bool,
}

fn intent() -> Intent {
    Intent {
        cohorts: BTreeMap::new(),
        owner_alias: None,
        rollout: Rollout {
            max_unavailable: Budget::Nodes(BUDGET),
            canary_nodes: 0,
            canary_soak_s: 0,
            drain: DrainPolicy::Wait,
            drain_timeout_s: 3600,
            paused: false,
        },
    }
}

fn rules(intent: &Intent) -> Rules<'_> {
    Rules {
        intent,
        generation: 1,
        confirmed: None,
        tearing_down: false,
        now_s: 1000,
    }
}

fn real(node: usize, version: u8) -> Claim {
    Claim {
        node: NODES[node].to_owned(),
        vendor: Vendor::Nvidia,
        version: version.to_string(),
    }
}

/// `first` has asked for longer than the other: controllers need not agree on that, nor remember what they did.
fn standings(nodes: &[Node; 2], first: usize) -> Vec<Standing> {
    nodes
        .iter()
        .enumerate()
        .map(|(i, node)| Standing {
            node: NODES[i].to_owned(),
            vendor: Vendor::Nvidia,
            cohort: Some("amber".to_owned()),
            stage: if node.fenced {
                Stage::UnderWay
            } else if node.wanted > 0 {
                Stage::AsksHandover
            } else {
                Stage::Settled
            },
            since_s: if i == first { 10 } else { 20 },
        })
        .collect()
}

impl Protocol {
    fn start(&self) -> World {
        let node = |wanted| Node {
            version: 1,
            fenced: false,
            wanted,
        };
        let view = View {
            nodes: self.wanted.map(node),
            cluster: Cluster {
                current: true,
                claims: vec![],
            },
        };
        World {
            nodes: view.nodes,
            cluster: view.cluster.clone(),
            views: [view.clone(), view],
            lists: [None, None],
            flights: vec![],
            bumps: self.bumps,
        }
    }

    /// The nodes that the real planner lets start, as this controller knows the fleet.
    fn admitted(view: &View, first: usize) -> Vec<usize> {
        let intent = intent();
        let admission = admit(&rules(&intent), &standings(&view.nodes, first));
        (0..2)
            .filter(|i| admission.starts().any(|(node, _)| node == NODES[*i]))
            .collect()
    }

    /// Claims that this controller has to count.
    fn open(&self, cluster: &Cluster, view: &View) -> Vec<(usize, u8)> {
        let spent = |(i, version): &(usize, u8)| {
            real(*i, *version).is_spent(&view.nodes[*i].version.to_string())
        };
        let mut open = cluster.claims.clone();
        open.retain(|claim| self.guards.drop_spent_only && !spent(claim));
        open
    }

    /// A status that a controller writes for other reasons: claims that are spent are left out.
    fn tidy(&self, world: &World, who: usize) -> Option<Flight> {
        let view = &world.views[who];
        let claims = self.open(&view.cluster, view);
        (claims != view.cluster.claims).then_some(Flight::Claim {
            current: view.cluster.current,
            claims,
        })
    }

    /// The claim that a controller sends after its list.
    fn claim(&self, world: &World, who: usize, first: usize) -> Option<Flight> {
        let (cluster, fenced) = world.lists[who].clone()?;
        let view = &world.views[who];
        let asked: Vec<Claim> = Self::admitted(view, first)
            .into_iter()
            .filter(|i| !cluster.claims.contains(&(*i, view.nodes[*i].version)))
            .map(|i| real(i, view.nodes[i].version))
            .collect();
        let open = self.open(&cluster, view);
        let in_force: Vec<Claim> = open.iter().map(|(i, version)| real(*i, *version)).collect();
        let fenced: BTreeSet<_> = fenced
            .iter()
            .map(|i| (NODES[*i].to_owned(), Vendor::Nvidia))
            .collect();
        let intent = intent();
        let granted = claim(
            &rules(&intent),
            &standings(&view.nodes, first),
            &in_force,
            &fenced,
            &asked,
        );
        if granted.is_empty() {
            return None;
        }
        let mut claims = open;
        for new in granted {
            let i = NODES.iter().position(|name| *name == new.node)?;
            claims.push((i, new.version.parse().ok()?));
        }
        claims.sort_unstable();
        Some(Flight::Claim {
            current: cluster.current,
            claims,
        })
    }

    /// The fence that a controller sends on a node, which it reads freshly for that.
    fn fence(&self, world: &World, who: usize, i: usize) -> Option<Flight> {
        let view = &world.views[who];
        let fresh = world.nodes[i];
        if fresh.fenced || fresh.wanted == 0 || view.nodes[i].wanted == 0 {
            return None;
        }
        let claimed = view.cluster.claims.iter().any(|(node, version)| {
            *node == i && (*version == fresh.version || !self.guards.fence_on_claimed_version)
        });
        let may = if self.guards.claims {
            claimed
        } else {
            (0..2).any(|first| Self::admitted(view, first).contains(&i))
        };
        may.then_some(Flight::Fence {
            node: i,
            on: fresh.version,
        })
    }
}

impl Model for Protocol {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        vec![self.start()]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        for who in 0..2 {
            let view = &world.views[who];
            for i in 0..2 {
                if view.nodes[i] != world.nodes[i] {
                    actions.push(Action::SeesNode(who, i));
                }
                if world.flights.len() < 2
                    && let Some(flight) = self.fence(world, who, i)
                    && !world.flights.contains(&flight)
                {
                    actions.push(Action::Fences(flight));
                }
            }
            if view.cluster != world.cluster {
                actions.push(Action::SeesCluster(who));
            }
            if self.guards.claims && !Self::admitted(view, 0).is_empty() {
                actions.push(Action::Lists(who));
            }
            for first in 0..2 {
                if world.flights.len() < 2
                    && let Some(flight) = self.claim(world, who, first)
                    && !world.flights.contains(&flight)
                {
                    actions.push(Action::Claims(who, flight));
                }
            }
            if world.flights.len() < 2
                && let Some(flight) = self.tidy(world, who)
                && !world.flights.contains(&flight)
            {
                actions.push(Action::Claims(who, flight));
            }
            if world.lists[who].is_some() {
                actions.push(Action::Restarts(who));
            }
        }
        for i in 0..world.flights.len() {
            actions.push(Action::Land(i));
            actions.push(Action::Lose(i));
        }
        for i in 0..2 {
            if world.nodes[i].fenced {
                actions.push(Action::Ends(i));
            }
            if world.bumps > 0 {
                actions.push(Action::Bumped(i));
            }
        }
    }

    fn next_state(&self, world: &World, action: Action) -> Option<World> {
        let mut next = world.clone();
        match action {
            Action::SeesNode(who, i) => next.views[who].nodes[i] = world.nodes[i],
            Action::SeesCluster(who) => next.views[who].cluster = world.cluster.clone(),
            Action::Lists(who) => {
                let seen = if self.guards.fresh_list {
                    world.nodes
                } else {
                    world.views[who].nodes
                };
                let fenced = (0..2).filter(|i| seen[*i].fenced).collect();
                next.lists[who] = Some((world.views[who].cluster.clone(), fenced));
            }
            Action::Claims(who, flight) => {
                next.lists[who] = None;
                next.flights.push(flight);
                next.flights.sort();
            }
            Action::Fences(flight) => {
                next.flights.push(flight);
                next.flights.sort();
            }
            Action::Land(i) => match next.flights.remove(i) {
                Flight::Claim { current, claims } => {
                    if current || !self.guards.claim_precondition {
                        next.outdate();
                        next.cluster.claims = claims;
                    }
                }
                Flight::Fence { node, on } => {
                    if on == world.nodes[node].version {
                        next.nodes[node].fenced = true;
                        next.nodes[node].version += 1;
                    }
                }
            },
            Action::Lose(i) => {
                next.flights.remove(i);
            }
            Action::Ends(i) => {
                let node = &mut next.nodes[i];
                node.fenced = false;
                node.version += 1;
                node.wanted = node.wanted.saturating_sub(1);
            }
            Action::Bumped(i) => {
                next.bumps -= 1;
                next.nodes[i].version += 1;
            }
            Action::Restarts(who) => next.lists[who] = None,
        }
        self.drop_what_changes_nothing(&mut next);
        (next != *world).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(WITHIN, |_, world: &World| {
                world.nodes.iter().filter(|node| node.fenced).count() <= BUDGET as usize
            }),
            Property::sometimes("every handover comes to its end", |_, world: &World| {
                world.nodes.iter().all(|node| node.wanted == 0)
            }),
            Property::sometimes("two controllers claim at once", |_, world: &World| {
                let claims = |flight: &&Flight| matches!(flight, Flight::Claim { .. });
                world.flights.iter().filter(claims).count() == 2
            }),
            Property::always(
                "wherever two controllers left it, one that acts alone goes on",
                |model: &Self, world: &World| !model.progress || model.goes_on(world),
            ),
        ]
    }
}

impl World {
    fn outdate(&mut self) {
        for view in &mut self.views {
            view.cluster.current = false;
        }
        for list in self.lists.iter_mut().flatten() {
            list.0.current = false;
        }
        for flight in &mut self.flights {
            if let Flight::Claim { current, .. } = flight {
                *current = false;
            }
        }
    }
}

impl Protocol {
    /// Writes that their precondition refuses, and lists for such.
    fn drop_what_changes_nothing(&self, world: &mut World) {
        let versions = world.nodes.map(|node| node.version);
        world.flights.retain(|flight| match flight {
            Flight::Claim { current, claims: _ } => *current || !self.guards.claim_precondition,
            Flight::Fence { node, on } => *on == versions[*node],
        });
        world.flights.sort();
        if self.guards.claim_precondition {
            for list in &mut world.lists {
                if list.as_ref().is_some_and(|(cluster, _)| !cluster.current) {
                    *list = None;
                }
            }
        }
    }

    fn fresh_view(world: &World) -> View {
        View {
            nodes: world.nodes,
            cluster: world.cluster.clone(),
        }
    }

    /// Nothing is under way any more, one controller sees everything, kubelets write now and then: all handovers end.
    fn goes_on(&self, world: &World) -> bool {
        let mut world = world.clone();
        world.flights.clear();
        for _ in 0..16 {
            world.views[0] = Self::fresh_view(&world);
            world.lists[0] = None;
            if world.nodes.iter().all(|node| node.wanted == 0) {
                return true;
            }
            for i in 0..2 {
                if world.nodes[i].fenced {
                    world = self.next_state(&world, Action::Ends(i)).unwrap_or(world);
                }
            }
            world.views[0] = Self::fresh_view(&world);
            let sent = (0..2).find_map(|i| self.fence(&world, 0, i)).or_else(|| {
                let listed = self.next_state(&world, Action::Lists(0))?;
                self.claim(&listed, 0, 0)
            });
            match sent {
                Some(flight) => {
                    world.flights = vec![flight];
                    world = self.next_state(&world, Action::Land(0)).unwrap_or(world);
                }
                // A claim that nobody uses any more ends with the next status that its kubelet writes.
                None => {
                    for node in &mut world.nodes {
                        node.version += 1;
                    }
                }
            }
            world.flights.clear();
        }
        false
    }
}

fn model(guards: Guards) -> Protocol {
    Protocol {
        guards,
        wanted: [1, 1],
        bumps: 1,
        progress: false,
    }
}

#[test]
fn two_controllers_never_fence_more_nodes_than_the_budget() {
    for (wanted, bumps) in [([1, 1], 1), ([2, 1], 0)] {
        let checker = Protocol {
            wanted,
            bumps,
            progress: true,
            ..model(ALL)
        }
        .checker()
        .threads(2)
        .spawn_bfs()
        .join();
        println!(
            "budget, {wanted:?} handovers: {} states, {} of them distinct, depth {}",
            checker.state_count(),
            checker.unique_state_count(),
            checker.max_depth()
        );
        checker.assert_properties();
    }
}

/// The same without one guard must break.
fn breaks(name: &str, guards: Guards) {
    let checker = model(guards)
        .checker()
        .threads(2)
        .finish_when(HasDiscoveries::AnyFailures)
        .spawn_bfs()
        .join();
    let discoveries = checker.discoveries();
    let steps = discoveries
        .get(WITHIN)
        .map(|path| path.clone().into_actions().len());
    println!(
        "without {name}: {} distinct states, over budget in {steps:?} steps",
        checker.unique_state_count()
    );
    assert!(
        steps.is_some(),
        "the model must break without {name}, or it does not check that guard"
    );
}

#[test]
fn without_claims() {
    breaks(
        "claims",
        Guards {
            claims: false,
            ..ALL
        },
    );
}

#[test]
fn without_the_precondition_of_claims() {
    breaks(
        "the precondition of claims",
        Guards {
            claim_precondition: false,
            ..ALL
        },
    );
}

#[test]
fn without_a_fresh_list_of_fenced_nodes() {
    breaks(
        "a fresh list of fenced nodes",
        Guards {
            fresh_list: false,
            ..ALL
        },
    );
}

#[test]
fn without_fences_bound_to_the_claimed_version() {
    breaks(
        "fences bound to the claimed version",
        Guards {
            fence_on_claimed_version: false,
            ..ALL
        },
    );
}

#[test]
fn without_claims_kept_until_they_are_spent() {
    breaks(
        "claims kept until they are spent",
        Guards {
            drop_spent_only: false,
            ..ALL
        },
    );
}
