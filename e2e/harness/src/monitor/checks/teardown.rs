//! I3: finalizers and classes go last.

use std::collections::BTreeSet;

use freehold_core::names;
use freehold_core::vendor::{Owner, Vendor};

use super::{Findings, Moment};
use crate::monitor::facts::Object;

pub(super) fn check(moment: &Moment<'_>, findings: &mut Findings) {
    match (&moment.fact.object, &moment.before) {
        (Object::Cluster(after), Some(Object::Cluster(before))) => {
            let has = |cluster: &freehold_api::AcceleratorCluster| {
                cluster
                    .metadata
                    .finalizers
                    .iter()
                    .flatten()
                    .any(|finalizer| finalizer == names::FINALIZER)
            };
            if has(before) && (moment.fact.gone || !has(after)) {
                finalizer_gone(moment, before.metadata.uid.as_deref(), findings);
            }
        }
        (Object::Kept(kept), Some(_))
            if moment.fact.gone && kept.kind == "DeviceClass" && kept.owner.is_some() =>
        {
            let holding: BTreeSet<&str> = moment
                .world
                .nodes()
                .filter(|node| {
                    Vendor::ALL
                        .into_iter()
                        .any(|vendor| node.owner(vendor) == Some(Owner::Dra.word()))
                })
                .map(|node| node.name.as_str())
                .collect();
            if !holding.is_empty() {
                let what = format!("DRA still owns {holding:?}");
                findings.add(
                    "I3",
                    "class gone before its nodes",
                    moment.fact.at,
                    &kept.name,
                    what,
                );
            }
        }
        (
            Object::Cluster(_)
            | Object::Kept(_)
            | Object::Node(_)
            | Object::Pod(_)
            | Object::Slice(_)
            | Object::Claim(_)
            | Object::Record(_),
            _,
        ) => {}
    }
}

fn finalizer_gone(moment: &Moment<'_>, uid: Option<&str>, findings: &mut Findings) {
    let world = moment.world;
    let nodes = world
        .nodes()
        .filter(|node| !node.marks().is_empty())
        .map(|node| format!("Node {} {:?}", node.name, node.marks()));
    let records = world.records().map(|record| {
        format!(
            "AcceleratorNode {}",
            record.metadata.name.as_deref().unwrap_or_default()
        )
    });
    let kept = world
        .kept()
        .filter(|kept| uid.is_some() && kept.owner.as_deref() == uid)
        .map(|kept| format!("{} {}", kept.kind, kept.name));
    let left: Vec<String> = nodes.chain(records).chain(kept).collect();
    if !left.is_empty() {
        findings.add(
            "I3",
            "finalizer gone first",
            moment.fact.at,
            names::SINGLETON,
            format!("still there: {left:?}"),
        );
    }
}
