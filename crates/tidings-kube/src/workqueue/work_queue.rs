//! The queue as its users share it.

use std::{
    fmt,
    hash::Hash,
    ops::Deref,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    sync::Notify,
    time::{Instant, sleep_until},
};

use super::state::{Next, State};

/// client-go's `workqueue.TypedInterface` and `TypedDelayingInterface`; see the
/// [module](super) for what it does. Clones are the same queue.
pub struct WorkQueue<T: Clone + Eq + Hash> {
    shared: Arc<Shared<T>>,
}

struct Shared<T> {
    state: Mutex<State<T>>,
    /// One is woken for each item that is queued, all when it ends or something is ready earlier
    /// than they know.
    workers: Notify,
    /// All are woken when the last item is done, or when a drain is cut short.
    drains: Notify,
}

/// How it stands with a queue, and what has gone through it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkQueueStats {
    /// Items in the queue; client-go's metric `depth`.
    pub queued: usize,
    /// Items with a worker.
    pub processing: usize,
    /// Items whose time has not come.
    pub waiting: usize,
    /// Adds that led to work, so not those of items that were queued already; client-go's `adds`.
    pub added: u64,
    /// Items that were to be added later; client-go's `retries`, without those without a delay.
    pub put_off: u64,
    /// Adds, now or later, that came after the shutdown.
    pub refused: u64,
    /// Items whose time had not come at the shutdown.
    pub dropped: u64,
}

impl<T: Clone + Eq + Hash> WorkQueue<T> {
    /// An empty queue.
    pub fn new() -> Self {
        Self::with_lanes(|_| "")
    }

    /// An empty queue whose items come out lane by lane in turn: of the lanes that have any each gives
    /// one, so that however many are in one lane, they do not hold up those of another. Within a lane
    /// they come out in the order in which they went in. An item is always in the same lane.
    pub fn with_lanes(lane_of: fn(&T) -> &str) -> Self {
        let (workers, drains) = (Notify::new(), Notify::new());
        let state = Mutex::new(State::new(lane_of));
        Self { shared: Arc::new(Shared { state, workers, drains }) }
    }

    /// Queues an item, unless it is queued already. If a worker has it just now, it is queued when
    /// that has done with it. After a shutdown nothing happens, but that it is counted.
    pub fn add(&self, item: T) {
        if self.state().add(item) {
            self.shared.workers.notify_one();
        }
    }

    /// Queues an item after a delay, and at once if there is none. An item that waits already keeps
    /// the earlier time. The clock is Tokio's, whose timers are exact to a millisecond.
    pub fn add_after(&self, item: T, delay: Duration) {
        if delay.is_zero() {
            return self.add(item);
        }
        if self.state().add_after(item, Instant::now(), delay) {
            // Any of them may be the one who is still there at that time.
            self.shared.workers.notify_waiters();
        }
    }

    /// How many items are queued. For information: by the time one reads it, it may be another.
    pub fn len(&self) -> usize {
        self.state().len()
    }

    /// Whether no item is queued; as short-lived as [`len`](Self::len).
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The next item, when there is one. `None` after a shutdown, when all that was queued is out:
    /// the worker is to end. Dropping the future loses no item.
    pub async fn get(&self) -> Option<Item<T>> {
        loop {
            let mut woken = pin!(self.shared.workers.notified());
            // From here on a wake-up is for us, so nothing that is added after the look is missed.
            woken.as_mut().enable();
            let next = self.state().next();
            match next {
                Next::Item(item) => {
                    return Some(Item { item, queue: self.clone() });
                }
                Next::End => return None,
                Next::Wait(None) => woken.await,
                Next::Wait(Some(ready_at)) => tokio::select! {
                    () = woken => {}
                    () = sleep_until(ready_at) => {}
                },
            }
        }
    }

    /// Takes nothing in any more; what is queued still comes out. Ends the waiting of whoever waits
    /// for a drain.
    pub fn shut_down(&self) {
        self.end(false);
    }

    /// Takes nothing in any more, and waits until everything that was queued has been worked on. If
    /// there are no workers, that is never: [`shut_down`](Self::shut_down) ends the waiting.
    pub async fn shut_down_with_drain(&self) {
        self.end(true);
        loop {
            let mut woken = pin!(self.shared.drains.notified());
            woken.as_mut().enable();
            if self.state().is_drained() {
                return;
            }
            woken.await;
        }
    }

    fn end(&self, drain: bool) {
        self.state().shut_down(drain);
        self.shared.workers.notify_waiters();
        self.shared.drains.notify_waiters();
    }

    /// Whether it takes nothing in any more.
    pub fn is_shutting_down(&self) -> bool {
        self.state().is_shutting_down()
    }

    /// How it stands, and what has gone through it.
    pub fn stats(&self) -> WorkQueueStats {
        self.state().stats()
    }

    /// The state, in which whatever is ready by now has been queued.
    fn state(&self) -> MutexGuard<'_, State<T>> {
        let mut state = self.shared.state.lock().unwrap_or_else(PoisonError::into_inner);
        for _ in 0..state.queue_ready(Instant::now()) {
            self.shared.workers.notify_one();
        }
        state
    }
}

impl<T: Clone + Eq + Hash> Clone for WorkQueue<T> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<T: Clone + Eq + Hash> Default for WorkQueue<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Clone + Eq + Hash> fmt::Debug for WorkQueue<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("WorkQueue").field(&self.stats()).finish()
    }
}

/// An item that a worker has. Dropping it is client-go's `Done`: if the item was added meanwhile, it
/// is queued again.
#[must_use = "the item is done when this is dropped"]
pub struct Item<T: Clone + Eq + Hash> {
    item: T,
    queue: WorkQueue<T>,
}

impl<T: Clone + Eq + Hash> Deref for Item<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.item
    }
}

impl<T: Clone + Eq + Hash + fmt::Debug> fmt::Debug for Item<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Item").field(&self.item).finish()
    }
}

impl<T: Clone + Eq + Hash> Drop for Item<T> {
    fn drop(&mut self) {
        let mut state = self.queue.state();
        if state.done(&self.item) {
            self.queue.shared.workers.notify_one();
        }
        if state.is_drained() {
            self.queue.shared.drains.notify_waiters();
        }
    }
}
