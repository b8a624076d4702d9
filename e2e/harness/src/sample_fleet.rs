//! The sample fleet, for the demo and the scenarios: one node of each kind that the sample resource speaks of.

use freehold_core::blocker::Reason;
use freehold_core::vendor::{Owner, Vendor};

use crate::sim::Shape;

/// What must come of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Owned, and advertising what it should.
    Held(Vendor, Owner),
    /// Left alone, for this reason.
    Left(Vendor, Reason),
}

/// A node and what must come of it.
#[derive(Clone, Debug)]
pub struct Member {
    /// Node name.
    pub name: &'static str,
    /// The machine.
    pub shape: Shape,
    /// What must come of it.
    pub outcome: Outcome,
}

/// Nodes for `config/samples/acceleratorcluster.yaml`.
#[must_use]
pub fn members() -> Vec<Member> {
    use Outcome::{Held, Left};
    use Vendor::{Neuron, Nvidia};
    let pool = |shape: Shape, pool: &str| shape.with_label("pool", pool);
    let member = |name, shape, outcome| Member {
        name,
        shape,
        outcome,
    };
    vec![
        member(
            "h100-a-1",
            pool(Shape::h100(), "a"),
            Held(Nvidia, Owner::DevicePlugin),
        ),
        member(
            "h100-a-2",
            pool(Shape::h100(), "a"),
            Held(Nvidia, Owner::DevicePlugin),
        ),
        member(
            "h100-b-1",
            pool(Shape::h100(), "b"),
            Held(Nvidia, Owner::Dra),
        ),
        member(
            "a100-mig-c-1",
            // MIG off: its shaper makes the sample's layout.
            pool(Shape::a100(), "c"),
            Held(Nvidia, Owner::DevicePlugin),
        ),
        member(
            "h100-shared-d-1",
            pool(Shape::h100(), "d"),
            Held(Nvidia, Owner::DevicePlugin),
        ),
        member(
            "trn2-48xl-1",
            Shape::trn2_48xlarge(),
            Held(Neuron, Owner::Dra),
        ),
        member(
            "trn2-3xl-1",
            Shape::trn2_3xlarge(),
            Held(Neuron, Owner::DevicePlugin),
        ),
        member(
            "trn1-2xl-1",
            Shape::trn1_2xlarge(),
            Held(Neuron, Owner::DevicePlugin),
        ),
        member(
            "trn1-32xl-1",
            Shape::trn1_32xlarge(),
            Held(Neuron, Owner::DevicePlugin),
        ),
        member(
            "inf2-48xl-1",
            Shape::inf2_48xlarge(),
            Held(Neuron, Owner::DevicePlugin),
        ),
        member(
            "auto-mode-1",
            pool(Shape::eks_auto_mode(), "a"),
            Left(Nvidia, Reason::ExcludedByProvider),
        ),
        member(
            "cpu-1",
            pool(Shape::cpu(), "a"),
            Left(Nvidia, Reason::NoHardware),
        ),
        member(
            "h100-bare-1",
            pool(Shape::h100_without_driver(), "b"),
            Left(Nvidia, Reason::DriverMissing),
        ),
    ]
}
