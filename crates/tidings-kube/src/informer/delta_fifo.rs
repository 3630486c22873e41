//! The queue that gathers what happens to an object until it is popped: client-go's `DeltaFIFO`.

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

/// How a [`DeltaFifo`] is set up.
pub struct DeltaFifoOptions<K> {
    /// What the consumer knows. Without it, a list does not find what is gone unless it is queued,
    /// the deletion of what is not queued is ignored, and a resync does nothing.
    pub known_objects: Option<Arc<dyn KnownObjects<K>>>,
    /// Whether the objects of a list come as [`DeltaType::Replaced`], as informers have it, and not
    /// as [`DeltaType::Sync`], as they did before client-go had the other.
    pub emit_delta_type_replaced: bool,
    /// What every object goes through on its way in.
    pub transformer: Option<TransformFunc<K>>,
}

impl<K> Default for DeltaFifoOptions<K> {
    fn default() -> Self {
        Self { known_objects: None, emit_delta_type_replaced: false, transformer: None }
    }
}

/// A queue of objects, each with all that happened to it since it was popped last.
///
/// Objects are popped in the order in which the first of what happened to them came. Two deletions
/// in a row are kept as one: the first, unless that is a tombstone. The deletion of an object that
/// is neither queued nor known is ignored: a list has reported it before.
///
/// What [`pop_or_requeue`](Queue::pop_or_requeue) puts back goes to the end, and counts as popped
/// for [`has_synced`](Queue::has_synced).
///
/// It grows with what is not popped yet: the objects, 40 bytes for each change of one, and about 150
/// bytes and the key for each object that changed.
pub struct DeltaFifo<K> {
    known_objects: Option<Arc<dyn KnownObjects<K>>>,
    replaced: DeltaType,
    transformer: Option<TransformFunc<K>>,
    waiting: Waiting<Gathered<K>>,
}

impl<K: Object> DeltaFifo<K> {
    /// An empty queue.
    pub fn new(options: DeltaFifoOptions<K>) -> Self {
        let DeltaFifoOptions { known_objects, emit_delta_type_replaced, transformer } = options;
        let replaced = if emit_delta_type_replaced { DeltaType::Replaced } else { DeltaType::Sync };
        let gathered = Gathered { deltas: HashMap::new(), order: VecDeque::new() };
        Self { known_objects, replaced, transformer, waiting: Waiting::new(gathered) }
    }

    /// Queues one change that a watch told.
    fn change(&self, kind: DeltaType, object: K) -> Result<(), TransformError> {
        let key = meta_namespace_key(&object);
        self.waiting.change(|Inside { entries, first_list, .. }| {
            first_list.changed();
            if kind == DeltaType::Deleted && !self.is_there(entries, &key) {
                return Ok(());
            }
            self.push(entries, &key, kind, object)
        })
    }

    fn is_there(&self, queued: &Gathered<K>, key: &str) -> bool {
        queued.deltas.contains_key(key)
            || self.known_objects.as_ref().is_some_and(|known| known.get_by_key(key).is_some())
    }

    fn push(
        &self,
        queued: &mut Gathered<K>,
        key: &str,
        kind: DeltaType,
        object: K,
    ) -> Result<(), TransformError> {
        let object = Arc::new(transformed(self.transformer.as_ref(), object)?);
        queued.push(key, Delta { kind, object: DeltaObject::Object(object) });
        Ok(())
    }
}

impl<K: Object> Queue<K> for DeltaFifo<K> {
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
            if self.is_there(entries, &tombstone.key) {
                entries.bury(tombstone);
            }
        });
    }

    fn replace_keeping(&self, items: Vec<K>, kept: &HashSet<String>) -> Result<(), TransformError> {
        self.waiting.change(|Inside { entries, first_list, .. }| {
            let mut listed = HashSet::with_capacity(items.len());
            for item in items {
                let key = meta_namespace_key(&item);
                unless_panicked(self.push(entries, &key, self.replaced, item))?;
                listed.insert(key);
            }
            let queued = listed.iter().filter(|key| entries.deltas.contains_key(&***key)).count();
            let stays = |key: &str| listed.contains(key) || kept.contains(key);
            let mut gone = entries.bury_all_but(stays);
            if let Some(known) = &self.known_objects {
                let is_there = |key: &str| stays(key) || entries.deltas.contains_key(key);
                let missing = tombstones_of_missing(&**known, is_there);
                gone += missing.len();
                for tombstone in missing {
                    entries.bury(tombstone);
                }
            }
            first_list.replaced(queued + gone);
            Ok(())
        })
    }

    fn resync(&self) {
        let Some(known) = &self.known_objects else { return };
        self.waiting.change(|Inside { entries, .. }| {
            for (key, delta) in sync_of_idle(&**known, |key| entries.deltas.contains_key(key)) {
                entries.push(&key, delta);
            }
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

/// Each key is in `order` once if it is in `deltas`, and has at least one delta there.
struct Gathered<K> {
    deltas: HashMap<Arc<str>, Vec<Delta<K>>>,
    order: VecDeque<Arc<str>>,
}

struct Popped<K> {
    key: Arc<str>,
    deltas: Vec<Delta<K>>,
}

impl<K> Gathered<K> {
    fn push(&mut self, key: &str, delta: Delta<K>) {
        match self.deltas.get_mut(key) {
            Some(deltas) => push_deduplicated(deltas, delta),
            None => self.put_back(Popped { key: key.into(), deltas: vec![delta] }),
        }
    }

    fn bury(&mut self, tombstone: DeletedFinalStateUnknown<K>) {
        let key = tombstone.key.clone();
        self.push(&key, Delta::tombstone(tombstone));
    }

    /// Everything queued that does not stay is gone; how much that is.
    fn bury_all_but(&mut self, stays: impl Fn(&str) -> bool) -> usize {
        let mut gone = 0;
        for (key, deltas) in &mut self.deltas {
            if stays(key) {
                continue;
            }
            let object = deltas.last().and_then(|delta| delta.object.object()).cloned();
            let tombstone = DeletedFinalStateUnknown { key: key.to_string(), object };
            push_deduplicated(deltas, Delta::tombstone(tombstone));
            gone += 1;
        }
        gone
    }
}

impl<K> Entries<K> for Gathered<K> {
    type Popped = Popped<K>;

    fn len(&self) -> usize {
        self.order.len()
    }

    fn pop(&mut self) -> Option<Popped<K>> {
        let key = self.order.pop_front()?;
        let deltas = self.deltas.remove(&key)?;
        Some(Popped { key, deltas })
    }

    fn put_back(&mut self, Popped { key, deltas }: Popped<K>) {
        self.order.push_back(Arc::clone(&key));
        self.deltas.insert(key, deltas);
    }
}

impl<K> AsRef<[Delta<K>]> for Popped<K> {
    fn as_ref(&self) -> &[Delta<K>] {
        &self.deltas
    }
}

/// Of two deletions in a row one is kept: the one that says more.
fn push_deduplicated<K>(deltas: &mut Vec<Delta<K>>, delta: Delta<K>) {
    match deltas.last_mut() {
        Some(last) if last.kind == DeltaType::Deleted && delta.kind == DeltaType::Deleted => {
            if last.object.is_tombstone() {
                *last = delta;
            }
        }
        _ => deltas.push(delta),
    }
}
