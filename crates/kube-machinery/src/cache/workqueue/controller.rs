//! The loop that every controller writes.
//!
//! ```
//! use std::num::NonZeroUsize;
//! use kube_machinery::cache::workqueue::{RateLimitingQueue, controller::{Action, run_workers}};
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

use std::{
    error::Error,
    fmt::Display,
    hash::Hash,
    num::NonZeroUsize,
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures_util::FutureExt;
use tokio::task::JoinSet;

use super::RateLimitingQueue;
use crate::{panics, words::with_causes};

/// The next step with an item that was reconciled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Action {
    /// Nothing, until it is added again.
    Done,
    /// The item is reconciled again after this time, if it is not added before.
    RequeueAfter(Duration),
}

/// Counts of what workers have done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkerReport {
    /// Calls of `reconcile` that succeeded.
    pub reconciled: u64,
    /// Calls that failed, with those that panicked.
    pub failed: u64,
    /// Calls that panicked.
    pub panicked: u64,
    /// Items that failed too often, where [there is a limit](crate::cache::Controller::retries).
    pub given_up: u64,
}

/// Has `workers` tasks take items from the queue and reconcile them, until the queue is shut down
/// and empty. No item is with two of them.
///
/// An item that succeeds is forgotten by the limiter, and looked at again when the [`Action`] says
/// so. One that fails is added again when the limiter says so, and the error goes to the log with its
/// causes. A
/// panic is a failure like any other: the worker goes on. What fails after the shutdown is not
/// tried again.
///
/// Dropping the future cancels the workers where they stand.
///
/// [`Controller`](crate::cache::Controller) is this with informers, an order of shutdown, and a limit of
/// retries.
pub async fn run_workers<T, F, R, E>(
    queue: RateLimitingQueue<T>,
    workers: NonZeroUsize,
    reconcile: F,
) -> WorkerReport
where
    T: Clone + Eq + Hash + Display + Send + Sync + 'static,
    F: Fn(T) -> R + Send + Sync + 'static,
    R: Future<Output = Result<Action, E>> + Send + 'static,
    E: Into<Box<dyn Error + Send + Sync>> + Send + 'static,
{
    let how = Arc::new(Loop::new(""));
    run_workers_of(&how, queue, workers, reconcile).await;
    how.report()
}

/// How workers go about it, and what they have done.
pub(crate) struct Loop<T> {
    /// Of the controller, in the log.
    name: String,
    pub(crate) limit: Option<RetryLimit<T>>,
    report: Mutex<WorkerReport>,
}

/// When an item is not tried again.
pub(crate) struct RetryLimit<T> {
    pub(crate) retries: u32,
    pub(crate) give_up: GiveUp<T>,
}

/// Is told of an item that is not tried again, and why.
type GiveUp<T> = Box<dyn Fn(&T, &(dyn Error + Send + Sync + 'static)) + Send + Sync>;

/// The same, of a controller.
pub(crate) async fn run_workers_of<T, F, R, E>(
    how: &Arc<Loop<T>>,
    queue: RateLimitingQueue<T>,
    workers: NonZeroUsize,
    reconcile: F,
) where
    T: Clone + Eq + Hash + Display + Send + Sync + 'static,
    F: Fn(T) -> R + Send + Sync + 'static,
    R: Future<Output = Result<Action, E>> + Send + 'static,
    E: Into<Box<dyn Error + Send + Sync>> + Send + 'static,
{
    let reconcile = Arc::new(reconcile);
    let mut tasks = JoinSet::new();
    for _ in 0..workers.get() {
        let (how, queue, reconcile) = (Arc::clone(how), queue.clone(), Arc::clone(&reconcile));
        tasks.spawn(async move { how.work(&queue, &*reconcile).await });
    }
    while let Some(ended) = tasks.join_next().await {
        if let Err(error) = ended {
            tracing::error!(%error, "a worker has ended early");
        }
    }
}

impl<T> Loop<T> {
    pub(crate) fn new(name: &str) -> Self {
        Self { name: name.to_owned(), limit: None, report: Mutex::default() }
    }

    /// The work done until now.
    pub(crate) fn report(&self) -> WorkerReport {
        self.note(|report| *report)
    }

    fn note<R>(&self, change: impl FnOnce(&mut WorkerReport) -> R) -> R {
        change(&mut self.report.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl<T: Clone + Eq + Hash + Display> Loop<T> {
    async fn work<F, R, E>(&self, queue: &RateLimitingQueue<T>, reconcile: &F)
    where
        F: Fn(T) -> R,
        R: Future<Output = Result<Action, E>>,
        E: Into<Box<dyn Error + Send + Sync>>,
    {
        while let Some(item) = queue.get().await {
            // Also the call may panic, before there is a future.
            let call = async { reconcile(item.clone()).await };
            let error = match AssertUnwindSafe(call).catch_unwind().await {
                Ok(Ok(action)) => {
                    self.note(|report| report.reconciled += 1);
                    queue.forget(&item);
                    if let Action::RequeueAfter(delay) = action {
                        queue.add_after(item.clone(), delay);
                    }
                    continue;
                }
                Ok(Err(error)) => error.into(),
                Err(panic) => {
                    self.note(|report| report.panicked += 1);
                    format!("panicked: {}", panics::message(panic.as_ref())).into()
                }
            };
            self.note(|report| report.failed += 1);
            if self.tries_again(queue, &item, &*error) {
                queue.add_rate_limited(item.clone());
            } else {
                self.note(|report| report.given_up += 1);
                queue.forget(&item);
            }
        }
    }

    /// Whether an item that has failed is tried again; says so.
    fn tries_again(
        &self,
        queue: &RateLimitingQueue<T>,
        item: &T,
        error: &(dyn Error + Send + Sync + 'static),
    ) -> bool {
        let controller = (!self.name.is_empty()).then_some(&*self.name);
        let requeues = queue.num_requeues(item);
        let text = with_causes(error);
        match &self.limit {
            Some(RetryLimit { retries, give_up }) if requeues >= *retries => {
                tracing::error!(controller, %item, requeues, error = text, "failed, given up");
                if let Err(panic) = panics::caught(|| give_up(item, error)) {
                    tracing::error!(controller, %item, panic, "the handler of items that are given up panicked");
                }
                false
            }
            _ => {
                tracing::warn!(controller, %item, requeues, error = text, "failed, to be tried again");
                true
            }
        }
    }
}
