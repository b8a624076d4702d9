//! `preflight`: whether a cluster can take Freehold, and whether what is installed is whole. Works before, during and after an
//! installation. It judges by access reviews and by what the API server answers to dry runs, never by names alone, and changes
//! nothing.

mod api;
mod check;
mod install;
mod intent;
mod manifest;
mod rivals;
mod text;

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use serde::Serialize;

use crate::exit::{Exit, Failure};
use crate::intent_file;
use crate::output::{self, Answer, Look};
use crate::session::Session;

use check::{Check, Finding, Outcome};

/// Options of `preflight`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    /// Check this AcceleratorCluster (- for stdin) instead of the live one.
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Findings from which on the exit code is 3.
    #[arg(long, value_enum, default_value_t, value_name = "SEVERITY")]
    fail_on: FailOn,
}

/// Findings that make the command fail.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum FailOn {
    /// Errors.
    #[default]
    Error,
    /// Warnings, too.
    Warning,
    /// Nothing; the findings are only told.
    Never,
}

/// Runs the command.
pub(crate) async fn run(session: &Session, options: Options) -> Result<Exit, Failure> {
    let given = options.file.as_deref().map(intent_file::read).transpose()?;
    let client = session.client().await?;
    let mut report = Report::default();

    session.busy("asking the API server who it is");
    let Some(server) = api::check(&client, &mut report).await else {
        let rest: Vec<Check> = Check::ALL
            .iter()
            .copied()
            .filter(|check| !report.has(*check))
            .collect();
        for check in rest {
            report.add(check.skipped("the API server could not be asked"));
        }
        return finish(session, report, options.fail_on);
    };
    session.busy("comparing the installation with this version's");
    let crds = install::check(&client, &mut report).await;
    session.busy("trying out the AcceleratorCluster");
    let plan = intent::check(&client, &server, crds, given, &mut report).await;
    session.busy("looking for others who hand out devices");
    rivals::check(&client, &server, plan.as_ref(), &mut report).await;
    finish(session, report, options.fail_on)
}

fn finish(session: &Session, mut report: Report, fail_on: FailOn) -> Result<Exit, Failure> {
    report.conclude(fail_on);
    output::print(session, &report)?;
    Ok(report.exit)
}

/// The answer.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Report {
    /// One sentence.
    sentence: String,
    exit: Exit,
    findings: Vec<Finding>,
}

impl Default for Report {
    fn default() -> Self {
        Self {
            sentence: String::new(),
            exit: Exit::Fine,
            findings: Vec::new(),
        }
    }
}

impl Report {
    fn add(&mut self, finding: Finding) {
        self.findings.push(finding);
    }

    fn has(&self, check: Check) -> bool {
        self.findings.iter().any(|finding| finding.check == check)
    }

    fn count(&self, outcome: Outcome) -> usize {
        self.findings
            .iter()
            .filter(|finding| finding.outcome == outcome)
            .count()
    }

    fn conclude(&mut self, fail_on: FailOn) {
        let (failed, warned, unknown) = (
            self.count(Outcome::Fail),
            self.count(Outcome::Warn),
            self.count(Outcome::Unknown),
        );
        let counts = |over: bool| match fail_on {
            FailOn::Error => failed > 0 && over,
            FailOn::Warning => failed + warned > 0 && over,
            FailOn::Never => false,
        };
        self.exit = match (counts(true), unknown) {
            (true, _) => Exit::Findings,
            (false, 0) => Exit::Fine,
            (false, _) => Exit::Undetermined,
        };
        let not_installed = self.findings.iter().any(|finding| {
            finding.check == Check::Definitions && finding.outcome == Outcome::Skipped
        });
        let head = match (failed, unknown) {
            (0, 0) if not_installed => "Ready for an installation".to_owned(),
            (0, 0) => "All is in order".to_owned(),
            (0, unknown) => format!("Nothing is wrong as far as can be seen; {unknown} not known"),
            (failed, 0) => format!("{failed} wrong"),
            (failed, unknown) => format!("{failed} wrong, {unknown} not known"),
        };
        let warned = match warned {
            0 => String::new(),
            1 => ", 1 warning".to_owned(),
            more => format!(", {more} warnings"),
        };
        self.sentence = format!("{head}{warned}.");
    }
}

impl Answer for Report {
    const KIND: &'static str = "Preflight";

    fn text(&self, look: Look) -> String {
        text::render(self, look)
    }
}

#[cfg(test)]
mod tests;
