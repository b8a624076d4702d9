//! Waiting longer after each failure, and not in step with five thousand other agents.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::time::Duration;

/// First wait.
const FIRST: Duration = Duration::from_secs(1);
/// Longest wait: a report must not be missing for much longer than the API server is.
const LONGEST: Duration = Duration::from_secs(60);

/// Exponential, with jitter.
#[derive(Debug)]
pub struct Backoff {
    failures: u32,
}

impl Backoff {
    /// No failure yet.
    #[must_use]
    pub const fn new() -> Self {
        Self { failures: 0 }
    }

    /// How long to wait after one more failure: between half and the whole of 1, 2, 4, … 60 s.
    pub fn after_failure(&mut self) -> Duration {
        let whole = FIRST.saturating_mul(1 << self.failures.min(6)).min(LONGEST);
        self.failures = self.failures.saturating_add(1);
        whole / 2 + spread(whole / 2)
    }

    /// It worked.
    pub const fn reset(&mut self) {
        self.failures = 0;
    }
}

impl Default for Backoff {
    fn default() -> Self {
        Self::new()
    }
}

/// A random part of a duration. The standard library seeds its hashers from the system, which is random enough for this.
#[must_use]
pub fn spread(whole: Duration) -> Duration {
    let part = RandomState::new().build_hasher().finish() % 1024;
    whole.mul_f64(part as f64 / 1024.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_a_limit_and_start_anew_after_success() {
        let mut backoff = Backoff::new();
        for whole in [1, 2, 4, 8, 16, 32, 60, 60, 60] {
            let whole = Duration::from_secs(whole);
            let wait = backoff.after_failure();
            assert!(wait >= whole / 2 && wait <= whole, "{wait:?} of {whole:?}");
        }
        backoff.reset();
        assert!(backoff.after_failure() <= Duration::from_secs(1));
    }

    #[test]
    fn agents_do_not_wait_in_step() {
        let waits: std::collections::BTreeSet<_> =
            (0..32).map(|_| spread(Duration::from_secs(60))).collect();
        assert!(waits.len() > 16, "{waits:?}");
    }
}
