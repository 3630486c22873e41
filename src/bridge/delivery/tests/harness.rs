//! A caller of delivery that looks on: the order of each key, one fate for each ticket.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use crate::bridge::{
    EventFate, Failure, FailureClass, Fault, Outcome, RefusedClass, RetryOptions, Secrets, Status,
    delivery::{
        Delivery, DeliveryOptions, FIRST_ERRAND, Fate, Fated, Kind, Notice, Number, Ticket,
    },
};

pub(super) fn options(lanes: usize, batch_events: usize) -> DeliveryOptions {
    let retry = RetryOptions::default();
    DeliveryOptions { lanes, batch_events, batch_bytes: 1 << 20, retry, copied_bytes: 1 << 27 }
}

pub(super) fn failure(class: FailureClass) -> Failure {
    Failure::new(class, Secrets::none().reason("no"))
}

pub(super) fn http(class: FailureClass, fault: Fault, code: u16) -> Failure {
    Failure { fault, status: Status::Http(code), ..failure(class) }
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
    /// A key is of the namespace, and has the destination, that is its remainder by these.
    pub(super) namespaces: u64,
    pub(super) destinations: u64,
    tickets: BTreeMap<Number, Ticket>,
    pub(super) fates: BTreeMap<Number, Fate>,
    /// Errands that nobody waits for.
    cancelled: BTreeSet<Number>,
    /// What is saved as copies.
    pub(super) copied: BTreeSet<Number>,
    /// What each lane has under way.
    pub(super) sent: BTreeMap<usize, Vec<Number>>,
}

impl Caller {
    pub(super) fn new(options: DeliveryOptions) -> Self {
        Self {
            delivery: Delivery::new(options, 1, 7),
            now: 0,
            namespaces: u64::MAX,
            destinations: 1,
            tickets: BTreeMap::new(),
            fates: BTreeMap::new(),
            cancelled: BTreeSet::new(),
            copied: BTreeSet::new(),
            sent: BTreeMap::new(),
        }
    }

    fn ticket(&self, key: u64) -> Ticket {
        let (namespace, destination) = (key % self.namespaces, key % self.destinations);
        Ticket { key, namespace, destination, bytes: 1000 }
    }

    pub(super) fn push(&mut self, key: u64) -> Number {
        let ticket = self.ticket(key);
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
        let ticket = self.ticket(key);
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
        assert_eq!(self.delivery.under_way(), self.sent.len());
        self.take_notices();
        new
    }

    /// What is sent overtakes nothing of its keys.
    fn look_at(&self, tickets: &[Number]) {
        let live = tickets.iter().filter(|number| **number < FIRST_ERRAND);
        for (at, number) in tickets.iter().enumerate() {
            assert!(!self.fates.contains_key(number), "{number} has a fate");
            assert!(!self.cancelled.contains(number), "{number} is cancelled");
            assert!(!tickets[..at].contains(number));
            let key = self.tickets[number].key;
            let under_way = self.sent.values().flatten();
            // An errand does not wait for what waits beside the lanes.
            let Delivery { keys, options, .. } = &self.delivery;
            let beside = keys.line(key).is_some_and(|line| line >= options.lanes);
            let errand = |number: &Number| *number >= FIRST_ERRAND;
            for other in under_way.filter(|other| !beside || errand(other) == errand(number)) {
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
        self.take_fates();
    }

    /// Puts the head away, or makes room.
    pub(super) fn put_away(&mut self, by_hand: bool) {
        let head = self.delivery.settled();
        if by_hand && self.tickets.contains_key(&head) {
            let under_way = self.sent.values().flatten().any(|number| *number == head);
            assert!(!(self.delivery.put_away(head, self.now) && under_way));
        } else if !by_hand {
            self.delivery.relieve(self.now);
        }
        self.take_fates();
    }

    fn take_fates(&mut self) {
        for Fated { tickets, fate } in self.delivery.take_fates() {
            for number in tickets {
                assert_eq!(self.fates.insert(number, fate.clone()), None, "a second fate");
            }
        }
        self.look_at_settled();
    }

    fn take_notices(&mut self) {
        for notice in self.delivery.take_notices() {
            if let Notice::SetAside(number) = notice {
                assert!(self.copied.insert(number), "{number} is copied twice");
            }
        }
    }

    /// Each record that a line has is counted with its key.
    fn look_at_keys(&self) {
        let Delivery { keys, lines, .. } = &self.delivery;
        let mut counts: BTreeMap<u64, u32> = BTreeMap::new();
        for line in lines.iter().filter(|_| keys.are_kept()) {
            let pieces = line.pieces.iter().chain(&line.failed_parts);
            let mut numbers: Vec<Number> = pieces.flat_map(|piece| piece.tickets.clone()).collect();
            let waits =
                |number: &&Number| **number < FIRST_ERRAND || !matches!(line.kind, Kind::Errands);
            numbers.extend(line.backlog.iter().filter(waits));
            numbers.extend(line.witness.iter().flat_map(|witness| witness.ticket));
            if let Kind::Shelf(_, shelf) = &line.kind {
                numbers = shelf.objects().flat_map(|(_, aside)| aside.tickets.clone()).collect();
            }
            for number in numbers {
                *counts.entry(self.delivery.ticket(number).key).or_default() += 1;
            }
        }
        for (key, count) in counts {
            assert!(keys.records(key) >= count, "key {key}: {} of {count}", keys.records(key));
        }
    }

    fn look_at_settled(&mut self) {
        self.take_notices();
        self.look_at_keys();
        let settled = self.delivery.settled();
        let live = self.tickets.range(..FIRST_ERRAND).map(|(number, _)| *number);
        let behind: Vec<_> = self.delivery.settled_behind().collect();
        assert!(behind.windows(2).all(|pair| pair[0].end < pair[1].start), "{behind:?}");
        for number in live {
            let said = number < settled || behind.iter().any(|range| range.contains(&number));
            let passed = self.fates.contains_key(&number) || self.copied.contains(&number);
            assert_eq!(said, passed, "{number} of {settled} {behind:?}");
        }
    }

    /// Answers that all is taken until nothing is left.
    pub(super) fn drain(&mut self) {
        for turn in 0.. {
            assert!(turn < 10_000, "it never ends: {:#?}", self.delivery);
            self.send();
            if let Some(lane) = self.sent.keys().next().copied() {
                self.answer(lane, Outcome::Delivered);
            } else if let Some(wake) = self.delivery.wake_at() {
                assert!(wake > self.now, "{wake} is not after {}: {:#?}", self.now, self.delivery);
                self.now = wake;
            } else {
                break;
            }
        }
        self.tickets.retain(|number, _| !self.cancelled.contains(number));
        let open = |number: &&Number| !self.fates.contains_key(number);
        let open: Vec<_> = self.tickets.keys().filter(open).collect();
        assert!(open.is_empty(), "{open:?} have no fate: {:#?}", self.delivery);
    }

    pub(super) fn fate(&self, number: Number) -> Option<&Fate> {
        self.fates.get(&number)
    }
}
