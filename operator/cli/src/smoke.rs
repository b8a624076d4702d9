//! `smoke <cohort>`: prints a bounded, suspended Job that shows whether a pod gets a device of the cohort. It applies nothing
//! and starts nothing: that is for whoever owns the hardware.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Args;
use freehold_api::DeviceType;
use freehold_api::plan::{CohortPlan, Plan, SizeCount, SizePlan, SizeVendor};
use freehold_core::geometry;
use freehold_core::intent::{Layout, MigStrategy, SelectorTerm, Sharing};
use freehold_core::names;
use freehold_core::vendor::{Owner, Vendor};
use serde_json::{Value, json};

use crate::exit::{Exit, Failure};
use crate::output::{self, Format};
use crate::session::Session;
use crate::{fleet, intent_file};

/// Seconds that the check may run, from its start.
const DEADLINE_S: u32 = 120;
/// Seconds that the result stays.
const KEPT_S: u32 = 600;

/// Options of `smoke`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    /// Name of the cohort.
    cohort: String,
    /// Image of the check, tested on this hardware and approved, with a tag or better a digest. It needs nvidia-smi (NVIDIA)
    /// or sh and ls (Neuron), and must run as a user other than root.
    #[arg(long, value_name = "IMAGE", value_parser = image)]
    image: String,
    /// Namespace of the Job; otherwise that of the size, or default.
    #[arg(short, long, value_name = "NAME")]
    namespace: Option<String>,
    /// Size whose ResourceClaimTemplate is used, for cohorts with owner DRA; otherwise the smallest that fits.
    #[arg(long, value_name = "NAME", conflicts_with = "resource")]
    size: Option<String>,
    /// Extended resource to ask for, for cohorts with owner DevicePlugin; otherwise what the cohort's settings advertise.
    #[arg(long, value_name = "NAME")]
    resource: Option<String>,
    /// Take the AcceleratorCluster from this file (- for stdin) instead of from the cluster.
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,
}

fn image(text: &str) -> Result<String, String> {
    let name = text.rsplit('/').next().unwrap_or(text);
    if text.contains(char::is_whitespace) || !(name.contains(':') || name.contains('@')) {
        return Err(
            "an image needs a tag or a digest: without either it changes by itself".to_owned(),
        );
    }
    Ok(text.to_owned())
}

/// Runs the command.
pub(crate) async fn run(session: &Session, options: Options) -> Result<Exit, Failure> {
    let plan = match &options.file {
        Some(path) => intent_file::read(path)?.1,
        None => {
            session.busy("reading the AcceleratorCluster");
            let cluster = fleet::cluster(session.client().await?).await?;
            Plan::parse(&cluster.spec).map_err(|problems| {
                Failure::undetermined(format!("the AcceleratorCluster is not valid: {problems}"))
            })?
        }
    };
    let objects = objects(&plan, &options)?;
    if !options.image.contains("@sha256:") {
        output::complain(
            "warning: the image is not pinned by digest: what runs may not be what was approved",
        );
    }
    output::write_out(&manifest(session.format(), &objects)?)?;
    Ok(Exit::Fine)
}

/// A manifest for `kubectl create -f -`.
fn manifest(format: Format, objects: &[Value]) -> Result<String, Failure> {
    let broken =
        |error: String| Failure::undetermined(format!("cannot write the manifest: {error}"));
    match format {
        Format::Json => {
            let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
            Ok(
                serde_json::to_string_pretty(&list).map_err(|error| broken(error.to_string()))?
                    + "\n",
            )
        }
        Format::Text | Format::Wide | Format::Yaml => {
            let head = "# Suspended: nothing runs until the owner of the hardware sets suspend: false. It shows that a device is visible in\n\
                        # a pod, no more. Read the result before it goes (ttlSecondsAfterFinished).\n";
            let documents: Result<Vec<String>, Failure> = objects
                .iter()
                .map(|object| {
                    serde_saphyr::to_string(object).map_err(|error| broken(error.to_string()))
                })
                .collect();
            Ok(format!("{head}{}", documents?.join("---\n")))
        }
    }
}

/// How a pod asks for a device.
enum Request {
    /// Through the device plugin.
    Resource(String),
    /// Through DRA, with a template that is kept for a size.
    Template { name: String },
    /// Through DRA, with a template of its own.
    OwnTemplate { class: &'static str },
}

fn objects(plan: &Plan, options: &Options) -> Result<Vec<Value>, Failure> {
    let Some(cohort) = plan
        .cohorts
        .iter()
        .find(|cohort| cohort.cohort.name == options.cohort)
    else {
        let names: Vec<&str> = plan
            .cohorts
            .iter()
            .map(|cohort| cohort.cohort.name.as_str())
            .collect();
        return Err(Failure::usage(format!(
            "there is no cohort {:?}; there are: {}",
            options.cohort,
            names.join(", ")
        )));
    };
    let (request, namespace) = match cohort.cohort.owner {
        Owner::DevicePlugin => {
            if options.size.is_some() {
                return Err(Failure::usage(
                    "--size is for cohorts with owner DRA; with owner DevicePlugin pods ask by resource (--resource)",
                ));
            }
            (
                Request::Resource(resource(cohort, options.resource.as_deref())?),
                None,
            )
        }
        Owner::Dra => {
            if options.resource.is_some() {
                return Err(Failure::usage(
                    "--resource is for cohorts with owner DevicePlugin; with owner DRA pods ask by claim (--size)",
                ));
            }
            template(plan, cohort, options)?
        }
    };
    let namespace = options
        .namespace
        .clone()
        .or(namespace)
        .unwrap_or_else(|| "default".to_owned());
    let job = job(plan, cohort, options, &request, &namespace);
    Ok(match request {
        Request::OwnTemplate { class } => vec![own_template(cohort, class, &namespace), job],
        Request::Resource(_) | Request::Template { .. } => vec![job],
    })
}

/// Name of the Job and of a template of its own.
fn name(cohort: &CohortPlan) -> String {
    // The Job's pods carry the name in a label of at most 63 characters.
    let mut name: String = cohort.cohort.name.chars().take(57).collect();
    name.truncate(name.trim_end_matches('-').len());
    format!("{name}-smoke")
}

/// The extended resource that the cohort's settings advertise.
fn resource(cohort: &CohortPlan, wanted: Option<&str>) -> Result<String, Failure> {
    let vendor = cohort.cohort.vendor;
    if let Some(resource) = wanted {
        return if vendor.owns_resource(resource) {
            Ok(resource.to_owned())
        } else {
            Err(Failure::usage(format!(
                "--resource {resource}: no resource of {vendor}; its names begin with {}/",
                vendor.resource_domain()
            )))
        };
    }
    let ask = |why: &str| {
        Failure::usage(format!(
            "cohort {}: {why}; give --resource, e.g. one of: kubectl get nodes -o jsonpath='{{.items[*].status.allocatable}}'",
            cohort.cohort.name
        ))
    };
    let base = match (vendor, cohort.cohort.mig_strategy) {
        (Vendor::Neuron, _) => return Ok("aws.amazon.com/neuron".to_owned()),
        (Vendor::Nvidia, None | Some(MigStrategy::None | MigStrategy::Single)) => {
            "nvidia.com/gpu".to_owned()
        }
        (Vendor::Nvidia, Some(MigStrategy::Mixed)) => match &cohort.cohort.layout {
            Some(Layout::Mig(layouts)) => {
                let smallest = layouts
                    .iter()
                    .flat_map(|layout| &layout.instances)
                    .map(|instance| instance.profile.as_str())
                    // A share of the board has another name on every board.
                    .filter(|profile| matches!(profile.parse(), Ok(geometry::Request::Literal(_))))
                    .min();
                let profile = smallest.ok_or_else(|| {
                    ask("its layout names no MIG profile as the driver prints it")
                })?;
                // As the plugin writes profiles in resource names.
                format!("nvidia.com/mig-{}", profile.replace('+', "."))
            }
            Some(Layout::LogicalNeuronCore(_)) | None => {
                return Err(ask(
                    "which MIG resources there are depends on the nodes (migStrategy Mixed without a layout)",
                ));
            }
        },
    };
    match &cohort.cohort.sharing {
        Sharing::Exclusive => Ok(base),
        Sharing::TimeSlicing { rename, replicas } | Sharing::Mps { rename, replicas } => {
            let shared = replicas.contains_key(&base);
            Ok(if *rename && shared {
                format!("{base}.shared")
            } else {
                base
            })
        }
        Sharing::UserConfig => Err(ask(
            "what its own configuration file advertises cannot be told from here",
        )),
    }
}

/// The template of a fitting size with its namespace, or one of its own.
fn template(
    plan: &Plan,
    cohort: &CohortPlan,
    options: &Options,
) -> Result<(Request, Option<String>), Failure> {
    let in_namespace = |size: &SizePlan| {
        options.namespace.as_ref().map_or_else(
            || size.namespaces.first().cloned(),
            |wanted| size.namespaces.get(wanted).cloned(),
        )
    };
    if let Some(wanted) = &options.size {
        let size = plan
            .sizes
            .iter()
            .find(|size| size.name == *wanted)
            .ok_or_else(|| {
                let names: Vec<&str> = plan.sizes.iter().map(|size| size.name.as_str()).collect();
                Failure::usage(format!(
                    "there is no size {wanted:?}; there are: {}",
                    names.join(", ")
                ))
            })?;
        if !fits(size, cohort) {
            return Err(Failure::usage(format!(
                "size {wanted} does not fit cohort {}: another vendor or type of devices",
                cohort.cohort.name
            )));
        }
        let namespace = in_namespace(size).ok_or_else(|| {
            Failure::usage(format!(
                "size {wanted} has no ResourceClaimTemplate in that namespace"
            ))
        })?;
        return Ok((
            Request::Template {
                name: size.name.clone(),
            },
            Some(namespace),
        ));
    }
    let fitting = plan
        .sizes
        .iter()
        .filter(|size| fits(size, cohort))
        .filter_map(|size| match size.count {
            SizeCount::Exactly(count) => Some((count, size, in_namespace(size)?)),
            // Every device of a node is no bounded check.
            SizeCount::All => None,
        });
    Ok(
        match fitting.min_by_key(|(count, size, _)| (*count, size.name.clone())) {
            Some((1, size, namespace)) => (
                Request::Template {
                    name: size.name.clone(),
                },
                Some(namespace),
            ),
            // One device is enough for a check, and no size asks for just one.
            Some(_) | None => (
                Request::OwnTemplate {
                    class: class(cohort),
                },
                None,
            ),
        },
    )
}

fn fits(size: &SizePlan, cohort: &CohortPlan) -> bool {
    match (size.devices, cohort.cohort.vendor) {
        (SizeVendor::Nvidia(kind), Vendor::Nvidia) => match kind {
            DeviceType::Gpu => !has_mig(cohort),
            DeviceType::Mig => has_mig(cohort),
            DeviceType::Vfio => false,
        },
        (SizeVendor::Neuron { .. }, Vendor::Neuron) => true,
        (SizeVendor::Nvidia(_), Vendor::Neuron) | (SizeVendor::Neuron { .. }, Vendor::Nvidia) => {
            false
        }
    }
}

/// Whether the cohort's settings cut its GPUs into MIG instances.
fn has_mig(cohort: &CohortPlan) -> bool {
    match &cohort.cohort.layout {
        Some(Layout::Mig(layouts)) => layouts.iter().any(|layout| !layout.instances.is_empty()),
        Some(Layout::LogicalNeuronCore(_)) | None => false,
    }
}

fn class(cohort: &CohortPlan) -> &'static str {
    match cohort.cohort.vendor {
        Vendor::Nvidia if has_mig(cohort) => "mig.nvidia.com",
        Vendor::Nvidia => "gpu.nvidia.com",
        Vendor::Neuron => "neuron.aws.com",
    }
}

fn own_template(cohort: &CohortPlan, class: &str, namespace: &str) -> Value {
    json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name(cohort), "namespace": namespace},
        "spec": {"spec": {"devices": {"requests": [
            {"name": "device", "exactly": {"deviceClassName": class, "allocationMode": "ExactCount", "count": 1}}
        ]}}},
    })
}

fn job(
    plan: &Plan,
    cohort: &CohortPlan,
    options: &Options,
    request: &Request,
    namespace: &str,
) -> Value {
    let vendor = cohort.cohort.vendor;
    let (container, command, taint) = match vendor {
        Vendor::Nvidia => ("gpu-check", json!(["nvidia-smi", "-L"]), "nvidia.com/gpu"),
        Vendor::Neuron => (
            "neuron-check",
            json!(["sh", "-c", "ls -la /dev/neuron*"]),
            "aws.amazon.com/neuron",
        ),
    };
    let mut selector = BTreeMap::from([(names::cohort_label(vendor), cohort.cohort.name.clone())]);
    if let Some(alias) = &plan.intent.owner_alias {
        selector.insert(alias.clone(), cohort.cohort.owner.word().to_owned());
    }
    for term in &cohort.cohort.selector.terms {
        // The cohort's label says it all; plain labels are repeated so that the manifest reads by itself.
        if let SelectorTerm::In(key, values) = term
            && let (Some(value), 1) = (values.first(), values.len())
        {
            selector.insert(key.clone(), value.clone());
        }
    }
    let mut tolerations = vec![json!({"key": taint, "operator": "Exists", "effect": "NoSchedule"})];
    tolerations.extend(
        cohort
            .tolerations
            .iter()
            .map(|toleration| json!(toleration)),
    );

    let mut requests = json!({"cpu": "100m", "memory": "128Mi"});
    let mut limits = json!({"cpu": "500m", "memory": "256Mi"});
    let mut claims = None;
    match request {
        Request::Resource(resource) => {
            for list in [&mut requests, &mut limits] {
                if let Some(list) = list.as_object_mut() {
                    list.insert(resource.clone(), json!(1));
                }
            }
        }
        Request::Template { name } => claims = Some(name.clone()),
        Request::OwnTemplate { .. } => claims = Some(name(cohort)),
    }
    let resources = if claims.is_some() {
        json!({"requests": requests, "limits": limits, "claims": [{"name": "device"}]})
    } else {
        json!({"requests": requests, "limits": limits})
    };
    let mut pod = json!({
        "restartPolicy": "Never",
        "automountServiceAccountToken": false,
        "nodeSelector": selector,
        "tolerations": tolerations,
        "securityContext": {"runAsNonRoot": true, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}},
    });
    if let Some(pod) = pod.as_object_mut() {
        if let Some(template) = claims {
            pod.insert(
                "resourceClaims".to_owned(),
                json!([{"name": "device", "resourceClaimTemplateName": template}]),
            );
        }
        if let Some(class) = &cohort.cohort.runtime_class {
            pod.insert("runtimeClassName".to_owned(), json!(class));
        }
        pod.insert(
            "containers".to_owned(),
            json!([{
                "name": container,
                "image": options.image,
                "command": command,
                "securityContext": {
                    "allowPrivilegeEscalation": false,
                    "readOnlyRootFilesystem": true,
                    "capabilities": {"drop": ["ALL"]},
                },
                "resources": resources,
            }]),
        );
    }
    json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name(cohort), "namespace": namespace},
        "spec": {
            "suspend": true,
            "completions": 1,
            "parallelism": 1,
            "backoffLimit": 0,
            "activeDeadlineSeconds": DEADLINE_S,
            "ttlSecondsAfterFinished": KEPT_S,
            "template": {"spec": pod},
        },
    })
}

#[cfg(test)]
mod tests;
