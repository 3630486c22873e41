//! A sink in simulated time, whose receiver stumbles over the events of one namespace, or fails for all.
//!
//! Each scenario prints a row: `cargo test --lib delivery::tests::model -- --nocapture --test-threads 1`.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap, VecDeque},
    time::Duration,
};

use super::harness::{Outside, failed, invalid, of_record, options, silence};
use crate::{
    bridge::{
        Failure, FailureClass, Outcome, RefusedClass,
        delivery::{Attempt, Delivery, LetterClass, Moment},
        gather::Work,
    },
    event::Record,
};

/// In milliseconds.
const LATENCY: u64 = 50;
const TIMEOUT: u64 = 10_000;
const SECOND: u64 = 1000;
/// The namespace that the culprits are of.
const GUILTY: usize = 0;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    BadRequest,
    Forbidden,
    TooLarge,
    ServerError,
    Reset,
    Hang,
    Unauthorized,
    Refused,
}

impl Answer {
    fn outcome(self) -> Outcome {
        let too_large =
            Failure { class: FailureClass::Refused(RefusedClass::TooLarge), ..invalid() };
        match self {
            Self::BadRequest => Outcome::Failed(invalid()),
            Self::TooLarge => Outcome::Failed(too_large),
            Self::Forbidden => of_record(FailureClass::Misconfigured),
            Self::ServerError | Self::Reset => of_record(FailureClass::Unavailable),
            Self::Hang => silence(),
            Self::Unauthorized => failed(FailureClass::Misconfigured),
            Self::Refused => failed(FailureClass::Unavailable),
        }
    }

    fn latency(self) -> u64 {
        if self == Self::Hang { TIMEOUT } else { LATENCY }
    }
}

/// A sink, what comes, and what its receiver says.
#[derive(Clone, Copy, Debug)]
struct Scenario {
    events: usize,
    lanes: usize,
    namespaces: usize,
    /// So many culprits come one after the other after ten seconds,
    culprits: u64,
    /// (or before all others),
    first: u64,
    /// so many more 20 s later,
    later: u64,
    /// and are answered so.
    answer: Answer,
    /// Everything is answered so in this time.
    outage: Option<(Answer, u64, u64)>,
    /// Of 100 requests so many are answered by 503.
    random: u8,
    /// How long events come.
    lasts: u64,
}

const SCENARIO: Scenario = Scenario {
    events: 500,
    lanes: 1,
    namespaces: 30,
    culprits: 0,
    first: 0,
    later: 0,
    answer: Answer::Forbidden,
    outage: None,
    random: 0,
    lasts: 60 * SECOND,
};

struct Event {
    about: (usize, u64),
    is_culprit: bool,
    came: u64,
    /// When it had its fate, and whether it was delivered.
    fate: Option<(u64, bool)>,
}

/// The next thing to happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Next {
    Answer(usize),
    Come,
    Wake,
}

struct Model {
    scenario: Scenario,
    random: fastrand::Rng,
    delivery: Delivery,
    now: u64,
    events: Vec<Event>,
    /// In the log.
    pending: VecDeque<u64>,
    in_flight: BTreeMap<usize, (Attempt, Vec<u64>, Outcome)>,
    attempts: usize,
    next: BinaryHeap<Reverse<(u64, Next)>>,
    taken: u64,
    settled: u64,
}

/// The results of a scenario, in milliseconds.
#[derive(Debug)]
struct Outcomes {
    /// The delays of events of other namespaces, or of the only one, in order.
    others: Vec<u64>,
    /// Events that were given up,
    given_up: u64,
    /// and those of them that are of other namespaces,
    innocent: u64,
    /// or no culprits.
    with_them: u64,
    attempts: usize,
}

impl Outcomes {
    fn percentile(&self, percent: usize) -> u64 {
        self.others
            .get((self.others.len().saturating_sub(1)) * percent / 100)
            .copied()
            .unwrap_or_default()
    }
}

impl Scenario {
    fn run(self, name: &str) -> Outcomes {
        let options = options(self.lanes, self.events);
        let mut model = Model {
            scenario: self,
            random: fastrand::Rng::with_seed(11),
            delivery: Delivery::new(options, 5),
            now: 0,
            events: Vec::new(),
            pending: VecDeque::new(),
            in_flight: BTreeMap::new(),
            attempts: 0,
            next: BinaryHeap::new(),
            taken: 0,
            settled: 0,
        };
        model.run();
        let outcomes = model.outcomes();
        let (Self { events, lanes, culprits, answer, .. }, seconds) =
            (self, |ms: u64| Duration::from_millis(ms).as_secs_f64());
        println!(
            "{name:24} {events:3}x{lanes} {culprits:5} {answer:12?} p50 {:6.2} p99 {:6.2} max {:7.2} given up {:5} ({} innocent, {} with them), {} attempts, {:.0} s",
            seconds(outcomes.percentile(50)),
            seconds(outcomes.percentile(99)),
            seconds(outcomes.percentile(100)),
            outcomes.given_up,
            outcomes.innocent,
            outcomes.with_them,
            outcomes.attempts,
            seconds(model.now),
        );
        outcomes
    }

    /// How often events come, in milliseconds, and how many then.
    fn pace(self) -> (u64, u64) {
        match (self.events, self.lanes) {
            _ if self.outage.is_some() => (100, 1),
            (1, 1) => (100, 1),
            (1, _) => (50, 3),
            _ => (20, 6),
        }
    }
}

impl Model {
    fn run(&mut self) {
        self.next.push(Reverse((0, Next::Come)));
        while let Some(Reverse((at, next))) = self.next.pop() {
            self.now = at;
            match next {
                Next::Come => self.come(),
                Next::Answer(number) => self.answered(number),
                Next::Wake => {}
            }
            self.go_on();
        }
    }

    fn come(&mut self) {
        let (every, count) = self.scenario.pace();
        let is_open = |event: &Event| event.is_culprit && event.fate.is_none();
        let is_over = self.now >= self.scenario.lasts;
        if !is_over {
            self.next.push(Reverse((self.now + every, Next::Come)));
        } else if self.now < 48 * 3600 * SECOND && self.events.iter().any(is_open) {
            // Nothing is parked unless something is taken.
            self.next.push(Reverse((self.now + SECOND, Next::Come)));
        }
        for n in 0..count {
            if (self.now, n) == (0, 0) {
                (0..self.scenario.first).for_each(|n| self.add((GUILTY, 100 + n), true));
            }
            let about = (self.random.usize(0..self.scenario.namespaces), self.random.u64(0..50));
            self.add(about, false);
            let culprits = match self.now {
                10_000 if n == 0 => self.scenario.culprits,
                30_000 if n == 0 => self.scenario.later,
                _ => 0,
            };
            (0..culprits).for_each(|n| self.add((GUILTY, 100 + n), true));
        }
    }

    fn add(&mut self, about: (usize, u64), is_culprit: bool) {
        self.pending.push_back(self.events.len() as u64);
        self.events.push(Event { about, is_culprit, came: self.now, fate: None });
    }

    fn go_on(&mut self) {
        while self.delivery.has_room() && !self.pending.is_empty() {
            let mut work = Work { settles: true, ..Work::default() };
            let most = self.pending.len().min(self.scenario.events);
            for seq in self.pending.drain(..most) {
                let (namespace, object) = self.events[seq as usize].about;
                let envelope = format!(
                    r#"{{"id":"e-{seq}","event":{{"involvedObject":{{"kind":"Pod","namespace":"n{namespace}","name":"p{object}"}}}}}}"#
                );
                work.batch.records.push(Record { seq, envelope: envelope.into() });
            }
            let moment = Moment { now: self.now, time_ms: self.now };
            let mut outside = Outside { taken: Vec::new(), room: true };
            self.delivery.push(work, moment, &mut outside);
        }
        while let Some(attempt) = self.delivery.next(self.now) {
            let seqs: Vec<u64> =
                self.delivery.batch(&attempt).records.iter().map(|record| record.seq).collect();
            let (outcome, latency) = self.answer(&seqs);
            self.attempts += 1;
            self.in_flight.insert(self.attempts, (attempt, seqs, outcome));
            self.next.push(Reverse((self.now + latency, Next::Answer(self.attempts))));
        }
        if let Some(wake) = self.delivery.wake_at() {
            assert!(wake > self.now, "it would turn without end");
            let waits = self.next.peek().is_none_or(|Reverse((next, _))| *next > wake);
            if waits {
                self.next.push(Reverse((wake, Next::Wake)));
            }
        }
        if let Some(settled) = self.delivery.settle() {
            self.settled += settled.totals.delivered + settled.totals.dead_lettered;
            for letter in settled.dead_letters {
                self.events[letter.seq as usize].fate = Some((self.now, false));
            }
        }
    }

    /// The answer of the receiver.
    fn answer(&mut self, seqs: &[u64]) -> (Outcome, u64) {
        let Scenario { answer, outage, random, lasts, .. } = self.scenario;
        if let Some((answer, from, to)) = outage
            && (from..to).contains(&self.now)
        {
            return (answer.outcome(), answer.latency());
        }
        if seqs.iter().any(|seq| self.events[*seq as usize].is_culprit) {
            return (answer.outcome(), answer.latency());
        }
        if self.random.u8(0..100) < random && self.now < lasts {
            return (of_record(FailureClass::Unavailable), LATENCY);
        }
        (Outcome::Delivered, LATENCY)
    }

    fn answered(&mut self, number: usize) {
        let (attempt, seqs, outcome) = self.in_flight.remove(&number).unwrap();
        if outcome == Outcome::Delivered {
            for seq in &seqs {
                self.events[*seq as usize].fate = Some((self.now, true));
            }
        }
        let moment = Moment { now: self.now, time_ms: self.now };
        let mut outside = Outside { taken: Vec::new(), room: true };
        let consequences = self.delivery.answered(attempt, outcome, moment, &mut outside);
        self.taken += consequences.taken as u64;
        let mut parked = consequences.letters.iter();
        let is_parked = parked.any(|letter| letter.class == LetterClass::Blocked);
        let nothing_is_taken = self
            .scenario
            .outage
            .is_some_and(|(answer, from, to)| (from + answer.latency()..to).contains(&self.now));
        assert!(!is_parked || !nothing_is_taken, "parked while nothing is taken");
    }

    fn outcomes(&self) -> Outcomes {
        let mut last: BTreeMap<(usize, u64), u64> = BTreeMap::new();
        let (mut others, mut given_up, mut innocent, mut with_them) = (Vec::new(), 0, 0, 0);
        for event in &self.events {
            let Some((at, delivered)) = event.fate else {
                panic!("an event without a fate: {:?} of {}", event.about, event.came);
            };
            if !delivered {
                given_up += 1;
                innocent += u64::from(event.about.0 != GUILTY);
                with_them += u64::from(!event.is_culprit);
                continue;
            }
            assert!(!event.is_culprit);
            // An object's events arrive in order.
            let before = last.insert(event.about, at).unwrap_or_default();
            assert!(before <= at, "{:?} is overtaken", event.about);
            if event.about.0 != GUILTY || self.scenario.namespaces == 1 && !event.is_culprit {
                others.push(at - event.came);
            }
        }
        others.sort_unstable();
        assert_eq!(self.settled, self.events.len() as u64, "lost");
        Outcomes { others, given_up, innocent, with_them, attempts: self.attempts }
    }
}

const SHAPES: [(usize, usize); 4] = [(500, 1), (1, 8), (500, 8), (1, 1)];

#[test]
fn one_namespace_at_fault_keeps_no_other_waiting() {
    use Answer::{BadRequest, Forbidden, Hang, Reset, ServerError, TooLarge};
    for answer in [BadRequest, Forbidden, TooLarge, ServerError, Reset, Hang] {
        for culprits in [1, 21, 500] {
            let all = if culprits == 21 && answer != Reset { 4 } else { 2 };
            for (events, lanes) in SHAPES.into_iter().take(all) {
                let scenario = Scenario { events, lanes, culprits, answer, ..SCENARIO };
                let outcomes = scenario.run("one namespace at fault");
                let most = if answer == Hang { 4 * TIMEOUT } else { 10 * SECOND };
                assert!(outcomes.percentile(99) <= most, "{scenario:?}");
                assert!(culprits == 500 || outcomes.percentile(100) <= 60 * SECOND, "{scenario:?}");
                assert_eq!(outcomes.innocent, 0, "{scenario:?}");
            }
        }
    }
}

#[test]
fn nothing_is_given_up_while_nothing_is_taken() {
    use Answer::{Forbidden, Hang, Refused, ServerError, Unauthorized};
    for answer in [Forbidden, ServerError, Hang, Unauthorized, Refused] {
        for (events, lanes) in SHAPES.into_iter().take(2) {
            let outage = Some((answer, 20 * SECOND, 320 * SECOND));
            let scenario =
                Scenario { events, lanes, answer, outage, lasts: 400 * SECOND, ..SCENARIO };
            let outcomes = scenario.run("everything fails");
            assert_eq!(outcomes.given_up, 0, "{scenario:?}");
        }
    }
}

#[test]
fn a_flood_of_one_namespace_keeps_no_other_waiting() {
    for (events, lanes) in SHAPES.into_iter().take(3) {
        let scenario = Scenario { events, lanes, culprits: 10_000, ..SCENARIO };
        let outcomes = scenario.run("flood");
        assert!(outcomes.percentile(99) <= 10 * SECOND, "{scenario:?}");
        assert_eq!(outcomes.innocent, 0, "{scenario:?}");
        let scenario = Scenario { first: 3000, culprits: 0, ..scenario };
        let outcomes = scenario.run("flood before all others");
        assert!(outcomes.percentile(100) <= 60 * SECOND, "{scenario:?}");
        assert_eq!(outcomes.innocent, 0, "{scenario:?}");
    }
}

#[test]
fn nothing_is_lost_to_an_outage_random_failures_or_culprits_of_the_only_namespace() {
    for (events, lanes) in SHAPES {
        let outage = Some((Answer::Forbidden, 20 * SECOND, 80 * SECOND));
        let scenario =
            Scenario { events, lanes, culprits: 1, outage, lasts: 100 * SECOND, ..SCENARIO };
        assert_eq!(scenario.run("culprit, then outage").given_up, 1, "{scenario:?}");
        // Culprits in two batches, which fail one after the other when the receiver is back.
        let outage = Some((Answer::Forbidden, 20 * SECOND, 40 * SECOND));
        let answer = Answer::ServerError;
        let events = events.min(100);
        let scenario =
            Scenario { events, lanes, culprits: 1, later: 21, answer, outage, ..SCENARIO };
        let outcomes = scenario.run("culprits around an outage");
        assert!(outcomes.percentile(100) <= 60 * SECOND, "{scenario:?}");
        let scenario = Scenario { events, lanes, culprits: 21, namespaces: 1, ..SCENARIO };
        let outcomes = scenario.run("one namespace");
        assert!(outcomes.percentile(99) <= 10 * SECOND, "{scenario:?}");
        let scenario = Scenario { answer: Answer::Hang, culprits: 1, ..scenario };
        let outcomes = scenario.run("one namespace");
        // In batches a hang is found after nine halvings.
        assert!(events > 1 || outcomes.percentile(99) <= 4 * TIMEOUT, "{scenario:?}");
        let scenario = Scenario { events, lanes, random: 30, ..SCENARIO };
        assert!(scenario.run("30 % of 503").given_up < 50, "{scenario:?}");
    }
}
