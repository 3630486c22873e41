//! Whatever the order in which records get their fates, the position and what is noted beside it tell which
//! have them, and no start sends these again.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::{bridge::delivery::FIRST_COPY, journal::Position};

/// Where the sink stands before a sequence.
fn at(next: u64) -> Standing {
    Standing { position: Position { next, skipped: 0 }, ..Standing::default() }
}

/// A work of so many records from a sequence on, each with one before it that is filtered, and a place
/// between any two where it can be settled.
fn work(first: u64, records: u64, settles: bool) -> Work {
    let mut work = Work { settles, ..Work::default() };
    work.reached.standing = at(first);
    for seq in (first..).step_by(2).take(records as usize) {
        if !work.batch.records.is_empty() {
            work.marks.push(work.end());
        }
        work.reached.filtered += 1;
        work.batch.records.push(Record { seq: seq + 1, envelope: "{}".into() });
        work.reached.standing = at(seq + 2);
    }
    work
}

/// What is saved of a sink.
#[derive(Clone, Debug)]
struct Saved {
    standing: Standing,
    passed: Ranges,
    set_aside: BTreeSet<u64>,
    fates: u64,
    filtered: u64,
}

impl Saved {
    fn settle(&mut self, settled: Option<Settled>) {
        let Some(settled) = settled else { return };
        let before = self.standing.position.next;
        self.standing = settled.standing;
        assert!(self.standing.position.next >= before);
        settled.passed.iter().for_each(|seq| self.passed.add(*seq..seq + 1));
        settled.covered.iter().for_each(|seq| self.passed.remove(*seq));
        for (seq, copy) in settled.set_aside {
            if copy.is_some() {
                assert!(self.set_aside.insert(seq), "{seq} is set aside twice");
            } else {
                assert!(self.set_aside.remove(&seq), "{seq} was not set aside");
            }
        }
        self.fates += settled.totals.delivered + settled.totals.lost;
        self.filtered += settled.totals.filtered;
    }
}

/// A work of records that begin with that sequence, and what is behind them.
fn works_from(first: u64, sizes: &[(u64, bool)]) -> Vec<(u64, Work)> {
    let mut next = first;
    let mut all = Vec::new();
    for (at, (records, settles)) in sizes.iter().enumerate() {
        all.push((next, work(next, *records, *settles || at + 1 == sizes.len())));
        next += 2 * records;
    }
    all
}

proptest! {
    #[test]
    fn what_is_saved_tells_at_each_moment_which_records_are_passed(
        sizes in prop::collection::vec((0u64..9, prop::bool::weighted(0.8)), 1..20),
        order in prop::collection::vec((any::<prop::sample::Index>(), 0u8..8), 200),
        ahead in 1usize..6,
        kill_at in 0usize..200,
    ) {
        let end = 1 + 2 * sizes.iter().map(|(records, _)| records).sum::<u64>();
        let all: BTreeSet<u64> = (2..end).step_by(2).collect();
        let mut saved = Saved {
            standing: at(1),
            passed: Ranges::default(),
            set_aside: BTreeSet::new(),
            fates: 0,
            filtered: 0,
        };
        let mut order = order.into_iter().enumerate();
        let (mut fated, mut copies) = (BTreeSet::new(), BTreeSet::new());
        for kill in [true, false] {
            let (standing, passed) = (saved.standing, saved.passed.clone());
            let mut hand = Hand::new(standing, passed);
            // Those of open records, and of copies, by number.
            let (mut open, mut numbers) = (BTreeMap::new(), 0);
            for (number, seq) in (FIRST_COPY..).zip(&saved.set_aside) {
                let copy = SetAside { attempts: 1, first_ms: 1, envelope: "{}".into() };
                hand.push_copy(number, *seq, copy);
                open.insert(number, *seq);
            }
            let mut works = works_from(1, &sizes).into_iter();
            let position = standing.position.next;
            loop {
                while open.len() < ahead && let Some((first, mut work)) = works.next() {
                    // Gathering begins where the sink stands.
                    if work.reached.standing.position.next <= position && first < position {
                        continue;
                    }
                    if first < position {
                        let records = (position - first) / 2;
                        work = self::work(position, work.batch.records.len() as u64 - records, work.settles);
                    }
                    hand.push(work, |record| {
                        if let Some(record) = record {
                            open.insert(numbers, record.seq);
                        }
                        numbers += 1;
                    });
                }
                saved.settle(hand.settle(false));
                let before = |seq: &&u64| **seq < saved.standing.position.next;
                let mut told: BTreeSet<u64> = all.iter().filter(before).copied().collect();
                told.extend(saved.passed.iter().cloned().flatten());
                let passed: BTreeSet<u64> = fated.union(&copies).copied().collect();
                prop_assert_eq!(&told, &passed);
                prop_assert_eq!(&saved.set_aside, &copies);
                prop_assert_eq!(saved.fates, fated.len() as u64);
                prop_assert_eq!(saved.filtered, (saved.standing.position.next - 1) / 2);
                let Some(first) = open.keys().next().copied() else { break };
                let (number, what) = match order.next() {
                    Some((step, _)) if kill && step >= kill_at => break,
                    Some((_, (index, what))) => {
                        (*open.keys().nth(index.index(open.len())).unwrap_or(&first), what)
                    }
                    None => (first, 7),
                };
                let seq = open[&number];
                prop_assert_eq!(hand.sequence(number), Some(seq));
                if what == 0 && !copies.contains(&seq) {
                    let copy = SetAside { attempts: 1, first_ms: 1, envelope: "{}".into() };
                    hand.set_aside(number, copy);
                    copies.insert(seq);
                } else if what == 1 {
                    hand.move_away(number);
                } else {
                    hand.fate(number, if what == 2 { Fate::Lost } else { Fate::Delivered });
                    open.remove(&number);
                    copies.remove(&seq);
                    prop_assert!(fated.insert(seq), "{} has two fates", seq);
                    prop_assert!(hand.content(number).is_none());
                }
            }
        }
        prop_assert_eq!(fated, all);
        prop_assert_eq!((saved.standing, saved.passed.count()), (at(end), 0));
    }
}

#[test]
fn behind_a_record_that_is_not_taken_all_others_are_one() {
    let mut hand = Hand::new(at(1), Ranges::default());
    for first in (1..40_001).step_by(20) {
        hand.push(work(first, 10, true), |_| {});
    }
    (1..20_000).for_each(|number| hand.fate(number, Fate::Delivered));
    let settled = hand.settle(false).unwrap();
    assert_eq!((settled.standing, settled.totals.delivered), (at(1), 19_999));
    assert_eq!((hand.works.len(), hand.records.len(), hand.behind.len()), (2, 0, 1));
    assert_eq!(hand.sequence(0), Some(2));
    hand.fate(0, Fate::Delivered);
    let settled = hand.settle(false).unwrap();
    assert_eq!((settled.standing, settled.totals.delivered), (at(40_001), 1));
    assert_eq!(settled.covered.len(), 19_999);
}
