//! The AcceleratorCluster, parsed and rendered once per generation; nobody reads the raw resource after that.

use std::collections::BTreeMap;

use freehold_api::AcceleratorCluster;
use freehold_api::plan::Plan;
use freehold_core::intent::{Budget, DrainPolicy, Intent, Rollout, Selector, SelectorTerm};
use freehold_core::names;
use freehold_core::vendor::{Owner, Vendor};
use freehold_render::{Rendered, RenderedOperand, Settings};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::core::DynamicObject;
use kube::{Resource as _, ResourceExt as _};

use crate::act::objects::Kind;
use crate::observe::entry::{LabelKeys, Managed};
use crate::observe::world::World;
use crate::options::Options;

/// Names an object that is kept.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ObjectKey {
    pub(crate) kind: Kind,
    /// Empty for cluster-scoped kinds.
    pub(crate) namespace: String,
    pub(crate) name: String,
}

/// Everything that follows from one generation of the resource.
pub(crate) struct Wanted {
    /// UID of the resource: what makes an object ours.
    pub(crate) uid: String,
    pub(crate) intent: Intent,
    pub(crate) objects: BTreeMap<ObjectKey, DynamicObject>,
    /// The resource is being deleted.
    pub(crate) tearing_down: bool,
    /// Why it does not parse; admission refuses nearly all of that. Nothing is changed then.
    pub(crate) problems: Option<String>,
    pub(crate) no_keys: LabelKeys,
}

impl Wanted {
    /// Parses and renders.
    pub(crate) fn new(cluster: &AcceleratorCluster, world: &World, options: &Options) -> Self {
        let uid = cluster.uid().unwrap_or_default();
        let tearing_down = cluster.metadata.deletion_timestamp.is_some();
        let empty = |problems| Self {
            uid: uid.clone(),
            intent: no_intent(),
            objects: BTreeMap::new(),
            tearing_down,
            problems,
            no_keys: LabelKeys::default(),
        };
        let mut plan = match Plan::parse(&cluster.spec) {
            Ok(plan) => plan,
            // To hand nodes back needs no plan: everything goes, at the least pace.
            Err(_) if tearing_down => {
                let owner_alias = cluster.spec.owner_label.clone();
                let intent = Intent {
                    owner_alias,
                    ..no_intent()
                };
                return Self {
                    intent,
                    ..empty(None)
                };
            }
            Err(problems) => return empty(Some(problems.to_string())),
        };
        if tearing_down {
            // No operand, class or template is wanted any more; the agent is, until every node is free.
            plan.cohorts.clear();
            plan.sizes.clear();
        }
        let settings = Settings {
            owner: OwnerReference {
                api_version: AcceleratorCluster::api_version(&()).into_owned(),
                kind: AcceleratorCluster::kind(&()).into_owned(),
                name: cluster.name_any(),
                uid: uid.clone(),
                controller: Some(true),
                block_owner_deletion: Some(true),
            },
            agent_image: options.agent_image.clone(),
            agent_image_pull_secrets: options.agent_image_pull_secrets.clone(),
            plugin_configs: plugin_configs(&plan.intent, world),
            kubelet_roots: world
                .daemon_sets
                .iter()
                .filter_map(|(_, set)| set.kubelet_root.clone())
                .collect(),
        };
        match objects(freehold_render::render(&plan, &settings), tearing_down) {
            Ok((intent, objects)) => Self {
                intent,
                objects,
                ..empty(None)
            },
            Err(error) => empty(Some(error.to_string())),
        }
    }

    /// Label keys that the intent reads.
    pub(crate) fn label_keys(&self) -> Vec<String> {
        let selectors = self
            .intent
            .cohorts
            .values()
            .flat_map(|cohort| keys(&cohort.selector));
        selectors.chain(self.intent.owner_alias.clone()).collect()
    }

    /// Whether an object that carries our label is ours.
    pub(crate) fn owns(&self, live: &Managed) -> bool {
        live.owner_uid.as_ref() == Some(&self.uid)
    }

    /// Vendor, owner and cohort of a per-cohort object, told by its name.
    pub(crate) fn operand_of<'a>(&self, name: &'a str) -> Option<(Vendor, Owner, &'a str)> {
        let mps = name
            .strip_prefix("nvidia-mps-")
            .map(|cohort| (Vendor::Nvidia, Owner::DevicePlugin, cohort));
        mps.or_else(|| {
            Vendor::ALL.into_iter().find_map(|vendor| {
                let rest = name.strip_prefix(vendor.key())?.strip_prefix('-')?;
                Owner::ALL.into_iter().find_map(|owner| {
                    Some((
                        vendor,
                        owner,
                        rest.strip_prefix(owner.word())?.strip_prefix('-')?,
                    ))
                })
            })
        })
    }
}

/// The files that cohorts name in users' ConfigMaps, as far as they exist.
fn plugin_configs(intent: &Intent, world: &World) -> BTreeMap<(String, String), String> {
    let named = intent
        .cohorts
        .values()
        .filter_map(|cohort| cohort.config_map.clone());
    named
        .filter_map(|(map, key)| {
            let entry = world
                .config_maps
                .get(&(names::OPERAND_NAMESPACE.to_owned(), map.clone()))?;
            let file = entry.data.get(&key)?.clone();
            Some(((map, key), file))
        })
        .collect()
}

/// Flattens what was rendered. Taken apart without `..`: a new kind of object cannot be forgotten.
fn objects(
    rendered: Rendered,
    tearing_down: bool,
) -> serde_json::Result<(Intent, BTreeMap<ObjectKey, DynamicObject>)> {
    let Rendered {
        intent,
        agent,
        operands,
        shapers,
        device_classes,
        claim_templates,
    } = rendered;
    let mut objects = BTreeMap::new();
    // While the resource is being deleted the agent that runs is kept as it is (see `Keeper::may_delete`) and not wanted.
    if !tearing_down {
        insert(&mut objects, Kind::DaemonSet, agent)?;
    }
    for RenderedOperand {
        cohort: _,
        shape: _,
        template: _,
        daemon_set,
    } in operands
    {
        if let Some(daemon_set) = daemon_set {
            insert(&mut objects, Kind::DaemonSet, daemon_set)?;
        }
    }
    for shaper in shapers {
        insert(&mut objects, Kind::DaemonSet, shaper)?;
    }
    for class in device_classes {
        insert(&mut objects, Kind::DeviceClass, class)?;
    }
    for template in claim_templates {
        insert(&mut objects, Kind::ResourceClaimTemplate, template)?;
    }
    Ok((intent, objects))
}

fn insert(
    objects: &mut BTreeMap<ObjectKey, DynamicObject>,
    kind: Kind,
    object: impl serde::Serialize,
) -> serde_json::Result<()> {
    let object: DynamicObject = serde_json::from_value(serde_json::to_value(object)?)?;
    let key = ObjectKey {
        kind,
        namespace: object.namespace().unwrap_or_default(),
        name: object.name_any(),
    };
    objects.insert(key, object);
    Ok(())
}

fn keys(selector: &Selector) -> impl Iterator<Item = String> {
    selector.terms.iter().map(|term| match term {
        SelectorTerm::In(key, _)
        | SelectorTerm::NotIn(key, _)
        | SelectorTerm::Exists(key)
        | SelectorTerm::DoesNotExist(key) => key.clone(),
    })
}

/// What is wanted while nothing can be told: nothing new.
fn no_intent() -> Intent {
    Intent {
        cohorts: BTreeMap::new(),
        owner_alias: None,
        rollout: Rollout {
            max_unavailable: Budget::Nodes(1),
            canary_nodes: 0,
            canary_soak_s: 0,
            drain: DrainPolicy::Wait,
            drain_timeout_s: 3600,
            paused: true,
        },
    }
}
