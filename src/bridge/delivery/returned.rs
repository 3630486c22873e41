//! Records that come back to the lanes, by their keys: those of a queue that is not needed any more, and
//! witnesses that were not taken.

use std::collections::{HashMap, VecDeque};

use rustc_hash::FxBuildHasher;

use super::ticket::Number;

/// The line of keys that are here.
pub(super) const RETURNED: usize = usize::MAX;

/// See the [module](self). A lane takes all of one key at once, so that no later one overtakes.
#[derive(Debug, Default)]
pub(super) struct Returned {
    of: HashMap<u64, VecDeque<Number>, FxBuildHasher>,
    /// Keys in the order in which they came; some may be gone.
    order: VecDeque<u64>,
    /// They go before fresh records this time.
    pub(super) first: bool,
}

impl Returned {
    pub(super) fn is_empty(&self) -> bool {
        self.of.is_empty()
    }

    /// Puts a record behind those of its key.
    pub(super) fn push(&mut self, key: u64, number: Number) {
        let order = &mut self.order;
        let of = self.of.entry(key).or_insert_with(|| {
            order.push_back(key);
            VecDeque::new()
        });
        of.push_back(number);
    }

    /// The next key.
    pub(super) fn next(&mut self) -> Option<(u64, Number)> {
        loop {
            let key = *self.order.front()?;
            if let Some(first) = self.of.get(&key).and_then(|of| of.front()) {
                return Some((key, *first));
            }
            self.order.pop_front();
        }
    }

    /// Takes all of a key.
    pub(super) fn take(&mut self, key: u64) -> VecDeque<Number> {
        if self.order.front() == Some(&key) {
            self.order.pop_front();
        }
        self.of.remove(&key).unwrap_or_default()
    }

    /// The first record of each key.
    pub(super) fn firsts(&self) -> impl Iterator<Item = Number> {
        self.of.values().filter_map(|of| of.front().copied())
    }
}
