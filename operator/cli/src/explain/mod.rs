//! `explain <node>`: who owns the node, what it waits for, what comes next, what a person can do, and what all of that rests on.

mod evidence;
mod story;
mod text;

use clap::Args;
use freehold_api::plan::Plan;
use freehold_api::{AcceleratorCluster, AcceleratorNode};
use freehold_core::vendor::Vendor;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use serde::Serialize;

use crate::exit::{Exit, Failure};
use crate::fleet::{self, Controller, place};
use crate::output::{self, Answer, Look};
use crate::session::{Session, words};
use evidence::Evidence;
use story::Story;

/// Options of `explain`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    /// Name of the node.
    node: String,
}

/// Runs the command.
pub(crate) async fn run(session: &Session, options: Options) -> Result<Exit, Failure> {
    let Options { node: name } = options;
    let client = session.client().await?;
    session.busy("reading the AcceleratorCluster");
    let cluster = fleet::cluster(client.clone()).await?;
    session.busy(format!("reading Node and AcceleratorNode {name}"));
    let record = Api::<AcceleratorNode>::all(client.clone())
        .get_opt(&name)
        .await
        .map_err(|error| fleet::unreadable("AcceleratorNodes", &error))?;
    let node = Api::<Node>::all(client.clone())
        .get_opt(&name)
        .await
        .map_err(|error| words(&error));
    if record.is_none() && matches!(node, Ok(None)) {
        return Err(Failure::undetermined(format!(
            "there is neither a Node nor an AcceleratorNode {name:?}; kubectl get nodes lists the names"
        )));
    }
    session.busy("reading the controller's lease");
    let controller = Controller::read(client.clone(), session.now()).await;
    let evidence = Evidence::read(session, client, &name, node, record.as_ref()).await;
    let explanation = Explanation::new(
        &name,
        &cluster,
        record.as_ref(),
        &controller,
        evidence,
        session.now(),
    );
    output::print(session, &explanation)?;
    Ok(explanation.exit)
}

/// The answer.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Explanation {
    node: String,
    /// One sentence.
    sentence: String,
    exit: Exit,
    /// What limits the answer.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    notes: Vec<String>,
    /// By vendor.
    stories: Vec<Story>,
    evidence: Evidence,
    #[serde(skip)]
    now: Timestamp,
}

impl Explanation {
    fn new(
        name: &str,
        cluster: &AcceleratorCluster,
        record: Option<&AcceleratorNode>,
        controller: &Controller,
        evidence: Evidence,
        now: Timestamp,
    ) -> Self {
        let mut notes = Vec::new();
        let stories: Vec<Story> = Vendor::ALL
            .into_iter()
            .filter_map(|vendor| place(record?, vendor))
            .map(|place| Story::new(place, cluster, &evidence))
            .collect();
        let mut exit = stories.iter().fold(Exit::Fine, |exit, story| {
            exit.worse(story.place.health.exit())
        });
        if let Some(note) = controller.note(now) {
            exit = exit.worse(controller.exit());
            notes.push(note);
        }
        let generation = cluster.metadata.generation;
        let observed = cluster
            .status
            .as_ref()
            .and_then(|status| status.observed_generation);
        if observed < generation {
            exit = exit.worse(Exit::Waiting);
            notes.push("The last edit of the AcceleratorCluster has not been looked at yet; this may be about the one before.".to_owned());
        }
        match (&evidence.node, record) {
            (Ok(None), Some(_)) => {
                notes.push("The Node object is gone; the record of it goes when the garbage collector notices.".to_owned());
            }
            (Ok(Some(node)), Some(record)) if node.uid != record.spec.node_uid => {
                exit = exit.worse(Exit::Waiting);
                notes.push(format!(
                    "The record was made for Node UID {}, the Node now has UID {}: the machine was replaced, and the controller starts over.",
                    record.spec.node_uid, node.uid
                ));
            }
            _ => {}
        }
        let sentence = match stories.as_slice() {
            [] => {
                let (sentence, bare) = without_record(name, cluster, &evidence);
                exit = exit.worse(bare);
                sentence
            }
            stories => {
                let parts: Vec<&str> = stories
                    .iter()
                    .map(|story| story.sentence.as_str())
                    .collect();
                format!("{name}: {}.", parts.join("; "))
            }
        };
        Self {
            node: name.to_owned(),
            sentence,
            exit,
            notes,
            stories,
            evidence,
            now,
        }
    }
}

/// What can be said about a node that has no record: whether it should have one.
fn without_record(name: &str, cluster: &AcceleratorCluster, evidence: &Evidence) -> (String, Exit) {
    let plan = match Plan::parse(&cluster.spec) {
        Ok(plan) => plan,
        Err(problems) => {
            return (
                format!(
                    "{name}: not known, since the AcceleratorCluster is not valid: {problems}."
                ),
                Exit::Findings,
            );
        }
    };
    let node = match &evidence.node {
        Ok(Some(node)) => node,
        Ok(None) => {
            return (
                format!("{name}: there is no such Node."),
                Exit::Undetermined,
            );
        }
        Err(why) => {
            return (
                format!("{name}: not known, the Node is unreadable ({why})."),
                Exit::Undetermined,
            );
        }
    };
    let matching: Vec<&str> = plan
        .intent
        .cohorts
        .values()
        .filter(|cohort| cohort.selector.matches(&node.labels))
        .map(|cohort| cohort.name.as_str())
        .collect();
    if matching.is_empty() {
        (
            format!("{name}: no cohort selects this node; Freehold has nothing to do with it."),
            Exit::Fine,
        )
    } else {
        let sentence = format!(
            "{name}: selected by {}, but the controller has not taken it in yet.",
            matching.join(" and ")
        );
        (sentence, Exit::Waiting)
    }
}

impl Answer for Explanation {
    const KIND: &'static str = "Explanation";

    fn text(&self, look: Look) -> String {
        text::render(self, look)
    }
}

#[cfg(test)]
mod tests;
