//! Objects that would come and go: DaemonSets, DeviceClasses and ResourceClaimTemplates.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

use freehold_api::AcceleratorCluster;
use freehold_core::names;
use freehold_render::Rendered;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaimTemplate};
use kube::api::ListParams;
use kube::core::PartialObjectMeta;
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::session::{is_not_found, words};

/// The difference.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Objects {
    /// Would be made.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) made: Vec<String>,
    /// Would be deleted, once no node needs them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) deleted: Vec<String>,
    /// Exist, carry a name that is needed, and are not ours: nothing is done to them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) taken: Vec<String>,
    /// Could not be compared, and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) unknown: Vec<String>,
}

impl Objects {
    /// Compares what is rendered with what there is.
    pub(super) async fn compare(
        client: &Client,
        rendered: &Rendered,
        live: Option<&AcceleratorCluster>,
    ) -> Self {
        let uid = live.and_then(AcceleratorCluster::uid);
        let mut objects = Self::default();
        let sets: BTreeSet<String> = rendered
            .operands
            .iter()
            .filter_map(|operand| operand.daemon_set.as_ref())
            .chain(&rendered.shapers)
            .chain([&rendered.agent])
            .map(kube::ResourceExt::name_any)
            .collect();
        let api = Api::<DaemonSet>::namespaced(client.clone(), names::OPERAND_NAMESPACE);
        objects.kind("DaemonSet", &sets, &api, uid.as_deref()).await;
        let classes = rendered
            .device_classes
            .iter()
            .map(kube::ResourceExt::name_any)
            .collect();
        objects
            .kind(
                "DeviceClass",
                &classes,
                &Api::<DeviceClass>::all(client.clone()),
                uid.as_deref(),
            )
            .await;
        let templates = rendered.claim_templates.iter().map(key).collect();
        objects
            .kind(
                "ResourceClaimTemplate",
                &templates,
                &Api::<ResourceClaimTemplate>::all(client.clone()),
                uid.as_deref(),
            )
            .await;
        objects
    }

    async fn kind<K>(
        &mut self,
        kind: &str,
        wanted: &BTreeSet<String>,
        api: &Api<K>,
        uid: Option<&str>,
    ) where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
    {
        match api.list_metadata(&ListParams::default()).await {
            Ok(list) => {
                let live = list
                    .items
                    .iter()
                    .map(|object| (key(object), is_ours(object, uid)))
                    .collect();
                self.differ(kind, wanted, &live);
            }
            // A server without DRA has neither classes nor templates.
            Err(error) if is_not_found(&error) => self.differ(kind, wanted, &BTreeMap::new()),
            Err(error) => self.unknown.push(format!("{kind}s: {}", words(&error))),
        }
    }

    fn differ(&mut self, kind: &str, wanted: &BTreeSet<String>, live: &BTreeMap<String, bool>) {
        let named = |name: &String| {
            // The operand namespace goes without saying.
            let name = name
                .strip_prefix(names::OPERAND_NAMESPACE)
                .and_then(|rest| rest.strip_prefix('/'))
                .unwrap_or(name);
            format!("{kind} {name}")
        };
        let place = |name: &String| {
            live.get(name)
                .or_else(|| live.get(&format!("{}/{name}", names::OPERAND_NAMESPACE)))
        };
        for name in wanted {
            match place(name) {
                None => self.made.push(named(name)),
                Some(false) => self.taken.push(named(name)),
                Some(true) => {}
            }
        }
        let short = |name: &String| {
            name.strip_prefix(names::OPERAND_NAMESPACE)
                .and_then(|rest| rest.strip_prefix('/'))
                .map_or_else(|| name.clone(), str::to_owned)
        };
        let gone = live.iter().filter(|(name, ours)| {
            **ours && !wanted.contains(*name) && !wanted.contains(&short(name))
        });
        self.deleted.extend(gone.map(|(name, _)| named(name)));
    }

    /// Whether anything would come or go.
    pub(super) const fn changes(&self) -> bool {
        !self.made.is_empty() || !self.deleted.is_empty()
    }
}

fn key(object: &impl Resource) -> String {
    let name = object.meta().name.clone().unwrap_or_default();
    object
        .meta()
        .namespace
        .as_ref()
        .map_or_else(|| name.clone(), |namespace| format!("{namespace}/{name}"))
}

/// Identity is the owner's UID, never a name or a label.
fn is_ours<K: Resource<DynamicType = ()>>(
    object: &PartialObjectMeta<K>,
    uid: Option<&str>,
) -> bool {
    uid.is_some()
        && object
            .owner_references()
            .iter()
            .any(|owner| owner.controller == Some(true) && Some(owner.uid.as_str()) == uid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wanted_and_absent_is_made_and_what_is_ours_and_unwanted_goes() {
        let mut objects = Objects::default();
        let wanted = BTreeSet::from([
            "nvidia-dra-fen".to_owned(),
            "freehold-agent".to_owned(),
            "held-by-others".to_owned(),
        ]);
        let live = BTreeMap::from([
            ("freehold-operands/freehold-agent".to_owned(), true),
            ("freehold-operands/nvidia-dra-old".to_owned(), true),
            ("freehold-operands/held-by-others".to_owned(), false),
            ("freehold-operands/unrelated".to_owned(), false),
        ]);
        objects.differ("DaemonSet", &wanted, &live);
        assert_eq!(objects.made, ["DaemonSet nvidia-dra-fen"]);
        assert_eq!(objects.deleted, ["DaemonSet nvidia-dra-old"]);
        assert_eq!(objects.taken, ["DaemonSet held-by-others"]);
    }
}
