//! Increments that the receiver has not been told of.

use lru::LruCache;
use rustc_hash::FxBuildHasher;
use tidings_kube::correlator::{Key, defaults};

use super::{HOLD, HOLD_SHARE, Messages};
use crate::{
    event::{Correlation, CorrelationAction},
    journal::Holding,
};

/// What is held under one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// When the first was held, in milliseconds since the epoch.
    pub(super) since_ms: u64,
    /// How much had been [journalled](Held::read) by then.
    pub(super) since_bytes: u64,
    /// The sequence of the version that was held first.
    pub(super) first: u64,
    /// The sequence of the version that was held last.
    pub(super) last: u64,
    /// The sum of the increments.
    pub(super) delta: u64,
    /// How many versions.
    pub(super) versions: u64,
    /// How many of them have no fate yet. An earlier build gave each its fate when the next one was
    /// held.
    pub(super) pending: u64,
    /// How often it occurred in all.
    pub(super) count: u64,
    pub(super) aggregated: bool,
    /// Those of a group. What is counted by itself has one, which its versions say.
    pub(super) messages: Messages,
}

impl Entry {
    /// See [`Holding::mark`].
    fn mark(&self) -> u64 {
        let mixed = (self.last.rotate_left(32) ^ self.delta).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        mixed ^ (mixed >> 32)
    }

    fn due_ms(&self) -> u64 {
        self.since_ms.saturating_add(HOLD.as_millis() as u64)
    }
}

/// Held versions that are to be announced together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::bridge) struct Summary {
    /// The sequence of the version held last, which the summary is.
    pub(in crate::bridge) seq: u64,
    /// The sum of the increments.
    pub(in crate::bridge) delta: u64,
    /// The versions that have their fate with it, itself included.
    pub(in crate::bridge) pending: u64,
    /// The correlation for its envelope, without messages.
    pub(in crate::bridge) correlation: Correlation,
    /// The messages of the versions that it stands for.
    pub(in crate::bridge) messages: Messages,
}

impl From<Entry> for Summary {
    fn from(entry: Entry) -> Self {
        let correlation = Correlation {
            action: CorrelationAction::Summary,
            aggregated: entry.aggregated,
            count: entry.count,
            summarises: Some(entry.versions),
            ..Correlation::default()
        };
        Self {
            seq: entry.last,
            delta: entry.delta,
            pending: entry.pending,
            correlation,
            messages: entry.messages,
        }
    }
}

/// Everything held, in the order in which it began to be held: looking at an entry does not move
/// it, so the least recent is the one that was added first.
///
/// The log keeps the record of an entry, so it can wait as long as there is room for what comes
/// behind it. That is measured as the time is: by what the records say, so that they say the same
/// after a crash.
#[derive(Debug)]
pub(super) struct Held {
    entries: LruCache<Key, Entry, FxBuildHasher>,
    mark: u64,
    /// The versions that have no fate yet.
    pending: u64,
    /// Those of earlier builds: see [`Entry::pending`].
    pub(super) settles_early: bool,
    /// What all records took that were read so far.
    read_bytes: u64,
    /// When so much is journalled behind an entry, it is due.
    most_bytes: u64,
}

/// As many keys as are counted. Most sinks hold nothing, so room is not made in advance.
const CAPACITY: usize = defaults::LRU_CACHE_SIZE;

/// What a record takes in the log beside its envelope, when it is alone in its frame and another
/// frame forgets the Event later. Such frames are not counted by themselves: a position does not
/// tell which of those that hold no record are behind it.
const BESIDE: u64 = 160;

impl Held {
    /// Nothing, in a journal of a size.
    pub(super) fn new(retention_size: u64) -> Self {
        let entries = LruCache::unbounded_with_hasher(FxBuildHasher);
        let mut held = Self {
            entries,
            mark: 0,
            pending: 0,
            settles_early: false,
            read_bytes: 0,
            most_bytes: 0,
        };
        held.fit(retention_size);
        held
    }

    /// The journal has this size from now on. Answers whether that is another one.
    pub(super) fn fit(&mut self, retention_size: u64) -> bool {
        let most_bytes = retention_size / HOLD_SHARE;
        std::mem::replace(&mut self.most_bytes, most_bytes) != most_bytes
    }

    /// A record with an envelope of so many bytes was journalled, whoever wants it.
    pub(super) fn read(&mut self, envelope: usize) {
        self.read_bytes = self.read_bytes.saturating_add(envelope as u64 + BESIDE);
    }

    /// All records so far took as much.
    pub(super) fn read_to(&mut self, read_bytes: u64) {
        self.read_bytes = read_bytes;
    }

    /// Holds a version with its message. Answers what has to be announced for want of room.
    pub(super) fn add(&mut self, key: Key, mut new: Entry, message: Key) -> Option<Summary> {
        if let Some(entry) = self.entries.peek_mut(&key) {
            self.mark = self.mark.wrapping_sub(entry.mark());
            entry.last = new.last;
            entry.delta = entry.delta.saturating_add(new.delta);
            entry.versions = entry.versions.saturating_add(new.versions);
            entry.count = new.count;
            if entry.aggregated {
                entry.messages.add(message, new.last);
            }
            self.mark = self.mark.wrapping_add(entry.mark());
            if !self.settles_early {
                entry.pending += new.pending;
                self.pending += new.pending;
            }
            return None;
        }
        let full = self.entries.len() == CAPACITY;
        let evicted = if full { self.release() } else { None };
        if new.aggregated {
            new.messages.add(message, new.last);
        }
        self.restore(key, new);
        evicted
    }

    /// What is held under a key, no longer.
    pub(super) fn take(&mut self, key: Key) -> Option<Entry> {
        let entry = self.entries.pop(&key)?;
        self.taken(&entry);
        Some(entry)
    }

    fn taken(&mut self, entry: &Entry) {
        self.mark = self.mark.wrapping_sub(entry.mark());
        self.pending -= entry.pending;
    }

    /// No more than so many versions have no fate: those of the oldest entries have one.
    pub(super) fn limit(&mut self, pending: u64) {
        let mut left = pending;
        let mut kept = Vec::new();
        (self.mark, self.pending) = (0, 0);
        while let Some((key, mut entry)) = self.entries.pop_mru() {
            entry.pending = entry.pending.min(left);
            left -= entry.pending;
            if entry.pending > 0 {
                kept.push((key, entry));
            }
        }
        for (key, entry) in kept.into_iter().rev() {
            self.restore(key, entry);
        }
    }

    pub(super) fn due(&mut self, time_ms: u64) -> Option<Summary> {
        if self.is_due(time_ms) { self.release() } else { None }
    }

    /// Whether anything is due at a time, after what was read so far.
    pub(super) fn is_due(&self, time_ms: u64) -> bool {
        self.entries.peek_lru().is_some_and(|(_, entry)| {
            let behind = self.read_bytes.saturating_sub(entry.since_bytes);
            entry.due_ms() <= time_ms || behind >= self.most_bytes
        })
    }

    fn release(&mut self) -> Option<Summary> {
        let (_, entry) = self.entries.pop_lru()?;
        self.taken(&entry);
        Some(entry.into())
    }

    pub(super) fn next_due_ms(&self) -> Option<u64> {
        self.entries.peek_lru().map(|(_, entry)| entry.due_ms())
    }

    pub(super) fn read_bytes(&self) -> u64 {
        self.read_bytes
    }

    pub(super) fn most_bytes(&self) -> u64 {
        self.most_bytes
    }

    /// How many entries there are.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn holding(&self) -> Holding {
        let first = self.entries.peek_lru().map(|(_, entry)| entry.first);
        Holding { versions: self.pending, mark: self.mark, first }
    }

    /// In the order in which they were added.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&Key, &Entry)> {
        self.entries.iter().rev()
    }

    /// With nothing held, as it was saved.
    pub(super) fn saved(read_bytes: u64, most_bytes: u64) -> Self {
        Self { read_bytes, most_bytes, ..Self::new(0) }
    }

    /// Adds what was saved; the order of the calls is the order of the entries.
    pub(super) fn restore(&mut self, key: Key, entry: Entry) {
        self.mark = self.mark.wrapping_add(entry.mark());
        self.pending += entry.pending;
        self.entries.push(key, entry);
    }
}
