//! Other people's device plugins and DRA drivers, known by what they are made of: image and host path. Names prove nothing
//! (one product's chart calls its DaemonSet whatever its release is called), so names are not looked at.

use crate::vendor::{Owner, Vendor};

/// Where the kubelet keeps device-plugin sockets, whatever its root directory is.
const DEVICE_PLUGIN_DIR: &str = "/var/lib/kubelet/device-plugins";
/// Last part of the directory where DRA drivers register; its parent moves with the kubelet's root directory.
const PLUGIN_REGISTRY: &str = "plugins_registry";

/// An image that hands out a vendor's devices when it is given the kubelet's directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownImage {
    /// Last part of the repository: mirrors change everything before it.
    pub name: &'static str,
    /// A path part that makes it something else (`rocm/k8s-device-plugin` is AMD's).
    pub unless: Option<&'static str>,
    /// Whose devices.
    pub vendor: Vendor,
    /// In which way.
    pub owner: Owner,
    /// Whose image.
    pub source: &'static str,
}

const fn image(
    name: &'static str,
    vendor: Vendor,
    owner: Owner,
    source: &'static str,
) -> KnownImage {
    KnownImage {
        name,
        unless: None,
        vendor,
        owner,
        source,
    }
}

/// The images.
pub const KNOWN_IMAGES: &[KnownImage] = &[
    KnownImage {
        unless: Some("rocm"),
        ..image(
            "k8s-device-plugin",
            Vendor::Nvidia,
            Owner::DevicePlugin,
            "NVIDIA, with or without its GPU Operator",
        )
    },
    image(
        "nvidia-gpu-device-plugin",
        Vendor::Nvidia,
        Owner::DevicePlugin,
        "GKE and its derivatives",
    ),
    image(
        "nvidia-device-plugin",
        Vendor::Nvidia,
        Owner::DevicePlugin,
        "re-tagged builds of NVIDIA's",
    ),
    image(
        "volcano-vgpu-device-plugin",
        Vendor::Nvidia,
        Owner::DevicePlugin,
        "Volcano vGPU",
    ),
    image("hami", Vendor::Nvidia, Owner::DevicePlugin, "HAMi (vGPU)"),
    image(
        "dra-driver-nvidia-gpu",
        Vendor::Nvidia,
        Owner::Dra,
        "kubernetes-sigs, from 0.4",
    ),
    image(
        "k8s-dra-driver-gpu",
        Vendor::Nvidia,
        Owner::Dra,
        "NVIDIA, up to 25.12",
    ),
    image(
        "k8s-dra-driver",
        Vendor::Nvidia,
        Owner::Dra,
        "NVIDIA, first releases",
    ),
    image(
        "neuron-device-plugin",
        Vendor::Neuron,
        Owner::DevicePlugin,
        "AWS; chart, eksctl, SageMaker HyperPod",
    ),
    image("neuron-dra-driver", Vendor::Neuron, Owner::Dra, "AWS"),
];

/// What a pod template hands out, judged by its images and the host paths it mounts: a known image **and** the kubelet's
/// directory that the image needs for it. The same image without the directory is something else (NVIDIA's also is the
/// feature discovery and the MPS daemon).
///
/// `images` are those of all containers, init containers included.
pub fn foreign_daemon_set<'a>(
    images: impl IntoIterator<Item = &'a str>,
    host_paths: impl IntoIterator<Item = &'a str>,
) -> Option<(Vendor, Owner)> {
    let host_paths: Vec<&str> = host_paths
        .into_iter()
        .map(|path| path.trim_end_matches('/'))
        .collect();
    let mounted = |owner: Owner| match owner {
        Owner::DevicePlugin => host_paths
            .iter()
            .any(|path| is_same_or_above(path, DEVICE_PLUGIN_DIR)),
        // The registry's parents are kubelet root directories, and those are plugins' own mounts (`…/plugins`) too: only a
        // mount of the registry itself, or of the directory right above it, can register a driver.
        Owner::Dra => host_paths.iter().any(|path| {
            path.rsplit('/').next() == Some(PLUGIN_REGISTRY)
                || is_same_or_above(path, "/var/lib/kubelet/plugins_registry")
        }),
    };
    images
        .into_iter()
        .filter_map(|image| known(image))
        .find(|row| mounted(row.owner))
        .map(|row| (row.vendor, row.owner))
}

/// The row of an image reference, whatever registry, tag or digest it has.
fn known(image: &str) -> Option<&'static KnownImage> {
    let without_digest = image.split('@').next()?;
    let mut parts = without_digest.rsplit('/');
    let name = parts.next()?.split(':').next()?;
    let above: Vec<&str> = parts.collect();
    KNOWN_IMAGES
        .iter()
        .find(|row| row.name == name && row.unless.is_none_or(|part| !above.contains(&part)))
}

fn is_same_or_above(path: &str, of: &str) -> bool {
    of.strip_prefix(path)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vendor_image_with_the_kubelet_directory_is_an_owner_and_neither_alone_is() {
        let plugins = "/var/lib/kubelet/device-plugins";
        let registry = "/var/lib/kubelet/plugins_registry";
        let nvidia_plugin = Some((Vendor::Nvidia, Owner::DevicePlugin));
        for (image, path, expected) in [
            (
                "nvcr.io/nvidia/k8s-device-plugin:v0.17.1",
                plugins,
                nvidia_plugin,
            ),
            (
                "registry.local:5000/mirror/k8s-device-plugin@sha256:0123",
                "/var/lib/kubelet/device-plugins/",
                nvidia_plugin,
            ),
            ("k8s-device-plugin", "/var/lib/kubelet", nvidia_plugin),
            ("nvcr.io/nvidia/k8s-device-plugin:v0.17.1", "/sys", None), // feature discovery
            (
                "nvcr.io/nvidia/k8s-device-plugin:v0.17.1",
                "/run/nvidia/mps",
                None,
            ), // MPS daemon
            (
                "nvcr.io/nvidia/k8s-device-plugin:v0.17.1",
                "/var/lib/kubelet/device-plugins-old",
                None,
            ),
            ("docker.io/rocm/k8s-device-plugin:1.31", plugins, None), // AMD
            (
                "registry.k8s.io/sig-storage/csi-node-driver-registrar:v2",
                registry,
                None,
            ),
            (
                "gke.gcr.io/nvidia-gpu-device-plugin:1.2",
                plugins,
                nvidia_plugin,
            ),
            (
                "nvcr.io/nvidia/k8s-dra-driver-gpu:v25.8.0",
                registry,
                Some((Vendor::Nvidia, Owner::Dra)),
            ),
            (
                "registry.k8s.io/dra-driver-nvidia/dra-driver-nvidia-gpu:v0.5.1",
                "/var/lib/k0s/kubelet/plugins_registry",
                Some((Vendor::Nvidia, Owner::Dra)),
            ),
            (
                "public.ecr.aws/neuron/neuron-device-plugin:2.19.16.0",
                plugins,
                Some((Vendor::Neuron, Owner::DevicePlugin)),
            ),
            (
                "public.ecr.aws/neuron/neuron-dra-driver:1.0.0",
                registry,
                Some((Vendor::Neuron, Owner::Dra)),
            ),
            (
                "public.ecr.aws/neuron/neuron-dra-driver:1.0.0",
                plugins,
                None,
            ),
            ("", plugins, None),
        ] {
            assert_eq!(
                foreign_daemon_set([image], [path]),
                expected,
                "{image} with {path}"
            );
        }
    }

    #[test]
    fn any_container_and_any_mount_count() {
        assert_eq!(
            foreign_daemon_set(
                ["busybox:1", "neuron-device-plugin:2"],
                ["/run", "/opt/aws", "/var/lib/kubelet/device-plugins"]
            ),
            Some((Vendor::Neuron, Owner::DevicePlugin))
        );
    }
}
