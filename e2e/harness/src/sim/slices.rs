//! Publishing ResourceSlices with the operand's own token, so that its RBAC and the admission policy on slices are exercised.

use anyhow::Context as _;
use k8s_openapi::api::resource::v1::{Device, ResourceSlice};
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::config::AuthInfo;
use kube::{Api, Client, Config, ResourceExt as _};
use serde_json::json;

use super::node::SimNode;
use super::process::ApiServer;
use super::volumes::ContainerRoot;

const TOKEN: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";

/// A client with a container's mounted service account token.
///
/// # Errors
/// When there is no token or the client cannot be made.
pub fn client_of(api: &ApiServer, root: &ContainerRoot) -> anyhow::Result<Client> {
    let token = std::fs::read_to_string(root.path(TOKEN))
        .context("in-cluster configuration: no service account token")?;
    let mut config = Config::new(api.url.parse()?);
    config.root_cert_file = Some(api.authority.clone());
    config.auth_info = AuthInfo {
        token: Some(token.into()),
        ..AuthInfo::default()
    };
    Ok(Client::try_from(config)?)
}

/// Makes the node's pool hold exactly these devices: slices that say so already stay, others give way to a new generation.
///
/// # Errors
/// When the API refuses, e.g. for lack of rights.
pub async fn publish(
    node: &SimNode,
    root: &ContainerRoot,
    driver: &str,
    devices: &[Device],
) -> anyhow::Result<()> {
    let client = client_of(&node.shared.api, root)?;
    let api = Api::<ResourceSlice>::all(client);
    let fields = format!("spec.nodeName={},spec.driver={driver}", node.name);
    let existing = api
        .list(&ListParams::default().fields(&fields))
        .await
        .context("list ResourceSlices")?
        .items;
    let current =
        |slice: &&ResourceSlice| slice.spec.devices.as_deref().unwrap_or_default() == devices;
    if existing.len() == 1 && existing.iter().all(|slice| current(&slice)) {
        return Ok(());
    }
    let generation = existing
        .iter()
        .map(|slice| slice.spec.pool.generation + 1)
        .max()
        .unwrap_or(1);
    let uid = node.look(|state| state.node_uid.clone());
    let slice: ResourceSlice = serde_json::from_value(json!({
        "metadata": {
            "generateName": format!("{}-{driver}-", node.name),
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": node.name, "uid": uid, "controller": true}],
        },
        "spec": {
            "driver": driver,
            "nodeName": node.name,
            "pool": {"name": node.name, "generation": generation, "resourceSliceCount": 1},
            "devices": devices,
        },
    }))?;
    api.create(&PostParams::default(), &slice)
        .await
        .context("create a ResourceSlice")?;
    for old in existing {
        api.delete(&old.name_any(), &DeleteParams::default())
            .await
            .context("delete an old ResourceSlice")?;
    }
    Ok(())
}
