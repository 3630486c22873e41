//! A bound on requests that follow each other at once.

use std::time::Duration;

use tokio::time::Instant;

use super::BackoffManager;

/// So many steps in a row are let through.
const STEPS: u32 = 16;
/// A step that took longer asked for nothing in vain.
const AT_ONCE: Duration = Duration::from_secs(1);

/// Steps that led to the next at once, since the last new resourceVersion or the last step that
/// lasted. Each of client-go's rules for that is right for one answer of the API server; a server
/// that answers so every time (a stream with the same line that closes at once, or 410 even where no
/// version is asked for) would be asked without end.
#[derive(Debug, Default)]
pub(super) struct Pace {
    steps: u32,
}

impl Pace {
    /// Counts a step that began then; answers the wait that is due when there were too many.
    pub(super) fn too_fast(
        &mut self,
        began: Instant,
        backoff: &mut BackoffManager,
    ) -> Option<Duration> {
        if began.elapsed() > AT_ONCE {
            self.steps = 0;
        }
        self.steps = self.steps.saturating_add(1);
        (self.steps > STEPS).then(|| backoff.next_wait())
    }
}
