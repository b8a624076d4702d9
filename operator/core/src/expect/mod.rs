//! What the owner must advertise on a node: inventory × layout (× replicas).
//!
//! With a wanted layout the counts follow from that layout, since nothing is granted before the host reads it back; without
//! one they follow from the geometry that the host has.

use std::collections::BTreeMap;

use crate::blocker::{Blocker, Reason};
use crate::catalogue;
use crate::geometry::wanted_on;
use crate::intent::{Cohort, Layout, MigStrategy, Sharing};
use crate::report::{MigProfileCount, VendorReport};
use crate::vendor::{Owner, Vendor};

/// What must be seen before a node counts as ready.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Expected {
    /// Device plugin: exactly these extended resources with these counts, and every other one of the vendor 0 or absent.
    Resources(BTreeMap<String, i64>),
    /// Device plugin with the user's own configuration: at least one resource of the vendor above 0.
    AnyResource,
    /// DRA: this many devices in the pool's newest, complete generation.
    Devices {
        /// All devices.
        devices: usize,
        /// Of these, MIG devices.
        mig_devices: usize,
    },
    /// DRA, where the driver makes up devices of its own: at least so many in the pool's newest, complete generation.
    AtLeastDevices(usize),
}

/// Extended resource of a whole GPU, and under strategy `Single` of a MIG device.
const NVIDIA_GPU: &str = "nvidia.com/gpu";
/// Extended resource of a Neuron device.
const NEURON_DEVICE: &str = "aws.amazon.com/neuron";
/// Extended resource of a *logical* NeuronCore. The same silicon as [`NEURON_DEVICE`], advertised a second time.
const NEURON_CORE: &str = "aws.amazon.com/neuroncore";
/// What `renameByDefault` appends.
const SHARED_SUFFIX: &str = ".shared";

/// Computes it from the cohort and the agent's report, or says why it cannot be.
///
/// # Errors
/// A blocker naming the layout that the strategy cannot advertise (mixed instances under `Single`), or the inventory that is
/// missing.
pub fn expected(cohort: &Cohort, report: &VendorReport) -> Result<Expected, Blocker> {
    let devices = count(report.inventory.devices);
    if devices == 0 {
        return Err(Blocker::new(
            Reason::NoHardware,
            format!(
                "the driver serves no {} device, so there is nothing to advertise",
                cohort.vendor
            ),
        ));
    }
    match (cohort.vendor, cohort.owner) {
        (Vendor::Nvidia, Owner::DevicePlugin) => nvidia_plugin(cohort, report),
        (Vendor::Nvidia, Owner::Dra) => {
            let geometry = Geometry::of(cohort, report)?;
            let mig_devices = geometry.instance_count();
            let devices = geometry.full_gpus + mig_devices;
            if cohort.dra.open_device_list {
                // One device for each GPU at the very least, whatever the driver makes of its geometry.
                return Ok(Expected::AtLeastDevices(count(report.inventory.devices)));
            }
            if devices == 0 {
                return Err(geometry.nothing_to_advertise(cohort));
            }
            Ok(Expected::Devices {
                devices,
                mig_devices,
            })
        }
        (Vendor::Neuron, Owner::DevicePlugin) => neuron_plugin(cohort, report, devices),
        (Vendor::Neuron, Owner::Dra) => Ok(
            match report
                .instance_type
                .as_deref()
                .and_then(catalogue::neuron_instance)
            {
                Some(instance) if instance.ultra_server => Expected::AtLeastDevices(devices),
                Some(_) | None => Expected::Devices {
                    devices,
                    mig_devices: 0,
                },
            },
        ),
    }
}

/// Geometry of all GPUs of a node.
#[derive(Debug, Default, PartialEq, Eq)]
struct Geometry {
    /// GPUs with MIG off.
    full_gpus: usize,
    /// GPUs with MIG on and no instance.
    empty_gpus: usize,
    /// Profile → count, for each GPU with instances, by minor number.
    per_gpu: BTreeMap<u32, BTreeMap<String, i64>>,
}

impl Geometry {
    fn of(cohort: &Cohort, report: &VendorReport) -> Result<Self, Blocker> {
        match &cohort.layout {
            None => Ok(Self::read_back(report)),
            Some(Layout::Mig(layouts)) => wanted_on(layouts, report)
                .map(|wanted| Self::wanted(&wanted, count(report.inventory.devices)))
                .map_err(|gone| {
                    Blocker::new(
                        Reason::LayoutInfeasible,
                        format!("the layout of cohort {} names {gone}", cohort.name),
                    )
                }),
            Some(Layout::LogicalNeuronCore(_)) => Err(Blocker::new(
                Reason::LayoutInfeasible,
                format!(
                    "cohort {} sets logicalNeuronCore, which NVIDIA GPUs do not have",
                    cohort.name
                ),
            )),
        }
    }

    /// What the host says.
    fn read_back(report: &VendorReport) -> Self {
        let per_gpu: BTreeMap<u32, BTreeMap<String, i64>> = report
            .layout
            .mig
            .iter()
            .filter(|(_, instances)| !instances.is_empty())
            .filter_map(|(minor, instances)| Some((minor.parse().ok()?, profiles(instances))))
            .collect();
        let mig_gpus = count(report.layout.mig_enabled_gpus).max(per_gpu.len());
        Self {
            full_gpus: count(report.inventory.devices).saturating_sub(mig_gpus),
            empty_gpus: mig_gpus - per_gpu.len(),
            per_gpu,
        }
    }

    /// What the layout asks for on `gpus` GPUs.
    fn wanted(wanted: &BTreeMap<u32, Vec<MigProfileCount>>, gpus: usize) -> Self {
        Self {
            full_gpus: gpus.saturating_sub(wanted.len()),
            empty_gpus: 0,
            per_gpu: wanted
                .iter()
                .map(|(minor, instances)| (*minor, profiles(instances)))
                .collect(),
        }
    }

    /// Profile → count over all GPUs.
    fn instances(&self) -> BTreeMap<&str, i64> {
        let mut sum = BTreeMap::new();
        for (profile, count) in self.per_gpu.values().flatten() {
            *sum.entry(profile.as_str()).or_insert(0) += count;
        }
        sum
    }

    fn instance_count(&self) -> usize {
        self.per_gpu
            .values()
            .flat_map(BTreeMap::values)
            .map(|&count| usize::try_from(count).unwrap_or(0))
            .sum()
    }

    /// `2 GPUs with MIG off, 1 with MIG on but empty, 7 × 1g.10gb`.
    fn describe(&self) -> String {
        let mut parts = Vec::new();
        if self.full_gpus > 0 {
            parts.push(format!("{} GPU(s) with MIG off", self.full_gpus));
        }
        if self.empty_gpus > 0 {
            parts.push(format!(
                "{} GPU(s) with MIG on but no instance",
                self.empty_gpus
            ));
        }
        parts.extend(
            self.instances()
                .iter()
                .map(|(profile, count)| format!("{count} × {profile}")),
        );
        parts.join(", ")
    }

    fn nothing_to_advertise(&self, cohort: &Cohort) -> Blocker {
        self.cannot(
            cohort,
            "there is nothing to advertise: GPUs with MIG on are handed out by instance alone",
        )
    }

    fn cannot(&self, cohort: &Cohort, why: &str) -> Blocker {
        let (reason, whose) = match cohort.layout {
            Some(_) => (Reason::LayoutInfeasible, "the wanted layout"),
            None => (Reason::LayoutMismatch, "the geometry found on the host"),
        };
        Blocker::new(reason, format!("{whose} is {}, and {why}", self.describe()))
    }
}

fn nvidia_plugin(cohort: &Cohort, report: &VendorReport) -> Result<Expected, Blocker> {
    if cohort.sharing == Sharing::UserConfig {
        return Ok(Expected::AnyResource);
    }
    let geometry = Geometry::of(cohort, report)?;
    let mut resources = BTreeMap::new();
    match cohort.mig_strategy.unwrap_or(MigStrategy::None) {
        // Physical GPUs are advertised whether or not MIG is on (device plugin 0.20.0).
        MigStrategy::None => {
            resources.insert(NVIDIA_GPU.to_owned(), i64::from(report.inventory.devices));
        }
        MigStrategy::Single if geometry.per_gpu.is_empty() && geometry.empty_gpus == 0 => {
            resources.insert(NVIDIA_GPU.to_owned(), i64::from(report.inventory.devices));
        }
        MigStrategy::Single => {
            let profiles = geometry.instances();
            if geometry.empty_gpus > 0 {
                return Err(geometry.cannot(cohort, "under migStrategy Single every GPU with MIG on needs an instance: the plugin would exit"));
            }
            if geometry.full_gpus > 0 {
                return Err(geometry.cannot(cohort, "under migStrategy Single MIG must be on for all GPUs or for none: the plugin would exit"));
            }
            if profiles.len() > 1 {
                return Err(geometry.cannot(
                    cohort,
                    "under migStrategy Single all instances must be alike: the plugin would exit",
                ));
            }
            resources.insert(NVIDIA_GPU.to_owned(), profiles.values().sum());
        }
        MigStrategy::Mixed => {
            if geometry
                .instances()
                .contains_key(MigProfileCount::UNKNOWN_PROFILE)
            {
                return Err(Blocker::new(
                    Reason::UnknownGeometry,
                    format!(
                        "the host has {} MIG device(s) whose profiles nothing on it names without NVML, so the resources that migStrategy \
                         Mixed advertises cannot be checked; name them in nvidia.mig.layouts of cohort {}, or set migStrategy: Single \
                         where all are alike",
                        geometry.instance_count(),
                        cohort.name
                    ),
                ));
            }
            if let Some(gpus) = i64::try_from(geometry.full_gpus)
                .ok()
                .filter(|&gpus| gpus > 0)
            {
                resources.insert(NVIDIA_GPU.to_owned(), gpus);
            }
            // Names with a compute part of their own (`1c.3g.20gb`) are not advertised: the plugin takes only instances that
            // are whole.
            for (profile, count) in geometry
                .instances()
                .into_iter()
                .filter(|(profile, _)| !profile.contains("c."))
            {
                *resources.entry(mig_resource(profile)).or_insert(0) += count;
            }
        }
    }
    if resources.values().all(|&count| count == 0) {
        return Err(geometry.nothing_to_advertise(cohort));
    }
    Ok(Expected::Resources(shared(resources, &cohort.sharing)))
}

fn neuron_plugin(
    cohort: &Cohort,
    report: &VendorReport,
    devices: usize,
) -> Result<Expected, Blocker> {
    let family = catalogue::neuron_family(Some(report), None);
    let devices_i64 = i64::try_from(devices).unwrap_or(i64::MAX);
    let physical = report
        .inventory
        .physical_cores
        .map(i64::from)
        .or_else(|| family.map(|family| devices_i64 * i64::from(family.cores_per_device)));
    let in_force = report
        .layout
        .logical_neuron_core
        .or_else(|| family.map(|family| family.default_lnc));
    let cores = match cohort.layout {
        Some(Layout::LogicalNeuronCore(wanted)) => {
            physical.map(|cores| cores / i64::from(wanted.max(1)))
        }
        None => report
            .inventory
            .logical_cores
            .map(i64::from)
            .or_else(|| Some(physical? / i64::from(in_force?.max(1)))),
        Some(Layout::Mig(_)) => {
            return Err(Blocker::new(
                Reason::LayoutInfeasible,
                format!(
                    "cohort {} sets a MIG layout, which Neuron devices do not have",
                    cohort.name
                ),
            ));
        }
    };
    let Some(cores) = cores.filter(|&cores| cores > 0) else {
        let model = report
            .inventory
            .models
            .first()
            .map_or("unknown", |model| model.name.as_str());
        return Err(Blocker::new(
            Reason::UnknownGeometry,
            format!(
                "the host does not say how many NeuronCores its {devices} device(s) have (model {model}, instance type {}), so the \
                 count of {NEURON_CORE} cannot be checked",
                report.instance_type.as_deref().unwrap_or("unknown"),
            ),
        ));
    };
    Ok(Expected::Resources(BTreeMap::from([
        (NEURON_DEVICE.to_owned(), devices_i64),
        (NEURON_CORE.to_owned(), cores),
    ])))
}

/// `nvidia.com/mig-<profile>`, as the plugin advertises a profile under strategy `Mixed`.
fn mig_resource(profile: &str) -> String {
    format!("nvidia.com/mig-{}", profile.replace('+', "."))
}

/// Multiplies and renames what is shared.
fn shared(resources: BTreeMap<String, i64>, sharing: &Sharing) -> BTreeMap<String, i64> {
    let (rename, replicas) = match sharing {
        Sharing::TimeSlicing { rename, replicas } | Sharing::Mps { rename, replicas } => {
            (*rename, replicas)
        }
        Sharing::Exclusive | Sharing::UserConfig => return resources,
    };
    resources
        .into_iter()
        .map(|(name, count)| match replicas.get(&name) {
            Some(&replicas) if rename => (
                format!("{name}{SHARED_SUFFIX}"),
                count * i64::from(replicas),
            ),
            Some(&replicas) => (name, count * i64::from(replicas)),
            None => (name, count),
        })
        .collect()
}

fn profiles(instances: &[MigProfileCount]) -> BTreeMap<String, i64> {
    let mut sum = BTreeMap::new();
    for instance in instances.iter().filter(|instance| instance.count > 0) {
        *sum.entry(instance.profile.clone()).or_insert(0) += i64::from(instance.count);
    }
    sum
}

/// A count that the schema bounds below at 0.
fn count(number: i32) -> usize {
    usize::try_from(number).unwrap_or(0)
}

#[cfg(test)]
mod tests;
