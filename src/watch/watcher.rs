//! One registration: the end that the loop has, the end that is read, and what stops it.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
};

use tokio::sync::mpsc::error::TryRecvError;

use super::{
    full_channel::FullChannel,
    queue::{self, Gate, Place, Refused},
};

/// What both ends count.
#[derive(Debug, Default)]
struct Counts {
    dropped: AtomicU64,
    queued_bytes: AtomicUsize,
    spilled: AtomicBool,
}

/// A registration with `prefix` in its queue.
pub(super) fn registration<T>(full: &FullChannel<T>, prefix: Vec<T>) -> (Outlet<T>, Watcher<T>) {
    // client-go leaves room for one item behind a prefix, whatever its length.
    let behind_prefix = if prefix.is_empty() { 0 } else { prefix.len().saturating_add(1) };
    let weigh = full.weigh();
    let prefix_bytes =
        weigh.map_or(0, |weigh| prefix.iter().map(weigh).fold(0, usize::saturating_add));
    let (sender, receiver) = queue::queue(full.queue().max(behind_prefix), prefix);
    let counts = Arc::new(Counts { queued_bytes: prefix_bytes.into(), ..Counts::default() });
    let outlet = Outlet { items: sender, counts: Arc::clone(&counts) };
    (outlet, Watcher { items: receiver, counts, weigh })
}

/// The loop's end of a registration.
#[derive(Debug)]
pub(super) struct Outlet<T> {
    items: queue::Sender<T>,
    counts: Arc<Counts>,
}

impl<T: Clone> Outlet<T> {
    /// A place in the queue, as the policy has it.
    pub(super) async fn place(&self, full: &FullChannel<T>) -> Result<Place<'_, T>, Refused> {
        match full {
            FullChannel::Wait { .. } => self.items.reserve().await.ok_or(Refused::Closed),
            FullChannel::Drop { .. } | FullChannel::Spill { .. } => self.items.try_reserve(),
        }
    }

    /// Hands over an item, if there is a place; answers whether the watcher stays registered.
    pub(super) fn offer(
        &self,
        item: &T,
        place: Result<Place<'_, T>, Refused>,
        full: &FullChannel<T>,
    ) -> bool {
        match (place, full) {
            (Ok(_), FullChannel::Spill { bytes, weigh, .. })
                if !self.has_room_for(weigh(item), *bytes) =>
            {
                self.spill()
            }
            (Ok(place), _) => place.put(item.clone()).is_ok(),
            (Err(Refused::Full), FullChannel::Spill { .. }) => self.spill(),
            (Err(Refused::Full), _) => {
                self.counts.dropped.fetch_add(1, Ordering::Relaxed);
                true
            }
            (Err(Refused::Closed), _) => false,
        }
    }

    /// Counts the bytes in, if they fit.
    fn has_room_for(&self, bytes: usize, max_bytes: usize) -> bool {
        // Only this end adds, so what is read in between can but make more room.
        let queued = self.counts.queued_bytes.load(Ordering::Relaxed);
        let fits = queued == 0 || queued.saturating_add(bytes) <= max_bytes;
        if fits {
            self.counts.queued_bytes.fetch_add(bytes, Ordering::Relaxed);
        }
        fits
    }

    fn spill(&self) -> bool {
        self.counts.spilled.store(true, Ordering::Release);
        false
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
    items: queue::Receiver<T>,
    counts: Arc<Counts>,
    weigh: Option<fn(&T) -> usize>,
}

/// Nothing is queued at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no item is queued")]
pub struct Empty;

impl<T> Watcher<T> {
    /// The next item; `None` when the registration has ended, by a stop, a spill or shutdown, and
    /// everything that was queued has been read. Dropping the future loses no item.
    pub async fn next(&mut self) -> Option<T> {
        let item = self.items.next().await?;
        self.taken(&item);
        Some(item)
    }

    /// The same without waiting.
    ///
    /// # Errors
    ///
    /// [`Empty`] where [`next`](Self::next) would wait.
    pub fn try_next(&mut self) -> Result<Option<T>, Empty> {
        match self.items.try_next() {
            Ok(item) => {
                self.taken(&item);
                Ok(Some(item))
            }
            Err(TryRecvError::Disconnected) => Ok(None),
            Err(TryRecvError::Empty) => Err(Empty),
        }
    }

    fn taken(&self, item: &T) {
        if let Some(weigh) = self.weigh {
            self.counts.queued_bytes.fetch_sub(weigh(item), Ordering::Relaxed);
        }
    }

    /// How many items the queue holds at most.
    pub fn capacity(&self) -> usize {
        self.items.capacity()
    }

    /// How many items this watcher has lost because its queue was full; see [`FullChannel::Drop`].
    /// client-go does not count them.
    pub fn dropped(&self) -> u64 {
        self.counts.dropped.load(Ordering::Relaxed)
    }

    /// Whether the registration ended because the queue was full; see [`FullChannel::Spill`].
    /// Meaningful once [`next`](Self::next) has answered `None`.
    pub fn spilled(&self) -> bool {
        self.counts.spilled.load(Ordering::Acquire)
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
