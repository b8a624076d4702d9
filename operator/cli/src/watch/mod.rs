//! `watch`: follows a rollout until nothing is left to follow. On a terminal it draws a bar for each cohort and the nodes that
//! need a look; elsewhere it writes a line for each change and nothing else.
//!
//! Programs of this workspace use [`follow`] to show the same.

mod bars;
mod frame;
mod lines;
mod state;

use std::io::IsTerminal as _;
use std::time::Duration;

use clap::Args;
use futures::StreamExt as _;
use jiff::Timestamp;
use kube::Client;
use tokio::time::Instant;

use crate::age;
use crate::args::duration;
use crate::exit::{Exit, Failure};
use crate::fleet::{Controller, Fleet};
use crate::health::Health;
use crate::output::{self, Format, Look};
use crate::session::Session;
use crate::status::Verdict;
use crate::style::Style;

use bars::Bars;
use lines::Lines;
use state::{State, Told};

/// How often the picture is brought up to date at most. Quicker flickers, slower looks stuck.
const REDRAW: Duration = Duration::from_millis(200);
/// How often ages move on and the controller's lease is read, without any change.
const TICK: Duration = Duration::from_secs(10);

/// Patience where the user gives none: about as long as a small job takes to end.
const PATIENCE: Duration = Duration::from_secs(600);

/// Options of `watch`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    /// How long to go on while nodes do nothing but wait for workloads or a person; then the exit code is 4.
    #[arg(long, default_value = "10m", value_name = "DURATION", value_parser = duration)]
    patience: Duration,
}

/// How a rollout is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Display {
    /// Progress bars on stderr, redrawn in place.
    Bars,
    /// Lines on stdout, one for each change.
    Lines,
}

/// How to follow a rollout.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// How it is shown; `None`: bars on a terminal, lines elsewhere.
    pub display: Option<Display>,
    /// Whether text is coloured.
    pub colour: bool,
    /// How long to go on while nodes do nothing but wait for workloads or a person.
    pub patience: Duration,
    /// How long to go on at most; `None` for ever.
    pub limit: Option<Duration>,
}

impl Default for Settings {
    /// As the command without options.
    fn default() -> Self {
        Self {
            display: None,
            colour: false,
            patience: PATIENCE,
            limit: None,
        }
    }
}

/// Follows a rollout until every node is ready, excluded, or needs a person; until only waits are left for `patience`; until
/// `limit`; or until the user interrupts.
///
/// # Errors
/// When the resources cannot be read at the start. Later failures are told and tried again.
pub async fn follow(client: Client, settings: Settings) -> Result<Exit, Failure> {
    follow_as(client, settings, Format::Text).await
}

/// Runs the command.
pub(crate) async fn run(
    session: &Session,
    options: Options,
    limit: Option<Duration>,
) -> Result<Exit, Failure> {
    let client = session.client().await?;
    let Look { style, .. } = session.look();
    let settings = Settings {
        display: None,
        colour: style.colour,
        patience: options.patience,
        limit,
    };
    follow_as(client, settings, session.format()).await
}

async fn follow_as(client: Client, settings: Settings, format: Format) -> Result<Exit, Failure> {
    let Settings {
        display,
        colour,
        patience,
        limit,
    } = settings;
    let deadline = limit.map(|limit| Instant::now() + limit);
    let style = Style { colour };
    let display = display.unwrap_or_else(|| {
        let person =
            matches!(format, Format::Text | Format::Wide) && std::io::stderr().is_terminal();
        if person {
            Display::Bars
        } else {
            Display::Lines
        }
    });
    // A picture of the start, and the errors of whoever may not look.
    let fleet = Fleet::read(client.clone(), Timestamp::now(), |_| {}).await?;
    let mut view = View::new(display, format, style);
    let mut state = State::new(fleet);
    let mut events = std::pin::pin!(state::events(client.clone()));
    let mut tick = tokio::time::interval(TICK);
    let mut interrupt = std::pin::pin!(tokio::signal::ctrl_c());
    let mut quiet_since = Instant::now();
    let mut last: Option<Verdict> = None;
    loop {
        let now = Timestamp::now();
        state.refresh();
        let verdict = Verdict::new(&state.fleet, now);
        // Notes hold ages, which move by themselves.
        let told = |verdict: &Verdict| (verdict.sentence.clone(), verdict.exit);
        if last.as_ref().map(told) != Some(told(&verdict)) {
            quiet_since = Instant::now();
        }
        view.show(&state, &verdict, now)?;
        if let Some(exit) = ended(&state.fleet, &verdict, quiet_since.elapsed() >= patience) {
            view.end(&state)?;
            return Ok(exit);
        }
        last = Some(verdict);

        // Everything that arrives within one redraw is one change of the picture.
        let patient = quiet_since + patience;
        let mut redraw = (patient > Instant::now()).then_some(patient);
        loop {
            let next = tokio::select! {
                event = events.next() => Next::Event(event),
                _ = tick.tick() => Next::Tick,
                _ = &mut interrupt => Next::Interrupt,
                () = until(deadline) => Next::Deadline,
                () = until(redraw) => Next::Redraw,
            };
            match next {
                Next::Event(Some(told)) => {
                    if let Some(trouble) = told.apply(&mut state) {
                        view.trouble(&trouble);
                    }
                    let soon = Instant::now() + REDRAW;
                    redraw = Some(redraw.map_or(soon, |redraw| redraw.min(soon)));
                }
                Next::Event(None) => return Err(Failure::undetermined("the watches ended")),
                Next::Tick => {
                    state.fleet.controller =
                        Controller::read(client.clone(), Timestamp::now()).await;
                    break;
                }
                Next::Redraw => break,
                Next::Interrupt => {
                    view.leave();
                    output::complain(&format!("interrupted; last seen: {}", said(last.as_ref())));
                    return Ok(Exit::Interrupted);
                }
                Next::Deadline => {
                    view.leave();
                    let limit = age::short(limit.map_or(0, |limit| {
                        i64::try_from(limit.as_secs()).unwrap_or(i64::MAX)
                    }));
                    let message = format!(
                        "not finished within {limit} (this command's --timeout, not a limit of the cluster); last seen: {}",
                        said(last.as_ref())
                    );
                    return Err(Failure {
                        exit: Exit::TimedOut,
                        message,
                    });
                }
            }
        }
    }
}

enum Next {
    Event(Option<Told>),
    Tick,
    Redraw,
    Interrupt,
    Deadline,
}

async fn until(instant: Option<Instant>) {
    match instant {
        Some(instant) => tokio::time::sleep_until(instant).await,
        None => std::future::pending().await,
    }
}

fn said(verdict: Option<&Verdict>) -> String {
    verdict.map_or_else(|| "nothing".to_owned(), |verdict| verdict.sentence.clone())
}

/// Whether there is nothing left to follow, and the exit code then. `patient`: nothing has changed for as long as the user
/// was ready to wait.
fn ended(fleet: &Fleet, verdict: &Verdict, patient: bool) -> Option<Exit> {
    let any = |health: Health| fleet.places.iter().any(|place| place.health == health);
    let controlled = matches!(
        fleet.controller,
        Controller::Alive | Controller::Unreadable { .. }
    );
    match verdict.exit {
        Exit::Fine => Some(Exit::Fine),
        // Others may still be on their way, and what waits may yet move.
        Exit::Findings
            if !any(Health::Moving)
                && !any(Health::Waiting)
                && !any(Health::Unknown)
                && verdict.observed =>
        {
            Some(Exit::Findings)
        }
        exit if patient && !(controlled && any(Health::Moving)) => Some(exit),
        Exit::Undetermined
        | Exit::Usage
        | Exit::Findings
        | Exit::Waiting
        | Exit::TimedOut
        | Exit::Interrupted => None,
    }
}

/// One of the two ways to show it.
enum View {
    Bars(Bars),
    Lines(Lines),
}

impl View {
    fn new(display: Display, format: Format, style: Style) -> Self {
        match display {
            Display::Bars => Self::Bars(Bars::new(style)),
            Display::Lines => Self::Lines(Lines::new(format, style)),
        }
    }

    fn show(&mut self, state: &State, verdict: &Verdict, now: Timestamp) -> Result<(), Failure> {
        match self {
            Self::Bars(bars) => {
                bars.show(&state.fleet, verdict, now);
                Ok(())
            }
            Self::Lines(lines) => lines.show(&state.fleet, verdict, now),
        }
    }

    /// Something went wrong and is tried again.
    fn trouble(&mut self, what: &str) {
        match self {
            Self::Bars(bars) => bars.trouble(what),
            Self::Lines(_) => output::complain(&format!("warning: {what}")),
        }
    }

    /// Gives the terminal back.
    fn leave(&mut self) {
        match self {
            Self::Bars(bars) => bars.leave(),
            Self::Lines(_) => {}
        }
    }

    /// Says the last word.
    fn end(&mut self, state: &State) -> Result<(), Failure> {
        self.leave();
        match self {
            Self::Bars(bars) => output::write_out(&bars.last_word(&state.fleet)),
            // It was told when it came about.
            Self::Lines(_) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
