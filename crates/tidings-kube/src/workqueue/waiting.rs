//! Items whose time has not come.

use std::{
    collections::{BTreeMap, HashMap, hash_map::Entry},
    hash::Hash,
};

use tokio::time::Instant;

/// By when they are ready; of one instant, by when they came.
#[derive(Debug)]
pub(super) struct Waiting<T> {
    by_time: BTreeMap<Place, T>,
    places: HashMap<T, Place>,
    came: u64,
}

type Place = (Instant, u64);

impl<T> Default for Waiting<T> {
    fn default() -> Self {
        Self { by_time: BTreeMap::new(), places: HashMap::new(), came: 0 }
    }
}

impl<T: Clone + Eq + Hash> Waiting<T> {
    /// Puts an item in. One that waits already keeps the earlier time.
    pub(super) fn insert(&mut self, item: T, ready_at: Instant) {
        self.came += 1;
        let place = (ready_at, self.came);
        match self.places.entry(item) {
            Entry::Vacant(vacant) => {
                self.by_time.insert(place, vacant.key().clone());
                vacant.insert(place);
            }
            Entry::Occupied(mut occupied) if ready_at < occupied.get().0 => {
                let before = occupied.insert(place);
                if let Some(item) = self.by_time.remove(&before) {
                    self.by_time.insert(place, item);
                }
            }
            Entry::Occupied(_) => {}
        }
    }

    /// Takes out the first item, if its time has come.
    pub(super) fn pop_ready(&mut self, now: Instant) -> Option<T> {
        let first = self.by_time.first_entry().filter(|first| first.key().0 <= now)?;
        let item = first.remove();
        self.places.remove(&item);
        Some(item)
    }

    /// When the first item is ready.
    pub(super) fn next_ready(&self) -> Option<Instant> {
        self.by_time.first_key_value().map(|((ready_at, _), _)| *ready_at)
    }

    pub(super) fn len(&self) -> usize {
        self.by_time.len()
    }

    pub(super) fn clear(&mut self) {
        self.by_time.clear();
        self.places.clear();
    }
}
