//! The store of an informer: client-go's `Indexer`, on its `ThreadSafeStore`.

#[cfg(test)]
mod tests;

use std::sync::{
    Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard,
    atomic::{AtomicU64, Ordering},
};

use super::{IndexError, Indexers, KnownObjects, indexer::Indexes, object_set::ObjectSet};
use crate::object::{Object, meta_namespace_key, split_key};

/// Objects by their keys, and by the values of index functions. Clones are handles of one store,
/// which any thread may use at any time.
///
/// An object in it never changes: another takes its place. The order of what it lists is arbitrary.
///
/// No key is stored, as an object says its own. Beside the objects, and the 16 bytes of counts that an
/// [`Arc`] puts before each, it takes 9 bytes for each place of a table that is between seven
/// sixteenths and seven eighths full: 12 bytes an object where there are 100 000. An index takes as
/// much again for an object under each of its values, and about 150 bytes for each value.
pub struct Store<K> {
    inside: Arc<RwLock<Inside<K>>>,
    index_panics: Arc<AtomicU64>,
}

impl<K> Clone for Store<K> {
    fn clone(&self) -> Self {
        Self { inside: Arc::clone(&self.inside), index_panics: Arc::clone(&self.index_panics) }
    }
}

struct Inside<K> {
    objects: ObjectSet<K>,
    indexes: Indexes<K>,
}

impl<K: Object> Default for Store<K> {
    fn default() -> Self {
        Self::new(Indexers::new())
    }
}

impl<K: Object> Store<K> {
    /// An empty store with these indexes.
    pub fn new(indexers: Indexers<K>) -> Self {
        let objects = ObjectSet::default();
        let index_panics = Arc::default();
        let indexes = Indexes::new(indexers, &objects, Arc::clone(&index_panics));
        Self { inside: Arc::new(RwLock::new(Inside { objects, indexes })), index_panics }
    }

    fn read(&self) -> RwLockReadGuard<'_, Inside<K>> {
        self.inside.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Inside<K>> {
        self.inside.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The object of a key.
    pub fn get_by_key(&self, key: &str) -> Option<Arc<K>> {
        self.read().objects.get(split_key(key)).cloned()
    }

    /// All objects.
    pub fn list(&self) -> Vec<Arc<K>> {
        self.read().objects.iter().cloned().collect()
    }

    /// The keys of all objects.
    pub fn list_keys(&self) -> Vec<String> {
        self.read().objects.iter().map(|object| meta_namespace_key(&**object)).collect()
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.read().objects.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Puts an object in. Answers the one whose place it takes.
    pub fn add(&self, object: Arc<K>) -> Option<Arc<K>> {
        let mut inside = self.write();
        let Inside { objects, indexes } = &mut *inside;
        let new = Arc::clone(&object);
        let old = objects.insert(object);
        indexes.update(old.as_ref(), Some(&new));
        old
    }

    /// The same as [`add`](Self::add), as in client-go.
    pub fn update(&self, object: Arc<K>) -> Option<Arc<K>> {
        self.add(object)
    }

    /// Takes an object out, if there is one of this key.
    pub fn delete(&self, key: &str) -> Option<Arc<K>> {
        let mut inside = self.write();
        let Inside { objects, indexes } = &mut *inside;
        let old = objects.remove(split_key(key))?;
        indexes.update(Some(&old), None);
        Some(old)
    }

    /// Holds these objects from now on and no others. Of two with one key the last holds.
    pub fn replace(&self, items: Vec<Arc<K>>) {
        let mut objects = ObjectSet::default();
        for item in items {
            objects.insert(item);
        }
        let mut inside = self.write();
        let indexes = inside.indexes.rebuilt(&objects);
        let before = std::mem::replace(&mut *inside, Inside { objects, indexes });
        // Objects are given back to the allocator when nobody waits for the lock.
        drop(inside);
        drop(before);
    }

    /// Adds indexes, also when there are objects already.
    ///
    /// # Errors
    ///
    /// When there is an index of one of the names; then none is added.
    pub fn add_indexers(&self, indexers: Indexers<K>) -> Result<(), IndexError> {
        let mut inside = self.write();
        let Inside { objects, indexes } = &mut *inside;
        indexes.add(indexers, objects)
    }

    /// The index functions that there are.
    pub fn indexers(&self) -> Indexers<K> {
        self.read().indexes.functions()
    }

    /// Calls of index functions that panicked. The log has the index, the object and the message.
    pub fn index_panics(&self) -> u64 {
        self.index_panics.load(Ordering::Relaxed)
    }

    /// The objects that share a value of this index with `object`, which need not be in the store.
    ///
    /// # Errors
    ///
    /// When there is no such index.
    pub fn index(&self, name: &str, object: &K) -> Result<Vec<Arc<K>>, IndexError> {
        self.read().indexes.like(name, object)
    }

    /// The objects with this value of an index.
    ///
    /// # Errors
    ///
    /// When there is no such index.
    pub fn by_index(&self, name: &str, value: &str) -> Result<Vec<Arc<K>>, IndexError> {
        Ok(self.read().indexes.by_value(name, value)?.cloned().collect())
    }

    /// The keys of the objects with this value of an index.
    ///
    /// # Errors
    ///
    /// When there is no such index.
    pub fn index_keys(&self, name: &str, value: &str) -> Result<Vec<String>, IndexError> {
        let inside = self.read();
        let objects = inside.indexes.by_value(name, value)?;
        Ok(objects.map(|object| meta_namespace_key(&**object)).collect())
    }

    /// All values of an index, each with at least one object; none where there is no such index.
    pub fn index_func_values(&self, name: &str) -> Vec<String> {
        self.read().indexes.values(name)
    }
}

impl<K: Object> KnownObjects<K> for Store<K> {
    fn list_keys(&self) -> Vec<String> {
        self.list_keys()
    }

    fn get_by_key(&self, key: &str) -> Option<Arc<K>> {
        self.get_by_key(key)
    }
}
