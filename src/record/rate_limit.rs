//! A bound on the requests of a client, by reservation.

use std::{
    num::NonZeroU32,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::{Instant, sleep};

/// A token bucket as client-go's `flowcontrol` has it: `burst` requests at once, then `qps` a
/// second, first come, first served.
#[derive(Debug)]
pub(super) struct RateLimit {
    each: Duration,
    burst: NonZeroU32,
    start: Instant,
    /// When the bucket will be full again, after `start`, were nobody to come any more.
    full_at: Mutex<Duration>,
}

impl RateLimit {
    pub(super) fn new(qps: NonZeroU32, burst: NonZeroU32) -> Self {
        let each = Duration::from_secs(1) / qps.get();
        Self { each, burst, start: Instant::now(), full_at: Mutex::default() }
    }

    /// Takes a token, and waits until there is one. Dropping the future does not give it back.
    pub(super) async fn take(&self) {
        let wait = self.reserve(self.start.elapsed());
        if !wait.is_zero() {
            sleep(wait).await;
        }
    }

    fn reserve(&self, now: Duration) -> Duration {
        let mut full_at = self.full_at.lock().unwrap_or_else(PoisonError::into_inner);
        *full_at = (*full_at).max(now) + self.each;
        full_at.saturating_sub(now).saturating_sub(self.each * self.burst.get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_goes_at_once_and_the_rest_in_step() {
        let limit = RateLimit::new(NonZeroU32::new(10).unwrap(), NonZeroU32::new(3).unwrap());
        let wait = |now_ms| limit.reserve(Duration::from_millis(now_ms)).as_millis();
        assert_eq!([wait(0), wait(0), wait(0), wait(0), wait(0)], [0, 0, 0, 100, 200]);
        // 400 ms later two of the four tokens are what was owed.
        assert_eq!([wait(400), wait(400), wait(400)], [0, 0, 100]);
        // After a long silence it is full, and no fuller.
        assert_eq!([wait(9000), wait(9000), wait(9000), wait(9000)], [0, 0, 0, 100]);
    }
}
