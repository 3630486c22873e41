//! The queue with a limiter before its delays.

use std::{fmt, hash::Hash, ops::Deref, sync::Arc};

use super::{RateLimiter, WorkQueue, default_controller_rate_limiter};

/// A [`WorkQueue`] in which what has failed is tried again when a [`RateLimiter`] says so: client-go's
/// `TypedRateLimitingInterface`. It *is* that queue, so all of its methods are here, too. Clones are
/// the same queue.
pub struct RateLimitingQueue<T: Clone + Eq + Hash> {
    queue: WorkQueue<T>,
    limiter: Arc<dyn RateLimiter<T>>,
}

impl<T: Clone + Eq + Hash> RateLimitingQueue<T> {
    /// An empty queue.
    pub fn new(limiter: impl RateLimiter<T> + 'static) -> Self {
        Self::over(WorkQueue::new(), limiter)
    }

    /// The same over a queue that is made already.
    pub fn over(queue: WorkQueue<T>, limiter: impl RateLimiter<T> + 'static) -> Self {
        Self { queue, limiter: Arc::new(limiter) }
    }

    /// Queues an item after as long as the limiter says.
    pub fn add_rate_limited(&self, item: T) {
        let delay = self.limiter.when(&item);
        self.queue.add_after(item, delay);
    }

    /// Tells the limiter that the item has succeeded, or that nobody tries it any more. An item that
    /// waits already goes on waiting.
    pub fn forget(&self, item: &T) {
        self.limiter.forget(item);
    }

    /// How often the item was added by [`add_rate_limited`](Self::add_rate_limited) since it was
    /// forgotten.
    pub fn num_requeues(&self, item: &T) -> u32 {
        self.limiter.requeues(item)
    }
}

/// With [the limiter that controllers use](default_controller_rate_limiter).
impl<T: Clone + Eq + Hash + Send + 'static> Default for RateLimitingQueue<T> {
    fn default() -> Self {
        Self::new(default_controller_rate_limiter())
    }
}

impl<T: Clone + Eq + Hash> Deref for RateLimitingQueue<T> {
    type Target = WorkQueue<T>;

    fn deref(&self) -> &WorkQueue<T> {
        &self.queue
    }
}

impl<T: Clone + Eq + Hash> Clone for RateLimitingQueue<T> {
    fn clone(&self) -> Self {
        Self { queue: self.queue.clone(), limiter: Arc::clone(&self.limiter) }
    }
}

impl<T: Clone + Eq + Hash> fmt::Debug for RateLimitingQueue<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RateLimitingQueue").field(&self.queue.stats()).finish()
    }
}
