//! Works in hand: their records by number, and what became of them.
//!
//! Records get their fates out of order. A fate counts at once; the position passes it with all that
//! gathering counted along the way, once each record before it is passed, too. Until then it is noted
//! beside the position that the record is passed, so that a start does not send it again. A record that is
//! set aside is passed as well, and has its fate later.
//!
//! Works that are passed wait as the sum of what they come to: behind a record that is not taken for
//! hours there is one such sum, however many records it stands for.

mod bytes;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, VecDeque},
    ops::Range,
};

use crate::{
    bridge::{
        delivery::Number,
        gather::{Mark, Work},
        progress::Settled,
    },
    event::Record,
    journal::{DeadLetter, Ranges, SetAside, Standing},
};

use self::bytes::Kept;
pub(in crate::bridge) use self::bytes::ROOM;
pub(super) use self::bytes::{Content, Source};

/// A record with so many behind it is kept apart from them: they are soon gone, and it may not be.
const FAR_BEHIND: usize = 4096;

/// What became of a record.
#[derive(Clone, Debug)]
pub(super) enum Fate {
    Delivered,
    /// Delivered, which it had been in an earlier run.
    Redelivered,
    /// The letter stands for it, or is that of a record before it.
    DeadLettered(Option<Box<DeadLetter>>),
    /// It is gone from the log, and cannot be sent.
    Lost,
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Hand {
    /// Records from `first` on; nothing where one is passed.
    records: VecDeque<Option<Record>>,
    first: Number,
    /// Records that are not passed and lie before that, or are sent when they are read again.
    behind: BTreeMap<Number, Kept>,
    /// Records that are set aside.
    copies: BTreeMap<Number, Copy>,
    /// What the records behind the last two take in memory.
    kept_bytes: usize,
    works: VecDeque<InHand>,
    standing: Standing,
    /// Passed since the last call of [`settle`](Self::settle).
    passed: Vec<(Number, u64)>,
    /// Passed before, and not by the position.
    noted: BTreeMap<Number, u64>,
    /// Passed by an earlier run, and not by the position.
    passed_before: Ranges,
    /// What has changed since the last call.
    settled: Settled,
    changed: bool,
}

/// A record that is set aside.
#[derive(Debug)]
struct Copy {
    attempts: u32,
    first_ms: u64,
    kept: Kept,
}

/// A work, or several in a row that are passed.
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
    /// How many records are not passed.
    left: usize,
    /// What is before it is settled.
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

impl Hand {
    /// Goes on from where the sink stands, behind which an earlier run has passed some.
    pub(super) fn new(standing: Standing, passed_before: Ranges) -> Self {
        Self { standing, passed_before, ..Self::default() }
    }

    /// The number that the next record has.
    fn next(&self) -> Number {
        self.first + self.records.len() as u64
    }

    /// Takes a work. Its records have the next numbers, in order; `each` is told which of them are to be sent,
    /// and which an earlier run has passed.
    pub(super) fn push(&mut self, mut work: Work, mut each: impl FnMut(Option<&Record>)) {
        let (first, end) = (self.next(), work.end());
        let mut left = end.at;
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
        while self.records.len() > FAR_BEHIND {
            if let Some(Some(record)) = self.records.pop_front() {
                self.keep(self.first, record);
            }
            self.first += 1;
        }
        let numbers = first..first + end.at as u64;
        let open = Open { work, numbers, left, from: Mark::default(), end };
        self.works.push_back(InHand::Open(Box::new(open)));
        if left == 0 {
            self.done(self.works.len() - 1);
        }
    }

    /// Takes a record that is set aside, of which the state has a copy.
    pub(super) fn push_copy(&mut self, number: Number, sequence: u64, copy: SetAside) {
        let SetAside { attempts, first_ms, envelope } = copy;
        let record = Record { seq: sequence, envelope };
        let kept = Kept::saved(record, &mut self.kept_bytes);
        self.copies.insert(number, Copy { attempts, first_ms, kept });
    }

    /// What is sent of a record; nothing if it has its fate.
    pub(super) fn content(&self, number: Number) -> Option<Content> {
        let near = || {
            let place = number.checked_sub(self.first)?;
            self.records.get(place as usize)?.clone().map(Content::Record)
        };
        let behind = || self.behind.get(&number).map(Kept::content);
        near().or_else(behind).or_else(|| Some(self.copies.get(&number)?.kept.content()))
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
        let copy = self.copies.get(&number)?;
        Some((copy.attempts, copy.first_ms))
    }

    /// Lets go of a record that is not sent soon, if there is little room for it.
    pub(super) fn move_away(&mut self, number: Number) {
        if let Some(record) = self.take_near(number) {
            self.keep(number, record);
        }
    }

    fn keep(&mut self, number: Number, record: Record) {
        self.behind.insert(number, Kept::logged(record, &mut self.kept_bytes));
    }

    /// Sets a record aside, of which `copy` is saved.
    pub(super) fn set_aside(&mut self, number: Number, copy: SetAside) {
        let Some(sequence) = self.take(number) else { return };
        self.settled.set_aside.insert(sequence, Some(copy.clone()));
        self.pass(number, sequence);
        self.push_copy(number, sequence, copy);
    }

    /// Gives a record its fate.
    pub(super) fn fate(&mut self, number: Number, fate: Fate) {
        if let Some(Copy { kept, .. }) = self.copies.remove(&number) {
            self.changed = true;
            self.settled.set_aside.insert(kept.drop(&mut self.kept_bytes), None);
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
        Some(self.behind.remove(&number)?.drop(&mut self.kept_bytes))
    }

    fn pass(&mut self, number: Number, sequence: u64) {
        self.changed = true;
        self.passed.push((number, sequence));
        let at = self.works.partition_point(|work| work.end() <= number);
        let Some(InHand::Open(open)) = self.works.get_mut(at) else { return };
        open.left -= 1;
        if open.left == 0 {
            self.done(at);
        }
    }

    /// The ingest time of the oldest record in hand, in milliseconds since the epoch.
    pub(super) fn oldest_ms(&self) -> Option<u64> {
        self.works.iter().find_map(|work| match work {
            InHand::Open(open) => Some(open.work.oldest_ms),
            InHand::Done(_) => None,
        })
    }

    /// What has changed since the last call. The position passes works up to the first that is not passed,
    /// and of that as much as is, where others behind it are done or everything `ends` here.
    pub(super) fn settle(&mut self, ends: bool) -> Option<Settled> {
        let mut reached = None;
        while let Some(InHand::Done(done)) = self.works.pop_front_if(|work| work.is_settled()) {
            self.reach(done.end, done.settled, &mut reached);
        }
        let carried = matches!(self.works.front(), Some(InHand::Done(_)));
        let mut behind = self.works.iter().skip(1 + usize::from(carried));
        let waits = behind.any(|work| matches!(work, InHand::Done(_)));
        if (ends || waits)
            && let Some(InHand::Open(open)) = self.works.get_mut(usize::from(carried))
            && let Some((end, part)) = open.settle_part(&self.records, self.first, &self.behind)
        {
            if carried && let Some(InHand::Done(done)) = self.works.pop_front() {
                self.reach(done.end, done.settled, &mut reached);
            }
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
        while let Some(first) = self.noted.first_entry().filter(|first| *first.key() < covered) {
            self.settled.covered.push(first.remove());
        }
    }

    /// A work is passed. It becomes one with those beside it.
    fn done(&mut self, at: usize) {
        let InHand::Open(open) = &mut self.works[at] else { return };
        self.works[at] = InHand::Done(Box::new(open.done()));
        self.join(at);
        if let Some(before) = at.checked_sub(1) {
            self.join(before);
        }
    }

    /// Makes one of two works that are passed, unless that would keep the first from being settled.
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

impl InHand {
    /// The number after its last record.
    fn end(&self) -> Number {
        match self {
            Self::Open(open) => open.numbers.end,
            Self::Done(done) => done.end,
        }
    }

    /// Whether it is passed, and can be settled by itself.
    fn is_settled(&self) -> bool {
        matches!(self, Self::Done(done) if done.settles)
    }
}

impl Open {
    /// What is passed up to the last place where it can be settled, and the number there.
    fn settle_part(
        &mut self,
        records: &VecDeque<Option<Record>>,
        first: Number,
        behind: &BTreeMap<Number, Kept>,
    ) -> Option<(Number, Settled)> {
        let near = self.numbers.start.max(first);
        let far = behind.range(self.numbers.clone()).next().map(|(number, _)| *number);
        let open = far.filter(|far| *far < near).unwrap_or_else(|| {
            let near = records.range((near - first) as usize..).zip(near..);
            let mut near = near.filter(|(record, _)| record.is_some()).map(|(_, number)| number);
            near.next().into_iter().chain(far).min().unwrap_or(self.numbers.end)
        });
        let passed = (open - self.numbers.start) as usize;
        let mark = *self.work.marks.iter().rfind(|mark| mark.at <= passed)?;
        if mark.at <= self.from.at {
            return None;
        }
        let settled = self.settle_to(mark);
        self.from = mark;
        Some((self.numbers.start + mark.at as u64, settled))
    }

    /// What gathering counted from where it is settled up to a place.
    fn settle_to(&self, to: Mark) -> Settled {
        let Self { from, work, .. } = self;
        let (before, reached) = (from.reached, to.reached);
        let mut settled = Settled { standing: reached.standing, ..Settled::default() };
        settled.resumes.extend_from_slice(&work.resumes[from.resumes..to.resumes]);
        settled.inputs.merge(&work.inputs, from.inputs..to.inputs);
        settled.read_bytes = reached.read_bytes;
        let totals = &mut settled.totals;
        totals.filtered = reached.filtered - before.filtered;
        totals.correlated_away = reached.correlated_away - before.correlated_away;
        totals.lost = reached.lost - before.lost;
        totals.delivered = reached.delivered_before - before.delivered_before;
        settled
    }

    /// What is left of it comes to this.
    fn done(&mut self) -> Done {
        let mut settled = self.settle_to(self.end);
        settled.waiting.extend(self.work.saved.take());
        settled.correlator = self.work.correlator.take();
        Done { end: self.numbers.end, settled, settles: self.work.settles }
    }
}
