//! Delivery without I/O: which records are sent next, and what the answer to an attempt makes of them.
//!
//! Delivery sends nothing, sleeps nowhere and asks no clock. Its caller [pushes](Delivery::push) batches of gathering,
//! sends what [`Delivery::next`] answers, brings the outcome of each [`Attempt`], and
//! [settles](Delivery::settle) what has its fate.
//!
//! **Order.** Records of one object are sent in the order of the journal: while one is in flight or waits, later ones
//! wait behind it. Records of different objects may overtake each other.
//!
//! **Failures.** One Event must not stop a sink, and what fails for all of them is no Event's fault:
//!
//! 1. A batch that fails is sent once more; failing again it is parted by namespace. One that is refused or not answered
//!    in time is parted at once. Each of its namespaces is *apart* then: its records are sent by themselves, half as
//!    many at each failure, down to one, and twice as many at each success, until they are a batch again.
//! 2. A record that fails alone waits by itself, with jittered backoff, and only later ones of its object wait behind it.
//! 3. Such records and namespaces apart have every second turn of a free lane, and are sent beside the lanes, too: a
//!    quarter as many attempts as there are lanes. Those not answered in time go beside the lanes only.
//! 4. No connection, TLS, credentials, or a request for less or for time is no record's fault: the batch is sent again
//!    after a wait.
//! 5. When each namespace has failed and nothing is taken, the sink is *failing*: it is tried with one record at a time,
//!    of another namespace each time, with backoff, until one is taken.
//! 6. A record is *parked* once it has failed alone for a minute or longer, and others were taken after at least five of
//!    its failures: it becomes a dead letter that is sent again by itself.
//! 7. A namespace is *shut* when its records failed alone eight times in a row and none was taken, if they fill half of
//!    the window or were not answered in time. Its records are parked without being sent, but for a probe now and then,
//!    until one is taken.
//!
//! A record is given up when it is refused alone, or after `retry.maxAttempts` failures. While everything is refused, only
//! records that are too large, and larger than any that was taken, are given up.

mod answers;
mod backoff;
mod keys;
mod parking;
#[cfg(test)]
mod tests;
mod window;

use std::collections::{BTreeMap, HashMap, HashSet};

use rustc_hash::FxBuildHasher;

use self::{
    answers::Answer,
    keys::{Hashes, Keys},
    parking::Blame,
    window::{Entry, State, Window},
};
pub(super) use self::{
    answers::{Consequences, GivenUp, LetterClass, Moment},
    backoff::wait_after,
};
use super::{
    BatchOptions, Failure, FailureClass, Fault, Reason, RetryOptions, gather::Work,
    progress::Settled,
};
use crate::event::{Batch, Record};

/// Milliseconds since any moment that the caller has chosen.
pub(super) type Millis = u64;
/// The number of a record: dense, in the journal's order.
type Number = u64;

/// After so many failures one after the other, with nothing taken, the sink is failing.
const FAILING: u32 = 3;
/// If they are of one namespace: after so long.
const LONG: Millis = 10_000;
/// So many records are in the window at least,
const LEAST_IN_WINDOW: usize = 1024;
/// and so many for each lane, so that each finds objects that no other lane has;
const LEAST_FOR_LANE: usize = 32;
/// and so many batches, beside one for each lane.
const BATCHES_AHEAD: usize = 2;
/// The window grows to so many times its size for records that fail and those behind them,
const MOST_WINDOWS: usize = 16;
/// and to so many bytes,
const MOST_BYTES: u64 = 32 << 20;
/// but, while nothing is taken, not with records of so many namespaces.
const NAMESPACES_THAT_FAIL: usize = 8;
/// Beside the lanes there is one attempt in flight for so many of them, and one at least.
const LANES_FOR_ONE_BESIDE: usize = 4;

/// The bounds of delivery, and the names in its dead letters.
#[derive(Clone, Debug)]
pub(super) struct DeliveryOptions {
    pub(super) sink: String,
    /// The sink that dead letters are forwarded to.
    pub(super) forward: Option<String>,
    /// How many attempts are in flight at once; at least 1.
    pub(super) lanes: usize,
    pub(super) batch: BatchOptions,
    pub(super) retry: RetryOptions,
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Delivery {
    options: DeliveryOptions,
    random: fastrand::Rng,
    hashes: Hashes,
    window: Window,
    /// Namespaces whose records are sent by themselves.
    apart: BTreeMap<u64, Apart>,
    in_lanes: usize,
    beside: usize,
    /// Whether the last turn of a lane was a regular one,
    was_regular: bool,
    /// and the last one that was not went to a record that failed alone.
    was_alone: bool,
    /// When the next attempt was asked for last.
    asked: Millis,
    /// Nothing is sent before that, because the receiver asked for less.
    paused_until: Millis,
    health: Health,
    /// Namespaces of which records failed alone, and none was taken since.
    blames: HashMap<u64, Blame, FxBuildHasher>,
}

/// The caller's answers about records.
pub(super) trait Caller {
    /// The receiver took it.
    fn taken(&mut self, record: &Record);
    /// Whether there is room for it among the parked letters, of which those that were not even sent have less. If so, it
    /// becomes one.
    fn has_room(&mut self, record: &Record, is_sent: bool) -> bool;
}

/// A namespace whose records are sent by themselves.
#[derive(Clone, Copy, Debug)]
struct Apart {
    /// So many at a time.
    most: usize,
    /// Set if it failed by itself, not only with others.
    has_failed: bool,
    /// An attempt was not answered in time: after so many successes it is sent in the lanes again.
    silence: u32,
    /// The attempt that had its last turn.
    turn: u64,
}

/// How the attempts do, all together.
#[derive(Debug, Default)]
struct Health {
    /// Failures since anything was taken. Attempts that were in flight at the same time count as one.
    failures: u32,
    failed_at: Millis,
    /// When anything was taken,
    taken_at: Option<Millis>,
    /// and how many attempts had something taken.
    successes: u64,
    /// The namespace that failed by itself, and whether others did, too.
    namespace: Option<u64>,
    of_several: bool,
    /// Refusals of single records since anything was taken.
    refused: u32,
    /// The size of the largest envelope that was taken.
    largest: usize,
    last: Option<Failure>,
    /// While the sink is failing: when it is tried next,
    next_at: Millis,
    /// whether it is being tried,
    is_tried: bool,
    /// and with a record of which namespace it was tried last.
    tried: u64,
    /// How many attempts were made.
    attempts: u64,
}

/// The records that an attempt is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Regular,
    /// Records of a namespace apart.
    Apart(u64),
    /// A record that failed alone.
    Alone,
    /// A record by which a failing sink is tried.
    Trial,
}

/// The first record of an object that can be sent.
#[derive(Clone, Copy, Debug)]
struct First {
    number: Number,
    namespace: u64,
    /// When it was to be sent.
    due: Millis,
    /// Set if it failed alone: whether no answer came in time.
    alone: Option<bool>,
    has_failed: bool,
}

/// An attempt to be made.
#[derive(Debug)]
pub(super) struct Attempt {
    records: Vec<Number>,
    kind: Kind,
    beside: bool,
    sent: Millis,
}

/// How a sink does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Trouble<'a> {
    /// Nothing fails.
    None,
    /// Records failed, and are sent again. Others may be taken.
    Retrying(&'a Failure),
    /// Nothing is taken.
    Unavailable(&'a Failure),
    /// Nothing is taken, and only a person can mend what the receiver complains of.
    Misconfigured(&'a Failure),
}

impl Delivery {
    /// The seed is that of the waits.
    pub(super) fn new(options: DeliveryOptions, seed: u64) -> Self {
        Self {
            options,
            random: fastrand::Rng::with_seed(seed),
            hashes: Hashes::default(),
            window: Window::default(),
            apart: BTreeMap::new(),
            in_lanes: 0,
            beside: 0,
            was_regular: false,
            was_alone: false,
            asked: 0,
            paused_until: 0,
            health: Health::default(),
            blames: HashMap::default(),
        }
    }

    /// Whether it takes another batch: the bound keeps records in the log instead of in memory.
    pub(super) fn has_room(&mut self) -> bool {
        let (records, bytes) = self.most_in_window();
        self.window.open() < records && self.window.bytes() < bytes && !self.is_full()
    }

    /// The size of the window, in records and bytes.
    fn window_size(&self) -> (usize, u64) {
        let DeliveryOptions { lanes, batch, .. } = &self.options;
        let batches = lanes + BATCHES_AHEAD;
        let records = (batches * batch.events).max(lanes * LEAST_FOR_LANE).max(LEAST_IN_WINDOW);
        (records, batches as u64 * batch.bytes)
    }

    /// The size to which it grows at most.
    fn most_in_window(&self) -> (usize, u64) {
        let (records, bytes) = self.window_size();
        let grown = bytes.saturating_mul(MOST_WINDOWS as u64).min(MOST_BYTES);
        (MOST_WINDOWS * records, bytes.max(grown))
    }

    /// Whether the window is full. Records of namespaces that fail, and those behind a record that failed alone, do not
    /// count, unless nothing is taken of several namespaces.
    fn is_full(&mut self) -> bool {
        let (records, bytes) = self.window_size();
        if self.window.open() < records && self.window.bytes() < bytes {
            return false;
        }
        let is_the_sinks = self.health.last.as_ref().is_some_and(|last| last.fault == Fault::Sink);
        let is_failing = self.is_failing();
        if self.window.failed() == 0 || is_failing && is_the_sinks {
            return true;
        }
        let Self { window, hashes, apart, blames, .. } = self;
        let mut namespaces = HashSet::<u64, FxBuildHasher>::default();
        let (mut counted, mut size) = (0, 0);
        window.for_each(hashes, |entry, namespace, is_behind| {
            let has_failed = apart.get(&namespace).is_some_and(|apart| apart.has_failed);
            namespaces.insert(namespace);
            if !is_behind && !has_failed && !blames.contains_key(&namespace) {
                counted += 1;
                size += entry.record.envelope.len() as u64;
            }
        });
        counted >= records
            || size >= bytes
            || is_failing && namespaces.len() >= NAMESPACES_THAT_FAIL
    }

    /// Takes a batch of gathering.
    pub(super) fn push(&mut self, work: Work, at: Moment, caller: &mut dyn Caller) -> Consequences {
        self.window.push(work);
        let mut answer = Answer { at, caller, consequences: Consequences::default() };
        self.park_shut(&mut answer);
        answer.consequences
    }

    /// The next attempt, if one is to be made now. To be asked until there is none, after anything was pushed or
    /// answered and when the time has [come](Self::wake_at).
    pub(super) fn next(&mut self, now: Millis) -> Option<Attempt> {
        self.asked = now;
        if now < self.paused_until {
            return None;
        }
        if self.health.failures > 0 {
            self.window.entries_mut().for_each(|entry| _ = entry.keys(&self.hashes));
        }
        let has_lane = self.in_lanes < self.options.lanes.max(1);
        let has_room_beside = self.beside < (self.options.lanes / LANES_FOR_ONE_BESIDE).max(1);
        let in_lane = if self.is_failing() {
            let is_due = has_lane && !self.health.is_tried && now >= self.health.next_at;
            Some((Kind::Trial, is_due.then(|| self.trial()).flatten()?))
        } else if has_lane {
            self.turn(now)
        } else {
            None
        };
        let beside = in_lane.is_none();
        let (kind, records) = match in_lane {
            Some(found) => found,
            None if has_room_beside => self.apart(now, true)?,
            None => return None,
        };
        for number in &records {
            let entry = self.window.get(*number);
            entry.state = State::InFlight;
            entry.attempts += 1;
            entry.first.get_or_insert(now);
        }
        *if beside { &mut self.beside } else { &mut self.in_lanes } += 1;
        self.health.is_tried |= kind == Kind::Trial;
        self.health.attempts += 1;
        Some(Attempt { records, kind, beside, sent: now })
    }

    /// The records of an attempt.
    pub(super) fn batch(&mut self, attempt: &Attempt) -> Batch {
        let record = |number: &Number| self.window.get(*number).record.clone();
        Batch { records: attempt.records.iter().map(record).collect() }
    }

    /// When there is something to send although nothing is pushed or answered until then.
    pub(super) fn wake_at(&self) -> Option<Millis> {
        let is_well = self.health.failures as usize + self.window.failed() == 0;
        let is_failing = self.is_failing();
        if is_well && self.paused_until <= self.asked || is_failing && self.health.is_tried {
            return None;
        }
        let at_least = if is_failing { self.health.next_at } else { 0 }.max(self.paused_until);
        let due = |entry: &Entry| match entry.state {
            State::Waiting(due) if entry.alone.is_some() || !is_failing => Some(due.max(at_least)),
            State::Queued | State::Waiting(_) => Some(at_least),
            State::InFlight | State::Done => None,
        };
        // Records that are due already wait for an answer, not for a time.
        self.window.entries().filter_map(due).filter(|due| *due > self.asked).min()
    }

    /// Until when nothing is sent, because the receiver asked for less.
    pub(super) fn paused_until(&self) -> Millis {
        self.paused_until
    }

    /// Whether the last attempts had nothing taken.
    pub(super) fn fails(&self) -> bool {
        self.health.failures > 0
    }

    /// Takes what can be settled since the last call.
    pub(super) fn settle(&mut self) -> Option<Settled> {
        self.window.settle()
    }

    /// The ingest time of the oldest record without a fate, in milliseconds since the epoch.
    pub(super) fn oldest_ms(&self) -> Option<u64> {
        self.window.oldest_ms()
    }

    /// The oldest record without a fate, its last failure, and when it was sent first; nothing unless it failed.
    pub(super) fn head(&self) -> Option<(&Record, &Reason, Millis)> {
        let Entry { record, failure, first, .. } = self.window.entries().next()?;
        Some((record, failure.as_ref()?, (*first)?))
    }

    /// How the sink does.
    pub(super) fn trouble(&self) -> Trouble<'_> {
        let Health { failures, last: Some(last), .. } = &self.health else {
            return Trouble::None;
        };
        let nothing_is_taken = *failures > 0 && (last.fault == Fault::Sink || self.is_failing());
        match last.class {
            FailureClass::Misconfigured if nothing_is_taken => Trouble::Misconfigured(last),
            _ if nothing_is_taken => Trouble::Unavailable(last),
            _ if *failures > 0 || self.window.failed() > 0 => Trouble::Retrying(last),
            _ => Trouble::None,
        }
    }

    /// Whether nothing is taken any more: not while a record is queued whose namespace has not failed by itself, and of
    /// one namespace only after a while.
    fn is_failing(&self) -> bool {
        let Self { health, window, apart, .. } = self;
        if health.failures < FAILING {
            return false;
        }
        let is_long = health.taken_at.is_none_or(|at| health.failed_at >= at + LONG);
        let has_failed = |entry: &Entry| {
            let apart = entry.keys.and_then(|keys| apart.get(&keys.namespace));
            apart.is_some_and(|apart| apart.has_failed)
        };
        let is_queued = |entry: &&Entry| entry.state == State::Queued && entry.alone.is_none();
        let mut queued = window.entries().filter(is_queued);
        let is_the_sinks = health.last.as_ref().is_some_and(|last| last.fault == Fault::Sink);
        is_the_sinks || (health.of_several || is_long) && queued.all(has_failed)
    }

    /// The next attempt of a free lane.
    fn turn(&mut self, now: Millis) -> Option<(Kind, Vec<Number>)> {
        if std::mem::take(&mut self.was_regular)
            && let Some(found) = self.apart(now, false)
        {
            return Some(found);
        }
        if let Some(records) = self.fill(Kind::Regular, self.options.batch.events, now) {
            self.was_regular = true;
            return Some((Kind::Regular, records));
        }
        self.apart(now, false)
    }

    /// The next attempt with a record that failed alone, or with records of a namespace apart, in turns.
    fn apart(&mut self, now: Millis, silent: bool) -> Option<(Kind, Vec<Number>)> {
        if self.window.failed() == 0 && self.apart.is_empty() {
            return None;
        }
        let firsts = self.firsts(now);
        // The namespace whose last turn was the longest ago; first those that failed only with others.
        let of = |first: &First| Some((first.namespace, *self.apart.get(&first.namespace)?));
        let others = firsts.iter().filter(|first| first.alone.is_none()).filter_map(of);
        let others = others.filter(|(_, apart)| silent || apart.silence == 0);
        let next = others.min_by_key(|(_, apart)| (apart.has_failed, apart.turn));
        // Records that may have failed only because of others go first.
        let alone_first = !self.was_alone && next.is_none_or(|(_, apart)| apart.has_failed);
        let alone = longest_due(&firsts, silent).map(|number| (Kind::Alone, vec![number]));
        if let Some(alone) = alone
            && (alone_first || next.is_none())
        {
            self.was_alone = true;
            return Some(alone);
        }
        let (namespace, Apart { most, .. }) = next?;
        let kind = Kind::Apart(namespace);
        let records = self.fill(kind, most, now)?;
        self.was_alone = false;
        if let Some(apart) = self.apart.get_mut(&namespace) {
            apart.turn = self.health.attempts + 1;
        }
        Some((kind, records))
    }

    /// The first record of each object, if it can be sent.
    fn firsts(&mut self, now: Millis) -> Vec<First> {
        let Self { window, hashes, .. } = self;
        let mut objects = HashSet::<u64, FxBuildHasher>::default();
        let firsts = window.entries_mut().filter_map(|entry| {
            let Keys { object, namespace } = entry.keys(hashes);
            let due = if let State::Waiting(due) = entry.state { due } else { 0 };
            let alone = entry.alone.as_ref().map(|alone| alone.is_silent);
            let is_sent = objects.insert(object) && entry.is_due(now);
            let (number, has_failed) = (entry.number, entry.tries > 0);
            is_sent.then_some(First { number, namespace, due, alone, has_failed })
        });
        firsts.collect()
    }

    /// One record of a sink that is failing: one that has not failed yet, or else of another namespace than the last.
    fn trial(&mut self) -> Option<Vec<Number>> {
        let firsts = self.firsts(Millis::MAX);
        let rank = |first: &First| match first {
            First { has_failed: false, .. } => 0,
            First { alone: None, namespace, .. } if *namespace != self.health.tried => 1,
            First { alone: None, .. } => 2,
            First { .. } => 3,
        };
        let best = firsts.iter().map(rank).min()?;
        if best == 3 {
            let due: Vec<_> = firsts.into_iter().filter(|first| first.due <= self.asked).collect();
            return longest_due(&due, true).map(|number| vec![number]);
        }
        let of: Vec<_> = firsts.iter().filter(|first| rank(first) == best).collect();
        // The newest, or any: those that fail may be many, and stand one after the other.
        let newest = of.last().copied().filter(|_| self.random.bool());
        let First { number, namespace, .. } = newest.or_else(|| self.random.choice(of))?;
        self.health.tried = *namespace;
        Some(vec![*number])
    }

    /// Takes records to send that did not fail alone, at most so many, in the order of the journal.
    fn fill(&mut self, kind: Kind, most: usize, now: Millis) -> Option<Vec<Number>> {
        let Self { window, hashes, apart, options, .. } = self;
        // Where nothing is in the way nobody asks what a record is about.
        let is_free = self.in_lanes + self.beside + window.failed() == 0 && apart.is_empty();
        let mut held_up = HashSet::<u64, FxBuildHasher>::default();
        let (mut found, mut bytes) = (Vec::new(), 0);
        for entry in window.entries_mut() {
            let Keys { object, namespace } =
                if is_free { Keys::default() } else { entry.keys(hashes) };
            let is_of_kind = match kind {
                Kind::Apart(wanted) => namespace == wanted,
                _ => !apart.contains_key(&namespace),
            };
            if entry.alone.is_some()
                || !is_of_kind
                || !entry.is_due(now)
                || held_up.contains(&object)
            {
                held_up.insert(object);
                continue;
            }
            let more = entry.record.envelope.len() as u64;
            let fits = found.len() < most && bytes + more <= options.batch.bytes;
            if !fits && !found.is_empty() {
                break;
            }
            bytes += more;
            found.push(entry.number);
        }
        (!found.is_empty()).then_some(found)
    }
}

/// The record that failed alone and has been due longest.
fn longest_due(firsts: &[First], silent: bool) -> Option<Number> {
    let may_go = |first: &&First| first.alone.is_some_and(|is_silent| silent || !is_silent);
    firsts.iter().filter(may_go).min_by_key(|first| first.due).map(|first| first.number)
}
