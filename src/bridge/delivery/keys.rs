//! Keys of records that are under way or wait, and the lane that each keeps to.

use std::collections::{HashMap, hash_map::Entry};

use rustc_hash::FxBuildHasher;

/// See the [module](self). Where there is but one lane it knows nothing, because all keys are there.
#[derive(Debug)]
pub(super) struct Keys {
    held: Option<HashMap<u64, Held, FxBuildHasher>>,
}

#[derive(Debug)]
struct Held {
    lane: usize,
    records: u32,
}

impl Keys {
    pub(super) fn new(lanes: usize) -> Self {
        Self { held: (lanes > 1).then(HashMap::default) }
    }

    /// Counts a record of a key, and answers its lane: that of the records of the key before it, else
    /// the one that asks.
    pub(super) fn claim(&mut self, key: u64, lane: usize) -> usize {
        let Some(held) = &mut self.held else { return lane };
        let held = held.entry(key).or_insert(Held { lane, records: 0 });
        held.records += 1;
        held.lane
    }

    /// Whether a record of a key may go to a lane.
    pub(super) fn is_free(&self, key: u64, lane: usize) -> bool {
        let held = self.held.as_ref().and_then(|held| held.get(&key));
        held.is_none_or(|held| held.lane == lane)
    }

    /// Counts a record off that has its fate.
    pub(super) fn release(&mut self, key: u64) {
        let Some(held) = &mut self.held else { return };
        let Entry::Occupied(mut held) = held.entry(key) else { return };
        held.get_mut().records -= 1;
        if held.get().records == 0 {
            held.remove();
        }
    }
}
