//! Objects of the kinds that are watched, and those that were deleted lately.

use std::{
    num::NonZeroUsize,
    sync::{Arc, Mutex},
    time::Duration,
};

use lru::LruCache;
use rustc_hash::FxBuildHasher;

use super::{lookup::is_meant, reference::Ref};
use crate::{
    bridge::shared::lock,
    cache::{Metadata, ObjectStore},
    event::UidKey,
};

/// What was deleted is remembered so long: its last events come after it.
const DELETED_FOR: Duration = Duration::from_mins(10);
/// Of so many; those deleted first go first.
const DELETED: NonZeroUsize = NonZeroUsize::new(4096).unwrap();

/// See the [module](self).
pub(super) struct Watched {
    kinds: Vec<WatchedKind>,
    deleted: Arc<Deleted>,
}

/// One kind in one namespace or in all.
pub(super) struct WatchedKind {
    pub(super) group: String,
    pub(super) kind: String,
    /// Nothing: every namespace.
    pub(super) namespace: Option<String>,
    pub(super) store: ObjectStore<Metadata>,
}

impl Watched {
    pub(super) fn new(kinds: Vec<WatchedKind>, deleted: Arc<Deleted>) -> Self {
        Self { kinds, deleted }
    }

    /// Whether objects like this are watched.
    pub(super) fn watches(&self, object: Ref<'_>) -> bool {
        self.kind_of(object).is_some()
    }

    fn kind_of(&self, object: Ref<'_>) -> Option<&WatchedKind> {
        let place = |kind: &&WatchedKind| {
            kind.namespace.as_deref().is_none_or(|namespace| namespace == object.namespace)
        };
        self.kinds
            .iter()
            .filter(|kind| kind.kind == object.kind && kind.group == object.group())
            .find(place)
    }

    /// The object, if it is there or was a short while ago.
    pub(super) fn find(&self, object: Ref<'_>, now_ms: u64) -> Option<Arc<Metadata>> {
        let kind = self.kind_of(object)?;
        let key = match object.namespace {
            "" => object.name.to_owned(),
            namespace => [namespace, "/", object.name].concat(),
        };
        let there = kind.store.get_by_key(&key).filter(|found| is_meant(object, found));
        there.or_else(|| self.deleted.find(object, now_ms))
    }
}

/// What was deleted lately, by uid.
#[derive(Debug)]
pub(super) struct Deleted {
    objects: Mutex<LruCache<UidKey, (u64, Arc<Metadata>), FxBuildHasher>>,
}

impl Default for Deleted {
    fn default() -> Self {
        Self { objects: Mutex::new(LruCache::with_hasher(DELETED, FxBuildHasher)) }
    }
}

impl Deleted {
    pub(super) fn add(&self, object: Arc<Metadata>, now_ms: u64) {
        if let Some(uid) = object.uid() {
            lock(&self.objects).put(UidKey::of(uid), (now_ms, Arc::clone(&object)));
        }
    }

    fn find(&self, object: Ref<'_>, now_ms: u64) -> Option<Arc<Metadata>> {
        let mut objects = lock(&self.objects);
        let (deleted_ms, found) = objects.peek(&UidKey::of(object.uid))?;
        let lately = now_ms.saturating_sub(*deleted_ms) < DELETED_FOR.as_millis() as u64;
        let same = found.name() == object.name
            && found.namespace().unwrap_or_default() == object.namespace
            && found.uid() == Some(object.uid);
        let found = Arc::clone(found);
        if !lately {
            objects.pop(&UidKey::of(object.uid));
        }
        Some(found).filter(|_| lately && same)
    }
}
