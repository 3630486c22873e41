//! How long an item is to wait before it is tried again.

use std::{
    collections::HashMap,
    hash::Hash,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use super::BucketRateLimiter;

/// Says how long an item is to wait: client-go's `TypedRateLimiter`.
pub trait RateLimiter<T>: Send + Sync {
    /// How long the item is to wait. Each call counts as a failure of it.
    fn when(&self, item: &T) -> Duration;

    /// The item has succeeded, or nobody tries any more: it starts anew.
    fn forget(&self, item: &T);

    /// How often it has failed since it was forgotten; client-go's `NumRequeues`.
    fn requeues(&self, item: &T) -> u32;
}

/// Failures by item, from the first until it is forgotten.
#[derive(Debug)]
struct Failures<T>(Mutex<HashMap<T, u32>>);

impl<T> Default for Failures<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: Clone + Eq + Hash> Failures<T> {
    /// Counts one more, and says how many it had before.
    fn count(&self, item: &T) -> u32 {
        let mut failures = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = failures.get_mut(item) {
            let before = *count;
            *count = before.saturating_add(1);
            return before;
        }
        failures.insert(item.clone(), 1);
        0
    }

    fn forget(&self, item: &T) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(item);
    }

    fn of(&self, item: &T) -> u32 {
        let failures = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        failures.get(item).copied().unwrap_or(0)
    }
}

/// `base`, doubled with each failure of an item, up to `max`: client-go's
/// `TypedItemExponentialFailureRateLimiter`. It grows with the items that are not forgotten.
#[derive(Debug)]
pub struct ItemExponentialFailureRateLimiter<T> {
    base: Duration,
    max: Duration,
    failures: Failures<T>,
}

impl<T> ItemExponentialFailureRateLimiter<T> {
    /// Waits of `base`, 2 `base`, 4 `base` … `max`.
    pub fn new(base: Duration, max: Duration) -> Self {
        Self { base, max, failures: Failures::default() }
    }
}

impl<T: Clone + Eq + Hash + Send> RateLimiter<T> for ItemExponentialFailureRateLimiter<T> {
    fn when(&self, item: &T) -> Duration {
        let times = 1_u128.checked_shl(self.failures.count(item)).unwrap_or(u128::MAX);
        let nanos = self.base.as_nanos().saturating_mul(times);
        // What is longer than a duration can be is longer than `max`.
        let wait = u64::try_from(nanos).ok().map(Duration::from_nanos);
        wait.map_or(self.max, |wait| wait.min(self.max))
    }

    fn forget(&self, item: &T) {
        self.failures.forget(item);
    }

    fn requeues(&self, item: &T) -> u32 {
        self.failures.of(item)
    }
}

/// A few quick tries of an item, then slow ones: client-go's `TypedItemFastSlowRateLimiter`. It
/// grows with the items that are not forgotten.
#[derive(Debug)]
pub struct ItemFastSlowRateLimiter<T> {
    fast: Duration,
    slow: Duration,
    fast_attempts: u32,
    failures: Failures<T>,
}

impl<T> ItemFastSlowRateLimiter<T> {
    /// `fast_attempts` waits of `fast`, and from then on of `slow`.
    pub fn new(fast: Duration, slow: Duration, fast_attempts: u32) -> Self {
        Self { fast, slow, fast_attempts, failures: Failures::default() }
    }
}

impl<T: Clone + Eq + Hash + Send> RateLimiter<T> for ItemFastSlowRateLimiter<T> {
    fn when(&self, item: &T) -> Duration {
        if self.failures.count(item) < self.fast_attempts { self.fast } else { self.slow }
    }

    fn forget(&self, item: &T) {
        self.failures.forget(item);
    }

    fn requeues(&self, item: &T) -> u32 {
        self.failures.of(item)
    }
}

/// The longest wait that any of several says: client-go's `TypedMaxOfRateLimiter`. Each of them is
/// asked each time, so a bucket among them gives a token also for an item that waits longer anyway.
pub struct MaxOfRateLimiter<T> {
    limiters: Vec<Box<dyn RateLimiter<T>>>,
}

impl<T> MaxOfRateLimiter<T> {
    /// Of none of them it is no wait.
    pub fn new(limiters: Vec<Box<dyn RateLimiter<T>>>) -> Self {
        Self { limiters }
    }
}

impl<T> RateLimiter<T> for MaxOfRateLimiter<T> {
    fn when(&self, item: &T) -> Duration {
        self.limiters.iter().map(|limiter| limiter.when(item)).max().unwrap_or_default()
    }

    fn forget(&self, item: &T) {
        for limiter in &self.limiters {
            limiter.forget(item);
        }
    }

    fn requeues(&self, item: &T) -> u32 {
        self.limiters.iter().map(|limiter| limiter.requeues(item)).max().unwrap_or_default()
    }
}

/// What another limiter says, but never longer than `max`: client-go's
/// `TypedWithMaxWaitRateLimiter`.
#[derive(Debug)]
pub struct WithMaxWaitRateLimiter<L> {
    limiter: L,
    max: Duration,
}

impl<L> WithMaxWaitRateLimiter<L> {
    /// Cuts the waits of `limiter` down to `max`.
    pub fn new(limiter: L, max: Duration) -> Self {
        Self { limiter, max }
    }
}

impl<T, L: RateLimiter<T>> RateLimiter<T> for WithMaxWaitRateLimiter<L> {
    fn when(&self, item: &T) -> Duration {
        self.limiter.when(item).min(self.max)
    }

    fn forget(&self, item: &T) {
        self.limiter.forget(item);
    }

    fn requeues(&self, item: &T) -> u32 {
        self.limiter.requeues(item)
    }
}

/// What controllers use: 5 ms for the first failure of an item, doubled up to 1000 s; and for all of
/// them together 100 at once and 10 a second. client-go's `DefaultTypedControllerRateLimiter`.
pub fn default_controller_rate_limiter<T>() -> MaxOfRateLimiter<T>
where
    T: Clone + Eq + Hash + Send + 'static,
{
    let (base, max) = (Duration::from_millis(5), Duration::from_secs(1000));
    MaxOfRateLimiter::new(vec![
        Box::new(ItemExponentialFailureRateLimiter::new(base, max)),
        Box::new(BucketRateLimiter::new(10.0, 100)),
    ])
}

/// Per item alone: 1 ms for the first failure, doubled up to 1000 s. client-go's
/// `DefaultTypedItemBasedRateLimiter`.
pub fn default_item_based_rate_limiter<T>() -> ItemExponentialFailureRateLimiter<T> {
    ItemExponentialFailureRateLimiter::new(Duration::from_millis(1), Duration::from_secs(1000))
}
