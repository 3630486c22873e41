//! Resends in hand: what is sent beside the journal's order, and who waits for it.

use std::{collections::HashSet, ops::Range};

use crate::{
    bridge::{
        Failure, Outcome,
        sink::{
            delivery::{Delivery, FIRST_RESEND, Fate, Number},
            resends::{Resend, ResendNews, Tally},
        },
    },
    event::Record,
};

/// See the [module](self). There are few.
#[derive(Debug, Default)]
pub(super) struct Resends {
    all: Vec<InHand>,
    /// The records of attempts under way.
    under_way: HashSet<Number>,
}

#[derive(Debug)]
struct InHand {
    resend: Resend,
    /// The number of its first record; the others follow.
    first: Number,
    left: usize,
    tally: Tally,
    /// Sent no more.
    cancelled: bool,
}

/// Those of the numbers that are of resends.
fn resends(numbers: &[Number]) -> impl Iterator<Item = Number> {
    numbers.iter().copied().filter(|number| *number >= FIRST_RESEND)
}

impl InHand {
    fn numbers(&self) -> Range<Number> {
        self.first..self.first + self.resend.records.len() as u64
    }

    fn tell(&self, news: ResendNews) {
        // Who waits no longer has ended the resend.
        let _ = self.resend.news.send(news);
    }
}

impl Resends {
    /// Takes a resend in hand, each of whose records is pushed.
    pub(super) fn push(&mut self, resend: Resend, mut push: impl FnMut(&Record) -> Number) {
        // It waited for its turn, and nobody waits for it any more.
        if resend.news.is_closed() {
            return;
        }
        let mut first = None;
        for record in &resend.records {
            let number = push(record);
            first.get_or_insert(number);
        }
        let Some(first) = first else { return };
        let left = resend.records.len();
        self.all.push(InHand { resend, first, left, tally: Tally::default(), cancelled: false });
    }

    /// A record of a resend.
    pub(super) fn record(&self, number: Number) -> Option<&Record> {
        let resend = self.all.iter().find(|resend| resend.numbers().contains(&number))?;
        resend.resend.records.get((number - resend.first) as usize)
    }

    /// Notes that an attempt begins with these.
    pub(super) fn begin(&mut self, numbers: &[Number]) {
        self.under_way.extend(resends(numbers));
    }

    /// Notes that it has ended.
    pub(super) fn end(&mut self, numbers: &[Number]) {
        for number in resends(numbers) {
            self.under_way.remove(&number);
        }
    }

    /// Has those sent no more that nobody waits for, or all of them. Who waits still hears of what is under way.
    pub(super) fn cancel(&mut self, delivery: &mut Delivery, all: bool) {
        let under_way = &self.under_way;
        self.all.retain_mut(|resend| {
            let unheard = resend.resend.news.is_closed();
            if (all || unheard) && !resend.cancelled {
                resend.cancelled = true;
                resend.numbers().for_each(|number| delivery.cancel_resend(number));
            }
            let is_under_way = || resend.numbers().any(|number| under_way.contains(&number));
            !resend.cancelled || !unheard && is_under_way()
        });
    }

    /// Tells those who wait for these why they wait on.
    pub(super) fn tell_failure(&self, numbers: &[Number], outcome: &Outcome) {
        let Some(Failure { reason, .. }) = outcome.failure(numbers.len()) else { return };
        for resend in &self.all {
            if numbers.iter().any(|number| resend.numbers().contains(number)) {
                resend.tell(ResendNews::Waits(reason.clone()));
            }
        }
    }

    /// Takes the fate of records in a row.
    pub(super) fn fated(&mut self, numbers: Range<Number>, fate: &Fate) {
        for number in numbers {
            let of = |resend: &InHand| resend.numbers().contains(&number);
            let Some(at) = self.all.iter().position(of) else { continue };
            let resend = &mut self.all[at];
            match fate {
                Fate::Delivered | Fate::Duplicate => resend.tally.delivered += 1,
                Fate::DeadLetter(letter) => {
                    resend.tally.refused += 1;
                    resend.tally.refusal = Some(letter.clone());
                }
            }
            resend.left -= 1;
            if resend.left == 0 {
                let resend = self.all.swap_remove(at);
                let tally = resend.tally.clone();
                resend.tell(ResendNews::Done(tally));
            }
        }
    }
}
