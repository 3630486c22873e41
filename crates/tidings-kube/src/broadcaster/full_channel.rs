//! What a full queue means for its watcher.

/// What happens to an item when the queue of a watcher is full. It is the same for every watcher of
/// a broadcaster.
///
/// A queue holds at least one item, whatever is asked for. Items that a watcher is registered with
/// ([`watch_with_prefix`](super::Broadcaster::watch_with_prefix)) always fit.
#[derive(Clone, Debug)]
pub enum FullChannel<T> {
    /// That watcher loses the item, and no other does: it keeps the oldest. Counted by its
    /// [`dropped`](super::Watcher::dropped). client-go's `DropIfChannelFull`.
    Drop {
        /// Items that a watcher's queue holds.
        queue: usize,
    },
    /// The loop waits until there is room, or the watcher is stopped; with it wait the other
    /// watchers and everything behind the item. client-go's `WaitIfChannelFull`.
    Wait {
        /// Items that a watcher's queue holds.
        queue: usize,
    },
    /// The registration ends behind the last item that fitted, and the watcher knows that it was
    /// [`spilled`](super::Watcher::spilled), so that it can read the rest from a log. Beyond
    /// client-go.
    Spill {
        /// Items that a watcher's queue holds.
        items: usize,
        /// Bytes that a watcher's queue holds. One item always fits, whatever its size.
        bytes: usize,
        /// The bytes of an item; always the same for an item and its clones.
        weigh: fn(&T) -> usize,
    },
}

impl<T> FullChannel<T> {
    /// Items that a watcher's queue holds.
    pub(super) fn queue(&self) -> usize {
        match *self {
            Self::Drop { queue } | Self::Wait { queue } => queue,
            Self::Spill { items, .. } => items,
        }
    }

    /// Whether the loop waits for room.
    pub(super) fn waits(&self) -> bool {
        matches!(self, Self::Wait { .. })
    }

    /// The bytes of an item, where they count.
    pub(super) fn weigh(&self) -> Option<fn(&T) -> usize> {
        match *self {
            Self::Drop { .. } | Self::Wait { .. } => None,
            Self::Spill { weigh, .. } => Some(weigh),
        }
    }
}
