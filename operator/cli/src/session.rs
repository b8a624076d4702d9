//! The connection to a cluster and what a run is busy with.

use std::sync::{Mutex, PoisonError};

use jiff::Timestamp;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use tokio::sync::OnceCell;

use crate::args::Global;
use crate::exit::Failure;
use crate::output::{Format, Look};

/// One run of a command.
pub(crate) struct Session {
    global: Global,
    client: OnceCell<Client>,
    doing: Mutex<String>,
    now: Timestamp,
}

impl Session {
    /// Starts a run. Nothing is connected to yet.
    pub(crate) fn new(global: Global) -> Result<Self, Failure> {
        Ok(Self {
            global,
            client: OnceCell::new(),
            doing: Mutex::new("starting".to_owned()),
            now: Timestamp::now(),
        })
    }

    /// The wanted output format.
    pub(crate) const fn format(&self) -> Format {
        self.global.output
    }

    /// The wanted look of text.
    pub(crate) fn look(&self) -> Look {
        self.global.look()
    }

    /// When the run began; ages are told against it.
    pub(crate) const fn now(&self) -> Timestamp {
        self.now
    }

    /// Notes what the run is busy with, for the message when time runs out.
    pub(crate) fn busy(&self, doing: impl Into<String>) {
        *self.doing.lock().unwrap_or_else(PoisonError::into_inner) = doing.into();
    }

    /// What the run is busy with.
    pub(crate) fn doing(&self) -> String {
        self.doing
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// The client, made on first use.
    pub(crate) async fn client(&self) -> Result<Client, Failure> {
        self.client
            .get_or_try_init(|| self.connect())
            .await
            .cloned()
    }

    async fn connect(&self) -> Result<Client, Failure> {
        let Global {
            kubeconfig,
            context,
            ..
        } = &self.global;
        let options = KubeConfigOptions {
            context: context.clone(),
            ..KubeConfigOptions::default()
        };
        let config = match kubeconfig {
            Some(path) => {
                let file = Kubeconfig::read_from(path).map_err(|error| {
                    Failure::usage(format!("--kubeconfig {}: {error}", path.display()))
                })?;
                Config::from_custom_kubeconfig(file, &options)
                    .await
                    .map_err(|error| named(context.as_deref(), &error))?
            }
            None if context.is_some() => Config::from_kubeconfig(&options)
                .await
                .map_err(|error| named(context.as_deref(), &error))?,
            None => Config::infer().await.map_err(|error| {
                Failure::undetermined(format!(
                    "no cluster to talk to: {error}; give --kubeconfig or set KUBECONFIG"
                ))
            })?,
        };
        Client::try_from(config)
            .map_err(|error| Failure::undetermined(format!("cannot connect: {error}")))
    }
}

fn named(context: Option<&str>, error: &kube::config::KubeconfigError) -> Failure {
    let which = context.map_or_else(
        || "the kubeconfig".to_owned(),
        |context| format!("context {context:?}"),
    );
    Failure::usage(format!("{which} cannot be used: {error}"))
}

/// An API error in one line, with the server's own words where there are any.
pub(crate) fn words(error: &kube::Error) -> String {
    if let kube::Error::Api(status) = error {
        return match status.code {
            401 => format!("not authenticated: {}", status.message),
            403 => format!("forbidden: {}", status.message),
            _ => status.message.clone(),
        };
    }
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    text
}

/// Whether the API server says that there is no such object or resource.
pub(crate) fn is_not_found(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404)
}
