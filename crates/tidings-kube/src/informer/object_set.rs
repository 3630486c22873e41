//! Objects by their keys, without the keys.

use std::{
    hash::{BuildHasher, Hasher, RandomState},
    sync::{Arc, LazyLock},
};

use hashbrown::{HashTable, hash_table::Entry};

use crate::object::{KeyPieces, Object, key_pieces};

/// A set of objects with at most one of each key. An object says its key itself, so none is stored:
/// 9 bytes for each place in the table, of which between seven sixteenths and seven eighths are in
/// use.
#[derive(Debug)]
pub(super) struct ObjectSet<K> {
    objects: HashTable<Arc<K>>,
}

// Written out, because a derived one would ask for `K: Default`.
impl<K> Default for ObjectSet<K> {
    fn default() -> Self {
        Self { objects: HashTable::new() }
    }
}

impl<K: Object> ObjectSet<K> {
    /// Puts an object in; answers the one that had its key.
    pub(super) fn insert(&mut self, object: Arc<K>) -> Option<Arc<K>> {
        let key = key_pieces(&*object);
        let entry = self.objects.entry(
            hash(key),
            |other| same(key_pieces(&**other), key),
            |other| hash(key_pieces(&**other)),
        );
        match entry {
            Entry::Occupied(mut entry) => Some(std::mem::replace(entry.get_mut(), object)),
            Entry::Vacant(entry) => {
                entry.insert(object);
                None
            }
        }
    }

    pub(super) fn get(&self, key: KeyPieces<'_>) -> Option<&Arc<K>> {
        self.objects.find(hash(key), |object| same(key_pieces(&**object), key))
    }

    pub(super) fn remove(&mut self, key: KeyPieces<'_>) -> Option<Arc<K>> {
        let found = |object: &Arc<K>| same(key_pieces(&**object), key);
        let entry = self.objects.find_entry(hash(key), found).ok()?;
        Some(entry.remove().0)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<K>> {
        self.objects.iter()
    }

    pub(super) fn len(&self) -> usize {
        self.objects.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }
}

/// Names are chosen by whoever may create objects, so the hash has a secret. One for all sets: an
/// index has as many sets as values.
fn hash(key: KeyPieces<'_>) -> u64 {
    static SECRET: LazyLock<RandomState> = LazyLock::new(RandomState::new);
    let mut hasher = SECRET.build_hasher();
    for piece in key {
        hasher.write(piece.as_bytes());
    }
    hasher.finish()
}

/// Whether they are the same text, wherever it is cut.
fn same(one: KeyPieces<'_>, other: KeyPieces<'_>) -> bool {
    fn bytes(key: KeyPieces<'_>) -> impl Iterator<Item = u8> {
        key.into_iter().flat_map(str::bytes)
    }
    one == other || bytes(one).eq(bytes(other))
}
