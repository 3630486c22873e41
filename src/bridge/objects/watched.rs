//! Objects of the kinds that are watched, and those that were deleted lately.

use std::{
    num::NonZeroUsize,
    sync::{Arc, Mutex, PoisonError, RwLock},
    time::Duration,
};

use lru::LruCache;
use rustc_hash::FxBuildHasher;
use tidings_kube::{
    informer::Store,
    object::{Metadata, object_key},
};

use super::{lookup::is_meant, reference::Ref};
use crate::{
    bridge::{now_ms, shared::lock},
    event::UidKey,
};

/// What was deleted is remembered so long: its last events come after it.
const DELETED_FOR: Duration = Duration::from_mins(10);
/// Of so many; those deleted first go first.
const DELETED: NonZeroUsize = NonZeroUsize::new(4096).unwrap();

/// See the [module](self).
#[derive(Default)]
pub(super) struct Watched {
    /// Each is added when it is known what it is, at the start.
    kinds: RwLock<Vec<WatchedKind>>,
    pub(super) deleted: Deleted,
}

/// One kind in one namespace or in all.
pub(super) struct WatchedKind {
    pub(super) group: String,
    pub(super) kind: String,
    /// Nothing: every namespace.
    pub(super) namespace: Option<String>,
    pub(super) store: Store<Metadata>,
}

impl Watched {
    /// From now on this is watched.
    pub(super) fn add(&self, kind: WatchedKind) {
        self.kinds.write().unwrap_or_else(PoisonError::into_inner).push(kind);
    }

    /// Whether objects like this are watched.
    pub(super) fn watches(&self, object: Ref<'_>) -> bool {
        self.with_kind_of(object, |_| ()).is_some()
    }

    fn with_kind_of<T>(&self, object: Ref<'_>, with: impl FnOnce(&WatchedKind) -> T) -> Option<T> {
        let kinds = self.kinds.read().unwrap_or_else(PoisonError::into_inner);
        let here = |kind: &WatchedKind| {
            kind.namespace.as_deref().is_none_or(|namespace| namespace == object.namespace)
        };
        let is_it = |kind: &&WatchedKind| {
            kind.kind == object.kind && kind.group == object.group() && here(kind)
        };
        kinds.iter().find(is_it).map(with)
    }

    /// The object, if it is there or was a short while ago.
    pub(super) fn find(&self, object: Ref<'_>) -> Option<Arc<Metadata>> {
        let key = object_key(object.namespace, object.name);
        let there = self.with_kind_of(object, |kind| kind.store.get_by_key(&key))?;
        let there = there.filter(|found| is_meant(object, found));
        there.or_else(|| self.deleted.find(object, now_ms()))
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
    pub(super) fn add(&self, object: &Arc<Metadata>, now_ms: u64) {
        if let Some(uid) = object.uid() {
            lock(&self.objects).put(UidKey::of(uid), (now_ms, Arc::clone(object)));
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
