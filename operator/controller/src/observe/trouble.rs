//! A watch that fails: when it is to begin anew with a list, and for how long what is known of its kind has been in doubt.
//!
//! A watch that cannot be started again from where it was tries that for ever, and what is known gets old (kube-rs issue 1042).
//! While nobody answers there is nothing better to do. Where the API server does answer, and refuses, a list helps.

use std::time::{Duration, Instant};

use kube::runtime::watcher;

/// A watch that was refused so often in a row begins anew.
const REFUSALS: u32 = 5;
/// One new list in so long, for each kind.
const RELIST_INTERVAL: Duration = Duration::from_secs(30);
/// No failure for so long, longer than the longest pause between two tries (30 s and as much jitter): the watch goes on, and
/// nothing has changed.
const QUIET: Duration = Duration::from_secs(70);

/// What is to be done now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// Begin anew with a list.
    Relist,
    /// It goes on again.
    Back,
}

/// The state of one watch.
#[derive(Debug)]
pub(super) struct Trouble {
    limit: Duration,
    /// First and last of the failures since it worked last.
    failing: Option<(Instant, Instant)>,
    refusals: u32,
    expired: bool,
    /// Its list is not complete yet, so that every try is a list anyway.
    listing: bool,
    relisted: Option<Instant>,
}

impl Trouble {
    /// None so far. After `limit` of nothing but failures the watch begins anew, whatever they are.
    pub(super) const fn new(limit: Duration) -> Self {
        Self {
            limit,
            failing: None,
            refusals: 0,
            expired: false,
            listing: true,
            relisted: None,
        }
    }

    pub(super) fn failed(&mut self, error: &watcher::Error, now: Instant) {
        let first = self.failing.map_or(now, |(first, _)| first);
        self.failing = Some((first, now));
        if let watcher::Error::WatchStartFailed(kube::Error::Api(status)) = error {
            self.refusals = self.refusals.saturating_add(1);
            self.expired |= status.code == 410;
        }
    }

    /// It told something; true when that ends what was in doubt: it had failed before, or a list is complete.
    pub(super) fn worked<K>(&mut self, event: &watcher::Event<K>) -> bool {
        match event {
            // The beginning of a list is told before the API server is asked for it.
            watcher::Event::Init => return false,
            watcher::Event::InitDone | watcher::Event::Apply(_) | watcher::Event::Delete(_) => {
                self.listing = false;
            }
            watcher::Event::InitApply(_) => {}
        }
        (self.refusals, self.expired) = (0, false);
        // A watch that takes the place of another says so too.
        self.failing.take().is_some() || matches!(event, watcher::Event::InitDone)
    }

    /// When [`take`](Self::take) is to be asked.
    pub(super) fn due(&self) -> Option<Instant> {
        let (first, last) = self.failing?;
        if self.listing {
            return None;
        }
        let overdue = first + self.limit;
        let relist = if self.expired || self.refusals >= REFUSALS {
            last
        } else {
            overdue
        };
        let relist = self
            .relisted
            .map_or(relist, |before| relist.max(before + RELIST_INTERVAL));
        let quiet = last + QUIET;
        Some(if quiet < overdue {
            relist.min(quiet)
        } else {
            relist
        })
    }

    pub(super) fn take(&mut self, now: Instant) -> Due {
        let quiet = self
            .failing
            .is_some_and(|(first, last)| now >= last + QUIET && last + QUIET < first + self.limit);
        if quiet {
            (self.failing, self.refusals, self.expired) = (None, 0, false);
            return Due::Back;
        }
        self.relisted = Some(now);
        self.listing = true;
        Due::Relist
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(120);
    const SECOND: Duration = Duration::from_secs(1);

    fn refused(code: u16) -> watcher::Error {
        let status = Status::failure("no", "Reason").with_code(code);
        watcher::Error::WatchStartFailed(kube::Error::Api(status.boxed()))
    }

    fn unanswered() -> watcher::Error {
        watcher::Error::WatchStartFailed(kube::Error::LinesCodecMaxLineLengthExceeded)
    }

    /// Listed and watching.
    fn watching() -> Trouble {
        let mut trouble = Trouble::new(LIMIT);
        assert!(trouble.worked(&watcher::Event::<()>::InitDone));
        assert!(!trouble.worked(&watcher::Event::Apply(())));
        trouble
    }

    #[test]
    fn an_expired_version_is_listed_anew_at_once_but_not_all_the_time() {
        let (mut trouble, now) = (watching(), Instant::now());
        trouble.failed(&refused(410), now);
        assert_eq!(trouble.due(), Some(now));
        assert_eq!(trouble.take(now), Due::Relist);
        assert_eq!(trouble.due(), None, "its tries are lists now");
        assert!(!trouble.worked(&watcher::Event::<()>::Init));
        assert!(trouble.worked(&watcher::Event::<()>::InitDone));
        trouble.failed(&refused(410), now + SECOND);
        assert_eq!(trouble.due(), Some(now + RELIST_INTERVAL));
    }

    #[test]
    fn a_watch_that_is_refused_again_and_again_is_listed_anew() {
        let (mut trouble, now) = (watching(), Instant::now());
        for n in 1..REFUSALS {
            trouble.failed(&refused(500), now + SECOND * n);
        }
        assert_ne!(trouble.due(), Some(now + SECOND * 4), "not yet");
        trouble.failed(&refused(500), now + SECOND * 5);
        assert_eq!(trouble.due(), Some(now + SECOND * 5));
    }

    #[test]
    fn while_nobody_answers_it_is_tried_from_where_it_was_until_that_is_too_old() {
        let (mut trouble, now) = (watching(), Instant::now());
        for n in 0..4 {
            trouble.failed(&unanswered(), now + SECOND * 30 * n);
        }
        assert_eq!(trouble.due(), Some(now + LIMIT));
        assert_eq!(trouble.take(now + LIMIT), Due::Relist);
    }

    #[test]
    fn a_watch_that_fails_no_more_goes_on_though_nothing_changes() {
        let (mut trouble, now) = (watching(), Instant::now());
        trouble.failed(&unanswered(), now);
        assert_eq!(trouble.due(), Some(now + QUIET));
        assert_eq!(trouble.take(now + QUIET), Due::Back);
        assert_eq!(trouble.due(), None);
    }
}
