//! Works in hand: their records by number, and what became of them.
//!
//! Records get their fates out of order. A fate counts at once; the position passes it with all that
//! gathering counted along the way, once each record before it is passed, too. Until then it is noted
//! beside the position that the record is passed, so that a start does not send it again. A record that is
//! set aside is passed as well, and has its fate later.
//!
//! Works that are passed, or lie far behind, wait as the sum of what they come to: behind a record that is
//! not taken for hours there are few such sums, however many records they stand for.

mod bytes;
mod copies;
mod sequences;
#[cfg(test)]
mod tests;
mod works;

use std::collections::VecDeque;

use crate::{
    bridge::{
        NamespaceSetAside,
        progress::Settled,
        sink::{batcher::Work, delivery::Number},
        sparse::Sparse,
    },
    event::{Origin, Record},
    journal::{DeadLetter, Ranges, SetAside, Standing},
};

pub(crate) use self::bytes::Source;
pub(super) use self::bytes::{Content, ROOM};
use self::{
    bytes::{Added, Kept, Room},
    copies::{Copies, Copy},
    sequences::Sequences,
    works::{Records, Works},
};

/// A record with so many behind it is kept apart from them: they are soon gone, and it may not be.
const FAR_BEHIND: usize = 4096;

/// The fate of a live record.
#[derive(Clone, Debug)]
pub(super) enum Fate {
    Delivered,
    /// Delivered, which it had been in an earlier run.
    Redelivered,
    /// The letter stands for it, or is that of a record before it.
    DeadLettered(Option<Box<DeadLetter>>),
    /// Gone from the log: it cannot be sent.
    Lost,
}

/// The works that a sink has in hand. See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Hand {
    /// Records from `first` on; nothing where one is passed.
    records: VecDeque<Option<Record>>,
    first: Number,
    /// They are so many at most.
    most_near: usize,
    /// Records that are not passed and lie before that, or are sent when they are read again.
    behind: Sparse<Kept>,
    /// Those of them that are read from the log, and their deltas where these may be other ones than there.
    logged: Sequences,
    deltas: Sequences,
    /// Records that are set aside.
    copies: Copies,
    /// The room in memory of the records behind the last two.
    kept: Room,
    works: Works,
    standing: Standing,
    /// Passed since the last call of [`settle`](Self::settle).
    passed: Vec<(Number, u64)>,
    /// Passed before, and not by the position.
    noted: Sequences,
    /// Passed by an earlier run, and not by the position.
    passed_before: Ranges,
    /// Changes since the last call.
    settled: Settled,
    changed: bool,
}

impl Hand {
    /// Goes on from where the sink stands, behind which an earlier run has passed some. The first record of a work
    /// has the number `first`.
    pub(super) fn new(standing: Standing, passed_before: Ranges, first: Number) -> Self {
        Self { standing, passed_before, first, most_near: FAR_BEHIND, ..Self::default() }
    }

    /// The number that the next record has.
    fn next(&self) -> Number {
        self.first + self.records.len() as u64
    }

    /// Takes a work. Its records have the next numbers, in order; `each` is told which of them are to be sent,
    /// and which an earlier run has passed.
    pub(super) fn push(&mut self, mut work: Work, mut each: impl FnMut(Option<&Record>)) {
        let (first, records) = (self.next(), work.batch.records.len());
        let mut left = records;
        for record in std::mem::take(&mut work.batch.records) {
            let is_passed = self.passed_before.contains(record.seq);
            if is_passed || record.envelope.is_empty() {
                each(None);
                if is_passed {
                    self.passed_before.remove(record.seq);
                    self.noted.insert(self.next(), record.seq);
                }
                self.records.push_back(None);
                left -= 1;
            } else {
                each(Some(&record));
                self.records.push_back(Some(record));
            }
        }
        while self.records.len() > self.most_near {
            if let Some(Some(record)) = self.records.pop_front() {
                self.keep(self.first, record);
            }
            self.first += 1;
        }
        self.works.push(work, first..first + records as u64, left);
        self.works.sum_before(self.first);
    }

    /// Takes a record of a namespace that is set aside, of which the state has a copy.
    pub(super) fn push_copy(
        &mut self,
        number: Number,
        sequence: u64,
        namespace: Box<str>,
        copy: SetAside,
    ) {
        let SetAside { attempts, first_ms, envelope } = copy;
        let record = Record { seq: sequence, envelope };
        let kept = Kept::saved(record, &mut self.kept);
        self.copies.insert(number, Copy { namespace, attempts, first_ms, kept });
    }

    /// The record of a number, or where it is read; nothing if it has its fate.
    pub(super) fn content(&self, number: Number) -> Option<Content> {
        let near = || {
            let place = number.checked_sub(self.first)?;
            self.records.get(place as usize)?.clone().map(Content::Record)
        };
        let logged = || {
            let added = self.deltas.get(number).map(Added::delta);
            Some(Content::Logged(self.logged.get(number)?, added))
        };
        let behind = || self.behind.get(number).map(Kept::content);
        let copy = || Some(self.copies.get(number)?.kept.content());
        near().or_else(behind).or_else(logged).or_else(copy)
    }

    /// The sequence of a record that has no fate.
    pub(super) fn sequence(&self, number: Number) -> Option<u64> {
        let near =
            number.checked_sub(self.first).and_then(|place| self.records.get(place as usize));
        match near.and_then(Option::as_ref) {
            Some(record) => Some(record.seq),
            None => self.content(number).map(|content| content.sequence()),
        }
    }

    /// How often a record was sent before it was set aside by an earlier run, and when first.
    pub(super) fn before(&self, number: Number) -> Option<(u32, u64)> {
        let copy = self.copies.get(number)?;
        Some((copy.attempts, copy.first_ms))
    }

    /// Lets go of a record that is not sent soon, if there is little room for it.
    pub(super) fn move_away(&mut self, number: Number) {
        if let Some(record) = self.take_near(number) {
            self.keep(number, record);
        }
    }

    fn keep(&mut self, number: Number, record: Record) {
        match Kept::logged(record, &mut self.kept) {
            Ok(kept) => self.behind.insert(number, kept),
            Err((sequence, delta)) => {
                self.logged.insert(number, sequence);
                if let Some(delta) = delta {
                    self.deltas.insert(number, delta);
                }
            }
        }
    }

    /// Sets a record aside, of which `copy` is saved.
    pub(super) fn set_aside(&mut self, number: Number, copy: SetAside) {
        let Some(sequence) = self.take(number) else { return };
        self.settled.set_aside.insert(sequence, Some(copy.clone()));
        self.pass(number, sequence);
        self.push_copy(number, sequence, (*Origin::namespace_of(&copy.envelope)).into(), copy);
    }

    /// Gives a record its fate.
    pub(super) fn fate(&mut self, number: Number, fate: Fate) {
        if let Some(Copy { kept, .. }) = self.copies.remove(number) {
            self.changed = true;
            self.settled.set_aside.insert(kept.drop(&mut self.kept), None);
        } else if let Some(sequence) = self.take(number) {
            self.pass(number, sequence);
        }
        let totals = &mut self.settled.totals;
        match fate {
            Fate::Delivered => totals.delivered += 1,
            Fate::Redelivered => {
                totals.delivered += 1;
                totals.redelivered += 1;
            }
            Fate::DeadLettered(letter) => {
                totals.dead_lettered += 1;
                self.settled.dead_letters.extend(letter.map(|letter| *letter));
            }
            Fate::Lost => totals.lost += 1,
        }
    }

    fn take_near(&mut self, number: Number) -> Option<Record> {
        let place = number.checked_sub(self.first)?;
        let record = self.records.get_mut(place as usize)?.take();
        while let Some(None) = self.records.front() {
            self.records.pop_front();
            self.first += 1;
        }
        record
    }

    /// Takes a record out, and answers its sequence.
    fn take(&mut self, number: Number) -> Option<u64> {
        if let Some(record) = self.take_near(number) {
            return Some(record.seq);
        }
        let behind = self.behind.remove(number).map(|kept| kept.drop(&mut self.kept));
        behind.or_else(|| {
            self.deltas.remove(number);
            self.logged.remove(number)
        })
    }

    fn pass(&mut self, number: Number, sequence: u64) {
        self.changed = true;
        self.passed.push((number, sequence));
        self.works.pass(number);
    }

    /// How many records have lost what a sink is told before their Events, since the last call.
    pub(super) fn take_additions_dropped(&mut self) -> u64 {
        self.kept.take_dropped()
    }

    /// The namespaces that have most of what is set aside, those first.
    pub(super) fn set_aside_of(&self, most: usize) -> Vec<NamespaceSetAside> {
        self.copies.first(most)
    }

    /// The ingest time of the oldest record in hand, in milliseconds since the epoch.
    pub(super) fn oldest_ms(&self) -> Option<u64> {
        self.works.oldest_ms()
    }

    /// The changes since the last call. The position passes works up to the first that is not passed,
    /// and of that as much as is, where others behind it are done or everything `ends` here.
    pub(super) fn settle(&mut self, ends: bool) -> Option<Settled> {
        let mut reached = None;
        while let Some((end, settled)) = self.works.pop_settled() {
            self.reach(end, settled, &mut reached);
        }
        let records = Records {
            near: &self.records,
            first: self.first,
            behind: &self.behind,
            logged: &self.logged,
        };
        for (end, part) in self.works.settle_part(ends, &records) {
            self.reach(end, part, &mut reached);
        }
        self.cover(reached);
        if !std::mem::take(&mut self.changed) {
            return None;
        }
        self.settled.standing = self.standing;
        Some(std::mem::take(&mut self.settled))
    }

    /// The position passes what lies before a number.
    fn reach(&mut self, number: Number, settled: Settled, reached: &mut Option<Number>) {
        self.standing = settled.standing;
        self.settled.add(settled);
        self.changed = true;
        *reached = Some(number);
    }

    /// Notes which records are passed by the position, up to a number, and which are not.
    fn cover(&mut self, reached: Option<Number>) {
        let covered = reached.unwrap_or(0);
        for (number, sequence) in self.passed.drain(..).filter(|(number, _)| *number >= covered) {
            self.noted.insert(number, sequence);
            self.settled.passed.push(sequence);
        }
        self.settled.covered.extend(self.noted.take_before(covered));
    }
}
