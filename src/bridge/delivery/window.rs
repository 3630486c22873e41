//! The window: records without a fate, and what is settled once they have theirs.
//!
//! Records get their fates out of order, and the position passes a record only when all before it have theirs. So a
//! batch of gathering ([`Work`]) waits here until all before it are settled. Batches whose records all have fates are
//! added up: behind a record that waits for hours there is one sum, however many batches it stands for.

use std::collections::{HashSet, VecDeque};

use bytes::Bytes;
use rustc_hash::FxBuildHasher;

use super::{
    Millis, Number,
    keys::{Hashes, Keys},
    parking::Alone,
};
use crate::{
    bridge::{Reason, gather::Work, progress::Settled},
    event::Record,
    journal::DeadLetter,
};

/// So many records that are done do no harm.
const FEW: usize = 64;

/// Whether a record can be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Queued,
    InFlight,
    /// Failed, and sent again then.
    Waiting(Millis),
    Done,
}

/// A record in the window.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) number: Number,
    pub(super) record: Record,
    pub(super) state: State,
    /// Its object and namespace, once they were needed.
    pub(super) keys: Option<Keys>,
    /// Set once it failed alone.
    pub(super) alone: Option<Box<Alone>>,
    /// How often it failed, alone or with others.
    pub(super) tries: u32,
    /// How many of these count for `retry.maxAttempts`.
    pub(super) failures: u32,
    /// How often it was sent since its batch was parted,
    pub(super) attempts: u32,
    /// and when first.
    pub(super) first: Option<Millis>,
    /// Its last failure.
    pub(super) failure: Option<Reason>,
}

impl Entry {
    fn new(number: Number, record: Record) -> Self {
        Self {
            number,
            record,
            state: State::Queued,
            keys: None,
            alone: None,
            tries: 0,
            failures: 0,
            attempts: 0,
            first: None,
            failure: None,
        }
    }

    pub(super) fn keys(&mut self, hashes: &Hashes) -> Keys {
        *self.keys.get_or_insert_with(|| hashes.of(&self.record.envelope))
    }

    /// Whether it can be sent, if none of its object is before it.
    pub(super) fn is_due(&self, now: Millis) -> bool {
        match self.state {
            State::Queued => true,
            State::Waiting(due) => due <= now,
            State::InFlight | State::Done => false,
        }
    }
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Window {
    /// In the order of the journal, with some that are done.
    entries: VecDeque<Entry>,
    open: usize,
    /// How many open records have failed.
    failed: usize,
    /// The size of the envelopes of open records together,
    bytes: u64,
    /// and of those in letters that are not settled.
    letters: u64,
    next: Number,
    /// The batches that are to be settled, in order.
    works: VecDeque<InHand>,
}

/// A batch of gathering, or several in a row whose records all have fates.
#[derive(Debug)]
struct InHand {
    /// The number after its last record.
    end: Number,
    /// How many of its records have no fate.
    left: usize,
    /// The ingest time of its first record, in milliseconds since the epoch.
    oldest_ms: u64,
    /// The fates of the others are in it.
    settled: Settled,
    /// If not, what comes next belongs to it.
    settles: bool,
}

impl Window {
    /// Takes a batch.
    pub(super) fn push(&mut self, work: Work) {
        let Work { batch, settled, settles, oldest_ms } = work;
        let left = batch.records.len();
        for record in batch.records {
            self.bytes += record.envelope.len() as u64;
            self.entries.push_back(Entry::new(self.next, record));
            self.next += 1;
        }
        self.open += left;
        self.works.push_back(InHand { end: self.next, left, oldest_ms, settled, settles });
        self.join(self.works.len() - 1);
    }

    /// How many records have no fate.
    pub(super) fn open(&self) -> usize {
        self.open
    }

    /// The size of the envelopes of records without a fate and of letters that are not settled, in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes + self.letters
    }

    /// The records without a fate, in the order of the journal.
    pub(super) fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(|entry| entry.state != State::Done)
    }

    pub(super) fn entries_mut(&mut self) -> impl Iterator<Item = &mut Entry> {
        self.entries.iter_mut().filter(|entry| entry.state != State::Done)
    }

    /// Calls with each record without a fate, its namespace, and whether it or an earlier one of its object failed alone.
    pub(super) fn for_each(&mut self, hashes: &Hashes, mut with: impl FnMut(&Entry, u64, bool)) {
        let mut held_up = HashSet::<u64, FxBuildHasher>::default();
        for entry in self.entries_mut() {
            let Keys { object, namespace } = entry.keys(hashes);
            let is_behind = entry.alone.is_some() || held_up.contains(&object);
            if is_behind {
                held_up.insert(object);
            }
            with(entry, namespace, is_behind);
        }
    }

    /// A record without a fate.
    pub(super) fn get(&mut self, number: Number) -> &mut Entry {
        let at = self.place(number);
        &mut self.entries[at]
    }

    fn place(&self, number: Number) -> usize {
        // Where none has left it from the midst, the numbers are those of the places.
        let first = self.entries.front().map_or(0, |entry| entry.number);
        let at = number.saturating_sub(first) as usize;
        match self.entries.get(at) {
            Some(entry) if entry.number == number => at,
            _ => self.entries.partition_point(|entry| entry.number < number),
        }
    }

    /// How many records without a fate have failed.
    pub(super) fn failed(&self) -> usize {
        self.failed
    }

    /// A record failed, and is sent again then.
    pub(super) fn fail(&mut self, number: Number, state: State, failure: &Reason) {
        let entry = self.get(number);
        entry.state = state;
        entry.failure = Some(failure.clone());
        entry.tries += 1;
        self.failed += usize::from(entry.tries == 1);
    }

    /// Nothing waits any longer: the sink takes records again.
    pub(super) fn stop_waiting(&mut self) {
        for entry in &mut self.entries {
            if let State::Waiting(_) = entry.state {
                entry.state = State::Queued;
            }
        }
    }

    /// Gives a record its fate: delivered, or dead-lettered. Answers the ingest time of its batch, in milliseconds since
    /// the epoch.
    pub(super) fn close(&mut self, number: Number, letter: Option<DeadLetter>) -> u64 {
        let entry = self.get(number);
        entry.state = State::Done;
        let has_failed = entry.tries > 0;
        let record =
            std::mem::replace(&mut entry.record, Record { seq: 0, envelope: Bytes::new() });
        self.bytes -= record.envelope.len() as u64;
        self.open -= 1;
        self.failed -= usize::from(has_failed);
        while self.entries.pop_front_if(|entry| entry.state == State::Done).is_some() {}
        if self.entries.len() > 2 * self.open + FEW {
            self.entries.retain(|entry| entry.state != State::Done);
        }
        let at = self.works.partition_point(|work| work.end <= number);
        let work = &mut self.works[at];
        let Settled { totals, dead_letters, .. } = &mut work.settled;
        totals.delivered += u64::from(letter.is_none());
        totals.dead_lettered += u64::from(letter.is_some());
        if let Some(letter) = letter {
            self.letters += size(&letter);
            match dead_letters.last_mut() {
                // One letter stands for all that an answer rejected without naming them.
                Some(last)
                    if last.unidentified.min(letter.unidentified) > 0
                        && last.reason == letter.reason =>
                {
                    last.unidentified += letter.unidentified;
                }
                _ => dead_letters.push(letter),
            }
        }
        work.left -= 1;
        if work.left == 0 {
            dead_letters.sort_by_key(|letter| letter.seq);
        }
        let journalled_ms = work.oldest_ms;
        self.join(at);
        journalled_ms
    }

    /// The ingest time of the oldest record without a fate, in milliseconds since the epoch.
    pub(super) fn oldest_ms(&self) -> Option<u64> {
        self.works.iter().find(|work| work.left > 0).map(|work| work.oldest_ms)
    }

    /// Takes the sum that can be settled since the last call: of all batches up to the first that is open.
    pub(super) fn settle(&mut self) -> Option<Settled> {
        let can_be = |work: &mut InHand| work.left == 0 && work.settles;
        let mut sum = self.works.pop_front_if(can_be)?.settled;
        while let Some(next) = self.works.pop_front_if(can_be) {
            sum.add(next.settled);
        }
        self.letters -= sum.dead_letters.iter().map(size).sum::<u64>();
        Some(sum)
    }

    /// Makes one batch of it and those beside it, as far as all of their records have fates.
    fn join(&mut self, at: usize) {
        self.join_next(at);
        if let Some(before) = at.checked_sub(1) {
            self.join_next(before);
        }
    }

    fn join_next(&mut self, at: usize) {
        let are_done = self.works.range(at..).take(2).filter(|work| work.left == 0).count() == 2;
        // The first could not be settled any more if the second cannot.
        if are_done
            && (!self.works[at].settles || self.works[at + 1].settles)
            && let Some(next) = self.works.remove(at + 1)
        {
            let work = &mut self.works[at];
            (work.end, work.settles) = (next.end, next.settles);
            work.settled.add(next.settled);
        }
    }
}

/// The size of a letter's envelope; 0 for one of unidentified records, which is merged with others.
fn size(letter: &DeadLetter) -> u64 {
    if letter.unidentified > 0 { 0 } else { letter.envelope.len() as u64 }
}
