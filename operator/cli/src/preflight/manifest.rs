//! The installation as this version ships it: what is checked against is what is installed, not a second list of it.

use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::rbac::v1::{
    ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef, Subject,
};
use kube::ResourceExt as _;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::intent_file::documents;

/// Files of `config/install` that hold more than workloads.
const FILES: [&str; 11] = [
    include_str!("../../../../config/install/namespaces.yaml"),
    include_str!("../../../../config/install/controller-rbac.yaml"),
    include_str!("../../../../config/install/agent-rbac.yaml"),
    include_str!("../../../../config/install/operand-rbac.yaml"),
    include_str!("../../../../config/install/policies/agent-report.yaml"),
    include_str!("../../../../config/install/policies/cluster-deletion.yaml"),
    include_str!("../../../../config/install/policies/controller-nodes.yaml"),
    include_str!("../../../../config/install/policies/controller-objects.yaml"),
    include_str!("../../../../config/install/policies/node-marks.yaml"),
    include_str!("../../../../config/install/policies/node-orders.yaml"),
    include_str!("../../../../config/install/policies/operands.yaml"),
];

/// The installation.
pub(super) struct Installation {
    pub(super) namespaces: Vec<Namespace>,
    pub(super) policies: Vec<ValidatingAdmissionPolicy>,
    pub(super) bindings: Vec<ValidatingAdmissionPolicyBinding>,
    /// What each service account must be allowed to do.
    pub(super) grants: Vec<Grant>,
}

/// What a service account must be allowed to do.
pub(super) struct Grant {
    /// `namespace/name`.
    pub(super) account: (String, String),
    /// Namespace; `None` for the whole cluster.
    pub(super) namespace: Option<String>,
    pub(super) rules: Vec<PolicyRule>,
}

impl Installation {
    /// Reads the files that are built in.
    ///
    /// # Errors
    /// When one is not what it should be, which a test rules out.
    pub(super) fn built_in() -> Result<Self, String> {
        let mut documents_: Vec<Value> = Vec::new();
        for document in FILES.iter().flat_map(|file| documents(file)) {
            documents_.push(serde_saphyr::from_str(&document).map_err(|error| error.to_string())?);
        }
        let all = &documents_;
        let roles: Vec<Role> = of_kind(all, "Role")?;
        let cluster_roles: Vec<ClusterRole> = of_kind(all, "ClusterRole")?;
        let mut grants = Vec::new();
        for binding in of_kind::<ClusterRoleBinding>(all, "ClusterRoleBinding")? {
            let rules = rules(&binding.role_ref, None, &roles, &cluster_roles)?;
            grants.extend(granted(binding.subjects.as_deref(), None, &rules));
        }
        for binding in of_kind::<RoleBinding>(all, "RoleBinding")? {
            let namespace = binding.namespace();
            let rules = rules(
                &binding.role_ref,
                namespace.as_deref(),
                &roles,
                &cluster_roles,
            )?;
            grants.extend(granted(
                binding.subjects.as_deref(),
                namespace.as_deref(),
                &rules,
            ));
        }
        Ok(Self {
            namespaces: of_kind(all, "Namespace")?,
            policies: of_kind(all, "ValidatingAdmissionPolicy")?,
            bindings: of_kind(all, "ValidatingAdmissionPolicyBinding")?,
            grants,
        })
    }
}

fn of_kind<T: DeserializeOwned>(documents: &[Value], kind: &str) -> Result<Vec<T>, String> {
    documents
        .iter()
        .filter(|document| document.get("kind").and_then(Value::as_str) == Some(kind))
        .map(|document| {
            serde_json::from_value(document.clone()).map_err(|error| format!("{kind}: {error}"))
        })
        .collect()
}

fn rules(
    of: &RoleRef,
    namespace: Option<&str>,
    roles: &[Role],
    cluster_roles: &[ClusterRole],
) -> Result<Vec<PolicyRule>, String> {
    let found = if of.kind == "ClusterRole" {
        cluster_roles
            .iter()
            .find(|role| role.name_any() == of.name)
            .map(|role| role.rules.clone())
    } else {
        roles
            .iter()
            .find(|role| role.name_any() == of.name && role.namespace().as_deref() == namespace)
            .map(|role| role.rules.clone())
    };
    found
        .flatten()
        .ok_or_else(|| format!("{} {} is bound and not there", of.kind, of.name))
}

fn granted(
    subjects: Option<&[Subject]>,
    namespace: Option<&str>,
    rules: &[PolicyRule],
) -> Vec<Grant> {
    subjects
        .unwrap_or_default()
        .iter()
        .filter(|subject| subject.kind == "ServiceAccount")
        .map(|subject| Grant {
            account: (
                subject.namespace.clone().unwrap_or_default(),
                subject.name.clone(),
            ),
            namespace: namespace.map(str::to_owned),
            rules: rules.to_vec(),
        })
        .collect()
}

/// Whether `live` holds everything that `wanted` says; it may say more, as the API server's defaults do.
pub(super) fn holds(live: &Value, wanted: &Value) -> bool {
    match (live, wanted) {
        (Value::Object(live), Value::Object(wanted)) => {
            wanted.iter().all(|(key, wanted)| match live.get(key) {
                Some(live) => holds(live, wanted),
                None => wanted.is_null(),
            })
        }
        (Value::Array(live), Value::Array(wanted)) => {
            live.len() == wanted.len()
                && live
                    .iter()
                    .zip(wanted)
                    .all(|(live, wanted)| holds(live, wanted))
        }
        (live, wanted) => live == wanted,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_built_in_installation_is_whole() {
        let installation = Installation::built_in().expect("readable files");
        let namespaces: Vec<String> = installation
            .namespaces
            .iter()
            .map(kube::ResourceExt::name_any)
            .collect();
        assert_eq!(
            namespaces,
            [
                freehold_core::names::SYSTEM_NAMESPACE,
                freehold_core::names::OPERAND_NAMESPACE
            ]
        );
        let bound: Vec<&str> = installation
            .bindings
            .iter()
            .map(|binding| binding.spec.policy_name.as_str())
            .collect();
        for policy in &installation.policies {
            assert!(
                bound.contains(&policy.name_any().as_str()),
                "{} is bound to nothing",
                policy.name_any()
            );
        }
        for account in [
            freehold_core::names::CONTROLLER_SERVICE_ACCOUNT,
            freehold_core::names::AGENT_SERVICE_ACCOUNT,
        ] {
            assert!(
                installation
                    .grants
                    .iter()
                    .any(|grant| grant.account.1 == account),
                "nothing is granted to {account}"
            );
        }
    }

    #[test]
    fn every_file_of_the_installation_is_built_in() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../config/install");
        for folder in [folder.to_owned(), format!("{folder}/policies")] {
            for entry in std::fs::read_dir(&folder).expect("the folder") {
                let path = entry.expect("an entry").path();
                if path
                    .extension()
                    .is_some_and(|extension| extension == "yaml")
                    && !path.ends_with("controller.yaml")
                {
                    let text = std::fs::read_to_string(&path).expect("a file");
                    assert!(
                        FILES.contains(&text.as_str()),
                        "{} is not built in",
                        path.display()
                    );
                }
            }
        }
    }

    #[test]
    fn defaults_that_the_server_adds_are_no_difference_and_changes_are() {
        let wanted = json!({"a": [1, {"b": 2}], "n": null});
        assert!(holds(
            &json!({"a": [1, {"b": 2, "default": true}], "c": 3}),
            &wanted
        ));
        for changed in [
            json!({"a": [1]}),
            json!({"a": [1, {"b": 3}]}),
            json!({"c": 1}),
        ] {
            assert!(!holds(&changed, &wanted), "{changed}");
        }
    }
}
