//! One rate for all items of a queue.

use std::time::Duration;

use super::RateLimiter;
use crate::token_bucket::TokenBucket;

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
