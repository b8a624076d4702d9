//! Small builders for parts of pods.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Capabilities, ConfigMapProjection, DownwardAPIProjection, DownwardAPIVolumeFile,
    DownwardAPIVolumeSource, EmptyDirVolumeSource, EnvVar, EnvVarSource, HostPathVolumeSource,
    KeyToPath, LocalObjectReference, ObjectFieldSelector, ProjectedVolumeSource,
    ResourceRequirements, SeccompProfile, SecurityContext, ServiceAccountTokenProjection, Volume,
    VolumeMount, VolumeProjection,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// Name of the volume with the service account token.
const TOKEN_VOLUME: &str = "api-token";
/// Where clients look for it.
const TOKEN_DIR: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// Life of a token in seconds; what the API server's own admission asks for. The kubelet renews it.
const TOKEN_SECONDS: i64 = 3607;
/// Mode of the token files for containers of other users: readable.
const TOKEN_MODE: i32 = 0o644;
/// Group of every non-root container of ours, given to volumes so that they can be shared.
pub(crate) const NON_ROOT: i64 = 65532;

/// Pull an image only when the node does not have it: every image carries a tag of one version, or a digest.
pub(crate) const IF_NOT_PRESENT: &str = "IfNotPresent";
/// Keeps operands and agents from being evicted for want of resources, as all vendors' charts do.
pub(crate) const NODE_CRITICAL: &str = "system-node-critical";

/// What the kubelet does about a host path.
#[derive(Clone, Copy)]
pub(crate) enum HostPathType {
    /// Mount whatever is there.
    Any,
    /// It must be a directory, else the pod waits.
    Directory,
    /// An absent directory is made.
    DirectoryOrCreate,
}

pub(crate) fn env(name: &str, value: impl Into<String>) -> EnvVar {
    EnvVar {
        name: name.into(),
        value: Some(value.into()),
        value_from: None,
    }
}

/// A variable with a field of the pod.
pub(crate) fn env_field(name: &str, path: &str) -> EnvVar {
    let field_ref = Some(ObjectFieldSelector {
        field_path: path.into(),
        api_version: None,
    });
    EnvVar {
        name: name.into(),
        value: None,
        value_from: Some(EnvVarSource {
            field_ref,
            ..EnvVarSource::default()
        }),
    }
}

pub(crate) fn host_path(name: &str, path: impl Into<String>, kind: HostPathType) -> Volume {
    let type_ = match kind {
        HostPathType::Any => None,
        HostPathType::Directory => Some("Directory".into()),
        HostPathType::DirectoryOrCreate => Some("DirectoryOrCreate".into()),
    };
    Volume {
        name: name.into(),
        host_path: Some(HostPathVolumeSource {
            path: path.into(),
            type_,
        }),
        ..Volume::default()
    }
}

/// A small directory in memory.
pub(crate) fn memory_dir(name: &str) -> Volume {
    let source = EmptyDirVolumeSource {
        medium: Some("Memory".into()),
        size_limit: Some(Quantity("1Mi".into())),
    };
    Volume {
        name: name.into(),
        empty_dir: Some(source),
        ..Volume::default()
    }
}

/// A directory with one file, whose content is an annotation of the pod itself.
pub(crate) fn annotation_file(name: &str, annotation: &str, file: &str) -> Volume {
    let item = DownwardAPIVolumeFile {
        path: file.into(),
        field_ref: Some(ObjectFieldSelector {
            field_path: format!("metadata.annotations['{annotation}']"),
            api_version: None,
        }),
        ..DownwardAPIVolumeFile::default()
    };
    let source = DownwardAPIVolumeSource {
        items: Some(vec![item]),
        default_mode: None,
    };
    Volume {
        name: name.into(),
        downward_api: Some(source),
        ..Volume::default()
    }
}

pub(crate) fn mount(name: &str, path: impl Into<String>) -> VolumeMount {
    VolumeMount {
        name: name.into(),
        mount_path: path.into(),
        ..VolumeMount::default()
    }
}

pub(crate) fn read_only(mount: VolumeMount) -> VolumeMount {
    VolumeMount {
        read_only: Some(true),
        ..mount
    }
}

/// Mounts made and removed on the host later appear and disappear inside as well. Without it a container keeps every mount it
/// was started with, and the host can never unmount those again.
pub(crate) fn from_host(mount: VolumeMount) -> VolumeMount {
    VolumeMount {
        mount_propagation: Some("HostToContainer".into()),
        ..mount
    }
}

/// Mounts made inside appear on the host as well.
pub(crate) fn both_ways(mount: VolumeMount) -> VolumeMount {
    VolumeMount {
        mount_propagation: Some("Bidirectional".into()),
        ..mount
    }
}

/// The pod's API credential as a volume, for the one container that may have it: pods here never mount it into all of their
/// containers.
pub(crate) fn token_volume() -> Volume {
    let token = ServiceAccountTokenProjection {
        path: "token".into(),
        expiration_seconds: Some(TOKEN_SECONDS),
        ..ServiceAccountTokenProjection::default()
    };
    let authority = ConfigMapProjection {
        name: "kube-root-ca.crt".into(),
        items: Some(vec![KeyToPath {
            key: "ca.crt".into(),
            path: "ca.crt".into(),
            mode: None,
        }]),
        optional: None,
    };
    let namespace = DownwardAPIVolumeFile {
        path: "namespace".into(),
        field_ref: Some(ObjectFieldSelector {
            field_path: "metadata.namespace".into(),
            api_version: None,
        }),
        ..DownwardAPIVolumeFile::default()
    };
    let sources = vec![
        VolumeProjection {
            service_account_token: Some(token),
            ..VolumeProjection::default()
        },
        VolumeProjection {
            config_map: Some(authority),
            ..VolumeProjection::default()
        },
        VolumeProjection {
            downward_api: Some(DownwardAPIProjection {
                items: Some(vec![namespace]),
            }),
            ..VolumeProjection::default()
        },
    ];
    Volume {
        name: TOKEN_VOLUME.into(),
        projected: Some(ProjectedVolumeSource {
            default_mode: Some(TOKEN_MODE),
            sources: Some(sources),
        }),
        ..Volume::default()
    }
}

pub(crate) fn token_mount() -> VolumeMount {
    read_only(mount(TOKEN_VOLUME, TOKEN_DIR))
}

pub(crate) fn pull_secrets(names: &[String]) -> Vec<LocalObjectReference> {
    names
        .iter()
        .map(|name| LocalObjectReference { name: name.clone() })
        .collect()
}

/// Compute resources from `(resource, quantity)` pairs.
pub(crate) fn resources(
    requests: &[(&str, &str)],
    limits: &[(&str, &str)],
) -> ResourceRequirements {
    let quantities = |pairs: &[(&str, &str)]| -> Option<BTreeMap<String, Quantity>> {
        let map: BTreeMap<_, _> = pairs
            .iter()
            .map(|(name, value)| ((*name).into(), Quantity((*value).into())))
            .collect();
        (!map.is_empty()).then_some(map)
    };
    ResourceRequirements {
        requests: quantities(requests),
        limits: quantities(limits),
        claims: None,
    }
}

/// UID 0 without any capability: reads what belongs to root, and can do nothing else that root can.
pub(crate) fn bare_root() -> SecurityContext {
    SecurityContext {
        run_as_user: Some(0),
        run_as_group: Some(0),
        run_as_non_root: Some(false),
        ..confined()
    }
}

/// Not root, no capability.
pub(crate) fn bare_user() -> SecurityContext {
    SecurityContext {
        run_as_user: Some(NON_ROOT),
        run_as_group: Some(NON_ROOT),
        run_as_non_root: Some(true),
        ..confined()
    }
}

fn confined() -> SecurityContext {
    SecurityContext {
        allow_privilege_escalation: Some(false),
        capabilities: Some(Capabilities {
            drop: Some(vec!["ALL".into()]),
            add: None,
        }),
        privileged: Some(false),
        read_only_root_filesystem: Some(true),
        seccomp_profile: Some(SeccompProfile {
            type_: "RuntimeDefault".into(),
            localhost_profile: None,
        }),
        ..SecurityContext::default()
    }
}

pub(crate) fn privileged() -> SecurityContext {
    SecurityContext {
        privileged: Some(true),
        ..SecurityContext::default()
    }
}
