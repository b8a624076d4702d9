//! What each identity of the installation can do on a real API server under `config/install`, tried with its own tokens.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests"
)]

mod agent;
mod attempt;
mod controller;
mod everybody;
mod operands;
mod permissions;
mod stage;
mod world;
