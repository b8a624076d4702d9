//! Volumes and mounts of a simulated pod: where they lie on the host, and a directory per container in which links stand for
//! the mounts. A process that runs as a container sees exactly what is mounted, below that directory.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{
    ConfigMap, Container, DownwardAPIVolumeFile, Pod, ProjectedVolumeSource, ServiceAccount, Volume,
};
use kube::api::PostParams;
use kube::{Api, Client, ResourceExt as _};

use super::tree::{Tree, write_atomically};

/// Where each volume of a pod lies on the host.
pub type Volumes = BTreeMap<String, PathBuf>;

/// Makes a pod's volumes, as the kubelet does before the first container.
///
/// Tokens are asked for only with `tokens`: workloads never look at theirs, and hundreds of them would be requests for nothing.
///
/// # Errors
/// What the kubelet would report as FailedMount.
pub async fn mount(
    tree: &Tree,
    client: &Client,
    pod: &Pod,
    tokens: bool,
) -> anyhow::Result<Volumes> {
    let uid = pod.uid().context("a pod has a UID")?;
    let namespace = pod.namespace().context("a pod has a namespace")?;
    let mut volumes = Volumes::new();
    for volume in pod
        .spec
        .iter()
        .flat_map(|spec| spec.volumes.iter().flatten())
    {
        let below = |plugin: &str| {
            tree.pod_dir(&uid)
                .join("volumes")
                .join(plugin)
                .join(&volume.name)
        };
        let path = if let Some(host) = &volume.host_path {
            host_path(tree, &host.path, host.type_.as_deref().unwrap_or_default())?
        } else if volume.empty_dir.is_some() {
            made(below("kubernetes.io~empty-dir"))?
        } else if let Some(source) = &volume.config_map {
            let path = made(below("kubernetes.io~configmap"))?;
            let items = source
                .items
                .iter()
                .flatten()
                .map(|item| (item.key.clone(), item.path.clone()))
                .collect();
            write_config_map(
                client,
                &namespace,
                &source.name,
                source.optional,
                &items,
                &path,
            )
            .await?;
            path
        } else if let Some(source) = &volume.downward_api {
            let path = made(below("kubernetes.io~downward-api"))?;
            write_fields(pod, source.items.iter().flatten(), &path)?;
            path
        } else if let Some(source) = &volume.projected {
            let path = made(below("kubernetes.io~projected"))?;
            if tokens {
                project(client, pod, &namespace, source, &path).await?;
            }
            path
        } else {
            bail!(
                "volume {} is of a kind that simulated nodes do not know: {}",
                volume.name,
                kind_of(volume)
            );
        };
        volumes.insert(volume.name.clone(), path);
    }
    Ok(volumes)
}

fn kind_of(volume: &Volume) -> String {
    let value = serde_json::to_value(volume).unwrap_or_default();
    value
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, _)| key.as_str())
        .filter(|key| *key != "name")
        .collect()
}

fn made(path: PathBuf) -> anyhow::Result<PathBuf> {
    fs::create_dir_all(&path).with_context(|| format!("make {}", path.display()))?;
    Ok(path)
}

/// A hostPath volume: `Directory` and the like must exist, `DirectoryOrCreate` and an absent type make a directory.
fn host_path(tree: &Tree, host: &str, kind: &str) -> anyhow::Result<PathBuf> {
    let path = tree.path(host);
    match kind {
        "" | "DirectoryOrCreate" => {
            if !path.exists() {
                fs::create_dir_all(&path).with_context(|| format!("make {}", path.display()))?;
            }
        }
        "Directory" if path.is_dir() => {}
        "File" if path.is_file() => {}
        "FileOrCreate" => {
            if !path.exists() {
                write_atomically(&path, "")?;
            }
        }
        "Socket" | "CharDevice" | "BlockDevice" if path.exists() => {}
        other => bail!("hostPath type check failed: {host} is not a {other}"),
    }
    Ok(path)
}

async fn write_config_map(
    client: &Client,
    namespace: &str,
    name: &str,
    optional: Option<bool>,
    items: &BTreeMap<String, String>,
    path: &Path,
) -> anyhow::Result<()> {
    let Some(map) = Api::<ConfigMap>::namespaced(client.clone(), namespace)
        .get_opt(name)
        .await?
    else {
        if optional == Some(true) {
            return Ok(());
        }
        bail!("configmap {name:?} not found");
    };
    for (key, value) in map.data.into_iter().flatten() {
        let file = if items.is_empty() {
            Some(&key)
        } else {
            items.get(&key)
        };
        if let Some(file) = file {
            write_atomically(&path.join(file), &value)?;
        }
    }
    Ok(())
}

async fn project(
    client: &Client,
    pod: &Pod,
    namespace: &str,
    source: &ProjectedVolumeSource,
    path: &Path,
) -> anyhow::Result<()> {
    for source in source.sources.iter().flatten() {
        if let Some(wanted) = &source.service_account_token {
            let token = token(
                client,
                pod,
                namespace,
                wanted.audience.clone(),
                wanted.expiration_seconds,
            )
            .await?;
            write_atomically(&path.join(&wanted.path), &token)?;
        }
        if let Some(wanted) = &source.config_map {
            let items = wanted
                .items
                .iter()
                .flatten()
                .map(|item| (item.key.clone(), item.path.clone()))
                .collect();
            write_config_map(
                client,
                namespace,
                &wanted.name,
                wanted.optional,
                &items,
                path,
            )
            .await?;
        }
        let items = source
            .downward_api
            .iter()
            .flat_map(|source| source.items.iter().flatten());
        write_fields(pod, items, path)?;
    }
    Ok(())
}

fn write_fields<'a>(
    pod: &Pod,
    items: impl Iterator<Item = &'a DownwardAPIVolumeFile>,
    path: &Path,
) -> anyhow::Result<()> {
    for item in items {
        let field = item
            .field_ref
            .as_ref()
            .context("only fieldRef is known to simulated nodes")?;
        write_atomically(
            &path.join(&item.path),
            &field_of(pod, &field.field_path).unwrap_or_default(),
        )?;
    }
    Ok(())
}

/// A token of the pod's service account, bound to the pod, from the TokenRequest API with the kubelet's own identity.
async fn token(
    client: &Client,
    pod: &Pod,
    namespace: &str,
    audience: Option<String>,
    seconds: Option<i64>,
) -> anyhow::Result<String> {
    let account = pod
        .spec
        .as_ref()
        .and_then(|spec| spec.service_account_name.as_deref())
        .unwrap_or("default");
    let request = TokenRequest {
        spec: Some(TokenRequestSpec {
            audiences: audience.map(|audience| vec![audience]),
            expiration_seconds: seconds,
            bound_object_ref: Some(BoundObjectReference {
                api_version: Some("v1".into()),
                kind: Some("Pod".into()),
                name: pod.metadata.name.clone(),
                uid: pod.metadata.uid.clone(),
            }),
        }),
        ..TokenRequest::default()
    };
    let reply = Api::<ServiceAccount>::namespaced(client.clone(), namespace)
        .create_token_request(account, &PostParams::default(), &request)
        .await
        .with_context(|| format!("token of {namespace}/{account}"))?;
    reply
        .status
        .and_then(|status| status.token)
        .context("the API server gave no token")
}

/// A downward API field.
#[must_use]
pub fn field_of(pod: &Pod, path: &str) -> Option<String> {
    let spec = pod.spec.as_ref()?;
    let status = pod.status.as_ref();
    match path {
        "metadata.name" => pod.metadata.name.clone(),
        "metadata.namespace" => pod.metadata.namespace.clone(),
        "metadata.uid" => pod.metadata.uid.clone(),
        "spec.nodeName" => spec.node_name.clone(),
        "spec.serviceAccountName" => spec.service_account_name.clone(),
        "status.podIP" => status?.pod_ip.clone(),
        "status.hostIP" => status?.host_ip.clone(),
        _ => {
            let label = path
                .strip_prefix("metadata.labels['")
                .and_then(|rest| rest.strip_suffix("']"));
            let annotation = path
                .strip_prefix("metadata.annotations['")
                .and_then(|rest| rest.strip_suffix("']"));
            match (label, annotation) {
                (Some(key), _) => pod.labels().get(key).cloned(),
                (None, Some(key)) => pod.annotations().get(key).cloned(),
                (None, None) => None,
            }
        }
    }
}

/// A container's environment.
#[must_use]
pub fn environment(pod: &Pod, container: &Container) -> BTreeMap<String, String> {
    let mut env = BTreeMap::<String, String>::new();
    for variable in container.env.iter().flatten() {
        let field = variable
            .value_from
            .as_ref()
            .and_then(|source| source.field_ref.as_ref());
        let value = match (field, &variable.value) {
            (Some(field), _) => field_of(pod, &field.field_path),
            (None, Some(value)) => Some(expand(value, &env)),
            (None, None) => None,
        };
        if let Some(value) = value {
            env.insert(variable.name.clone(), value);
        }
    }
    env
}

/// Replaces `$(NAME)` as Kubernetes does in commands, arguments and values.
#[must_use]
pub fn expand(text: &str, env: &BTreeMap<String, String>) -> String {
    env.iter().fold(text.to_owned(), |text, (name, value)| {
        text.replace(&format!("$({name})"), value)
    })
}

/// A container's file system.
#[derive(Clone, Debug)]
pub struct ContainerRoot {
    root: PathBuf,
    mounts: Vec<String>,
}

impl ContainerRoot {
    /// Links a container's mounts below `root`, which is short so that sockets in it stay within the length of a socket path.
    ///
    /// # Errors
    /// When a link cannot be made, or a mount names a volume that the pod lacks.
    pub fn build(root: PathBuf, container: &Container, volumes: &Volumes) -> anyhow::Result<Self> {
        fs::create_dir_all(&root)?;
        let mut mounts: Vec<_> = container.volume_mounts.iter().flatten().collect();
        mounts.sort_by_key(|mount| mount.mount_path.len());
        for mount in &mounts {
            let volume = volumes
                .get(&mount.name)
                .with_context(|| format!("mount of an unknown volume {}", mount.name))?;
            let target = mount
                .sub_path
                .as_ref()
                .map_or_else(|| volume.clone(), |below| volume.join(below));
            let link = root.join(mount.mount_path.trim_matches('/'));
            // A mount inside another mount is there already, since the outer link leads to the host's own directory.
            if link.exists() {
                let same = link.canonicalize()? == target.canonicalize()?;
                anyhow::ensure!(
                    same,
                    "{} is mounted twice from different places",
                    mount.mount_path
                );
                continue;
            }
            if let Some(parent) = link.parent() {
                fs::create_dir_all(parent)?;
            }
            symlink(&target, &link).with_context(|| format!("mount {}", mount.mount_path))?;
        }
        let mounts = mounts
            .into_iter()
            .map(|mount| mount.mount_path.trim_end_matches('/').to_owned())
            .collect();
        Ok(Self { root, mounts })
    }

    /// The directory that stands for the container's `/`.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Where a path inside the container lies.
    #[must_use]
    pub fn path(&self, inside: &str) -> PathBuf {
        self.root.join(inside.trim_start_matches('/'))
    }

    /// An argument as the process outside must be given it: paths that lie in, or lead to, a mount are moved below the root.
    #[must_use]
    pub fn argument(&self, argument: &str) -> String {
        let (flag, value) = match argument.split_once('=') {
            Some((flag, value)) if flag.starts_with("--") => (format!("{flag}="), value),
            _ => (String::new(), argument),
        };
        let inside = value.starts_with('/')
            && self.mounts.iter().any(|mount| {
                within(mount, value.trim_end_matches('/'))
                    || within(value.trim_end_matches('/'), mount)
            });
        if inside {
            format!("{flag}{}", self.path(value).display())
        } else {
            argument.to_owned()
        }
    }
}

/// Whether `path` is `outer` or below it.
fn within(path: &str, outer: &str) -> bool {
    path.strip_prefix(outer)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::VolumeMount;

    use super::*;

    fn container(mounts: &[(&str, &str)]) -> Container {
        let mount = |(name, path): &(&str, &str)| VolumeMount {
            name: (*name).into(),
            mount_path: (*path).into(),
            ..VolumeMount::default()
        };
        Container {
            volume_mounts: Some(mounts.iter().map(mount).collect()),
            ..Container::default()
        }
    }

    #[test]
    fn a_container_sees_its_mounts_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        for host in [
            "host/proc",
            "host/kubelet/device-plugins",
            "host/etc",
            "empty",
        ] {
            fs::create_dir_all(dir.path().join(host)).unwrap();
        }
        let volumes = Volumes::from([
            ("proc".into(), dir.path().join("host/proc")),
            ("kubelet".into(), dir.path().join("host/kubelet")),
            (
                "plugins".into(),
                dir.path().join("host/kubelet/device-plugins"),
            ),
            ("run".into(), dir.path().join("empty")),
        ]);
        let container = container(&[
            ("plugins", "/host/var/lib/kubelet/device-plugins"),
            ("kubelet", "/host/var/lib/kubelet"),
            ("proc", "/host/proc"),
            ("run", "/run/agent"),
        ]);
        let root = ContainerRoot::build(dir.path().join("c"), &container, &volumes).unwrap();
        assert!(root.path("/host/var/lib/kubelet/device-plugins").is_dir());
        assert!(!root.path("/host/etc").exists());
        let moved = |inside: &str| root.path(inside).display().to_string();
        assert_eq!(root.argument("/host"), moved("/host"));
        assert_eq!(
            root.argument("--socket=/run/agent/w.sock"),
            format!("--socket={}", moved("/run/agent/w.sock"))
        );
        assert_eq!(
            root.argument("/var/lib/kubelet"),
            "/var/lib/kubelet",
            "a path of the host, not of the container"
        );
        assert_eq!(root.argument("/run/agents"), "/run/agents");
    }

    #[test]
    fn a_missing_host_directory_fails_only_where_it_must_exist() {
        let dir = tempfile::tempdir().unwrap();
        let tree = Tree::create(dir.path(), "basalt-7", &super::super::Shape::cpu()).unwrap();
        assert!(
            host_path(&tree, "/opt/absent", "Directory")
                .unwrap_err()
                .to_string()
                .contains("type check failed")
        );
        assert!(
            host_path(&tree, "/opt/new", "DirectoryOrCreate")
                .unwrap()
                .is_dir()
        );
    }
}
