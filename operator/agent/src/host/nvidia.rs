//! NVIDIA's driver and GPUs, from procfs alone: no library, no device node.

use std::collections::BTreeMap;

use freehold_core::report::{Inventory, Model};

use super::{Host, ReadError};

/// The driver's version; there while the driver is loaded.
pub const VERSION: &str = "/proc/driver/nvidia/version";
const GPUS: &str = "/proc/driver/nvidia/gpus";
const MODULE: &str = "/sys/module/nvidia";

/// Driver and GPUs.
pub fn inventory(host: &Host, errors: &mut Vec<ReadError>) -> Inventory {
    let driver_version = super::inventory::noted(errors, None, || driver_version(host));
    let gpus = super::inventory::noted(errors, Vec::new(), || {
        host.names(GPUS).map(Option::unwrap_or_default)
    });
    let mut models = BTreeMap::<String, i32>::new();
    for gpu in gpus {
        let path = format!("{GPUS}/{gpu}/information");
        let gpu = super::inventory::noted(errors, Gpu::default(), || {
            let text = host
                .text(&path)?
                .ok_or_else(|| ReadError::new(path.as_str(), "no such file"))?;
            Ok(Gpu::parse(&text))
        });
        if !gpu.excluded {
            let count = models.entry(gpu.model).or_default();
            *count = count.saturating_add(1);
        }
    }
    Inventory {
        // GPUs without a version file are still GPUs that a driver serves.
        driver_version: driver_version.or_else(|| (!models.is_empty()).then(String::new)),
        devices: models
            .values()
            .fold(0, |sum, count| sum.saturating_add(*count)),
        models: models
            .into_iter()
            .map(|(name, count)| Model {
                name,
                count,
                memory_mib: None,
            })
            .collect(),
        physical_cores: None,
        logical_cores: None,
    }
}

/// The driver's version: `None` without a driver, empty when it is loaded and says nothing usable.
fn driver_version(host: &Host) -> Result<Option<String>, ReadError> {
    let text = host.text(VERSION)?;
    if let Some(version) = text.as_deref().and_then(parse_version) {
        return Ok(Some(version.to_owned()));
    }
    let module = host.text(&format!("{MODULE}/version"))?;
    let loaded = text.is_some() || module.is_some() || host.exists(MODULE)?;
    Ok(loaded.then(|| module.unwrap_or_default()))
}

/// The version in `/proc/driver/nvidia/version`, whose first line reads
/// `NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.12  Wed Sep 20 …` or, for the open module,
/// `NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build …`.
fn parse_version(text: &str) -> Option<&str> {
    let line = text
        .lines()
        .find(|line| line.starts_with("NVRM version:"))?;
    line.split_whitespace().find(|word| {
        let mut parts = word.split('.');
        word.contains('.')
            && parts.all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()))
    })
}

/// One `/proc/driver/nvidia/gpus/<PCI address>/information`.
#[derive(Debug, PartialEq, Eq)]
struct Gpu {
    model: String,
    excluded: bool,
}

impl Default for Gpu {
    fn default() -> Self {
        Self {
            model: "unknown".to_owned(),
            excluded: false,
        }
    }
}

impl Gpu {
    fn parse(text: &str) -> Self {
        let mut gpu = Self::default();
        for (key, value) in text.lines().filter_map(|line| line.split_once(':')) {
            match (key.trim(), value.trim()) {
                ("Model", model) if !model.is_empty() => {
                    gpu.model = model.chars().take(64).collect();
                }
                // A GPU that the driver was told to leave alone; drivers before 470 say "Blacklisted".
                ("GPU Excluded" | "Blacklisted", value) => gpu.excluded = value == "Yes",
                _ => {}
            }
        }
        gpu
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_of_module_name_their_version() {
        let closed = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.12  Wed Sep 20 09:35:17 UTC 2023\nGCC version: gcc 12.2.0";
        let open = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build  (root@h)  Thu Jan 23";
        assert_eq!(parse_version(closed), Some("535.104.12"));
        assert_eq!(parse_version(open), Some("570.86.15"));
    }

    #[test]
    fn the_compiler_s_version_is_not_the_driver_s() {
        assert_eq!(
            parse_version(
                "NVRM version: NVIDIA UNIX x86_64 Kernel Module\nGCC version:  gcc version 12.2.0"
            ),
            None
        );
    }

    #[test]
    fn an_excluded_gpu_is_recognised_under_both_names() {
        assert!(Gpu::parse("Model: \t\t NVIDIA A100-SXM4-40GB\nGPU Excluded:\t Yes\n").excluded);
        assert!(Gpu::parse("Model: \t\t Tesla V100\nBlacklisted:\t Yes\n").excluded);
        let served =
            Gpu::parse("Model: \t\t NVIDIA A100-SXM4-40GB\nIRQ:   \t\t 180\nGPU Excluded:\t No\n");
        assert_eq!(
            served,
            Gpu {
                model: "NVIDIA A100-SXM4-40GB".into(),
                excluded: false
            }
        );
    }
}
