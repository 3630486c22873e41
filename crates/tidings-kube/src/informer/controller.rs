//! The controller under an informer: a reflector that fills a queue, and a loop that empties it.

use std::{
    convert::Infallible,
    fmt::Display,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use tokio::{sync::watch, task::JoinSet};

use super::{
    AlreadyStarted, DeletedFinalStateUnknown, Delta, DeltaObject, DeltaType, InOrderFifo, PopError,
    Queue, ResourceEventHandler, Store, Synced, TransformFunc,
    feed::Feed,
    listener::{Notification, tell},
    queue::guarded,
    sync::Progress,
    tracker::Tracker,
};
use crate::{
    object::Object,
    reflector::{
        Decode, Follow, ListerWatcher, Reflector, ReflectorOptions, ReflectorStore, SharedHealth,
        SourceHealth, guarded_handler,
    },
};

/// One reflector, one queue, and one loop that has the changes of each object processed (client-go
/// `cache.Controller`). An [`Informer`] adds a store and one handler, a
/// [`SharedInformer`](super::SharedInformer) a store and any number of handlers.
pub struct Controller<K: Decode, Q: Queue<K> + 'static> {
    /// For logs.
    name: String,
    queue: Arc<Q>,
    tracker: Arc<Tracker>,
    health: SharedHealth,
    /// Until it runs.
    reflector: Mutex<Option<Reflector<Feed<K, Q>>>>,
}

impl<K: Decode, Q: Queue<K> + 'static> Controller<K, Q> {
    /// A controller that fills `queue` from a source (client-go `cache.New`). Each
    /// `options.resync_period` the known objects of the queue are queued once more. The controller follows the
    /// state of the source, whatever `options.follow` says. The watch error handler is also told of objects that cannot
    /// be read, which are not logged then.
    pub fn new(source: impl ListerWatcher, queue: Q, options: ReflectorOptions) -> Self {
        Self::with_panics(source, queue, options, Arc::default())
    }

    fn with_panics(
        source: impl ListerWatcher,
        queue: Q,
        mut options: ReflectorOptions,
        panics: Arc<AtomicU64>,
    ) -> Self {
        let expected = source.expected();
        options.follow = Follow::State;
        if options.name.is_empty() {
            options.name.clone_from(&expected.plural);
        }
        let handler = options.watch_error_handler.take();
        options.watch_error_handler =
            handler.map(|handler| guarded_handler(handler, &options.name, Arc::clone(&panics)));
        let tracker = Arc::new(Tracker::new(options.watch_error_handler.clone(), panics));
        let (name, queue) = (options.name.clone(), Arc::new(queue));
        let feed = Feed::new(Arc::clone(&tracker), Arc::clone(&queue), expected, || true);
        let reflector = Reflector::new(source, feed, options);
        let health = reflector.health();
        Self { name, queue, tracker, health, reflector: Mutex::new(Some(reflector)) }
    }

    /// Whether everything of the first list has been processed (client-go `HasSynced`).
    pub fn has_synced(&self) -> bool {
        self.tracker.progress.borrow().synced
    }

    /// The same, to wait for.
    pub fn synced(&self) -> Synced {
        Synced::of_informer(self.tracker.progress.subscribe())
    }

    /// The resourceVersion up to which changes were queued; "" at first (client-go
    /// `LastSyncResourceVersion`).
    pub fn last_sync_resource_version(&self) -> String {
        self.health().last_sync_resource_version
    }

    /// How its list and watch do.
    pub fn health(&self) -> SourceHealth {
        self.health.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Tells it to stop, after the change that it is at; the rest of the queue is not processed. A handler that does not
    /// return keeps it from stopping; in that case drop the future of the run. A controller that was stopped before it
    /// was started does not start.
    pub fn stop(&self) {
        self.tracker.progress.send_modify(|progress| progress.stopping = true);
    }

    /// Runs until it is told to [stop](Self::stop). `process` is called with the deltas of one object, oldest first, and
    /// whether they are of the first list; the queue is locked meanwhile, so `process` must neither wait nor call
    /// the queue. An error of it is logged (client-go `Config.Process`). Dropping the future ends everything at once.
    ///
    /// # Panics
    ///
    /// When `process` or the queue's transformer does, or a method of the objects' type does other than
    /// while an object is read.
    pub async fn run<E: Display + Send>(
        &self,
        mut process: impl FnMut(&[Delta<K>], bool) -> Result<(), E> + Send,
    ) -> Result<(), AlreadyStarted> {
        let (_stopped, mut reflecting) = self.start()?;
        while let Some(processed) = reflecting.next(&*self.queue, &mut process).await {
            if let Err(error) = processed {
                tracing::error!(source = self.name, %error, "a change could not be processed");
            }
            self.tracker.note_synced(&*self.queue);
        }
        reflecting.end(&*self.queue).await;
        Ok(())
    }

    fn start(&self) -> Result<(Stopped<'_>, Reflecting), AlreadyStarted> {
        let reflector = self.reflector.lock().unwrap_or_else(PoisonError::into_inner).take();
        let reflector = reflector.ok_or(AlreadyStarted)?;
        let stopped = Stopped(&self.tracker.progress);
        if self.tracker.progress.borrow().stopping {
            return Err(AlreadyStarted);
        }
        Ok((stopped, Reflecting::spawn(reflector, &self.tracker.progress)))
    }
}

/// A store that is kept up with a source, and one handler that is told of each change (client-go `NewInformer`). A
/// [`SharedInformer`](super::SharedInformer) has any number of handlers, with a queue each; here the next change waits
/// until the handler returns.
///
/// ```no_run
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use kube::core::ApiResource;
/// use tidings_kube::{
///     informer::{HandlerFuncs, Informer, Store},
///     reflector::{ReflectorOptions, ResourceApi},
/// };
///
/// # async fn follow(client: kube::Client) -> Result<(), Box<dyn std::error::Error>> {
/// let source = ResourceApi::new(client, &ApiResource::erase::<ConfigMap>(&()));
/// let options = ReflectorOptions::default();
/// let informer = Informer::<ConfigMap>::new(source, Store::default(), None, options);
/// informer.run(HandlerFuncs::new().on_add(|map, _| println!("{map:?}"))).await?;
/// # Ok(())
/// # }
/// ```
pub struct Informer<K: Decode> {
    store: Store<K>,
    controller: Controller<K, InOrderFifo<K>>,
}

impl<K: Decode> Informer<K> {
    /// An informer for a store, which may have indexes (client-go `NewIndexerInformer`), and with a transformer if it
    /// is given one (`NewTransformingInformer`).
    pub fn new(
        source: impl ListerWatcher,
        store: Store<K>,
        transform: Option<TransformFunc<K>>,
        options: ReflectorOptions,
    ) -> Self {
        let panics = Arc::default();
        let transform = transform.map(|transform| guarded(transform, Arc::clone(&panics)));
        let queue = InOrderFifo::new(Arc::new(store.clone()), transform);
        let controller = Controller::with_panics(source, queue, options, panics);
        Self { store, controller }
    }

    /// The cache. Change nothing in it: the informer would not know.
    pub fn store(&self) -> Store<K> {
        self.store.clone()
    }

    /// How far it is, and to stop it.
    pub fn controller(&self) -> &Controller<K, InOrderFifo<K>> {
        &self.controller
    }

    /// Calls of the handler, the transformer and the watch error handler that panicked. The log has each.
    pub fn panics(&self) -> u64 {
        self.controller.tracker.panics.load(Ordering::Relaxed)
    }

    /// Runs until its controller is told to [stop](Controller::stop). Each change is in the store when the
    /// handler is told of it (client-go `processDeltas`). A handler that panics is told the next one.
    ///
    /// # Panics
    ///
    /// When a method of the objects' type does, other than while an object is read.
    pub async fn run(
        &self,
        mut handler: impl ResourceEventHandler<K>,
    ) -> Result<(), AlreadyStarted> {
        let Controller { queue, tracker, .. } = &self.controller;
        let (_stopped, mut reflecting) = self.controller.start()?;
        let mut process = |deltas: &[Delta<K>], is_in_initial_list: bool| {
            tracker.begin_telling();
            // One change each: this queue gathers none.
            let mut told = Vec::new();
            apply(&self.store, deltas, is_in_initial_list, |change, _| told.push(change));
            Ok::<_, Infallible>(told)
        };
        while let Some(Ok(told)) = reflecting.next(&**queue, &mut process).await {
            for change in told {
                if tell(&mut handler, change).await.is_err() {
                    tracker.panics.fetch_add(1, Ordering::Relaxed);
                }
            }
            tracker.end_telling();
            tracker.note_synced(&**queue);
        }
        reflecting.end(&**queue).await;
        Ok(())
    }
}

/// Marks a controller stopped however its run ends.
struct Stopped<'a>(&'a watch::Sender<Progress>);

impl Drop for Stopped<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|progress| progress.stopped = true);
    }
}

/// A reflector that fills a queue, in a task of its own, until it is told to stop. Dropping it aborts the task.
pub(super) struct Reflecting {
    task: JoinSet<()>,
    progress: watch::Receiver<Progress>,
}

impl Reflecting {
    pub(super) fn spawn<S: ReflectorStore + Sync + 'static>(
        reflector: Reflector<S>,
        progress: &watch::Sender<Progress>,
    ) -> Self {
        let mut task = JoinSet::new();
        // In a task of its own: reading JSON is most of the work.
        task.spawn(reflector.run());
        Self { task, progress: progress.subscribe() }
    }

    /// Has the next entry of the queue processed; `None` when it is told to stop, or the queue is closed and empty.
    ///
    /// # Panics
    ///
    /// When the reflector has.
    pub(super) async fn next<K: Object, R, E>(
        &mut self,
        queue: &impl Queue<K>,
        process: impl FnOnce(&[Delta<K>], bool) -> Result<R, E> + Send,
    ) -> Option<Result<R, E>> {
        tokio::select! {
            biased;
            _ = self.progress.wait_for(|progress| progress.stopping) => None,
            Some(Err(ended)) = self.task.join_next() => match ended.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_) => None,
            },
            popped = queue.pop(process) => match popped {
                Ok(done) => Some(Ok(done)),
                Err(PopError::Closed) => None,
                Err(PopError::Process(error)) => Some(Err(error)),
            },
        }
    }

    /// Ends the queue and the reflector.
    pub(super) async fn end<K: Object>(mut self, queue: &impl Queue<K>) {
        queue.close();
        self.task.shutdown().await;
    }
}

/// Applies the deltas of one object to a store, and tells each change of it (client-go `processDeltas`), with
/// whether there is nothing new in it.
pub(super) fn apply<K: Object>(
    store: &Store<K>,
    deltas: &[Delta<K>],
    is_in_initial_list: bool,
    mut tell: impl FnMut(Notification<K>, bool),
) {
    for delta in deltas {
        let object = match (&delta.object, delta.kind) {
            (gone, DeltaType::Deleted) => {
                let last = store.delete(&gone.key());
                if let Some(gone) = with_last_state(gone, last) {
                    tell(Notification::Delete(gone), false);
                }
                continue;
            }
            (DeltaObject::Object(object), _) => Arc::clone(object),
            // A tombstone is only ever deleted.
            (DeltaObject::Tombstone(_), _) => continue,
        };
        match store.add(Arc::clone(&object)) {
            None => tell(Notification::Add { object, is_in_initial_list }, false),
            Some(old) => {
                let nothing_new = old.resource_version() == object.resource_version();
                tell(Notification::Update { old, new: object }, nothing_new);
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
