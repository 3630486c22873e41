//! What is set aside of a namespace: objects, each with its records in order, tried now and then.

use std::collections::{BTreeSet, HashMap, VecDeque};

use rustc_hash::FxBuildHasher;

use super::{
    super::Failure,
    ticket::{Millis, Moment, Number},
};

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Shelf {
    objects: HashMap<u64, Aside, FxBuildHasher>,
    due: BTreeSet<(Millis, u64)>,
    /// One was taken since the last failure: the others follow in batches.
    pub(super) going: bool,
}

/// An object of which a record is set aside.
#[derive(Debug)]
pub(super) struct Aside {
    /// The first is the one that failed.
    pub(super) tickets: VecDeque<Number>,
    pub(super) due: Millis,
    pub(super) in_a_row: u32,
    pub(super) trial: Trial,
}

/// The failures of one record by itself.
#[derive(Clone, Debug, Default)]
pub(super) struct Trial {
    /// How often it failed alike while others were taken in their turn.
    pub(super) turns: u32,
    /// How often it failed alike.
    pub(super) failures: u32,
    pub(super) failure: Option<Failure>,
    pub(super) failed_at: Moment,
}

impl Trial {
    /// Takes in a failure that may be the record's. It is a turn if others were taken since the failure
    /// before it.
    pub(super) fn failed(&mut self, failure: &Failure, others_taken: bool, at: Moment) {
        let before = self.failure.replace(failure.clone());
        if before.is_some_and(|before| before.status != failure.status) {
            (self.turns, self.failures) = (0, 0);
        }
        self.failures += 1;
        self.turns += u32::from(others_taken);
        self.failed_at = at;
    }
}

impl Shelf {
    pub(super) fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    pub(super) fn add(&mut self, key: u64, aside: Aside) {
        self.due.insert((aside.due, key));
        self.objects.insert(key, aside);
    }

    /// Puts a record behind those of its object.
    pub(super) fn push(&mut self, key: u64, number: Number) {
        if let Some(aside) = self.objects.get_mut(&key) {
            aside.tickets.push_back(number);
        }
    }

    pub(super) fn get(&mut self, key: u64) -> Option<&mut Aside> {
        self.objects.get_mut(&key)
    }

    /// Takes an object out.
    pub(super) fn take(&mut self, key: u64) -> Option<Aside> {
        let aside = self.objects.remove(&key)?;
        self.due.remove(&(aside.due, key));
        Some(aside)
    }

    /// When something of it is tried next.
    pub(super) fn due(&self) -> Option<Millis> {
        let first = self.due.first()?.0;
        Some(if self.going { 0 } else { first })
    }

    /// What is tried next: the first record of one object, or of so many.
    pub(super) fn next(&self, most: usize) -> Vec<Number> {
        let first = |(_, key): &(Millis, u64)| self.objects[key].tickets.front().copied();
        self.due.iter().take(if self.going { most } else { 1 }).filter_map(first).collect()
    }

    /// Whether a record is the one of its object that is tried.
    pub(super) fn is_first(&self, key: u64, number: Number) -> bool {
        self.objects.get(&key).is_some_and(|aside| aside.tickets.front() == Some(&number))
    }

    /// Whether the record of an object that is tried has failed before.
    pub(super) fn has_failed(&self, key: u64) -> bool {
        self.objects.get(&key).is_some_and(|aside| aside.trial.failure.is_some())
    }

    pub(super) fn objects(&self) -> impl Iterator<Item = (u64, &Aside)> {
        self.objects.iter().map(|(key, aside)| (*key, aside))
    }
}
