//! The command line.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::{Parser, Subcommand};
use freehold_core::vendor::{Owner, Vendor};
use kube::config::KubeConfigOptions;
use kube::{Client, Config};
use tokio::signal::unix::{SignalKind, signal};
use tracing::Level;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::host::{BOOT_ID, Host};
use crate::interlock::hold::Hold;
use crate::interlock::started;
use crate::protocol::DEFAULT_SOCKET;
use crate::reading::Witness;
use crate::report::identity::{self, DEFAULT_TOKEN_FILE};
use crate::report::link::Socket;
use crate::report::{Reporter, backoff::Backoff};
use crate::shape::engine::Engine;
use crate::shape::lnc::Lnc;
use crate::shape::mig::Mig;
use crate::shape::shaper::Shaper;
use crate::{kubelet, witness};

/// The node side of Freehold.
#[derive(Debug, Parser)]
#[command(name = "freehold-agent", version, about)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Read the host and keep the owner word; serve both on a Unix socket. Needs UID 0, no capability and no credential.
    Witness {
        /// Where the host's paths are mounted.
        #[arg(long, default_value = "/host")]
        host_root: PathBuf,
        /// A kubelet's root directory, as a host path. Give it once for every root that nodes of this cluster use.
        #[arg(long = "kubelet-root", default_value = kubelet::DEFAULT_ROOT)]
        kubelet_roots: Vec<String>,
        /// The socket to serve.
        #[arg(long, default_value = DEFAULT_SOCKET)]
        socket: PathBuf,
    },
    /// Report to this node's AcceleratorNode what the witness says. Needs a token and nothing of the host.
    Report {
        /// This node's name. The token must say the same.
        #[arg(long, env = "NODE_NAME")]
        node_name: String,
        /// The witness's socket.
        #[arg(long, default_value = DEFAULT_SOCKET)]
        socket: PathBuf,
        /// The token, bound to this pod. With a kubeconfig it takes the place of the credential in it.
        #[arg(long)]
        token_file: Option<PathBuf>,
        /// How often the host is looked at when nothing else asks for it, e.g. 2s or 500ms.
        #[arg(long, default_value = "2s", value_parser = parse_duration)]
        poll: Duration,
    },
    /// Hold this node's lock for an operand for as long as its pod lives. Needs one directory.
    Hold {
        /// nvidia or neuron.
        #[arg(long, value_parser = parse_vendor)]
        vendor: Vendor,
        /// device-plugin or dra: what this pod's operand is.
        #[arg(long, value_parser = parse_owner)]
        owner: Owner,
        /// The directory with lock and owner word.
        #[arg(long)]
        state_dir: PathBuf,
        /// The mark for `held`.
        #[arg(long, default_value = "/run/freehold/held")]
        started: PathBuf,
        /// Also wait until the ordered layout is in force, verified by the node's shaper in this boot.
        #[arg(long)]
        shaped: bool,
        /// Where the kernel says which boot this is. In the same procfs the NVIDIA driver shows what MIG instances there are.
        #[arg(long, default_value = BOOT_ID, requires = "shaped")]
        boot_id_file: PathBuf,
    },
    /// Make the geometry that was ordered on this node, while no operand is alive. For NVIDIA it needs the driver and its
    /// privileges; for Neuron one writable directory.
    Shaper {
        /// nvidia or neuron.
        #[arg(long, value_parser = parse_vendor)]
        vendor: Vendor,
        /// The vendor's directory with lock, order and answer.
        #[arg(long)]
        state_dir: PathBuf,
        /// Where the host's paths are mounted.
        #[arg(long, default_value = "/host")]
        host_root: PathBuf,
        /// NVIDIA only: NVML, as the root of the driver's installation or the library's own file. The host's root unless given.
        #[arg(long)]
        nvml: Option<PathBuf>,
    },
    /// Exit 0 if, and only if, a living `hold` made this mark.
    Held {
        /// The mark.
        #[arg(long, default_value = "/run/freehold/held")]
        started: PathBuf,
    },
}

impl Cli {
    /// Runs the subcommand to its end.
    ///
    /// # Errors
    /// When it cannot start.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        if let Command::Held { started } = &self.command {
            return Ok(if started::is_valid(started) {
                ExitCode::SUCCESS
            } else {
                ExitCode::FAILURE
            });
        }
        log();
        // One thread: this process waits for most of its life, and every thread has an arena of its own.
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("no runtime")?;
        let tasks = tokio::task::LocalSet::new();
        tasks.block_on(&runtime, self.command.run())?;
        Ok(ExitCode::SUCCESS)
    }
}

impl Command {
    async fn run(self) -> anyhow::Result<()> {
        let stop = stop()?;
        match self {
            Self::Witness {
                host_root,
                kubelet_roots,
                socket,
            } => {
                witness::serve(Witness::new(host_root, &kubelet_roots), &socket, stop).await?;
            }
            Self::Report {
                node_name,
                socket,
                token_file,
                poll,
            } => {
                let identity_file = token_file
                    .clone()
                    .unwrap_or_else(|| DEFAULT_TOKEN_FILE.into());
                let identity = {
                    let node_name = node_name.clone();
                    move || identity::read(&identity_file, &node_name)
                };
                tokio::pin!(stop);
                let client = tokio::select! {
                    () = &mut stop => return Ok(()),
                    client = client(token_file) => client,
                };
                Reporter::new(client, node_name, identity, Socket(socket), poll)
                    .run(stop)
                    .await;
            }
            Self::Hold {
                vendor,
                owner,
                state_dir,
                started,
                shaped,
                boot_id_file,
            } => {
                Hold {
                    vendor,
                    owner,
                    directory: state_dir,
                    mark: started,
                    shaped: shaped.then_some(boot_id_file),
                }
                .run(stop)
                .await;
            }
            Self::Shaper {
                vendor,
                state_dir,
                host_root,
                nvml,
            } => {
                let library = nvml.unwrap_or_else(|| host_root.clone());
                let host = Host::new(host_root);
                let engine: Box<dyn Engine> = match vendor {
                    Vendor::Nvidia => Box::new(Mig::new(host.clone(), &library, &state_dir)),
                    Vendor::Neuron => Box::new(Lnc::new(host.clone())),
                };
                Shaper {
                    vendor,
                    directory: state_dir,
                    host,
                    engine,
                }
                .run(stop)
                .await;
            }
            // Answered before a runtime was made.
            Self::Held { .. } => {}
        }
        Ok(())
    }
}

/// Logs to stderr. The client's own lines are left out: what fails is said here, once for each change.
fn log() {
    let ours = Targets::new()
        .with_default(Level::WARN)
        .with_target("freehold_agent", Level::INFO)
        .with_target("kube_client", LevelFilter::OFF);
    tracing_subscriber::registry()
        .with(fmt::layer().with_ansi(false).with_writer(std::io::stderr))
        .with(ours)
        .init();
}

/// Resolves at the first SIGTERM or SIGINT. As PID 1 of a container, a process without a handler is not stopped by either.
fn stop() -> anyhow::Result<impl Future<Output = ()>> {
    let mut terminate = signal(SignalKind::terminate()).context("no handler for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("no handler for SIGINT")?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

/// A client, as soon as there is a configuration for one: credentials may come after the container.
async fn client(token_file: Option<PathBuf>) -> Client {
    let mut backoff = Backoff::new();
    let mut said = String::new();
    loop {
        match try_client(token_file.clone()).await {
            Ok(client) => return client,
            Err(error) => {
                let message = format!("{error:#}");
                if said != message {
                    tracing::warn!("no client yet: {message}");
                    said = message;
                }
            }
        }
        tokio::time::sleep(backoff.after_failure()).await;
    }
}

async fn try_client(token_file: Option<PathBuf>) -> anyhow::Result<Client> {
    let mut config = if std::env::var_os("KUBECONFIG").is_some() {
        Config::from_kubeconfig(&KubeConfigOptions::default())
            .await
            .context("KUBECONFIG")?
    } else {
        Config::incluster().context("in-cluster configuration")?
    };
    if let Some(file) = token_file {
        let file = file
            .into_os_string()
            .into_string()
            .ok()
            .context("--token-file must be UTF-8")?;
        config.auth_info = kube::config::AuthInfo {
            token_file: Some(file),
            ..Default::default()
        };
    }
    // The client would try a refused request again for minutes, with a reading that gets old, and be as late with the watch when
    // the API server is back; the reporter has a backoff of its own.
    config.default_retry = false;
    Client::try_from(config).context("client")
}

fn parse_vendor(key: &str) -> Result<Vendor, String> {
    Vendor::ALL
        .into_iter()
        .find(|vendor| vendor.key() == key)
        .ok_or_else(|| "expected nvidia or neuron".to_owned())
}

fn parse_owner(word: &str) -> Result<Owner, String> {
    Owner::from_word(word).ok_or_else(|| "expected device-plugin or dra".to_owned())
}

/// Kubernetes' notation, between 100 ms and an hour.
fn parse_duration(text: &str) -> Result<Duration, String> {
    let duration: kube::core::Duration = text
        .parse()
        .map_err(|error: kube::core::duration::ParseError| error.to_string())?;
    if duration.is_negative() {
        return Err("must not be negative".to_owned());
    }
    let duration = Duration::from(duration);
    let allowed = Duration::from_millis(100)..=Duration::from_secs(3600);
    if allowed.contains(&duration) {
        Ok(duration)
    } else {
        Err("must be between 100ms and 1h".to_owned())
    }
}
