//! The objects that the controller keeps: DaemonSets, classes, templates. An object is written when the hash of what
//! it should be differs from the hash of what was last written, and only when it is ours by owner UID.

use freehold_core::names;
use kube::api::{ApiResource, DeleteParams, DynamicObject, PostParams, Preconditions};
use kube::{Api, Client, ResourceExt as _};

use super::{WriteError, timed};
use crate::observe::entry::Managed;

/// A kind of object that is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    DeviceClass,
    ResourceClaimTemplate,
    DaemonSet,
}

impl Kind {
    /// In the order of creation: what a pod needs comes before it.
    pub(crate) const ALL: [Self; 3] = [
        Self::DeviceClass,
        Self::ResourceClaimTemplate,
        Self::DaemonSet,
    ];

    fn resource(self) -> ApiResource {
        use k8s_openapi::api::{apps::v1::DaemonSet, resource::v1 as resource};
        match self {
            Self::DeviceClass => ApiResource::erase::<resource::DeviceClass>(&()),
            Self::ResourceClaimTemplate => {
                ApiResource::erase::<resource::ResourceClaimTemplate>(&())
            }
            Self::DaemonSet => ApiResource::erase::<DaemonSet>(&()),
        }
    }

    /// Kind as people write it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::DeviceClass => "DeviceClass",
            Self::ResourceClaimTemplate => "ResourceClaimTemplate",
            Self::DaemonSet => "DaemonSet",
        }
    }
}

/// A write to one object.
#[derive(Debug)]
pub(crate) enum ObjectAct {
    /// It does not exist.
    Create {
        kind: Kind,
        object: Box<DynamicObject>,
    },
    /// It is ours and differs.
    Replace {
        kind: Kind,
        object: Box<DynamicObject>,
        live: Managed,
    },
    /// It is ours and not wanted any more.
    Delete {
        kind: Kind,
        namespace: String,
        name: String,
        live: Managed,
    },
}

impl ObjectAct {
    /// Carries it out.
    pub(crate) async fn perform(self, client: Client, owner_uid: &str) -> Result<(), WriteError> {
        timed(async {
            match self {
                Self::Create { kind, object } => create(&client, kind, *object, owner_uid).await,
                Self::Replace { kind, object, live } => replace(&client, kind, *object, live).await,
                Self::Delete {
                    kind,
                    namespace,
                    name,
                    live,
                } => {
                    let preconditions = Preconditions {
                        uid: Some(live.uid),
                        resource_version: Some(live.resource_version),
                    };
                    let params = DeleteParams::background().preconditions(preconditions);
                    api(&client, kind, &namespace)
                        .delete(&name, &params)
                        .await?;
                    Ok(())
                }
            }
        })
        .await
    }
}

async fn create(
    client: &Client,
    kind: Kind,
    object: DynamicObject,
    owner_uid: &str,
) -> Result<(), WriteError> {
    let namespace = object.namespace().unwrap_or_default();
    let api = api(client, kind, &namespace);
    let post = PostParams {
        field_manager: Some(names::CONTROLLER_FIELD_MANAGER.into()),
        ..PostParams::default()
    };
    match api.create(&post, &object).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.is_already_exists() => {
            // Ours but not yet in the cache, ours with its label torn off, or somebody else's. Only the owner's UID tells.
            let live = Managed::of(&api.get_metadata(&object.name_any()).await?.metadata);
            if live.owner_uid.as_deref() == Some(owner_uid) {
                replace(client, kind, object, live).await
            } else {
                Err(WriteError::NotOurs(describe(
                    kind,
                    &namespace,
                    &object.name_any(),
                )))
            }
        }
        Err(error) => Err(error.into()),
    }
}

async fn replace(
    client: &Client,
    kind: Kind,
    mut object: DynamicObject,
    live: Managed,
) -> Result<(), WriteError> {
    let namespace = object.namespace().unwrap_or_default();
    object.metadata.uid = Some(live.uid);
    object.metadata.resource_version = Some(live.resource_version);
    let post = PostParams {
        field_manager: Some(names::CONTROLLER_FIELD_MANAGER.into()),
        ..PostParams::default()
    };
    api(client, kind, &namespace)
        .replace(&object.name_any(), &post, &object)
        .await?;
    Ok(())
}

fn api(client: &Client, kind: Kind, namespace: &str) -> Api<DynamicObject> {
    let resource = kind.resource();
    if namespace.is_empty() {
        Api::all_with(client.clone(), &resource)
    } else {
        Api::namespaced_with(client.clone(), namespace, &resource)
    }
}

/// `Kind namespace/name`, or `Kind name`.
pub(crate) fn describe(kind: Kind, namespace: &str, name: &str) -> String {
    if namespace.is_empty() {
        format!("{} {name}", kind.name())
    } else {
        format!("{} {namespace}/{name}", kind.name())
    }
}
