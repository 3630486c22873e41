//! Works in hand: their records by number, and what became of them until that is settled.
//!
//! Records get their fates out of order, and position and totals pass only what has its fate from the
//! first record on. So each work waits here until all before it are settled. Those that are done wait as
//! the sum of what they come to: behind a record that is not taken for hours there is one such sum,
//! however many records it stands for.

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, VecDeque},
    ops::Range,
};

use super::fates::{Fate, Fates};
use crate::{
    bridge::{
        delivery::Number,
        gather::{Mark, Work},
        progress::Settled,
    },
    event::Record,
    journal::DeadLetter,
};

/// A record with so many behind it is kept apart from them: they are soon gone, and it may not be.
const FAR_BEHIND: usize = 4096;

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Hand {
    /// Records from `first` on; nothing where one has its fate.
    records: VecDeque<Option<Record>>,
    first: Number,
    /// Records before that without a fate.
    behind: BTreeMap<Number, Record>,
    works: VecDeque<InHand>,
    /// The sums that can be settled now, in order.
    ready: Vec<Settled>,
}

/// A work, or several in a row that are done.
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
    fates: Fates,
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

impl Hand {
    /// The number that the next record has.
    fn next(&self) -> Number {
        self.first + self.records.len() as u64
    }

    /// Takes a work. Its records have the next numbers, in order.
    pub(super) fn push(&mut self, mut work: Work, mut each: impl FnMut(&Record)) {
        let (first, end) = (self.next(), work.end());
        for record in std::mem::take(&mut work.batch.records) {
            each(&record);
            self.records.push_back(Some(record));
        }
        while self.records.len() > FAR_BEHIND {
            if let Some(Some(record)) = self.records.pop_front() {
                self.behind.insert(self.first, record);
            }
            self.first += 1;
        }
        let numbers = first..first + end.at as u64;
        let (fates, from) = (Fates::new(end.at), Mark::default());
        let open = Open { work, numbers, fates, left: end.at, from, end };
        self.works.push_back(InHand::Open(Box::new(open)));
        if end.at == 0 {
            self.done(self.works.len() - 1);
        }
    }

    /// A record that has no fate.
    pub(super) fn record(&self, number: Number) -> Option<&Record> {
        match number.checked_sub(self.first) {
            Some(place) => self.records.get(place as usize)?.as_ref(),
            None => self.behind.get(&number),
        }
    }

    /// The rows of records that came in one work each.
    pub(super) fn rows(&self, numbers: Range<Number>) -> impl Iterator<Item = Range<Number>> {
        let mut from = numbers.start;
        std::iter::from_fn(move || {
            let end = self.works.get(self.work_of(from))?.end().min(numbers.end);
            (from < end).then(|| std::mem::replace(&mut from, end)..end)
        })
    }

    /// Adds the letter of a record that is to have its fate, or of a row of so many.
    pub(super) fn dead_letter(&mut self, number: Number, letter: DeadLetter) {
        let at = self.work_of(number);
        if let Some(InHand::Open(open)) = self.works.get_mut(at) {
            open.fates.dead_letter((number - open.numbers.start) as usize, letter);
        }
    }

    /// Gives a record its fate; answers the ingest time of the work that it came in, in milliseconds since the epoch.
    pub(super) fn fate(&mut self, number: Number, fate: Fate) -> Option<u64> {
        match number.checked_sub(self.first) {
            Some(place) => self.records[place as usize] = None,
            None => _ = self.behind.remove(&number),
        }
        while let Some(None) = self.records.front() {
            self.records.pop_front();
            self.first += 1;
        }
        let at = self.work_of(number);
        let Some(InHand::Open(open)) = self.works.get_mut(at) else { return None };
        open.fates.set((number - open.numbers.start) as usize, fate);
        open.left -= 1;
        let journalled_ms = open.work.oldest_ms;
        if open.left == 0 {
            self.done(at);
        }
        Some(journalled_ms)
    }

    /// The ingest time of the oldest record in hand, in milliseconds since the epoch.
    pub(super) fn oldest_ms(&self) -> Option<u64> {
        self.works.iter().find_map(|work| match work {
            InHand::Open(open) => Some(open.work.oldest_ms),
            InHand::Done(_) => None,
        })
    }

    /// Takes the sums that can be settled since the last call, in order: works up to the first that is not done, and of
    /// that as much as has its fates, where others behind it are done or everything `ends` here.
    pub(super) fn settle(&mut self, ends: bool) -> std::vec::Drain<'_, Settled> {
        while let Some(InHand::Done(done)) = self.works.pop_front_if(|work| work.is_settled()) {
            self.ready.push(done.settled);
        }
        let carried = matches!(self.works.front(), Some(InHand::Done(_)));
        let mut behind = self.works.iter().skip(1 + usize::from(carried));
        let waits = behind.any(|work| matches!(work, InHand::Done(_)));
        if (ends || waits)
            && let Some(InHand::Open(open)) = self.works.get_mut(usize::from(carried))
            && let Some(part) = open.settle_part()
        {
            let mut settled = Settled::default();
            if carried && let Some(InHand::Done(done)) = self.works.pop_front() {
                settled = done.settled;
            }
            settled.add(part);
            self.ready.push(settled);
        }
        self.ready.drain(..)
    }

    /// The place of the work that has a record, or had it.
    fn work_of(&self, number: Number) -> usize {
        self.works.partition_point(|work| work.end() <= number)
    }

    /// A work has all of its fates. It becomes one with those beside it.
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

    /// Makes one of two works that are done, unless that would keep the first from being settled.
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

    /// Whether it is done, and can be settled by itself.
    fn is_settled(&self) -> bool {
        matches!(self, Self::Done(done) if done.settles)
    }
}

impl Open {
    /// Settles it up to the last place that can be, where all before that have their fates.
    fn settle_part(&mut self) -> Option<Settled> {
        let answered = self.fates.answered();
        let mark = *self.work.marks.iter().rfind(|mark| mark.at <= answered)?;
        if mark.at <= self.from.at {
            return None;
        }
        let mut settled = Settled::default();
        self.fates.settle(self.from, mark, &self.work, &mut settled);
        self.from = mark;
        Some(settled)
    }

    /// Sums up the rest of it.
    fn done(&mut self) -> Done {
        let mut settled = Settled::default();
        self.fates.settle(self.from, self.end, &self.work, &mut settled);
        settled.waiting.extend(self.work.saved.take());
        settled.correlator = self.work.correlator.take();
        Done { end: self.numbers.end, settled, settles: self.work.settles }
    }
}
