//! Names, labels and annotations of the objects themselves.

use std::collections::BTreeMap;

use freehold_core::names;
use k8s_openapi::Metadata;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Serialize;

use crate::{Settings, hash};

/// Kubernetes' label for a part of an application.
pub(crate) const APP_COMPONENT: &str = "app.kubernetes.io/component";
/// Kubernetes' label for an application.
pub(crate) const APP_NAME: &str = "app.kubernetes.io/name";

/// A label or annotation map from pairs.
pub(crate) fn map<const N: usize>(pairs: [(&str, &str); N]) -> BTreeMap<String, String> {
    pairs
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}

/// Metadata of an object that we keep.
pub(crate) fn object(
    name: &str,
    namespace: Option<&str>,
    mut labels: BTreeMap<String, String>,
    settings: &Settings,
) -> ObjectMeta {
    labels.insert(names::MANAGED_BY_LABEL.into(), names::MANAGED_BY.into());
    ObjectMeta {
        name: Some(name.into()),
        namespace: namespace.map(Into::into),
        labels: Some(labels),
        owner_references: Some(vec![settings.owner.clone()]),
        ..ObjectMeta::default()
    }
}

/// Notes the hash of the object on the object, so that equal input can be seen to need no write.
pub(crate) fn seal<T: Metadata<Ty = ObjectMeta> + Serialize>(mut object: T) -> T {
    let hash = hash::of(&object);
    object
        .metadata_mut()
        .annotations
        .get_or_insert_default()
        .insert(names::APPLIED_ANNOTATION.into(), hash);
    object
}
