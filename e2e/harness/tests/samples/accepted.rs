//! The API server takes the samples, and from the controller's hands all that is rendered from them.

use std::collections::BTreeSet;

use freehold_e2e::cluster::{Options, TestCluster};
use k8s_openapi::api::{batch::v1::Job, core::v1::Pod, resource::v1::DeviceClass};
use kube::{Api, ResourceExt as _, api::PostParams};

use crate::{Installed, SAMPLES, rendered_file, text};

#[test]
fn samples_are_valid_plans_with_an_operand_for_every_cohort() {
    for sample in SAMPLES {
        let (cluster, rendered) = rendered_file(sample);
        let operands: BTreeSet<_> = rendered
            .operands
            .iter()
            .filter(|operand| operand.daemon_set.is_some())
            .map(|operand| operand.cohort.clone())
            .collect();
        let cohorts: BTreeSet<_> = cluster
            .spec
            .cohorts
            .iter()
            .map(|cohort| cohort.name.clone())
            .collect();
        assert_eq!(operands, cohorts, "{sample}");
    }
}

#[tokio::test]
async fn the_api_server_takes_each_sample_and_all_that_follows_from_it() {
    for sample in SAMPLES {
        let installed = Installed::with(Options::named(sample).unwrap().api_server_only()).await;
        let rendered = installed.sample(sample).await;
        assert!(!rendered.claim_templates.is_empty(), "{sample}");
        // What the API server stored is what was rendered, defaults aside: nothing was dropped or renamed.
        for class in &rendered.device_classes {
            let stored = Api::<DeviceClass>::all(installed.cluster.admin())
                .get(&class.name_any())
                .await
                .unwrap();
            assert_eq!(stored.spec, class.spec, "{sample}");
        }
    }
}

#[tokio::test]
async fn a_misspelt_field_is_refused_by_name() {
    let installed = Installed::with(Options::named("misspelt").unwrap().api_server_only()).await;
    let misspelt = text("gpu-server-integration").replace("failOnInitError", "failOnInitErr");
    let error = format!(
        "{:#}",
        installed.cluster.apply_yaml(&misspelt).await.unwrap_err()
    );
    assert!(error.contains("failOnInitErr"), "{error}");
}

#[tokio::test]
async fn the_smoke_jobs_are_suspended_bounded_and_fit_a_restricted_namespace() {
    let cluster = TestCluster::start(Options::named("smoke").unwrap().api_server_only())
        .await
        .unwrap();
    cluster
        .apply_yaml(
            r#"
apiVersion: v1
kind: Namespace
metadata: {name: ai-workloads, labels: {pod-security.kubernetes.io/enforce: restricted}}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: default, namespace: ai-workloads}}
---
{apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: nvidia}, handler: nvidia}
"#,
        )
        .await
        .unwrap();
    let applied = cluster.apply_yaml(&text("smoke-jobs")).await.unwrap();
    assert_eq!(applied.len(), 4);
    let pods = Api::<Pod>::namespaced(cluster.admin(), "ai-workloads");
    for object in applied {
        let job: Job = object.try_parse().unwrap();
        let spec = job.spec.unwrap();
        assert_eq!(spec.suspend, Some(true));
        assert_eq!(
            (spec.backoff_limit, spec.completions, spec.parallelism),
            (Some(0), Some(1), Some(1))
        );
        assert_eq!(
            (
                spec.active_deadline_seconds,
                spec.ttl_seconds_after_finished
            ),
            (Some(120), Some(600))
        );
        let mut pod = spec.template.spec.unwrap();
        let image = pod.containers[0].image.clone().unwrap();
        assert!(
            image.starts_with("registry.example.invalid/"),
            "{image} could be pulled"
        );
        // A Job's pods, not the Job, meet pod security.
        pod.service_account_name = Some("default".into());
        let pod = Pod {
            metadata: kube::api::ObjectMeta {
                name: job.metadata.name,
                ..Default::default()
            },
            spec: Some(pod),
            status: None,
        };
        pods.create(
            &PostParams {
                dry_run: true,
                ..PostParams::default()
            },
            &pod,
        )
        .await
        .unwrap();
    }
}
