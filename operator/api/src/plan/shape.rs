//! The hash over what changes advertised names or counts.
//!
//! A node whose operand runs under another shape must be fenced and drained before the operand restarts, so this hash must
//! stay equal across releases while the meaning is equal: a different text here would drain whole fleets on an upgrade. The
//! text is therefore written out field by field rather than derived from a type, and a test pins it. A new setting adds a
//! line only when it differs from its default.

use std::fmt::Write as _;

use freehold_core::intent::{Cohort, Layout, MigStrategy, Sharing};
use sha2::{Digest as _, Sha256};

use super::Operand;

/// Bytes of the digest that are kept: 64 bits are plenty to tell a few configurations apart.
const HASH_BYTES: usize = 8;

/// Short hexadecimal SHA-256 of a text.
pub(super) fn digest(text: &str) -> String {
    Sha256::digest(text.as_bytes())
        .iter()
        .take(HASH_BYTES)
        .fold(String::new(), |mut hex, byte| {
            // Writing to a String cannot fail.
            let _ = write!(hex, "{byte:02x}");
            hex
        })
}

/// The cohort's shape as far as the resource alone decides it.
pub(super) fn of(cohort: &Cohort, operand: &Operand) -> String {
    digest(&text(cohort, operand))
}

fn text(cohort: &Cohort, operand: &Operand) -> String {
    let mut lines = vec![
        format!("vendor={}", cohort.vendor.key()),
        format!("owner={}", cohort.owner.word()),
    ];
    match cohort.mig_strategy {
        None | Some(MigStrategy::None) => {}
        Some(MigStrategy::Single) => lines.push("mig-strategy=single".into()),
        Some(MigStrategy::Mixed) => lines.push("mig-strategy=mixed".into()),
    }
    match &cohort.sharing {
        Sharing::Exclusive => {}
        Sharing::TimeSlicing { rename, replicas } => {
            lines.push(format!("time-slicing rename={rename}"));
            lines.extend(
                replicas
                    .iter()
                    .map(|(resource, replicas)| format!("replicas {resource}={replicas}")),
            );
        }
        Sharing::Mps { rename, replicas } => {
            lines.push(format!("mps rename={rename}"));
            lines.extend(
                replicas
                    .iter()
                    .map(|(resource, replicas)| format!("replicas {resource}={replicas}")),
            );
        }
        Sharing::UserConfig => {
            let (name, key) = cohort.config_map.clone().unwrap_or_default();
            lines.push(format!("config {name}/{key}"));
        }
    }
    match &cohort.layout {
        None => {}
        Some(Layout::LogicalNeuronCore(value)) => lines.push(format!("lnc={value}")),
        Some(Layout::Mig(layouts)) => {
            for layout in layouts {
                let gpus = layout.gpus.as_ref().map_or_else(
                    || "all".to_owned(),
                    |gpus| {
                        gpus.iter()
                            .map(u32::to_string)
                            .collect::<Vec<_>>()
                            .join(",")
                    },
                );
                let instances = layout
                    .instances
                    .iter()
                    .map(|instance| format!(" {}={}", instance.profile, instance.count))
                    .collect::<String>();
                lines.push(format!("mig {gpus}{instances}"));
            }
        }
    }
    match operand {
        // Every gate changes either what the slices hold or how claims are prepared, and a driver restarted with other gates
        // may refuse the claims its predecessor prepared. So none is changed under a claim. A gate that is off is as good as
        // absent: all gates kept here are off by default (driver 0.5.0).
        Operand::NvidiaDra(dra) => {
            lines.extend(
                dra.feature_gates
                    .iter()
                    .filter(|(_, on)| **on)
                    .map(|(gate, _)| format!("gate {gate}")),
            );
        }
        Operand::NvidiaDevicePlugin(_) | Operand::NeuronDevicePlugin | Operand::NeuronDra => {}
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::digest;

    #[test]
    fn the_digest_is_the_head_of_sha256() {
        assert_eq!(digest("abc"), "ba7816bf8f01cfea");
    }
}
