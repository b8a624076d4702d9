//! Why the ordered geometry is not in force, and may not come by itself.

use freehold_core::report::{Shaping, ShapingOutcome};
use freehold_nvml::{Code, Error};

/// One reason, each a sentence that names the GPU. In the order in which they are told: what a person must change first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Trouble {
    /// The boards cannot have what was ordered.
    Infeasible(String),
    /// The driver refused, or a GPU cannot be used.
    Failed(String),
    /// Somebody uses the devices.
    Busy(String),
    /// A mode change waits for the host to restart.
    RebootRequired(String),
    /// A mode change waits for a GPU reset.
    ResetRequired(String),
}

impl Trouble {
    /// What NVML refused on a GPU. `users` says who uses it, asked for only where that matters.
    pub fn refused(gpu: &str, error: &Error, users: impl FnOnce() -> String) -> Self {
        let Some(code) = error.code() else {
            return Self::Failed(format!("{gpu}: {error}"));
        };
        match code {
            Code::InUse => Self::Busy(format!("{gpu}: {error}: {}", users())),
            Code::ResetRequired => {
                Self::ResetRequired(format!("{gpu}: {error}: reset it, or restart the host"))
            }
            Code::GpuIsLost => Self::Failed(format!(
                "{gpu} fell off the bus ({error}): restart the host, and look into its log for Xid 79"
            )),
            Code::NoPermission => Self::Failed(format!(
                "{gpu}: {error}: the shaper must run as root, privileged, with the host's devices"
            )),
            Code::Uninitialized
            | Code::InvalidArgument
            | Code::NotSupported
            | Code::NotFound
            | Code::InsufficientSize
            | Code::DriverNotLoaded
            | Code::Timeout
            | Code::FunctionNotFound
            | Code::OperatingSystem
            | Code::VersionMismatch
            | Code::Memory
            | Code::InsufficientResources
            | Code::ArgumentVersionMismatch
            | Code::NotReady
            | Code::GpuNotFound
            | Code::InvalidState
            | Code::Unknown
            | Code::Other(_) => Self::Failed(format!("{gpu}: {error}")),
        }
    }

    /// The sentence.
    pub fn sentence(&self) -> &str {
        match self {
            Self::Infeasible(sentence)
            | Self::Failed(sentence)
            | Self::Busy(sentence)
            | Self::RebootRequired(sentence)
            | Self::ResetRequired(sentence) => sentence,
        }
    }

    /// The same with more to say.
    pub fn and(self, more: &str) -> Self {
        let longer = |sentence: String| format!("{sentence}; {more}");
        match self {
            Self::Infeasible(sentence) => Self::Infeasible(longer(sentence)),
            Self::Failed(sentence) => Self::Failed(longer(sentence)),
            Self::Busy(sentence) => Self::Busy(longer(sentence)),
            Self::RebootRequired(sentence) => Self::RebootRequired(longer(sentence)),
            Self::ResetRequired(sentence) => Self::ResetRequired(longer(sentence)),
        }
    }

    const fn outcome(&self) -> ShapingOutcome {
        match self {
            Self::Infeasible(_) => ShapingOutcome::Infeasible,
            Self::Failed(_) => ShapingOutcome::Failed,
            Self::Busy(_) => ShapingOutcome::Busy,
            Self::RebootRequired(_) => ShapingOutcome::RebootRequired,
            Self::ResetRequired(_) => ShapingOutcome::ResetRequired,
        }
    }
}

/// All of them as one statement: the first decides, all are told. `None` without any.
pub fn shaping(mut troubles: Vec<Trouble>) -> Option<Shaping> {
    troubles.sort();
    troubles.dedup();
    let outcome = troubles.first()?.outcome();
    let sentences: Vec<&str> = troubles.iter().map(Trouble::sentence).collect();
    Some(Shaping {
        outcome,
        message: Some(sentences.join("; ")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_person_must_change_is_told_first_and_nothing_is_left_out() {
        assert_eq!(shaping(Vec::new()), None);
        let told = shaping(vec![
            Trouble::ResetRequired("GPU 4 waits".into()),
            Trouble::Busy("GPU 1 is busy".into()),
            Trouble::Failed("GPU 7 is lost".into()),
            Trouble::Busy("GPU 1 is busy".into()),
        ])
        .unwrap();
        assert_eq!(told.outcome, ShapingOutcome::Failed);
        assert_eq!(
            told.message.as_deref(),
            Some("GPU 7 is lost; GPU 1 is busy; GPU 4 waits")
        );
    }
}
