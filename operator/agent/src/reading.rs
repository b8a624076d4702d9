//! One look at the host: orders tried, then everything read.

use std::path::PathBuf;

use freehold_core::names::HOST_STATE_DIR;
use freehold_core::report::{MigProfileCount, VendorReport};
use freehold_core::tenure::layout_in_force;
use freehold_core::vendor::{PerVendor, Vendor};

use crate::host::{Host, ReadError, inventory};
use crate::interlock::order::{self, Outcome};
use crate::interlock::word;
use crate::kubelet::{self, Usage, sockets};
use crate::protocol::{Part, Reading, Request};
use crate::shape;
use crate::shape::order::{LayoutOrder, Moment};
use crate::shape::told::Told;

/// Most errors kept; a report takes five.
const MAX_ERRORS: usize = 16;

/// Reads one host.
#[derive(Clone, Debug)]
pub struct Witness {
    host: Host,
    kubelet_roots: Vec<String>,
}

impl Witness {
    /// For the host below `host_root`, whose kubelet lives in one of `kubelet_roots` (host paths).
    pub fn new(host_root: impl Into<PathBuf>, kubelet_roots: &[String]) -> Self {
        let trimmed = kubelet_roots
            .iter()
            .map(|root| root.trim_end_matches('/').to_owned());
        Self {
            host: Host::new(host_root),
            kubelet_roots: trimmed.collect(),
        }
    }

    /// Directory of a vendor's lock and word, as seen from here.
    #[must_use]
    pub fn state_directory(&self, vendor: Vendor) -> PathBuf {
        self.host.at(&state_path(vendor))
    }

    /// Tries the orders about the word, reads the host and what the shaper says, and tries the orders about the geometry by all
    /// that.
    #[must_use]
    pub fn observe(&self, request: &Request) -> Reading {
        let outcome_of = |vendor| {
            let order = request.orders.iter().find(|order| order.vendor == vendor)?;
            Some(order::obey(&self.state_directory(vendor), order))
        };
        let outcomes = PerVendor::from_fn(outcome_of);
        let mut errors = Vec::new();
        let boot_id = self.host.boot_id().unwrap_or_else(|error| {
            errors.push(error);
            String::new()
        });
        let usage = kubelet::usage(&self.host, &self.kubelet_roots, &boot_id, &mut errors);
        let mut part = |vendor| self.part(vendor, usage.get(vendor), &mut errors);
        let mut parts = PerVendor {
            nvidia: part(Vendor::Nvidia),
            neuron: part(Vendor::Neuron),
        };
        self.add_sockets(&mut parts, &mut errors);
        self.add_devices(&mut parts, request, &boot_id, &mut errors);
        let PerVendor { nvidia, neuron } = parts;
        let mut errors: Vec<_> = errors.iter().map(ToString::to_string).collect();
        errors.dedup();
        errors.truncate(MAX_ERRORS);
        Reading {
            boot_id,
            nvidia: Part {
                order: outcomes.nvidia,
                ..nvidia
            },
            neuron: Part {
                order: outcomes.neuron,
                ..neuron
            },
            errors,
        }
    }

    /// Holders and owner word.
    fn part(&self, vendor: Vendor, usage: &Usage, errors: &mut Vec<ReadError>) -> Part {
        let word = word::read(&self.state_directory(vendor)).unwrap_or_else(|error| {
            errors.push(ReadError::new(
                format!("{}/{}", state_path(vendor), word::WORD_FILE),
                error,
            ));
            None
        });
        Part {
            present: word.is_some() || !usage.pods.is_empty() || !usage.claims.is_empty(),
            report: VendorReport {
                word,
                in_use: usage.in_use(),
                ..VendorReport::default()
            },
            order: None,
            layout_order: None,
        }
    }

    /// Leaves an ordered layout for the shaper, and the leave to make it anew where the shaper waits for that. By now the part
    /// says whether anything is in use, and what the geometry is.
    fn order_layout(
        &self,
        vendor: Vendor,
        order: &LayoutOrder,
        part: &VendorReport,
        boot_id: &str,
        told: &Told,
    ) -> Outcome {
        let directory = self.state_directory(vendor);
        let is_met = order.layout.as_ref().is_some_and(|layout| {
            !boot_id.is_empty() && layout_in_force(layout, part) && names_all(part)
        });
        let moment = if part.in_use.is_idle() {
            Moment::Idle
        } else if is_met {
            Moment::Met(boot_id)
        } else {
            Moment::InUse(boot_id)
        };
        let outcome = shape::order::obey(&directory, order, moment);
        let (Outcome::InForce, Moment::Idle, Some(used)) =
            (&outcome, moment, told.awaits_leave(order.layout.as_ref()))
        else {
            return outcome;
        };
        match shape::order::give_leave(&directory, used) {
            Ok(_) => outcome,
            Err(error) => Outcome::Failed(error.to_string()),
        }
    }

    fn add_devices(
        &self,
        parts: &mut PerVendor<Part>,
        request: &Request,
        boot_id: &str,
        errors: &mut Vec<ReadError>,
    ) {
        let mut told = PerVendor::from_fn(|vendor| {
            let directory = self.state_directory(vendor);
            Told::read(&directory, &state_path(vendor), boot_id, errors)
        });
        let devices = inventory::devices(&self.host, told.nvidia.profiles(), errors);
        let instance_type = inventory::instance_type(&self.host).unwrap_or_else(|error| {
            errors.push(error);
            None
        });
        for vendor in Vendor::ALL {
            let (part, devices) = (parts.get_mut(vendor), devices.get(vendor));
            let told = told.get_mut(vendor);
            part.present |= devices.any();
            part.report.pci_devices = devices.pci;
            part.report.inventory = devices.inventory.clone();
            part.report.layout = devices.layout.clone();
            told.add_geometry(&mut part.report.layout);
            part.report.instance_type.clone_from(&instance_type);
            if let Some(order) = request.layouts.get(vendor) {
                part.layout_order =
                    Some(self.order_layout(vendor, order, &part.report, boot_id, told));
                told.read_order(&self.state_directory(vendor));
            }
            part.report.layout.shaping = told.shaping();
            part.report.layout.ordered = told.is_ordered();
        }
    }

    /// A directory of sockets that cannot be read leaves open whether somebody serves the devices, so nothing is attested.
    fn add_sockets(&self, parts: &mut PerVendor<Part>, errors: &mut Vec<ReadError>) {
        let mut doubt = |parts: &mut PerVendor<Part>, error| {
            errors.push(error);
            for vendor in Vendor::ALL {
                parts.get_mut(vendor).report.in_use.unknown = true;
            }
        };
        match sockets::plugins(&self.host) {
            Ok(found) => {
                for vendor in Vendor::ALL {
                    let part = parts.get_mut(vendor);
                    part.present |= !found.get(vendor).is_empty();
                    part.report.plugin_sockets.clone_from(found.get(vendor));
                }
            }
            Err(error) => doubt(parts, error),
        }
        match sockets::dra_registered(&self.host, &self.kubelet_roots) {
            Ok(found) => {
                for vendor in Vendor::ALL {
                    let part = parts.get_mut(vendor);
                    part.present |= *found.get(vendor);
                    part.report.dra_registered = *found.get(vendor);
                }
            }
            Err(error) => doubt(parts, error),
        }
    }
}

/// Whether every MIG instance has its name: without names a geometry is told from another only by numbers.
fn names_all(part: &VendorReport) -> bool {
    let mut instances = part.layout.mig.values().flatten();
    instances.all(|one| one.profile != MigProfileCount::UNKNOWN_PROFILE)
}

/// Host path of a vendor's lock and word.
fn state_path(vendor: Vendor) -> String {
    format!("{HOST_STATE_DIR}/{}", vendor.key())
}
