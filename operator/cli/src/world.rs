//! The cluster as decisions see it: nodes and what cohorts may refer to, read once for `plan` and `preflight`.

use std::collections::{BTreeMap, BTreeSet};

use freehold_core::assign::{ClusterView, NodeView};
use freehold_core::intent::Taint;
use freehold_core::names;
use freehold_core::vendor::Vendor;
use k8s_openapi::api::core::v1::{ConfigMap, Node};
use k8s_openapi::api::node::v1::RuntimeClass;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt as _};

use crate::session::words;

/// Nodes asked for at once: a Node has some 15 to 40 KiB.
const PAGE: u32 = 250;

/// Every node, boiled down page by page.
pub(crate) async fn nodes(client: Client) -> Result<Vec<NodeView>, String> {
    let api = Api::<Node>::all(client);
    let mut nodes = Vec::new();
    let mut page = ListParams::default().limit(PAGE);
    loop {
        let list = api.list(&page).await.map_err(|error| words(&error))?;
        nodes.extend(list.items.iter().map(view));
        match list.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => page = page.continue_token(&token),
            None => return Ok(nodes),
        }
    }
}

fn view(node: &Node) -> NodeView {
    let status = node.status.as_ref();
    let info = status.and_then(|status| status.node_info.as_ref());
    let conditions = status.and_then(|status| status.conditions.as_ref());
    let allocatable = status.and_then(|status| status.allocatable.as_ref());
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_ref());
    NodeView {
        name: node.name_any(),
        uid: node.uid().unwrap_or_default(),
        labels: node.labels().clone(),
        taints: taints
            .into_iter()
            .flatten()
            .map(|taint| Taint {
                key: taint.key.clone(),
                value: taint.value.clone().unwrap_or_default(),
                effect: taint.effect.clone(),
            })
            .collect(),
        kubelet_version: info
            .map(|info| info.kubelet_version.clone())
            .unwrap_or_default(),
        boot_id: info.map(|info| info.boot_id.clone()).unwrap_or_default(),
        ready: conditions
            .into_iter()
            .flatten()
            .any(|condition| condition.type_ == "Ready" && condition.status == "True"),
        allocatable: allocatable
            .into_iter()
            .flatten()
            .filter(|(resource, _)| {
                Vendor::ALL
                    .into_iter()
                    .any(|vendor| vendor.owns_resource(resource))
            })
            // Extended resources are whole numbers; any other text is no count of devices.
            .filter_map(|(resource, count)| Some((resource.clone(), count.0.parse().ok()?)))
            .collect(),
    }
}

/// What cohorts may refer to.
pub(crate) struct References {
    pub(crate) runtime_classes: BTreeSet<String>,
    /// ConfigMaps of the operand namespace with their files.
    pub(crate) config_maps: BTreeMap<String, BTreeMap<String, String>>,
}

impl References {
    /// Reads them.
    pub(crate) async fn read(client: &Client) -> Result<Self, String> {
        let classes = Api::<RuntimeClass>::all(client.clone())
            .list_metadata(&ListParams::default())
            .await;
        let classes = classes.map_err(|error| format!("RuntimeClasses: {}", words(&error)))?;
        let maps = Api::<ConfigMap>::namespaced(client.clone(), names::OPERAND_NAMESPACE)
            .list(&ListParams::default())
            .await;
        let maps = maps.map_err(|error| {
            format!(
                "ConfigMaps of {}: {}",
                names::OPERAND_NAMESPACE,
                words(&error)
            )
        })?;
        Ok(Self {
            runtime_classes: classes
                .items
                .iter()
                .map(kube::ResourceExt::name_any)
                .collect(),
            config_maps: maps
                .items
                .into_iter()
                .map(|map| (map.name_any(), map.data.unwrap_or_default()))
                .collect(),
        })
    }

    /// Together with what is known of the API server.
    pub(crate) fn view(&self, server_version: &str, dra_api: bool) -> ClusterView {
        ClusterView {
            server_version: server_version.to_owned(),
            dra_api,
            runtime_classes: self.runtime_classes.clone(),
            config_maps: self
                .config_maps
                .iter()
                .map(|(name, files)| (name.clone(), files.keys().cloned().collect()))
                .collect(),
        }
    }
}
