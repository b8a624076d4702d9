//! `kubectl freehold`: says where every accelerator node stands, and why.

use std::process::ExitCode;

use clap::Parser as _;
use freehold_cli::{Cli, run};

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    run(Cli::parse()).await.into()
}
