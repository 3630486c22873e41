//! The position and what is noted beside it tell which records have their fates, in whatever order they get
//! them, and no start sends these again.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::{
    bytes::{MOST, ROOM},
    *,
};
use crate::journal::Position;

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

/// A sink's saved state.
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

    /// Checks that of all records it tells those as passed that have fates or copies.
    fn tells(
        &self,
        all: &BTreeSet<u64>,
        fated: &BTreeSet<u64>,
        copies: &BTreeSet<u64>,
    ) -> Result<(), TestCaseError> {
        let next = self.standing.position.next;
        let mut told: BTreeSet<u64> = all.iter().filter(|seq| **seq < next).copied().collect();
        told.extend(self.passed.iter().cloned().flatten());
        let passed: BTreeSet<u64> = fated.union(copies).copied().collect();
        prop_assert_eq!(&told, &passed);
        prop_assert_eq!(&self.set_aside, copies);
        prop_assert_eq!(self.fates, fated.len() as u64);
        prop_assert_eq!(self.filtered, (next - 1) / 2);
        Ok(())
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
    fn the_saved_state_tells_at_each_moment_which_records_are_passed(
        sizes in prop::collection::vec((0u64..9, prop::bool::weighted(0.8)), 1..20),
        order in prop::collection::vec((any::<prop::sample::Index>(), 0u8..8), 200),
        ahead in 1usize..6,
        kill_at in 0usize..200,
        most_near in 1usize..20,
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
            let mut numbers = saved.set_aside.len() as Number;
            let mut hand = Hand { most_near, ..Hand::new(standing, passed, numbers) };
            // Those of open records, and of copies, by number.
            let mut open = BTreeMap::new();
            for (number, seq) in (0..).zip(&saved.set_aside) {
                let copy = SetAside { attempts: 1, first_ms: 1, envelope: "{}".into() };
                hand.push_copy(number, *seq, "".into(), copy);
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
                saved.tells(&all, &fated, &copies)?;
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
    let mut hand = Hand::new(at(1), Ranges::default(), 0);
    for first in (1..40_001).step_by(20) {
        hand.push(work(first, 10, true), |_| {});
    }
    (1..20_000).for_each(|number| hand.fate(number, Fate::Delivered));
    let settled = hand.settle(false).unwrap();
    assert_eq!((settled.standing, settled.totals.delivered), (at(1), 19_999));
    assert_eq!((hand.works.len(), hand.records.len()), (2, 0));
    assert!(hand.behind.numbers_from(0).eq([0]));
    assert_eq!(hand.sequence(0), Some(2));
    hand.fate(0, Fate::Delivered);
    let settled = hand.settle(false).unwrap();
    assert_eq!((settled.standing, settled.totals.delivered), (at(40_001), 1));
    assert_eq!(settled.covered.len(), 19_999);
}

#[test]
fn behind_records_that_are_not_taken_works_are_few() {
    let mut hand = Hand { most_near: 10, ..Hand::new(at(1), Ranges::default(), 0) };
    for first in (1..200_001).step_by(20) {
        hand.push(work(first, 10, true), |_| {});
    }
    let (held, others): (Vec<_>, Vec<_>) = (0..100_000).partition(|number| number % 10 == 5);
    for number in others {
        hand.fate(number, Fate::Delivered);
    }
    assert_eq!(hand.settle(false).unwrap().totals.delivered, 90_000);
    assert!(hand.works.len() < 250, "{}", hand.works.len());
    for number in held {
        hand.fate(number, Fate::Delivered);
    }
    let settled = hand.settle(false).unwrap();
    assert_eq!((settled.standing, settled.totals.delivered), (at(200_001), 10_000));
}

#[test]
fn records_behind_take_no_more_than_their_room_and_share_what_sinks_are_told() {
    let mut hand = Hand { most_near: 10, ..Hand::new(at(1), Ranges::default(), 0) };
    let mut work = work(1, 40, true);
    let (event, object) = ("x".repeat(ROOM / 20), "y".repeat(ROOM / 100));
    for record in &mut work.batch.records {
        let envelope =
            format!(r#"{{"delta":2,"replayed":false,"object":"{object}","event":"{event}"}}"#);
        record.envelope = envelope.into();
    }
    hand.push(work, |_| {});
    (0..40).for_each(|number| hand.move_away(number));
    let (kept, objects) = (hand.kept.bytes(), object.len() * 2);
    assert!(kept < ROOM + objects, "{kept}");
    (0..40).for_each(|number| hand.fate(number, Fate::Delivered));
    assert_eq!(hand.kept.bytes(), 0);
    assert_eq!(size_of::<Kept>(), 16, "there may be a million of them");
}

#[test]
fn additions_for_sinks_take_no_more_than_their_room_and_deltas_stay() {
    let mut hand = Hand { most_near: 10, ..Hand::new(at(1), Ranges::default(), 0) };
    let mut work = work(1, 100, true);
    let text = "x".repeat(MOST / 50);
    for (n, record) in work.batch.records.iter_mut().enumerate() {
        record.envelope =
            format!(r#"{{"delta":{n},"replayed":false,"object":"{n}{text}","event":"x"}}"#).into();
    }
    hand.push(work, |_| {});
    (0..100).for_each(|number| hand.move_away(number));
    assert!(hand.kept.bytes() <= MOST, "{}", hand.kept.bytes());
    let without = |number: &u64| matches!(hand.content(*number), Some(Content::Logged(_, Some(added))) if added.members.is_empty());
    let without = (0..100).filter(without).count() as u64;
    assert!(without > 0);
    assert_eq!((hand.take_additions_dropped(), hand.take_additions_dropped()), (without, 0));
    let sum = |number| match hand.content(number) {
        Some(Content::Logged(_, Some(added))) => (added.delta, added.members.len()),
        content => panic!("{content:?}"),
    };
    assert_eq!(sum(99), (99, 0));
    assert_eq!(sum(40).0, 40);
    assert!(sum(40).1 > MOST / 50);
    (0..100).for_each(|number| hand.fate(number, Fate::Delivered));
    assert_eq!(hand.kept.bytes(), 0);
}
