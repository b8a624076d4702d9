//! Applying manifests.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client, Discovery,
    api::{DynamicObject, Patch, PatchParams},
    core::GroupVersionKind,
    discovery::{ApiCapabilities, ApiResource, Scope, oneshot},
    runtime::{conditions, wait::await_condition},
};

use super::{TestCluster, eventually};

const FIELD_MANAGER: &str = "test";
/// From the API server's acceptance of a CRD until it serves the kind.
const CRD_LIMIT: Duration = Duration::from_secs(30);

/// Objects that were applied, in order.
pub type Applied = Vec<DynamicObject>;

impl TestCluster {
    /// Applies every object in the YAML files of a folder and its subfolders, server-side and strictly validated: CRDs first
    /// (awaited until served), then namespaces, then the rest in the order of file names. Kustomizations and chart templates
    /// are not manifests; render those with [`kubectl`](Self::kubectl) and use [`apply_yaml`](Self::apply_yaml).
    ///
    /// # Errors
    /// When a file is not YAML or the API server refuses an object.
    pub async fn apply_dir(&self, folder: impl AsRef<Path>) -> Result<Applied> {
        let mut objects = Vec::new();
        for file in yaml_files(folder.as_ref())? {
            let text =
                fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?;
            objects.extend(parse(&text).with_context(|| format!("in {}", file.display()))?);
        }
        self.apply(objects).await
    }

    /// Applies the objects of one YAML text, as [`apply_dir`](Self::apply_dir) does.
    ///
    /// # Errors
    /// When it is not YAML or the API server refuses an object.
    pub async fn apply_yaml(&self, text: &str) -> Result<Applied> {
        self.apply(parse(text)?).await
    }

    /// Applies objects, as [`apply_dir`](Self::apply_dir) does.
    ///
    /// # Errors
    /// When the API server refuses an object.
    pub async fn apply(&self, mut objects: Vec<DynamicObject>) -> Result<Applied> {
        objects.sort_by_key(rank);
        let client = self.admin();
        let mut kinds = BTreeMap::new();
        let mut applied = Vec::with_capacity(objects.len());
        for object in objects {
            let name = object
                .metadata
                .name
                .clone()
                .context("an object without a name")?;
            let gvk = gvk(&object)?;
            let key = (gvk.api_version(), gvk.kind.clone());
            let kind = match kinds.get(&key) {
                Some(kind) => kind,
                None => kinds
                    .entry(key)
                    .or_insert(served_kind(&client, &gvk).await?),
            };
            let api = api_for(&client, kind, object.metadata.namespace.as_deref());
            let params = PatchParams {
                field_validation: Some(kube::api::ValidationDirective::Strict),
                ..PatchParams::apply(FIELD_MANAGER).force()
            };
            let object = api
                .patch(&name, &params, &Patch::Apply(&object))
                .await
                .with_context(|| format!("applying {} {name}", gvk.kind))?;
            if rank(&object) == Rank::Definition {
                let definitions = Api::<CustomResourceDefinition>::all(client.clone());
                let established =
                    await_condition(definitions, &name, conditions::is_crd_established());
                tokio::time::timeout(CRD_LIMIT, established)
                    .await
                    .with_context(|| {
                        format!("{name} was not established within {CRD_LIMIT:?}")
                    })??;
            }
            applied.push(object);
        }
        Ok(applied)
    }

    /// Every served kind of every group, for tests that look at everything.
    ///
    /// # Errors
    /// When discovery fails.
    pub async fn discovery(&self) -> Result<Discovery> {
        Ok(Discovery::new(self.admin()).run().await?)
    }
}

/// What must exist before the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Definition,
    Namespace,
    Rest,
}

fn rank(object: &DynamicObject) -> Rank {
    match object
        .types
        .as_ref()
        .map_or("", |types| types.kind.as_str())
    {
        "CustomResourceDefinition" => Rank::Definition,
        "Namespace" => Rank::Namespace,
        _ => Rank::Rest,
    }
}

fn gvk(object: &DynamicObject) -> Result<GroupVersionKind> {
    let types = object
        .types
        .as_ref()
        .context("an object without apiVersion and kind")?;
    Ok(GroupVersionKind::try_from(types)?)
}

/// Discovery learns of a new kind a moment after its definition is established.
async fn served_kind(
    client: &Client,
    gvk: &GroupVersionKind,
) -> Result<(ApiResource, ApiCapabilities)> {
    eventually(
        &format!("the API server to serve {gvk:?}"),
        CRD_LIMIT,
        async || match oneshot::pinned_kind(client, gvk).await {
            Ok(kind) => Ok(Some(kind)),
            Err(kube::Error::Discovery(_)) => Ok(None),
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(None),
            Err(error) => Err(error.into()),
        },
    )
    .await
}

fn api_for(
    client: &Client,
    (resource, capabilities): &(ApiResource, ApiCapabilities),
    namespace: Option<&str>,
) -> Api<DynamicObject> {
    match capabilities.scope {
        Scope::Cluster => Api::all_with(client.clone(), resource),
        Scope::Namespaced => {
            Api::namespaced_with(client.clone(), namespace.unwrap_or("default"), resource)
        }
    }
}

fn parse(text: &str) -> Result<Vec<DynamicObject>> {
    let documents: Vec<serde_json::Value> = serde_saphyr::from_multiple(text)?;
    documents
        .into_iter()
        .filter(|document| !document.is_null())
        .map(|document| Ok(serde_json::from_value(document)?))
        .collect()
}

fn yaml_files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let entries = fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))?;
    for entry in entries {
        let path = entry?.path();
        let is_yaml = path
            .extension()
            .is_some_and(|extension| extension == "yaml" || extension == "yml");
        if path.is_dir() {
            files.extend(yaml_files(&path)?);
        } else if is_yaml && path.file_stem().is_some_and(|stem| stem != "kustomization") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}
