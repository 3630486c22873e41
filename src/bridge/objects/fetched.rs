//! What was fetched lately, and what was asked for in vain.

use std::{
    num::NonZeroUsize,
    sync::{Arc, Mutex},
    time::Duration,
};

use lru::LruCache;
use rustc_hash::FxBuildHasher;
use tidings_kube::object::Metadata;

use super::{
    lookup::{Found, MAX_OWNERS},
    reference::{Ref, Reference},
    resolver::WORKERS,
};
use crate::{bridge::shared::lock, event::Missing};

/// What is known to be missing is asked for again after this.
const MISSING_FOR_MS: u64 = 30_000;

/// There is room at least for all that is asked for at once: each object with its owners. Or one
/// would push out the other, and they would be asked for again and again.
const LEAST: usize = WORKERS * (MAX_OWNERS + 1);

/// A bounded cache; what was used least goes first.
#[derive(Debug)]
pub(super) struct Fetched {
    entries: Mutex<LruCache<Reference, Entry, FxBuildHasher>>,
}

#[derive(Debug)]
struct Entry {
    found: Found,
    fetched_ms: u64,
}

impl Fetched {
    pub(super) fn new(capacity: usize) -> Self {
        let capacity = NonZeroUsize::new(capacity.max(LEAST)).unwrap_or(NonZeroUsize::MIN);
        Self { entries: Mutex::new(LruCache::with_hasher(capacity, FxBuildHasher)) }
    }

    /// What was fetched of an object, however long ago.
    pub(super) fn find(&self, object: Ref<'_>, now_ms: u64) -> Found {
        let mut entries = lock(&self.entries);
        match entries.get(&object.to_owned()) {
            Some(Entry { found: Found::Missing(_), fetched_ms })
                if now_ms.saturating_sub(*fetched_ms) >= MISSING_FOR_MS =>
            {
                Found::Unknown
            }
            Some(entry) => entry.found.clone(),
            None => Found::Unknown,
        }
    }

    /// Whether an object was fetched within this time.
    pub(super) fn is_fresh(&self, object: Ref<'_>, age: Duration, now_ms: u64) -> bool {
        let entries = lock(&self.entries);
        let entry = entries.peek(&object.to_owned());
        entry.is_some_and(|entry| {
            Duration::from_millis(now_ms.saturating_sub(entry.fetched_ms)) < age
        })
    }

    pub(super) fn put(&self, reference: Reference, object: Arc<Metadata>, now_ms: u64) {
        let entry = Entry { found: Found::Object(object), fetched_ms: now_ms };
        lock(&self.entries).put(reference, entry);
    }

    /// It was asked for in vain; what is known of it from before is kept.
    pub(super) fn put_missing(&self, object: Reference, why: Missing, now_ms: u64) {
        let mut entries = lock(&self.entries);
        match entries.get_mut(&object) {
            Some(Entry { found: Found::Object(_), fetched_ms }) => *fetched_ms = now_ms,
            _ => {
                let found = Found::Missing(why);
                entries.put(object, Entry { found, fetched_ms: now_ms });
            }
        }
    }
}
