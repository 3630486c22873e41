//! A controller: informers before a work queue, workers behind it, and the order in which they end.

use std::{
    error::Error, fmt::Display, future::Future, hash::Hash, num::NonZeroUsize, pin::pin, sync::Arc,
    time::Duration,
};

use futures_util::future::select_all;
use tokio::time::timeout;

use super::{
    InformerStopped, Object, ResourceEventHandler, SharedInformer, Synced, wait_for_cache_sync,
    workqueue::{
        RateLimitingQueue, WorkQueueStats,
        controller::{Action, Loop, RetryLimit, WorkerReport, run_workers_of},
    },
};

/// The `Run` of every controller of Kubernetes' own: waits until its caches are filled, has
/// workers reconcile what its handlers queue, and ends in the right order.
///
/// The informers are run by whoever made them, a [factory](super::SharedInformerFactory) as a rule: others
/// may read them as well. They are to be stopped when the controller has ended, as its last reconciles still
/// read their stores.
///
/// ```no_run
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use kube_machinery::cache::{
///     Controller, SharedInformerFactory,
///     workqueue::{RateLimitingQueue, controller::Action, enqueue},
/// };
///
/// # async fn run(factory: SharedInformerFactory) -> Result<(), Box<dyn std::error::Error>> {
/// let (maps, queue) = (factory.informer::<ConfigMap>(), RateLimitingQueue::default());
/// let controller = Controller::new("sizes", &queue)
///     .watch(&maps, enqueue(&queue))?
///     .workers(4.try_into()?)
///     .retries(15, |key, error| eprintln!("{key} is given up: {error}"));
/// factory.start();
/// let store = maps.store();
/// let stop = async { drop(tokio::signal::ctrl_c().await) };
/// let report = controller
///     .run(stop, move |key: String| {
///         let map = store.get_by_key(&key);
///         async move { map.map(|_| Action::Done).ok_or("it is gone") }
///     })
///     .await;
/// factory.shutdown().await;
/// println!("{report:?}");
/// # Ok(())
/// # }
/// ```
#[must_use = "a controller does nothing before it runs"]
pub struct Controller<T: Clone + Eq + Hash> {
    queue: RateLimitingQueue<T>,
    workers: NonZeroUsize,
    drain_within: Option<Duration>,
    watched: Vec<Watched>,
    how: Loop<T>,
}

/// One of a controller's handlers.
struct Watched {
    resource: String,
    synced: Synced,
    remove: Box<dyn Fn() + Send + Sync>,
}

/// Why a controller has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ended {
    /// Told to stop.
    Stopped,
    /// The informer of this resource has stopped or failed: its cache is not kept up any more.
    Informer(String),
    /// Somebody else has shut the queue down.
    Queue,
}

/// The work of a controller: done, and left.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ControllerReport {
    /// Why it has ended.
    pub ended: Ended,
    /// The work of its workers.
    pub workers: WorkerReport,
    /// How it stood with the queue when the workers ended.
    pub queue: WorkQueueStats,
}

impl ControllerReport {
    /// Items that were to be worked on and were not, or not to the end.
    pub fn left(&self) -> usize {
        self.queue.queued + self.queue.processing
    }
}

impl<T> Controller<T>
where
    T: Clone + Eq + Hash + Display + Send + Sync + 'static,
{
    /// A controller with one worker, which tries again without end, and drains without a limit. The name is
    /// for its log.
    pub fn new(name: &str, queue: &RateLimitingQueue<T>) -> Self {
        Self {
            queue: queue.clone(),
            workers: NonZeroUsize::MIN,
            drain_within: None,
            watched: Vec::new(),
            how: Loop::new(name),
        }
    }

    /// Adds a handler to an informer: one that fills the queue, such as
    /// [`enqueue`](super::workqueue::enqueue). The controller waits until it was told the first list, and
    /// removes it at the end.
    ///
    /// # Errors
    ///
    /// When the informer has stopped.
    pub fn watch<K: Object>(
        mut self,
        informer: &SharedInformer<K>,
        handler: impl ResourceEventHandler<K>,
    ) -> Result<Self, InformerStopped> {
        let registration = informer.add_handler(handler)?;
        let informer = informer.clone();
        self.watched.push(Watched {
            resource: informer.resource().plural.clone(),
            synced: registration.synced(),
            remove: Box::new(move || informer.remove_handler(&registration)),
        });
        Ok(self)
    }

    /// How many items are worked on at a time.
    pub fn workers(mut self, workers: NonZeroUsize) -> Self {
        self.workers = workers;
        self
    }

    /// An item that has failed is tried again so often at most; then it is forgotten and `give_up` is told,
    /// with the last error. It comes again when it is added again.
    pub fn retries(
        mut self,
        retries: u32,
        give_up: impl Fn(&T, &(dyn Error + Send + Sync + 'static)) + Send + Sync + 'static,
    ) -> Self {
        self.how.limit = Some(RetryLimit { retries, give_up: Box::new(give_up) });
        self
    }

    /// At the end, what is queued is worked off for so long at most; then the workers are cancelled.
    pub fn drain_within(mut self, limit: Duration) -> Self {
        self.drain_within = Some(limit);
        self
    }

    /// Runs until `stop` is ready or an informer ends. Then, in this order: its handlers are removed, the
    /// queue takes nothing in any more and is worked off, and the workers end.
    ///
    /// Before the caches are filled nothing is reconciled: a worker would take for gone what is not there
    /// yet. Dropping the future cancels the workers where they stand.
    pub async fn run<F, R, E>(
        self,
        stop: impl Future<Output = ()>,
        reconcile: F,
    ) -> ControllerReport
    where
        F: Fn(T) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Action, E>> + Send + 'static,
        E: Into<Box<dyn Error + Send + Sync>> + Send + 'static,
    {
        let Self { queue, workers, drain_within, watched, how } = self;
        let how = Arc::new(how);
        let report =
            |ended| ControllerReport { ended, workers: how.report(), queue: queue.stats() };
        // Whatever becomes of the future, no handler stays behind.
        let watched = Handlers(watched);
        let (mut stop, mut ended) = (pin!(stop), pin!(watched.ended()));
        let synced = wait_for_cache_sync(watched.0.iter().map(|one| one.synced.clone()));
        let too_soon = tokio::select! {
            biased;
            () = &mut stop => Some(Ended::Stopped),
            resource = &mut ended => Some(Ended::Informer(resource)),
            // Where it is not synced one has ended.
            true = synced => None,
        };
        if let Some(ended) = too_soon {
            queue.shut_down();
            return report(ended);
        }
        let mut working = pin!(run_workers_of(&how, queue.clone(), workers, reconcile));
        let ended = tokio::select! {
            () = &mut stop => Ended::Stopped,
            resource = &mut ended => Ended::Informer(resource),
            () = &mut working => return report(Ended::Queue),
        };
        drop(watched);
        let drained = async { tokio::join!(working, queue.shut_down_with_drain()) };
        match drain_within {
            None => drop(drained.await),
            Some(limit) => {
                let mut drained = pin!(drained);
                let cut_short = timeout(limit, &mut drained).await.is_err();
                if cut_short {
                    // Before the workers are cancelled, which gives back what they have.
                    return report(ended);
                }
            }
        }
        report(ended)
    }
}

/// A controller's handlers; removed when this is dropped.
struct Handlers(Vec<Watched>);

impl Handlers {
    /// The resource of the first whose informer ends.
    fn ended(&self) -> impl Future<Output = String> + use<> {
        let handlers: Vec<_> =
            self.0.iter().map(|one| (one.resource.clone(), one.synced.clone())).collect();
        async move {
            if handlers.is_empty() {
                std::future::pending::<()>().await;
            }
            let ends = handlers.into_iter().map(|(resource, synced)| {
                Box::pin(async move {
                    synced.ended().await;
                    resource
                })
            });
            select_all(ends).await.0
        }
    }
}

impl Drop for Handlers {
    fn drop(&mut self) {
        for watched in self.0.drain(..) {
            (watched.remove)();
        }
    }
}
