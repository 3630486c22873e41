//! A bounded cache that drops the least recently used entry.

use lru::LruCache;
use rustc_hash::FxBuildHasher;

use super::Key;

/// An LRU cache by [`Key`], as Kubernetes' `utils/lru`: looking up and storing both renew, storing
/// a new key in a full cache evicts the least recent. With a size of 0 it keeps nothing.
///
/// Keys are spread evenly and nobody can choose them, so a cheap hash of them will do.
#[derive(Debug)]
pub(super) struct Bounded<V> {
    size: usize,
    // Its own capacity would be allocated at once, however large the option.
    entries: LruCache<Key, V, FxBuildHasher>,
}

impl<V> Bounded<V> {
    pub(super) fn new(size: usize) -> Self {
        Self { size, entries: LruCache::unbounded_with_hasher(FxBuildHasher) }
    }

    pub(super) fn get_mut(&mut self, key: Key) -> Option<&mut V> {
        self.entries.get_mut(&key)
    }

    /// Stores a value; the key that had to go for it, which is the new one if the size is 0.
    pub(super) fn put(&mut self, key: Key, value: V) -> Option<Key> {
        self.entries.put(key, value);
        if self.entries.len() <= self.size {
            return None;
        }
        self.entries.pop_lru().map(|(key, _)| key)
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// From the least recent to the most recent: stored in this order, they are as they were.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Key, &V)> {
        self.entries.iter().rev().map(|(key, value)| (*key, value))
    }
}
