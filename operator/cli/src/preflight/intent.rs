//! The AcceleratorCluster: a file, the live one, or, while there is neither, the sample that this version ships.

use freehold_api::AcceleratorCluster;
use freehold_api::plan::Plan;
use freehold_core::catalogue::{self, Floor, PUBLISH_FLOOR, Subject, Version};
use freehold_core::vendor::{Owner, Vendor};
use kube::api::Patch;
use kube::{Api, Client, ResourceExt as _};

use super::Report;
use super::api::{Server, dry_run};
use super::check::Check;
use super::install::Crds;
use crate::fleet;
use crate::session::words;
use crate::world::{self, References};

/// Tried out where there is nothing else to try.
const SAMPLE: &str = include_str!("../../../../config/samples/acceleratorcluster.yaml");
/// Nodes named; the rest is counted.
const NAMED: usize = 3;

/// Makes the checks; gives the plan, if there is a valid one.
pub(super) async fn check(
    client: &Client,
    server: &Server,
    crds: Crds,
    given: Option<(AcceleratorCluster, Plan)>,
    report: &mut Report,
) -> Option<Plan> {
    let skip = |report: &mut Report, why: &str| {
        for check in [Check::Floors, Check::References, Check::Selectors] {
            report.add(check.skipped(why));
        }
    };
    let live = match crds {
        Crds::Established if given.is_none() => match fleet::cluster_opt(client.clone()).await {
            Ok(live) => live,
            Err(failure) => {
                report.add(Check::Intent.unknown(failure.message));
                skip(report, "the AcceleratorCluster could not be read");
                return None;
            }
        },
        Crds::Established | Crds::Missing | Crds::Unknown => None,
    };
    let plan = match (given, live) {
        (Some((cluster, plan)), _) => {
            tried(client, crds, &cluster, "the file", report).await;
            plan
        }
        (None, Some(cluster)) => match Plan::parse(&cluster.spec) {
            Ok(plan) => {
                tried(
                    client,
                    crds,
                    &stripped(&cluster),
                    "the live resource",
                    report,
                )
                .await;
                plan
            }
            Err(problems) => {
                let next = "kubectl edit acceleratorcluster cluster";
                report.add(Check::Intent.fail(
                    "AcceleratorCluster cluster",
                    problems.to_string(),
                    next,
                ));
                skip(report, "the AcceleratorCluster is not valid");
                return None;
            }
        },
        (None, None) => {
            match serde_saphyr::from_str::<AcceleratorCluster>(SAMPLE) {
                Ok(sample) => {
                    tried(
                        client,
                        crds,
                        &sample,
                        "this version's sample; there is no AcceleratorCluster yet",
                        report,
                    )
                    .await;
                }
                Err(error) => report.add(
                    Check::Intent.unknown(format!("the built-in sample is not readable: {error}")),
                ),
            }
            skip(
                report,
                "there is no AcceleratorCluster yet; give one with --file",
            );
            return None;
        }
    };
    floors(server, &plan, report);
    references(client, &plan, report).await;
    selectors(client, &plan, report).await;
    Some(plan)
}

/// Without what only a stored object has.
fn stripped(cluster: &AcceleratorCluster) -> AcceleratorCluster {
    AcceleratorCluster::new(&cluster.name_any(), cluster.spec.clone())
}

/// Has the API server judge it, CEL rules, quotas and foreign webhooks included.
async fn tried(
    client: &Client,
    crds: Crds,
    cluster: &AcceleratorCluster,
    what: &str,
    report: &mut Report,
) {
    if crds != Crds::Established {
        report.add(
            Check::Intent
                .skipped("the custom resource definitions are not there to try it against"),
        );
        return;
    }
    let api = Api::<AcceleratorCluster>::all(client.clone());
    match api
        .patch(
            &cluster.name_any(),
            &dry_run().validation_strict(),
            &Patch::Apply(cluster),
        )
        .await
    {
        Ok(_) => report.add(Check::Intent.pass(format!("by a dry run of {what}"))),
        Err(kube::Error::Api(status)) if status.code == 403 => {
            report
                .add(Check::Intent.unknown(format!("a dry run is forbidden: {}", status.message)));
        }
        Err(error) => {
            let next = "Correct the fields that the message names.";
            report.add(Check::Intent.fail("AcceleratorCluster cluster", words(&error), next));
        }
    }
}

fn floors(server: &Server, plan: &Plan, report: &mut Report) {
    let Some(version) = Version::parse(&server.version) else {
        report.add(Check::Floors.unknown(format!(
            "the API server's version {:?} cannot be read",
            server.version
        )));
        return;
    };
    let mut fine = true;
    for cohort in plan.intent.cohorts.values() {
        let object = format!("cohort {}", cohort.name);
        let mut floors: Vec<&Floor> = catalogue::operand(cohort.vendor, cohort.owner)
            .floor(Subject::ControlPlane)
            .into_iter()
            .collect();
        if cohort.dra.publishes_extended_resource {
            floors.push(&PUBLISH_FLOOR);
        }
        for floor in floors
            .into_iter()
            .filter(|floor| !version.meets(floor.version))
        {
            fine = false;
            let cause = format!(
                "the API server ({}) is older than {}: {}",
                server.version, floor.version, floor.reason
            );
            report.add(Check::Floors.fail(
                object.clone(),
                cause,
                "Upgrade the control plane, or change the cohort's owner or settings.",
            ));
        }
        if cohort.owner == Owner::Dra && !server.dra {
            fine = false;
            let next = "Enable resource.k8s.io/v1 (Kubernetes 1.34), or set owner: DevicePlugin.";
            report.add(Check::Floors.fail(
                object,
                "its owner is DRA, and resource.k8s.io/v1 is not served",
                next,
            ));
        }
    }
    if fine {
        report.add(Check::Floors.pass(""));
    }
}

async fn references(client: &Client, plan: &Plan, report: &mut Report) {
    let references = match References::read(client).await {
        Ok(references) => references,
        Err(why) => {
            report.add(Check::References.unknown(why));
            return;
        }
    };
    let mut fine = true;
    for cohort in plan.intent.cohorts.values() {
        let object = format!("cohort {}", cohort.name);
        if let Some(class) = &cohort.runtime_class
            && !references.runtime_classes.contains(class)
        {
            fine = false;
            let next = format!(
                "Create RuntimeClass {class} with a handler that the hosts' runtime knows, or change nvidia.runtimeClassName."
            );
            report.add(Check::References.fail(
                object.clone(),
                format!("RuntimeClass {class} does not exist"),
                next,
            ));
        }
        if let Some((map, key)) = &cohort.config_map
            && !references
                .config_maps
                .get(map)
                .is_some_and(|files| files.contains_key(key))
        {
            fine = false;
            let namespace = freehold_core::names::OPERAND_NAMESPACE;
            let next =
                format!("kubectl -n {namespace} create configmap {map} --from-file={key}=<file>");
            report.add(Check::References.fail(
                object,
                format!("ConfigMap {namespace}/{map} with key {key} does not exist"),
                next,
            ));
        }
    }
    if fine {
        report.add(Check::References.pass(""));
    }
}

async fn selectors(client: &Client, plan: &Plan, report: &mut Report) {
    let nodes = match world::nodes(client.clone()).await {
        Ok(nodes) => nodes,
        Err(why) => {
            report.add(Check::Selectors.unknown(format!("Nodes: {why}")));
            return;
        }
    };
    let mut fine = true;
    let mut selected = 0;
    for cohort in plan.intent.cohorts.values() {
        let count = nodes
            .iter()
            .filter(|node| cohort.selector.matches(&node.labels))
            .count();
        selected += count;
        if count == 0 {
            fine = false;
            let next = "Compare its nodeSelector with: kubectl get nodes --show-labels";
            report.add(Check::Selectors.warn(
                format!("cohort {}", cohort.name),
                "it selects no node",
                next,
            ));
        }
    }
    for vendor in Vendor::ALL {
        let mut twice: Vec<(&str, Vec<&str>)> = Vec::new();
        for node in &nodes {
            let cohorts: Vec<&str> = plan
                .intent
                .cohorts
                .values()
                .filter(|cohort| cohort.vendor == vendor && cohort.selector.matches(&node.labels))
                .map(|cohort| cohort.name.as_str())
                .collect();
            if cohorts.len() > 1 {
                twice.push((&node.name, cohorts));
            }
        }
        if let Some((_, cohorts)) = twice.first() {
            fine = false;
            let named: Vec<&str> = twice.iter().take(NAMED).map(|(node, _)| *node).collect();
            let rest = twice.len().saturating_sub(NAMED);
            let rest = if rest > 0 {
                format!(" and {rest} more")
            } else {
                String::new()
            };
            let cause = format!(
                "node {}{rest} selected by {}; such nodes stay as they are",
                named.join(", "),
                cohorts.join(" and ")
            );
            report.add(Check::Selectors.fail(
                format!("{vendor} cohorts"),
                cause,
                "Make the nodeSelectors disjoint.",
            ));
        }
    }
    if fine {
        report.add(Check::Selectors.pass(format!("{selected} of {} nodes", nodes.len())));
    }
}
