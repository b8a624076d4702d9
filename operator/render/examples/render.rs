//! Prints every object that an AcceleratorCluster calls for, as YAML: `cargo run -p freehold-render --example render -- FILE`.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;

use freehold_api::AcceleratorCluster;
use freehold_api::plan::Plan;
use freehold_core::{catalogue, names};
use freehold_render::{Settings, render};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).ok_or("usage: render FILE")?;
    let cluster: AcceleratorCluster = serde_saphyr::from_str(&std::fs::read_to_string(path)?)?;
    let plan = Plan::parse(&cluster.spec)?;
    let settings = Settings {
        owner: OwnerReference {
            api_version: "freehold.dev/v1alpha1".into(),
            kind: "AcceleratorCluster".into(),
            name: names::SINGLETON.into(),
            uid: cluster.metadata.uid.unwrap_or_default(),
            ..OwnerReference::default()
        },
        agent_image: catalogue::AGENT_IMAGE.into(),
        agent_image_pull_secrets: Vec::new(),
        plugin_configs: BTreeMap::new(),
        kubelet_roots: BTreeSet::new(),
    };
    let rendered = render(&plan, &settings);
    let mut documents = vec![serde_saphyr::to_string(&rendered.agent)?];
    for operand in &rendered.operands {
        match &operand.daemon_set {
            Some(daemon_set) => documents.push(serde_saphyr::to_string(daemon_set)?),
            None => eprintln!(
                "cohort {}: the ConfigMap it names is not known here, so it has no DaemonSet",
                operand.cohort
            ),
        }
    }
    for class in &rendered.device_classes {
        documents.push(serde_saphyr::to_string(class)?);
    }
    for template in &rendered.claim_templates {
        documents.push(serde_saphyr::to_string(template)?);
    }
    print!("{}", documents.join("---\n"));
    Ok(())
}
