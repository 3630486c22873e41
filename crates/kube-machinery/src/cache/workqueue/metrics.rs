//! Measures of a work queue, for whoever exports it.

use std::time::Duration;

/// Measures of a [`WorkQueue`](super::WorkQueue), for whatever a program exports them with: client-go's
/// `MetricsProvider`, one for each queue. The names are those of client-go's metrics.
///
/// The calls are made while the queue is locked: they are to add a number up, and must not call the queue.
/// [`WorkQueueStats`](super::WorkQueueStats) has the numbers that can be asked for at any time, the longest
/// running and the unfinished work too.
///
/// ```
/// # use std::{sync::{Arc, atomic::{AtomicU64, Ordering}}, time::Duration};
/// use kube_machinery::cache::workqueue::{RateLimitingQueue, WorkQueue, WorkQueueMetrics};
/// # use kube_machinery::cache::workqueue::default_controller_rate_limiter;
///
/// #[derive(Default)]
/// struct Adds(Arc<AtomicU64>);
///
/// impl WorkQueueMetrics for Adds {
///     fn added(&self) {
///         self.0.fetch_add(1, Ordering::Relaxed);
///     }
/// }
///
/// let adds = Arc::<AtomicU64>::default();
/// let queue = WorkQueue::new().with_metrics(Adds(Arc::clone(&adds)));
/// let queue = RateLimitingQueue::over(queue, default_controller_rate_limiter());
/// queue.add("default/web");
/// queue.add("default/web");
/// assert_eq!(adds.load(Ordering::Relaxed), 1);
/// ```
pub trait WorkQueueMetrics: Send + Sync + 'static {
    /// So many items are queued now (`workqueue_depth`).
    fn depth(&self, queued: usize) {
        let _ = queued;
    }

    /// An add led to work (`workqueue_adds_total`).
    fn added(&self) {}

    /// An item went to a worker, so long after it was added (`workqueue_queue_duration_seconds`).
    fn waited(&self, time: Duration) {
        let _ = time;
    }

    /// A worker has done with an item after so long (`workqueue_work_duration_seconds`).
    fn worked(&self, time: Duration) {
        let _ = time;
    }

    /// An item was added to come later, as one that failed is (`workqueue_retries_total`).
    fn retried(&self) {}
}
