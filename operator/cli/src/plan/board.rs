//! `plan --board`: what a file's MIG layouts come to on a board from the published tables, without a cluster.

use freehold_api::plan::{CohortPlan, Plan};
use freehold_core::catalogue::{PUBLISHED_BOARDS, PublishedBoard, published_board};
use freehold_core::expect::{Expected, expected};
use freehold_core::geometry::{Board, LEGEND};
use freehold_core::intent::Layout;
use freehold_core::report::VendorReport;
use serde::Serialize;

use super::drawn::{self, Gpus};
use crate::exit::{Exit, Failure};
use crate::output::{Answer, Look};

/// A board with every cohort's layout on it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct OnBoard {
    /// One sentence.
    sentence: String,
    board: &'static str,
    products: &'static str,
    gpus: u32,
    /// What of the table was not seen on hardware.
    #[serde(skip_serializing_if = "str::is_empty")]
    inferred: &'static str,
    cohorts: Vec<OnCohort>,
}

/// One cohort's layout.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct OnCohort {
    cohort: String,
    gpus: Vec<Gpus>,
    /// What a node would advertise, or why it cannot.
    advertises: String,
    feasible: bool,
}

impl OnBoard {
    /// Lays the cohorts' layouts on so many GPUs of a board.
    ///
    /// # Errors
    /// No such board: with the list of those that there are.
    pub(super) fn new(plan: &Plan, board: &str, gpus: u32) -> Result<Self, Failure> {
        let Some(table) = published_board(board) else {
            return Err(Failure::usage(unknown(board)));
        };
        let cohorts: Vec<OnCohort> = plan
            .cohorts
            .iter()
            .filter_map(|cohort| OnCohort::new(cohort, table, gpus))
            .collect();
        let refused = cohorts.iter().filter(|cohort| !cohort.feasible).count();
        let sentence = match (cohorts.len(), refused) {
            (0, _) => "No cohort sets nvidia.mig.layouts.".to_owned(),
            (all, 0) => format!("{all} MIG layout(s) fit."),
            (all, refused) => format!("{refused} of {all} MIG layout(s) cannot be had."),
        };
        Ok(Self {
            sentence,
            board: table.name,
            products: table.products,
            gpus,
            inferred: table.inferred,
            cohorts,
        })
    }

    /// How the command ends.
    pub(super) fn exit(&self) -> Exit {
        if self.cohorts.iter().all(|cohort| cohort.feasible) {
            Exit::Fine
        } else {
            Exit::Findings
        }
    }
}

impl OnCohort {
    fn new(cohort: &CohortPlan, table: &PublishedBoard, gpus: u32) -> Option<Self> {
        let Some(Layout::Mig(layouts)) = &cohort.cohort.layout else {
            return None;
        };
        let mut part = VendorReport::default();
        part.inventory.devices = i32::try_from(gpus).unwrap_or(i32::MAX);
        part.pci_devices = part.inventory.devices;
        part.layout.boards = vec![Board {
            gpus: (0..gpus).collect(),
            profiles: table.profiles(),
        }];
        let drawn = drawn::node(layouts, &part);
        let possible = !drawn.iter().any(|group| group.infeasible);
        let (advertises, feasible) = match expected(&cohort.cohort, &part) {
            // The drawing says why.
            _ if !possible => (String::new(), false),
            Err(blocker) => (blocker.message, false),
            Ok(expected) => (words(&expected), true),
        };
        Some(Self {
            cohort: cohort.cohort.name.clone(),
            gpus: drawn,
            advertises,
            feasible,
        })
    }
}

fn words(expected: &Expected) -> String {
    match expected {
        Expected::Resources(resources) => {
            let list: Vec<String> = resources
                .iter()
                .map(|(name, count)| format!("{name}: {count}"))
                .collect();
            format!("a node advertises {}", list.join(", "))
        }
        Expected::AnyResource => {
            "a node advertises what the plugin's own configuration file says".to_owned()
        }
        Expected::Devices {
            devices,
            mig_devices,
        } => format!("a node publishes {devices} device(s), {mig_devices} of them MIG devices"),
        Expected::AtLeastDevices(devices) => {
            format!("a node publishes at least {devices} device(s)")
        }
    }
}

fn unknown(board: &str) -> String {
    let known: Vec<String> = PUBLISHED_BOARDS
        .iter()
        .map(|board| {
            let pci: Vec<String> = board
                .pci_devices
                .iter()
                .map(|device| format!("{device:04x}"))
                .collect();
            format!(
                "\n  {:<13} {} (PCI {})",
                board.name,
                board.products,
                pci.join(", ")
            )
        })
        .collect();
    format!(
        "there is no published table for board {board:?}; there are (lspci -nn -d 10de: shows a board's PCI ID):{}",
        known.concat()
    )
}

impl Answer for OnBoard {
    const KIND: &'static str = "BoardPlan";

    fn text(&self, look: Look) -> String {
        let mut lines = vec![
            look.style.bold(&self.sentence),
            format!(
                "By the published table of {}: {}; {} GPU(s). A node is judged by what its own driver offers.",
                self.board, self.products, self.gpus
            ),
        ];
        if !self.inferred.is_empty() {
            lines.push(format!("Not seen on hardware: {}.", self.inferred));
        }
        for cohort in &self.cohorts {
            lines.push(String::new());
            lines.push(look.style.bold(&format!("Cohort {}", cohort.cohort)));
            lines.extend(drawn::body(&cohort.gpus, look));
            if !cohort.advertises.is_empty() {
                lines.push(if cohort.feasible {
                    cohort.advertises.clone()
                } else {
                    look.style.bad(&format!("✗ {}", cohort.advertises))
                });
            }
        }
        if self.cohorts.iter().any(|cohort| cohort.feasible) {
            lines.push(String::new());
            lines.push(look.style.dim(LEGEND));
        }
        lines.join("\n") + "\n"
    }
}
