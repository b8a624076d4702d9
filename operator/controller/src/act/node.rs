//! Writes about one node: to the Node, its AcceleratorNode, and pods on it.

use freehold_api::{AcceleratorNode, AcceleratorNodeSpec, LayoutSpec, VendorSpec};
use freehold_core::intent::Layout;
use freehold_core::names;
use freehold_core::tenure::{NodeWrite, PodWrite, RecordWrite, Write};
use freehold_core::vendor::{Owner, Vendor};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{DeleteParams, EvictParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, Client};
use serde_json::{Map, Value, json};

use super::{WriteError, timed};
use crate::observe::entry::NodeEntry;
use crate::observe::slim::{SlimNode, SlimTaint};

/// One write with everything it was decided on.
pub(crate) struct NodeAct {
    pub(crate) vendor: Vendor,
    pub(crate) write: Write,
    pub(crate) node: NodeEntry,
    pub(crate) record: Option<AcceleratorNode>,
    /// Alias label for workloads, kept equal to the owner.
    pub(crate) owner_alias: Option<String>,
}

/// What a write returned.
pub(crate) enum Written {
    Node(Box<SlimNode>),
    Record(Box<AcceleratorNode>),
    RecordGone,
    Pod,
}

impl NodeAct {
    /// Carries it out.
    pub(crate) async fn perform(self, client: Client) -> Result<Written, WriteError> {
        timed(async {
            match &self.write {
                Write::Node(write) => self.node(&client, write).await,
                Write::Record(write) => self.record(&client, write).await,
                Write::Pod(write) => pod(&client, write).await,
            }
        })
        .await
    }

    async fn node(&self, client: &Client, write: &NodeWrite) -> Result<Written, WriteError> {
        let mut labels = Map::new();
        let mut annotations = Map::new();
        let mut taints = None;
        match write {
            NodeWrite::Fence { term } => {
                labels.insert(names::agent_label(), json!("true"));
                let mut list = self.other_taints();
                list.push(SlimTaint {
                    key: names::fence_taint(self.vendor),
                    value: Some(term.to_string()),
                    effect: "NoSchedule".into(),
                    time_added: None,
                });
                taints = Some(list);
            }
            NodeWrite::Grant { cohort, owner } => {
                labels.insert(names::owner_label(self.vendor), json!(owner.word()));
                labels.insert(names::cohort_label(self.vendor), json!(cohort));
                if let Some(alias) = self.own_alias() {
                    labels.insert(alias.clone(), json!(owner.word()));
                }
            }
            NodeWrite::Revoke => {
                labels.insert(names::owner_label(self.vendor), Value::Null);
                labels.insert(names::cohort_label(self.vendor), Value::Null);
                // Nobody asks the device plugin for devices here any more: what its scheduler booked goes with it.
                if self.vendor == Vendor::Neuron
                    && self.node.owner(self.vendor) == Some(Ok(Owner::DevicePlugin))
                {
                    let booked = names::NEURON_USAGE_ANNOTATIONS;
                    annotations.extend(booked.map(|key| (key.to_owned(), Value::Null)));
                }
                if let Some(alias) = self.own_alias() {
                    // One value for a node: the other vendor's owner, should there be one.
                    let other = self.node.owner(self.other_vendor()).and_then(Result::ok);
                    let word = other.map_or(Value::Null, |owner| json!(owner.word()));
                    labels.insert(alias.clone(), word);
                }
            }
            NodeWrite::Unfence => {
                if self.node.fence(self.other_vendor()).is_none() {
                    labels.insert(names::agent_label(), Value::Null);
                }
                taints = Some(self.other_taints());
            }
        }
        let mut patch =
            json!({"metadata": {"resourceVersion": self.node.resource_version, "labels": labels}});
        if !annotations.is_empty()
            && let Some(Value::Object(metadata)) = patch.get_mut("metadata")
        {
            metadata.insert("annotations".into(), Value::Object(annotations));
        }
        if let (Some(taints), Some(patch)) = (taints, patch.as_object_mut()) {
            // A merge patch replaces the whole list; the resourceVersion makes sure that it is the list that was read.
            patch.insert("spec".into(), json!({"taints": taints}));
        }
        let api = Api::<SlimNode>::all(client.clone());
        let node = api
            .patch(&self.node.view.name, &manager(), &Patch::Merge(patch))
            .await?;
        Ok(Written::Node(Box::new(node)))
    }

    /// The alias label, unless somebody else uses it: a write that touched it would be refused as a whole.
    fn own_alias(&self) -> Option<&String> {
        let alias = self.owner_alias.as_ref()?;
        (!self.node.alias_is_foreign(alias)).then_some(alias)
    }

    const fn other_vendor(&self) -> Vendor {
        match self.vendor {
            Vendor::Nvidia => Vendor::Neuron,
            Vendor::Neuron => Vendor::Nvidia,
        }
    }

    fn other_taints(&self) -> Vec<SlimTaint> {
        let key = names::fence_taint(self.vendor);
        self.node
            .taints
            .iter()
            .filter(|taint| taint.key != key)
            .cloned()
            .collect()
    }

    async fn record(&self, client: &Client, write: &RecordWrite) -> Result<Written, WriteError> {
        let api = Api::<AcceleratorNode>::all(client.clone());
        match write {
            RecordWrite::Create { cohort } => self.create_record(&api, cohort.clone()).await,
            RecordWrite::RaiseTerm { term } => self.patch_part(&api, json!({"term": term})).await,
            RecordWrite::Withdraw { term } => {
                self.patch_part(&api, json!({"term": term, "layout": null}))
                    .await
            }
            RecordWrite::Layout { layout } => {
                self.patch_part(&api, json!({"layout": layout_value(layout.as_ref())?}))
                    .await
            }
            RecordWrite::HandWord {
                cohort,
                owner,
                term,
                dra_cohort,
            } => {
                let owner = to_value(owner)?;
                self.patch_part(&api, json!({"cohort": cohort, "owner": owner, "term": term, "draCohort": dra_cohort})).await
            }
            RecordWrite::Clear => self.clear_part(&api).await,
        }
    }

    async fn create_record(
        &self,
        api: &Api<AcceleratorNode>,
        cohort: Option<String>,
    ) -> Result<Written, WriteError> {
        let part = first_orders(cohort);
        let Some(record) = &self.record else {
            let mut spec = AcceleratorNodeSpec {
                node_uid: self.node.view.uid.clone(),
                nvidia: None,
                neuron: None,
            };
            *match self.vendor {
                Vendor::Nvidia => &mut spec.nvidia,
                Vendor::Neuron => &mut spec.neuron,
            } = Some(part);
            let mut object = AcceleratorNode::new(&self.node.view.name, spec);
            object.metadata.owner_references = Some(vec![OwnerReference {
                api_version: "v1".into(),
                kind: "Node".into(),
                name: self.node.view.name.clone(),
                uid: self.node.view.uid.clone(),
                ..OwnerReference::default()
            }]);
            let post = PostParams {
                field_manager: Some(names::CONTROLLER_FIELD_MANAGER.into()),
                ..PostParams::default()
            };
            return Ok(Written::Record(Box::new(api.create(&post, &object).await?)));
        };
        if record.spec.node_uid != self.node.view.uid {
            // Made for a node that is gone; the next look makes one for this node.
            return self.delete_record(api, record).await;
        }
        self.patch_part(api, to_value(&part)?).await
    }

    /// Removes this vendor's part, or the whole object with its last part.
    async fn clear_part(&self, api: &Api<AcceleratorNode>) -> Result<Written, WriteError> {
        let Some(record) = &self.record else {
            return Ok(Written::RecordGone);
        };
        if record.spec.vendor(self.other_vendor()).is_none() {
            return self.delete_record(api, record).await;
        }
        self.patch_spec(api, json!({self.vendor.key(): null})).await
    }

    async fn delete_record(
        &self,
        api: &Api<AcceleratorNode>,
        record: &AcceleratorNode,
    ) -> Result<Written, WriteError> {
        let preconditions = Preconditions {
            uid: record.metadata.uid.clone(),
            resource_version: record.metadata.resource_version.clone(),
        };
        api.delete(
            &self.node.view.name,
            &DeleteParams::default().preconditions(preconditions),
        )
        .await?;
        Ok(Written::RecordGone)
    }

    async fn patch_part(
        &self,
        api: &Api<AcceleratorNode>,
        part: Value,
    ) -> Result<Written, WriteError> {
        self.patch_spec(api, json!({self.vendor.key(): part})).await
    }

    async fn patch_spec(
        &self,
        api: &Api<AcceleratorNode>,
        spec: Value,
    ) -> Result<Written, WriteError> {
        let Some(version) = self
            .record
            .as_ref()
            .and_then(|record| record.metadata.resource_version.clone())
        else {
            return Err(WriteError::Stale);
        };
        let patch = json!({"metadata": {"resourceVersion": version}, "spec": spec});
        let record = api
            .patch(&self.node.view.name, &manager(), &Patch::Merge(patch))
            .await?;
        Ok(Written::Record(Box::new(record)))
    }
}

/// No owner: asks the agent who is there.
fn first_orders(cohort: Option<String>) -> VendorSpec {
    VendorSpec {
        cohort,
        owner: None::<Owner>,
        term: VendorSpec::FIRST_TERM,
        layout: None,
        dra_cohort: None,
    }
}

fn layout_value(layout: Option<&Layout>) -> Result<Value, WriteError> {
    layout.map_or(Ok(Value::Null), |layout| {
        to_value(&LayoutSpec::from(layout))
    })
}

fn to_value(value: &impl serde::Serialize) -> Result<Value, WriteError> {
    serde_json::to_value(value).map_err(|error| WriteError::Refused(error.to_string()))
}

async fn pod(client: &Client, write: &PodWrite) -> Result<Written, WriteError> {
    match write {
        PodWrite::Evict { name, uid } => {
            let (namespace, name) = name.split_once('/').unwrap_or_default();
            let delete = DeleteParams::default().preconditions(Preconditions {
                uid: Some(uid.clone()),
                resource_version: None,
            });
            let params = EvictParams {
                delete_options: Some(delete),
                ..EvictParams::default()
            };
            match Api::<Pod>::namespaced(client.clone(), namespace)
                .evict(name, &params)
                .await
            {
                Ok(_) => Ok(Written::Pod),
                Err(kube::Error::Api(status)) if refused_by_budget(&status) => {
                    Err(WriteError::DisruptionBudget {
                        uid: uid.clone(),
                        words: words(&status),
                    })
                }
                Err(error) => Err(error.into()),
            }
        }
        PodWrite::Restart { name, uid } => {
            let params = DeleteParams::default().preconditions(Preconditions {
                uid: Some(uid.clone()),
                resource_version: None,
            });
            Api::<Pod>::namespaced(client.clone(), names::OPERAND_NAMESPACE)
                .delete(name, &params)
                .await?;
            Ok(Written::Pod)
        }
    }
}

/// 429 is how the eviction API says no; that two budgets cover one pod it calls an internal error.
fn refused_by_budget(status: &kube::core::Status) -> bool {
    status.code == 429 || (status.code == 500 && status.message.contains("PodDisruptionBudget"))
}

/// The message, and the causes, in which the budget is named.
fn words(status: &kube::core::Status) -> String {
    let causes = status
        .details
        .iter()
        .flat_map(|details| &details.causes)
        .map(|cause| cause.message.as_str());
    std::iter::once(status.message.as_str())
        .chain(causes)
        .collect::<Vec<_>>()
        .join(" ")
}

fn manager() -> PatchParams {
    PatchParams {
        field_manager: Some(names::CONTROLLER_FIELD_MANAGER.into()),
        ..PatchParams::default()
    }
}
