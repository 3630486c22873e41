//! Works in hand, each until it is settled. Those that are passed, or lie far behind, are kept as sums.

use std::{collections::VecDeque, ops::Range};

use super::{Kept, Sequences};
use crate::{
    bridge::{
        progress::Settled,
        sink::{
            batcher::{SettlePoint, Work},
            delivery::Number,
        },
        sparse::Sparse,
    },
    event::Record,
};

/// Works that lie far behind become one of so many records, or of one in so many parts of all: it is settled as
/// one.
const SUM: u64 = 256;
const SUMS: u64 = 64;

/// See the [module](self). In the order of their numbers.
#[derive(Debug, Default)]
pub(super) struct Works(VecDeque<InHand>);

#[derive(Debug)]
enum InHand {
    Open(Box<Open>),
    Sum(Box<Sum>),
}

#[derive(Debug)]
struct Open {
    work: Work,
    /// The numbers of its records.
    numbers: Range<Number>,
    /// How many records are not passed.
    left: usize,
    /// All before this place is settled.
    from: SettlePoint,
    end: SettlePoint,
}

/// A work, or several in a row.
#[derive(Debug)]
struct Sum {
    /// The numbers of their records.
    numbers: Range<Number>,
    left: usize,
    settled: Settled,
    /// If not, what comes next belongs to it.
    settles: bool,
    /// See [`Work`]; nothing where all are passed.
    oldest_ms: Option<u64>,
}

/// The records that are not passed: those from `first` on, and others.
pub(super) struct Records<'a> {
    pub(super) near: &'a VecDeque<Option<Record>>,
    pub(super) first: Number,
    pub(super) behind: &'a Sparse<Kept>,
    pub(super) logged: &'a Sequences,
}

impl Works {
    /// Takes a work, of whose records so many are not passed.
    pub(super) fn push(&mut self, work: Work, numbers: Range<Number>, left: usize) {
        // The work has handed over its records.
        let end = SettlePoint { at: (numbers.end - numbers.start) as usize, ..work.end() };
        let open = Open { work, numbers, left, from: SettlePoint::default(), end };
        self.0.push_back(InHand::Open(Box::new(open)));
        if left == 0 {
            self.sum(self.0.len() - 1);
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Keeps those as sums that lie before a number.
    pub(super) fn sum_before(&mut self, number: Number) {
        let mut at = self.0.partition_point(|work| work.end() <= number);
        while let Some(before) = at.checked_sub(1)
            && matches!(self.0[before], InHand::Open(_))
        {
            self.sum(before);
            at = before.min(self.0.len());
        }
    }

    /// Takes in that a record is passed.
    pub(super) fn pass(&mut self, number: Number) {
        let at = self.0.partition_point(|work| work.end() <= number);
        match self.0.get_mut(at) {
            Some(InHand::Open(open)) => {
                open.left -= 1;
                if open.left == 0 {
                    self.sum(at);
                }
            }
            Some(InHand::Sum(sum)) => {
                sum.left -= 1;
                if sum.left == 0 {
                    sum.oldest_ms = None;
                    self.join_around(at);
                }
            }
            None => {}
        }
    }

    /// The ingest time of the oldest record that is not passed, in milliseconds since the epoch.
    pub(super) fn oldest_ms(&self) -> Option<u64> {
        self.0.iter().find_map(|work| match work {
            InHand::Open(open) => Some(open.work.oldest_ms),
            InHand::Sum(sum) => sum.oldest_ms,
        })
    }

    /// The next sum that is passed and can be settled by itself, and the number behind it.
    pub(super) fn pop_settled(&mut self) -> Option<(Number, Settled)> {
        let settles =
            |work: &mut InHand| matches!(work, InHand::Sum(sum) if sum.left == 0 && sum.settles);
        match self.0.pop_front_if(settles)? {
            InHand::Sum(sum) => Some((sum.numbers.end, sum.settled)),
            InHand::Open(_) => None,
        }
    }

    /// The passed part of the first that is not passed, as far as that can be settled, where others behind it are
    /// passed or everything `ends` here.
    pub(super) fn settle_part(
        &mut self,
        ends: bool,
        records: &Records<'_>,
    ) -> Vec<(Number, Settled)> {
        let carried = self.0.front().is_some_and(InHand::is_passed);
        let mut behind = self.0.iter().skip(1 + usize::from(carried));
        if !ends && !behind.any(InHand::is_passed) {
            return Vec::new();
        }
        let Some(InHand::Open(open)) = self.0.get_mut(usize::from(carried)) else {
            return Vec::new();
        };
        let Some(part) = open.settle_part(records) else { return Vec::new() };
        let mut parts = Vec::new();
        if carried && let Some(InHand::Sum(sum)) = self.0.pop_front() {
            parts.push((sum.numbers.end, sum.settled));
        }
        parts.push(part);
        parts
    }

    /// Keeps a work as a sum. It becomes one with those beside it.
    fn sum(&mut self, at: usize) {
        let InHand::Open(open) = &mut self.0[at] else { return };
        self.0[at] = InHand::Sum(Box::new(open.sum()));
        self.join_around(at);
    }

    fn join_around(&mut self, at: usize) {
        self.join(at);
        if let Some(before) = at.checked_sub(1) {
            self.join(before);
        }
    }

    /// Makes one of two sums, unless that would keep the first from being settled.
    fn join(&mut self, at: usize) {
        let [Some(first), Some(last)] = [self.0.front(), self.0.back()] else { return };
        let most = SUM.max((last.end() - first.start()) / SUMS);
        if let (Some(InHand::Sum(one)), Some(InHand::Sum(other))) =
            (self.0.get(at), self.0.get(at + 1))
            && if one.left == 0 && other.left == 0 {
                !one.settles || other.settles
            } else {
                at > 0 && other.numbers.end - one.numbers.start <= most
            }
            && let Some(InHand::Sum(other)) = self.0.remove(at + 1)
            && let Some(InHand::Sum(one)) = self.0.get_mut(at)
        {
            one.numbers.end = other.numbers.end;
            one.left += other.left;
            one.settles = other.settles;
            one.oldest_ms = one.oldest_ms.or(other.oldest_ms);
            one.settled.add(other.settled);
        }
    }
}

impl InHand {
    fn start(&self) -> Number {
        match self {
            Self::Open(open) => open.numbers.start,
            Self::Sum(sum) => sum.numbers.start,
        }
    }

    /// The number after its last record.
    fn end(&self) -> Number {
        match self {
            Self::Open(open) => open.numbers.end,
            Self::Sum(sum) => sum.numbers.end,
        }
    }

    fn is_passed(&self) -> bool {
        matches!(self, Self::Sum(sum) if sum.left == 0)
    }
}

impl Open {
    /// The passed part up to the last place where it can be settled, and the number there.
    fn settle_part(&mut self, records: &Records<'_>) -> Option<(Number, Settled)> {
        let Records { near: all_near, first, behind, logged } = records;
        let near = self.numbers.start.max(*first);
        let far = behind.first_in(self.numbers.clone());
        let far = far.into_iter().chain(logged.first_in(self.numbers.clone())).min();
        let open = far.filter(|far| *far < near).unwrap_or_else(|| {
            let near = all_near.range((near - first) as usize..).zip(near..);
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

    /// The counts of gathering, from where it is settled up to a place.
    fn settle_to(&self, to: SettlePoint) -> Settled {
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

    /// The sum of what is left of it.
    fn sum(&mut self) -> Sum {
        let mut settled = self.settle_to(self.end);
        settled.waiting.extend(self.work.saved.take());
        settled.correlator = self.work.correlator.take();
        Sum {
            numbers: self.numbers.clone(),
            left: self.left,
            settled,
            settles: self.work.settles,
            oldest_ms: (self.left > 0).then_some(self.work.oldest_ms),
        }
    }
}
