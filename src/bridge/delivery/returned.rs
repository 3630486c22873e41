//! Records that come back to the lanes, by their keys: those of a queue that is not needed any more, and
//! witnesses that were not taken.

use std::collections::{HashMap, VecDeque};

use rustc_hash::FxBuildHasher;

use super::ticket::Number;

/// The line of keys that are here.
pub(super) const RETURNED: usize = usize::MAX;

/// See the [module](self). While a lane has records of a key, the others of it wait here.
#[derive(Debug, Default)]
pub(super) struct Returned {
    of: HashMap<u64, Waiting, FxBuildHasher>,
    /// Keys of which no lane has a record, in the order in which they came.
    order: VecDeque<u64>,
    /// Counts batches, so that they go before fresh records now and then.
    pub(super) turn: u32,
}

#[derive(Debug, Default)]
struct Waiting {
    tickets: VecDeque<Number>,
    /// So many are in a lane.
    in_lane: usize,
}

impl Returned {
    pub(super) fn is_empty(&self) -> bool {
        self.of.is_empty()
    }

    /// Puts a record behind those of its key.
    pub(super) fn push(&mut self, key: u64, number: Number) {
        let of = self.of.entry(key).or_default();
        if of.tickets.is_empty() && of.in_lane == 0 {
            self.order.push_back(key);
        }
        of.tickets.push_back(number);
    }

    /// The next key and its first record.
    pub(super) fn next(&self) -> Option<(u64, Number)> {
        let key = *self.order.front()?;
        Some((key, *self.of.get(&key)?.tickets.front()?))
    }

    /// Takes the next record of a key into a lane.
    pub(super) fn take_next(&mut self, key: u64) {
        if let Some(of) = self.of.get_mut(&key) {
            of.tickets.pop_front();
            of.in_lane += 1;
            if self.order.front() == Some(&key) {
                self.order.pop_front();
            }
        }
    }

    /// The next record of a key.
    pub(super) fn next_of(&self, key: u64) -> Option<Number> {
        self.of.get(&key)?.tickets.front().copied()
    }

    /// Takes in that a record of a key, which a lane had, has its fate.
    pub(super) fn finished(&mut self, key: u64) {
        let Some(of) = self.of.get_mut(&key) else { return };
        if of.in_lane == 0 {
            return;
        }
        of.in_lane -= 1;
        match (of.in_lane, of.tickets.is_empty()) {
            (0, true) => _ = self.of.remove(&key),
            (0, false) => self.order.push_back(key),
            _ => {}
        }
    }

    /// Takes all of a key.
    pub(super) fn take(&mut self, key: u64) -> VecDeque<Number> {
        let Some(of) = self.of.remove(&key) else { return VecDeque::new() };
        self.order.retain(|other| *other != key);
        of.tickets
    }

    /// The first record of each key of which no lane has one.
    pub(super) fn firsts(&self) -> impl Iterator<Item = Number> {
        let free = self.of.values().filter(|of| of.in_lane == 0);
        free.filter_map(|of| of.tickets.front().copied())
    }
}
