//! The window: records without a fate, and what is settled once they have theirs.
//!
//! Records get their fates out of order, and the position passes a record only when all before it have theirs. So a
//! batch of gathering ([`Work`]) waits here until all before it are settled. Batches whose records all have fates are
//! added up: behind a record that waits for hours there is one sum, however many batches it stands for.

use std::{collections::VecDeque, ops::Range};

use bytes::Bytes;

use super::{
    Millis, Number,
    keys::{Hashes, Keys},
    parking::Alone,
};
use crate::{
    bridge::{
        Reason,
        gather::{Mark, Work},
        progress::Settled,
    },
    event::Record,
    journal::DeadLetter,
};

/// So many records that are done do no harm.
const FEW: usize = 64;

/// The fate of one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// None yet.
    Open,
    Delivered,
    /// Delivered, which it had been in an earlier run.
    Redelivered,
    DeadLettered,
}

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
    works: VecDeque<InHand>,
    /// The sums that can be settled now, in order.
    ready: Vec<Settled>,
}

/// A batch of gathering, or several in a row whose records all have fates.
#[derive(Debug)]
enum InHand {
    Open(Box<Open>),
    Done(Box<Done>),
}

#[derive(Debug)]
struct Open {
    work: Work,
    /// The numbers of its records.
    numbers: Range<Number>,
    fates: Vec<Fate>,
    /// Each with the place of its record.
    letters: Vec<(usize, DeadLetter)>,
    /// How many records have no fate.
    left: usize,
    /// All before it is settled.
    from: Mark,
    end: Mark,
}

#[derive(Debug)]
struct Done {
    /// The number after its last record.
    end: Number,
    settled: Settled,
    /// If not, what comes next belongs to it.
    settles: bool,
}

impl Window {
    /// Takes a batch.
    pub(super) fn push(&mut self, mut work: Work) {
        let (first, end) = (self.next, work.end());
        for record in std::mem::take(&mut work.batch.records) {
            self.bytes += record.envelope.len() as u64;
            self.entries.push_back(Entry::new(self.next, record));
            self.next += 1;
        }
        self.open += end.at;
        let (numbers, fates) = (first..self.next, vec![Fate::Open; end.at]);
        let (letters, left, from) = (Vec::new(), end.at, Mark::default());
        self.works.push_back(InHand::Open(Box::new(Open {
            work,
            numbers,
            fates,
            letters,
            left,
            from,
            end,
        })));
        if left == 0 {
            self.done(self.works.len() - 1);
        }
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

    /// A record without a fate.
    pub(super) fn get(&mut self, number: Number) -> &mut Entry {
        let at = self.place(number);
        &mut self.entries[at]
    }

    /// A record, if it has no fate.
    pub(super) fn find(&mut self, number: Number) -> Option<&mut Entry> {
        let at = self.place(number);
        let entry = self.entries.get_mut(at)?;
        (entry.number == number && entry.state != State::Done).then_some(entry)
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

    /// Gives a record its fate. Answers the ingest time of its batch, in milliseconds since the epoch.
    pub(super) fn close(&mut self, number: Number, fate: Fate, letter: Option<DeadLetter>) -> u64 {
        let entry = self.get(number);
        entry.state = State::Done;
        let has_failed = entry.tries > 0;
        let record =
            std::mem::replace(&mut entry.record, Record { seq: 0, envelope: Bytes::new() });
        self.bytes -= record.envelope.len() as u64;
        self.letters += letter.as_ref().map_or(0, size);
        self.open -= 1;
        self.failed -= usize::from(has_failed);
        while self.entries.pop_front_if(|entry| entry.state == State::Done).is_some() {}
        if self.entries.len() > 2 * self.open + FEW {
            self.entries.retain(|entry| entry.state != State::Done);
        }
        let at = self.works.partition_point(|work| work.end() <= number);
        let Some(InHand::Open(open)) = self.works.get_mut(at) else { return 0 };
        let place = (number - open.numbers.start) as usize;
        open.fates[place] = fate;
        open.letters.extend(letter.map(|letter| (place, letter)));
        open.left -= 1;
        let journalled_ms = open.work.oldest_ms;
        if open.left == 0 {
            self.done(at);
        }
        journalled_ms
    }

    /// The ingest time of the oldest record without a fate, in milliseconds since the epoch.
    pub(super) fn oldest_ms(&self) -> Option<u64> {
        self.works.iter().find_map(|work| match work {
            InHand::Open(open) => Some(open.work.oldest_ms),
            InHand::Done(_) => None,
        })
    }

    /// Takes the sums that can be settled since the last call, in order: batches up to the first that is open, and as
    /// much of that as has its fates.
    pub(super) fn settle(&mut self) -> std::vec::Drain<'_, Settled> {
        while let Some(InHand::Done(done)) = self.works.pop_front_if(|work| work.is_settled()) {
            self.ready.push(done.settled);
        }
        let carried = matches!(self.works.front(), Some(InHand::Done(_)));
        if let Some(InHand::Open(open)) = self.works.get_mut(usize::from(carried))
            && let Some(part) = open.settle_part()
        {
            let mut settled = Settled::default();
            if carried && let Some(InHand::Done(done)) = self.works.pop_front() {
                settled = done.settled;
            }
            settled.add(part);
            self.ready.push(settled);
        }
        let letters = self.ready.iter().flat_map(|settled| &settled.dead_letters);
        self.letters -= letters.map(size).sum::<u64>();
        self.ready.drain(..)
    }

    /// A batch has all of its fates. It becomes one with those beside it.
    fn done(&mut self, at: usize) {
        let InHand::Open(open) = &mut self.works[at] else { return };
        if at == 0
            && !open.work.settles
            && let Some(part) = open.settle_part()
        {
            self.ready.push(part);
        }
        self.works[at] = InHand::Done(Box::new(open.done()));
        self.join(at);
        if let Some(before) = at.checked_sub(1) {
            self.join(before);
        }
    }

    /// Makes one of two batches that are done, unless that would keep the first from being settled.
    fn join(&mut self, at: usize) {
        let pair = (self.works.get(at), self.works.get(at + 1));
        if let (Some(InHand::Done(one)), Some(InHand::Done(other))) = pair
            && (!one.settles || other.settles)
            && let Some(InHand::Done(other)) = self.works.remove(at + 1)
            && let Some(InHand::Done(one)) = self.works.get_mut(at)
        {
            (one.end, one.settles) = (other.end, other.settles);
            one.settled.add(other.settled);
        }
    }
}

/// The size of a letter's envelope; 0 for one of unidentified records, which is merged with others.
fn size(letter: &DeadLetter) -> u64 {
    if letter.unidentified > 0 { 0 } else { letter.envelope.len() as u64 }
}

impl InHand {
    /// The number after its last record.
    fn end(&self) -> Number {
        match self {
            Self::Open(open) => open.numbers.end,
            Self::Done(done) => done.end,
        }
    }

    /// Whether it is done, and can be settled by itself.
    fn is_settled(&self) -> bool {
        matches!(self, Self::Done(done) if done.settles)
    }
}

impl Open {
    /// Settles it up to the last mark before its first record without a fate.
    fn settle_part(&mut self) -> Option<Settled> {
        let answered = self.fates.iter().position(|fate| *fate == Fate::Open);
        let answered = answered.unwrap_or(self.fates.len());
        if answered <= self.from.at {
            return None;
        }
        let mark = *self.work.marks.iter().rfind(|mark| mark.at <= answered)?;
        (mark.at > self.from.at).then(|| self.settle_to(mark))
    }

    /// Settles the rest of it.
    fn done(&mut self) -> Done {
        let mut settled = self.settle_to(self.end);
        settled.waiting.extend(self.work.saved.take());
        settled.correlator = self.work.correlator.take();
        Done { end: self.numbers.end, settled, settles: self.work.settles }
    }

    /// Settles what lies between the last mark and this one, all of which has its fate.
    fn settle_to(&mut self, to: Mark) -> Settled {
        let from = std::mem::replace(&mut self.from, to);
        let (work, before, reached) = (&self.work, from.reached, to.reached);
        let mut settled = Settled { standing: reached.standing, ..Settled::default() };
        settled.resumes.extend_from_slice(&work.resumes[from.resumes..to.resumes]);
        settled.inputs.merge(&work.inputs, from.inputs..to.inputs);
        settled.read_bytes = reached.read_bytes;
        let totals = &mut settled.totals;
        totals.filtered = reached.filtered - before.filtered;
        totals.correlated_away = reached.correlated_away - before.correlated_away;
        totals.lost = reached.lost - before.lost;
        totals.delivered = reached.delivered_before - before.delivered_before;
        for fate in &self.fates[from.at..to.at] {
            match fate {
                Fate::Open => {}
                Fate::Delivered => totals.delivered += 1,
                Fate::Redelivered => {
                    totals.delivered += 1;
                    totals.redelivered += 1;
                }
                Fate::DeadLettered => totals.dead_lettered += 1,
            }
        }
        self.letters.sort_by_key(|(place, _)| *place);
        for (_, letter) in self.letters.extract_if(.., |(place, _)| *place < to.at) {
            // One letter stands for all that an answer rejected without naming them.
            match settled.dead_letters.last_mut() {
                Some(last)
                    if last.unidentified.min(letter.unidentified) > 0
                        && last.reason == letter.reason =>
                {
                    last.unidentified += letter.unidentified;
                }
                _ => settled.dead_letters.push(letter),
            }
        }
        settled
    }
}
