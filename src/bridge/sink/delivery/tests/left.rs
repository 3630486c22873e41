//! Records that are left in the log: those behind them are delivered, order holds, and few tickets are kept.

use std::collections::HashMap;

use super::harness::{Caller, broken, failure, http, options, run};
use crate::bridge::{
    FailureClass, Fault, Outcome,
    sink::delivery::{
        Delivery, DeliveryOptions, Fate, Number, Ticket, Trouble, returned::RETURNED,
    },
};

/// Objects by numbers, so many in a row of some namespaces, and behind them those of another one.
struct Flood {
    delivery: Delivery,
    namespaces: Number,
    length: Number,
    more: Number,
    /// Whether a record is of one of two more.
    of_two: fn(Number) -> bool,
    pushed: Number,
    now: u64,
    /// The last number that was taken of each object.
    taken: HashMap<u64, Number>,
}

/// The namespace behind the flood.
const BEHIND: u64 = 99;
/// The two namespaces in the midst of it.
const TWO: [u64; 2] = [97, 98];
/// So many records of the one behind there are.
const MORE: Number = 100;
const HOUR: u64 = 3_600_000;

impl Flood {
    fn new(lanes: usize, length: Number) -> Self {
        let options = DeliveryOptions { batch_bytes: 4000, ..options(lanes, 20) };
        let mut delivery = Delivery::new(options, 1, 7);
        delivery.most_waiting = 1 << 15;
        Self {
            delivery,
            namespaces: 6,
            length,
            more: MORE,
            of_two: |_| false,
            pushed: 0,
            now: 0,
            taken: HashMap::new(),
        }
    }

    fn ticket(&self, number: Number) -> Ticket {
        let key = 1 + number % 1000;
        if (self.of_two)(number) {
            let of = (number % 2) as usize;
            let key = 20_000 + 2 * key + of as u64;
            return Ticket { key, namespace: TWO[of], destination: 0, bytes: 1000 };
        }
        let of = number % self.namespaces;
        let namespace = if number > self.length { BEHIND } else { 1000 + of };
        let key = if number > self.length { key } else { 100_000 + key * self.namespaces + of };
        Ticket { key, namespace, destination: 0, bytes: 1000 }
    }

    /// Half a second, in which a receiver fails with records of some namespaces.
    fn pass(&mut self, fails: impl Fn(u64) -> bool) {
        let end = self.length + self.more;
        while self.pushed < end && self.delivery.has_room() {
            self.pushed = self.delivery.push(self.ticket(self.pushed + 1));
        }
        for number in self.delivery.take_wanted() {
            let ticket = self.ticket(number);
            self.delivery.bring_back(number, Some(ticket));
        }
        while let Some(line) = self.delivery.next_send(self.now) {
            let sent = self.delivery.tickets(line).to_vec();
            let failure = http(FailureClass::Unavailable, Fault::RecordForNow, 500);
            let outcome = if sent.iter().any(|number| fails(self.ticket(*number).namespace)) {
                Outcome::Failed(failure)
            } else {
                for number in sent {
                    let before = self.taken.insert(self.ticket(number).key, number);
                    assert!(before.is_none_or(|before| before < number), "{number} is late");
                }
                Outcome::Delivered
            };
            self.delivery.answered(line, outcome, self.now);
        }
        self.now += 500;
        let kept = self.delivery.live.kept();
        assert!(kept < 150_000, "{kept} tickets are kept of {}", self.pushed);
    }
}

#[test]
fn records_that_fail_in_any_number_stop_nobody_behind_them() {
    let length = 100_000;
    let mut flood = Flood::new(8, length);
    while flood.taken.values().filter(|number| **number > length).count() < MORE as usize {
        assert!(flood.now < HOUR, "{} are in hand, and no more is read", flood.pushed);
        flood.pass(|namespace| namespace != BEHIND);
    }
    let until = flood.now + 10 * HOUR;
    while flood.delivery.has_live() {
        assert!(flood.now < until, "{} is never sent", flood.delivery.settled());
        flood.pass(|_| false);
    }
    let fates = flood.delivery.take_fates();
    let fates: u64 = fates.map(|fated| fated.tickets.end - fated.tickets.start).sum();
    assert_eq!(fates, length + MORE);
}

#[test]
fn few_tickets_are_kept_where_many_namespaces_fail() {
    let length = 120_000;
    let mut flood = Flood { namespaces: 80, ..Flood::new(8, length) };
    flood.delivery.most_waiting = 1 << 16;
    while flood.pushed < length + MORE || flood.delivery.has_live() {
        let settled = flood.delivery.settled();
        assert!(flood.now < 20 * HOUR, "{settled} is in the way of {}", flood.pushed);
        let mends = flood.now > HOUR / 12;
        flood.pass(|namespace| namespace != BEHIND && !mends);
        let waiting = flood.delivery.live.waiting_in_all();
        assert!(waiting < 90_000, "{waiting} wait of {}", flood.pushed);
    }
}

#[test]
fn records_that_were_left_go_on_where_all_before_them_fail() {
    let length = 100_000;
    let mut flood = Flood {
        of_two: |number| (25_000..40_000).contains(&number),
        more: 0,
        ..Flood::new(1, length)
    };
    while flood.pushed < length {
        assert!(flood.now < HOUR, "{} are in hand, and no more is read", flood.pushed);
        flood.pass(|_| true);
    }
    let until = flood.now + HOUR;
    // Of 3 000 objects each has one among the last 3 000.
    let last = |flood: &Flood| flood.taken.values().filter(|number| **number > 97_000).count();
    while last(&flood) < 3000 {
        assert!(flood.now < until, "{} is in the way", flood.delivery.settled());
        flood.pass(|namespace| TWO.contains(&namespace));
    }
}

#[test]
fn room_is_made_where_all_that_is_left_is_of_two_namespaces_that_fail() {
    let length = 1000;
    let mut flood =
        Flood { of_two: |number| number > 600 || number % 3 > 0, ..Flood::new(8, length) };
    flood.delivery.most_waiting = 64;
    while flood.pushed < length + MORE || flood.delivery.has_live() {
        let settled = flood.delivery.settled();
        assert!(flood.now < 10 * HOUR, "{settled} is in the way of {}", flood.pushed);
        flood.pass(|namespace| TWO.contains(&namespace));
        flood.delivery.relieve(0, flood.now);
    }
}

#[test]
fn nothing_is_decided_where_all_fail_and_few_tickets_are_kept() {
    let length = 200_000;
    let mut flood = Flood::new(2, length);
    while flood.pushed < length + MORE {
        assert!(flood.now < HOUR, "{} are in hand, and no more is read", flood.pushed);
        flood.pass(|_| true);
    }
    let Flood { mut delivery, .. } = flood;
    assert!(delivery.take_fates().next().is_none());
    assert_eq!((delivery.lines.len(), delivery.settled()), (2, 1), "no queue is opened");
    assert!(matches!(delivery.trouble(), Trouble::Retrying(_)));
}

#[test]
fn nothing_is_read_back_where_the_program_ends() {
    let mut flood = Flood::new(1, 10_000);
    flood.delivery.most_waiting = 64;
    while flood.delivery.live.left().is_empty() {
        flood.pass(|namespace| namespace == 1001);
    }
    flood.delivery.recalls = true;
    flood.delivery.most_waiting = 10_000;
    flood.delivery.end_beside();
    assert!(flood.delivery.take_wanted().is_empty());
    flood.delivery.ending = false;
    assert!(!flood.delivery.take_wanted().is_empty());
}

#[test]
fn objects_of_the_only_namespace_are_not_left_behind_one_that_fails() {
    let mut caller = Caller::new(DeliveryOptions { copied_bytes: 0, ..options(2, 10) });
    caller.namespaces = 1;
    caller.delivery.most_waiting = 16;
    let (mut culprits, mut others) = (Vec::new(), Vec::new());
    for key in 0..200 {
        culprits.push(caller.push(7));
        others.push(caller.push(10 + key));
        run(&mut caller, 1000, &culprits, &broken());
        assert!(caller.delivery.live.left().is_empty());
    }
    run(&mut caller, 60_000, &culprits, &broken());
    assert!(others.iter().all(|number| caller.fate(*number) == Some(&Fate::Delivered)));
}

/// A namespace has more set aside than is kept of it, and no queue. Answers a caller, and the culprits.
fn shelved() -> (Caller, Vec<Number>) {
    let options = DeliveryOptions { copied_bytes: 0, batch_bytes: 4000, ..options(1, 20) };
    let mut caller = Caller::new(options);
    caller.namespaces = 10;
    caller.delivery.most_waiting = 16;
    let mut culprits = vec![caller.push(11)];
    for _ in 0..200 {
        caller.push(13);
        run(&mut caller, 5_000, &culprits, &broken());
        if culprits.len() < 16 {
            culprits.push(caller.push(11));
        }
    }
    // The receiver is away until the probation is over.
    run(&mut caller, 700_000, &culprits, &failure(FailureClass::Unavailable));
    assert!(caller.delivery.queues.is_empty() && caller.delivery.shelves.len() == 1);
    (caller, culprits)
}

#[test]
fn records_that_are_left_behind_what_is_set_aside_are_held_up() {
    let (mut caller, culprits) = shelved();
    caller.push_all([21, 31, 41]);
    assert_eq!(caller.delivery.live.left().numbers().len(), 3);
    let held: usize = caller.delivery.held(caller.now).map(|held| held.records).sum();
    assert_eq!(held, culprits.len() + 3);
}

#[test]
fn a_witness_is_drawn_from_all_that_came_back() {
    let mut delivery = Delivery::new(options(1, 20), 1, 7);
    delivery.watch();
    // Many have come back, and had their fates, before those that wait now.
    let waits = 100_000;
    let (mut last, of) = (0, |key| if key == 102_000 { 2 } else { 1 });
    for key in 1..=102_000 {
        let ticket = Ticket { key, namespace: of(key), destination: 0, bytes: 10 };
        last = delivery.push(ticket);
        delivery.keys.claim(&ticket, RETURNED);
        delivery.live.move_away(last);
        delivery.returned.push(key, last);
        if key <= waits {
            delivery.returned.take(key);
            delivery.live.close(last);
        }
    }
    delivery.fresh = last + 1;
    let fails = Ticket { key: 1, namespace: 3, destination: 0, bytes: 10 };
    let fails = [delivery.places.unit(&fails, false)];
    let mut drawn = [0; 2];
    for _ in 0..100 {
        assert!(delivery.draw_witness(0, &fails, false));
        let witness = delivery.lines[0].witness.take().expect("a witness is drawn");
        drawn[usize::from(witness.ticket == [last])] += 1;
        delivery.return_witness(0, witness);
    }
    assert!(drawn.iter().all(|times| *times > 10), "{drawn:?}");
}
