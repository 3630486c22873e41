//! The fates of a batch's records, until they are settled.
//!
//! Records get their fates out of order: a receiver may take the third and not the second. What is
//! settled is always a stretch of them from the first on, with all that gathering counted along it.

use crate::{
    bridge::{
        gather::{Mark, Work},
        progress::Settled,
    },
    journal::DeadLetter,
};

/// What became of one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// Nothing yet.
    Open,
    Delivered,
    /// Delivered, which it had been in an earlier run.
    Redelivered,
    DeadLettered,
}

/// See the [module](self). A record is known by its place in the batch.
#[derive(Debug)]
pub(super) struct Fates {
    of: Vec<Fate>,
    /// Each with the place of its record, or of the first of those that it stands for.
    letters: Vec<(usize, DeadLetter)>,
}

impl Fates {
    pub(super) fn new(records: usize) -> Self {
        Self { of: vec![Fate::Open; records], letters: Vec::new() }
    }

    pub(super) fn set(&mut self, place: usize, fate: Fate) {
        self.of[place] = fate;
    }

    pub(super) fn dead_letter(&mut self, place: usize, letter: DeadLetter) {
        self.letters.push((place, letter));
    }

    /// How many records from the first on have their fates.
    pub(super) fn answered(&self) -> usize {
        self.of.iter().position(|fate| *fate == Fate::Open).unwrap_or(self.of.len())
    }

    /// Settles what lies between two marks of a work, all of which has its fate.
    pub(super) fn settle(&mut self, from: Mark, to: Mark, work: &Work, settled: &mut Settled) {
        settled.resumes.extend_from_slice(&work.resumes[from.resumes..to.resumes]);
        settled.inputs.merge(&work.inputs, from.inputs..to.inputs);
        settled.read_bytes = to.reached.read_bytes;
        let (before, reached) = (from.reached, to.reached);
        settled.standing = reached.standing;
        let totals = &mut settled.totals;
        totals.filtered += reached.filtered - before.filtered;
        totals.correlated_away += reached.correlated_away - before.correlated_away;
        totals.lost += reached.lost - before.lost;
        totals.delivered += reached.delivered_before - before.delivered_before;
        for fate in &self.of[from.at..to.at] {
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
        for (place, mut letter) in std::mem::take(&mut self.letters) {
            if place >= to.at {
                self.letters.push((place, letter));
                continue;
            }
            // One letter for several may stand for some on the other side, too.
            let here = (to.at - place) as u64;
            if letter.unidentified > here {
                let unidentified = letter.unidentified - here;
                self.letters.push((to.at, DeadLetter { unidentified, ..letter.clone() }));
                letter.unidentified = here;
            }
            settled.dead_letters.push(letter);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::journal::{LetterState, Resume};

    fn letter(seq: usize, unidentified: u64) -> DeadLetter {
        DeadLetter {
            number: 0,
            state: LetterState::Kept,
            forward: None,
            sink: "a".to_owned(),
            seq: seq as u64,
            id: String::new(),
            class: String::new(),
            reason: String::new(),
            attempts: 1,
            first_ms: 0,
            time_ms: 0,
            unidentified,
            envelope: bytes::Bytes::new(),
        }
    }

    fn fate() -> impl Strategy<Value = Fate> {
        prop_oneof![
            4 => Just(Fate::Delivered),
            1 => Just(Fate::Redelivered),
            2 => Just(Fate::DeadLettered),
        ]
    }

    /// Fates with a letter for each that is dead-lettered: one by one, or one for a row of them.
    fn fates(of: &[Fate], in_rows: bool) -> Fates {
        let mut fates = Fates::new(of.len());
        let mut place = 0;
        while place < of.len() {
            let row = of[place..].iter().take_while(|fate| **fate == Fate::DeadLettered).count();
            if in_rows && row > 0 {
                fates.dead_letter(place, letter(place, row as u64));
            }
            let taken = if in_rows { row.max(1) } else { 1 };
            for (place, fate) in of.iter().enumerate().skip(place).take(taken) {
                fates.set(place, *fate);
                if !in_rows && *fate == Fate::DeadLettered {
                    fates.dead_letter(place, letter(place, 0));
                }
            }
            place += taken;
        }
        fates
    }

    fn letters(settled: &Settled) -> u64 {
        settled.dead_letters.iter().map(|letter| letter.unidentified.max(1)).sum()
    }

    proptest! {
        #[test]
        fn two_stretches_come_to_what_the_whole_comes_to(
            of in prop::collection::vec(fate(), 1..30),
            in_rows in any::<bool>(),
            at in any::<prop::sample::Index>(),
        ) {
            let resume = |version| ("*".into(), Resume { epoch: 0, resource_version: version });
            let mut work = Work { resumes: vec![resume(1), resume(2)], ..Work::default() };
            (1..=5).for_each(|seq| work.inputs.push(seq, [7; 89]));
            let at = at.index(of.len() + 1);
            let mut mark = Mark { at, resumes: 1, inputs: 3, ..Mark::default() };
            (mark.reached.filtered, mark.reached.lost) = (3, 1);
            let mut end = Mark { at: of.len(), resumes: 2, inputs: 5, ..mark };
            (end.reached.filtered, end.reached.correlated_away) = (5, 2);
            let (mut whole, mut in_two) = (Settled::default(), Settled::default());
            fates(&of, in_rows).settle(Mark::default(), end, &work, &mut whole);
            let mut halves = fates(&of, in_rows);
            halves.settle(Mark::default(), mark, &work, &mut in_two);
            let refused = of[..at].iter().filter(|fate| **fate == Fate::DeadLettered).count();
            prop_assert_eq!(in_two.totals.dead_lettered, refused as u64);
            prop_assert_eq!(letters(&in_two), refused as u64);
            let resumes = in_two.resumes.len();
            prop_assert_eq!((in_two.totals.filtered, resumes, in_two.inputs.len()), (3, 1, 3));
            halves.settle(mark, end, &work, &mut in_two);
            prop_assert_eq!(in_two.totals, whole.totals);
            prop_assert_eq!(letters(&in_two), in_two.totals.dead_lettered);
            prop_assert_eq!(letters(&whole), whole.totals.dead_lettered);
            prop_assert_eq!(in_two.resumes, whole.resumes);
            prop_assert_eq!(&in_two.inputs, &work.inputs);
            prop_assert_eq!(in_two.inputs, whole.inputs);
        }
    }

    #[test]
    fn what_was_taken_out_of_order_is_not_answered() {
        let mut fates = Fates::new(3);
        fates.set(0, Fate::Delivered);
        fates.set(2, Fate::Delivered);
        assert_eq!(fates.answered(), 1);
        fates.set(1, Fate::DeadLettered);
        assert_eq!(fates.answered(), 3);
    }
}
