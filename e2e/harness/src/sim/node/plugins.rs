//! Device plugins and DRA drivers as the kubelet sees them: registered, gone, their slices wiped.

use std::sync::Arc;
use std::time::Instant;

use k8s_openapi::api::resource::v1::ResourceSlice;
use kube::Api;
use kube::api::{DeleteParams, ListParams};

use super::super::options::real;
use super::super::state::{Plugin, PluginOwner};
use super::super::tree::DEVICE_PLUGINS;
use super::SimNode;

impl SimNode {
    /// Registers a device plugin for one resource: socket, checkpoint, and after a while capacity and allocatable.
    ///
    /// # Errors
    /// When the socket cannot be made.
    pub fn register_plugin(
        &self,
        resource: &str,
        owner: PluginOwner,
        ids: Vec<String>,
        at_most_one: bool,
    ) -> anyhow::Result<()> {
        let socket = format!("{}/{}", DEVICE_PLUGINS, socket_name(resource));
        let listener = self.tree.listen(&socket)?;
        self.with(|state| {
            state.plugins_gone.remove(resource);
            state.plugins.insert(
                resource.to_owned(),
                Plugin {
                    owner,
                    ids,
                    at_most_one,
                    socket,
                    listener,
                },
            );
            self.tree
                .write_device_manager(&state.devices, &state.registered())
        })
    }

    /// A device plugin's process ended in an orderly way: its sockets are removed and its resources are no longer allocatable.
    ///
    /// # Errors
    /// When files cannot be written.
    pub fn unregister_plugins(&self, owner: &PluginOwner) -> anyhow::Result<()> {
        self.with(|state| {
            let mine: Vec<_> = state
                .plugins
                .iter()
                .filter(|(_, plugin)| plugin.owner == *owner)
                .map(|(name, _)| name.clone())
                .collect();
            for resource in mine {
                if let Some(plugin) = state.plugins.remove(&resource) {
                    self.tree.remove(&plugin.socket)?;
                }
                state.plugins_gone.insert(resource, Instant::now());
            }
            self.tree
                .write_device_manager(&state.devices, &state.registered())
        })
    }

    /// Deletes the node's ResourceSlices as the kubelet does: those of one driver, or all.
    ///
    /// # Errors
    /// When the API refuses.
    pub async fn wipe_slices(&self, driver: Option<&str>) -> anyhow::Result<()> {
        let api = Api::<ResourceSlice>::all(self.client.clone());
        let mut fields = format!("spec.nodeName={}", self.name);
        if let Some(driver) = driver {
            fields.push_str(&format!(",spec.driver={driver}"));
        }
        let wiped = api
            .delete_collection(
                &DeleteParams::default(),
                &ListParams::default().fields(&fields),
            )
            .await;
        match wiped {
            Ok(_) => {}
            // A control plane that does not serve this version has no slices.
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => return Err(error.into()),
        }
        self.with(|state| state.wipes += 1);
        Ok(())
    }

    /// A DRA driver disconnected. Unless one is back by then, its slices go after 30 s.
    pub fn driver_gone(self: &Arc<Self>, driver: &'static str, pod_uid: &str) {
        let mine = self.with(|state| {
            let mine = state
                .drivers
                .get(driver)
                .is_some_and(|registered| registered.pod_uid == pod_uid);
            if mine {
                state.drivers.remove(driver);
            }
            mine
        });
        if mine {
            self.spawn(|node| async move {
                node.shared.clock.sleep(real::SLICES_KEPT).await;
                if node.look(|state| state.drivers.contains_key(driver)) {
                    return;
                }
                if let Err(error) = node.wipe_slices(Some(driver)).await {
                    tracing::warn!(node = node.name, driver, %error, "wipe ResourceSlices");
                }
            });
        }
    }
}

/// File name of a plugin's socket, as the vendors' plugins choose it.
fn socket_name(resource: &str) -> String {
    match resource {
        "aws.amazon.com/neuron" => "neuron-devplugin.sock".into(),
        "aws.amazon.com/neuroncore" => "neuroncore-devplugin.sock".into(),
        _ => {
            let (domain, name) = resource.split_once('/').unwrap_or(("plugin", resource));
            format!("{}-{name}.sock", domain.split('.').next().unwrap_or(domain))
        }
    }
}
