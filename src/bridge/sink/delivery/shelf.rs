//! Records of a namespace that are set aside, and resends that failed: objects, each with its records in order, tried
//! now and then.
//!
//! An object waits by itself where its record was answered. Those at which the connection was cut, or no answer came,
//! share one [back-off](super::backoff::SharedBackoff): their receiver may crash, or hang, at each of them.

use std::collections::{BTreeSet, HashMap, VecDeque};

use rustc_hash::FxBuildHasher;

use super::ticket::{Millis, Moment, Number};
use crate::bridge::Failure;

/// The shelf of one namespace. See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Shelf {
    objects: HashMap<u64, Aside, FxBuildHasher>,
    answered: Row,
    silent: Row,
}

/// Objects in the order in which they are tried.
#[derive(Debug, Default)]
struct Row {
    due: BTreeSet<(Millis, u64)>,
    /// One was taken since the last failure: the others follow in batches.
    going: bool,
}

impl Row {
    /// When the next one is tried, which may not be before a time, if it may be at all.
    fn due(&self, not_before: Option<Millis>) -> Option<Millis> {
        let (first, _) = self.due.first()?;
        if self.going { Some(0) } else { Some(not_before?.max(*first)) }
    }
}

/// An object of which a record is set aside.
#[derive(Debug)]
pub(super) struct Aside {
    /// The first is the one that failed.
    pub(super) tickets: VecDeque<Number>,
    pub(super) due: Millis,
    pub(super) in_a_row: u32,
    pub(super) trial: Trial,
    /// The receiver may crash, or hang, at its record: it was silent, or how it failed is not known.
    pub(super) silent: bool,
}

/// The failures of one record by itself.
#[derive(Clone, Debug, Default)]
pub(super) struct Trial {
    /// How often it failed while others were taken in their turn,
    pub(super) turns: u32,
    /// and in how many of the last of these turns its failures were of one kind.
    pub(super) alike: u32,
    /// How many of its last failures were of one kind.
    pub(super) failures: u32,
    pub(super) failure: Option<Failure>,
    pub(super) failed_at: Moment,
}

impl Trial {
    /// Takes in a failure that may be the record's. It is a turn if others were taken since the failure
    /// before it.
    pub(super) fn failed(&mut self, failure: &Failure, others_taken: bool, at: Moment) {
        let before = self.failure.replace(failure.clone());
        if before.is_some_and(|before| before.fault != failure.fault) {
            (self.alike, self.failures) = (0, 0);
        }
        self.failures += 1;
        self.turns += u32::from(others_taken);
        self.alike += u32::from(others_taken);
        self.failed_at = at;
    }

    /// Whether the connection was cut, or no answer came.
    pub(super) fn is_silent(&self) -> bool {
        self.failure.as_ref().is_some_and(Failure::is_silent)
    }
}

impl Aside {
    /// One that is tried at a time.
    pub(super) fn new(tickets: VecDeque<Number>, due: Millis) -> Self {
        Self { tickets, due, in_a_row: 0, trial: Trial::default(), silent: false }
    }
}

impl Shelf {
    pub(super) fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    pub(super) fn has(&self, key: u64) -> bool {
        self.objects.contains_key(&key)
    }

    pub(super) fn add(&mut self, key: u64, aside: Aside) {
        self.row(aside.silent).due.insert((aside.due, key));
        self.objects.insert(key, aside);
    }

    fn row(&mut self, silent: bool) -> &mut Row {
        if silent { &mut self.silent } else { &mut self.answered }
    }

    /// Puts a record behind those of its object.
    pub(super) fn push(&mut self, key: u64, number: Number) {
        if let Some(aside) = self.objects.get_mut(&key) {
            aside.tickets.push_back(number);
        }
    }

    /// The last record of an object.
    pub(super) fn last(&self, key: u64) -> Option<Number> {
        self.objects.get(&key)?.tickets.back().copied()
    }

    pub(super) fn get(&mut self, key: u64) -> Option<&mut Aside> {
        self.objects.get_mut(&key)
    }

    /// Has an object wait.
    pub(super) fn postpone(&mut self, key: u64, due: Millis) {
        if let Some(aside) = self.take(key) {
            self.add(key, Aside { due, ..aside });
        }
    }

    /// Takes an object out.
    pub(super) fn take(&mut self, key: u64) -> Option<Aside> {
        let aside = self.objects.remove(&key)?;
        self.row(aside.silent).due.remove(&(aside.due, key));
        Some(aside)
    }

    /// When something of it is tried next, what is silent not before the end of its back-off, if that is known.
    pub(super) fn due(&self, backoff: Option<Millis>) -> Option<Millis> {
        let due = [self.answered.due(Some(0)), self.silent.due(backoff)];
        due.into_iter().flatten().min()
    }

    /// The time of the one that is due longest.
    pub(super) fn oldest_due(&self) -> Option<Millis> {
        let first = [&self.answered, &self.silent].map(|row| row.due.first());
        first.into_iter().flatten().map(|(due, _)| *due).min()
    }

    /// The records that are tried next: the first of one object, or of so many.
    pub(super) fn next(&self, most: usize, backoff: Option<Millis>) -> Vec<Number> {
        let silent = self.silent.due(backoff);
        let answered = self.answered.due(Some(0));
        let silent = silent.is_some_and(|silent| answered.is_none_or(|due| silent < due));
        let row = if silent { &self.silent } else { &self.answered };
        let first = |(_, key): &(Millis, u64)| self.objects[key].tickets.front().copied();
        row.due.iter().take(if row.going { most } else { 1 }).filter_map(first).collect()
    }

    /// Whether the object is one that waits for the back-off that is shared.
    pub(super) fn shares_backoff(&self, key: u64) -> bool {
        !self.silent.going && self.objects.get(&key).is_some_and(|aside| aside.silent)
    }

    /// Takes in that a record of an object was taken: others like it follow in batches.
    pub(super) fn go(&mut self, key: u64) {
        let silent = self.objects.get(&key).is_some_and(|aside| aside.silent);
        self.row(silent).going = true;
    }

    /// Takes in a failure: they are tried one by one.
    pub(super) fn stop(&mut self) {
        (self.answered.going, self.silent.going) = (false, false);
    }

    /// Whether a record is the one of its object that is tried.
    pub(super) fn is_first(&self, key: u64, number: Number) -> bool {
        self.objects.get(&key).is_some_and(|aside| aside.tickets.front() == Some(&number))
    }

    /// The moment at which the record of an object that is tried failed last, if it has.
    pub(super) fn failed_at(&self, key: u64) -> Option<Moment> {
        let trial = &self.objects.get(&key)?.trial;
        trial.failure.as_ref().map(|_| trial.failed_at)
    }

    pub(super) fn objects(&self) -> impl Iterator<Item = (u64, &Aside)> {
        self.objects.iter().map(|(key, aside)| (*key, aside))
    }
}
