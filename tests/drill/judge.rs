//! The oracle: holds what a sink received against what was produced. It shares no code with the
//! bridge.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::ops::AddAssign;
use std::time::{Duration, Instant};

use crate::frame::Row;
use tidings_testkit::ledger::Delivery;

/// A text that is compared and never shown: millions of them fit into memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key(u64);

impl Key {
    pub(crate) fn of(text: &str) -> Self {
        let mut hasher = DefaultHasher::new();
        text.hash(&mut hasher);
        Self(hasher.finish())
    }
}

/// One version of one Event that the API server has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Produced {
    /// `<event uid>-<resourceVersion>`.
    pub(crate) id: Key,
    /// The uid of the Event.
    pub(crate) event: Key,
    /// The object that it is about.
    pub(crate) object: Key,
    pub(crate) version: u64,
    pub(crate) occurrences: u64,
    /// When it was written, or seen to be.
    pub(crate) at: Instant,
}

/// One event as a sink received it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    pub(crate) id: Key,
    /// The object that it is about.
    pub(crate) object: Key,
    pub(crate) occurrences: u64,
    pub(crate) delta: u64,
    /// A sum that comes after the fact, which is in no order.
    pub(crate) summary: bool,
    pub(crate) at: Instant,
}

impl From<&Delivery> for Arrival {
    fn from(delivery: &Delivery) -> Self {
        Self {
            id: Key::of(&delivery.id),
            object: Key::of(&delivery.object),
            occurrences: delivery.occurrences,
            delta: delivery.delta,
            summary: delivery.body.contains("\"action\":\"summary\""),
            at: delivery.at,
        }
    }
}

/// What was found.
#[derive(Clone, Debug, Default)]
pub(crate) struct Verdict {
    pub(crate) produced: u64,
    /// Versions that arrived.
    pub(crate) delivered: u64,
    /// Versions of an earlier history that arrived, each counted once.
    pub(crate) again: u64,
    /// Versions that did not.
    pub(crate) missing: u64,
    /// Arrivals of an id that had come before.
    pub(crate) repeated: u64,
    /// When what was repeated came again, behind when it had come before that.
    pub(crate) repeated_at: Vec<(Instant, Instant)>,
    /// Arrivals of an id that nobody produced.
    pub(crate) strangers: u64,
    /// Repeats that told another delta than the first time.
    pub(crate) retold: u64,
    /// Arrivals that told another object or count than that of their id.
    pub(crate) mistold: u64,
    pub(crate) order_breaks: u64,
    pub(crate) delta_in: u64,
    pub(crate) delta_out: u64,
    /// Objects whose increments out are not those that went in.
    pub(crate) unbalanced: u64,
}

/// Compares. `produced` is in the order of the API server, `arrivals` in that of the sink.
pub(crate) fn judge(produced: &[Produced], arrivals: &[Arrival]) -> Verdict {
    judge_after(&[], produced, arrivals)
}

/// The same for a history that began with these versions. Who was told of them before may be told
/// again, under the same ids, and of their increments no second time.
pub(crate) fn judge_after(
    earlier: &[Produced],
    produced: &[Produced],
    arrivals: &[Arrival],
) -> Verdict {
    let mut verdict = Verdict { produced: produced.len() as u64, ..Verdict::default() };
    let every = earlier.iter().chain(produced);
    let by_id: HashMap<Key, &Produced> = every.map(|one| (one.id, one)).collect();
    let of_earlier: HashSet<Key> = earlier.iter().map(|one| one.id).collect();
    // Increments by object: in less out.
    let mut balance = HashMap::<Key, i64>::new();
    let mut known: HashMap<Key, u64> =
        earlier.iter().map(|one| (one.event, one.occurrences)).collect();
    for one in produced {
        let before = known.insert(one.event, one.occurrences).unwrap_or(0);
        let delta = one.occurrences.saturating_sub(before);
        verdict.delta_in += delta;
        *balance.entry(one.object).or_default() += delta.cast_signed();
    }
    // The latest arrival of each id.
    let mut latest = HashMap::<Key, &Arrival>::with_capacity(arrivals.len());
    let mut newest = HashMap::<Key, u64>::new();
    for arrival in arrivals {
        let Some(wanted) = by_id.get(&arrival.id) else {
            verdict.strangers += 1;
            continue;
        };
        let told = (arrival.object, arrival.occurrences);
        verdict.mistold += u64::from(told != (wanted.object, wanted.occurrences));
        match latest.entry(arrival.id) {
            Entry::Occupied(mut place) => {
                let before = place.insert(arrival);
                verdict.repeated += 1;
                verdict.repeated_at.push((before.at, arrival.at));
                verdict.retold += u64::from(before.delta != arrival.delta);
                continue;
            }
            Entry::Vacant(place) => drop(place.insert(arrival)),
        }
        verdict.delta_out += arrival.delta;
        *balance.entry(wanted.object).or_default() -= arrival.delta.cast_signed();
        if !arrival.summary {
            let newest = newest.entry(wanted.object).or_default();
            verdict.order_breaks += u64::from(wanted.version < *newest);
            *newest = wanted.version.max(*newest);
        }
    }
    verdict.again = latest.keys().filter(|id| of_earlier.contains(id)).count() as u64;
    verdict.delivered = latest.len() as u64 - verdict.again;
    verdict.missing = verdict.produced - verdict.delivered;
    verdict.unbalanced = balance.values().filter(|left| **left != 0).count() as u64;
    verdict
}

/// How long what was produced in a stretch of time took to arrive, in order of length.
pub(crate) fn delays(
    produced: &[Produced],
    arrivals: &[Arrival],
    (from, to): (Instant, Instant),
) -> Vec<Duration> {
    let mut first = HashMap::<Key, Instant>::with_capacity(arrivals.len());
    for arrival in arrivals {
        first.entry(arrival.id).or_insert(arrival.at);
    }
    let shown = produced.iter().filter(|one| (from..to).contains(&one.at));
    let mut delays: Vec<Duration> = shown
        .filter_map(|one| Some(first.get(&one.id)?.saturating_duration_since(one.at)))
        .collect();
    delays.sort_unstable();
    delays
}

impl AddAssign for Verdict {
    fn add_assign(&mut self, other: Self) {
        self.repeated_at.extend(other.repeated_at);
        for (sum, more) in [
            (&mut self.produced, other.produced),
            (&mut self.delivered, other.delivered),
            (&mut self.again, other.again),
            (&mut self.missing, other.missing),
            (&mut self.repeated, other.repeated),
            (&mut self.strangers, other.strangers),
            (&mut self.retold, other.retold),
            (&mut self.mistold, other.mistold),
            (&mut self.order_breaks, other.order_breaks),
            (&mut self.delta_in, other.delta_in),
            (&mut self.delta_out, other.delta_out),
            (&mut self.unbalanced, other.unbalanced),
        ] {
            *sum += more;
        }
    }
}

impl Verdict {
    /// What holds whatever happens: nothing is made up, each event is told as it was produced, each
    /// repeat is the same as the first, and what is about one object comes in order.
    pub(crate) fn is_honest(&self, sink: &str) {
        let found = (self.strangers, self.mistold, self.retold, self.order_breaks);
        assert_eq!(
            found,
            (0, 0, 0, 0),
            "{sink}: never produced, told wrongly, told otherwise, out of order: {self}"
        );
    }

    /// Every version arrived, with all its increments.
    pub(crate) fn lost_nothing(&self, sink: &str) {
        assert_eq!((self.missing, self.unbalanced), (0, 0), "{sink}: lost, unbalanced: {self}");
    }

    /// Versions may have been held back, but the increments of each object came out.
    pub(crate) fn adds_up(&self, sink: &str) {
        let sums = (self.delta_in, 0);
        assert_eq!((self.delta_out, self.unbalanced), sums, "{sink}: sum, unbalanced: {self}");
    }

    /// Where each write is one increment, and none is part of another's: what is missing took its
    /// own with it and no more.
    pub(crate) fn misses_one_increment_each(&self, sink: &str) {
        let sum = self.delta_out + self.missing;
        assert_eq!(sum, self.delta_in, "{sink}: increments out, and missing: {self}");
        let (unbalanced, missing) = (self.unbalanced, self.missing);
        assert!(unbalanced <= missing, "{sink}: objects unbalanced, missing: {self}");
    }

    /// The row of the page. What did not arrive is lost unless the caller knows better.
    pub(crate) fn row(&self, fault: &str, sink: &str) -> Row {
        Row {
            fault: fault.to_owned(),
            sink: sink.to_owned(),
            produced: Some(self.produced),
            delivered: Some(self.delivered),
            lost: Some(self.missing),
            repeated: Some(self.repeated),
            order_breaks: Some(self.order_breaks),
            delta: Some((self.delta_in, self.delta_out)),
            ..Row::default()
        }
    }
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { produced, delivered, missing, repeated, strangers, mistold, retold, .. } = self;
        write!(
            f,
            "produced {produced}, delivered {delivered}, missing {missing}, repeated {repeated}, \
             never produced {strangers}, told wrongly {mistold}, told otherwise {retold}, out of \
             order {}, increments in \
             {} and out {}, objects unbalanced {}",
            self.order_breaks, self.delta_in, self.delta_out, self.unbalanced
        )
    }
}
