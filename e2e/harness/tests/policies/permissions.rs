//! What RBAC gives each service account, as the API server itself lists it, against files that are read in review.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::PathBuf,
};

use freehold_core::names::{OPERAND_NAMESPACE, SYSTEM_NAMESPACE};
use freehold_e2e::cluster::{Options, TestCluster};
use serde_json::{Value, json};

use crate::{
    attempt::{ask, create},
    stage::repository,
};

const ACCOUNTS: [(&str, &str); 6] = [
    (SYSTEM_NAMESPACE, "freehold-controller"),
    (OPERAND_NAMESPACE, "freehold-agent"),
    (OPERAND_NAMESPACE, "nvidia-device-plugin"),
    (OPERAND_NAMESPACE, "nvidia-dra-driver"),
    (OPERAND_NAMESPACE, "neuron-device-plugin"),
    (OPERAND_NAMESPACE, "neuron-dra-driver"),
];

/// Set to write the files anew.
const UPDATE: &str = "UPDATE_GOLDEN";

#[tokio::test]
async fn permissions_are_those_that_were_reviewed() {
    let cluster = TestCluster::start(Options::named("permissions").unwrap().api_server_only())
        .await
        .unwrap();
    cluster.apply_dir(repository("crds")).await.unwrap();
    cluster
        .apply_dir(repository("config/install"))
        .await
        .unwrap();
    cluster.apply_yaml("{apiVersion: v1, kind: ServiceAccount, metadata: {name: nobody, namespace: freehold-operands}}").await.unwrap();
    let everybody = rules(&cluster, OPERAND_NAMESPACE, "nobody", "default").await;
    let mut differences = Vec::new();
    for (namespace, account) in ACCOUNTS {
        let mut text =
            format!("# What {namespace}/{account} may do beyond what every service account may.\n");
        let common = &rules(&cluster, namespace, account, "kube-system").await - &everybody;
        text += &section("everywhere", &common);
        for place in ["default", SYSTEM_NAMESPACE, OPERAND_NAMESPACE] {
            let here = &(&rules(&cluster, namespace, account, place).await - &everybody) - &common;
            text += &section(&format!("in {place}"), &here);
        }
        assert!(
            !text.contains('*'),
            "a wildcard in what {account} may do:\n{text}"
        );
        let file = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
            .join("tests/policies/permissions")
            .join(format!("{account}.txt"));
        if std::env::var_os(UPDATE).is_some() {
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(&file, &text).unwrap();
        }
        let reviewed = fs::read_to_string(&file).unwrap_or_default();
        if reviewed != text {
            differences.push(format!(
                "--- {}\n{reviewed}\n+++ now\n{text}",
                file.display()
            ));
        }
    }
    assert!(
        differences.is_empty(),
        "{}\nrun with {UPDATE}=1 and review the change",
        differences.join("\n")
    );
}

/// A resource, or some objects of it by name, and a verb.
type Rule = (String, String);

fn section(title: &str, rules: &BTreeSet<Rule>) -> String {
    let mut verbs: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (resource, verb) in rules {
        verbs.entry(resource).or_default().push(verb);
    }
    let lines: Vec<_> = verbs
        .iter()
        .map(|(resource, verbs)| format!("  {resource}: {}\n", verbs.join(" ")))
        .collect();
    if lines.is_empty() {
        String::new()
    } else {
        format!("{title}:\n{}", lines.concat())
    }
}

/// What an account may do in a namespace, cluster-wide grants included.
async fn rules(
    cluster: &TestCluster,
    namespace: &str,
    account: &str,
    place: &str,
) -> BTreeSet<Rule> {
    let token = cluster
        .service_account_token(namespace, account, None)
        .await
        .unwrap();
    let client = cluster.client_for_token(&token).unwrap();
    let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview", "spec": {"namespace": place}});
    let answer = ask(
        &client,
        create(
            "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews",
            &review,
        ),
    )
    .await
    .unwrap();
    assert_eq!(answer["status"]["incomplete"], false, "{answer}");
    let strings = |value: &Value| -> Vec<String> {
        value
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect()
    };
    let mut lines = BTreeSet::new();
    for rule in answer["status"]["resourceRules"].as_array().unwrap() {
        for group in strings(&rule["apiGroups"]) {
            for resource in strings(&rule["resources"]) {
                let names = strings(&rule["resourceNames"]);
                let only = if names.is_empty() {
                    String::new()
                } else {
                    format!(" [{}]", names.join(" "))
                };
                let dot = if group.is_empty() { "" } else { "." };
                for verb in strings(&rule["verbs"]) {
                    lines.insert((format!("{resource}{dot}{group}{only}"), verb));
                }
            }
        }
    }
    lines
}
