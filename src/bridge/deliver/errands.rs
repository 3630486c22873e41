//! Errands in hand: what is sent beside the journal's order, and who waits for it.

use std::ops::Range;

use crate::{
    bridge::{
        Failure, Outcome,
        delivery::{Delivery, Fate, Number},
        errands::{Errand, ErrandNews, Tally},
    },
    event::Record,
};

/// See the [module](self). There are few.
#[derive(Debug, Default)]
pub(super) struct Errands(Vec<InHand>);

#[derive(Debug)]
struct InHand {
    errand: Errand,
    /// The number of its first record; the others follow.
    first: Number,
    left: usize,
    tally: Tally,
}

impl InHand {
    fn numbers(&self) -> Range<Number> {
        self.first..self.first + self.errand.records.len() as u64
    }

    fn tell(&self, news: ErrandNews) {
        // Who waits no longer has ended the errand.
        let _ = self.errand.news.send(news);
    }
}

impl Errands {
    /// Takes an errand in hand, each of whose records is pushed.
    pub(super) fn push(&mut self, errand: Errand, mut push: impl FnMut(&Record) -> Number) {
        // It waited for its turn, and nobody waits for it any more.
        if errand.news.is_closed() {
            return;
        }
        let mut first = None;
        for record in &errand.records {
            let number = push(record);
            first.get_or_insert(number);
        }
        let Some(first) = first else { return };
        let left = errand.records.len();
        self.0.push(InHand { errand, first, left, tally: Tally::default() });
    }

    /// A record of an errand.
    pub(super) fn record(&self, number: Number) -> Option<&Record> {
        let errand = self.0.iter().find(|errand| errand.numbers().contains(&number))?;
        errand.errand.records.get((number - errand.first) as usize)
    }

    /// Has those sent no more that nobody waits for, or all of them.
    pub(super) fn cancel(&mut self, delivery: &mut Delivery, all: bool) {
        self.0.retain(|errand| {
            let ends = all || errand.errand.news.is_closed();
            if ends {
                errand.numbers().for_each(|number| delivery.cancel_errand(number));
            }
            !ends
        });
    }

    /// Tells those who wait for these why they wait on.
    pub(super) fn tell_failure(&self, numbers: &[Number], outcome: &Outcome) {
        let Some(Failure { reason, .. }) = outcome.failure(numbers.len()) else { return };
        for errand in &self.0 {
            if numbers.iter().any(|number| errand.numbers().contains(number)) {
                errand.tell(ErrandNews::Waits(reason.clone()));
            }
        }
    }

    /// Takes the fate of records in a row.
    pub(super) fn fated(&mut self, numbers: Range<Number>, fate: &Fate) {
        for number in numbers {
            let of = |errand: &InHand| errand.numbers().contains(&number);
            let Some(at) = self.0.iter().position(of) else { continue };
            let errand = &mut self.0[at];
            match fate {
                Fate::Delivered | Fate::Duplicate => errand.tally.delivered += 1,
                Fate::DeadLetter(letter) => {
                    errand.tally.refused += 1;
                    errand.tally.refusal = Some(letter.clone());
                }
            }
            errand.left -= 1;
            if errand.left == 0 {
                let errand = self.0.swap_remove(at);
                let tally = errand.tally.clone();
                errand.tell(ErrandNews::Done(tally));
            }
        }
    }
}
