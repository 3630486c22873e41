//! A reflector and the queue that it fills, for who processes the changes itself.

use std::{marker::PhantomData, sync::Arc};

use tokio::task::JoinSet;

use super::{
    Decode, Delta, ListerWatcher, Object, ObjectFeed, ObjectStore, PopError, Queue, Reflector,
    ReflectorOptions, SharedHealth,
};

/// A reflector that fills a queue, and the end of the queue where changes are processed: client-go's
/// low-level `Controller` of `cache.New`.
///
/// A [`SharedInformer`](super::SharedInformer) adds a store, handlers and resync periods to one. For client-go's
/// `NewInformer`, a store with one handler, take that: this is for another queue, or another way to process
/// what comes out of it.
///
/// ```no_run
/// # use std::{convert::Infallible, sync::Arc};
/// # use k8s_openapi::api::core::v1::Pod;
/// use kube_machinery::cache::{
///     InOrderFifo, LowLevelController, ReflectorOptions, ResourceApi, StoreWriter,
/// };
///
/// # async fn run(pods: ResourceApi) {
/// let known = StoreWriter::<Pod>::default();
/// let queue = InOrderFifo::new(Arc::new(known.store()), None);
/// let mut controller = LowLevelController::start(pods, queue, ReflectorOptions::default());
/// while controller
///     .pop(|deltas, _is_in_initial_list| {
///         for delta in deltas {
///             println!("{:?} {}", delta.kind, delta.object.key());
///         }
///         // Here `known` is to be changed in the same way.
///         Ok::<(), Infallible>(())
///     })
///     .await
///     .is_ok()
/// {}
/// # }
/// ```
#[must_use = "a controller that is dropped ends its reflector"]
pub struct LowLevelController<K, Q> {
    queue: Arc<Q>,
    reflecting: JoinSet<()>,
    health: SharedHealth,
    of: PhantomData<fn() -> K>,
}

impl<K: Object, Q: Queue<K> + 'static> LowLevelController<K, Q> {
    /// Starts a reflector that fills the queue, as a task of the current runtime. Dropping the controller ends
    /// it.
    pub fn start(source: impl ListerWatcher, queue: Q, options: ReflectorOptions) -> Self
    where
        K: Decode,
    {
        let queue = Arc::new(queue);
        Self::over(Reflector::for_objects(source, Arc::clone(&queue), options), queue)
    }

    pub(super) fn over<S>(reflector: Reflector<ObjectFeed<K, S>>, queue: Arc<Q>) -> Self
    where
        K: Decode,
        S: ObjectStore<K> + 'static,
    {
        let (health, mut reflecting) = (reflector.health(), JoinSet::new());
        // In a task of its own: reading JSON is most of the work.
        reflecting.spawn(reflector.run());
        Self { queue, reflecting, health, of: PhantomData }
    }

    /// Waits for the next change and has it processed, as [`Queue::pop`]. Dropping the future takes nothing
    /// out.
    ///
    /// # Errors
    ///
    /// Those of `process`, and [`PopError::Closed`] once the queue is closed and empty.
    ///
    /// # Panics
    ///
    /// When the reflector has, as in the reading of a type.
    pub async fn pop<R, E>(
        &mut self,
        process: impl FnOnce(&[Delta<K>], bool) -> Result<R, E> + Send,
    ) -> Result<R, PopError<E>> {
        tokio::select! {
            biased;
            Some(Err(ended)) = self.reflecting.join_next() => match ended.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_) => Err(PopError::Closed),
            },
            popped = self.queue.pop(process) => popped,
        }
    }

    /// The queue.
    pub fn queue(&self) -> &Q {
        &self.queue
    }

    /// Whether everything of the first list was processed.
    pub fn has_synced(&self) -> bool {
        self.queue.has_synced()
    }

    /// How the reflector does.
    pub fn health(&self) -> SharedHealth {
        Arc::clone(&self.health)
    }

    /// Ends the reflector, and closes the queue behind it.
    pub async fn stop(mut self) {
        self.reflecting.shutdown().await;
        self.queue.close();
    }
}
