//! `smoke`: manifests that the API server takes.

use freehold_e2e::cluster::TestCluster;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::resource::v1::ResourceClaimTemplate;
use kube::Api;

use crate::plugin::Plugin;
use crate::preflight::sample;
pub(super) async fn smoke_prints_what_the_api_server_takes(cluster: &TestCluster, plugin: &Plugin) {
    let image = "registry.example.com/check@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
    let manifest = plugin.expect(&["smoke", "marsh-dra", "--image", image, "-n", "ml"], 0);
    assert!(manifest.err.is_empty(), "{}", manifest.err);
    cluster.apply_yaml(&manifest.out).await.unwrap();
    let job: Job = Api::namespaced(cluster.admin(), "ml")
        .get("marsh-dra-smoke")
        .await
        .unwrap();
    assert_eq!(job.spec.unwrap().suspend, Some(true));
    let template: ResourceClaimTemplate = Api::namespaced(cluster.admin(), "ml")
        .get("marsh-dra-smoke")
        .await
        .unwrap();
    assert_eq!(
        template.spec.spec.devices.unwrap().requests.unwrap().len(),
        1
    );

    let tagged = plugin.expect(
        &[
            "smoke",
            "marsh-plugin",
            "--image",
            "registry.example.com/check:v1",
        ],
        0,
    );
    assert!(
        tagged.err.contains("digest") && tagged.out.contains("nvidia.com/gpu: 1"),
        "{}{}",
        tagged.err,
        tagged.out
    );
    plugin.expect(&["smoke", "marsh-plugin"], 2);
    let unknown = plugin.expect(&["smoke", "fen", "--image", image], 2);
    assert!(unknown.err.contains("marsh-plugin"), "{}", unknown.err);
    for cohort in [
        "gpu-plugin",
        "gpu-dra",
        "a100-mig",
        "gpu-shared",
        "trn2-dra",
        "neuron-plugin",
    ] {
        let manifest = plugin.expect(
            &[
                "smoke",
                cohort,
                "--image",
                image,
                "-f",
                &sample(),
                "-n",
                "ml",
            ],
            0,
        );
        cluster.apply_yaml(&manifest.out).await.unwrap();
    }
}
