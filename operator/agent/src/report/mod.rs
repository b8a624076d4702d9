//! Watches one `AcceleratorNode`, asks the witness, writes `status.report` when it changed (see [`pace`] for how soon).
//!
//! The order of things is what an attestation rests on: the terms are taken from the object *before* the witness is asked, the
//! witness begins to read *after* it was asked, and the write carries the resource version that the terms came from. So a
//! report with term N describes the host at some moment after the controller raised the term to N, and a write that was
//! overtaken is refused rather than believed.

pub mod backoff;
pub mod bound;
pub mod compose;
pub mod identity;
pub mod link;
pub mod pace;
pub mod patch;

use std::future::Future;
use std::time::Duration;

use freehold_api::AcceleratorNode;
use freehold_core::names::AGENT_FIELD_MANAGER;
use freehold_core::report::NodeReport;
use futures::StreamExt as _;
use kube::api::{Patch, PatchParams};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, ResourceExt as _};
use tokio::time::{Instant, sleep_until, timeout};

use backoff::Backoff;
use identity::{Identity, IdentityError};
use link::{Link, LinkError};
use pace::Questions;

/// How long one write may take before it counts as failed.
const WRITE_PATIENCE: Duration = Duration::from_secs(15);
/// After this many witness failures in a row the report says so. One or two are a container that starts.
const WITNESS_STRIKES: u32 = 3;

/// Why a round came to nothing. Each is said once for each change, and tried again.
#[derive(Debug, thiserror::Error)]
pub enum RoundError {
    /// Nobody knows which node this is.
    #[error("this agent does not report: {0}")]
    Identity(#[from] IdentityError),
    /// The witness does not answer, and it is too early to make a report of that.
    #[error("the witness does not answer: {0}")]
    Witness(#[from] LinkError),
    /// The object changed since it was read; the watch brings the newer one.
    #[error("the AcceleratorNode changed while the host was read")]
    Overtaken,
    /// The API server refused, or did not answer.
    #[error("the report could not be written")]
    Write(#[source] Box<kube::Error>),
    /// It did not answer in time, so that the outcome is not known.
    #[error("the API server did not answer a write within {} s", WRITE_PATIENCE.as_secs())]
    WriteTimeout,
    /// A defect.
    #[error("the report cannot be written as JSON: {0}")]
    Json(#[from] serde_json::Error),
}

/// One node's reporter.
pub struct Reporter<L, I> {
    api: Api<AcceleratorNode>,
    node_name: String,
    identity: I,
    link: L,
    poll: Duration,
    object: Option<AcceleratorNode>,
    /// A list is under way, and the object was not in it so far.
    missed: bool,
    /// The last round was overtaken: whatever the watch brings next is worth another.
    overtaken: bool,
    strikes: u32,
    questions: Questions,
    /// Since when the host has not been as the last report says.
    differs: Option<std::time::Instant>,
}

impl<L, I> Reporter<L, I>
where
    L: Link,
    I: Fn() -> Result<Identity, IdentityError>,
{
    /// Reports for the node of this name, which `identity` must confirm before every write.
    pub fn new(
        client: Client,
        node_name: impl Into<String>,
        identity: I,
        link: L,
        poll: Duration,
    ) -> Self {
        Self {
            api: Api::all(client),
            node_name: node_name.into(),
            identity,
            link,
            poll,
            object: None,
            missed: false,
            overtaken: false,
            strikes: 0,
            questions: Questions::default(),
            differs: None,
        }
    }

    /// Runs until `stop` resolves. Nothing that the API server or the witness does ends it.
    pub async fn run(mut self, stop: impl Future<Output = ()>) {
        let only_ours =
            watcher::Config::default().fields(&format!("metadata.name={}", self.node_name));
        let events = watcher(self.api.clone(), only_ours).default_backoff();
        tokio::pin!(events, stop);
        let mut backoff = Backoff::new();
        let mut next = Instant::now() + backoff::spread(self.poll);
        let mut said = String::new();
        let mut watch_said = String::new();
        loop {
            tokio::select! {
                biased;
                () = &mut stop => return,
                Some(event) = events.next() => match event {
                    Ok(event) => {
                        // Every try begins with this event; only those after it are the API server's.
                        if !matches!(event, watcher::Event::Init) {
                            watch_said.clear();
                        }
                        // Whoever sends events takes writes, so that no backoff holds an answer up.
                        if self.take(event) {
                            next = Instant::now();
                        }
                    }
                    Err(error) => say(&mut watch_said, &format!("the watch failed: {}", chain(&error))),
                },
                () = sleep_until(next) => {
                    let round = tokio::select! {
                        biased;
                        () = &mut stop => return,
                        round = self.round() => round,
                    };
                    next = Instant::now() + match round {
                        Ok(()) => {
                            backoff.reset();
                            said.clear();
                            self.poll
                        }
                        // Not a failure, and the event that overtook this round may be here already.
                        Err(RoundError::Overtaken) => self.poll,
                        Err(error) => {
                            say(&mut said, &chain(&error));
                            backoff.after_failure()
                        }
                    };
                }
            }
        }
    }

    /// Takes in a watch event. True when there is something new to answer.
    fn take(&mut self, event: watcher::Event<AcceleratorNode>) -> bool {
        match event {
            watcher::Event::Apply(object) | watcher::Event::InitApply(object) => {
                self.take_object(object)
            }
            watcher::Event::Delete(object) => {
                // A deletion that an older object suffered says nothing about its successor.
                if self
                    .object
                    .as_ref()
                    .is_some_and(|known| known.uid() == object.uid())
                {
                    self.object = None;
                }
                false
            }
            watcher::Event::Init => {
                self.missed = true;
                false
            }
            watcher::Event::InitDone => {
                // Deleted while nobody watched.
                if self.missed {
                    self.object = None;
                }
                self.missed = false;
                false
            }
        }
    }

    fn take_object(&mut self, object: AcceleratorNode) -> bool {
        if object.name_any() != self.node_name {
            return false;
        }
        self.missed = false;
        if let Some(known) = &self.object {
            // Our own write's answer is usually here before the watch brings the same, or an older one.
            if known.uid() == object.uid() && version(known) > version(&object) {
                return false;
            }
            self.questions.look(&object, std::time::Instant::now());
            let same_spec = known.uid() == object.uid() && known.spec == object.spec;
            let same_report = report_of(known) == report_of(&object);
            self.object = Some(object);
            return !(same_spec && same_report) || self.overtaken;
        }
        self.questions.look(&object, std::time::Instant::now());
        self.object = Some(object);
        true
    }

    /// One reading and, if it says anything new, one write.
    async fn round(&mut self) -> Result<(), RoundError> {
        let Some(object) = self.object.clone() else {
            return Ok(());
        };
        self.overtaken = false;
        let identity = (self.identity)()?;
        let request = compose::request(&identity, &object);
        let report = match self.link.observe(&request).await {
            Ok(reading) => {
                self.strikes = 0;
                compose::report(&identity, &object, reading)
            }
            Err(error) => {
                self.strikes = self.strikes.saturating_add(1);
                if self.strikes < WITNESS_STRIKES {
                    return Err(error.into());
                }
                compose::blind(&identity, report_of(&object), &error)
            }
        };
        let report = bound::within(report);
        if !self.is_due(report_of(&object), &report) {
            return Ok(());
        }
        let patch = Patch::Merge(patch::for_report(&object, &report)?);
        let params = PatchParams {
            field_manager: Some(AGENT_FIELD_MANAGER.to_owned()),
            ..PatchParams::default()
        };
        let write = self.api.patch_status(&self.node_name, &params, &patch);
        match timeout(WRITE_PATIENCE, write).await {
            Ok(Ok(written)) => {
                self.differs = None;
                self.take_object(written);
                Ok(())
            }
            Ok(Err(kube::Error::Api(status))) if status.is_conflict() => {
                self.overtaken = true;
                Err(RoundError::Overtaken)
            }
            Ok(Err(kube::Error::Api(status))) if status.is_not_found() => {
                self.object = None;
                Ok(())
            }
            Ok(Err(error)) => Err(RoundError::Write(Box::new(error))),
            Err(_) => Err(RoundError::WriteTimeout),
        }
    }
}

impl<L, I> Reporter<L, I> {
    /// Whether the time has come to write what was read.
    fn is_due(&mut self, said: Option<&NodeReport>, read: &NodeReport) -> bool {
        let Some(said) = said else { return true };
        if said == read {
            self.differs = None;
            return false;
        }
        let now = std::time::Instant::now();
        let Some(wait) = pace::haste(said, read, self.questions.open(now)).after() else {
            self.differs = None;
            return false;
        };
        let since = *self.differs.get_or_insert(now);
        now.saturating_duration_since(since) >= wait
    }
}

fn report_of(object: &AcceleratorNode) -> Option<&NodeReport> {
    object.status.as_ref()?.report.as_ref()
}

/// A resource version as a number, which Kubernetes 1.35 and later promise it is; 0 for anything else, so that nothing is
/// held to be newer than it.
fn version(object: &AcceleratorNode) -> u128 {
    object
        .resource_version()
        .and_then(|version| version.parse().ok())
        .unwrap_or_default()
}

/// An error with its causes, since the outermost seldom says what happened.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let next = error.to_string();
        if !text.contains(&next) {
            text.push_str(": ");
            text.push_str(&next);
        }
        cause = error.source();
    }
    text
}

/// Logs a message once for each change.
fn say(said: &mut String, message: &str) {
    if said != message {
        tracing::warn!("{message}");
        message.clone_into(said);
    }
}

#[cfg(test)]
mod tests {
    use kube::runtime::watcher::Event;
    use serde_json::json;

    use super::*;
    use crate::reading::Witness;

    type Reported = Reporter<Witness, fn() -> Result<Identity, IdentityError>>;

    fn nobody() -> Result<Identity, IdentityError> {
        Ok(Identity {
            node_uid: "uid-1".into(),
        })
    }

    /// A reporter whose API server is never asked.
    fn reporter() -> Reported {
        let config = kube::Config::new("http://127.0.0.1:1".parse().unwrap());
        let client = Client::try_from(config).unwrap();
        Reporter::new(
            client,
            "rack-3",
            nobody,
            Witness::new("/nonexistent", &[]),
            Duration::from_secs(3600),
        )
    }

    fn object(uid: &str, version: u32, term: i64) -> AcceleratorNode {
        serde_json::from_value(json!({
            "apiVersion": "freehold.dev/v1alpha1", "kind": "AcceleratorNode",
            "metadata": {"name": "rack-3", "uid": uid, "resourceVersion": version.to_string()},
            "spec": {"nodeUID": "uid-1", "nvidia": {"term": term}},
        }))
        .unwrap()
    }

    fn term(reporter: &Reported) -> Option<i64> {
        Some(reporter.object.as_ref()?.spec.nvidia.as_ref()?.term)
    }

    #[tokio::test]
    async fn an_object_deleted_while_nobody_watched_is_forgotten() {
        let mut reporter = reporter();
        assert!(reporter.take(Event::Apply(object("a", 5, 1))));
        for event in [Event::Init, Event::InitDone] {
            assert!(!reporter.take(event));
        }
        assert_eq!(term(&reporter), None, "its orders are nobody's");
        assert!(!reporter.take(Event::Init));
        assert!(reporter.take(Event::InitApply(object("b", 9, 4))));
        assert!(!reporter.take(Event::InitDone));
        assert_eq!(term(&reporter), Some(4));
    }

    #[tokio::test]
    async fn a_view_never_goes_back_in_time_and_a_successor_is_no_step_back() {
        let mut reporter = reporter();
        assert!(reporter.take(Event::Apply(object("a", 10, 2))));
        assert!(
            !reporter.take(Event::Apply(object("a", 9, 1))),
            "older than our own write's answer"
        );
        assert_eq!(term(&reporter), Some(2));
        assert!(
            !reporter.take(Event::Delete(object("z", 11, 1))),
            "somebody else's deletion"
        );
        assert_eq!(term(&reporter), Some(2));
        assert!(reporter.take(Event::Apply(object("b", 12, 1))));
        assert_eq!(term(&reporter), Some(1));
    }

    #[tokio::test]
    async fn what_changes_nothing_for_the_agent_asks_for_nothing_unless_it_was_overtaken() {
        let mut reporter = reporter();
        assert!(reporter.take(Event::Apply(object("a", 10, 2))));
        assert!(
            !reporter.take(Event::Apply(object("a", 11, 2))),
            "a condition changed"
        );
        reporter.overtaken = true;
        assert!(reporter.take(Event::Apply(object("a", 12, 2))));
    }

    #[tokio::test]
    async fn a_reporter_may_run_on_any_thread() {
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let running = tokio::spawn(reporter().run(async move {
            let _ = stopped.await;
        }));
        stop.send(()).unwrap();
        running.await.unwrap();
    }
}
