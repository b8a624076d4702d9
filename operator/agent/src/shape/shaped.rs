//! What the shaper found and did, as it leaves it for the witness and for operands that wait.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use freehold_core::geometry::Board;
use freehold_core::intent::Layout;
use freehold_core::report::{Shaping, ShapingOutcome};
use serde::{Deserialize, Serialize};

use super::bounds;
use super::engine::Seen;
use super::order::LayoutOrder;
use crate::host::mig::{GpuInstance, MigProfiles};

/// Name of the file.
pub const SHAPED_FILE: &str = "shaped";

/// A shaper's statement. Holds for the boot that it names; what it found is lost with that.
///
/// Shaper and witness are updated one after the other, so unknown fields are skipped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Shaped {
    /// Boot in which this was found.
    #[serde(rename = "bootID")]
    pub boot_id: String,
    /// The order that this answers; `None` where none was ever given.
    #[serde(default)]
    pub order: Option<LayoutOrder>,
    /// How the geometry stands to it.
    pub shaping: Shaping,
    /// MIG profiles that the driver offers, one entry for each kind of board.
    #[serde(default)]
    pub boards: Vec<Board>,
    /// MIG instances: GPU minor number → GPU instance ID → name of the profile.
    #[serde(default)]
    pub instances: BTreeMap<u32, BTreeMap<u32, String>>,
    /// GPUs whose MIG mode is on, by minor number.
    #[serde(default)]
    pub mig_enabled: Vec<u32>,
    /// The last leave under which the ordered layout was in force in this boot; see [`super::order`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used_leave: Option<u64>,
    /// The geometry differs, and could be changed with another leave.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub awaits_leave: bool,
}

impl Shaped {
    /// A statement about what an engine saw. Says nothing about leaves.
    #[must_use]
    pub fn new(boot_id: String, order: Option<LayoutOrder>, seen: Seen) -> Self {
        let Seen {
            boards,
            instances,
            mig_enabled,
            // The witness reads the setting itself.
            logical_neuron_core: _,
            shaping,
        } = seen;
        Self {
            boot_id,
            order,
            shaping,
            boards,
            instances,
            mig_enabled,
            used_leave: None,
            awaits_leave: false,
        }
    }

    /// The layout that this answers.
    #[must_use]
    pub fn layout(&self) -> Option<&Layout> {
        self.order.as_ref()?.layout.as_ref()
    }

    /// Whether both say the same. Process IDs aside: a monitoring program that is started anew every minute has another each time,
    /// and that is no news.
    #[must_use]
    pub fn says_what(&self, other: &Self) -> bool {
        let told = |shaped: &Self| {
            let message = shaped.shaping.message.as_deref().map(without_processes);
            let shaping = Shaping {
                message,
                ..shaped.shaping.clone()
            };
            Self {
                shaping,
                ..shaped.clone()
            }
        };
        self == other || told(self) == told(other)
    }

    /// Whether it says, for this boot, that the layout is in force.
    #[must_use]
    pub fn has_in_force(&self, layout: &Layout, boot_id: &str) -> bool {
        self.shaping.outcome == ShapingOutcome::InForce
            && self.layout() == Some(layout)
            && !boot_id.is_empty()
            && self.boot_id == boot_id
    }
}

/// The text without the numbers of processes.
fn without_processes(text: &str) -> String {
    const PROCESS: &str = "process ";
    let mut parts = text.split(PROCESS);
    let mut left = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        left.push_str(PROCESS);
        left.push_str(part.trim_start_matches(|char: char| char.is_ascii_digit()));
    }
    left
}

/// Names instances by what the shaper found. An instance that was not there then has no name, and neither has one whose name no
/// report may hold.
impl MigProfiles for Shaped {
    fn name(&self, instance: GpuInstance) -> Option<String> {
        self.instances
            .get(&instance.gpu)?
            .get(&instance.id)
            .filter(|name| bounds::is_name(name))
            .cloned()
    }
}

/// Reads the statement; `None` when there is none.
///
/// # Errors
/// When the file cannot be read or holds something else.
pub fn read(directory: &Path) -> io::Result<Option<Shaped>> {
    super::read_json(&directory.join(SHAPED_FILE))
}

/// Replaces the statement.
///
/// # Errors
/// When it cannot be written; the old one is in force then.
pub fn write(directory: &Path, shaped: &Shaped) -> io::Result<()> {
    super::write_json(directory, SHAPED_FILE, shaped)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_is_read_back_as_written_and_its_text_is_the_contract() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(read(root.path()).unwrap(), None);
        let seen = Seen {
            instances: [(3, [(9, "3g.40gb".to_owned())].into())].into(),
            mig_enabled: vec![3],
            ..Seen::nothing(Shaping {
                outcome: ShapingOutcome::InForce,
                message: None,
            })
        };
        let order = LayoutOrder {
            object_uid: "an-1".into(),
            object_created: 0,
            generation: 4,
            layout: Some(Layout::LogicalNeuronCore(1)),
        };
        let shaped = Shaped::new("boot-7".into(), Some(order), seen);
        write(root.path(), &shaped).unwrap();
        assert_eq!(read(root.path()).unwrap(), Some(shaped.clone()));
        assert_eq!(
            std::fs::read_to_string(root.path().join(SHAPED_FILE)).unwrap(),
            "{\"bootID\":\"boot-7\",\"order\":{\"objectUID\":\"an-1\",\"generation\":4,\"layout\":{\"logicalNeuronCore\":1}},\
             \"shaping\":{\"outcome\":\"InForce\"},\"boards\":[],\"instances\":{\"3\":{\"9\":\"3g.40gb\"}},\"migEnabled\":[3]}\n"
        );
        let instance = |gpu, id| GpuInstance { gpu, id };
        assert_eq!(shaped.name(instance(3, 9)).as_deref(), Some("3g.40gb"));
        assert_eq!(shaped.name(instance(3, 8)), None);
    }

    #[test]
    fn a_newer_shaper_may_say_more() {
        let root = tempfile::tempdir().unwrap();
        let text = r#"{"bootID": "b", "order": null, "shaping": {"outcome": "Idle", "mood": "fine"}, "weather": 3}"#;
        std::fs::write(root.path().join(SHAPED_FILE), text).unwrap();
        let shaped = read(root.path()).unwrap().unwrap();
        assert_eq!(shaped.shaping.outcome, ShapingOutcome::Idle);
    }

    #[test]
    fn another_process_of_the_same_program_is_no_news() {
        let said = |message: &str| {
            let shaping = Shaping {
                outcome: ShapingOutcome::Busy,
                message: Some(message.to_owned()),
            };
            Shaped::new("boot-1".into(), None, Seen::nothing(shaping))
        };
        let told = said("GPU 0: in use by process 11 (dcgm), process 9 (python, pod a)");
        let later = said("GPU 0: in use by process 4711 (dcgm), process 9 (python, pod a)");
        assert!(told.says_what(&later));
        for news in [
            "GPU 1: in use by process 11 (dcgm), process 9 (python, pod a)",
            "GPU 0: in use by process 11 (dcgm), process 9 (python, pod b)",
            "GPU 0: in use by process 11 (dcgm)",
        ] {
            assert!(!told.says_what(&said(news)), "{news}");
        }
        let mut other = told.clone();
        other.mig_enabled = vec![0];
        assert!(!told.says_what(&other));
    }

    #[test]
    fn in_force_holds_for_its_layout_and_its_boot() {
        let layout = Layout::LogicalNeuronCore(2);
        let mut shaped = Shaped::new(
            "boot-1".into(),
            Some(LayoutOrder {
                object_uid: "an-1".into(),
                object_created: 0,
                generation: 1,
                layout: Some(layout.clone()),
            }),
            Seen::nothing(Shaping {
                outcome: ShapingOutcome::InForce,
                message: None,
            }),
        );
        assert!(shaped.has_in_force(&layout, "boot-1"));
        assert!(!shaped.has_in_force(&layout, "boot-2"));
        assert!(!shaped.has_in_force(&Layout::LogicalNeuronCore(1), "boot-1"));
        shaped.shaping.outcome = ShapingOutcome::Working;
        assert!(!shaped.has_in_force(&layout, "boot-1"));
    }
}
