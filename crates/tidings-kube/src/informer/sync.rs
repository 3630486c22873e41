//! Waiting until a cache holds what the API server holds.

use std::sync::Arc;

use futures_util::future::try_join_all;
use tokio::sync::watch;

use super::listener::ListenerState;

/// How far an informer is. Nothing of it is ever taken back.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Progress {
    /// The first list is in the store.
    pub(super) synced: bool,
    /// It was told to stop.
    pub(super) stopping: bool,
    /// It has ended, and so have its handlers.
    pub(super) stopped: bool,
}

/// Tells whether an informer, or one handler of it, has all of the first list; a cheap clone that
/// knows nothing of the type (client-go `InformerSynced`).
#[derive(Clone, Debug)]
pub struct Synced {
    informer: watch::Receiver<Progress>,
    listener: Option<Arc<ListenerState>>,
}

impl Synced {
    pub(super) fn of_informer(informer: watch::Receiver<Progress>) -> Self {
        Self { informer, listener: None }
    }

    fn of_listener(informer: watch::Receiver<Progress>, listener: Arc<ListenerState>) -> Self {
        Self { informer, listener: Some(listener) }
    }

    /// Of an informer: its store holds the whole first list. Of a handler: it has also returned
    /// from the add of each object of that list, or of what it found when it came.
    pub fn has_synced(&self) -> bool {
        self.informer.borrow().synced
            && self.listener.as_ref().is_none_or(|listener| listener.has_delivered_initial())
    }

    /// Waits for that. `false` when it will never be: the informer stops, or the handler was removed.
    pub async fn wait(&self) -> bool {
        let mut informer = self.informer.clone();
        let ended = |progress: &Progress| progress.synced || progress.stopping || progress.stopped;
        if !informer.wait_for(ended).await.is_ok_and(|progress| progress.synced) {
            return false;
        }
        let Some(listener) = &self.listener else { return true };
        loop {
            let changed = listener.changed();
            if self.has_synced() {
                return true;
            }
            if listener.is_closed() {
                return false;
            }
            changed.await;
        }
    }
}

/// Waits for all of them; `false` as soon as one of them will never be synced (client-go
/// `WaitForCacheSync`, without its polling).
pub async fn wait_for_cache_sync(caches: impl IntoIterator<Item = Synced>) -> bool {
    let waits = caches
        .into_iter()
        .map(|cache| async move { if cache.wait().await { Ok(()) } else { Err(()) } });
    try_join_all(waits).await.is_ok()
}

/// A handler that was added to an informer (client-go `ResourceEventHandlerRegistration`).
///
/// Dropping it changes nothing; give it to `SharedInformer::remove_handler` to remove the handler.
#[derive(Clone, Debug)]
pub struct HandlerRegistration {
    listener: Arc<ListenerState>,
    synced: Synced,
}

impl HandlerRegistration {
    pub(super) fn new(informer: watch::Receiver<Progress>, listener: Arc<ListenerState>) -> Self {
        Self { synced: Synced::of_listener(informer, Arc::clone(&listener)), listener }
    }

    pub(super) fn is_of(&self, listener: &Arc<ListenerState>) -> bool {
        Arc::ptr_eq(&self.listener, listener)
    }

    /// Whether the informer has synced and the handler has returned from every initial add.
    pub fn has_synced(&self) -> bool {
        self.synced.has_synced()
    }

    /// Waits for that; `false` when it will never be.
    pub async fn wait_for_sync(&self) -> bool {
        self.synced.wait().await
    }

    /// The same, to wait for together with others; see [`wait_for_cache_sync`].
    pub fn synced(&self) -> Synced {
        self.synced.clone()
    }

    /// Notifications that the handler has not returned from: how far it is behind. Each holds on
    /// to the objects that it is about.
    pub fn pending(&self) -> usize {
        self.listener.pending()
    }

    /// Notifications that the handler panicked on. They are not told again.
    pub fn panics(&self) -> u64 {
        self.listener.panics()
    }
}
