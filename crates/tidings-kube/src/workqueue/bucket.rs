//! A token bucket, by reservation.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::{Instant, sleep};

use super::RateLimiter;

/// What `golang.org/x/time/rate` answers when a token never comes: the longest duration of Go.
const NEVER: Duration = Duration::from_nanos(i64::MAX as u64);

/// `golang.org/x/time/rate`, as far as client-go uses it: `burst` tokens at once, then `qps` a
/// second. Who takes a token that is not there owes it and is told how long to wait; first come,
/// first served.
#[derive(Debug)]
pub struct TokenBucket {
    qps: f64,
    burst: u32,
    level: Mutex<Level>,
}

#[derive(Debug)]
struct Level {
    /// Below zero: owed.
    tokens: f64,
    /// When there were so many.
    at: Instant,
}

impl TokenBucket {
    /// A full bucket. Without a burst there is never a token; at zero or less a second, or where
    /// that is no number, there is the burst and nothing after it.
    pub fn new(qps: f64, burst: u32) -> Self {
        let level = Level { tokens: f64::from(burst), at: Instant::now() };
        Self { qps, burst, level: Mutex::new(level) }
    }

    /// Takes a token, and says how long to wait before acting on it. It cannot be given back.
    pub fn reserve(&self) -> Duration {
        if self.burst == 0 {
            return NEVER;
        }
        let mut level = self.level.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let fresh = if self.qps > 0.0 { (now - level.at).as_secs_f64() * self.qps } else { 0.0 };
        level.tokens = (level.tokens + fresh).min(f64::from(self.burst)) - 1.0;
        level.at = now;
        if level.tokens >= 0.0 {
            return Duration::ZERO;
        }
        nanos((-level.tokens / self.qps) * 1e9)
    }

    /// Takes a token, and waits until it may be acted on. Dropping the future does not give it back.
    pub async fn take(&self) {
        let wait = self.reserve();
        if !wait.is_zero() {
            sleep(wait).await;
        }
    }
}

/// Cut off as Go does it; what is no time, for want of a rate, is never.
#[expect(clippy::cast_sign_loss, reason = "it is not negative")]
fn nanos(nanos: f64) -> Duration {
    if nanos >= 0.0 { Duration::from_nanos(nanos as u64).min(NEVER) } else { NEVER }
}

/// The same rate for all items together, whatever they are: client-go's `TypedBucketRateLimiter`.
#[derive(Debug)]
pub struct BucketRateLimiter {
    bucket: TokenBucket,
}

impl BucketRateLimiter {
    /// `burst` items at once, then `qps` a second; see [`TokenBucket::new`].
    pub fn new(qps: f64, burst: u32) -> Self {
        Self { bucket: TokenBucket::new(qps, burst) }
    }
}

impl<T> RateLimiter<T> for BucketRateLimiter {
    fn when(&self, _item: &T) -> Duration {
        self.bucket.reserve()
    }

    fn forget(&self, _item: &T) {}

    fn requeues(&self, _item: &T) -> u32 {
        0
    }
}
