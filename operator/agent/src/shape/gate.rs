//! Whether an operand whose cohort wants a layout may start.

use std::collections::BTreeMap;
use std::path::Path;

use freehold_core::report::ShapingOutcome;

use super::order;
use super::shaped::{self, Shaped};
use crate::host::{Host, ReadError, mig, nvidia};

/// Whether there are as many MIG instances on each GPU as the shaper found. A boot may load the driver more than once, and each
/// time the instances are gone (MIG user guide, persistence).
fn still_there(shaped: &Shaped, host: &Host) -> Result<(), String> {
    let trouble = |error: ReadError| format!("whether the layout is still in force: {error}");
    // Without a driver in sight there is nothing to compare with, and nothing that an operand could hand out.
    if host.text(nvidia::VERSION).map_err(trouble)?.is_none() {
        return Ok(());
    }
    let mut found = BTreeMap::<u32, usize>::new();
    for (instance, _) in mig::instances(host).map_err(trouble)? {
        *found.entry(instance.gpu).or_default() += 1;
    }
    let told = shaped.instances.iter().filter(|(_, of)| !of.is_empty());
    let told: BTreeMap<u32, usize> = told.map(|(gpu, of)| (*gpu, of.len())).collect();
    if found == told {
        return Ok(());
    }
    let total = |of: &BTreeMap<u32, usize>| of.values().sum::<usize>();
    Err(format!(
        "the ordered layout was in force with {} MIG instances on {} GPUs, and there are {} on {} now: the node's shaper must look again",
        total(&told),
        told.len(),
        total(&found),
        found.len()
    ))
}

/// Whether the ordered layout is in force, verified in the present boot. An order to leave the geometry as it is has nothing to
/// be verified: the operand is of a cohort whose layout was just withdrawn here, and may be what its own claims wait for.
///
/// `host` is where the driver shows its MIG instances, if that is known.
///
/// # Errors
/// What it waits for, in words.
pub fn verified(directory: &Path, boot_id: &str, host: Option<&Host>) -> Result<(), String> {
    let at = directory.display();
    let order = order::read(directory)
        .map_err(|error| format!("the ordered layout in {at}: {error}"))?
        .ok_or_else(|| "no layout is ordered on this node yet".to_owned())?;
    let Some(order) = order.layout else {
        return Ok(());
    };
    let shaped = shaped::read(directory)
        .map_err(|error| format!("what the shaper says in {at}: {error}"))?
        .ok_or_else(|| "the node's shaper has not looked at the layout yet".to_owned())?;
    if shaped.has_in_force(&order, boot_id) {
        return host.map_or(Ok(()), |host| still_there(&shaped, host));
    }
    if shaped.boot_id != boot_id {
        return Err("the node's shaper has not looked at the layout in this boot yet".to_owned());
    }
    if shaped.layout() != Some(&order) {
        return Err("the node's shaper has not looked at the layout ordered last yet".to_owned());
    }
    let message = shaped
        .shaping
        .message
        .map(|message| format!(": {message}"))
        .unwrap_or_default();
    let state = match shaped.shaping.outcome {
        ShapingOutcome::InForce | ShapingOutcome::Idle | ShapingOutcome::Working => "is being made",
        ShapingOutcome::Busy => "is not in force, and an operand or a process holds the devices",
        ShapingOutcome::Infeasible => "cannot be had on this hardware",
        ShapingOutcome::ResetRequired => "waits for a GPU reset",
        ShapingOutcome::RebootRequired => "waits for the host to restart",
        ShapingOutcome::Failed => "could not be made",
    };
    Err(format!("the ordered layout {state}{message}"))
}

#[cfg(test)]
mod tests {
    use freehold_core::intent::Layout;
    use freehold_core::report::Shaping;

    use super::super::engine::Seen;
    use super::super::order::{LayoutOrder, Moment, obey};
    use super::*;

    #[test]
    fn a_layout_that_went_with_its_driver_is_not_verified_any_more() {
        let root = tempfile::tempdir().unwrap();
        let host = Host::new(root.path());
        let state = root.path().join("state");
        let order = LayoutOrder {
            object_uid: "an-1".into(),
            object_created: 0,
            generation: 1,
            layout: Some(Layout::Mig(Vec::new())),
        };
        let _ = obey(&state, &order, Moment::Idle);
        let of = |ids: [u32; 2]| ids.map(|id| (id, "3g.40gb".to_owned())).into();
        let seen = Seen {
            instances: [(0, of([1, 2])), (4, of([2, 5]))].into(),
            ..Seen::nothing(Shaping {
                outcome: ShapingOutcome::InForce,
                message: None,
            })
        };
        shaped::write(&state, &Shaped::new("boot-1".into(), Some(order), seen)).unwrap();
        let verified = || verified(&state, "boot-1", Some(&host));
        verified().unwrap();
        let version = host.at(nvidia::VERSION);
        std::fs::create_dir_all(version.parent().unwrap()).unwrap();
        std::fs::write(&version, "NVRM version: 580.95.05").unwrap();
        let why = verified().unwrap_err();
        assert!(
            why.contains("4 MIG instances on 2 GPUs, and there are 0 on 0 now"),
            "{why}"
        );
        for instance in [
            "gpu0/mig/gi1",
            "gpu0/mig/gi2",
            "gpu4/mig/gi2",
            "gpu4/mig/gi5",
        ] {
            let directory = host.at(&format!("{}/{instance}/ci0", mig::CAPABILITIES));
            std::fs::create_dir_all(directory).unwrap();
        }
        verified().unwrap();
        std::fs::remove_dir_all(host.at(&format!("{}/gpu4/mig/gi5", mig::CAPABILITIES))).unwrap();
        assert!(verified().is_err());
        super::verified(&state, "boot-1", None).unwrap();
    }
}
