//! The informer: one reflector, one queue, one store, any number of handlers (client-go
//! `sharedIndexInformer`).

use std::{
    convert::Infallible,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{task::JoinSet, time::Instant};

use super::{
    Delta, DeltaFifo, DeltaFifoOptions, InOrderFifo, Lister, Queue, Store,
    builder::{Builder, QueueKind},
    controller::{Reflecting, apply},
    feed::Feed,
    handler::ResourceEventHandler,
    listener::Notification,
    processor::Processor,
    sync::{HandlerRegistration, Synced},
    tracker::Tracker,
};
use crate::{
    object::Object,
    reflector::{Decode, ListerWatcher, Reflector, SharedHealth, SourceHealth},
};

/// The informer has stopped, or was told to: it takes no handler any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the informer has stopped")]
pub struct InformerStopped;

/// An informer or a controller runs or has run, or was told to stop before it did. Each runs once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("started or stopped before: it runs once")]
pub struct AlreadyStarted;

/// A cache of one resource of the API server, kept up by list and watch, that tells its handlers of
/// each change. A cheap clone; see [the guide](super).
pub struct SharedInformer<K: Object> {
    shared: Arc<Shared<K>>,
}

impl<K: Object> Clone for SharedInformer<K> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

/// What the informer's clones and its reflector's task share.
pub(super) struct Shared<K: Object> {
    pub(super) settings: Builder<K>,
    store: Store<K>,
    /// Also held while a delta is applied to the store and told to the handlers, so that a handler
    /// that comes meanwhile finds in the store exactly what it is not told.
    processor: Mutex<Processor<K>>,
    tracker: Arc<Tracker>,
    /// How the reflector does, once there is one.
    reflector: OnceLock<SharedHealth>,
}

impl<K: Object> Shared<K> {
    pub(super) fn processor(&self) -> MutexGuard<'_, Processor<K>> {
        self.processor.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Applies the deltas of one object to the store, and tells the handlers.
    fn process(&self, deltas: &[Delta<K>], is_in_initial_list: bool) {
        let processor = self.processor();
        apply(&self.store, deltas, is_in_initial_list, |notification, nothing_new| {
            if nothing_new {
                processor.distribute_sync(&notification);
            } else {
                processor.distribute(&notification);
            }
        });
    }
}

impl<K: Object> SharedInformer<K> {
    pub(super) fn new(settings: Builder<K>, store: Store<K>, panics: Arc<AtomicU64>) -> Self {
        let processor = Processor::new(settings.resync_check_period, Arc::clone(&panics));
        let tracker = Tracker::new(settings.watch_error_handler.clone(), panics);
        let shared = Shared {
            settings,
            store,
            processor: Mutex::new(processor),
            tracker: Arc::new(tracker),
            reflector: OnceLock::new(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Adds a handler with the informer's own resync period.
    ///
    /// To an informer that runs, the store's objects come first, as adds of an initial list.
    pub fn add_handler(
        &self,
        handler: impl ResourceEventHandler<K>,
    ) -> Result<HandlerRegistration, InformerStopped> {
        self.add_handler_with_resync(handler, self.shared.settings.resync_check_period)
    }

    /// Adds a handler that gets every object again, as an update, at each `period`: at the first
    /// check of the informer at or after it. At least 1 s; zero is never.
    ///
    /// Before the start the informer's check period is lowered to the period of its most frequent
    /// handler; later the period is raised to the check period.
    pub fn add_handler_with_resync(
        &self,
        handler: impl ResourceEventHandler<K>,
        period: Duration,
    ) -> Result<HandlerRegistration, InformerStopped> {
        let mut processor = self.shared.processor();
        let runs = processor.is_running();
        let listener = processor.add(handler, period).map_err(|_| InformerStopped)?;
        if runs {
            for object in self.shared.store.list() {
                listener.add(Notification::Add { object, is_in_initial_list: true });
            }
        }
        let state = Arc::clone(listener.state());
        Ok(HandlerRegistration::new(self.shared.tracker.progress.subscribe(), state))
    }

    /// Removes a handler. It finishes the call that it is in, and is told nothing more, not even
    /// what waits in its queue. A registration of another informer changes nothing.
    pub fn remove_handler(&self, registration: &HandlerRegistration) {
        self.shared.processor().remove(registration);
    }

    /// The cache. Change nothing in it: the informer would not know.
    pub fn store(&self) -> Store<K> {
        self.shared.store.clone()
    }

    /// The cache, to be read by namespace, name and labels.
    pub fn lister(&self) -> Lister<K> {
        Lister::new(self.store())
    }

    /// Whether the first list is in the store. Handlers may not have been told all of it yet; that
    /// is what [`HandlerRegistration::has_synced`] says.
    pub fn has_synced(&self) -> bool {
        self.synced().has_synced()
    }

    /// Waits for that; `false` if the informer stops before.
    pub async fn wait_for_cache_sync(&self) -> bool {
        self.synced().wait().await
    }

    /// The same, to wait for together with others; see
    /// [`wait_for_cache_sync`](super::wait_for_cache_sync).
    pub fn synced(&self) -> Synced {
        Synced::of_informer(self.shared.tracker.progress.subscribe())
    }

    /// The resourceVersion up to which the API server's changes were taken; "" at first. What the
    /// queue holds of them is not in the store yet.
    pub fn last_sync_resource_version(&self) -> String {
        self.health().map(|health| health.last_sync_resource_version).unwrap_or_default()
    }

    /// How its list and watch do; `None` before the start.
    pub fn health(&self) -> Option<SourceHealth> {
        let health = self.shared.reflector.get()?;
        Some(health.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }

    /// Objects that could not be read, and were left out. The watch error handler got each of them.
    pub fn unreadable(&self) -> u64 {
        self.shared.tracker.unreadable()
    }

    /// Calls of the handlers, the transformer, the watch error handler and the index functions that panicked.
    /// The log has each with its name.
    pub fn panics(&self) -> u64 {
        self.shared.tracker.panics.load(Ordering::Relaxed) + self.shared.store.index_panics()
    }

    /// Waits until it has ended.
    pub(super) async fn ended(&self) {
        // The sender lives as long as `self`.
        let _ =
            self.shared.tracker.progress.subscribe().wait_for(|progress| progress.stopped).await;
    }

    /// Whether it takes no handlers any more.
    pub fn is_stopped(&self) -> bool {
        self.shared.processor().is_stopped()
    }

    /// Tells it to stop: the reflector and the queue first, then the handlers, each after the call
    /// that it is in. Does not wait for any of it. Stopped before it was started it never will be.
    pub fn stop(&self) {
        self.shared.tracker.progress.send_modify(|progress| progress.stopping = true);
        let never_started = self.shared.processor().stop_before_start();
        if never_started.is_some() {
            self.shared.tracker.progress.send_modify(|progress| progress.stopped = true);
        }
    }

    /// Tells it to stop, and waits until it has and no handler runs any more. A handler that waits
    /// for this waits for itself: it is to call [`stop`](Self::stop).
    pub async fn shutdown(&self) {
        self.stop();
        self.ended().await;
    }
}

impl<K: Decode> SharedInformer<K> {
    /// An informer for a source of objects, to be set up; the source is a
    /// [`ResourceApi`](crate::reflector::ResourceApi) as a rule.
    pub fn builder(source: impl ListerWatcher) -> Builder<K> {
        Builder::new(source)
    }

    /// Runs until it is told to [stop](Self::stop). Dropping the future ends everything at once,
    /// the handlers in the middle of their calls.
    ///
    /// # Panics
    ///
    /// When a method of the objects' type does, other than while it is read.
    pub async fn run(&self) -> Result<(), AlreadyStarted> {
        if !self.shared.processor().start() {
            tracing::warn!("{AlreadyStarted}");
            return Err(AlreadyStarted);
        }
        let mut end = End { shared: &self.shared, handlers: JoinSet::new() };
        let (store, settings) = (self.store(), &self.shared.settings);
        match settings.queue {
            QueueKind::InOrder => {
                self.drive(InOrderFifo::new(Arc::new(store), settings.transform.clone())).await;
            }
            QueueKind::Delta => {
                let options = DeltaFifoOptions {
                    known_objects: Some(Arc::new(store)),
                    emit_delta_type_replaced: true,
                    transformer: settings.transform.clone(),
                };
                self.drive(DeltaFifo::new(options)).await;
            }
        }
        end.handlers = self.shared.processor().stop();
        while end.handlers.join_next().await.is_some() {}
        Ok(())
    }

    /// Has a reflector fill the queue, and empties it, until it is told to stop.
    async fn drive<Q: Queue<K> + 'static>(&self, queue: Q) {
        let queue = Arc::new(queue);
        let options =
            self.shared.settings.reflector_options(self.shared.processor().check_period());
        let tracker = &self.shared.tracker;
        let shared = Arc::clone(&self.shared);
        let feed = Feed::new(
            Arc::clone(tracker),
            Arc::clone(&queue),
            self.shared.settings.source.expected(),
            move || shared.processor().should_resync(Instant::now()),
        );
        let reflector = Reflector::new(Arc::clone(&self.shared.settings.source), feed, options);
        self.shared.reflector.get_or_init(|| reflector.health());
        let mut reflecting = Reflecting::spawn(reflector, &self.shared.tracker.progress);
        let mut process = |deltas: &[Delta<K>], is_in_initial_list: bool| {
            self.shared.process(deltas, is_in_initial_list);
            Ok::<(), Infallible>(())
        };
        while reflecting.next(&*queue, &mut process).await.is_some() {
            self.shared.tracker.note_synced(&*queue);
        }
        reflecting.end(&*queue).await;
    }
}

/// Marks the informer stopped however its run ends.
struct End<'a, K: Object> {
    shared: &'a Shared<K>,
    /// The handlers' tasks, once they were told to end. Dropping them aborts them.
    handlers: JoinSet<()>,
}

impl<K: Object> Drop for End<'_, K> {
    fn drop(&mut self) {
        let handlers = self.shared.processor().stop();
        drop(handlers);
        self.shared.tracker.progress.send_modify(|progress| progress.stopped = true);
    }
}
