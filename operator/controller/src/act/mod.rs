//! Writes. Each carries the resourceVersion (or UID) of the object that it was decided on.

pub(crate) mod node;
pub(crate) mod objects;

use std::time::Duration;

/// No write of ours takes longer on a healthy API server; a lost one is decided anew.
pub(crate) const WRITE_TIMEOUT: Duration = Duration::from_secs(15);

/// How a write ended, in bounded categories for metrics and back-off.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WriteError {
    /// The object is no longer what the decision was made on: look again.
    #[error("changed meanwhile")]
    Stale,
    /// The API server refused it.
    #[error("refused: {0}")]
    Refused(String),
    /// An eviction that a PodDisruptionBudget does not allow now.
    #[error("{words}")]
    DisruptionBudget {
        /// UID of the pod.
        uid: String,
        /// The API server's words; they name the budget.
        words: String,
    },
    /// An object with the name exists and is not ours.
    #[error("{0} exists and is not owned by this AcceleratorCluster")]
    NotOurs(String),
    /// No answer in time, or the API server has trouble.
    #[error("not answered: {0}")]
    Unavailable(String),
}

impl WriteError {
    /// Metric label.
    pub(crate) const fn category(&self) -> &'static str {
        match self {
            Self::Stale => "stale",
            Self::Refused(_) => "refused",
            Self::DisruptionBudget { .. } => "disruption_budget",
            Self::NotOurs(_) => "not_ours",
            Self::Unavailable(_) => "unavailable",
        }
    }
}

impl From<kube::Error> for WriteError {
    fn from(error: kube::Error) -> Self {
        let kube::Error::Api(status) = error else {
            return Self::Unavailable(error.to_string());
        };
        if status.is_conflict() || status.is_not_found() || status.is_already_exists() {
            Self::Stale
        } else if status.code == 429 || status.code >= 500 {
            Self::Unavailable(status.message)
        } else {
            Self::Refused(status.message)
        }
    }
}

/// Runs a write with its time limit.
pub(crate) async fn timed<T>(
    write: impl Future<Output = Result<T, WriteError>>,
) -> Result<T, WriteError> {
    match tokio::time::timeout(WRITE_TIMEOUT, write).await {
        Ok(result) => result,
        Err(_) => Err(WriteError::Unavailable(format!(
            "no answer within {} s",
            WRITE_TIMEOUT.as_secs()
        ))),
    }
}
