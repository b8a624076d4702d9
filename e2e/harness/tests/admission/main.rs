//! What the real API server accepts and refuses, and in which words.
//!
//! [`rules`] holds one row per CEL rule; [`bounds`] derives a violation of every length, range, enum and uniqueness from the
//! schema itself. Everything is asked as a dry run, so the tests share one API server and leave nothing behind.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "clippy.toml frees only functions marked as tests"
)]

mod bounds;
mod document;
mod rules;
mod schema;

use std::path::Path;

use freehold_api::{AcceleratorCluster, AcceleratorNode};
use freehold_e2e::cluster::{Options, Release, TestCluster};
use kube::{
    Api, Client, CustomResourceExt as _, ResourceExt as _,
    api::{DynamicObject, Patch, PatchParams, PostParams},
    core::Status,
};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

/// One API server for the whole file. It ends with the process.
async fn server() -> &'static TestCluster {
    static SERVER: OnceCell<TestCluster> = OnceCell::const_new();
    SERVER
        .get_or_init(async || {
            let cluster =
                TestCluster::start(Options::named("admission").unwrap().api_server_only())
                    .await
                    .unwrap();
            cluster.apply_dir(root().join("crds")).await.unwrap();
            cluster
        })
        .await
}

fn root() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A kind of ours, without our Rust types between the test and the API server.
fn api(client: Client, kind: &str) -> Api<DynamicObject> {
    let resource = match kind {
        "AcceleratorCluster" => AcceleratorCluster::api_resource(),
        "AcceleratorNode" => AcceleratorNode::api_resource(),
        other => panic!("no such kind: {other}"),
    };
    Api::all_with(client, &resource)
}

/// One connection for the questions of one test.
struct Desk(Client);

impl Desk {
    async fn open() -> Self {
        Self(server().await.admin())
    }

    /// Creates as kubectl does, strictly validated, but keeps nothing. (kube's own create cannot ask for strictness.)
    async fn try_create(&self, document: &Value) -> Result<DynamicObject, Box<Status>> {
        let kind = document["kind"].as_str().unwrap();
        let url = format!(
            "{}?dryRun=All&fieldValidation=Strict",
            api(self.0.clone(), kind).resource_url()
        );
        let request = http::Request::post(url).header("Content-Type", "application/json");
        match self
            .0
            .request(request.body(serde_json::to_vec(document).unwrap()).unwrap())
            .await
        {
            Ok(object) => Ok(object),
            Err(kube::Error::Api(status)) => Err(status),
            Err(other) => panic!("{other}"),
        }
    }
}

/// Field and sentence of each complaint.
fn complaints(status: &Status) -> Vec<(String, String)> {
    let causes = status
        .details
        .as_ref()
        .map(|details| details.causes.clone())
        .unwrap_or_default();
    causes
        .into_iter()
        .map(|cause| (cause.field, cause.message))
        .collect()
}

/// A rule's sentence as the API server wraps it: 1.36 repeats what is wrong when it is a single value, 1.34 says of which type
/// the schema makes the place.
fn refusal(schema: &[schema::Place], document: &Value, field: &str, message: &str) -> String {
    match Release::from_env().unwrap() {
        Release::V1_34 => {
            let place = schema::place_of(field);
            let place = schema.iter().find(|known| known.path == place).unwrap();
            let kind = place
                .schema
                .get("type")
                .and_then(Value::as_str)
                .unwrap_or_default();
            format!("Invalid value: {kind:?}: {message}")
        }
        Release::V1_36 => {
            let pointer = format!(
                "/{}",
                field.replace('[', ".").replace(']', "").replace('.', "/")
            );
            match document.pointer(&pointer) {
                Some(value) if !value.is_object() && !value.is_array() => {
                    format!("Invalid value: {value}: {message}")
                }
                _ => format!("Invalid value: {message}"),
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_fullest_document_and_the_smallest_are_accepted() {
    let desk = Desk::open().await;
    for document in [document::full(), document::node(), document::smallest()] {
        if let Err(status) = desk.try_create(&document).await {
            panic!("{}", status.message);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_sample_is_accepted() {
    let desk = Desk::open().await;
    let folder = root().join("config/samples");
    let mut seen = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        for document in serde_saphyr::from_multiple::<Value>(&text).unwrap() {
            if document["kind"] == "AcceleratorCluster" {
                seen += 1;
                if let Err(status) = desk.try_create(&document).await {
                    panic!("{}: {}", path.display(), status.message);
                }
            }
        }
    }
    assert!(seen > 0, "config/samples holds no AcceleratorCluster");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_example_of_the_manual_is_accepted_and_what_it_leaves_out_gets_a_default() {
    let desk = Desk::open().await;
    let created = desk
        .try_create(&document::manual())
        .await
        .unwrap_or_else(|status| panic!("{}", status.message));
    let spec = &created.data["spec"];
    assert_eq!(spec["cohorts"][1]["kubeletRootDir"], "/var/lib/kubelet");
    assert_eq!(
        spec["cohorts"][0]["nvidia"]["devicePlugin"]["deviceIDStrategy"],
        "Uuid"
    );
    let smallest = desk.try_create(&document::smallest()).await.unwrap();
    assert_eq!(
        smallest.data["spec"]["rollout"],
        json!({"maxUnavailable": 1, "canary": {"nodes": 1, "soak": "600s"}, "drain": {"policy": "Wait", "timeout": "3600s"}, "paused": false}),
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_field_is_refused_wherever_it_stands() {
    let desk = Desk::open().await;
    for place in [
        "/spec",
        "/spec/cohorts/0",
        "/spec/cohorts/0/nodeSelector",
        "/spec/cohorts/0/nvidia",
        "/spec/cohorts/0/nvidia/devicePlugin",
        "/spec/cohorts/0/nvidia/devicePlugin/timeSlicing/resources/0",
        "/spec/cohorts/1/nvidia/dra",
        "/spec/cohorts/1/nvidia/mig/layouts/0",
        "/spec/cohorts/2/neuron",
        "/spec/rollout",
        "/spec/rollout/canary",
        "/spec/rollout/drain",
        "/spec/sizes/0",
        "/spec/sizes/0/devices",
    ] {
        let mut document = document::full();
        document.pointer_mut(place).unwrap()["replicaz"] = json!(4);
        let status = desk.try_create(&document).await.expect_err(place);
        let dotted = place.trim_start_matches('/').replace('/', ".");
        // Kubernetes writes list positions in brackets.
        let field =
            dotted
                .split('.')
                .fold(String::new(), |path, part| match part.parse::<usize>() {
                    Ok(index) => format!("{path}[{index}]"),
                    Err(_) if path.is_empty() => part.into(),
                    Err(_) => format!("{path}.{part}"),
                });
        assert!(
            status.message.contains(&format!(
                "strict decoding error: unknown field \"{field}.replicaz\""
            )),
            "{place}: {}",
            status.message
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn there_is_one_accelerator_cluster_and_the_refusal_says_what_to_do() {
    let desk = Desk::open().await;
    let mut document = document::smallest();
    document["metadata"]["name"] = json!("second");
    let status = desk.try_create(&document).await.unwrap_err();
    let sentence = "metadata.name must be 'cluster': one AcceleratorCluster holds the intent of the whole cluster; rename \
                    this one, or add its cohorts to the existing one";
    let schema = schema::places("freehold.dev_acceleratorclusters.yaml");
    assert_eq!(
        complaints(&status),
        [("<nil>".into(), refusal(&schema, &document, "", sentence))]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn names_of_cohorts_sizes_and_shared_resources_are_unique() {
    let desk = Desk::open().await;
    for (list, name, field) in [
        ("/spec/cohorts", "press", "spec.cohorts[5]"),
        ("/spec/sizes", "anvil", "spec.sizes[2]"),
        (
            "/spec/cohorts/0/nvidia/devicePlugin/timeSlicing/resources",
            "nvidia.com/gpu",
            "spec.cohorts[0].nvidia.devicePlugin.timeSlicing.resources[1]",
        ),
    ] {
        let mut document = document::full();
        let list = document.pointer_mut(list).unwrap().as_array_mut().unwrap();
        list.push(list.last().unwrap().clone());
        let status = desk.try_create(&document).await.expect_err(field);
        let sentence = format!("Duplicate value: {{\"name\":\"{name}\"}}");
        assert_eq!(complaints(&status), [(field.into(), sentence)]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_term_only_grows() {
    let nodes = api(server().await.admin(), "AcceleratorNode");
    let mut document = document::node();
    document["metadata"]["name"] = json!("sim-term");
    document["spec"]["nvidia"]["term"] = json!(7);
    let object = serde_json::from_value(document).unwrap();
    nodes.create(&PostParams::default(), &object).await.unwrap();

    let set = async |term: i64| {
        let patch = json!({"spec": {"nvidia": {"term": term}}});
        nodes
            .patch("sim-term", &PatchParams::default(), &Patch::Merge(&patch))
            .await
    };
    let Err(kube::Error::Api(status)) = set(6).await else {
        panic!("the term went back")
    };
    let schema = schema::places("freehold.dev_acceleratornodes.yaml");
    let sentence = refusal(&schema, &document::node(), "spec.nvidia", "term only grows");
    assert_eq!(complaints(&status), [("spec.nvidia".into(), sentence)]);
    set(7).await.unwrap();
    let raised = set(8).await.unwrap();
    assert_eq!(
        raised.data["spec"]["nvidia"]["term"],
        8,
        "{}",
        raised.name_any()
    );
}

#[test]
fn the_schemas_stay_small() {
    const LIMIT: usize = 100 * 1024;
    for crd in [AcceleratorCluster::crd(), AcceleratorNode::crd()] {
        let json = serde_json::to_vec(&crd).unwrap().len();
        println!(
            "{}: {:.1} KiB of JSON, limit {} KiB",
            crd.name_any(),
            json as f64 / 1024.0,
            LIMIT / 1024
        );
        assert!(json < LIMIT);
    }
}
