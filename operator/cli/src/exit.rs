//! Exit codes, the same for every command and every output format.

use std::fmt;
use std::process::ExitCode;
use std::time::Duration;

use serde::Serialize;

use crate::age;

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Exit {
    /// Everything is as it should be.
    Fine,
    /// It could not be determined: no API server, no permission, no such object, or nobody has looked yet.
    Undetermined,
    /// The command line, or a file that it names, is wrong.
    Usage,
    /// Something is wrong that a person must see to; with `plan --exit-code`, there are changes.
    Findings,
    /// Nothing is wrong, but workloads or a person are waited for.
    Waiting,
    /// Time ran out.
    TimedOut,
    /// The user interrupted the command.
    Interrupted,
}

impl Exit {
    /// The process's exit code.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Fine => 0,
            Self::Undetermined => 1,
            Self::Usage => 2,
            Self::Findings => 3,
            Self::Waiting => 4,
            // As coreutils' timeout.
            Self::TimedOut => 124,
            // 128 + SIGINT, as shells have it.
            Self::Interrupted => 130,
        }
    }

    /// The one that weighs more: a finding is certain and comes before what is not known, which comes before a wait.
    pub(crate) const fn worse(self, other: Self) -> Self {
        if other.weight() > self.weight() {
            other
        } else {
            self
        }
    }

    const fn weight(self) -> u8 {
        match self {
            Self::Fine => 0,
            Self::Waiting => 1,
            Self::Undetermined => 2,
            Self::Findings => 3,
            Self::TimedOut => 4,
            Self::Interrupted => 5,
            Self::Usage => 6,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

/// Why a command has no answer.
#[derive(Debug)]
pub struct Failure {
    /// How it ends.
    pub(crate) exit: Exit,
    /// One or more sentences: what was tried, what was found, what to do.
    pub(crate) message: String,
}

impl Failure {
    /// The exit code that goes with it.
    #[must_use]
    pub const fn exit(&self) -> Exit {
        self.exit
    }

    /// Nothing can be told.
    pub(crate) fn undetermined(message: impl Into<String>) -> Self {
        Self {
            exit: Exit::Undetermined,
            message: message.into(),
        }
    }

    /// The command line, or a file that it names, is wrong.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self {
            exit: Exit::Usage,
            message: message.into(),
        }
    }

    /// The client's own clock ran out.
    pub(crate) fn timed_out(limit: Duration, doing: &str) -> Self {
        let limit = age::short(i64::try_from(limit.as_secs()).unwrap_or(i64::MAX));
        Self {
            exit: Exit::TimedOut,
            message: format!(
                "no answer within {limit} (this command's --timeout, not a limit of the cluster) while {doing}"
            ),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}
