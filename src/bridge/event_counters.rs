//! Counters that are made of Events: the increments of those that match, by labels.
//!
//! They follow the journal as a sink does: live, and from the log where they lag, so that no event waits for them.
//! They begin at 0 with each start, as counters of Prometheus do, and when they are new or changed in a running bridge.
//! From then on they count each record once. The series of a counter are bounded, and so are the values of their labels, which an Event's author may choose.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use tokio::task::spawn_blocking;

use super::{
    Filter,
    feed::{Fed, Feed},
    shared::lock,
    tasks::answer_of,
};
use crate::{
    event::{EnvelopeParts, Record},
    plain::one_line,
    template::{Rendering, Templated},
};

/// A value of a label is not much longer, in bytes.
const LONGEST_VALUE: usize = 128;
/// The value of every label of the series for what comes beyond the bound.
const OTHER: &str = "other";

/// A counter.
#[derive(Clone, Debug, PartialEq)]
pub struct EventCounter {
    /// Its name, the value of the label `metric`.
    pub name: String,
    /// The events that it counts; `None` for all.
    pub filter: Option<Filter>,
    /// Its labels and how their values are made.
    pub labels: Vec<(String, Templated)>,
    /// The most series that it has, apart from the one for all others.
    pub max: usize,
}

/// All counters, with what they have counted.
#[derive(Debug, Default)]
pub struct EventCounters {
    counters: Mutex<Arc<[Arc<Counter>]>>,
    /// The sequence behind the last record that was counted.
    next_sequence: AtomicU64,
}

#[derive(Debug)]
struct Counter {
    options: EventCounter,
    counted: Mutex<Counted>,
}

#[derive(Debug, Default)]
struct Counted {
    /// By the values of the labels.
    series: BTreeMap<Vec<String>, u64>,
    failures: u64,
}

/// One series of a counter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventSeries {
    /// The labels, that of the counter's name first.
    pub labels: Vec<(String, String)>,
    /// The increments of the occurrences.
    pub value: u64,
}

impl EventCounters {
    /// Counters that stand at 0.
    pub fn new(counters: Vec<EventCounter>) -> Self {
        let this = Self::default();
        this.set(counters);
        this
    }

    /// Replaces the counters. One that is there already, with the same options, counts on; the others
    /// begin at 0.
    pub fn set(&self, counters: Vec<EventCounter>) {
        let mut now = lock(&self.counters);
        let counter = |options: EventCounter| {
            let before = now.iter().find(|counter| counter.options == options);
            before.cloned().unwrap_or_else(|| Arc::new(Counter::new(options)))
        };
        *now = counters.into_iter().map(counter).collect();
    }

    fn now(&self) -> Arc<[Arc<Counter>]> {
        Arc::clone(&lock(&self.counters))
    }

    /// Every series, by counter and by label values.
    pub fn series(&self) -> Vec<EventSeries> {
        let mut all = Vec::new();
        for Counter { options, counted } in self.now().iter().map(|counter| &**counter) {
            all.extend(lock(counted).series.iter().map(|(values, value)| {
                let names = options.labels.iter().map(|(name, _)| name.clone());
                let name = ("metric".to_owned(), options.name.clone());
                let labels = names.zip(values.iter().cloned());
                EventSeries { labels: std::iter::once(name).chain(labels).collect(), value: *value }
            }));
        }
        all
    }

    /// The sequence behind the last record that was counted; nothing without counters.
    pub fn next_sequence(&self) -> Option<u64> {
        (!self.now().is_empty()).then(|| self.next_sequence.load(Ordering::Relaxed))
    }

    /// For each counter the events that it could not count: its `match` or a label fails on them, or they were gone
    /// from the journal before.
    pub fn failures(&self) -> Vec<(String, u64)> {
        let failures = |counter: &Arc<Counter>| {
            (counter.options.name.clone(), lock(&counter.counted).failures)
        };
        self.now().iter().map(failures).collect()
    }

    /// Counts the records that the feed gives, until it ends.
    pub(super) fn run(self: Arc<Self>, feed: Feed) -> impl Future<Output = ()> {
        self.next_sequence.store(feed.next_sequence(), Ordering::Relaxed);
        self.count(feed)
    }

    async fn count(self: Arc<Self>, mut feed: Feed) {
        while let Some(fed) = feed.next().await {
            let counters = self.now();
            if !counters.is_empty() {
                if fed.lost > 0 {
                    tracing::warn!(
                        events = fed.lost,
                        "counters of events lag by more than the journal holds: these are not counted"
                    );
                }
                // An expression or a template may take milliseconds on an event.
                answer_of(spawn_blocking(move || count_all(&counters, &fed))).await;
            }
            self.next_sequence.store(feed.next_sequence(), Ordering::Relaxed);
        }
    }
}

fn count_all(counters: &[Arc<Counter>], fed: &Fed) {
    for counter in counters {
        lock(&counter.counted).failures += fed.lost;
    }
    for record in fed.records() {
        // A version with no further occurrence counts nothing.
        let delta = EnvelopeParts::of(&record.envelope).map_or(0, |parts| parts.delta);
        if delta > 0 {
            for counter in counters {
                counter.count(&record, delta);
            }
        }
    }
}

impl Counter {
    fn new(options: EventCounter) -> Self {
        let mut counted = Counted::default();
        if options.labels.is_empty() {
            // Prometheus sees the first increment only if it has seen 0 before.
            counted.series.insert(Vec::new(), 0);
        }
        Self { options, counted: Mutex::new(counted) }
    }

    fn count(&self, record: &Record, delta: u64) {
        let values = self.values(record);
        let mut counted = lock(&self.counted);
        let values = match values {
            Ok(None) => return,
            Ok(Some(values)) => values,
            Err(Uncounted) => {
                counted.failures += 1;
                return;
            }
        };
        let series = &mut counted.series;
        let values = if series.contains_key(&values) || series.len() < self.options.max {
            values
        } else {
            vec![OTHER.to_owned(); values.len()]
        };
        *series.entry(values).or_default() += delta;
    }

    /// The values of the labels for a record; nothing if it does not match.
    fn values(&self, record: &Record) -> Result<Option<Vec<String>>, Uncounted> {
        let EventCounter { filter, labels, .. } = &self.options;
        let wanted = filter.as_ref().map_or(Ok(true), |filter| filter.wants(record));
        if !wanted.map_err(|_| Uncounted)? {
            return Ok(None);
        }
        let mut rendering = Rendering::of(record);
        let value = |(name, template): &(String, Templated)| {
            let text = rendering.text(name, template).map_err(|_| Uncounted)?;
            Ok(one_line(&text, LONGEST_VALUE))
        };
        labels.iter().map(value).collect::<Result<_, _>>().map(Some)
    }
}

/// The `match` or a label of a counter fails on an event.
struct Uncounted;

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn counters(filter: &str, labels: &[(&str, &str)], max: usize) -> EventCounters {
        let label =
            |(name, text): &(&str, &str)| ((*name).to_owned(), Templated::parse(text).unwrap());
        let counter = EventCounter {
            name: "some".to_owned(),
            filter: Some(Filter::compile(filter).unwrap()),
            labels: labels.iter().map(label).collect(),
            max,
        };
        EventCounters::new(vec![counter])
    }

    fn record(namespace: &str, reason: &str) -> Record {
        let event = serde_json::json!({
            "id": "a-1",
            "event": {"metadata": {"namespace": namespace}, "reason": reason},
        });
        Record { seq: 0, envelope: Bytes::from(event.to_string()) }
    }

    /// Each series: the values of its labels and its own.
    fn series(counters: &EventCounters) -> Vec<String> {
        let text = |EventSeries { labels, value }| {
            let values: Vec<_> = labels.into_iter().map(|(_, value)| value).collect();
            format!("{} {value}", values.join(" "))
        };
        counters.series().into_iter().map(text).collect()
    }

    #[test]
    fn a_counter_adds_the_increments_of_what_matches() {
        let counters =
            counters(r#"event.reason == "OOM""#, &[("ns", "{{ event.metadata.namespace }}")], 9);
        for (namespace, reason, delta) in
            [("shop", "OOM", 1), ("shop", "OOM", 4), ("pay", "OOM", 2), ("shop", "Pulled", 7)]
        {
            counters.now()[0].count(&record(namespace, reason), delta);
        }
        assert_eq!(series(&counters), ["some pay 2", "some shop 5"]);
    }

    #[test]
    fn series_beyond_the_bound_are_one() {
        let counters =
            counters("true", &[("ns", "{{ event.metadata.namespace }}"), ("of", "fixed")], 2);
        for namespace in ["a", "b", "c", "d", "a", "other"] {
            counters.now()[0].count(&record(namespace, ""), 1);
        }
        assert_eq!(series(&counters), ["some a fixed 2", "some b fixed 1", "some other other 3"]);
    }

    #[test]
    fn a_value_of_a_label_is_one_bounded_line() {
        let counters = counters("true", &[("ns", "{{ event.metadata.namespace }}")], 9);
        counters.now()[0]
            .count(&record(&format!("a\n\u{1b}[31m\u{202e}{}", "é".repeat(1 << 16)), ""), 1);
        let series = counters.series();
        let value = &series[0].labels[1].1;
        assert!(value.starts_with("a [31mé") && value.len() < 300, "{value}");
    }

    #[test]
    fn a_counter_without_labels_begins_at_0() {
        assert_eq!(series(&counters("true", &[], 1)), ["some 0"]);
    }

    #[test]
    fn a_counter_that_is_set_again_counts_on_and_a_changed_one_begins_at_0() {
        let some = counters("true", &[], 1);
        some.now()[0].count(&record("shop", ""), 3);
        let same = some.now()[0].options.clone();
        let other = EventCounter { name: "other".to_owned(), ..same.clone() };
        some.set(vec![other, same.clone()]);
        assert_eq!(series(&some), ["other 0", "some 3"]);
        some.set(vec![EventCounter { max: 2, ..same }]);
        assert_eq!(series(&some), ["some 0"]);
    }

    #[test]
    fn an_event_that_cannot_be_counted_is_a_failure() {
        let counters = counters("1 / size(event.reason) > 0", &[], 1);
        counters.now()[0].count(&record("shop", ""), 1);
        counters.now()[0].count(&record("shop", "x"), 1);
        assert_eq!(counters.failures(), [("some".to_owned(), 1)]);
        assert_eq!(counters.series()[0].value, 1);
    }
}
