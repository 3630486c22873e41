//! Waiting for something to become true.

use std::time::{Duration, Instant};

/// How often it is looked at.
const POLL: Duration = Duration::from_millis(50);

/// Waits until `condition` holds, for at most two minutes: machines that run tests stall at times.
pub(crate) async fn until(what: &str, condition: impl AsyncFnMut() -> bool) {
    until_within(Duration::from_mins(2), what, condition).await;
}

/// The same for what may take longer.
pub(crate) async fn until_within(
    limit: Duration,
    what: &str,
    mut condition: impl AsyncFnMut() -> bool,
) {
    let started = Instant::now();
    while !condition().await {
        assert!(started.elapsed() < limit, "waited {limit:?} in vain until {what}");
        tokio::time::sleep(POLL).await;
    }
}
