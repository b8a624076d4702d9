//! `kubectl freehold`: says where every accelerator node stands, why, and what comes next. It reads and never changes the
//! cluster; what it advises, a person does.
//!
//! Every command answers three times over: in text for people, in JSON or YAML for programs, and in its exit code (see
//! [`Exit`]). Data goes to stdout, progress and warnings to stderr. What could not be read is said, never left out.
#![forbid(unsafe_code)]

mod age;
mod args;
mod exit;
mod explain;
mod fleet;
mod health;
mod intent_file;
mod output;
mod plan;
mod preflight;
mod seen;
mod session;
mod smoke;
mod status;
mod style;
mod table;
#[cfg(test)]
mod testing;
pub mod watch;
mod world;

pub use args::Cli;
pub use exit::{Exit, Failure};

use args::Command;
use session::Session;

/// Runs one command to its end, under its time limit.
pub async fn run(cli: Cli) -> Exit {
    let Cli { global, command } = cli;
    let style = global.style();
    match dispatch(global, command).await {
        Ok(exit) => exit,
        Err(Failure { exit, message }) => {
            output::complain(&format!("{} {message}", style.bad("error:")));
            exit
        }
    }
}

async fn dispatch(global: args::Global, command: Command) -> Result<Exit, Failure> {
    let limit = global.limit(command.default_limit());
    let session = Session::new(global)?;
    // `watch` sees to its limit itself: it has a last state to tell.
    let outer = if matches!(command, Command::Watch(_)) {
        None
    } else {
        limit
    };
    let work = async {
        match command {
            Command::Status(options) => status::run(&session, options).await,
            Command::Explain(options) => explain::run(&session, options).await,
            Command::Plan(options) => plan::run(&session, options).await,
            Command::Preflight(options) => preflight::run(&session, options).await,
            Command::Smoke(options) => smoke::run(&session, options).await,
            Command::Watch(options) => watch::run(&session, options, limit).await,
        }
    };
    match outer {
        None => work.await,
        Some(limit) => match tokio::time::timeout(limit, work).await {
            Ok(done) => done,
            Err(_) => Err(Failure::timed_out(limit, &session.doing())),
        },
    }
}
