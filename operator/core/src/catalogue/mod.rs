//! Facts about operands, floors, instance types, exclusions and images, as data. Each row carries its reason and source, since
//! published support statements contradict each other and change: a new fact is a new row, not a new `if`.

mod boards;
mod exclusions;
mod foreign;
mod hardware;
mod instances;
mod operands;
mod taints;
mod version;

pub use boards::{PUBLISHED_BOARDS, PublishedBoard, published_board};
pub use exclusions::{EXCLUSIONS, Exclusion, LabelTest, exclusion, exclusion_terms};
pub use foreign::{KNOWN_IMAGES, KnownImage, foreign_daemon_set};
pub use hardware::{
    EVIDENCE_LABELS, EvidenceLabel, INSTANCE_TYPE_LABEL, MPS_LABEL, evidence_label, pci_vendor,
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

/// Every label key that a row of the catalogue reads: whoever thins out nodes keeps these.
pub fn label_keys() -> impl Iterator<Item = &'static str> {
    let exclusions = EXCLUSIONS
        .iter()
        .flat_map(|row| row.when.iter().map(|test| test.key()));
    let evidence = EVIDENCE_LABELS.iter().map(|row| row.test.key());
    exclusions
        .chain(evidence)
        .chain([INSTANCE_TYPE_LABEL, MPS_LABEL])
}
