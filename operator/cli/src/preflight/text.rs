//! The findings for people, under their categories.

use super::Report;
use super::check::{Finding, Outcome};
use crate::output::Look;
use crate::style::Style;

pub(super) fn render(report: &Report, look: Look) -> String {
    let mut out = String::new();
    let mut category = "";
    for finding in &report.findings {
        if finding.category != category {
            category = finding.category;
            let gap = if out.is_empty() { "" } else { "\n" };
            out.push_str(&format!("{gap}{}\n", look.style.bold(category)));
        }
        for line in lines(finding, look) {
            out.push_str(&line);
            out.push('\n');
        }
    }
    format!("{out}\n{}\n", report.sentence)
}

fn lines(finding: &Finding, look: Look) -> Vec<String> {
    let glyph = match finding.outcome {
        Outcome::Pass => "✓",
        Outcome::Warn => "!",
        Outcome::Fail => "✗",
        Outcome::Skipped => "-",
        Outcome::Unknown => "?",
    };
    let detail = match finding.outcome {
        Outcome::Pass if finding.cause.is_empty() => String::new(),
        Outcome::Pass => format!(" ({})", finding.cause),
        Outcome::Skipped => format!(" – skipped: {}", finding.cause),
        Outcome::Unknown => format!(" – not known: {}", finding.cause),
        Outcome::Warn | Outcome::Fail => String::new(),
    };
    let head = format!("{glyph} {}{detail}", finding.title);
    let mut lines = vec![format!(
        "  {} {}",
        paint(finding.outcome, look.style, &head),
        look.style.dim(finding.id)
    )];
    if matches!(finding.outcome, Outcome::Warn | Outcome::Fail) {
        let object = finding
            .object
            .as_ref()
            .map_or_else(String::new, |object| format!("{object}: "));
        lines.push(format!("      {object}{}", finding.cause));
        lines.push(format!("      Next: {}", finding.next));
    }
    lines
}

fn paint(outcome: Outcome, style: Style, text: &str) -> String {
    match outcome {
        Outcome::Pass => style.good(text),
        Outcome::Warn | Outcome::Unknown => style.waiting(text),
        Outcome::Fail => style.bad(text),
        Outcome::Skipped => style.dim(text),
    }
}
