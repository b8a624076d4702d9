//! Verifying: what is advertised equals inventory × layout (× replicas), and nobody else advertises.

use super::unmet::Unmet;
use super::{Facts, OperandPod, Target, proofs, shaping};
use crate::blocker::Reason;
use crate::expect::Expected;
use crate::names::OPERAND_NAMESPACE;
use crate::vendor::Owner;

/// What the target must advertise is what is advertised.
pub(super) fn verified(facts: &Facts, target: &Target) -> Result<(), Unmet> {
    dual(facts, target.owner)?;
    let advertised = advertised(facts, target);
    match shaping::pending(facts, target) {
        // An operand that waits for its layout cannot advertise; that it waits is worth more than what it lacks.
        Some(pending) if advertised.is_err() || !pending.read_back => Err(pending.unmet),
        Some(_) | None => advertised,
    }
}

fn advertised(facts: &Facts, target: &Target) -> Result<(), Unmet> {
    let report = proofs::report(facts)?;
    let Some(operand) = running(facts, target) else {
        return Err(not_running(facts, target));
    };
    let expected = target.expected.as_ref().map_err(|blocker| Unmet::Change {
        blocker: blocker.clone(),
        at_once: true,
    })?;
    if report.word != Some(target.owner) {
        return Err(Unmet::soon(
            Reason::WordPending,
            format!(
                "the owner word on the node is {}, expected {}",
                report.word.map_or("none", Owner::word),
                target.owner.word()
            ),
        ));
    }
    match expected {
        Expected::Resources(resources) => resources_match(facts, operand, resources),
        Expected::AnyResource if facts.node.allocatable.values().any(|count| *count > 0) => Ok(()),
        Expected::AnyResource => Err(lost(
            operand,
            "no extended resource of the vendor is allocatable",
        )),
        Expected::Devices {
            devices,
            mig_devices,
        } => devices_match(facts, operand, *devices, *mig_devices),
        Expected::AtLeastDevices(devices)
            if facts.slices.complete && facts.slices.devices >= *devices =>
        {
            Ok(())
        }
        // What the driver makes up beyond the lowest count is its own; only the shortfall is a difference.
        Expected::AtLeastDevices(devices) => {
            devices_match(facts, operand, *devices, facts.slices.mig_devices)
        }
    }
}

/// It has also been so for a while.
pub(super) fn verified_and_stable(facts: &Facts, target: &Target) -> Result<(), Unmet> {
    verified(facts, target)?;
    match facts
        .timing
        .stable_s
        .saturating_sub(facts.timing.advert_stable_s)
    {
        0 => Ok(()),
        left => Err(Unmet::Time(left)),
    }
}

/// Nobody but `owner` advertises.
fn dual(facts: &Facts, owner: Owner) -> Result<(), Unmet> {
    let plugin = facts.node.allocatable.iter().find(|(_, count)| **count > 0);
    let slices = facts.slices.count;
    let driver = facts.vendor.dra_driver();
    if let Some(other) = facts
        .operands
        .iter()
        .filter(|pod| pod.owner != owner && pod.ready)
        .min()
    {
        return Err(Unmet::at_once(
            Reason::DualAdvertisement,
            format!(
                "the node belongs to {owner}, yet Pod {OPERAND_NAMESPACE}/{} of {} runs on it",
                other.name, other.owner
            ),
        ));
    }
    match (owner, plugin) {
        (Owner::DevicePlugin | Owner::Dra, Some((resource, count))) if slices > 0 => {
            Err(Unmet::at_once(
                Reason::DualAdvertisement,
                format!(
                    "the node belongs to {owner}, yet both {count} allocatable {resource} and {slices} ResourceSlice(s) of driver {driver} \
                 advertise its devices"
                ),
            ))
        }
        (Owner::Dra, Some((resource, count))) => Err(Unmet::soon(
            Reason::HostPluginActive,
            format!(
                "the node belongs to DRA, yet {count} {resource} are allocatable and driver {driver} publishes nothing: a device \
                 plugin of the host itself is active"
            ),
        )),
        (Owner::DevicePlugin, None) if slices > 0 => Err(Unmet::soon(
            Reason::AdvertisementMismatch,
            format!(
                "the node belongs to DevicePlugin, yet {slices} ResourceSlice(s) of driver {driver} advertise its devices"
            ),
        )),
        (Owner::DevicePlugin, Some(_) | None) | (Owner::Dra, None) => Ok(()),
    }
}

fn running<'a>(facts: &'a Facts, target: &Target) -> Option<&'a OperandPod> {
    facts
        .operands
        .iter()
        .find(|pod| is_targets(pod, target) && pod.ready && !pod.terminating)
}

fn is_targets(pod: &OperandPod, target: &Target) -> bool {
    pod.owner == target.owner && pod.cohort == target.cohort
}

fn not_running(facts: &Facts, target: &Target) -> Unmet {
    let pod = facts
        .operands
        .iter()
        .filter(|pod| is_targets(pod, target))
        .min_by_key(|pod| (pod.terminating, *pod));
    let message = pod.map_or_else(
        || {
            format!(
                "no pod of {} for cohort {} is on this node, expected one",
                target.owner, target.cohort
            )
        },
        |pod| {
            let state = match (&pod.waiting, pod.terminating) {
                (_, true) => "is ending",
                (Some(waiting), false) => waiting,
                (None, false) => "is not ready",
            };
            format!(
                "Pod {OPERAND_NAMESPACE}/{}: {state}, expected it to run",
                pod.name
            )
        },
    );
    Unmet::soon(Reason::OperandNotRunning, message)
}

fn lost(operand: &OperandPod, what: &str) -> Unmet {
    Unmet::soon(
        Reason::AdvertisementLost,
        format!("Pod {OPERAND_NAMESPACE}/{} runs, yet {what}", operand.name),
    )
}

fn resources_match(
    facts: &Facts,
    operand: &OperandPod,
    expected: &std::collections::BTreeMap<String, i64>,
) -> Result<(), Unmet> {
    let found = &facts.node.allocatable;
    if expected.values().any(|count| *count > 0) && found.values().all(|count| *count <= 0) {
        return Err(lost(
            operand,
            &format!(
                "nothing is allocatable, expected {}",
                listing(expected.iter())
            ),
        ));
    }
    let short = expected
        .iter()
        .find(|(name, count)| found.get(*name).copied().unwrap_or(0) != **count);
    let extra = found
        .iter()
        .find(|(name, count)| **count > 0 && !expected.contains_key(*name));
    if short.is_none() && extra.is_none() {
        return Ok(());
    }
    Err(Unmet::soon(
        Reason::AdvertisementMismatch,
        format!(
            "allocatable is {}, expected {}",
            listing(found.iter().filter(|(_, count)| **count > 0)),
            listing(expected.iter())
        ),
    ))
}

fn devices_match(
    facts: &Facts,
    operand: &OperandPod,
    devices: usize,
    mig_devices: usize,
) -> Result<(), Unmet> {
    let slices = &facts.slices;
    let driver = facts.vendor.dra_driver();
    if slices.complete && slices.devices == devices && slices.mig_devices == mig_devices {
        return Ok(());
    }
    if slices.count == 0 {
        return Err(lost(
            operand,
            &format!(
                "driver {driver} publishes no ResourceSlice for this node, expected {devices} device(s)"
            ),
        ));
    }
    let complete = if slices.complete {
        ""
    } else {
        " in an incomplete generation"
    };
    Err(Unmet::soon(
        Reason::AdvertisementMismatch,
        format!(
            "driver {driver} publishes {} device(s), {} of them MIG devices{complete}, expected {devices} and {mig_devices}",
            slices.devices, slices.mig_devices
        ),
    ))
}

fn listing<'a>(resources: impl Iterator<Item = (&'a String, &'a i64)>) -> String {
    let listed: Vec<String> = resources
        .map(|(name, count)| format!("{name}={count}"))
        .collect();
    if listed.is_empty() {
        "nothing".into()
    } else {
        listed.join(", ")
    }
}
