//! What a reading says about orders, shaper and geometry.

use std::path::Path;

use freehold_core::intent::Layout;
use freehold_core::report::{LayoutReport, Shaping, ShapingOutcome};

use super::bounds;
use super::order::{self, LAYOUT_FILE, LayoutOrder};
use super::shaped::{self, SHAPED_FILE, Shaped};
use super::shaper::SHAPER_LOCK;
use crate::host::ReadError;
use crate::host::mig::MigProfiles;
use crate::host::mig::Unnamed;
use crate::interlock::lock::Lock;

/// Longest message: the API's bound.
const MAX_MESSAGE: usize = 256;
/// Most GPUs of a node: the API's bound.
const MAX_GPUS: i32 = 1024;
/// Most kinds of boards: the API's bound.
const MAX_BOARDS: usize = 2;

/// Both files of one vendor, as they were at one moment.
#[derive(Clone, Debug, Default)]
pub struct Told {
    order: Option<LayoutOrder>,
    shaped: Option<Shaped>,
    this_boot: bool,
    /// A shaper runs here.
    is_alive: bool,
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
        let is_alive = Lock::is_held(directory, SHAPER_LOCK).unwrap_or_else(|error| {
            errors.push(ReadError::new(format!("{path}/{SHAPER_LOCK}"), error));
            false
        });
        Self {
            order,
            shaped,
            this_boot,
            is_alive,
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

    /// Whether a layout order lies on the node.
    #[must_use]
    pub fn is_ordered(&self) -> bool {
        let order = self.order.as_ref();
        order.is_some_and(|order| order.layout.is_some())
    }

    /// The leave that the shaper has used up, if it needs another one for this layout in this boot.
    #[must_use]
    pub fn awaits_leave(&self, layout: Option<&Layout>) -> Option<u64> {
        let shaped = self.shaped.as_ref().filter(|_| self.this_boot)?;
        (shaped.awaits_leave && shaped.layout() == layout)
            .then(|| shaped.used_leave.unwrap_or_default())
    }

    /// Adds to the geometry read from the host what only the shaper knows.
    pub fn add_geometry(&self, layout: &mut LayoutReport) {
        let Some(shaped) = &self.shaped else { return };
        if self.ordered().is_none() && !self.is_alive {
            // Left by a shaper that is gone for good, with whatever it knew.
            return;
        }
        // The table belongs to board and driver, and is as good as new after most reboots. What is made of it is looked at again
        // by the shaper.
        let boards = shaped.boards.iter().take(MAX_BOARDS);
        layout.boards = boards.map(bounds::board).collect();
        if self.this_boot && self.is_alive {
            // procfs shows no GPU with MIG on that has no instance.
            let enabled = i32::try_from(shaped.mig_enabled.len()).unwrap_or(i32::MAX);
            layout.mig_enabled_gpus = layout.mig_enabled_gpus.max(enabled.min(MAX_GPUS));
        }
    }

    fn ordered(&self) -> Option<&Layout> {
        self.order.as_ref()?.layout.as_ref()
    }

    /// Where the shaper stands; `None` where none runs and nothing is ordered.
    #[must_use]
    pub fn shaping(&self) -> Option<Shaping> {
        let shaping = match (self.ordered(), self.answer()) {
            (None, _) if !self.is_alive => return None,
            (None, Ok(shaped)) => Shaping {
                outcome: ShapingOutcome::Idle,
                // What it still has to say once the order was withdrawn.
                message: shaped
                    .shaping
                    .message
                    .clone()
                    .filter(|_| shaped.layout().is_none()),
            },
            // Verified in this boot. What became of it since is seen without a shaper, and nobody waits for one.
            (Some(ordered), Ok(shaped))
                if shaped.layout() == Some(ordered)
                    && shaped.shaping.outcome == ShapingOutcome::InForce =>
            {
                shaped.shaping.clone()
            }
            (Some(_), Ok(_) | Err(_)) if !self.is_alive => {
                working("no shaper runs on this node at present")
            }
            (Some(ordered), Ok(shaped)) if shaped.layout() == Some(ordered) => {
                shaped.shaping.clone()
            }
            (Some(_), Ok(_)) => working("the node's shaper has not looked at this order yet"),
            (_, Err(not_yet)) => working(not_yet),
        };
        Some(Shaping {
            message: shaping
                .message
                .map(|message| message.chars().take(MAX_MESSAGE).collect()),
            ..shaping
        })
    }

    /// What a shaper said in this boot.
    fn answer(&self) -> Result<&Shaped, &'static str> {
        match &self.shaped {
            Some(shaped) if self.this_boot => Ok(shaped),
            Some(_) => Err("the node's shaper has not looked in this boot yet"),
            None => Err("the node's shaper has not looked yet"),
        }
    }
}

fn working(message: &str) -> Shaping {
    Shaping {
        outcome: ShapingOutcome::Working,
        message: Some(message.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use freehold_api::AcceleratorNode;
    use freehold_core::geometry::{Board, Profile};
    use kube::CustomResourceExt as _;

    use super::super::engine::Seen;
    use super::*;

    fn order(lnc: u8) -> LayoutOrder {
        LayoutOrder {
            object_uid: "an-1".into(),
            object_created: 0,
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

    /// With a living shaper.
    fn told(order: Option<&LayoutOrder>, shaped: Option<&Shaped>) -> (Told, Option<Shaping>) {
        told_by(true, order, shaped)
    }

    fn told_by(
        is_alive: bool,
        order: Option<&LayoutOrder>,
        shaped: Option<&Shaped>,
    ) -> (Told, Option<Shaping>) {
        let root = tempfile::tempdir().unwrap();
        let _shaper = is_alive.then(|| Lock::try_take_named(root.path(), SHAPER_LOCK).unwrap());
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
        assert_eq!(told_by(false, None, None).1, None);
    }

    #[test]
    fn what_a_shaper_left_that_is_gone_for_good_is_not_told() {
        let (told, shaping) = told_by(false, None, Some(&said("boot-2", 1)));
        assert_eq!(shaping, None);
        let mut layout = LayoutReport::default();
        told.add_geometry(&mut layout);
        assert_eq!(layout, LayoutReport::default());
    }

    #[test]
    fn a_dead_shaper_s_word_counts_only_where_it_verified_the_order() {
        let mut shaped = said("boot-2", 1);
        let (told, shaping) = told_by(false, Some(&order(1)), Some(&shaped));
        let shaping = shaping.unwrap();
        assert_eq!(shaping.outcome, ShapingOutcome::Working);
        assert!(shaping.message.unwrap().contains("no shaper runs"));
        let mut layout = LayoutReport::default();
        told.add_geometry(&mut layout);
        assert_eq!(
            layout.mig_enabled_gpus, 0,
            "a mode may have changed since it looked"
        );
        shaped.shaping.outcome = ShapingOutcome::InForce;
        for (lnc, outcome) in [(1, ShapingOutcome::InForce), (2, ShapingOutcome::Working)] {
            let shaping = told_by(false, Some(&order(lnc)), Some(&shaped)).1.unwrap();
            assert_eq!(shaping.outcome, outcome);
        }
    }

    #[test]
    fn a_living_shaper_without_an_order_is_heard_once_it_looked_in_this_boot() {
        for (shaped, outcome) in [
            (None, ShapingOutcome::Working),
            (Some(said("boot-1", 1)), ShapingOutcome::Working),
            (Some(said("boot-2", 1)), ShapingOutcome::Idle),
        ] {
            let shaping = told(None, shaped.as_ref()).1.unwrap();
            assert_eq!(shaping.outcome, outcome);
        }
    }

    #[test]
    fn an_order_that_lies_on_the_node_is_told_until_it_is_withdrawn() {
        let none = LayoutOrder {
            layout: None,
            ..order(1)
        };
        for (order, expected) in [(None, false), (Some(none), false), (Some(order(1)), true)] {
            let (told, _) = told(order.as_ref(), None);
            assert_eq!(told.is_ordered(), expected);
        }
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
    fn whatever_a_driver_offers_fits_the_api_s_schema() {
        let fine = Profile {
            name: "n".repeat(32),
            id: 255,
            slices: 16,
            size: 64,
            starts: (0..16).map(|start| start * 4 + 3).collect(),
            max: 64,
        };
        let odd = |change: fn(&mut Profile)| {
            let mut row = fine.clone();
            change(&mut row);
            row
        };
        let odd = [
            odd(|row| row.name.clear()),
            odd(|row| row.name.push('é')),
            odd(|row| row.id = 256),
            odd(|row| row.slices = 0),
            odd(|row| row.slices = 17),
            odd(|row| row.size = 0),
            odd(|row| row.size = 65),
            odd(|row| row.starts.push(63)),
            odd(|row| row.starts[0] = 64),
            odd(|row| row.max = 0),
            odd(|row| row.max = 65),
        ];
        let mut shaped = said("boot-2", 1);
        shaped.boards = vec![
            Board {
                gpus: (1016..1040).collect(),
                profiles: odd.into_iter().chain([fine.clone()]).collect(),
            },
            Board {
                gpus: (0..20).collect(),
                profiles: vec![fine.clone(); 20],
            },
        ];
        shaped.instances = [(0, [(7, "n".repeat(33)), (8, String::new())].into())].into();
        shaped.mig_enabled = (0..2000).collect();
        let (told, shaping) = told(Some(&order(1)), Some(&shaped));
        let instance = |id| crate::host::mig::GpuInstance { gpu: 0, id };
        assert_eq!(told.profiles().name(instance(7)), None);
        assert_eq!(told.profiles().name(instance(8)), None);
        let mut layout = LayoutReport {
            shaping,
            ..LayoutReport::default()
        };
        told.add_geometry(&mut layout);
        let [first, second] = layout.boards.as_slice() else {
            panic!("{layout:?}")
        };
        assert_eq!(first.profiles, [fine], "odd rows go, and no more than they");
        assert_eq!((first.gpus.len(), second.gpus.len()), (8, 16));
        assert_eq!(second.profiles.len(), 16);
        let schema = serde_json::to_value(AcceleratorNode::crd()).unwrap();
        let schema = &schema["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]
            ["properties"]["report"]["properties"]["nvidia"]["properties"]["layout"];
        let found = bounds::beyond(schema, &serde_json::to_value(&layout).unwrap());
        assert_eq!(found, Vec::<String>::new());
        layout.boards[0].profiles[0].max = 65;
        layout.boards[1].gpus.push(16);
        let found = bounds::beyond(schema, &serde_json::to_value(&layout).unwrap());
        assert_eq!(found.len(), 2, "the check finds what is beyond: {found:?}");
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
