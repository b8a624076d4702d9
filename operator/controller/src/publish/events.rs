//! Events, on transitions only, on the Node and on its AcceleratorNode.

use freehold_api::AcceleratorNode;
use freehold_core::blocker::Kind;
use freehold_core::names;
use freehold_core::summary::TenureOutcome;
use freehold_core::tenure::Step;
use freehold_core::vendor::Owner;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::{Client, Resource as _, ResourceExt as _};

/// An event's note may have 1,024 characters.
const NOTE_LIMIT: usize = 1_000;

/// Publishes transitions.
#[derive(Clone)]
pub(crate) struct Events(Recorder);

impl Events {
    pub(crate) fn new(client: Client, identity: &str) -> Self {
        let reporter = Reporter {
            controller: names::CONTROLLER_FIELD_MANAGER.into(),
            instance: Some(identity.to_owned()),
        };
        Self(Recorder::new(client, reporter))
    }

    /// Tells that one vendor's tenure went from one published state to the next. Steps in between that were never published
    /// are not told: a quick way through them is one piece of news.
    pub(crate) async fn transition(
        &self,
        record: &AcceleratorNode,
        outcome: &TenureOutcome,
    ) -> kube::Result<()> {
        let event = event(outcome);
        self.0.publish(&event, &record.object_ref(&())).await?;
        let node = ObjectReference {
            api_version: Some("v1".into()),
            kind: Some("Node".into()),
            name: Some(record.name_any()),
            uid: Some(record.spec.node_uid.clone()),
            ..ObjectReference::default()
        };
        self.0.publish(&event, &node).await
    }
}

fn event(outcome: &TenureOutcome) -> Event {
    let why = outcome.why();
    let subject = match (&outcome.cohort, outcome.owner) {
        (Some(cohort), Some(owner)) => {
            format!("{} of cohort {cohort} under {owner}", outcome.vendor)
        }
        (Some(cohort), None) => format!("{} of cohort {cohort}", outcome.vendor),
        (None, _) => outcome.vendor.to_string(),
    };
    let (reason, note) = match (why, outcome.step) {
        (Some(blocker), _) => (
            format!("{:?}", blocker.reason),
            format!(
                "{subject}: {}. Next: {}",
                blocker.message,
                blocker.reason.next_step()
            ),
        ),
        (None, Step::Held) => (
            "OwnerReady".to_owned(),
            format!("{subject}: advertised as it should be"),
        ),
        (None, step) => (format!("{step:?}"), subject),
    };
    let warning = why.is_some_and(|blocker| match blocker.reason.kind() {
        Kind::Blocked | Kind::Conflicted => true,
        Kind::Excluded | Kind::Waiting => false,
    });
    Event {
        type_: if warning {
            EventType::Warning
        } else {
            EventType::Normal
        },
        reason,
        note: Some(cut(&note, NOTE_LIMIT)),
        // The recorder merges events of equal action and reason: step and owner keep news from hiding behind old news, such as
        // that DRA is ready behind that the device plugin was.
        action: format!(
            "{}{:?}{}",
            outcome.vendor,
            outcome.step,
            outcome.owner.map_or("", Owner::name)
        ),
        secondary: None,
    }
}

fn cut(text: &str, limit: usize) -> String {
    text.chars().take(limit).collect()
}
