//! Keys of records that are under way or wait, and the line that each keeps to.

use std::collections::{HashMap, hash_map::Entry};

use rustc_hash::FxBuildHasher;

use super::ticket::Ticket;

/// See the [module](self). Where there is but one line it knows nothing, because all keys are there.
#[derive(Debug)]
pub(super) struct Keys {
    held: Option<HashMap<u64, Held, FxBuildHasher>>,
}

#[derive(Debug)]
struct Held {
    line: usize,
    records: u32,
    destination: u64,
}

impl Keys {
    pub(super) fn new(lanes: usize) -> Self {
        Self { held: (lanes > 1).then(HashMap::default) }
    }

    /// Whether there is more than one line.
    pub(super) fn are_kept(&self) -> bool {
        self.held.is_some()
    }

    /// Begins to keep keys.
    pub(super) fn keep(&mut self) {
        self.held = Some(HashMap::default());
    }

    /// Ends it, where one line is left.
    pub(super) fn forget_all(&mut self) {
        self.held = None;
    }

    /// Counts a record of a key, and answers its line: that of the records of the key before it, else
    /// the one that is offered.
    pub(super) fn claim(&mut self, ticket: &Ticket, line: usize) -> usize {
        let Some(held) = &mut self.held else { return line };
        let Ticket { key, destination, .. } = *ticket;
        let held = held.entry(key).or_insert(Held { line, records: 0, destination });
        held.records += 1;
        held.line
    }

    /// The line of a key, if any has it.
    pub(super) fn line(&self, key: u64) -> Option<usize> {
        Some(self.held.as_ref()?.get(&key)?.line)
    }

    /// The destination of the records of a key, if there are any: that of the first of them.
    pub(super) fn destination(&self, key: u64) -> Option<u64> {
        Some(self.held.as_ref()?.get(&key)?.destination)
    }

    /// How many records of a key there are.
    pub(super) fn records(&self, key: u64) -> u32 {
        self.held.as_ref().and_then(|held| held.get(&key)).map_or(0, |held| held.records)
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

    /// Moves a key with all of its records to another line, and another destination.
    pub(super) fn relocate(&mut self, key: u64, destination: u64, line: usize) {
        if let Some(held) = self.held.as_mut().and_then(|held| held.get_mut(&key)) {
            (held.destination, held.line) = (destination, line);
        }
    }

    /// Moves a key with all of its records to another line.
    pub(super) fn move_to(&mut self, key: u64, line: usize) {
        if let Some(held) = self.held.as_mut().and_then(|held| held.get_mut(&key)) {
            held.line = line;
        }
    }
}
