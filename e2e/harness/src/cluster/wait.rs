//! Waiting for a condition, never for a time.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// Between two looks at a condition: short enough not to be felt, long enough not to keep the machine busy.
pub(super) const INTERVAL: Duration = Duration::from_millis(25);

/// Looks until there is something, at most for `limit`. An error ends the wait: only `None` means "not yet".
///
/// # Errors
/// When `look` fails, or after `limit`; the text names `what` was awaited.
pub async fn eventually<T>(
    what: &str,
    limit: Duration,
    look: impl AsyncFn() -> Result<Option<T>>,
) -> Result<T> {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(found) = look().await? {
            return Ok(found);
        }
        if Instant::now() > deadline {
            bail!("waited {limit:?} in vain for {what}");
        }
        tokio::time::sleep(INTERVAL).await;
    }
}
