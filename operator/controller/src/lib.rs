//! The controller: watches → facts → `core` → guarded writes.
//!
//! | stage | module |
//! |---|---|
//! | observe | [`observe`]: watches, the stores they fill, fresh reads |
//! | decide | [`decide`]: puts facts together and calls `freehold_core` |
//! | act | [`act`]: guarded writes |
//! | publish | [`publish`]: status and events |
//!
//! One task, the [`engine`], owns all state and takes turns with nothing; writes run beside it, at most one per node, and come
//! back as messages. There is no lock to hold and no order of events to get wrong between two reconcilers.
#![forbid(unsafe_code)]

mod act;
mod decide;
mod engine;
mod lease;
mod metrics;
mod observe;
mod options;
mod publish;
mod serve;
mod uninstall;
mod wanted;

use std::io::{IsTerminal as _, Write as _};

use anyhow::Context as _;
use kube::{Client, Config};
use prometheus_client::registry::Registry;

pub use options::Options;
pub use uninstall::uninstall_check;

/// Runs until SIGTERM or SIGINT.
///
/// # Errors
/// When the API server cannot be reached at start, or the listening address is taken.
pub async fn run(options: Options) -> anyhow::Result<()> {
    tracing_subscriber::fmt()
        .with_env_filter(
            tracing_subscriber::EnvFilter::try_from_default_env().unwrap_or_else(|_| "info".into()),
        )
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr)
        .init();
    let mut config = Config::infer()
        .await
        .context("no kubeconfig and no in-cluster configuration")?;
    // The client would retry a refused eviction for minutes before telling; every retry here is a new decision.
    config.default_retry = false;
    let client = Client::try_from(config)?;
    let mut registry = Registry::default();
    let metrics = metrics::Metrics::new(&mut registry);
    let readiness = serve::Readiness::default();
    serve::listen(options.listen, readiness.clone(), registry).await?;
    let (leading, lease) = lease::join(client.clone(), &options).await?;
    let engine = engine::Engine::new(client, options, metrics, readiness, leading).await?;
    engine.run(shutdown()?).await;
    // The engine held the receiver: with it gone the lease is released, and the other replica need not wait for its end.
    lease.await.context("releasing the lease")
}

fn shutdown() -> anyhow::Result<impl Future<Output = ()>> {
    use tokio::signal::unix::{SignalKind, signal};
    let (mut terminate, mut interrupt) = (
        signal(SignalKind::terminate())?,
        signal(SignalKind::interrupt())?,
    );
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

/// Prints the CRDs as YAML documents.
///
/// # Errors
/// When standard output is closed.
pub fn print_crds() -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    for (_, yaml) in freehold_api::crd_files()? {
        writeln!(out, "---\n{yaml}")?;
    }
    Ok(())
}
