//! A bound on requests that follow each other at once.

use std::time::Duration;

use tokio::time::Instant;

use crate::cache::BackoffManager;

/// So many steps without a pause between them are let through in [`WITHIN`].
const STEPS: u32 = 16;
const WITHIN: Duration = Duration::from_secs(1);

/// Steps that led to the next at once, since the last new resourceVersion. Each of client-go's rules
/// for that is right for one answer of the API server; a server that answers so every time (a stream
/// with the same line that closes at once, or 410 even where no version is asked for) would be asked
/// without end.
#[derive(Debug, Default)]
pub(super) struct Pace {
    steps: u32,
    since: Option<Instant>,
}

impl Pace {
    /// Counts a step; answers the wait that is due when there were too many.
    pub(super) fn too_fast(&mut self, backoff: &mut BackoffManager) -> Option<Duration> {
        let now = Instant::now();
        if self.since.is_none_or(|since| now - since > WITHIN) {
            (self.since, self.steps) = (Some(now), 0);
        }
        self.steps += 1;
        (self.steps > STEPS).then(|| backoff.next_wait())
    }
}
