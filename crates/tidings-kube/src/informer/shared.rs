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

use tokio::{sync::watch, task::JoinSet};

use super::{
    DeletedFinalStateUnknown, Delta, DeltaFifo, DeltaFifoOptions, DeltaObject, DeltaType,
    InOrderFifo, Lister, PopError, Queue, Store,
    builder::{Builder, QueueKind},
    feed::Feed,
    handler::ResourceEventHandler,
    listener::Notification,
    processor::Processor,
    sync::{HandlerRegistration, Progress, Synced},
};
use crate::{
    object::Object,
    reflector::{Decode, ListWatchError, Reflector, ResourceApi, SharedHealth, SourceHealth},
};

/// The informer has stopped, or was told to: it takes no handler any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the informer has stopped")]
pub struct InformerStopped;

/// The informer runs or has run, or was told to stop before it did. It runs once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the informer was started or stopped before; it runs once")]
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
    progress: watch::Sender<Progress>,
    /// How the reflector does, once there is one.
    reflector: OnceLock<SharedHealth>,
    unreadable: AtomicU64,
}

impl<K: Object> Shared<K> {
    pub(super) fn processor(&self) -> MutexGuard<'_, Processor<K>> {
        self.processor.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes the first time that the queue has synced.
    pub(super) fn note_synced(&self, queue: &impl Queue<K>) {
        if !self.progress.borrow().synced && queue.has_synced() {
            self.progress.send_modify(|progress| progress.synced = true);
        }
    }

    /// An object was left out.
    pub(super) fn note_unreadable(&self, error: &ListWatchError) {
        self.unreadable.fetch_add(1, Ordering::Relaxed);
        match &self.settings.watch_error_handler {
            Some(handler) => handler(error),
            None => tracing::warn!(%error, "an object cannot be read: it is left out"),
        }
    }

    /// Applies the deltas of one object to the store, and tells the handlers.
    fn process(&self, deltas: &[Delta<K>], is_in_initial_list: bool) {
        let processor = self.processor();
        for delta in deltas {
            let object = match (&delta.object, delta.kind) {
                (gone, DeltaType::Deleted) => {
                    let last = self.store.delete(&gone.key());
                    if let Some(gone) = with_last_state(gone, last) {
                        processor.distribute(&Notification::Delete(gone));
                    }
                    continue;
                }
                (DeltaObject::Object(object), _) => Arc::clone(object),
                // A tombstone is only ever deleted.
                (DeltaObject::Tombstone(_), _) => continue,
            };
            match self.store.add(Arc::clone(&object)) {
                None => processor.distribute(&Notification::Add { object, is_in_initial_list }),
                Some(old) => {
                    let nothing_new = old.resource_version() == object.resource_version();
                    let update = Notification::Update { old, new: object };
                    if nothing_new {
                        processor.distribute_sync(&update);
                    } else {
                        processor.distribute(&update);
                    }
                }
            }
        }
    }
}

/// A deletion, with the last state that the handlers know where it brings none itself. Nothing if
/// they know none either: then it is of an object that nobody has been told of.
fn with_last_state<K>(gone: &DeltaObject<K>, last: Option<Arc<K>>) -> Option<DeltaObject<K>> {
    match gone {
        DeltaObject::Tombstone(DeletedFinalStateUnknown { key, object: None }) => {
            let (key, object) = (key.clone(), Some(last?));
            Some(DeltaObject::Tombstone(DeletedFinalStateUnknown { key, object }))
        }
        gone => Some(gone.clone()),
    }
}

impl<K: Object> SharedInformer<K> {
    pub(super) fn new(settings: Builder<K>, store: Store<K>) -> Self {
        let processor =
            Mutex::new(Processor::new(settings.resync_check_period, Arc::clone(&settings.panics)));
        let shared = Shared {
            settings,
            store,
            processor,
            progress: watch::Sender::default(),
            reflector: OnceLock::new(),
            unreadable: AtomicU64::new(0),
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
        Ok(HandlerRegistration::new(self.shared.progress.subscribe(), state))
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

    /// What it lists and watches.
    pub fn api(&self) -> &ResourceApi {
        &self.shared.settings.api
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
        Synced::of_informer(self.shared.progress.subscribe())
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
        self.shared.unreadable.load(Ordering::Relaxed)
    }

    /// Calls of the handlers, the transformer, the watch error handler and the index functions that panicked.
    /// The log has each with its name.
    pub fn panics(&self) -> u64 {
        self.shared.settings.panics.load(Ordering::Relaxed) + self.shared.store.index_panics()
    }

    /// Waits until it has ended.
    pub(super) async fn ended(&self) {
        // The sender lives as long as `self`.
        let _ = self.shared.progress.subscribe().wait_for(|progress| progress.stopped).await;
    }

    /// Whether it takes no handlers any more.
    pub fn is_stopped(&self) -> bool {
        self.shared.processor().is_stopped()
    }

    /// Tells it to stop: the reflector and the queue first, then the handlers, each after the call
    /// that it is in. Does not wait for any of it. Stopped before it was started it never will be.
    pub fn stop(&self) {
        self.shared.progress.send_modify(|progress| progress.stopping = true);
        let never_started = self.shared.processor().stop_before_start();
        if never_started.is_some() {
            self.shared.progress.send_modify(|progress| progress.stopped = true);
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
    /// An informer for a resource, to be set up.
    pub fn builder(api: ResourceApi) -> Builder<K> {
        Builder::new(api)
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
        let feed = Feed::new(Arc::clone(&self.shared), Arc::clone(&queue));
        let reflector = Reflector::new(self.api().clone(), feed, options);
        self.shared.reflector.get_or_init(|| reflector.health());
        // In a task of its own: reading JSON is most of the work.
        let mut reflecting = JoinSet::new();
        reflecting.spawn(reflector.run());
        let mut progress = self.shared.progress.subscribe();
        loop {
            let popped = tokio::select! {
                biased;
                _ = progress.wait_for(|progress| progress.stopping) => break,
                Some(Err(ended)) = reflecting.join_next() => match ended.try_into_panic() {
                    Ok(panic) => std::panic::resume_unwind(panic),
                    Err(_) => break,
                },
                popped = queue.pop(|deltas, is_in_initial_list| {
                    self.shared.process(deltas, is_in_initial_list);
                    Ok::<(), Infallible>(())
                }) => popped,
            };
            match popped {
                Ok(()) => self.shared.note_synced(&*queue),
                Err(PopError::Closed) => break,
            }
        }
        reflecting.shutdown().await;
        queue.close();
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
        self.shared.progress.send_modify(|progress| progress.stopped = true);
    }
}
