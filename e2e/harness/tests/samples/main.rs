//! The samples are what people copy: a real API server takes them as they are, takes everything that is rendered from them from
//! the controller's own hands, and the real scheduler allocates every size.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests"
)]

mod accepted;
mod allocated;
mod guides;
mod slices;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::PathBuf,
};

use freehold_api::{AcceleratorCluster, plan::Plan};
use freehold_core::names::{CONTROLLER_SERVICE_ACCOUNT, SINGLETON, SYSTEM_NAMESPACE};
use freehold_e2e::cluster::{Options, TestCluster};
use freehold_render::{Rendered, Settings, render};
use k8s_openapi::{api::core::v1::Namespace, apimachinery::pkg::apis::meta::v1::OwnerReference};
use kube::{
    Api, Client, Resource, ResourceExt as _,
    api::{Patch, PatchParams, PostParams},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::json;

const SAMPLES: [&str; 3] = [
    "acceleratorcluster",
    "gpu-server-integration",
    "neuron-dra-on-eks",
];

fn repository(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(path)
}

fn text(sample: &str) -> String {
    fs::read_to_string(repository("config/samples").join(format!("{sample}.yaml"))).unwrap()
}

fn plan(cluster: &AcceleratorCluster) -> Plan {
    Plan::parse(&cluster.spec).unwrap_or_else(|problems| panic!("{problems}"))
}

/// What the controller would write for a cluster as the API server holds it.
fn rendered(cluster: &AcceleratorCluster) -> Rendered {
    let settings = Settings {
        owner: OwnerReference {
            block_owner_deletion: Some(true),
            controller: Some(true),
            ..cluster.owner_ref(&()).expect("a stored object has a UID")
        },
        agent_image: "registry.example.invalid/agent:v7".into(),
        agent_image_pull_secrets: Vec::new(),
        plugin_configs: BTreeMap::new(),
        kubelet_roots: BTreeSet::new(),
    };
    render(&plan(cluster), &settings)
}

struct Installed {
    cluster: TestCluster,
    controller: Client,
}

impl Installed {
    async fn with(options: Options) -> Self {
        let cluster = TestCluster::start(options).await.unwrap();
        cluster.apply_dir(repository("crds")).await.unwrap();
        cluster
            .apply_dir(repository("config/install"))
            .await
            .unwrap();
        let token = cluster
            .service_account_token(SYSTEM_NAMESPACE, CONTROLLER_SERVICE_ACCOUNT, None)
            .await
            .unwrap();
        let controller = cluster.client_for_token(&token).unwrap();
        Self {
            cluster,
            controller,
        }
    }

    /// Applies a sample, and everything that is rendered from it with the controller's token. Returns what was rendered.
    async fn sample(&self, name: &str) -> Rendered {
        self.cluster.apply_yaml(&text(name)).await.unwrap();
        let cluster = Api::<AcceleratorCluster>::all(self.cluster.admin())
            .get(SINGLETON)
            .await
            .unwrap();
        let rendered = rendered(&cluster);
        for namespace in rendered
            .claim_templates
            .iter()
            .filter_map(|template| template.metadata.namespace.clone())
        {
            let body: Namespace =
                serde_json::from_value(json!({"metadata": {"name": namespace}})).unwrap();
            let params = PatchParams::apply("test").force();
            Api::<Namespace>::all(self.cluster.admin())
                .patch(&namespace, &params, &Patch::Apply(body))
                .await
                .unwrap();
        }
        for class in &rendered.device_classes {
            self.create(&Api::all(self.controller.clone()), class).await;
        }
        for template in &rendered.claim_templates {
            self.create(
                &Api::namespaced(self.controller.clone(), &template.namespace().unwrap()),
                template,
            )
            .await;
        }
        for set in rendered
            .operands
            .iter()
            .filter_map(|operand| operand.daemon_set.as_ref())
            .chain([&rendered.agent])
        {
            self.create(
                &Api::namespaced(self.controller.clone(), &set.namespace().unwrap()),
                set,
            )
            .await;
        }
        rendered
    }

    async fn create<K>(&self, api: &Api<K>, object: &K)
    where
        K: Resource + Clone + Serialize + DeserializeOwned + std::fmt::Debug,
    {
        let params = PostParams {
            field_manager: Some("freehold-controller".into()),
            ..PostParams::default()
        };
        api.create(&params, object)
            .await
            .unwrap_or_else(|error| panic!("{}: {error}", object.name_any()));
    }
}

/// A sample as it is in the file, rendered without a cluster.
fn rendered_file(sample: &str) -> (AcceleratorCluster, Rendered) {
    let mut cluster: AcceleratorCluster = serde_saphyr::from_str(&text(sample)).unwrap();
    cluster.metadata.uid = Some("u-3".into());
    let rendered = rendered(&cluster);
    (cluster, rendered)
}
