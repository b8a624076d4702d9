//! Geometry as part of ownership: a cohort's layout edited, made on the node by the real shaper, advertised by the owner, used by
//! workloads. Real controller, real agents and shapers, a real control plane; the GPUs are the fake driver library's.

mod hardware;
mod mig;
mod neuron;
mod orders;
mod stage;
