//! The proxy itself, in front of a real API server.

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{Api, PostParams, WatchEvent, WatchParams};
use serde_json::json;

use super::*;
use crate::cluster::Options;

fn named<K: serde::de::DeserializeOwned>(name: &str) -> K {
    serde_json::from_value(json!({"metadata": {"name": name}})).unwrap()
}

/// Somebody who may do everything and logs in with a token: a certificate does not get through a proxy.
const SOMEBODY: &str = "
apiVersion: v1
kind: ServiceAccount
metadata: {name: somebody, namespace: default}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: somebody}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: ServiceAccount, name: somebody, namespace: default}]
";

async fn start(name: &str) -> (TestCluster, Faultline, kube::Client) {
    let options = Options::named(name).unwrap().api_server_only();
    let cluster = TestCluster::start(options).await.unwrap();
    cluster.apply_yaml(SOMEBODY).await.unwrap();
    let token = cluster
        .service_account_token("default", "somebody", None)
        .await
        .unwrap();
    let faultline = Faultline::start(&cluster).await.unwrap();
    let through = cluster
        .client_for_token_at(&faultline.url(), &token)
        .unwrap();
    (cluster, faultline, through)
}

#[tokio::test(flavor = "multi_thread")]
async fn every_fault_does_to_the_chosen_write_what_it_says_and_to_no_other() {
    let (cluster, faultline, through) = start("faultline").await;
    let through = Api::<Namespace>::all(through);
    let behind = Api::<Namespace>::all(cluster.admin());
    let create = async |name: &str| through.create(&PostParams::default(), &named(name)).await;
    let exists = async |name: &str| behind.get_opt(name).await.unwrap().is_some();

    create("untouched").await.unwrap();
    faultline.strike(Strike::At(2), Fault::NeverArrives);
    create("first").await.unwrap();
    create("second").await.unwrap_err();
    create("third").await.unwrap();
    assert!(!exists("second").await && exists("third").await);
    let (ordinal, write) = faultline.struck().await.unwrap();
    assert_eq!(
        (ordinal, write.to_string().as_str()),
        (2, "POST namespaces")
    );

    faultline.strike(Strike::OfEach(2), Fault::LostReply);
    create("kept").await.unwrap();
    create("lost").await.unwrap_err();
    create("kept-too").await.unwrap();
    assert!(exists("lost").await && exists("kept-too").await);
    let patch = json!({"metadata": {"labels": {"a": "b"}}});
    let patch = kube::api::Patch::Merge(&patch);
    let label = async || through.patch("lost", &Default::default(), &patch).await;
    label().await.unwrap();
    label().await.unwrap_err();
    label().await.unwrap();
    let struck: Vec<String> = faultline
        .all_struck()
        .iter()
        .map(|(at, write)| format!("{at}: {write}"))
        .collect();
    assert_eq!(struck, ["2: POST namespaces", "5: PATCH namespaces/lost"]);

    faultline.strike(
        Strike::Of("PATCH namespaces/lost".into(), 1),
        Fault::NeverArrives,
    );
    create("another").await.unwrap();
    label().await.unwrap_err();

    faultline.strike(Strike::At(1), Fault::LastOfAll);
    let (last, next) = (through.clone(), through.clone());
    last.create(&PostParams::default(), &named("last"))
        .await
        .unwrap();
    let held = tokio::spawn(async move {
        next.create(&PostParams::default(), &named::<Namespace>("held"))
            .await
            .is_err()
    });
    faultline.struck().await.unwrap();
    assert!(through.get("last").await.is_ok(), "reads pass meanwhile");
    faultline.calm();
    assert!(held.await.unwrap(), "it never arrives");
    assert!(!exists("held").await);
    create("after").await.unwrap();
    cluster.stop().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn watches_stream_through_until_the_weather_changes() {
    use futures::{StreamExt as _, TryStreamExt as _};
    let (cluster, faultline, through) = start("weather").await;
    let maps = Api::<ConfigMap>::namespaced(through, "default");
    let watch = maps.watch(&WatchParams::default(), "0").await.unwrap();
    let mut events = watch.boxed();
    Api::<ConfigMap>::namespaced(cluster.admin(), "default")
        .create(&PostParams::default(), &named("seen"))
        .await
        .unwrap();
    while let Some(event) = events.try_next().await.unwrap() {
        if matches!(&event, WatchEvent::Added(map) if map.metadata.name.as_deref() == Some("seen"))
        {
            break;
        }
    }
    faultline.forget();
    faultline.weather(Weather::Answer {
        to: vec![Kind::Write],
        status: 429,
        reason: "TooManyRequests",
    });
    assert!(
        !matches!(events.next().await, Some(Ok(_))),
        "the watch is cut"
    );
    let refused = maps
        .create(&PostParams::default(), &named("refused"))
        .await
        .unwrap_err();
    assert!(
        matches!(&refused, kube::Error::Api(status) if status.code == 429),
        "{refused:?}"
    );
    assert!(maps.get("seen").await.is_ok());
    faultline.weather(Weather::Unreachable);
    maps.get("seen").await.unwrap_err();
    faultline.weather(Weather::Clear);
    assert!(maps.get("seen").await.is_ok());
    let kinds: Vec<Kind> = faultline.requests().iter().map(|one| one.kind).collect();
    assert!(
        kinds.contains(&Kind::Write) && kinds.contains(&Kind::Read),
        "{kinds:?}"
    );
    cluster.stop().unwrap();
}

#[test]
fn requests_are_told_apart() {
    let cases = [
        ("GET", "/api/v1/nodes/a", Kind::Read),
        ("GET", "/api/v1/nodes?limit=500", Kind::List),
        ("GET", "/api/v1/namespaces/ml/pods", Kind::List),
        (
            "GET",
            "/api/v1/nodes?watch=true&sendInitialEvents=true",
            Kind::List,
        ),
        (
            "GET",
            "/api/v1/nodes?watch=true&resourceVersion=7",
            Kind::Resume,
        ),
        ("GET", "/apis", Kind::Read),
        (
            "PATCH",
            "/apis/freehold.dev/v1alpha1/acceleratornodes/a/status",
            Kind::Write,
        ),
        ("DELETE", "/api/v1/namespaces/ml/pods/p", Kind::Write),
        (
            "POST",
            "/apis/events.k8s.io/v1/namespaces/default/events",
            Kind::Minor,
        ),
        (
            "PUT",
            "/apis/coordination.k8s.io/v1/namespaces/n/leases/l",
            Kind::Minor,
        ),
        (
            "POST",
            "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
            Kind::Read,
        ),
    ];
    for (method, uri, expected) in cases {
        let method = method.parse().unwrap();
        let request = Request::new(&method, &uri.parse().unwrap());
        assert_eq!(request.kind, expected, "{method} {uri}");
    }
}
