//! How far an informer is, and what went wrong in it.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use tokio::sync::watch;

use super::{Queue, sync::Progress};
use crate::{
    object::Object,
    reflector::{ListWatchError, WatchErrorHandler},
};

/// The part of an informer or a controller that its loop and the task of its reflector share.
#[derive(Default)]
pub(super) struct Tracker {
    pub(super) progress: watch::Sender<Progress>,
    /// The last change that was popped is not told yet.
    telling: AtomicBool,
    /// Calls of the program's functions that panicked.
    pub(super) panics: Arc<AtomicU64>,
    unreadable: AtomicU64,
    /// Its panics are caught already.
    watch_error_handler: Option<WatchErrorHandler>,
}

impl Tracker {
    pub(super) fn new(
        watch_error_handler: Option<WatchErrorHandler>,
        panics: Arc<AtomicU64>,
    ) -> Self {
        Self { panics, watch_error_handler, ..Self::default() }
    }

    /// A change was popped, of which somebody is to be told. Only from within the pop.
    pub(super) fn begin_telling(&self) {
        self.telling.store(true, Ordering::Release);
    }

    pub(super) fn end_telling(&self) {
        self.telling.store(false, Ordering::Release);
    }

    /// Notes the first time that everything of the first list was popped and told.
    pub(super) fn note_synced<K: Object>(&self, queue: &impl Queue<K>) {
        let synced = || {
            // In this order: the flag is set before the queue lets go of its last entry.
            queue.has_synced() && !self.telling.load(Ordering::Acquire)
        };
        if !self.progress.borrow().synced && synced() {
            self.progress.send_modify(|progress| progress.synced = true);
        }
    }

    /// An object was left out.
    pub(super) fn note_unreadable(&self, error: &ListWatchError) {
        self.unreadable.fetch_add(1, Ordering::Relaxed);
        match &self.watch_error_handler {
            Some(handler) => handler(error),
            None => tracing::warn!(%error, "an object cannot be read: it is left out"),
        }
    }

    pub(super) fn unreadable(&self) -> u64 {
        self.unreadable.load(Ordering::Relaxed)
    }
}
