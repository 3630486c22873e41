//! How long watches that end with an internal error are taken up again without a list.

use std::time::Duration;

use tokio::time::Instant;

/// After so long without one, internal errors are counted anew.
const FORGOTTEN_AFTER: Duration = Duration::from_mins(1);

/// The internal errors of one round (client-go's `RetryWithDeadline`).
#[derive(Debug, Default)]
pub(super) struct InternalErrors {
    /// When the first came, and the last.
    first_and_last: Option<(Instant, Instant)>,
}

impl InternalErrors {
    /// Another one came. Whether the watch is to be taken up again: while the first of them is at
    /// most `max_retry` old.
    pub(super) fn retry(&mut self, max_retry: Duration) -> bool {
        let now = Instant::now();
        let first = match self.first_and_last {
            Some((first, last)) if now - last < FORGOTTEN_AFTER => first,
            _ => now,
        };
        self.first_and_last = Some((first, now));
        if max_retry.is_zero() {
            return false;
        }
        let retry = now - first <= max_retry;
        if !retry {
            self.first_and_last = None;
        }
        retry
    }
}
