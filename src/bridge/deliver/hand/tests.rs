//! Records that are settled have their fates from the first on, in whichever order they get them.

use proptest::prelude::*;

use super::*;
use crate::journal::{Position, Standing};

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

proptest! {
    #[test]
    fn what_is_settled_has_its_fates_from_the_first_on(
        works in prop::collection::vec((0u64..9, prop::bool::weighted(0.8)), 1..20),
        order in prop::collection::vec(any::<prop::sample::Index>(), 200),
        ahead in 1usize..6,
    ) {
        let mut hand = Hand::default();
        let (mut open, mut seqs) = (Vec::new(), Vec::new());
        let (mut next, mut reached, mut delivered, mut filtered) = (1, 1, 0, 0);
        let last = works.len() - 1;
        let mut works = works.into_iter().enumerate().peekable();
        let mut order = order.into_iter();
        let mut settle = |hand: &mut Hand, open: &[u64]| {
            for settled in hand.settle(false) {
                assert!(settled.standing.position.next >= reached);
                reached = settled.standing.position.next;
                delivered += settled.totals.delivered;
                filtered += settled.totals.filtered;
            }
            // Each record has one before it, and all before a sequence are settled.
            assert_eq!((delivered, filtered), ((reached - 1) / 2, (reached - 1) / 2));
            assert!(open.iter().all(|seq| *seq >= reached), "{open:?} {reached}");
            reached
        };
        loop {
            while open.len() < ahead && let Some((at, (records, settles))) = works.next() {
                let mut pushed = seqs.len() as u64;
                hand.push(work(next, records, settles || at == last), |record| {
                    seqs.push(record.seq);
                    open.push(pushed);
                    pushed += 1;
                });
                next += 2 * records;
            }
            let open_seqs: Vec<_> = open.iter().map(|number| seqs[*number as usize]).collect();
            settle(&mut hand, &open_seqs);
            if open.is_empty() {
                break;
            }
            let number = match order.next() {
                Some(index) => open.swap_remove(index.index(open.len())),
                None => open.remove(0),
            };
            prop_assert_eq!(hand.record(number).unwrap().seq, seqs[number as usize]);
            hand.fate(number, Fate::Delivered);
            prop_assert!(hand.record(number).is_none());
        }
        prop_assert_eq!(settle(&mut hand, &[]), next);
        prop_assert!(hand.works.is_empty() && hand.records.is_empty());
    }
}

#[test]
fn behind_a_record_that_is_not_taken_all_others_are_one() {
    let mut hand = Hand::default();
    for first in (1..40_001).step_by(20) {
        hand.push(work(first, 10, true), |_| {});
    }
    (1..20_000).for_each(|number| _ = hand.fate(number, Fate::Delivered));
    assert_eq!(hand.settle(false).count(), 0);
    assert_eq!((hand.works.len(), hand.records.len(), hand.behind.len()), (2, 0, 1));
    assert_eq!(hand.record(0).unwrap().seq, 2);
    hand.fate(0, Fate::Delivered);
    let settled: Vec<_> = hand.settle(false).collect();
    assert_eq!(settled.last().unwrap().standing, at(40_001));
    assert_eq!(settled.iter().map(|settled| settled.totals.delivered).sum::<u64>(), 20_000);
}
