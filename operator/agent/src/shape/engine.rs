//! The seam between the shaper's loop and one vendor's geometry.
//!
//! The loop knows the order, the lock and the files; an engine knows the devices. It looks, and it shapes, and both answer
//! with the whole of what is there now.

use std::collections::BTreeMap;

use freehold_core::geometry::Board;
use freehold_core::intent::Layout;
use freehold_core::report::{MigProfileCount, Shaping, ShapingOutcome};

/// Makes one vendor's geometry what was ordered.
pub trait Engine {
    /// Reads the geometry and says how it stands to the wanted one. Changes nothing, and needs no lock.
    ///
    /// [`ShapingOutcome::Working`] means that it differs and could be made; then [`Engine::shape`] is worth the lock. Where nothing
    /// is wanted it means that a change was broken off, and [`Engine::settle`] is.
    fn look(&mut self, wanted: Option<&Layout>) -> Seen;

    /// Makes the geometry the wanted one and reads it back. Only for the holder of the vendor's lock.
    ///
    /// A change that a crash broke off is finished first, or taken back. Where everything is as wanted, nothing is written to
    /// the devices. Never answers [`ShapingOutcome::Working`].
    fn shape(&mut self, wanted: &Layout) -> Seen;

    /// Takes back what is left of a change that was broken off and is not wanted any more. Only for the holder of the vendor's
    /// lock. Never answers [`ShapingOutcome::Working`].
    fn settle(&mut self) -> Seen;
}

/// What an engine found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// MIG profiles that the driver offers, one entry for each kind of board. All kinds; a report has room for fewer.
    pub boards: Vec<Board>,
    /// MIG instances: GPU minor number → GPU instance ID → name of the profile.
    pub instances: BTreeMap<u32, BTreeMap<u32, String>>,
    /// GPUs whose MIG mode is on, with instances or without, by minor number.
    pub mig_enabled: Vec<u32>,
    /// Logical NeuronCore setting in force, 1 or 2. Neuron only.
    pub logical_neuron_core: Option<i32>,
    /// How that stands to the wanted layout.
    pub shaping: Shaping,
}

impl Seen {
    /// Nothing could be read, or there is nothing to read.
    #[must_use]
    pub const fn nothing(shaping: Shaping) -> Self {
        Self {
            boards: Vec::new(),
            instances: BTreeMap::new(),
            mig_enabled: Vec::new(),
            logical_neuron_core: None,
            shaping,
        }
    }

    /// Whether the wanted layout is in force.
    #[must_use]
    pub fn is_in_force(&self) -> bool {
        self.shaping.outcome == ShapingOutcome::InForce
    }

    /// The instances as a report has them: GPU minor number → profiles and how many of each, sorted.
    #[must_use]
    pub fn mig(&self) -> BTreeMap<String, Vec<MigProfileCount>> {
        self.instances
            .iter()
            .map(|(gpu, instances)| {
                let mut counts = BTreeMap::<&str, i32>::new();
                for name in instances.values() {
                    let count = counts.entry(name).or_default();
                    *count = count.saturating_add(1);
                }
                let counts = counts.into_iter().map(|(profile, count)| MigProfileCount {
                    profile: profile.to_owned(),
                    count,
                });
                (gpu.to_string(), counts.collect())
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instances_are_counted_by_gpu_and_profile() {
        let mut seen = Seen::nothing(Shaping {
            outcome: ShapingOutcome::InForce,
            message: None,
        });
        assert!(seen.mig().is_empty() && seen.is_in_force());
        let named = |ids: &[(u32, &str)]| {
            ids.iter()
                .map(|(id, name)| (*id, (*name).to_owned()))
                .collect()
        };
        seen.instances = [
            (3, named(&[(7, "1g.10gb"), (9, "3g.40gb"), (8, "1g.10gb")])),
            (11, named(&[(0, "7g.80gb")])),
        ]
        .into();
        let count = |profile: &str, count| MigProfileCount {
            profile: profile.into(),
            count,
        };
        let mig = seen.mig();
        assert_eq!(mig["3"], [count("1g.10gb", 2), count("3g.40gb", 1)]);
        assert_eq!(mig["11"], [count("7g.80gb", 1)]);
    }
}
