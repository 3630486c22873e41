//! The loop that every controller writes.
//!
//! ```
//! use std::num::NonZeroUsize;
//! use tidings_kube::workqueue::{RateLimitingQueue, controller::{Action, run_workers}};
//!
//! # tokio::runtime::Builder::new_multi_thread().enable_time().build().unwrap().block_on(async {
//! let queue = RateLimitingQueue::default();
//! let workers = tokio::spawn(run_workers(
//!     queue.clone(),
//!     NonZeroUsize::new(4).unwrap(),
//!     |key: String| async move {
//!         if key.starts_with("default/") { Ok(Action::Done) } else { Err("no such namespace") }
//!     },
//! ));
//! // An informer's handler does this.
//! queue.add("default/web".to_owned());
//!
//! queue.shut_down_with_drain().await;
//! assert_eq!(workers.await.unwrap().reconciled, 1);
//! # });
//! ```

use std::{fmt::Display, hash::Hash, num::NonZeroUsize, ops::AddAssign, sync::Arc, time::Duration};

use tokio::task::JoinSet;

use super::RateLimitingQueue;
use crate::foreign::caught_future;

/// What is to become of an item that was reconciled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Nothing, until it is added again.
    Done,
    /// It is looked at again after this time, if it is not added before.
    RequeueAfter(Duration),
}

/// What workers have done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkerReport {
    /// Calls of `reconcile` that succeeded.
    pub reconciled: u64,
    /// Calls that failed, with those that panicked.
    pub failed: u64,
    /// Calls that panicked.
    pub panicked: u64,
}

impl AddAssign for WorkerReport {
    fn add_assign(&mut self, other: Self) {
        self.reconciled += other.reconciled;
        self.failed += other.failed;
        self.panicked += other.panicked;
    }
}

/// Has `workers` tasks take items from the queue and reconcile them, until the queue is shut down
/// and empty. No item is with two of them.
///
/// An item that succeeds is forgotten by the limiter, and looked at again when the [`Action`] says
/// so. One that fails is added again when the limiter says so, and the error goes to the log. A
/// panic is a failure like any other: the worker goes on. What fails after the shutdown is not
/// tried again.
///
/// Dropping the future cancels the workers where they stand.
pub async fn run_workers<T, F, R, E>(
    queue: RateLimitingQueue<T>,
    workers: NonZeroUsize,
    reconcile: F,
) -> WorkerReport
where
    T: Clone + Eq + Hash + Display + Send + Sync + 'static,
    F: Fn(T) -> R + Send + Sync + 'static,
    R: Future<Output = Result<Action, E>> + Send + 'static,
    E: Display + Send + 'static,
{
    let reconcile = Arc::new(reconcile);
    let mut tasks = JoinSet::new();
    for _ in 0..workers.get() {
        tasks.spawn(work(queue.clone(), Arc::clone(&reconcile)));
    }
    let mut report = WorkerReport::default();
    while let Some(ended) = tasks.join_next().await {
        match ended {
            Ok(one) => report += one,
            Err(error) => tracing::error!(%error, "a worker has ended early"),
        }
    }
    report
}

async fn work<T, F, R, E>(queue: RateLimitingQueue<T>, reconcile: Arc<F>) -> WorkerReport
where
    T: Clone + Eq + Hash + Display,
    F: Fn(T) -> R,
    R: Future<Output = Result<Action, E>>,
    E: Display,
{
    let mut report = WorkerReport::default();
    while let Some(item) = queue.get().await {
        // Also the call may panic, before there is a future.
        let call = async { reconcile(item.clone()).await };
        match caught_future(call).await {
            Ok(Ok(action)) => {
                report.reconciled += 1;
                queue.forget(&item);
                if let Action::RequeueAfter(delay) = action {
                    queue.add_after(item.clone(), delay);
                }
                continue;
            }
            Ok(Err(error)) => {
                let requeues = queue.num_requeues(&item);
                tracing::warn!(item = %*item, requeues, %error, "failed, to be tried again");
            }
            Err(panic) => {
                report.panicked += 1;
                tracing::error!(item = %*item, panic, "panicked, to be tried again");
            }
        }
        report.failed += 1;
        queue.add_rate_limited(item.clone());
    }
    report
}
