//! Facts about operands, floors, instance types, exclusions and images, as data. Each row carries its reason and source, since
//! published support statements contradict each other and change: a new fact is a new row, not a new `if`.

mod exclusions;
mod foreign;
mod hardware;
mod instances;
mod operands;
mod taints;
mod version;

pub use exclusions::{EXCLUSIONS, Exclusion, LabelTest, exclusion, exclusion_terms};
pub use foreign::{KNOWN_IMAGES, KnownImage, foreign_daemon_set};
pub use hardware::{
    EVIDENCE_LABELS, EvidenceLabel, INSTANCE_TYPE_LABEL, evidence_label, pci_vendor,
};
pub use instances::{
    NEURON_FAMILIES, NEURON_INSTANCES, NeuronFamily, NeuronInstance, neuron_family, neuron_instance,
};
pub use operands::{
    AGENT_IMAGE, CONTROL_PLANE_FLOOR, Floor, OPERANDS, Operand, PUBLISH_FLOOR, Subject, operand,
};
pub use taints::{
    DefaultToleration, IGNORED_TAINTS, IgnoredTaint, OPERAND_TOLERATIONS, untolerated,
};
pub use version::Version;
