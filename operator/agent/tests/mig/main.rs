//! MIG instances made on fake boards, by the engine itself and by the real shaper.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "what fails here fails a test"
)]

#[path = "../support/mod.rs"]
mod support;

mod crashes;
mod faults;
mod layouts;
mod modes;
mod process;

use std::path::{Path, PathBuf};

use freehold_agent::host::{Host, mig};
use freehold_agent::shape::engine::{Engine as _, Seen};
use freehold_agent::shape::mig::Mig;
use freehold_core::intent::{Layout, MigLayout};
use freehold_core::report::{MigProfileCount, ShapingOutcome};
use freehold_fake_nvml::{Board, FakeNvml};
use support::Tree;
use tempfile::TempDir;

/// A host with GPUs, and an engine for them.
struct Node {
    tree: Tree,
    /// The driver's installation: not in the tree, since memory is often mounted so that no program can be loaded from it.
    driver: TempDir,
    fake: FakeNvml,
    engine: Mig,
}

impl Node {
    fn new(boards: &[Board]) -> Self {
        let tree = Tree::in_memory();
        tree.dir("/var/lib/freehold/nvidia");
        let driver = tempfile::tempdir().unwrap();
        let fake = FakeNvml::install(driver.path(), boards).unwrap();
        fake.serve_host(tree.root()).unwrap();
        let engine = engine(&tree, driver.path());
        Self {
            tree,
            driver,
            fake,
            engine,
        }
    }

    fn directory(&self) -> PathBuf {
        directory(&self.tree)
    }

    fn host(&self) -> Host {
        Host::new(self.tree.root())
    }

    /// An engine that remembers nothing, as after a restart.
    fn restart(&mut self) {
        self.engine = engine(&self.tree, self.driver.path());
    }

    fn shape(&mut self, layout: &Layout) -> Seen {
        self.engine.shape(layout)
    }

    fn look(&mut self, layout: &Layout) -> Seen {
        self.engine.look(Some(layout))
    }

    /// Shapes, and expects success: by the engine's word, by the driver's, and by the host's procfs.
    fn makes(&mut self, layout: &Layout, expected: &[&[(&str, u32)]]) {
        let seen = self.shape(layout);
        assert!(seen.is_in_force(), "{layout:?}: {:?}", seen.shaping);
        self.carries(expected);
        let looked = self.look(layout);
        assert_eq!(looked, seen, "a look finds the same");
        assert!(!self.directory().join("journal").exists());
        let shown = mig::instances(&self.host()).unwrap();
        let carried: usize = expected.iter().map(|gpu| gpu.len()).sum();
        assert_eq!(shown.len(), carried);
        assert!(shown.iter().all(|(_, computes)| computes.len() == 1));
    }

    /// Expects instances on each GPU, by first memory unit.
    fn carries(&self, expected: &[&[(&str, u32)]]) {
        for (minor, expected) in (0..).zip(expected) {
            let expected: Vec<(String, u32)> = expected
                .iter()
                .map(|(name, start)| ((*name).to_owned(), *start))
                .collect();
            assert_eq!(self.fake.instances(minor).unwrap(), expected, "GPU {minor}");
        }
    }

    /// Expects an outcome whose message says all of this, and answers what else was seen.
    fn says(&self, seen: Seen, outcome: ShapingOutcome, texts: &[&str]) -> Seen {
        let message = seen.shaping.message.clone().unwrap_or_default();
        assert_eq!(seen.shaping.outcome, outcome, "{message}");
        for text in texts {
            assert!(message.contains(text), "{text:?} in {message:?}");
        }
        seen
    }

    /// What was written to the driver since the last time.
    fn writes(&self) -> Vec<String> {
        self.fake
            .take_writes()
            .unwrap()
            .into_iter()
            .map(|write| {
                format!(
                    "GPU {}: {} {} = {}",
                    write.gpu, write.function, write.asked, write.code
                )
            })
            .collect()
    }

    fn rests(&self) {
        assert_eq!(self.writes(), Vec::<String>::new());
    }
}

fn engine(tree: &Tree, driver: &Path) -> Mig {
    Mig::new(Host::new(tree.root()), driver, &directory(tree))
}

fn directory(tree: &Tree) -> PathBuf {
    tree.at("/var/lib/freehold/nvidia")
}

/// Instances on every GPU.
fn all(instances: &[(&str, i32)]) -> Layout {
    Layout::Mig(vec![entry(None, instances)])
}

/// GPUs, and profiles with their counts.
type Entry<'a> = (&'a [u32], &'a [(&'a str, i32)]);

/// Instances on some GPUs.
fn some(entries: &[Entry<'_>]) -> Layout {
    let entries = entries
        .iter()
        .map(|(gpus, instances)| entry(Some(gpus), instances));
    Layout::Mig(entries.collect())
}

fn entry(gpus: Option<&[u32]>, instances: &[(&str, i32)]) -> MigLayout {
    MigLayout {
        gpus: gpus.map(|gpus| gpus.iter().copied().collect()),
        instances: instances
            .iter()
            .map(|(profile, count)| MigProfileCount {
                profile: (*profile).to_owned(),
                count: *count,
            })
            .collect(),
    }
}

/// Seven small instances, as an A100 40 GB names them.
const SEVEN: [(&str, u32); 7] = [
    ("1g.5gb", 0),
    ("1g.5gb", 1),
    ("1g.5gb", 2),
    ("1g.5gb", 3),
    ("1g.5gb", 4),
    ("1g.5gb", 5),
    ("1g.5gb", 6),
];
/// The same by profile ID.
const SEVEN_IDS: [(u32, u32); 7] = [
    (19, 0),
    (19, 1),
    (19, 2),
    (19, 3),
    (19, 4),
    (19, 5),
    (19, 6),
];
