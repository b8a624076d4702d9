//! Freehold's own definitions, as the API server has them.

use freehold_api::{AcceleratorCluster, AcceleratorNode, served};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::ListParams;
use kube::{Api, Client, CustomResourceExt as _, ResourceExt as _};

/// Fields named in a message; the rest is a number.
const NAMED: usize = 4;

/// Whether it is one of ours.
pub(crate) fn is_ours(name: &str) -> bool {
    needed().iter().any(|crd| crd.name_any() == name)
}

fn needed() -> [CustomResourceDefinition; 2] {
    [AcceleratorCluster::crd(), AcceleratorNode::crd()]
}

/// What the installed definitions lack of what this version needs, in words; `None` when nothing.
pub(crate) async fn outdated(client: Client) -> kube::Result<Option<String>> {
    let api = Api::<CustomResourceDefinition>::all(client);
    let mut found = Vec::new();
    for needed in needed() {
        let name = needed.name_any();
        let named = ListParams::default().fields(&format!("metadata.name={name}"));
        let Some(installed) = api.list(&named).await?.items.into_iter().next() else {
            found.push(format!("CustomResourceDefinition {name} is not installed"));
            continue;
        };
        let missing = served::lacking(&needed, &installed);
        if let Some(more) = missing.len().checked_sub(NAMED).filter(|more| *more > 0) {
            let first = missing.iter().take(NAMED).cloned().collect::<Vec<_>>();
            found.push(format!(
                "CustomResourceDefinition {name} lacks {} and {more} more",
                first.join(", ")
            ));
        } else if !missing.is_empty() {
            found.push(format!(
                "CustomResourceDefinition {name} lacks {}",
                missing.join(", ")
            ));
        }
    }
    Ok((!found.is_empty()).then(|| found.join("; ")))
}
