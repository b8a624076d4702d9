//! The Freehold controller.

use clap::{Parser, Subcommand};
use freehold_controller::{Options, print_crds, run, uninstall_check};

/// Gives every GPU and Neuron node exactly one allocation owner.
#[derive(Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Reconciles the AcceleratorCluster until told to stop.
    Run(Options),
    /// Prints the custom resource definitions.
    Crd,
    /// Fails while an AcceleratorCluster exists, so that an uninstallation stops before anything is gone.
    UninstallCheck,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    match Cli::parse().command {
        Command::Run(options) => run(options).await,
        Command::Crd => print_crds(),
        Command::UninstallCheck => uninstall_check().await,
    }
}
