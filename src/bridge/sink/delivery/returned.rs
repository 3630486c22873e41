//! Records that come back to the lanes, by their keys: those of a queue that is not needed any more, and
//! witnesses that were not taken.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    ops::RangeInclusive,
};

use rustc_hash::FxBuildHasher;

use super::ticket::Number;

/// The line of keys that are here.
pub(super) const RETURNED: usize = usize::MAX;

/// See the [module](self). While a lane has records of a key, the others of it wait here.
#[derive(Debug, Default)]
pub(super) struct Returned {
    of: HashMap<u64, Waiting, FxBuildHasher>,
    /// Keys of which no lane has a record, in the order in which they came.
    order: Order,
    /// Counts batches, so that they go before fresh records now and then.
    pub(super) turn: u32,
}

#[derive(Debug, Default)]
struct Waiting {
    tickets: VecDeque<Number>,
    /// Its place in the order, where it is only while no lane has one of it. No other has that place.
    place: u64,
    /// So many are in a lane.
    in_lane: usize,
}

/// Keys by their places.
#[derive(Debug, Default)]
struct Order {
    keys: BTreeMap<u64, u64>,
    /// The place of the next one.
    next: u64,
}

impl Order {
    /// Puts a key behind all others, and answers its place.
    fn push(&mut self, key: u64) -> u64 {
        let place = self.next;
        self.keys.insert(place, key);
        self.next += 1;
        place
    }
}

impl Returned {
    pub(super) fn is_empty(&self) -> bool {
        self.of.is_empty()
    }

    /// Puts a record behind those of its key.
    pub(super) fn push(&mut self, key: u64, number: Number) {
        let of = self.of.entry(key).or_default();
        if of.tickets.is_empty() && of.in_lane == 0 {
            of.place = self.order.push(key);
        }
        of.tickets.push_back(number);
    }

    /// The next key and its first record.
    pub(super) fn next(&self) -> Option<(u64, Number)> {
        let (_, &key) = self.order.keys.first_key_value()?;
        Some((key, *self.of.get(&key)?.tickets.front()?))
    }

    /// Takes the next record of a key into a lane.
    pub(super) fn take_next(&mut self, key: u64) {
        if let Some(of) = self.of.get_mut(&key) {
            of.tickets.pop_front();
            of.in_lane += 1;
            self.order.keys.remove(&of.place);
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
            (0, false) => of.place = self.order.push(key),
            _ => {}
        }
    }

    /// Takes all of a key.
    pub(super) fn take(&mut self, key: u64) -> VecDeque<Number> {
        let Some(of) = self.of.remove(&key) else { return VecDeque::new() };
        self.order.keys.remove(&of.place);
        of.tickets
    }

    /// The places that keys may have now.
    pub(super) fn places(&self) -> RangeInclusive<u64> {
        let next = self.order.next;
        self.order.keys.first_key_value().map_or(next, |(first, _)| *first)..=next
    }

    /// The first record of each key of which no lane has one, in order from a place on, round to it.
    pub(super) fn firsts(&self, from: u64) -> impl Iterator<Item = Number> {
        let keys = &self.order.keys;
        let free = keys.range(from..).chain(keys.range(..from));
        free.filter_map(|(_, key)| self.of.get(key)?.tickets.front().copied())
    }
}
