//! The command line.

use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::output::{Format, Look};
use crate::style::Style;
use crate::{explain, plan, preflight, smoke, status, watch};

/// How long a command that only reads may take. A fleet of thousands of nodes is read in a few seconds.
const READ_LIMIT: Duration = Duration::from_secs(60);

/// Says where every accelerator node stands, why, and what comes next.
#[derive(Parser, Debug)]
#[command(
    name = "kubectl-freehold",
    bin_name = "kubectl freehold",
    version,
    after_help = "Exit codes: 0 fine; 1 could not be determined; 2 wrong usage; 3 something is wrong; \
                  4 waiting for workloads or a person; 124 timed out."
)]
pub struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What to do.
#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Say whether everything is as it should be; if not, where and why.
    Status(status::Options),
    /// Say everything about one node: who owns it, what it waits for, what comes next, and what that rests on.
    Explain(explain::Options),
    /// Follow a rollout until nothing is left to follow.
    Watch(watch::Options),
    /// Say what would change on which node, in which order, whom it disrupts and what stands in the way.
    Plan(plan::Options),
    /// Say whether a cluster can take Freehold, and whether what is installed is whole. Works before an installation.
    Preflight(preflight::Options),
    /// Print a bounded, suspended Job that checks whether a pod gets a device of a cohort. Nothing is applied.
    Smoke(smoke::Options),
}

impl Command {
    /// Time limit where the user gives none; `None` runs until it is done.
    pub(crate) const fn default_limit(&self) -> Option<Duration> {
        match self {
            Self::Status(_)
            | Self::Explain(_)
            | Self::Plan(_)
            | Self::Preflight(_)
            | Self::Smoke(_) => Some(READ_LIMIT),
            Self::Watch(_) => None,
        }
    }
}

/// Options of every command.
#[derive(Args, Clone, Debug)]
pub(crate) struct Global {
    /// Kubeconfig file; otherwise $KUBECONFIG, ~/.kube/config, or the pod's own account.
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig; otherwise its current one.
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) context: Option<String>,
    /// How long to wait for an answer, e.g. 30s or 1h30m; 0 waits for ever.
    #[arg(long, global = true, value_name = "DURATION", value_parser = duration)]
    pub(crate) timeout: Option<Duration>,
    /// Output format.
    #[arg(
        short,
        long,
        global = true,
        value_enum,
        default_value_t,
        value_name = "FORMAT"
    )]
    pub(crate) output: Format,
    /// When to use colour; auto also minds $NO_COLOR.
    #[arg(long, global = true, value_enum, default_value_t, value_name = "WHEN")]
    pub(crate) color: Colour,
    /// Leave out the headers of tables.
    #[arg(long, global = true)]
    pub(crate) no_headers: bool,
}

/// When to use colour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Colour {
    /// On a terminal, unless $NO_COLOR is set.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

impl Global {
    /// The style for this run.
    pub(crate) fn style(&self) -> Style {
        let colour = match self.color {
            Colour::Always => true,
            Colour::Never => false,
            Colour::Auto => {
                // https://no-color.org: set and not empty.
                let unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
                let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
                !unwanted && !dumb && std::io::stdout().is_terminal()
            }
        };
        Style { colour }
    }

    /// The look of text for this run.
    pub(crate) fn look(&self) -> Look {
        Look {
            style: self.style(),
            wide: self.output == Format::Wide,
            no_headers: self.no_headers,
        }
    }

    /// The time limit for this run.
    pub(crate) fn limit(&self, default: Option<Duration>) -> Option<Duration> {
        match self.timeout {
            None => default,
            Some(Duration::ZERO) => None,
            Some(limit) => Some(limit),
        }
    }
}

/// Parses a duration such as `90s` or `1h30m`; a bare 0 means none.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let span: jiff::SignedDuration = text
        .parse()
        .map_err(|_| format!("{text:?} is no duration; write it like 30s, 5m or 1h30m"))?;
    Duration::try_from(span).map_err(|_| format!("{text:?} is negative"))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn durations_are_written_as_people_write_them() {
        assert_eq!(duration("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("1h30m"), Ok(Duration::from_secs(5400)));
        assert_eq!(duration("0"), Ok(Duration::ZERO));
        assert!(duration("soon").is_err_and(|why| why.contains("30s")));
        assert!(duration("-5s").is_err());
    }

    #[test]
    fn no_timeout_given_means_the_commands_own_and_zero_means_none() {
        let parse = |args: &[&str]| {
            Cli::try_parse_from(args)
                .expect("a valid command line")
                .global
        };
        let standard = Some(Duration::from_secs(7));
        assert_eq!(
            parse(&["kubectl-freehold", "status"]).limit(standard),
            standard
        );
        assert_eq!(
            parse(&["kubectl-freehold", "status", "--timeout", "0"]).limit(standard),
            None
        );
        assert_eq!(
            parse(&["kubectl-freehold", "--timeout", "2m", "status"]).limit(standard),
            Some(Duration::from_secs(120))
        );
    }
}
