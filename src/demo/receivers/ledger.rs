//! The ledger of a receiver: each id, how often it arrived, in which order, and with what increments.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use crate::event::Envelope;

/// One event as a receiver got it.
#[derive(Clone, Copy, Debug)]
pub struct Arrival<'a> {
    /// `<event uid>-<resourceVersion>`.
    pub id: &'a str,
    /// By how much the occurrences rose.
    pub delta: u64,
    /// The uid of the object that the Event is about, or whatever else order is to hold for.
    pub object: &'a str,
}

/// The account of one receiver.
#[derive(Debug, Default)]
pub struct Ledger(Mutex<Book>);

#[derive(Debug, Default)]
struct Book {
    /// How often each id came.
    times: HashMap<String, u32>,
    /// The highest resourceVersion that came of each object.
    newest: HashMap<String, u64>,
    tally: Tally,
}

/// The sums of a [`Ledger`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Different ids.
    pub distinct: u64,
    /// Arrivals of an id that had come before.
    pub repeated: u64,
    /// The sum of the deltas of first arrivals.
    pub delta: u64,
    /// First arrivals that came after a later version of the same object.
    pub out_of_order: u64,
    /// The number of bodies that could not be read.
    pub unreadable: u64,
    /// When something last came.
    pub last: Option<Instant>,
}

impl Ledger {
    fn book(&self) -> MutexGuard<'_, Book> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes an arrival.
    pub fn note(&self, arrival: Arrival<'_>) {
        let mut book = self.book();
        let Book { times, newest, tally } = &mut *book;
        tally.last = Some(Instant::now());
        if let Some(times) = times.get_mut(arrival.id) {
            *times += 1;
            tally.repeated += 1;
            return;
        }
        times.insert(arrival.id.to_owned(), 1);
        tally.distinct += 1;
        tally.delta += arrival.delta;
        let version = version_of(arrival.id);
        match newest.get_mut(arrival.object) {
            Some(newest) if version < *newest => tally.out_of_order += 1,
            Some(newest) => *newest = version,
            None => {
                newest.insert(arrival.object.to_owned(), version);
            }
        }
    }

    /// Notes an envelope; answers whether it was one.
    pub fn note_envelope(&self, json: &[u8]) -> bool {
        let noted = Envelope::parse(json).is_ok_and(|envelope| {
            envelope.event().is_ok_and(|event| {
                let object = &event.involved_object;
                let object = if object.uid.is_empty() { &object.name } else { &object.uid };
                self.note(Arrival { id: &envelope.id, delta: envelope.delta, object });
                true
            })
        });
        if !noted {
            self.note_unreadable();
        }
        noted
    }

    /// Notes something that could not be read.
    pub fn note_unreadable(&self) {
        self.book().tally.unreadable += 1;
    }

    /// The sums so far.
    pub fn tally(&self) -> Tally {
        self.book().tally
    }

    /// How often an id came.
    pub fn times(&self, id: &str) -> u32 {
        self.book().times.get(id).copied().unwrap_or_default()
    }

    /// Those of `ids` that never came, in their order.
    pub fn missing<'a>(&self, ids: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
        let book = self.book();
        ids.into_iter().filter(|id| !book.times.contains_key(*id)).collect()
    }
}

/// The resourceVersion in an id.
pub(super) fn version_of(id: &str) -> u64 {
    id.rsplit_once('-').and_then(|(_, version)| version.parse().ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeats_and_order_are_told_apart() {
        let ledger = Ledger::default();
        let note = |id, delta, object| ledger.note(Arrival { id, delta, object });
        note("a-1", 1, "x");
        note("b-3", 2, "x");
        note("c-2", 1, "y");
        note("a-1", 1, "x");
        note("d-2", 5, "x");
        let tally = Tally { last: None, ..ledger.tally() };
        let expected =
            Tally { distinct: 4, repeated: 1, delta: 9, out_of_order: 1, ..Tally::default() };
        assert_eq!(tally, expected);
        assert_eq!((ledger.times("a-1"), ledger.times("z-9")), (2, 0));
        assert_eq!(ledger.missing(["a-1", "e-5", "d-2", "f-6"]), ["e-5", "f-6"]);
    }

    #[test]
    fn a_body_without_an_envelope_is_counted_as_unreadable() {
        let ledger = Ledger::default();
        assert!(!ledger.note_envelope(b"<html>"));
        assert_eq!(ledger.tally().unreadable, 1);
    }
}
