//! A caller of delivery that looks on: the order of each key, one fate for each ticket.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use crate::bridge::{
    EventFate, Failure, FailureClass, Outcome, RefusedClass, RetryOptions, Secrets,
    delivery::{Delivery, DeliveryOptions, FIRST_ERRAND, Fate, Fated, Number, Ticket},
};

pub(super) fn options(lanes: usize, batch_events: usize) -> DeliveryOptions {
    let retry = RetryOptions::default();
    DeliveryOptions { lanes, batch_events, batch_bytes: 1 << 20, retry }
}

pub(super) fn failure(class: FailureClass) -> Failure {
    Failure::new(class, Secrets::none().reason("no"))
}

pub(super) fn failed(class: FailureClass) -> Outcome {
    Outcome::Failed(failure(class))
}

pub(super) fn invalid() -> Failure {
    failure(FailureClass::Refused(RefusedClass::Invalid))
}

/// Answers of the batch, one by one: `d`elivered, d`u`plicate, `r`etry, `n`o.
pub(super) fn each(answers: &str) -> Outcome {
    let fate = |answer| match answer {
        'd' => EventFate::Delivered,
        'u' => EventFate::Duplicate,
        'r' => EventFate::Failed(failure(FailureClass::Unavailable)),
        _ => EventFate::Failed(invalid()),
    };
    Outcome::PerEvent(answers.chars().map(fate).collect())
}

/// See the [module](self).
pub(super) struct Caller {
    pub(super) delivery: Delivery,
    pub(super) now: u64,
    tickets: BTreeMap<Number, Ticket>,
    pub(super) fates: BTreeMap<Number, Fate>,
    /// Errands that nobody waits for.
    cancelled: BTreeSet<Number>,
    /// The tickets that each lane has under way.
    pub(super) sent: BTreeMap<usize, Vec<Number>>,
}

impl Caller {
    pub(super) fn new(options: DeliveryOptions) -> Self {
        Self {
            delivery: Delivery::new(options, 1, 7),
            now: 0,
            tickets: BTreeMap::new(),
            fates: BTreeMap::new(),
            cancelled: BTreeSet::new(),
            sent: BTreeMap::new(),
        }
    }

    /// Pushes a record of a key.
    pub(super) fn push(&mut self, key: u64) -> Number {
        let ticket = Ticket { key, bytes: 1000 };
        let number = self.delivery.push(ticket);
        self.tickets.insert(number, ticket);
        number
    }

    pub(super) fn push_all(&mut self, keys: impl IntoIterator<Item = u64>) {
        for key in keys {
            self.push(key);
        }
    }

    pub(super) fn push_errand(&mut self, key: u64) -> Number {
        let ticket = Ticket { key, bytes: 1000 };
        let number = self.delivery.push_errand(ticket);
        assert!(number >= FIRST_ERRAND);
        self.tickets.insert(number, ticket);
        number
    }

    /// Cancels an errand that has no fate, if there is one.
    pub(super) fn cancel(&mut self, at: prop::sample::Index) {
        let open =
            |number: &&Number| !self.fates.contains_key(number) && !self.cancelled.contains(number);
        let errands = self.tickets.range(FIRST_ERRAND..).map(|(number, _)| number);
        let errands: Vec<Number> = errands.filter(open).copied().collect();
        if !errands.is_empty() {
            let number = errands[at.index(errands.len())];
            self.delivery.cancel_errand(number);
            self.cancelled.insert(number);
        }
    }

    /// Sends all that can be sent now, and answers what is new.
    pub(super) fn send(&mut self) -> Vec<(usize, Vec<Number>)> {
        let mut new = Vec::new();
        while let Some(lane) = self.delivery.next_send(self.now) {
            let tickets = self.delivery.tickets(lane).to_vec();
            assert!(!tickets.is_empty());
            self.look_at(&tickets);
            assert!(self.sent.insert(lane, tickets.clone()).is_none(), "lane {lane} is taken");
            new.push((lane, tickets));
        }
        new
    }

    /// Tickets that are sent overtake nothing of their keys.
    fn look_at(&self, tickets: &[Number]) {
        let live = tickets.iter().filter(|number| **number < FIRST_ERRAND);
        for (at, number) in tickets.iter().enumerate() {
            assert!(!self.fates.contains_key(number), "{number} has a fate");
            assert!(!self.cancelled.contains(number), "{number} is cancelled");
            assert!(!tickets[..at].contains(number));
            let key = self.tickets[number].key;
            let under_way = self.sent.values().flatten();
            for other in under_way {
                assert_ne!(self.tickets[other].key, key, "{number} and {other} are under way");
            }
        }
        for number in live {
            let key = self.tickets[number].key;
            for (before, ticket) in self.tickets.range(..number) {
                let open = ticket.key == key && !self.fates.contains_key(before);
                assert!(!open || tickets.contains(before), "{number} overtakes {before}");
            }
        }
        let mut of_key = BTreeMap::new();
        for number in tickets.iter().filter(|number| **number < FIRST_ERRAND) {
            let last = of_key.insert(self.tickets[number].key, number);
            assert!(last.is_none_or(|last| last < number), "{tickets:?}");
        }
    }

    pub(super) fn answer(&mut self, lane: usize, outcome: Outcome) {
        assert!(self.sent.remove(&lane).is_some());
        self.delivery.answered(lane, outcome, self.now);
        for Fated { tickets, fate } in self.delivery.take_fates() {
            for number in tickets {
                assert_eq!(self.fates.insert(number, fate.clone()), None, "a second fate");
            }
        }
    }

    /// Answers that all is taken until nothing is left.
    pub(super) fn drain(&mut self) {
        loop {
            self.send();
            if let Some(lane) = self.sent.keys().next().copied() {
                self.answer(lane, Outcome::Delivered);
            } else if let Some(wake) = self.delivery.wake_at() {
                assert!(wake > self.now, "{wake} is not after {}", self.now);
                self.now = wake;
            } else {
                break;
            }
        }
        self.tickets.retain(|number, _| !self.cancelled.contains(number));
        assert!(self.tickets.keys().all(|number| self.fates.contains_key(number)));
    }

    pub(super) fn fate(&self, number: Number) -> Option<&Fate> {
        self.fates.get(&number)
    }
}
