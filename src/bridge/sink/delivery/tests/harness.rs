//! A caller of delivery that looks on: the order of each key, one fate for each ticket.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use crate::bridge::{
    EventFate, Failure, FailureClass, Fault, Outcome, RefusedClass, RetryOptions, Secrets, Status,
    sink::delivery::{
        DeadLetterClass, Delivery, DeliveryOptions, FIRST_RESEND, Fate, Fated, Kind, Notice,
        Number, Ticket,
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

pub(super) fn broken() -> Failure {
    http(FailureClass::Unavailable, Fault::RecordForNow, 500)
}

pub(super) fn silence() -> Failure {
    let silence = failure(FailureClass::Timeout);
    Failure { fault: Fault::RecordForNow, status: Status::Silence, ..silence }
}

pub(super) fn failed(class: FailureClass) -> Outcome {
    Outcome::Failed(failure(class))
}

pub(super) fn invalid() -> Failure {
    failure(FailureClass::Refused(RefusedClass::Invalid))
}

pub(super) fn forbidden() -> Failure {
    http(FailureClass::Misconfigured, Fault::RecordForGood, 403)
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

/// Sends for so long, with an answer to each batch: a failure if it has any of these records.
pub(super) fn run(caller: &mut Caller, millis: u64, culprits: &[Number], failure: &Failure) {
    run_in_turns(caller, millis, culprits, &mut std::iter::repeat(failure));
}

/// The same, with another failure each time.
pub(super) fn run_in_turns<'a>(
    caller: &mut Caller,
    millis: u64,
    culprits: &[Number],
    failures: &mut impl Iterator<Item = &'a Failure>,
) {
    let until = caller.now + millis;
    while caller.now < until {
        for (line, sent) in caller.send() {
            let fails = sent.iter().any(|number| culprits.contains(number));
            let failed = fails.then(|| failures.next()).flatten().cloned();
            caller.answer(line, failed.map_or(Outcome::Delivered, Outcome::Failed));
        }
        caller.now += 50;
    }
}

/// Records of ten namespaces, and two of the first one that its receiver does not take.
pub(super) fn with_culprits(caller: &mut Caller) -> [Number; 2] {
    caller.namespaces = 10;
    caller.push_all(1..30);
    let culprits = [10, 20].map(|key| caller.push(key));
    caller.push_all(31..90);
    culprits
}

pub(super) fn class(caller: &Caller, number: Number) -> Option<DeadLetterClass> {
    match caller.fate(number) {
        Some(Fate::DeadLetter(letter)) => Some(letter.class),
        _ => None,
    }
}

/// A caller of delivery under test. See the [module](self).
pub(super) struct Caller {
    pub(super) delivery: Delivery,
    pub(super) now: u64,
    /// A key is of the namespace, and has the destination, that is its remainder by these.
    pub(super) namespaces: u64,
    pub(super) destinations: u64,
    tickets: BTreeMap<Number, Ticket>,
    pub(super) fates: BTreeMap<Number, Fate>,
    /// Resends that nobody waits for.
    cancelled: BTreeSet<Number>,
    /// Resends that were sent while others of their keys waited beside the lanes.
    beside: BTreeSet<Number>,
    /// Records that are saved as copies.
    pub(super) copied: BTreeSet<Number>,
    /// The records that each lane has under way.
    pub(super) sent: BTreeMap<usize, Vec<Number>>,
}

impl Caller {
    pub(super) fn new(options: DeliveryOptions) -> Self {
        Self::after(options, 0)
    }

    /// One for a run that begins with so many copies, which are to be [pushed](Self::push_copy) first.
    pub(super) fn after(options: DeliveryOptions, copies: u64) -> Self {
        Self {
            delivery: Delivery::new(options, 1 + copies, 7),
            now: 0,
            namespaces: u64::MAX,
            destinations: 1,
            tickets: BTreeMap::new(),
            fates: BTreeMap::new(),
            cancelled: BTreeSet::new(),
            beside: BTreeSet::new(),
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

    /// Pushes a record that an earlier run has set aside.
    pub(super) fn push_copy(&mut self, key: u64) -> Number {
        let ticket = self.ticket(key);
        let number = self.delivery.push_set_aside(ticket);
        self.tickets.insert(number, ticket);
        self.copied.insert(number);
        number
    }

    pub(super) fn push_resend(&mut self, key: u64) -> Number {
        let ticket = self.ticket(key);
        let number = self.delivery.push_resend(ticket);
        assert!(number >= FIRST_RESEND);
        self.tickets.insert(number, ticket);
        number
    }

    /// Cancels a resend that has no fate, if there is one.
    pub(super) fn cancel(&mut self, at: prop::sample::Index) {
        let open =
            |number: &&Number| !self.fates.contains_key(number) && !self.cancelled.contains(number);
        let resends = self.tickets.range(FIRST_RESEND..).map(|(number, _)| number);
        let resends: Vec<Number> = resends.filter(open).copied().collect();
        if !resends.is_empty() {
            let number = resends[at.index(resends.len())];
            self.delivery.cancel_resend(number);
            self.cancelled.insert(number);
        }
    }

    /// The receiver says which destinations it has. Answers whether all that waits is for these from now on.
    pub(super) fn relocate(&mut self, destinations: u64) -> bool {
        self.destinations = destinations;
        let tickets = &self.tickets;
        self.delivery.relocate(|number| Some(tickets[&number].key % destinations))
    }

    /// Sends all that can be sent now, and answers what is new.
    pub(super) fn send(&mut self) -> Vec<(usize, Vec<Number>)> {
        self.bring_back();
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

    /// Reads again what was left in the log and has room. What is asked for last is there first.
    fn bring_back(&mut self) {
        let mut wanted = self.delivery.take_wanted();
        while !wanted.is_empty() {
            for number in wanted.into_iter().rev() {
                self.delivery.bring_back(number, Some(self.tickets[&number]));
            }
            wanted = self.delivery.take_wanted();
        }
    }

    /// Asserts that what is sent overtakes nothing of its keys.
    fn look_at(&mut self, tickets: &[Number]) {
        let live = tickets.iter().filter(|number| **number < FIRST_RESEND);
        for (at, number) in tickets.iter().enumerate() {
            assert!(!self.fates.contains_key(number), "{number} has a fate");
            assert!(!self.cancelled.contains(number), "{number} is cancelled");
            assert!(!tickets[..at].contains(number));
            let key = self.tickets[number].key;
            let under_way = self.sent.values().flatten();
            // A resend does not wait for what waits beside the lanes.
            let Delivery { keys, options, .. } = &self.delivery;
            let line = keys.line(self.delivery.ticket(*number).key);
            let beside = line.is_some_and(|line| line >= options.lanes);
            let resend = |number: &Number| *number >= FIRST_RESEND;
            if beside && resend(number) {
                self.beside.insert(*number);
            }
            let apart = |other: &&Number| {
                resend(other) != resend(number)
                    && (beside || self.beside.contains(number) || self.beside.contains(other))
            };
            for other in under_way.filter(|other| !apart(other)) {
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
        for number in tickets.iter().filter(|number| **number < FIRST_RESEND) {
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
            let passed = self.fates.range(head..FIRST_RESEND).count() as u64;
            self.delivery.relieve(passed, self.now);
        }
        self.take_fates();
    }

    pub(super) fn take_fates(&mut self) {
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
            let waits = |number: &&Number| {
                **number < FIRST_RESEND || !matches!(line.kind, Kind::Resends(_))
            };
            numbers.extend(line.backlog.iter().filter(waits));
            let witness = line.witness.filter(|witness| !witness.from_line);
            numbers.extend(witness.iter().flat_map(|witness| witness.ticket));
            if let Kind::Shelf(_, shelf) = &line.kind {
                numbers = shelf.objects().flat_map(|(_, aside)| aside.tickets.clone()).collect();
            }
            let counted = |number: &Number| !self.delivery.uncounted.contains(number);
            for number in numbers.into_iter().filter(counted) {
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
        let live = self.tickets.range(..FIRST_RESEND).map(|(number, _)| *number);
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
