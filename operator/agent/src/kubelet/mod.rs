//! Who uses the devices, from the records that tell the truth.
//!
//! Measured on a kubelet 1.36.3: the kubelet's own in-use metric reads 0 for ever after a restart, PodResources forgets a
//! force-deleted pod two seconds before its processes end, and the API forgets it at once. What holds:
//! - device plugin: an entry of the device manager's checkpoint counts while its pod still has a home ([`homes`]);
//! - DRA: a claim counts while the kubelet's `dra_manager_state`, the driver's own checkpoint *or* a per-claim CDI file
//!   names it.
//!
//! A record that is there and cannot be read makes the answer unknown, never idle.

pub mod claims;
pub mod devices;
pub mod homes;
pub mod sockets;

use std::collections::{BTreeMap, BTreeSet};

use freehold_core::report::InUse;
use freehold_core::vendor::{PerVendor, Vendor};

use crate::host::{Host, MAX_RECORD_BYTES, ReadError};

/// Where every kubelet keeps plugin sockets and the device manager's checkpoint, whatever its root directory.
pub const DEVICE_PLUGINS: &str = "/var/lib/kubelet/device-plugins";
/// The kubelet's root directory unless told otherwise.
pub const DEFAULT_ROOT: &str = "/var/lib/kubelet";
/// Where CDI files that live until the next boot are written.
pub const CDI: &str = "/var/run/cdi";

/// Most holders named in a report: the API's bound.
const MAX_HOLDERS: usize = 5;
/// Longest holder name: the API's bound.
const MAX_HOLDER: usize = 256;

/// What a kubelet's records say about one vendor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Pods that hold a device of the device plugin.
    pub pods: BTreeSet<String>,
    /// Claims that are prepared, by UID, with `namespace/name` where a record tells it.
    pub claims: BTreeMap<String, Option<String>>,
    /// A record could not be read.
    pub unknown: bool,
}

impl Usage {
    /// As the report has it.
    #[must_use]
    pub fn in_use(&self) -> InUse {
        let claims = self
            .claims
            .iter()
            .map(|(uid, name)| format!("claim {}", name.as_ref().unwrap_or(uid)));
        let pods = self.pods.iter().map(|uid| format!("pod {uid}"));
        let count = |len| i32::try_from(len).unwrap_or(i32::MAX);
        InUse {
            device_plugin: count(self.pods.len()),
            dra: count(self.claims.len()),
            // Claims first: they are the ones that do not go away by themselves.
            holders: claims
                .chain(pods)
                .take(MAX_HOLDERS)
                .map(|name| name.chars().take(MAX_HOLDER).collect())
                .collect(),
            unknown: self.unknown,
        }
    }
}

/// Reads every record. What cannot be read is named in `errors` and makes the vendors it concerns unknown.
pub fn usage(
    host: &Host,
    roots: &[String],
    boot_id: &str,
    errors: &mut Vec<ReadError>,
) -> PerVendor<Usage> {
    let mut usage = PerVendor::<Usage>::default();
    let live = match live_roots(host, roots) {
        Ok(live) => live,
        Err(error) => {
            doubt_all(&mut usage, errors, error);
            Vec::new()
        }
    };
    if let Err(error) = device_plugin_pods(host, &live, &mut usage) {
        doubt_all(&mut usage, errors, error);
    }
    for root in &live {
        if let Err(error) = kubelet_claims(host, root, &mut usage) {
            doubt_all(&mut usage, errors, error);
        }
        for vendor in Vendor::ALL {
            match driver_claims(host, root, vendor, boot_id) {
                Ok(claims) => add_claims(usage.get_mut(vendor), claims),
                Err(error) => doubt(usage.get_mut(vendor), errors, error),
            }
        }
    }
    match host.names(CDI) {
        Ok(names) => {
            for name in names.unwrap_or_default() {
                for vendor in Vendor::ALL {
                    if let Some(uid) = claims::uid_in_cdi_name(&name, vendor) {
                        usage
                            .get_mut(vendor)
                            .claims
                            .entry(uid.to_owned())
                            .or_default();
                    }
                }
            }
        }
        Err(error) => doubt_all(&mut usage, errors, error),
    }
    usage
}

fn doubt(usage: &mut Usage, errors: &mut Vec<ReadError>, error: ReadError) {
    usage.unknown = true;
    errors.push(error);
}

fn doubt_all(usage: &mut PerVendor<Usage>, errors: &mut Vec<ReadError>, error: ReadError) {
    for vendor in Vendor::ALL {
        usage.get_mut(vendor).unknown = true;
    }
    errors.push(error);
}

/// The roots that a kubelet lives in. A root given for other nodes' sake may be missing or empty here.
fn live_roots<'a>(host: &Host, roots: &'a [String]) -> Result<Vec<&'a str>, ReadError> {
    let mut live = Vec::new();
    for root in roots {
        if host.exists(&format!("{root}/pods"))? {
            live.push(root.as_str());
        }
    }
    if live.is_empty() {
        return Err(ReadError::new(
            roots.join(", "),
            "no kubelet root: none has a 'pods' directory; set the cohort's kubeletRootDir to the kubelet's --root-dir",
        ));
    }
    Ok(live)
}

fn device_plugin_pods(
    host: &Host,
    roots: &[&str],
    usage: &mut PerVendor<Usage>,
) -> Result<(), ReadError> {
    let path = format!("{DEVICE_PLUGINS}/kubelet_internal_checkpoint");
    if !host.exists(DEVICE_PLUGINS)? {
        return Err(ReadError::new(
            DEVICE_PLUGINS,
            "no such directory: a kubelet makes it when it starts",
        ));
    }
    // A kubelet that never had a plugin has no checkpoint.
    let Some(bytes) = host.bytes(&path, MAX_RECORD_BYTES)? else {
        return Ok(());
    };
    let entries = devices::parse(&bytes).map_err(|problem| ReadError::new(path, problem))?;
    if entries.pods.is_empty() {
        return Ok(());
    }
    let homes = homes::Homes::new(host, roots);
    for (uid, vendors) in entries.pods {
        let homeless = homes.is_gone(&uid)?;
        for vendor in vendors {
            if !homeless {
                usage.get_mut(vendor).pods.insert(uid.clone());
            }
        }
    }
    Ok(())
}

fn kubelet_claims(host: &Host, root: &str, usage: &mut PerVendor<Usage>) -> Result<(), ReadError> {
    let path = format!("{root}/dra_manager_state");
    // A kubelet without DRA has no such file.
    let Some(bytes) = host.bytes(&path, MAX_RECORD_BYTES)? else {
        return Ok(());
    };
    let claims = claims::parse_kubelet(&bytes).map_err(|problem| ReadError::new(path, problem))?;
    for claim in claims {
        for vendor in claim.vendors {
            add_claims(
                usage.get_mut(vendor),
                [(claim.uid.clone(), claim.name.clone())],
            );
        }
    }
    Ok(())
}

fn driver_claims(
    host: &Host,
    root: &str,
    vendor: Vendor,
    boot_id: &str,
) -> Result<claims::ByUid, ReadError> {
    let path = format!("{root}/plugins/{}/checkpoint.json", vendor.dra_driver());
    match vendor {
        Vendor::Nvidia => {
            let Some(bytes) = host.bytes(&path, MAX_RECORD_BYTES)? else {
                return Ok(BTreeMap::new());
            };
            claims::parse_nvidia(&bytes, boot_id).map_err(|problem| ReadError::new(path, problem))
        }
        // AWS publishes no format for a record of the driver's own; the kubelet's state and the CDI files are what there is.
        Vendor::Neuron => Ok(BTreeMap::new()),
    }
}

fn add_claims(usage: &mut Usage, claims: impl IntoIterator<Item = (String, Option<String>)>) {
    for (uid, name) in claims {
        let known = usage.claims.entry(uid).or_default();
        if known.is_none() {
            *known = name;
        }
    }
}
