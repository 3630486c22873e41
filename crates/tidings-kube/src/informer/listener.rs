//! What stands between the informer and one handler: a queue that never makes the informer wait,
//! and the task that calls the handler (client-go `processorListener`).

use std::{
    any::type_name,
    future::Future,
    pin::Pin,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
};

use tokio::sync::{Notify, mpsc};

use super::{DeltaObject, handler::ResourceEventHandler};
use crate::{
    foreign::caught_future,
    object::{Object, meta_namespace_key},
};

/// What a handler is told.
pub(super) enum Notification<K> {
    Add { object: Arc<K>, is_in_initial_list: bool },
    Update { old: Arc<K>, new: Arc<K> },
    Delete(DeltaObject<K>),
}

impl<K> Notification<K> {
    fn is_initial_add(&self) -> bool {
        matches!(self, Self::Add { is_in_initial_list: true, .. })
    }

    /// The object that it is about, which the handler may keep for itself.
    fn about(&self) -> Weak<K> {
        match self {
            Self::Add { object, .. } | Self::Update { new: object, .. } => Arc::downgrade(object),
            Self::Delete(gone) => gone.object().map(Arc::downgrade).unwrap_or_default(),
        }
    }
}

impl<K> Clone for Notification<K> {
    fn clone(&self) -> Self {
        match self {
            Self::Add { object, is_in_initial_list } => {
                Self::Add { object: Arc::clone(object), is_in_initial_list: *is_in_initial_list }
            }
            Self::Update { old, new } => {
                Self::Update { old: Arc::clone(old), new: Arc::clone(new) }
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
    panics: AtomicU64,
    /// Those of all handlers of the informer.
    all_panics: Arc<AtomicU64>,
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

    /// Completes when the two above may have changed. Registered from its creation on.
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

/// The other end: calls the handler until the informer's end is dropped.
pub(super) type ListenerTask = Pin<Box<dyn Future<Output = ()> + Send>>;

impl<K: Object> Listener<K> {
    /// The panics of the handler are counted in `all_panics` as well.
    pub(super) fn new(
        handler: impl ResourceEventHandler<K>,
        all_panics: Arc<AtomicU64>,
    ) -> (Self, ListenerTask) {
        // A list of blocks that grows as long as the handler is behind, and that gives them back
        // when it catches up.
        let (queue, notifications) = mpsc::unbounded_channel();
        let state = Arc::new(ListenerState { all_panics, ..ListenerState::default() });
        let task = deliver(handler, notifications, Arc::clone(&state));
        (Self { queue, state }, Box::pin(task))
    }

    pub(super) fn state(&self) -> &Arc<ListenerState> {
        &self.state
    }

    pub(super) fn add(&self, notification: Notification<K>) {
        self.state.pending.fetch_add(1, Ordering::Relaxed);
        if notification.is_initial_add() {
            self.state.initial.fetch_add(1, Ordering::AcqRel);
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

async fn deliver<K: Object, H: ResourceEventHandler<K>>(
    mut handler: H,
    mut notifications: mpsc::UnboundedReceiver<Notification<K>>,
    state: Arc<ListenerState>,
) {
    while let Some(notification) = notifications.recv().await {
        if state.is_closed() {
            return;
        }
        let is_initial_add = notification.is_initial_add();
        if tell(&mut handler, notification).await.is_err() {
            state.panics.fetch_add(1, Ordering::Relaxed);
            state.all_panics.fetch_add(1, Ordering::Relaxed);
        }
        state.delivered(is_initial_add);
    }
}

/// A handler panicked, which was logged.
pub(super) struct HandlerPanicked;

/// Tells a handler.
pub(super) async fn tell<K: Object, H: ResourceEventHandler<K>>(
    handler: &mut H,
    what: Notification<K>,
) -> Result<(), HandlerPanicked> {
    let about = what.about();
    caught_future(call(handler, what)).await.map_err(|panic| {
        let object = about.upgrade().map(|object| meta_namespace_key(&*object));
        tracing::error!(
            handler = type_name::<H>(),
            object,
            panic,
            "an informer's handler panicked: it goes on with the next notification"
        );
        HandlerPanicked
    })
}

async fn call<K: Object>(handler: &mut impl ResourceEventHandler<K>, what: Notification<K>) {
    match what {
        Notification::Add { object, is_in_initial_list } => {
            handler.on_add(object, is_in_initial_list).await;
        }
        Notification::Update { old, new } => handler.on_update(old, new).await,
        Notification::Delete(object) => handler.on_delete(object).await,
    }
}
