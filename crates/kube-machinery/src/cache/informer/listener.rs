//! The listener between an informer and one handler: a queue that never makes the informer wait,
//! and the task that calls the handler (client-go `processorListener`).

use std::{
    future::{Future, poll_fn},
    panic::AssertUnwindSafe,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    task::{Context, Poll, ready},
};

use futures_util::FutureExt as _;
use tokio::sync::{Notify, mpsc};

use super::handler::ResourceEventHandler;
use crate::{
    cache::{DeltaObject, Object},
    panics,
};

/// A change as a handler is told of it by its calls, and a [stream](super::Notifications) by its items.
#[derive(Debug)]
#[non_exhaustive]
pub enum Notification<K> {
    /// See [`on_add`](super::ResourceEventHandler::on_add).
    Add {
        /// The object.
        object: Arc<K>,
        /// Whether the first list brought it, or it was there when the handler came.
        is_in_initial_list: bool,
    },
    /// See [`on_update`](super::ResourceEventHandler::on_update).
    Update {
        /// As it was.
        old: Arc<K>,
        /// As it is.
        new: Arc<K>,
        /// Whether it is as it was, by its resourceVersion.
        is_resync: bool,
    },
    /// See [`on_delete`](super::ResourceEventHandler::on_delete).
    Delete(DeltaObject<K>),
}

impl<K> Notification<K> {
    /// The object as it is now, or was at last; `None` if that is not known.
    pub fn object(&self) -> Option<&Arc<K>> {
        match self {
            Self::Add { object, .. } => Some(object),
            Self::Update { new, .. } => Some(new),
            Self::Delete(gone) => gone.object(),
        }
    }

    fn is_initial_add(&self) -> bool {
        matches!(self, Self::Add { is_in_initial_list: true, .. })
    }

    fn is_resync(&self) -> bool {
        matches!(self, Self::Update { is_resync: true, .. })
    }
}

impl<K> Clone for Notification<K> {
    fn clone(&self) -> Self {
        match self {
            Self::Add { object, is_in_initial_list } => {
                Self::Add { object: Arc::clone(object), is_in_initial_list: *is_in_initial_list }
            }
            Self::Update { old, new, is_resync } => {
                let is_resync = *is_resync;
                Self::Update { old: Arc::clone(old), new: Arc::clone(new), is_resync }
            }
            Self::Delete(object) => Self::Delete(object.clone()),
        }
    }
}

/// How a handler does; shared by the informer, the handler's task and its registrations.
#[derive(Debug, Default)]
pub(super) struct ListenerState {
    /// Notifications that the handler has not returned from.
    pending: AtomicUsize,
    /// Those of them that are initial adds.
    initial: AtomicUsize,
    /// Updates of a resync that the handler was not told yet.
    resyncs: AtomicUsize,
    panics: AtomicU64,
    closed: AtomicBool,
    /// The last initial add was delivered, or the handler is told nothing more.
    changed: Notify,
}

impl ListenerState {
    pub(super) fn pending(&self) -> usize {
        self.pending.load(Ordering::Relaxed)
    }

    pub(super) fn panics(&self) -> u64 {
        self.panics.load(Ordering::Relaxed)
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    pub(super) fn has_delivered_initial(&self) -> bool {
        self.initial.load(Ordering::Acquire) == 0
    }

    /// Whether the handler was told all of the last resync.
    pub(super) fn was_told_resync(&self) -> bool {
        self.resyncs.load(Ordering::Relaxed) == 0
    }

    /// Completes when it is told nothing more.
    pub(super) async fn closed(&self) {
        loop {
            let changed = self.changed();
            if self.is_closed() {
                return;
            }
            changed.await;
        }
    }

    /// Completes when one of these may have changed. Registered from its creation on.
    pub(super) fn changed(&self) -> impl Future<Output = ()> + '_ {
        self.changed.notified()
    }

    /// The handler has returned.
    fn delivered(&self, is_initial_add: bool) {
        self.pending.fetch_sub(1, Ordering::Relaxed);
        if is_initial_add && self.initial.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.changed.notify_waiters();
        }
    }
}

/// The informer's end of a listener. Dropping it ends the listener after the call that it is in:
/// what waits is not delivered any more.
pub(super) struct Listener<K> {
    queue: mpsc::UnboundedSender<Notification<K>>,
    state: Arc<ListenerState>,
}

/// The other end: gives out what is to be told.
pub(super) struct Told<K> {
    notifications: mpsc::UnboundedReceiver<Notification<K>>,
    state: Arc<ListenerState>,
    /// Whether what was given out last is an initial add; it counts as delivered with the next call.
    last: Option<bool>,
}

impl<K: Object> Told<K> {
    /// The next; nothing once the informer's end was dropped.
    pub(super) fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Notification<K>>> {
        self.delivered();
        let next = ready!(self.notifications.poll_recv(context));
        let Some(next) = next.filter(|_| !self.state.is_closed()) else { return Poll::Ready(None) };
        if next.is_resync() {
            self.state.resyncs.fetch_sub(1, Ordering::Relaxed);
        }
        self.last = Some(next.is_initial_add());
        Poll::Ready(Some(next))
    }

    /// Counts the one that was given out as done with.
    fn delivered(&mut self) {
        if let Some(is_initial_add) = self.last.take() {
            self.state.delivered(is_initial_add);
        }
    }
}

/// Calls a handler until the informer's end is dropped.
pub(super) type ListenerTask = Pin<Box<dyn Future<Output = ()> + Send>>;

impl<K: Object> Listener<K> {
    pub(super) fn new() -> (Self, Told<K>) {
        // A list of blocks that grows as long as the handler is behind, and that gives them back
        // when it catches up.
        let (queue, notifications) = mpsc::unbounded_channel();
        let state = Arc::new(ListenerState::default());
        let told = Told { notifications, state: Arc::clone(&state), last: None };
        (Self { queue, state }, told)
    }

    pub(super) fn state(&self) -> &Arc<ListenerState> {
        &self.state
    }

    pub(super) fn add(&self, notification: Notification<K>) {
        self.state.pending.fetch_add(1, Ordering::Relaxed);
        if notification.is_initial_add() {
            self.state.initial.fetch_add(1, Ordering::AcqRel);
        }
        if notification.is_resync() {
            self.state.resyncs.fetch_add(1, Ordering::Relaxed);
        }
        // It is refused once the task was aborted, with the informer that this is part of.
        let _ = self.queue.send(notification);
    }
}

impl<K> Drop for Listener<K> {
    fn drop(&mut self) {
        self.state.closed.store(true, Ordering::Release);
        self.state.changed.notify_waiters();
    }
}

/// See [`ListenerTask`].
pub(super) async fn deliver<K: Object>(
    mut handler: impl ResourceEventHandler<K>,
    mut told: Told<K>,
) {
    while let Some(notification) = poll_fn(|context| told.poll_next(context)).await {
        let call = AssertUnwindSafe(tell(&mut handler, notification));
        if let Err(panic) = call.catch_unwind().await {
            told.state.panics.fetch_add(1, Ordering::Relaxed);
            tracing::error!(
                panic = panics::message(&*panic),
                "an informer's handler panicked: what it was told is skipped"
            );
        }
        told.delivered();
    }
}

async fn tell<K: Object>(handler: &mut impl ResourceEventHandler<K>, what: Notification<K>) {
    match what {
        Notification::Add { object, is_in_initial_list } => {
            handler.on_add(object, is_in_initial_list).await;
        }
        Notification::Update { old, new, .. } => handler.on_update(old, new).await,
        Notification::Delete(object) => handler.on_delete(object).await,
    }
}
