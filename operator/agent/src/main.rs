//! `freehold-agent`: see the library's documentation.
#![forbid(unsafe_code)]

use clap::Parser as _;

fn main() -> std::process::ExitCode {
    match freehold_agent::cli::Cli::parse().run() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("freehold-agent: {error:#}");
            std::process::ExitCode::FAILURE
        }
    }
}
