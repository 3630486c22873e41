//! One registration: the end that the loop has, the end that is read, and what stops it.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
};

use tokio::sync::mpsc::error::TryRecvError;

use super::{
    flush::Mark,
    full_channel::FullChannel,
    queue::{self, Gate},
};

/// What one end writes and the other reads. What is queued is what the loop has sent less what has
/// been read, so each number has one writer, and none needs more than a plain store.
#[derive(Debug, Default)]
struct Shared {
    read_items: AtomicUsize,
    read_bytes: AtomicUsize,
    dropped: AtomicU64,
    spilled: AtomicBool,
}

/// What stands in a watcher's queue.
#[derive(Debug)]
enum Queued<T> {
    Item(T),
    /// Counts nowhere. Whoever comes to it asks for more, so has done with what was before it.
    Mark(#[expect(dead_code, reason = "that it is dropped is what it says")] Mark),
}

/// A registration with `prefix` in its queue.
pub(super) fn registration<T>(full: &FullChannel<T>, prefix: Vec<T>) -> (Outlet<T>, Watcher<T>) {
    // client-go leaves room for one item behind a prefix, whatever its length.
    let capacity = full.queue().max(prefix.len().saturating_add(1));
    let weigh = full.weigh();
    let sent_bytes = weigh.map_or(0, |weigh| prefix.iter().map(weigh).fold(0, usize::wrapping_add));
    let sent_items = prefix.len();
    let prefix = prefix.into_iter().map(Queued::Item).collect();
    let (sender, receiver) = queue::queue(full.waits().then_some(capacity), prefix);
    let shared = Arc::<Shared>::default();
    let outlet =
        Outlet { items: sender, capacity, sent_items, sent_bytes, shared: Arc::clone(&shared) };
    let watcher =
        Watcher { items: receiver, capacity, weigh, read_items: 0, read_bytes: 0, shared };
    (outlet, watcher)
}

/// The loop's end of a registration.
#[derive(Debug)]
pub(super) struct Outlet<T> {
    items: queue::Sender<Queued<T>>,
    capacity: usize,
    /// As they wrap around, prefix and all.
    sent_items: usize,
    sent_bytes: usize,
    shared: Arc<Shared>,
}

impl<T: Clone> Outlet<T> {
    /// Waits for room, where that is the policy; `false` when the watcher is stopped.
    pub(super) async fn take_place(&self) -> bool {
        self.items.take_place().await
    }

    /// Hands over an item; answers whether the watcher stays registered.
    pub(super) fn offer(&mut self, item: &T, full: &FullChannel<T>) -> bool {
        match full {
            FullChannel::Drop { .. } if self.queued_items() >= self.capacity => {
                self.shared.dropped.fetch_add(1, Ordering::Relaxed);
                return true;
            }
            FullChannel::Drop { .. } | FullChannel::Wait { .. } => {}
            FullChannel::Spill { bytes, weigh, .. } => {
                let weight = weigh(item);
                if self.queued_items() >= self.capacity || !self.has_room_for(weight, *bytes) {
                    self.shared.spilled.store(true, Ordering::Release);
                    return false;
                }
                self.sent_bytes = self.sent_bytes.wrapping_add(weight);
            }
        }
        self.sent_items = self.sent_items.wrapping_add(1);
        self.items.put(Queued::Item(item.clone())).is_ok()
    }

    /// Puts a mark behind everything; a watcher that is gone needs none.
    pub(super) fn mark(&self, mark: &Mark) {
        let _ = self.items.put(Queued::Mark(mark.clone()));
    }

    fn queued_items(&self) -> usize {
        self.sent_items.wrapping_sub(self.shared.read_items.load(Ordering::Relaxed))
    }

    fn has_room_for(&self, bytes: usize, max_bytes: usize) -> bool {
        let queued = self.sent_bytes.wrapping_sub(self.shared.read_bytes.load(Ordering::Relaxed));
        queued == 0 || queued.saturating_add(bytes) <= max_bytes
    }

    /// Whether the watcher was stopped or dropped.
    pub(super) fn is_stopped(&self) -> bool {
        self.items.is_closed()
    }
}

/// The receiving side of one registration (client-go's `watch.Interface`). Dropping it ends the
/// registration, as [`Stopper::stop`] does.
#[derive(Debug)]
pub struct Watcher<T> {
    items: queue::Receiver<Queued<T>>,
    capacity: usize,
    weigh: Option<fn(&T) -> usize>,
    /// As they wrap around.
    read_items: usize,
    read_bytes: usize,
    shared: Arc<Shared>,
}

/// Nothing is queued at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no item is queued")]
pub struct Empty;

impl<T> Watcher<T> {
    /// The next item; `None` when the registration has ended, by a stop, a spill or shutdown, and
    /// everything that was queued has been read. Dropping the future loses no item.
    pub async fn next(&mut self) -> Option<T> {
        loop {
            if let Queued::Item(item) = self.items.next().await? {
                self.taken(&item);
                return Some(item);
            }
        }
    }

    /// The same without waiting.
    ///
    /// # Errors
    ///
    /// [`Empty`] where [`next`](Self::next) would wait.
    pub fn try_next(&mut self) -> Result<Option<T>, Empty> {
        loop {
            match self.items.try_next() {
                Ok(Queued::Item(item)) => {
                    self.taken(&item);
                    return Ok(Some(item));
                }
                Ok(Queued::Mark(_)) => {}
                Err(TryRecvError::Disconnected) => return Ok(None),
                Err(TryRecvError::Empty) => return Err(Empty),
            }
        }
    }

    fn taken(&mut self, item: &T) {
        self.read_items = self.read_items.wrapping_add(1);
        self.shared.read_items.store(self.read_items, Ordering::Relaxed);
        if let Some(weigh) = self.weigh {
            self.read_bytes = self.read_bytes.wrapping_add(weigh(item));
            self.shared.read_bytes.store(self.read_bytes, Ordering::Relaxed);
        }
    }

    /// How many items the queue holds at most.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// How many items this watcher has lost because its queue was full; see [`FullChannel::Drop`].
    /// client-go does not count them.
    pub fn dropped(&self) -> u64 {
        self.shared.dropped.load(Ordering::Relaxed)
    }

    /// Whether the registration ended because the queue was full; see [`FullChannel::Spill`].
    /// Meaningful once [`next`](Self::next) has answered `None`.
    pub fn spilled(&self) -> bool {
        self.shared.spilled.load(Ordering::Acquire)
    }

    /// What ends this registration from elsewhere.
    pub fn stopper(&self) -> Stopper {
        Stopper { gate: Arc::clone(self.items.gate()) }
    }
}

/// Ends the registration of one watcher, from any thread. It keeps no broadcaster running.
#[derive(Clone, Debug)]
pub struct Stopper {
    gate: Arc<Gate>,
}

impl Stopper {
    /// Ends the registration: the watcher gets no item that was not on its way to it, can still
    /// read what is queued, and then `None`. A second call is harmless, as is one after shutdown.
    ///
    /// It never waits. client-go's `Stop` goes through the queue of the broadcaster, so a loop that
    /// is stuck behind another watcher holds it up; here even the loop that is stuck behind this
    /// watcher goes on at once.
    pub fn stop(&self) {
        self.gate.close();
    }
}
