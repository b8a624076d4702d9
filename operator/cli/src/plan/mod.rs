//! `plan`: what an AcceleratorCluster comes to on the nodes that there are, decided by the functions that the controller
//! decides by.

mod board;
mod drawn;
mod impact;
mod moves;
mod objects;
mod order;
mod text;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use clap::Args;
use freehold_api::plan::Plan;
use freehold_api::{AcceleratorCluster, AcceleratorNode};
use freehold_core::assign::{ClusterView, NodeView};
use freehold_core::catalogue;
use freehold_core::names;
use freehold_core::rollout::Confirmation;
use freehold_render::{Rendered, Settings};
use futures::StreamExt as _;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::ResourceClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt as _};
use serde::Serialize;

use crate::exit::{Exit, Failure};
use crate::output::{self, Answer, Look};
use crate::seen::{self, Consumer, OurPod};
use crate::session::{Session, is_not_found, words};
use crate::world::{self, References};
use crate::{fleet, intent_file};

use moves::{Move, Stay};
use objects::Objects;

/// Nodes whose consumers are looked at; for more it would take a read of every pod of the cluster.
const LOOKED_AT: usize = 50;
/// Nodes looked at at once.
const AT_ONCE: usize = 8;

/// Options of `plan`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    /// Plan for this AcceleratorCluster (- for stdin) instead of the live one.
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Draw the file's MIG layouts on a board by its published table, e.g. H100-80, without a cluster. Exits with 3 when one
    /// cannot be had. A name that does not exist lists those that do.
    #[arg(
        long,
        value_name = "BOARD",
        requires = "file",
        conflicts_with = "exit_code"
    )]
    board: Option<String>,
    /// GPUs of the node that --board draws.
    #[arg(long, value_name = "COUNT", requires = "board", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=16))]
    gpus: u32,
    /// Exit with 3 when anything would change.
    #[arg(long)]
    exit_code: bool,
}

/// Runs the command.
pub(crate) async fn run(session: &Session, options: Options) -> Result<Exit, Failure> {
    let given = options.file.as_deref().map(intent_file::read).transpose()?;
    if let (Some(board), Some((_, plan))) = (&options.board, &given) {
        let answer = board::OnBoard::new(plan, board, options.gpus)?;
        output::print(session, &answer)?;
        return Ok(answer.exit());
    }
    let client = session.client().await?;
    session.busy("reading the AcceleratorCluster");
    let live = if given.is_some() {
        // A file can be planned for before anything is installed.
        fleet::cluster_opt(client.clone()).await.ok().flatten()
    } else {
        Some(fleet::cluster(client.clone()).await?)
    };
    let from_file = given.is_some();
    let (cluster, plan) = match (given, &live) {
        (Some(given), _) => given,
        (None, Some(live)) => {
            let plan = Plan::parse(&live.spec).map_err(|problems| {
                Failure::undetermined(format!("the AcceleratorCluster is not valid: {problems}"))
            })?;
            (live.clone(), plan)
        }
        (None, None) => return Err(Failure::undetermined("there is no AcceleratorCluster")),
    };
    let world = World::read(session, client.clone()).await?;
    let rendered = freehold_render::render(&plan, &world.settings(live.as_ref()));
    let mut notes = Vec::new();
    if let Some(note) = world.other_renderer(live.as_ref()) {
        notes.push(note);
    }
    session.busy("comparing objects");
    let objects = Objects::compare(&client, &rendered, live.as_ref()).await;
    let tearing_down = !from_file && cluster.metadata.deletion_timestamp.is_some();
    let (mut moves, stays, settled) = moves::all(&world, &rendered.intent, tearing_down);
    session.busy("looking at the consumers of nodes that would change");
    consumers(client.clone(), &mut moves, &mut notes).await;
    session.busy("looking for workloads that ask for names that go");
    let mut impacts = impact::lost(&world, &rendered.intent, &moves);
    impact::find(&client, &mut impacts, &mut notes).await;
    let pace = order::Pace {
        intent: &rendered.intent,
        // An edit makes a new generation; a confirmation names one.
        generation: live
            .as_ref()
            .and_then(|live| live.metadata.generation)
            .unwrap_or(0)
            + i64::from(from_file && live.is_some()),
        confirmed: confirmation(&cluster),
        tearing_down,
        now_s: session.now().as_second(),
    };
    order::assign(&mut moves, &world, &stays, &settled, &pace);
    let mut answer = Answered::new(&rendered, moves, stays, settled.len(), objects, notes);
    answer.impact = impacts;
    answer.mig = drawn::all(&world, &rendered.intent, &answer.moves);
    output::print(session, &answer)?;
    Ok(if options.exit_code && answer.changes() {
        Exit::Findings
    } else {
        Exit::Fine
    })
}

fn confirmation(cluster: &AcceleratorCluster) -> Option<Confirmation> {
    Confirmation::parse(cluster.annotations().get(names::CONFIRM_ANNOTATION)?)
}

/// What the plan is made on.
pub(crate) struct World {
    pub(crate) nodes: Vec<NodeView>,
    pub(crate) records: BTreeMap<String, AcceleratorNode>,
    /// Our operand pods, by node.
    pub(crate) pods: BTreeMap<String, Vec<OurPod>>,
    pub(crate) view: ClusterView,
    config_files: BTreeMap<(String, String), String>,
    daemon_sets: Vec<DaemonSet>,
}

impl World {
    async fn read(session: &Session, client: Client) -> Result<Self, Failure> {
        let broken = |what: &'static str| {
            move |why: String| Failure::undetermined(format!("cannot read {what}: {why}"))
        };
        session.busy("listing Nodes");
        let nodes = world::nodes(client.clone())
            .await
            .map_err(broken("Nodes"))?;
        session.busy("listing AcceleratorNodes");
        let records = match Api::<AcceleratorNode>::all(client.clone())
            .list(&ListParams::default().limit(1))
            .await
        {
            // Nothing is installed yet.
            Err(error) if is_not_found(&error) => Vec::new(),
            Ok(_) | Err(_) => fleet::records(client.clone()).await?,
        };
        session.busy("listing operand pods");
        let selector = ListParams::default().labels(&format!("{}=operand", names::COMPONENT_LABEL));
        let operands = Api::<Pod>::namespaced(client.clone(), names::OPERAND_NAMESPACE)
            .list(&selector)
            .await;
        let operands = operands
            .map_err(|error| words(&error))
            .map_err(broken("operand pods"))?;
        let mut pods: BTreeMap<String, Vec<OurPod>> = BTreeMap::new();
        for pod in operands.items {
            let node = pod
                .spec
                .as_ref()
                .and_then(|spec| spec.node_name.clone())
                .unwrap_or_default();
            pods.entry(node)
                .or_default()
                .extend(seen::our_pods(std::slice::from_ref(&pod)));
        }
        session.busy("reading what cohorts refer to");
        let references = References::read(&client)
            .await
            .map_err(broken("what cohorts refer to"))?;
        let version = client
            .apiserver_version()
            .await
            .map_err(|error| words(&error))
            .map_err(broken("the API server's version"))?;
        let dra = client
            .list_api_group_resources("resource.k8s.io/v1")
            .await
            .is_ok_and(|list| !list.resources.is_empty());
        let sets = Api::<DaemonSet>::namespaced(client, names::OPERAND_NAMESPACE)
            .list(&ListParams::default())
            .await;
        let sets = sets
            .map_err(|error| words(&error))
            .map_err(broken("operand DaemonSets"))?;
        Ok(Self {
            nodes,
            records: records
                .into_iter()
                .map(|record| (record.name_any(), record))
                .collect(),
            pods,
            view: references.view(&version.git_version, dra),
            config_files: references
                .config_maps
                .into_iter()
                .flat_map(|(map, files)| {
                    files
                        .into_iter()
                        .map(move |(key, text)| ((map.clone(), key), text))
                })
                .collect(),
            daemon_sets: sets.items,
        })
    }

    /// The installation's own settings, read off the agents that run; what a new installation would have otherwise.
    fn settings(&self, live: Option<&AcceleratorCluster>) -> Settings {
        let agent = self
            .daemon_sets
            .iter()
            .find(|set| set.name_any() == freehold_render::AGENT_NAME);
        let pod = agent.and_then(|set| set.spec.as_ref()?.template.spec.as_ref());
        let image = pod.and_then(|pod| pod.containers.first()?.image.clone());
        let secrets = pod
            .and_then(|pod| pod.image_pull_secrets.clone())
            .unwrap_or_default();
        Settings {
            owner: OwnerReference {
                api_version: "freehold.dev/v1alpha1".to_owned(),
                kind: "AcceleratorCluster".to_owned(),
                name: names::SINGLETON.to_owned(),
                uid: live.and_then(AcceleratorCluster::uid).unwrap_or_default(),
                controller: Some(true),
                block_owner_deletion: Some(true),
            },
            agent_image: image.unwrap_or_else(|| catalogue::AGENT_IMAGE.to_owned()),
            agent_image_pull_secrets: secrets.into_iter().map(|secret| secret.name).collect(),
            plugin_configs: self.config_files.clone(),
            kubelet_roots: self
                .daemon_sets
                .iter()
                .filter_map(freehold_render::kubelet_root)
                .map(str::to_owned)
                .collect::<BTreeSet<String>>(),
        }
    }

    /// Whether the controller that runs renders otherwise than this program: then restarts may be shown that it would not make.
    fn other_renderer(&self, live: Option<&AcceleratorCluster>) -> Option<String> {
        let live = live?;
        let observed = live
            .status
            .as_ref()
            .and_then(|status| status.observed_generation);
        if observed != live.metadata.generation {
            return None;
        }
        let rendered =
            freehold_render::render(&Plan::parse(&live.spec).ok()?, &self.settings(Some(live)));
        let differing: Vec<&str> = rendered
            .operands
            .iter()
            .filter(|operand| {
                let name = operand.daemon_set.as_ref().map(kube::ResourceExt::name_any);
                let set = self
                    .daemon_sets
                    .iter()
                    .find(|set| Some(set.name_any()) == name);
                let template = set.and_then(|set| {
                    set.spec
                        .as_ref()?
                        .template
                        .metadata
                        .as_ref()?
                        .annotations
                        .as_ref()
                });
                template
                    .and_then(|annotations| annotations.get(names::TEMPLATE_ANNOTATION))
                    .is_some_and(|hash| *hash != operand.template)
            })
            .map(|operand| operand.cohort.as_str())
            .collect();
        (!differing.is_empty()).then(|| {
            format!(
                "The running controller renders {} otherwise than this version of kubectl freehold: some of the restarts shown are those of an upgrade.",
                differing.join(", ")
            )
        })
    }
}

/// Looks at who uses the devices of nodes that would be fenced.
async fn consumers(client: Client, moves: &mut [Move], notes: &mut Vec<String>) {
    let fenced: BTreeSet<String> = moves
        .iter()
        .filter(|move_| move_.class.fences())
        .map(|move_| move_.node.clone())
        .collect();
    if fenced.is_empty() {
        return;
    }
    if fenced.len() > LOOKED_AT {
        notes.push(format!(
            "The consumers of the first {LOOKED_AT} of {} nodes were looked at.",
            fenced.len()
        ));
    }
    let claims = match Api::<ResourceClaim>::all(client.clone())
        .list(&ListParams::default())
        .await
    {
        Ok(list) => list.items,
        // A server without DRA has no claims.
        Err(error) if is_not_found(&error) => Vec::new(),
        Err(error) => {
            notes.push(format!(
                "Consumers are not known, ResourceClaims cannot be read: {}.",
                words(&error)
            ));
            return;
        }
    };
    let found: Vec<(String, Result<Vec<Consumer>, String>)> =
        futures::stream::iter(fenced.into_iter().take(LOOKED_AT))
            .map(|node| {
                let (client, claims) = (client.clone(), &claims);
                async move {
                    let fields = ListParams::default().fields(&format!("spec.nodeName={node}"));
                    let pods = Api::<Pod>::all(client).list(&fields).await;
                    let found = pods
                        .map(|pods| seen::consumers(&node, &pods.items, claims))
                        .map_err(|error| words(&error));
                    (node, found)
                }
            })
            .buffer_unordered(AT_ONCE)
            .collect()
            .await;
    for (node, found) in found {
        match found {
            Ok(found) => {
                for move_ in moves
                    .iter_mut()
                    .filter(|move_| move_.node == node && move_.class.fences())
                {
                    move_.consumers = Some(
                        found
                            .iter()
                            .filter(|consumer| consumer.vendor == move_.vendor)
                            .cloned()
                            .collect(),
                    );
                }
            }
            Err(why) => {
                notes.push(format!(
                    "Consumers on {node} are not known, its pods cannot be read: {why}."
                ));
            }
        }
    }
}

/// The answer.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Answered {
    /// One sentence.
    sentence: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    notes: Vec<String>,
    moves: Vec<Move>,
    stays: Vec<Stay>,
    /// Places that are as wanted.
    settled: usize,
    objects: Objects,
    /// MIG layouts of nodes that change, drawn.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    mig: Vec<drawn::Drawn>,
    /// Resource names that nodes stop to offer, and who still asks for them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    impact: Vec<impact::Impact>,
    /// Budgets, canaries and drain, in words.
    pace: Vec<String>,
}

impl Answered {
    fn new(
        rendered: &Rendered,
        moves: Vec<Move>,
        stays: Vec<Stay>,
        settled: usize,
        objects: Objects,
        notes: Vec<String>,
    ) -> Self {
        Self {
            sentence: text::sentence(&moves, &stays, settled),
            notes,
            pace: order::words(&rendered.intent),
            moves,
            stays,
            settled,
            objects,
            mig: Vec::new(),
            impact: Vec::new(),
        }
    }

    fn changes(&self) -> bool {
        !self.moves.is_empty() || self.objects.changes()
    }
}

impl Answer for Answered {
    const KIND: &'static str = "Plan";

    fn text(&self, look: Look) -> String {
        text::render(self, look)
    }
}

#[cfg(test)]
mod tests;
