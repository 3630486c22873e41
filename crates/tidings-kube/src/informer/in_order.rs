//! The queue that keeps every change apart: client-go's `RealFIFO`, which its informers use.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::Arc,
};

use super::{
    DeletedFinalStateUnknown, Delta, DeltaObject, DeltaType, KnownObjects, PopError, Queue,
    TransformError, TransformFunc,
    queue::{
        Entries, Inside, OnError, Waiting, sync_of_idle, tombstones_of_missing, transformed,
        unless_panicked,
    },
};
use crate::object::{Object, meta_namespace_key};

/// A queue of changes, each on its own, in the order in which they came.
///
/// A list queues first what is gone, as tombstones, and then what it holds. The deletion of an
/// object that nobody knows is queued as any other.
///
/// What [`pop_or_requeue`](Queue::pop_or_requeue) puts back goes to the front, so that the order
/// stays, and counts as popped for [`has_synced`](Queue::has_synced).
///
/// It grows with what is not popped yet: 40 bytes and the object for each change.
pub struct InOrderFifo<K> {
    known_objects: Arc<dyn KnownObjects<K>>,
    transformer: Option<TransformFunc<K>>,
    waiting: Waiting<VecDeque<Delta<K>>>,
}

impl<K: Object> InOrderFifo<K> {
    /// An empty queue before a consumer that knows `known_objects`.
    pub fn new(
        known_objects: Arc<dyn KnownObjects<K>>,
        transformer: Option<TransformFunc<K>>,
    ) -> Self {
        Self { known_objects, transformer, waiting: Waiting::new(VecDeque::new()) }
    }

    /// Queues one change that a watch told.
    fn change(&self, kind: DeltaType, object: K) -> Result<(), TransformError> {
        self.waiting.change(|Inside { entries, first_list, .. }| {
            first_list.changed();
            self.push(entries, kind, object)
        })
    }

    fn push(
        &self,
        queued: &mut VecDeque<Delta<K>>,
        kind: DeltaType,
        object: K,
    ) -> Result<(), TransformError> {
        let object = Arc::new(transformed(self.transformer.as_ref(), object)?);
        queued.push_back(Delta { kind, object: DeltaObject::Object(object) });
        Ok(())
    }
}

impl<K: Object> Queue<K> for InOrderFifo<K> {
    fn add(&self, object: K) -> Result<(), TransformError> {
        self.change(DeltaType::Added, object)
    }

    fn update(&self, object: K) -> Result<(), TransformError> {
        self.change(DeltaType::Updated, object)
    }

    fn delete(&self, object: K) -> Result<(), TransformError> {
        self.change(DeltaType::Deleted, object)
    }

    fn delete_tombstone(&self, tombstone: DeletedFinalStateUnknown<K>) {
        self.waiting.change(|Inside { entries, first_list, .. }| {
            first_list.changed();
            entries.push_back(Delta::tombstone(tombstone));
        });
    }

    fn replace_keeping(&self, items: Vec<K>, kept: &HashSet<String>) -> Result<(), TransformError> {
        self.waiting.change(|Inside { entries, first_list, .. }| {
            let listed: HashSet<String> = items.iter().map(meta_namespace_key).collect();
            let stays = |key: &str| listed.contains(key) || kept.contains(key);
            let (queued, gone) = all_but(entries, stays);
            let is_there = |key: &str| stays(key) || queued.contains(key);
            let missing = tombstones_of_missing(&*self.known_objects, is_there);
            entries.extend(gone.into_iter().chain(missing).map(Delta::tombstone));
            for item in items {
                unless_panicked(self.push(entries, DeltaType::Replaced, item))?;
            }
            first_list.replaced(entries.len());
            Ok(())
        })
    }

    fn resync(&self) {
        self.waiting.change(|Inside { entries, .. }| {
            let queued: HashSet<String> = entries.iter().map(|delta| delta.object.key()).collect();
            let idle = sync_of_idle(&*self.known_objects, |key| queued.contains(key));
            entries.extend(idle.into_iter().map(|(_, delta)| delta));
        });
    }

    fn has_synced(&self) -> bool {
        self.waiting.has_synced()
    }

    fn close(&self) {
        self.waiting.close();
    }

    fn is_closed(&self) -> bool {
        self.waiting.is_closed()
    }

    async fn pop<R, E>(
        &self,
        process: impl FnOnce(&[Delta<K>], bool) -> Result<R, E> + Send,
    ) -> Result<R, PopError<E>> {
        self.waiting.pop(process, OnError::Forget).await
    }

    async fn pop_or_requeue<R, E>(
        &self,
        process: impl FnOnce(&[Delta<K>], bool) -> Result<R, E> + Send,
    ) -> Result<R, PopError<E>> {
        self.waiting.pop(process, OnError::PutBack).await
    }
}

/// The keys that are queued, and tombstones for those that do not stay and whose last change is no
/// deletion, in the order in which they came first.
fn all_but<K: Object>(
    queued: &VecDeque<Delta<K>>,
    stays: impl Fn(&str) -> bool,
) -> (HashSet<String>, Vec<DeletedFinalStateUnknown<K>>) {
    let mut order = Vec::new();
    let mut last = HashMap::new();
    for delta in queued {
        let key = delta.object.key();
        if last.insert(key.clone(), delta).is_none() {
            order.push(key);
        }
    }
    let gone = order
        .into_iter()
        .filter(|key| !stays(key) && last[key].kind != DeltaType::Deleted)
        .map(|key| {
            let object = last[&key].object.object().cloned();
            DeletedFinalStateUnknown { key, object }
        })
        .collect();
    (last.into_keys().collect(), gone)
}

impl<K> Entries<K> for VecDeque<Delta<K>> {
    type Popped = [Delta<K>; 1];

    fn len(&self) -> usize {
        self.len()
    }

    fn pop(&mut self) -> Option<[Delta<K>; 1]> {
        Some([self.pop_front()?])
    }

    fn put_back(&mut self, [delta]: [Delta<K>; 1]) {
        self.push_front(delta);
    }
}
