//! A cluster with Freehold installed, two nodes, and tokens to steal.

use std::{path::PathBuf, time::Duration};

use freehold_core::names::{
    AGENT_SERVICE_ACCOUNT, CONTROLLER_SERVICE_ACCOUNT, OPERAND_NAMESPACE, SYSTEM_NAMESPACE,
};
use freehold_e2e::cluster::{Options, TestCluster, eventually};
use kube::Client;
use serde_json::{Value, json};

use crate::attempt::{Answer, NODES, ask, create, get, merge};

/// The node whose tokens are stolen.
pub const OWN: &str = "alder";
/// Somebody else's node.
pub const OTHER: &str = "birch";

/// `AcceleratorNode`s.
pub const REPORTS: &str = "/apis/freehold.dev/v1alpha1/acceleratornodes";
/// The intent.
pub const INTENT: &str = "/apis/freehold.dev/v1alpha1/acceleratorclusters/cluster";

/// The API server needs a moment to compile policies.
const POLICIES: Duration = Duration::from_secs(60);

/// A cluster with Freehold installed.
pub struct Stage {
    pub cluster: TestCluster,
}

/// A path in the repository.
pub fn repository(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(path)
}

impl Stage {
    /// An API server without controllers, so that whatever changes was changed by the test.
    pub async fn set(name: &str) -> Self {
        let cluster = TestCluster::start(Options::named(name).unwrap().api_server_only())
            .await
            .unwrap();
        cluster.apply_dir(repository("crds")).await.unwrap();
        cluster
            .apply_dir(repository("config/install"))
            .await
            .unwrap();
        let stage = Self { cluster };
        let admin = stage.cluster.admin();
        for node in [OWN, OTHER] {
            let body = json!({"metadata": {"name": node, "labels": {"pool": "x", "other.example/owner": "team-z"}}});
            ask(&admin, create(NODES, &body)).await.unwrap();
        }
        let intent =
            std::fs::read_to_string(repository("config/samples/acceleratorcluster.yaml")).unwrap();
        stage.cluster.apply_yaml(&intent).await.unwrap();
        stage.await_policies().await;
        let controller = stage.controller().await;
        for node in [OWN, OTHER] {
            let spec = json!({"nodeUID": stage.node_uid(node).await, "nvidia": {"term": 4}});
            ask(&controller, create(REPORTS, &json!({
                "apiVersion": "freehold.dev/v1alpha1", "kind": "AcceleratorNode", "metadata": {"name": node}, "spec": spec,
            }))).await.unwrap();
        }
        stage
    }

    /// The UID of a node.
    pub async fn node_uid(&self, node: &str) -> String {
        let node: Value = ask(&self.cluster.admin(), get(&format!("{NODES}/{node}")))
            .await
            .unwrap();
        node["metadata"]["uid"].as_str().unwrap().to_owned()
    }

    /// The controller's token.
    pub async fn controller(&self) -> Client {
        let token = self
            .cluster
            .service_account_token(SYSTEM_NAMESPACE, CONTROLLER_SERVICE_ACCOUNT, None)
            .await;
        self.cluster.client_for_token(&token.unwrap()).unwrap()
    }

    /// The token that the kubelet would mount into a pod of this account on this node.
    pub async fn token_on(&self, account: &str, node: &str) -> Client {
        let pod = format!("{account}-{node}");
        let body = json!({
            "metadata": {"name": pod, "labels": {"freehold.dev/component": "operand"}},
            "spec": {
                "nodeName": node,
                "serviceAccountName": account,
                "containers": [{"name": "main", "image": "registry.example.invalid/none:1"}],
            },
        });
        let pods = format!("/api/v1/namespaces/{OPERAND_NAMESPACE}/pods");
        match ask(&self.cluster.admin(), create(&pods, &body)).await {
            Ok(_) => {}
            Err(Answer::Refused(409, _)) => {}
            Err(other) => panic!("a pod for {account} on {node}: {other:?}"),
        }
        let token = self
            .cluster
            .service_account_token(OPERAND_NAMESPACE, account, Some(&pod))
            .await
            .unwrap();
        self.cluster.client_for_token(&token).unwrap()
    }

    /// A token of an account in the operand namespace that is bound to no pod and hence to no node.
    pub async fn unbound_token(&self, account: &str) -> Client {
        let token = self
            .cluster
            .service_account_token(OPERAND_NAMESPACE, account, None)
            .await
            .unwrap();
        self.cluster.client_for_token(&token).unwrap()
    }

    /// The agent's token on a node.
    pub async fn agent(&self, node: &str) -> Client {
        self.token_on(AGENT_SERVICE_ACCOUNT, node).await
    }

    /// Waits until the first and the last applied policy refuse what they are there to refuse.
    async fn await_policies(&self) {
        let admin = self.cluster.admin();
        let plugin = self.token_on("neuron-device-plugin", OWN).await;
        let marks =
            json!({"metadata": {"labels": {"freehold.node-restriction.kubernetes.io/probe": "x"}}});
        let labels = json!({"metadata": {"labels": {"probe": "x"}}});
        let pod = format!(
            "/api/v1/namespaces/{OPERAND_NAMESPACE}/pods/neuron-device-plugin-{OWN}?dryRun=All"
        );
        eventually(
            "the admission policies to be in force",
            POLICIES,
            async || {
                let first = ask(&admin, merge(&format!("{NODES}/{OWN}?dryRun=All"), &marks)).await;
                let last = ask(&plugin, merge(&pod, &labels)).await;
                Ok((first.is_err() && last.is_err()).then_some(()))
            },
        )
        .await
        .unwrap();
    }
}
