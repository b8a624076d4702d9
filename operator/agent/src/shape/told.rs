//! What a reading says about orders, shaper and geometry.

use std::path::Path;

use freehold_core::intent::Layout;
use freehold_core::report::{LayoutReport, Shaping, ShapingOutcome};

use super::order::{self, LAYOUT_FILE, LayoutOrder};
use super::shaped::{self, SHAPED_FILE, Shaped};
use crate::host::ReadError;
use crate::host::mig::MigProfiles;
use crate::host::mig::Unnamed;

/// Longest message: the API's bound.
const MAX_MESSAGE: usize = 256;
/// Most kinds of boards: the API's bound.
const MAX_BOARDS: usize = 2;
/// Most profiles of a board: the API's bound.
const MAX_PROFILES: usize = 16;

/// Both files of one vendor, as they were at one moment.
#[derive(Clone, Debug, Default)]
pub struct Told {
    order: Option<LayoutOrder>,
    shaped: Option<Shaped>,
    this_boot: bool,
}

impl Told {
    /// Reads both. `path` is the directory's name on the host, for messages. What cannot be read is named in `errors`.
    pub fn read(directory: &Path, path: &str, boot_id: &str, errors: &mut Vec<ReadError>) -> Self {
        let order = order::read(directory).unwrap_or_else(|error| {
            errors.push(ReadError::new(format!("{path}/{LAYOUT_FILE}"), error));
            None
        });
        let shaped = shaped::read(directory).unwrap_or_else(|error| {
            errors.push(ReadError::new(format!("{path}/{SHAPED_FILE}"), error));
            None
        });
        let this_boot = !boot_id.is_empty()
            && shaped
                .as_ref()
                .is_some_and(|shaped| shaped.boot_id == boot_id);
        Self {
            order,
            shaped,
            this_boot,
        }
    }

    /// Names for MIG instances: instances do not outlive their boot.
    #[must_use]
    pub fn profiles(&self) -> &dyn MigProfiles {
        match &self.shaped {
            Some(shaped) if self.this_boot => shaped,
            Some(_) | None => &Unnamed,
        }
    }

    /// Reads the order again: another may have been taken meanwhile. One that cannot be read was named before.
    pub fn read_order(&mut self, directory: &Path) {
        if let Ok(order) = order::read(directory) {
            self.order = order;
        }
    }

    /// The leave that the shaper has used up, if it needs another one for this layout in this boot.
    #[must_use]
    pub fn awaits_leave(&self, layout: Option<&Layout>) -> Option<u64> {
        let shaped = self.shaped.as_ref().filter(|_| self.this_boot)?;
        (shaped.awaits_leave && layout.is_some() && shaped.layout() == layout)
            .then(|| shaped.used_leave.unwrap_or_default())
    }

    /// Adds to the geometry read from the host what only the shaper knows.
    pub fn add_geometry(&self, layout: &mut LayoutReport) {
        let Some(shaped) = &self.shaped else { return };
        // The table belongs to board and driver, and is as good as new after most reboots. What is made of it is looked at again
        // by the shaper.
        layout.boards = shaped.boards.iter().take(MAX_BOARDS).cloned().collect();
        for board in &mut layout.boards {
            board.profiles.truncate(MAX_PROFILES);
        }
        if self.this_boot {
            // procfs shows no GPU with MIG on that has no instance.
            let enabled = i32::try_from(shaped.mig_enabled.len()).unwrap_or(i32::MAX);
            layout.mig_enabled_gpus = layout.mig_enabled_gpus.max(enabled);
        }
    }

    /// Where the shaper stands; `None` where there never was one and nothing is ordered.
    #[must_use]
    pub fn shaping(&self) -> Option<Shaping> {
        let ordered = self.order.as_ref().and_then(|order| order.layout.as_ref());
        let waiting = |message: &str| {
            Some(Shaping {
                outcome: ShapingOutcome::Working,
                message: Some(message.to_owned()),
            })
        };
        let Some(shaped) = &self.shaped else {
            return ordered.and_then(|_| waiting("the node's shaper has not looked yet"));
        };
        if ordered.is_none() {
            return Some(Shaping {
                outcome: ShapingOutcome::Idle,
                message: None,
            });
        }
        if !self.this_boot {
            return waiting("the node's shaper has not looked in this boot yet");
        }
        if shaped.layout() != ordered {
            return waiting("the node's shaper has not looked at this order yet");
        }
        let mut shaping = shaped.shaping.clone();
        shaping.message = shaping
            .message
            .map(|message| message.chars().take(MAX_MESSAGE).collect());
        Some(shaping)
    }
}

#[cfg(test)]
mod tests {
    use freehold_core::geometry::{Board, Profile};

    use super::super::engine::Seen;
    use super::*;

    fn order(lnc: u8) -> LayoutOrder {
        LayoutOrder {
            object_uid: "an-1".into(),
            generation: 1,
            layout: Some(Layout::LogicalNeuronCore(lnc)),
        }
    }

    fn said(boot: &str, lnc: u8) -> Shaped {
        let shaping = Shaping {
            outcome: ShapingOutcome::Busy,
            message: Some("x".repeat(400)),
        };
        let profile = Profile {
            name: "1g.12gb".into(),
            id: 19,
            slices: 1,
            size: 1,
            starts: vec![0, 1],
            max: 2,
        };
        let seen = Seen {
            boards: vec![
                Board {
                    gpus: vec![0],
                    profiles: vec![profile; 20],
                };
                3
            ],
            instances: [(0, [(7, "1g.12gb".to_owned())].into())].into(),
            mig_enabled: vec![0, 4],
            ..Seen::nothing(shaping)
        };
        Shaped::new(boot.into(), Some(order(lnc)), seen)
    }

    fn told(order: Option<&LayoutOrder>, shaped: Option<&Shaped>) -> (Told, Option<Shaping>) {
        let root = tempfile::tempdir().unwrap();
        if let Some(order) = order {
            super::super::write_json(root.path(), LAYOUT_FILE, order).unwrap();
        }
        if let Some(shaped) = shaped {
            shaped::write(root.path(), shaped).unwrap();
        }
        let mut errors = Vec::new();
        let told = Told::read(root.path(), "/s", "boot-2", &mut errors);
        assert!(errors.is_empty(), "{errors:?}");
        let shaping = told.shaping();
        (told, shaping)
    }

    #[test]
    fn without_order_and_shaper_nothing_is_said() {
        assert_eq!(told(None, None).1, None);
    }

    #[test]
    fn an_order_without_an_answer_of_this_boot_is_under_way() {
        for shaped in [None, Some(said("boot-1", 1)), Some(said("boot-2", 2))] {
            let shaping = told(Some(&order(1)), shaped.as_ref()).1.unwrap();
            assert_eq!(shaping.outcome, ShapingOutcome::Working);
        }
    }

    #[test]
    fn without_an_ordered_layout_the_shaper_is_idle_whatever_it_did_before() {
        let none = LayoutOrder {
            layout: None,
            ..order(1)
        };
        for order in [None, Some(none)] {
            let shaping = told(order.as_ref(), Some(&said("boot-2", 1))).1.unwrap();
            assert_eq!(shaping.outcome, ShapingOutcome::Idle);
        }
    }

    #[test]
    fn an_answer_is_told_within_the_api_s_bounds() {
        let (told, shaping) = told(Some(&order(1)), Some(&said("boot-2", 1)));
        let shaping = shaping.unwrap();
        assert_eq!(shaping.outcome, ShapingOutcome::Busy);
        assert_eq!(shaping.message.unwrap().len(), 256);
        let mut layout = LayoutReport::default();
        told.add_geometry(&mut layout);
        assert_eq!((layout.boards.len(), layout.mig_enabled_gpus), (2, 2));
        assert!(layout.boards.iter().all(|board| board.profiles.len() == 16));
    }

    #[test]
    fn names_end_with_the_boot_and_the_table_does_not() {
        let instance = crate::host::mig::GpuInstance { gpu: 0, id: 7 };
        let (now, _) = told(Some(&order(1)), Some(&said("boot-2", 1)));
        assert_eq!(now.profiles().name(instance).as_deref(), Some("1g.12gb"));
        let (before, _) = told(Some(&order(1)), Some(&said("boot-1", 1)));
        assert_eq!(before.profiles().name(instance), None);
        let mut layout = LayoutReport::default();
        before.add_geometry(&mut layout);
        assert_eq!((layout.boards.len(), layout.mig_enabled_gpus), (2, 0));
    }

    #[test]
    fn a_file_that_holds_something_else_is_named() {
        let root = tempfile::tempdir().unwrap();
        std::fs::write(root.path().join(SHAPED_FILE), "[]").unwrap();
        let mut errors = Vec::new();
        Told::read(root.path(), "/var/lib/freehold/nvidia", "b", &mut errors);
        assert_eq!(errors.len(), 1);
        assert!(
            errors[0]
                .to_string()
                .starts_with("/var/lib/freehold/nvidia/shaped: "),
            "{errors:?}"
        );
    }
}
