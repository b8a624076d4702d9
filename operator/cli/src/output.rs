//! How answers leave the program.

use std::io::{self, Write};

use serde::Serialize;

use crate::exit::Failure;
use crate::session::Session;
use crate::style::Style;

/// Version of the JSON and YAML that commands print. Fields may be added under one version; none changes its meaning.
pub(crate) const SCHEMA_VERSION: &str = "cli.freehold.dev/v1";

/// Output formats.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    /// For people.
    #[default]
    Text,
    /// For people who want every node and every word.
    Wide,
    /// For programs.
    Json,
    /// For programs and people.
    Yaml,
}

/// How text is to look.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    pub(crate) style: Style,
    /// Name everything instead of the first few.
    pub(crate) wide: bool,
    /// Leave out table headers.
    pub(crate) no_headers: bool,
}

/// An answer.
pub(crate) trait Answer: Serialize {
    /// The `kind` in JSON and YAML.
    const KIND: &'static str;

    /// The answer for people, ending in a line break.
    fn text(&self, look: Look) -> String;
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Envelope<'a, T> {
    schema_version: &'static str,
    kind: &'static str,
    #[serde(flatten)]
    answer: &'a T,
}

/// Prints an answer on stdout in the wanted format.
pub(crate) fn print<T: Answer>(session: &Session, answer: &T) -> Result<(), Failure> {
    write_out(&rendered(session.format(), session.look(), answer)?)
}

fn rendered<T: Answer>(format: Format, look: Look, answer: &T) -> Result<String, Failure> {
    let envelope = Envelope {
        schema_version: SCHEMA_VERSION,
        kind: T::KIND,
        answer,
    };
    match format {
        Format::Text | Format::Wide => Ok(answer.text(look)),
        Format::Json => serde_json::to_string_pretty(&envelope)
            .map(|json| json + "\n")
            .map_err(|error| {
                Failure::undetermined(format!("cannot write the answer as JSON: {error}"))
            }),
        Format::Yaml => {
            // By way of a JSON value, so that both formats hold the same for certain.
            let value = serde_json::to_value(&envelope).map_err(|error| {
                Failure::undetermined(format!("cannot write the answer as YAML: {error}"))
            })?;
            serde_saphyr::to_string(&value).map_err(|error| {
                Failure::undetermined(format!("cannot write the answer as YAML: {error}"))
            })
        }
    }
}

/// An answer as one entry of a stream: a line of text or of JSON, or a YAML document.
pub(crate) fn line<T: Answer>(format: Format, look: Look, answer: &T) -> Result<String, Failure> {
    match format {
        Format::Text | Format::Wide => Ok(answer.text(look)),
        Format::Json => {
            let envelope = Envelope {
                schema_version: SCHEMA_VERSION,
                kind: T::KIND,
                answer,
            };
            let json = serde_json::to_string(&envelope);
            json.map(|json| json + "\n").map_err(|error| {
                Failure::undetermined(format!("cannot write the answer as JSON: {error}"))
            })
        }
        Format::Yaml => Ok(format!("---\n{}", rendered(format, look, answer)?)),
    }
}

/// Writes data to stdout. A reader that has seen enough (`| head`) is no error.
pub(crate) fn write_out(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Failure::undetermined(
            format!("cannot write to stdout: {error}"),
        )),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Writes a line to stderr. There is nowhere left to report a failure to.
pub(crate) fn complain(line: &str) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}
