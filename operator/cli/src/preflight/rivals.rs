//! Others who hand out devices, or are set up to.

use std::collections::{BTreeMap, BTreeSet};

use freehold_api::plan::Plan;
use freehold_core::assign::{NodeView, is_candidate};
use freehold_core::catalogue;
use freehold_core::names;
use freehold_core::vendor::{Owner, Vendor};
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::PodSpec;
use k8s_openapi::api::resource::v1::ResourceSlice;
use kube::api::{ApiResource, GroupVersionKind, ListParams};
use kube::core::DynamicObject;
use kube::{Api, Client, ResourceExt as _};

use super::Report;
use super::api::Server;
use super::check::Check;
use crate::session::{is_not_found, words};
use crate::world;

/// Nodes named; the rest is counted.
const NAMED: usize = 3;
const NEXT: &str = "Decide who owns these nodes. Keep the other party away from them before a cohort takes them; Freehold stands still on every node where it finds another owner.";

/// Makes the checks.
pub(super) async fn check(
    client: &Client,
    server: &Server,
    plan: Option<&Plan>,
    report: &mut Report,
) {
    operators(client, report).await;
    daemon_sets(client, report).await;
    resources(client, server, plan, report).await;
}

async fn operators(client: &Client, report: &mut Report) {
    let mut fine = true;
    for (version, kind, plural) in [
        ("v1", "ClusterPolicy", "clusterpolicies"),
        ("v1alpha1", "GPUCluster", "gpuclusters"),
    ] {
        let resource = ApiResource::from_gvk_with_plural(
            &GroupVersionKind::gvk("nvidia.com", version, kind),
            plural,
        );
        match Api::<DynamicObject>::all_with(client.clone(), &resource)
            .list_metadata(&ListParams::default())
            .await
        {
            Ok(list) => {
                for object in list.items {
                    fine = false;
                    let cause = "NVIDIA's GPU Operator hands out every NVIDIA GPU of the cluster";
                    report.add(Check::Operators.warn(
                        format!("{kind} {}", object.name_any()),
                        cause,
                        NEXT,
                    ));
                }
            }
            // Its definitions are not installed.
            Err(error) if is_not_found(&error) => {}
            Err(error) => {
                report.add(Check::Operators.unknown(format!("{kind}: {}", words(&error))));
                return;
            }
        }
    }
    if fine {
        report.add(Check::Operators.pass(""));
    }
}

async fn daemon_sets(client: &Client, report: &mut Report) {
    let list = match Api::<DaemonSet>::all(client.clone())
        .list(&ListParams::default())
        .await
    {
        Ok(list) => list,
        Err(error) => {
            report.add(Check::ForeignDaemonSets.unknown(words(&error)));
            return;
        }
    };
    let mut fine = true;
    for set in &list.items {
        let namespace = set.namespace().unwrap_or_default();
        let ours =
            namespace == names::OPERAND_NAMESPACE && set.labels().contains_key(names::VENDOR_LABEL);
        let spec = set
            .spec
            .as_ref()
            .and_then(|spec| spec.template.spec.as_ref());
        if let (false, Some((vendor, owner))) = (ours, spec.and_then(hands_out)) {
            fine = false;
            let nodes = set
                .status
                .as_ref()
                .map_or(0, |status| status.desired_number_scheduled);
            let what = match owner {
                Owner::DevicePlugin => "device plugin",
                Owner::Dra => "DRA driver",
            };
            let cause = format!("it is a {vendor} {what}, wanted on {nodes} nodes");
            report.add(Check::ForeignDaemonSets.warn(
                format!("DaemonSet {namespace}/{}", set.name_any()),
                cause,
                NEXT,
            ));
        }
    }
    if fine {
        report.add(Check::ForeignDaemonSets.pass(""));
    }
}

fn hands_out(spec: &PodSpec) -> Option<(Vendor, Owner)> {
    let containers = spec
        .containers
        .iter()
        .chain(spec.init_containers.iter().flatten());
    let images: Vec<&str> = containers
        .filter_map(|container| container.image.as_deref())
        .collect();
    let paths: Vec<&str> = spec
        .volumes
        .iter()
        .flatten()
        .filter_map(|volume| volume.host_path.as_ref())
        .map(|path| path.path.as_str())
        .collect();
    catalogue::foreign_daemon_set(images, paths)
}

async fn resources(client: &Client, server: &Server, plan: Option<&Plan>, report: &mut Report) {
    let nodes = match world::nodes(client.clone()).await {
        Ok(nodes) => nodes,
        Err(why) => {
            report.add(Check::ForeignResources.unknown(format!("Nodes: {why}")));
            return;
        }
    };
    let slices = if server.dra {
        match Api::<ResourceSlice>::all(client.clone())
            .list(&ListParams::default())
            .await
        {
            Ok(list) => list.items,
            Err(error) => {
                report.add(
                    Check::ForeignResources.unknown(format!("ResourceSlices: {}", words(&error))),
                );
                return;
            }
        }
    } else {
        Vec::new()
    };
    let found = foreign(&nodes, &slices, plan);
    if found.is_empty() {
        report.add(Check::ForeignResources.pass(""));
    }
    for ((vendor, owner), names) in found {
        let rest = names.len().saturating_sub(NAMED);
        let rest = if rest > 0 {
            format!(" and {rest} more")
        } else {
            String::new()
        };
        let named: Vec<&str> = names.iter().take(NAMED).copied().collect();
        let what = match owner {
            Owner::DevicePlugin => "a device plugin",
            Owner::Dra => "a DRA driver",
        };
        let cause = format!("{vendor} devices are handed out by {what} that is not Freehold's");
        report.add(Check::ForeignResources.warn(
            format!("Node {}{rest}", named.join(", ")),
            cause,
            NEXT,
        ));
    }
}

/// Nodes, by vendor and way, that advertise devices while another owner is labelled there or none. With a plan, only nodes that
/// it concerns.
fn foreign<'a>(
    nodes: &'a [NodeView],
    slices: &[ResourceSlice],
    plan: Option<&Plan>,
) -> BTreeMap<(Vendor, Owner), BTreeSet<&'a str>> {
    let mut found: BTreeMap<(Vendor, Owner), BTreeSet<&str>> = BTreeMap::new();
    for node in nodes
        .iter()
        .filter(|node| plan.is_none_or(|plan| is_candidate(node, &plan.intent)))
    {
        for vendor in Vendor::ALL {
            let owner = node
                .labels
                .get(&names::owner_label(vendor))
                .and_then(|word| Owner::from_word(word));
            let fenced = node
                .taints
                .iter()
                .any(|taint| taint.key == names::fence_taint(vendor));
            // What a handover leaves behind for a while is Freehold's own.
            if fenced {
                continue;
            }
            let plugin = node
                .allocatable
                .iter()
                .any(|(resource, count)| vendor.owns_resource(resource) && *count > 0);
            if plugin && owner != Some(Owner::DevicePlugin) {
                found
                    .entry((vendor, Owner::DevicePlugin))
                    .or_default()
                    .insert(&node.name);
            }
            let dra = slices.iter().any(|slice| {
                slice.spec.driver == vendor.dra_driver()
                    && slice
                        .spec
                        .node_name
                        .as_deref()
                        .unwrap_or(&slice.spec.pool.name)
                        == node.name
            });
            if dra && owner != Some(Owner::Dra) {
                found
                    .entry((vendor, Owner::Dra))
                    .or_default()
                    .insert(&node.name);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node(name: &str, owner: Option<&str>, gpus: i64) -> NodeView {
        let mut node = NodeView {
            name: name.into(),
            ..NodeView::default()
        };
        if let Some(owner) = owner {
            node.labels
                .insert(names::owner_label(Vendor::Nvidia), owner.into());
        }
        node.allocatable.insert("nvidia.com/gpu".into(), gpus);
        node
    }

    #[test]
    fn devices_without_an_owner_of_ours_are_somebody_elses() {
        let slice: ResourceSlice = serde_json::from_value(json!({"metadata": {"name": "s"}, "spec": {"driver": "gpu.nvidia.com", "nodeName": "ours",
            "pool": {"name": "ours", "generation": 1, "resourceSliceCount": 1}}}))
        .expect("a slice");
        let nodes = [
            node("ours", Some("device-plugin"), 8),
            node("theirs", None, 8),
            node("gone", None, 0),
            node("wrong", Some("dra"), 1),
        ];
        let found = foreign(&nodes, &[slice], None);
        assert_eq!(
            found.get(&(Vendor::Nvidia, Owner::DevicePlugin)),
            Some(&BTreeSet::from(["theirs", "wrong"]))
        );
        assert_eq!(
            found.get(&(Vendor::Nvidia, Owner::Dra)),
            Some(&BTreeSet::from(["ours"]))
        );
        assert_eq!(found.len(), 2);
    }

    #[test]
    fn a_handovers_leftovers_are_ours() {
        let mut fenced = node("n", None, 8);
        fenced.taints.push(freehold_core::intent::Taint {
            key: names::fence_taint(Vendor::Nvidia),
            value: "3".into(),
            effect: "NoSchedule".into(),
        });
        assert!(foreign(&[fenced], &[], None).is_empty());
    }

    #[test]
    fn a_plugin_is_known_by_image_and_path() {
        let spec = |path: &str| -> PodSpec {
            serde_json::from_value(json!({"containers": [{"name": "c", "image": "mirror.example.com/nvidia/k8s-device-plugin:v0.17.0"}],
                "volumes": [{"name": "d", "hostPath": {"path": path}}]}))
            .expect("a spec")
        };
        assert_eq!(
            hands_out(&spec("/var/lib/kubelet/device-plugins")),
            Some((Vendor::Nvidia, Owner::DevicePlugin))
        );
        assert_eq!(hands_out(&spec("/var/log")), None);
    }
}
