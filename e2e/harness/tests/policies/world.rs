//! Everything in a cluster, to see what changed.

use std::collections::{BTreeMap, BTreeSet};

use freehold_e2e::cluster::TestCluster;
use kube::{
    Api,
    api::{DynamicObject, ListParams},
    discovery::{Scope, verbs},
};
use serde_json::Value;

/// What the API server writes by itself.
const ITS_OWN: [&str; 8] = [
    "Lease",
    "Event",
    "Endpoints",
    "EndpointSlice",
    "FlowSchema",
    "PriorityLevelConfiguration",
    "APIService",
    "ComponentStatus",
];

/// Every object by kind, namespace and name.
pub type World = BTreeMap<String, Value>;

/// Reads everything that can be listed.
pub async fn world(cluster: &TestCluster) -> World {
    let client = cluster.admin();
    let discovery = cluster.discovery().await.unwrap();
    let mut world = World::new();
    for group in discovery.groups() {
        for (resource, capabilities) in group.recommended_resources() {
            if !capabilities.supports_operation(verbs::LIST)
                || ITS_OWN.contains(&resource.kind.as_str())
            {
                continue;
            }
            let objects = Api::<DynamicObject>::all_with(client.clone(), &resource);
            for mut object in objects.list(&ListParams::default()).await.unwrap() {
                object.metadata.managed_fields = None;
                object.metadata.resource_version = None;
                let key = [
                    resource.kind.as_str(),
                    object.metadata.namespace.as_deref().unwrap_or_default(),
                    object.metadata.name.as_deref().unwrap_or_default(),
                ]
                .join("/");
                world.insert(key, serde_json::to_value(&object).unwrap());
            }
        }
    }
    assert!(
        world.len() > 100,
        "only {} objects: discovery is incomplete",
        world.len()
    );
    world
}

/// Keys of what is new, gone or different.
pub fn changed(before: &World, after: &World) -> BTreeSet<String> {
    before
        .keys()
        .chain(after.keys())
        .filter(|key| before.get(*key) != after.get(*key))
        .cloned()
        .collect()
}

/// A resource that can be written, and how.
pub struct Writable {
    /// Group and plural, with the subresource if it is one.
    pub name: String,
    /// Collection, in the operand namespace where there are namespaces.
    pub collection: String,
    /// Path part after the object's name.
    pub subresource: String,
    /// `create`, `update`, `patch`, `delete`, `deletecollection`, as far as served.
    pub verbs: Vec<String>,
}

/// Every resource and subresource that the API server lets anybody write.
pub async fn writables(cluster: &TestCluster, namespace: &str) -> Vec<Writable> {
    let discovery = cluster.discovery().await.unwrap();
    let mut found = Vec::new();
    for group in discovery.groups() {
        for (resource, capabilities) in group.recommended_resources() {
            let base = if resource.group.is_empty() {
                format!("/api/{}", resource.version)
            } else {
                format!("/apis/{}/{}", resource.group, resource.version)
            };
            let collection = match capabilities.scope {
                Scope::Namespaced => format!("{base}/namespaces/{namespace}/{}", resource.plural),
                Scope::Cluster => format!("{base}/{}", resource.plural),
            };
            let all = std::iter::once((String::new(), capabilities.operations.clone())).chain(
                capabilities.subresources.iter().map(|(sub, caps)| {
                    let name = sub.plural.rsplit('/').next().unwrap_or_default();
                    (format!("/{name}"), caps.operations.clone())
                }),
            );
            for (subresource, operations) in all {
                let verbs: Vec<_> = operations
                    .into_iter()
                    .filter(|verb| {
                        ["create", "update", "patch", "delete", "deletecollection"]
                            .contains(&verb.as_str())
                    })
                    .collect();
                if !verbs.is_empty() {
                    let name = format!("{}/{}{subresource}", resource.group, resource.plural);
                    found.push(Writable {
                        name,
                        collection: collection.clone(),
                        subresource,
                        verbs,
                    });
                }
            }
        }
    }
    assert!(
        found.len() > 60,
        "only {} writable resources: discovery is incomplete",
        found.len()
    );
    found
}
