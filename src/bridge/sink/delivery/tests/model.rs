//! A model of a sink: records arrive, a receiver with scripted faults answers, the bridge is killed and
//! starts again, and all of it in simulated time.
//!
//! The model looks on: the order of each object, one fate for each record, and what the receiver has against
//! what delivery says that it has.

mod receiver;
mod scenes;
mod table;

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap, HashMap},
};

use self::receiver::{Answered, Receiver};
use crate::bridge::{
    Outcome, RetryOptions,
    sink::delivery::{Delivery, DeliveryOptions, Fate, Fated, Notice, Number, Ticket},
};

/// A record that arrives.
#[derive(Clone, Copy, Debug)]
struct Record {
    at: u64,
    namespace: u64,
    object: u64,
    /// The receiver stumbles over what it holds.
    culprit: bool,
}

/// The shape of the sink and of what arrives.
#[derive(Clone, Copy, Debug)]
struct World {
    batch: usize,
    lanes: usize,
    latency: u64,
    retention: u64,
    destinations: Destinations,
    /// Times at which the bridge is killed.
    kills: &'static [u64],
    /// Of so many events of the model, the journal is found full at one, at random; 0: never.
    full_each: u64,
    seed: u64,
}

/// Where records go.
#[derive(Clone, Copy, Debug)]
enum Destinations {
    One,
    /// One for each namespace.
    ByNamespace,
    /// So many, by objects.
    ByObject(u64),
}

/// The fates of a run.
#[derive(Debug, Default)]
struct Report {
    delivered: usize,
    letters: Vec<usize>,
    /// Of these, those that made room in the journal.
    relieved: usize,
    open: Vec<usize>,
    /// Records that were set aside, ever and at the end.
    set_aside: usize,
    aside_at_end: usize,
    /// Records that the receiver took twice.
    redelivered: usize,
    /// The largest size of the copies.
    copied_bytes: u64,
    /// How long each record took that was taken.
    delays: HashMap<usize, u64>,
    first_letter: Option<u64>,
    /// How often the receiver crashed.
    crashes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Is {
    Open,
    Delivered,
    GivenUp,
}

/// The state that survives a kill.
#[derive(Clone, Debug, Default)]
struct Saved {
    is: Vec<Is>,
    /// Records that are set aside as copies, in order.
    copies: Vec<usize>,
}

struct Model<'a> {
    world: World,
    records: &'a [Record],
    delivery: Delivery,
    /// The record of each live ticket of this run, from `base` on, and of each copy.
    numbers: Vec<usize>,
    base: Number,
    copies: BTreeMap<Number, usize>,
    set_aside: BTreeMap<usize, Number>,
    is: Vec<Is>,
    saved: Saved,
    /// When the receiver took each record first.
    taken: Vec<Option<u64>>,
    /// The last record of each object that the receiver took.
    last_of: HashMap<u64, usize>,
    /// Attempts under way.
    sent: HashMap<usize, Attempt>,
    run: u64,
    random: fastrand::Rng,
    queue: BinaryHeap<Reverse<(u64, u64, Event)>>,
    report: Report,
}

struct Attempt {
    records: Vec<usize>,
    answered: Answered,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// An answer to a line, in a run.
    Answer(usize, u64),
    Arrive(usize),
    Save,
    Kill,
    Wake,
}

/// Runs it until an end, and then for as long as something is under way.
fn run(world: World, records: &[Record], receiver: &mut Receiver, until: u64) -> Report {
    let mut model = Model {
        world,
        records,
        delivery: delivery(world, 1),
        numbers: Vec::new(),
        base: 1,
        copies: BTreeMap::new(),
        set_aside: BTreeMap::new(),
        is: vec![Is::Open; records.len()],
        saved: Saved { is: vec![Is::Open; records.len()], copies: Vec::new() },
        taken: vec![None; records.len()],
        last_of: HashMap::new(),
        sent: HashMap::new(),
        run: 0,
        random: fastrand::Rng::with_seed(world.seed),
        queue: BinaryHeap::new(),
        report: Report::default(),
    };
    model.run(receiver, until);
    model.finish()
}

fn delivery(world: World, first: Number) -> Delivery {
    let options = DeliveryOptions {
        lanes: world.lanes,
        batch_events: world.batch,
        batch_bytes: 1 << 20,
        retry: RetryOptions::default(),
        copied_bytes: world.retention / 8,
    };
    Delivery::new(options, first, world.seed)
}

impl Model<'_> {
    fn run(&mut self, receiver: &mut Receiver, until: u64) {
        // Records that have arrived; the first that delivery has not had.
        let (mut arrived, mut next) = (0, 0);
        let mut order = 0;
        let mut at = |event, time, queue: &mut BinaryHeap<_>| {
            order += 1;
            queue.push(Reverse((time, order, event)));
        };
        if let Some(first) = self.records.first() {
            at(Event::Arrive(0), first.at, &mut self.queue);
        }
        if !self.world.kills.is_empty() {
            at(Event::Save, 0, &mut self.queue);
        }
        for kill in self.world.kills {
            at(Event::Kill, *kill, &mut self.queue);
        }
        let mut wake = 0;
        while let Some(Reverse((now, _, event))) = self.queue.pop() {
            if now > until {
                break;
            }
            match event {
                Event::Arrive(record) => {
                    arrived = record + 1;
                    if let Some(record) = self.records.get(arrived) {
                        at(Event::Arrive(arrived), record.at, &mut self.queue);
                    }
                }
                Event::Answer(line, run) if run == self.run => self.answer(line, now),
                Event::Answer(..) | Event::Wake => {}
                Event::Save => {
                    self.saved.is.clone_from(&self.is);
                    self.saved.copies = self.set_aside.keys().copied().collect();
                    at(Event::Save, now + 1000, &mut self.queue);
                }
                Event::Kill => {
                    next = self.restart(now, arrived);
                }
            }
            if self.world.full_each > 0 && self.random.u64(0..self.world.full_each) == 0 {
                self.make_room(now);
            }
            while next < arrived && self.delivery.has_room() {
                self.push(next);
                next += 1;
                while next < arrived && self.is[next] != Is::Open {
                    next += 1;
                }
            }
            self.bring_back();
            self.take_fates(now);
            while let Some(line) = self.delivery.next_send(now) {
                let numbers = self.delivery.tickets(line).to_vec();
                let records: Vec<_> = numbers.iter().map(|number| self.record(*number)).collect();
                let answered = receiver.send(self.records, &records, now);
                at(Event::Answer(line, self.run), answered.at, &mut self.queue);
                assert!(self.sent.insert(line, Attempt { records, answered }).is_none());
            }
            if let Some(due) = self.delivery.wake_at()
                && (wake <= now || due < wake)
            {
                assert!(due > now, "it is due and not sent: {due} {now}");
                wake = due;
                at(Event::Wake, due, &mut self.queue);
            }
        }
    }

    fn ticket(&self, record: usize) -> Ticket {
        let Record { namespace, object, .. } = self.records[record];
        let hash = |number: u64| (number + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        Ticket {
            key: hash(object),
            namespace: hash(namespace),
            destination: match self.world.destinations {
                Destinations::One => 0,
                Destinations::ByNamespace => hash(namespace),
                Destinations::ByObject(of) => hash(object % of),
            },
            bytes: 1000,
        }
    }

    fn push(&mut self, record: usize) {
        let bytes = 1000;
        let unknown = Ticket { key: 0, namespace: 0, destination: 0, bytes };
        let known = self.delivery.wants_keys();
        let number = self.delivery.push(if known { self.ticket(record) } else { unknown });
        assert_eq!(number, self.base + self.numbers.len() as u64);
        self.numbers.push(record);
    }

    fn bring_back(&mut self) {
        for number in self.delivery.take_wanted() {
            let ticket = self.ticket(self.record(number));
            self.delivery.bring_back(number, Some(ticket));
        }
    }

    fn record(&self, number: Number) -> usize {
        if number < self.base {
            self.copies[&number]
        } else {
            self.numbers[(number - self.base) as usize]
        }
    }

    /// Takes in what the receiver has made of an attempt.
    fn receive(&mut self, attempt: &Attempt) {
        let at = attempt.answered.at;
        for (place, record) in attempt.records.iter().enumerate() {
            if !attempt.answered.takes(place) {
                continue;
            }
            if self.taken[*record].is_some() {
                self.report.redelivered += 1;
                continue;
            }
            self.taken[*record] = Some(at);
            let object = self.records[*record].object;
            let before = self.last_of.insert(object, *record);
            assert!(before.is_none_or(|before| before < *record), "{record} after {before:?}");
            self.report.delays.insert(*record, at - self.records[*record].at);
        }
    }

    fn answer(&mut self, line: usize, now: u64) {
        let attempt = self.sent.remove(&line).unwrap();
        self.receive(&attempt);
        self.delivery.announce(line, &attempt.answered.outcome);
        for number in self.delivery.unknown() {
            let ticket = self.ticket(self.record(number));
            self.delivery.know(number, ticket);
        }
        self.delivery.answered(line, attempt.answered.outcome, now);
        self.take_fates(now);
    }

    /// Gives up what stands in the way, where the journal is full.
    fn make_room(&mut self, now: u64) {
        let passed = self.delivery.settled_behind().map(|range| range.end - range.start).sum();
        let given_up = self.report.letters.len();
        let any = self.delivery.relieve(passed, now);
        self.take_fates(now);
        assert_eq!(any, self.report.letters.len() > given_up, "what is given up is said");
        self.report.relieved += self.report.letters.len() - given_up;
    }

    fn take_fates(&mut self, now: u64) {
        let fates: Vec<_> = self.delivery.take_fates().collect();
        for Fated { tickets, fate } in fates {
            for number in tickets {
                let record = self.record(number);
                assert_eq!(self.is[record], Is::Open, "a second fate");
                self.set_aside.remove(&record);
                self.is[record] = if let Fate::DeadLetter(_) = fate {
                    self.report.letters.push(record);
                    self.report.first_letter.get_or_insert(now);
                    Is::GivenUp
                } else {
                    assert!(self.taken[record].is_some(), "it has not arrived");
                    Is::Delivered
                };
            }
        }
        let notices: Vec<_> = self.delivery.take_notices().collect();
        for notice in notices {
            if let Notice::SetAside(number) = notice {
                self.report.set_aside += 1;
                self.set_aside.insert(self.record(number), number);
            }
        }
        let copied = self.set_aside.len() as u64 * 1000;
        self.report.copied_bytes = self.report.copied_bytes.max(copied);
    }

    /// Begins again with what was saved. What was under way may have arrived.
    fn restart(&mut self, now: u64, arrived: usize) -> usize {
        let mut sent: Vec<_> = self.sent.drain().collect();
        sent.sort_by_key(|(line, _)| *line);
        for (_, attempt) in sent {
            if attempt.answered.at < now + self.world.latency / 2 {
                self.receive(&attempt);
            }
        }
        self.run += 1;
        self.is.clone_from(&self.saved.is);
        self.base = self.saved.copies.len() as Number;
        self.numbers.clear();
        self.copies.clear();
        self.set_aside.clear();
        self.report.letters.retain(|record| self.saved.is[*record] == Is::GivenUp);
        self.delivery = delivery(self.world, self.base);
        // The copies are not in the log for it.
        for record in self.saved.copies.clone() {
            let number = self.delivery.push_set_aside(self.ticket(record));
            self.copies.insert(number, record);
            self.set_aside.insert(record, number);
        }
        let open =
            |record: &usize| self.is[*record] == Is::Open && !self.set_aside.contains_key(record);
        let first: Vec<usize> = (0..arrived).filter(open).collect();
        for record in first {
            self.push(record);
        }
        arrived
    }

    fn finish(mut self) -> Report {
        let mut said = vec![false; self.records.len()];
        // Nothing between the position and the end is forgotten.
        let settled = self.delivery.settled();
        let behind = self.delivery.settled_behind();
        let mut passed: Vec<Number> = (self.base..settled).collect();
        passed.extend(behind.flatten());
        for number in passed {
            said[self.numbers[(number - self.base) as usize]] = true;
        }
        for record in self.numbers.clone() {
            let open = self.is[record] == Is::Open && !self.set_aside.contains_key(&record);
            assert_eq!(said[record], !open, "position and fates are not of one mind");
        }
        self.report.aside_at_end = self.set_aside.len();
        self.report.delivered = self.is.iter().filter(|is| **is == Is::Delivered).count();
        let open = |record: &usize| self.is[*record] == Is::Open;
        self.report.open = (0..self.records.len()).filter(open).collect();
        self.report
    }
}

/// That nothing was taken.
fn failed(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Failed(_))
}
