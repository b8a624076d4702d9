//! What is installed, compared with what this version ships.

use std::collections::BTreeMap;

use freehold_api::{AcceleratorCluster, AcceleratorNode};
use futures::StreamExt as _;
use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::PostParams;
use kube::{Api, Client, CustomResourceExt as _, ResourceExt as _};
use serde_json::Value;

use super::Report;
use super::check::Check;
use super::manifest::{Grant, Installation, holds};
use crate::session::words;

/// How to install, or to install again.
const INSTALL: &str = "Install, or install again, the manifests (kubectl apply -k config) or the chart of this version.";
/// Access reviews under way at once.
const AT_ONCE: usize = 16;
/// Missing permissions named; the rest is counted.
const NAMED: usize = 5;

/// What there is of the custom resource definitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Crds {
    /// Both are served.
    Established,
    /// Not both.
    Missing,
    /// They could not be read.
    Unknown,
}

/// Makes the checks.
pub(super) async fn check(client: &Client, report: &mut Report) -> Crds {
    let installation = match Installation::built_in() {
        Ok(installation) => installation,
        Err(why) => {
            for check in [
                Check::Definitions,
                Check::DefinitionsCurrent,
                Check::Namespaces,
                Check::Permissions,
                Check::Policies,
            ] {
                report
                    .add(check.unknown(format!("the built-in manifests are not readable: {why}")));
            }
            return Crds::Unknown;
        }
    };
    let (crds, present) = definitions(client).await;
    let namespaces = namespaces(client, &installation).await;
    if crds == Crds::Missing
        && present == 0
        && matches!(&namespaces, Ok(found) if found.values().all(Option::is_none))
    {
        for check in [
            Check::Definitions,
            Check::DefinitionsCurrent,
            Check::Namespaces,
            Check::Permissions,
            Check::Policies,
        ] {
            report.add(check.skipped("nothing is installed yet"));
        }
        return crds;
    }
    current(client, report).await;
    match namespaces {
        Ok(found) => judge_namespaces(&installation, &found, report),
        Err(why) => report.add(Check::Namespaces.unknown(why)),
    }
    permissions(client, &installation, report).await;
    policies(client, &installation, report).await;
    crds
}

/// Whether both definitions are there, and how many are.
async fn definitions(client: &Client) -> (Crds, usize) {
    let api = Api::<CustomResourceDefinition>::all(client.clone());
    let mut present = 0;
    let mut established = 0;
    for crd in [AcceleratorCluster::crd(), AcceleratorNode::crd()] {
        match api.get_opt(&crd.name_any()).await {
            Ok(Some(live)) => {
                present += 1;
                established += usize::from(is_established(&live));
            }
            Ok(None) => {}
            Err(_) => return (Crds::Unknown, present),
        }
    }
    (
        if established == 2 {
            Crds::Established
        } else {
            Crds::Missing
        },
        present,
    )
}

fn is_established(crd: &CustomResourceDefinition) -> bool {
    let conditions = crd
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_ref());
    conditions
        .into_iter()
        .flatten()
        .any(|condition| condition.type_ == "Established" && condition.status == "True")
}

async fn current(client: &Client, report: &mut Report) {
    let api = Api::<CustomResourceDefinition>::all(client.clone());
    let (mut established, mut same) = (true, true);
    for crd in [AcceleratorCluster::crd(), AcceleratorNode::crd()] {
        let name = crd.name_any();
        let object = format!("CustomResourceDefinition {name}");
        match api.get_opt(&name).await {
            Ok(Some(live)) => {
                if !is_established(&live) {
                    established = false;
                    let next = format!("kubectl describe crd {name} says what is in the way.");
                    report.add(Check::Definitions.fail(
                        object.clone(),
                        "it is there and not established",
                        next,
                    ));
                }
                if !is_same(&live, &crd) {
                    same = false;
                    let cause = "its schema is not this version's: fields may be refused or dropped without a word";
                    let next = "Apply the crds/ of the version that runs: kubectl apply --server-side -f crds/";
                    report.add(Check::DefinitionsCurrent.fail(object, cause, next));
                }
            }
            Ok(None) => {
                (established, same) = (false, false);
                report.add(Check::Definitions.fail(
                    object,
                    "it does not exist",
                    "kubectl apply --server-side -f crds/",
                ));
            }
            Err(error) => {
                report.add(Check::Definitions.unknown(words(&error)));
                report.add(Check::DefinitionsCurrent.unknown(words(&error)));
                return;
            }
        }
    }
    if established {
        report.add(Check::Definitions.pass(""));
    }
    if same {
        report.add(Check::DefinitionsCurrent.pass(""));
    } else if !report.has(Check::DefinitionsCurrent) {
        report.add(Check::DefinitionsCurrent.skipped("they are not all there"));
    }
}

fn is_same(live: &CustomResourceDefinition, wanted: &CustomResourceDefinition) -> bool {
    let versions = |crd: &CustomResourceDefinition| {
        serde_json::to_value(&crd.spec.versions).unwrap_or(Value::Null)
    };
    holds(&versions(live), &versions(wanted))
}

/// The namespaces by name, as far as they exist.
async fn namespaces(
    client: &Client,
    installation: &Installation,
) -> Result<BTreeMap<String, Option<Namespace>>, String> {
    let api = Api::<Namespace>::all(client.clone());
    let mut found = BTreeMap::new();
    for namespace in &installation.namespaces {
        let name = namespace.name_any();
        let live = api.get_opt(&name).await.map_err(|error| words(&error))?;
        found.insert(name, live);
    }
    Ok(found)
}

fn judge_namespaces(
    installation: &Installation,
    found: &BTreeMap<String, Option<Namespace>>,
    report: &mut Report,
) {
    let mut fine = true;
    for namespace in &installation.namespaces {
        let name = namespace.name_any();
        let Some(live) = found.get(&name).and_then(Option::as_ref) else {
            fine = false;
            report.add(Check::Namespaces.fail(
                format!("Namespace {name}"),
                "it does not exist",
                INSTALL,
            ));
            continue;
        };
        const ENFORCE: &str = "pod-security.kubernetes.io/enforce";
        let wanted = namespace.labels().get(ENFORCE).map_or("", String::as_str);
        let level = live.labels().get(ENFORCE).map_or("", String::as_str);
        // Only a level below what the pods need keeps them away. Without a label the cluster's default decides, which is
        // privileged unless somebody changed it.
        if wanted == "privileged" && !level.is_empty() && level != "privileged" {
            fine = false;
            report.add(Check::Namespaces.fail(
                format!("Namespace {name}"),
                format!("it admits pods of level {level} only; vendors' plugins mount host directories and need privileged"),
                format!("kubectl label --overwrite namespace {name} {ENFORCE}=privileged"),
            ));
        }
    }
    if fine {
        report.add(Check::Namespaces.pass(""));
    }
}

/// One question about one service account.
struct Question {
    account: String,
    /// In words.
    what: String,
    review: SubjectAccessReview,
}

fn questions(grant: &Grant) -> Vec<Question> {
    let (namespace, name) = &grant.account;
    let user = format!("system:serviceaccount:{namespace}:{name}");
    let mut questions = Vec::new();
    for rule in &grant.rules {
        let names = rule
            .resource_names
            .clone()
            .filter(|names| !names.is_empty());
        let names: Vec<Option<String>> =
            names.map_or_else(|| vec![None], |names| names.into_iter().map(Some).collect());
        for group in rule.api_groups.iter().flatten() {
            for resource in rule.resources.iter().flatten() {
                let (resource, subresource) = match resource.split_once('/') {
                    Some((resource, subresource)) => (resource, Some(subresource.to_owned())),
                    None => (resource.as_str(), None),
                };
                for (verb, object) in rule
                    .verbs
                    .iter()
                    .flat_map(|verb| names.iter().map(move |name| (verb, name)))
                {
                    let attributes = ResourceAttributes {
                        group: Some(group.clone()),
                        resource: Some(resource.to_owned()),
                        subresource: subresource.clone(),
                        verb: Some(verb.clone()),
                        namespace: grant.namespace.clone(),
                        name: object.clone(),
                        ..ResourceAttributes::default()
                    };
                    let dotted = if group.is_empty() {
                        resource.to_owned()
                    } else {
                        format!("{resource}.{group}")
                    };
                    let slash = subresource
                        .as_ref()
                        .map_or_else(String::new, |subresource| format!("/{subresource}"));
                    let place = grant
                        .namespace
                        .as_ref()
                        .map_or_else(String::new, |namespace| format!(" in {namespace}"));
                    questions.push(Question {
                        account: format!("{namespace}/{name}"),
                        what: format!("{verb} {dotted}{slash}{place}"),
                        review: SubjectAccessReview {
                            spec: SubjectAccessReviewSpec {
                                user: Some(user.clone()),
                                // The groups that the API server puts every service account into.
                                groups: Some(vec![
                                    "system:serviceaccounts".to_owned(),
                                    format!("system:serviceaccounts:{namespace}"),
                                    "system:authenticated".to_owned(),
                                ]),
                                resource_attributes: Some(attributes),
                                ..SubjectAccessReviewSpec::default()
                            },
                            ..SubjectAccessReview::default()
                        },
                    });
                }
            }
        }
    }
    questions
}

async fn permissions(client: &Client, installation: &Installation, report: &mut Report) {
    let api = Api::<SubjectAccessReview>::all(client.clone());
    let questions: Vec<Question> = installation.grants.iter().flat_map(questions).collect();
    let asked = questions.len();
    let answers: Vec<(Question, kube::Result<SubjectAccessReview>)> =
        futures::stream::iter(questions)
            .map(|question| {
                let api = api.clone();
                async move {
                    let answer = api.create(&PostParams::default(), &question.review).await;
                    (question, answer)
                }
            })
            .buffer_unordered(AT_ONCE)
            .collect()
            .await;
    let mut missing: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (question, answer) in answers {
        match answer {
            Ok(review) if review.status.as_ref().is_some_and(|status| status.allowed) => {}
            Ok(_) => missing
                .entry(question.account)
                .or_default()
                .push(question.what),
            Err(error) => {
                report.add(Check::Permissions.unknown(format!(
                    "access reviews cannot be asked for: {}",
                    words(&error)
                )));
                return;
            }
        }
    }
    if missing.is_empty() {
        report.add(Check::Permissions.pass(format!("{asked} access reviews")));
    }
    for (account, mut lacking) in missing {
        lacking.sort();
        let rest = lacking.len().saturating_sub(NAMED);
        let rest = if rest > 0 {
            format!(" and {rest} more")
        } else {
            String::new()
        };
        lacking.truncate(NAMED);
        let cause = format!("it may not {}{rest}", lacking.join(", "));
        report.add(Check::Permissions.fail(format!("ServiceAccount {account}"), cause, INSTALL));
    }
}

async fn policies(client: &Client, installation: &Installation, report: &mut Report) {
    let policies = Api::<ValidatingAdmissionPolicy>::all(client.clone());
    let bindings = Api::<ValidatingAdmissionPolicyBinding>::all(client.clone());
    let mut fine = true;
    for policy in &installation.policies {
        let name = policy.name_any();
        let live = match policies.get_opt(&name).await {
            Ok(live) => live,
            Err(error) => {
                report.add(Check::Policies.unknown(words(&error)));
                return;
            }
        };
        let object = format!("ValidatingAdmissionPolicy {name}");
        let spec = |policy: &ValidatingAdmissionPolicy| {
            serde_json::to_value(&policy.spec).unwrap_or(Value::Null)
        };
        match live {
            None => {
                fine = false;
                report.add(Check::Policies.fail(object, "it does not exist", INSTALL));
            }
            Some(live) if !holds(&spec(&live), &spec(policy)) => {
                fine = false;
                report.add(Check::Policies.fail(
                    object,
                    "it is not what this version ships",
                    INSTALL,
                ));
            }
            Some(_) => {}
        }
    }
    for binding in &installation.bindings {
        let name = binding.name_any();
        let live = match bindings.get_opt(&name).await {
            Ok(live) => live,
            Err(error) => {
                report.add(Check::Policies.unknown(words(&error)));
                return;
            }
        };
        let object = format!("ValidatingAdmissionPolicyBinding {name}");
        let spec = |binding: &ValidatingAdmissionPolicyBinding| {
            serde_json::to_value(&binding.spec).unwrap_or(Value::Null)
        };
        match live {
            None => {
                fine = false;
                report.add(Check::Policies.fail(
                    object,
                    "it does not exist, so that its policy refuses nothing",
                    INSTALL,
                ));
            }
            Some(live) if !holds(&spec(&live), &spec(binding)) => {
                fine = false;
                report.add(Check::Policies.fail(
                    object,
                    "it is not what this version ships",
                    INSTALL,
                ));
            }
            Some(_) => {}
        }
    }
    if fine {
        let (policies, bindings) = (installation.policies.len(), installation.bindings.len());
        report.add(Check::Policies.pass(format!("{policies} policies, {bindings} bindings")));
    }
}
