//! The fates of a batch's records, until they are settled.
//!
//! Records get their fates out of order: a receiver may take the third and not the second. What is
//! settled is always a stretch of them from the first on, with all that gathering counted along it.

use std::sync::Arc;

use crate::{
    bridge::{gather::Mark, progress::Settled},
    journal::{DeadLetter, Resume},
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

    /// Settles what lies between two marks, all of which has its fate; `resumes` are the work's.
    pub(super) fn settle(
        &mut self,
        from: Mark,
        to: Mark,
        resumes: &[(Arc<str>, Resume)],
        settled: &mut Settled,
    ) {
        settled.position = to.position;
        settled.held = to.held;
        settled.first_held = to.first_held;
        settled.resumes.extend_from_slice(&resumes[from.resumes..to.resumes]);
        let totals = &mut settled.totals;
        totals.filtered += to.filtered - from.filtered;
        totals.correlated_away += to.correlated_away - from.correlated_away;
        totals.lost += to.lost - from.lost;
        totals.delivered += to.delivered_before - from.delivered_before;
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
