//! The API server itself.

use freehold_api::{AcceleratorCluster, AcceleratorNode};
use freehold_core::catalogue::{CONTROL_PLANE_FLOOR, Version};
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client, CustomResourceExt as _, ResourceExt as _};

use super::Report;
use super::check::Check;
use crate::session::words;

/// Field manager of dry runs.
pub(super) const FIELD_MANAGER: &str = "kubectl-freehold";

/// What later checks need to know of the server.
pub(super) struct Server {
    /// `gitVersion`.
    pub(super) version: String,
    /// `resource.k8s.io/v1` is served.
    pub(super) dra: bool,
}

/// Server-side apply that changes nothing.
pub(super) fn dry_run() -> PatchParams {
    PatchParams::apply(FIELD_MANAGER).force().dry_run()
}

/// Makes the checks; `None` when nothing else can be asked.
pub(super) async fn check(client: &Client, report: &mut Report) -> Option<Server> {
    let info = match client.apiserver_version().await {
        Ok(info) => info,
        Err(error) => {
            let next = "See whether kubectl version works with the same kubeconfig and context.";
            report.add(Check::Reachable.fail("API server", words(&error), next));
            return None;
        }
    };
    let version = info.git_version;
    match Api::<SelfSubjectReview>::all(client.clone())
        .create(&PostParams::default(), &SelfSubjectReview::default())
        .await
    {
        Ok(review) => {
            let user = review
                .status
                .and_then(|status| status.user_info)
                .and_then(|user| user.username)
                .unwrap_or_default();
            report.add(Check::Reachable.pass(format!("Kubernetes {version}, as {user}")));
        }
        Err(error) => {
            let next = "Log in again, or choose another context (kubectl config get-contexts).";
            report.add(Check::Reachable.fail("API server", words(&error), next));
            return None;
        }
    }
    let floor = &CONTROL_PLANE_FLOOR;
    report.add(match Version::parse(&version) {
        Some(found) if found.meets(floor.version) => Check::ServerVersion.pass(""),
        Some(_) => Check::ServerVersion.fail(
            "API server",
            format!(
                "{version} is older than {}: {}",
                floor.version, floor.reason
            ),
            "Upgrade the control plane.",
        ),
        None => Check::ServerVersion.unknown(format!("the version {version:?} cannot be read")),
    });
    let dra = match client.list_api_group_resources("resource.k8s.io/v1").await {
        Ok(list) => list
            .resources
            .iter()
            .any(|resource| resource.name == "resourceclaims"),
        Err(_) => false,
    };
    report.add(if dra {
        Check::DraApi.pass("")
    } else {
        Check::DraApi.warn(
            "API server",
            "resource.k8s.io/v1 is not served: no cohort can have owner DRA",
            "Upgrade to Kubernetes 1.34 or later, or see kube-apiserver's --runtime-config. Device plugins are not affected.",
        )
    });
    accepts(client, report).await;
    Some(Server { version, dra })
}

async fn accepts(client: &Client, report: &mut Report) {
    let api = Api::<CustomResourceDefinition>::all(client.clone());
    for crd in [AcceleratorCluster::crd(), AcceleratorNode::crd()] {
        let name = crd.name_any();
        match api.patch(&name, &dry_run(), &Patch::Apply(&crd)).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.code == 403 => {
                report.add(Check::Accepts.unknown(format!("forbidden: {}", status.message)));
                return;
            }
            Err(error) => {
                let next = "This server cannot run this version of Freehold; see the supported versions in its README.";
                report.add(Check::Accepts.fail(
                    format!("CustomResourceDefinition {name}"),
                    words(&error),
                    next,
                ));
                return;
            }
        }
    }
    report.add(Check::Accepts.pass("by a dry run"));
}
