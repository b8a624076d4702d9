//! Everything that Freehold is tested with: a real control plane, simulated nodes, scenarios.
#![forbid(unsafe_code)]

pub mod cluster;
pub mod faultline;
pub mod install;
pub mod monitor;
pub mod sample_fleet;
pub mod scenario;
pub mod sim;
pub mod workload;
