//! Nothing is decided on definitions that lack what this version needs: what it writes would be dropped without a word.

use std::time::{Duration, Instant};

use freehold_core::blocker::{Blocker, Reason};
use jiff::Timestamp;

use super::Engine;
use crate::observe::definitions;

/// Pause after a look that failed.
const RETRY: Duration = Duration::from_secs(5);

/// What is known about the installed definitions.
pub(super) struct Definitions {
    /// When they are looked at next: at the start, and whenever one of them changes.
    due: Option<Instant>,
    /// What they lack, and since when.
    pub(super) outdated: Option<(Blocker, i64)>,
    /// They were looked at.
    known: bool,
}

impl Default for Definitions {
    fn default() -> Self {
        Self {
            due: Some(Instant::now()),
            outdated: None,
            known: false,
        }
    }
}

impl Definitions {
    pub(super) const fn due(&self) -> Option<Instant> {
        self.due
    }

    /// One of them changed.
    pub(super) fn changed(&mut self) {
        self.due = Some(Instant::now());
    }

    /// They were looked at and have what is needed.
    pub(super) const fn suffice(&self) -> bool {
        self.known && self.outdated.is_none()
    }
}

impl Engine {
    /// Looks at the definitions when that is due.
    pub(super) async fn check_definitions(&mut self, now: Instant) {
        if self.definitions.due.is_none_or(|due| due > now) {
            return;
        }
        self.definitions.due = None;
        let found = match definitions::outdated(self.client.clone()).await {
            Ok(found) => found,
            Err(error) => {
                tracing::warn!(%error, "CustomResourceDefinitions not read; trying again");
                self.definitions.due = Some(now + RETRY);
                return;
            }
        };
        let known = std::mem::replace(&mut self.definitions.known, true);
        let told = self
            .definitions
            .outdated
            .as_ref()
            .map(|(why, _)| &why.message);
        if known && told == found.as_ref() {
            return;
        }
        if let Some(lack) = &found {
            tracing::error!(
                lack,
                "the CustomResourceDefinitions are older than this version; nothing is changed until they are not"
            );
        }
        self.definitions.outdated = found.map(|lack| {
            let why = Blocker::new(Reason::CrdOutdated, lack);
            (why, Timestamp::now().as_second())
        });
        self.world.dirty.all_nodes = true;
        self.world.dirty.objects = true;
        self.teller.something_changed(now);
    }
}
