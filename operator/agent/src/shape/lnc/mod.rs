//! The engine for Neuron devices: the Logical NeuronCore setting, one file of the host.
//!
//! The Neuron runtime reads `/opt/aws/neuron/logical_nc_config` when a process starts, and the device plugin when it starts (AWS
//! Neuron documentation, Logical NeuronCore configuration). So the setting takes effect with the next process, without a driver
//! reload, and must not change between two processes of one job: the attestation that precedes an order is what prevents that.
//! What this engine can see of running processes itself is a second guard.

pub mod file;
mod users;

use std::io;

use freehold_core::catalogue;
use freehold_core::intent::Layout;
use freehold_core::report::{Inventory, Shaping, ShapingOutcome, VendorReport};

use super::engine::{Engine, Seen};
use crate::host::neuron::LNC_FILE;
use crate::host::{Host, MAX_SMALL_BYTES, inventory, neuron};

/// Makes the setting.
#[derive(Clone, Debug)]
pub struct Lnc {
    host: Host,
}

impl Lnc {
    /// On this host. The directory of the setting must be writable in it.
    #[must_use]
    pub const fn new(host: Host) -> Self {
        Self { host }
    }

    /// Devices, the setting in force, and what is wrong with it.
    fn read(&self) -> (Inventory, Option<i32>, Vec<String>) {
        let mut errors = Vec::new();
        let (inventory, layout) = neuron::inventory(&self.host, &mut errors);
        let errors = errors.iter().map(ToString::to_string).collect();
        (inventory, layout.logical_neuron_core, errors)
    }

    /// How the setting in force stands to the wanted one.
    fn compare(
        &self,
        inventory: &Inventory,
        in_force: Option<i32>,
        errors: &[String],
        wanted: u8,
    ) -> Shaping {
        if inventory.devices == 0 {
            let nothing = "the Neuron driver serves no device on this host";
            return shaping(ShapingOutcome::Failed, nothing);
        }
        if let Some(why) = self.impossible(inventory, wanted) {
            return shaping(ShapingOutcome::Infeasible, why);
        }
        if in_force == Some(i32::from(wanted)) {
            return Shaping {
                outcome: ShapingOutcome::InForce,
                message: None,
            };
        }
        let found = in_force.map_or_else(
            || {
                let why = errors.first().map_or("", String::as_str);
                format!("the setting in force cannot be told ({why})")
            },
            |found| format!("the Logical NeuronCore setting is {found}"),
        );
        shaping(
            ShapingOutcome::Working,
            format!("{found}, ordered is {wanted}"),
        )
    }

    /// Why this hardware cannot have the setting, if it cannot.
    fn impossible(&self, inventory: &Inventory, wanted: u8) -> Option<String> {
        if !matches!(wanted, 1 | 2) {
            return Some(format!(
                "there is no Logical NeuronCore setting {wanted}, only 1 and 2"
            ));
        }
        let instance_type = inventory::instance_type(&self.host).ok().flatten();
        let part = VendorReport {
            inventory: inventory.clone(),
            instance_type: instance_type.clone(),
            ..VendorReport::default()
        };
        let why = match catalogue::neuron_family(Some(&part), None) {
            Some(family) if family.lnc_configurable => return None,
            Some(family) => format!("is fixed at {} on {}", family.default_lnc, family.chip),
            None => "is not known to be configurable there".to_owned(),
        };
        let instance_type = instance_type.as_deref().unwrap_or("unknown");
        Some(format!(
            "instance type {instance_type}: the Logical NeuronCore setting {why}; ordered is {wanted}"
        ))
    }

    /// Leaves one line with the setting in the file, and everything in it that is not the setting as it is.
    fn write(&self, wanted: u8) -> io::Result<()> {
        let bytes = self
            .host
            .bytes(LNC_FILE, MAX_SMALL_BYTES)
            .map_err(io::Error::other)?
            .unwrap_or_default();
        let text = String::from_utf8(bytes).map_err(|_| {
            io::Error::new(
                io::ErrorKind::InvalidData,
                "holds something that is not text, which would be lost",
            )
        })?;
        let path = self.host.at(LNC_FILE);
        let (Some(directory), Some(name)) = (
            path.parent(),
            path.file_name().and_then(|name| name.to_str()),
        ) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        std::fs::create_dir_all(directory)?;
        crate::interlock::replace(directory, name, &file::with_setting(&text, wanted))
    }
}

impl Engine for Lnc {
    fn look(&mut self, wanted: Option<&Layout>) -> Seen {
        let (inventory, in_force, errors) = self.read();
        let shaping = match wanted {
            None => Shaping {
                outcome: ShapingOutcome::Idle,
                message: None,
            },
            Some(Layout::LogicalNeuronCore(wanted)) => {
                self.compare(&inventory, in_force, &errors, *wanted)
            }
            Some(Layout::Mig(_)) => shaping(
                ShapingOutcome::Infeasible,
                "MIG instances were ordered, which Neuron devices do not have",
            ),
        };
        Seen {
            logical_neuron_core: in_force,
            ..Seen::nothing(shaping)
        }
    }

    fn shape(&mut self, wanted: &Layout) -> Seen {
        let seen = self.look(Some(wanted));
        let Layout::LogicalNeuronCore(value) = wanted else {
            return seen;
        };
        if seen.shaping.outcome != ShapingOutcome::Working {
            return seen;
        }
        let differing = seen.shaping.message.clone().unwrap_or_default();
        let with = |outcome, message| Seen {
            shaping: shaping(outcome, message),
            ..seen.clone()
        };
        let users = users::of_devices(&self.host);
        if !users.is_empty() {
            let message = format!("{differing}; in use by {}", users.join(", "));
            return with(ShapingOutcome::Busy, message);
        }
        if let Err(error) = self.write(*value) {
            return with(ShapingOutcome::Failed, format!("{LNC_FILE}: {error}"));
        }
        let after = self.look(Some(wanted));
        if after.shaping.outcome == ShapingOutcome::Working {
            let message = after.shaping.message.clone().unwrap_or_default();
            let message = format!("{LNC_FILE} was written, and yet {message}");
            return Seen {
                shaping: shaping(ShapingOutcome::Failed, message),
                ..after
            };
        }
        after
    }

    /// A setting is written whole or not at all.
    fn settle(&mut self) -> Seen {
        self.look(None)
    }
}

fn shaping(outcome: ShapingOutcome, message: impl Into<String>) -> Shaping {
    Shaping {
        outcome,
        message: Some(message.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn machine(chip: &str, instance_type: &str, setting: Option<&str>) -> (tempfile::TempDir, Lnc) {
        let root = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        put("sys/devices/virtual/neuron_device/neuron0/core_count", "8");
        put(
            "sys/devices/virtual/neuron_device/neuron0/info/architecture/device_name",
            chip,
        );
        put("sys/devices/virtual/dmi/id/product_name", instance_type);
        if let Some(setting) = setting {
            put("opt/aws/neuron/logical_nc_config", setting);
        }
        let engine = Lnc::new(Host::new(root.path()));
        (root, engine)
    }

    fn setting(root: &tempfile::TempDir) -> String {
        fs::read_to_string(root.path().join("opt/aws/neuron/logical_nc_config")).unwrap()
    }

    #[test]
    fn the_setting_goes_there_and_back_and_is_read_back_each_time() {
        let (root, mut engine) = machine("Trainium2", "trn2.48xlarge", None);
        assert!(
            engine
                .look(Some(&Layout::LogicalNeuronCore(2)))
                .is_in_force()
        );
        assert!(
            !root.path().join("opt").exists(),
            "the family's default needs no file"
        );
        for (value, text) in [
            (1, "NEURON_LOGICAL_NC_CONFIG=1\n"),
            (2, "NEURON_LOGICAL_NC_CONFIG=2\n"),
        ] {
            let wanted = Layout::LogicalNeuronCore(value);
            let seen = engine.look(Some(&wanted));
            assert_eq!(seen.shaping.outcome, ShapingOutcome::Working);
            let seen = engine.shape(&wanted);
            assert!(seen.is_in_force(), "{seen:?}");
            assert_eq!(seen.logical_neuron_core, Some(i32::from(value)));
            assert_eq!(setting(&root), text);
        }
    }

    #[test]
    fn a_setting_in_force_is_not_written_again() {
        let text = "# by the launch template\nNEURON_LOGICAL_NC_CONFIG=1";
        let (root, mut engine) = machine("Trainium2", "trn2.48xlarge", Some(text));
        assert!(engine.shape(&Layout::LogicalNeuronCore(1)).is_in_force());
        assert_eq!(setting(&root), text);
    }

    #[test]
    fn what_appended_user_data_left_becomes_one_line() {
        let text = "# site\nNEURON_LOGICAL_NC_CONFIG=1NEURON_LOGICAL_NC_CONFIG=2\nNEURON_RT_VIRTUAL_CORE_SIZE=1\nOTHER=7";
        let (root, mut engine) = machine("Trainium3", "trn3.48xlarge", Some(text));
        let wanted = Layout::LogicalNeuronCore(2);
        let seen = engine.look(Some(&wanted));
        let message = seen.shaping.message.unwrap();
        assert!(message.contains("holds both 1 and 2"), "{message}");
        assert!(engine.shape(&wanted).is_in_force());
        assert_eq!(
            setting(&root),
            "# site\nNEURON_LOGICAL_NC_CONFIG=2\nOTHER=7\n"
        );
    }

    #[test]
    fn a_family_with_a_fixed_setting_is_refused_by_instance_type_and_left_alone() {
        for (chip, instance_type) in [
            ("Trainium1", "trn1.2xlarge"),
            ("Inferentia2", "inf2.48xlarge"),
        ] {
            let (root, mut engine) = machine(chip, instance_type, None);
            // 1 is in force there, and still nothing that can be set.
            for value in [1, 2] {
                let seen = engine.shape(&Layout::LogicalNeuronCore(value));
                assert_eq!(seen.shaping.outcome, ShapingOutcome::Infeasible);
                let message = seen.shaping.message.unwrap();
                assert!(message.contains(instance_type), "{message}");
            }
            assert!(!root.path().join("opt").exists());
        }
    }

    #[test]
    fn other_values_and_layouts_are_refused() {
        let (root, mut engine) = machine("Trainium2", "trn2.48xlarge", None);
        for wanted in [
            Layout::LogicalNeuronCore(3),
            Layout::LogicalNeuronCore(0),
            Layout::Mig(Vec::new()),
        ] {
            assert_eq!(
                engine.shape(&wanted).shaping.outcome,
                ShapingOutcome::Infeasible
            );
        }
        assert!(!root.path().join("opt").exists());
    }

    #[test]
    fn a_process_with_a_device_open_is_named_and_nothing_is_written() {
        let (root, mut engine) = machine("Trainium2", "trn2.48xlarge", None);
        let process = root.path().join("proc/4711");
        fs::create_dir_all(process.join("fd")).unwrap();
        fs::write(process.join("comm"), "torchrun\n").unwrap();
        std::os::unix::fs::symlink("/dev/null", process.join("fd/0")).unwrap();
        let wanted = Layout::LogicalNeuronCore(1);
        std::os::unix::fs::symlink("/dev/neuron0", process.join("fd/9")).unwrap();
        let seen = engine.shape(&wanted);
        assert_eq!(seen.shaping.outcome, ShapingOutcome::Busy);
        let message = seen.shaping.message.unwrap();
        assert!(message.contains("process 4711 (torchrun)"), "{message}");
        assert!(!root.path().join("opt").exists());
        fs::remove_file(process.join("fd/9")).unwrap();
        assert!(engine.shape(&wanted).is_in_force());
    }

    #[test]
    fn a_full_disk_keeps_the_old_setting() {
        let (root, mut engine) = machine(
            "Trainium2",
            "trn2.48xlarge",
            Some("NEURON_LOGICAL_NC_CONFIG=2\n"),
        );
        std::os::unix::fs::symlink(
            "/dev/full",
            root.path().join("opt/aws/neuron/.logical_nc_config.new"),
        )
        .unwrap();
        let seen = engine.shape(&Layout::LogicalNeuronCore(1));
        assert_eq!(seen.shaping.outcome, ShapingOutcome::Failed);
        assert!(seen.shaping.message.unwrap().contains("No space left"));
        assert_eq!(seen.logical_neuron_core, Some(2));
        assert_eq!(setting(&root), "NEURON_LOGICAL_NC_CONFIG=2\n");
    }

    #[test]
    fn without_an_order_or_a_device_nothing_is_claimed() {
        let (_root, mut engine) = machine("Trainium2", "trn2.48xlarge", None);
        let seen = engine.look(None);
        assert_eq!(seen.shaping.outcome, ShapingOutcome::Idle);
        assert_eq!(seen.logical_neuron_core, Some(2));
        let empty = tempfile::tempdir().unwrap();
        let mut engine = Lnc::new(Host::new(empty.path()));
        let seen = engine.look(Some(&Layout::LogicalNeuronCore(1)));
        assert_eq!(seen.shaping.outcome, ShapingOutcome::Failed);
    }
}
