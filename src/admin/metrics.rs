//! The metrics, read at each scrape from the one place that counts.

mod process;

use std::fmt;

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric, MetricEncoder, NoLabelSet},
    metrics::{MetricType, counter::ConstCounter, gauge::ConstGauge, info::Info},
    registry::{Registry, Unit},
};
use tokio::runtime::Handle;

use super::status::{GapStatus, SinkStatus, Status, status};
use crate::bridge::{BridgeView, EventCounters, Latencies, Overflow, SinkCondition};

/// A registry with every metric of a bridge.
pub fn registry(view: &BridgeView) -> Registry {
    registry_of(Box::new(BridgeCollector { view: view.clone() }))
}

fn registry_of(bridge: Box<dyn Collector>) -> Registry {
    let mut registry = Registry::default();
    let tidings = registry.sub_registry_with_prefix("tidings");
    let build = Info::new(vec![("version", env!("CARGO_PKG_VERSION"))]);
    tidings.register("build", "The version that runs", build);
    tidings.register_collector(bridge);
    registry.register_collector(Box::new(process::ProcessCollector));
    registry
}

struct BridgeCollector {
    view: BridgeView,
}

impl fmt::Debug for BridgeCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BridgeCollector")
    }
}

impl Collector for BridgeCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        of_status(&mut encoder, &status(&self.view))?;
        events(&mut encoder, &self.view.counters, self.view.log.tail().next)?;
        tasks(&mut encoder, &self.view.runtime)
    }
}

fn of_status(encoder: &mut DescriptorEncoder<'_>, now: &Status) -> fmt::Result {
    sinks(encoder, now)?;
    dead_letters(encoder, now)?;
    sources(encoder, now)?;
    journal(encoder, now)?;
    configuration(encoder, now)?;
    stuck(encoder, now)
}

fn sinks(encoder: &mut DescriptorEncoder<'_>, now: &Status) -> fmt::Result {
    let fates = now.sinks.iter().flat_map(|sink| {
        let fates = [
            ("delivered", sink.delivered),
            ("filtered", sink.filtered),
            ("correlated-away", sink.correlated_away),
            // A counter may not go down: what was taken in the end stays in it.
            ("dead-lettered", sink.dead_lettered + sink.retried),
            ("lost", sink.lost),
        ];
        fates.map(|(fate, count)| {
            ([("sink", &*sink.name), ("fate", fate)], ConstCounter::new(count))
        })
    });
    family(encoder, "sink_events", "Events by what became of them, over all runs", None, fates)?;
    let mut counter = |name, help, value: fn(&SinkStatus) -> u64| {
        let values = now.sinks.iter().map(|s| ([("sink", &*s.name)], ConstCounter::new(value(s))));
        family(encoder, name, help, None, values)
    };
    counter("sink_redelivered", "Events delivered again after a crash, over all runs", |s| {
        s.redelivered
    })?;
    counter("sink_attempts", "Attempts to deliver", |s| s.attempts)?;
    counter("sink_failed_attempts", "Attempts to deliver that failed", |s| s.failed_attempts)?;
    counter("sink_match_errors", "Events let through because match could not be evaluated", |s| {
        s.match_errors
    })?;
    counter("sink_duplicates", "Events delivered that it knew to have had before", |s| {
        s.duplicates
    })?;
    counter("sink_truncated", "Events taken that were cut, being too large for the sink", |s| {
        s.truncated
    })?;
    let help = "Dead letters of the sink that it took in the end, over all runs";
    counter("sink_retried", help, |s| s.retried)?;
    counter("sink_forwarded", "Dead letters of other sinks that it took", |s| s.forwarded)?;
    counter("sink_forwards_refused", "Dead letters of other sinks that it refused", |s| {
        s.forwards_refused
    })?;
    counter("sink_replayed", "Events taken once more by a replay", |s| s.replayed)?;
    let outcomes = now.sinks.iter().flat_map(|sink| {
        let outcomes = sink.enrichments.iter().flatten();
        outcomes.map(|(outcome, count)| {
            ([("sink", &*sink.name), ("outcome", &**outcome)], ConstCounter::new(*count))
        })
    });
    let help = "Events by what the sink was told of their objects";
    family(encoder, "sink_enrichment", help, None, outcomes)?;
    let values = now.sinks.iter().map(|s| ([("sink", &*s.name)], Histogram(&s.latencies)));
    let help = "Time from journalling an event to the answer of the receiver that has it";
    family(encoder, "sink_delivery", help, Some(&Unit::Seconds), values)?;
    let values = now.sinks.iter().map(|s| ([("sink", &*s.name)], ConstGauge::new(s.pending)));
    family(encoder, "sink_pending", "Events in the journal without a fate", None, values)?;
    let values = now.sinks.iter().map(|s| ([("sink", &*s.name)], ConstGauge::new(s.parked)));
    let help = "Dead letters that are parked: the receiver fails for them alone";
    family(encoder, "sink_parked", help, None, values)?;
    let values = now.sinks.iter().map(|s| ([("sink", &*s.name)], ConstGauge::new(s.overrun)));
    let help = "Events without a fate that the journal no longer has";
    family(encoder, "sink_overrun", help, None, values)?;
    let values = now.sinks.iter().map(|s| ([("sink", &*s.name)], ConstGauge::new(s.held)));
    family(encoder, "sink_held", "Events that the correlator holds back", None, values)?;
    let values = now.sinks.iter().map(|s| ([("sink", &*s.name)], ConstGauge::new(s.backlog_bytes)));
    let help = "The journal from the first event without a fate to its end";
    family(encoder, "sink_backlog", help, Some(&Unit::Bytes), values)?;
    let values = now.sinks.iter().map(|s| ([("sink", &*s.name)], ConstGauge::new(s.lag_seconds)));
    family(
        encoder,
        "sink_lag",
        "Age of the oldest event without a fate that is not held back",
        Some(&Unit::Seconds),
        values,
    )?;
    let values = now.sinks.iter().flat_map(|sink| {
        SinkCondition::ALL.map(|condition| {
            let labels = [("sink", &*sink.name), ("state", condition.as_str())];
            (labels, ConstGauge::new(i64::from(sink.state == condition)))
        })
    });
    family(encoder, "sink_state", "1 for the state that the sink is in", None, values)
}

fn dead_letters(encoder: &mut DescriptorEncoder<'_>, now: &Status) -> fmt::Result {
    let letters = &now.dead_letters;
    let values = letters.iter().map(|(s, c)| ([("sink", s.as_str())], ConstGauge::new(c.letters)));
    family(encoder, "dead_letters", "Dead letters that are kept", None, values)?;
    let values = letters.iter().map(|(s, c)| ([("sink", s.as_str())], ConstGauge::new(c.bytes)));
    let help = "What dead letters take of journal.deadLetters";
    family(encoder, "dead_letters_size", help, Some(&Unit::Bytes), values)?;
    let values = letters.iter().flat_map(|(sink, counts)| {
        [("overflow", counts.overflowed), ("command", counts.dropped)].map(|(reason, count)| {
            ([("sink", sink.as_str()), ("reason", reason)], ConstCounter::new(count))
        })
    });
    let help = "Events in dead letters that went for want of room or by command, over all runs";
    family(encoder, "dead_letters_dropped", help, None, values)?;
    let values =
        letters.iter().map(|(s, c)| ([("sink", s.as_str())], ConstCounter::new(c.arrived)));
    let help = "Events of those that arrived all the same: they were on their way, over all runs";
    family(encoder, "dead_letters_arrived", help, None, values)
}

fn events(
    encoder: &mut DescriptorEncoder<'_>,
    counters: &EventCounters,
    journalled: u64,
) -> fmt::Result {
    let Some(counted) = counters.next_sequence() else { return Ok(()) };
    let series = counters.series().into_iter();
    let values = series.map(|series| (series.labels, ConstCounter::new(series.value)));
    let help = "Occurrences of events, as `metrics` of the configuration counts them";
    family(encoder, "events", help, None, values)?;
    let values = counters.failures().into_iter();
    let values = values.map(|(metric, count)| ([("metric", metric)], ConstCounter::new(count)));
    let help = "Events that match or a label could not be evaluated for, or that were gone before";
    family(encoder, "events_uncounted", help, None, values)?;
    let help = "Events in the journal that are not counted yet";
    let pending = ConstGauge::new(journalled.saturating_sub(counted));
    single(encoder, "events_pending", help, None, &pending)
}

fn sources(encoder: &mut DescriptorEncoder<'_>, now: &Status) -> fmt::Result {
    let values = now.sources.iter().filter_map(|source| {
        Some(([("source", &*source.source)], ConstGauge::new(source.watch_age_seconds?)))
    });
    let help = "Time since the API server last answered or sent something";
    family(encoder, "source_watch_age", help, Some(&Unit::Seconds), values)?;
    let values = now.sources.iter().map(|source| {
        ([("source", &*source.source)], ConstGauge::new(i64::from(source.stream_open)))
    });
    family(encoder, "source_stream_open", "Whether a watch stream is open", None, values)?;
    let ingest = &now.ingest;
    let mut counter =
        |name, help, value: u64| single(encoder, name, help, None, &ConstCounter::new(value));
    counter("source_events", "Changes read and journalled", ingest.events)?;
    counter(
        "source_truncated",
        "Changes journalled whose Event was cut, being too large",
        ingest.truncated,
    )?;
    counter("source_repeats", "Versions read that were journalled already", ingest.repeats)?;
    counter("source_undecodable", "Objects read that are no Events", ingest.undecodable)?;
    counter(
        "source_heartbeats",
        "Heartbeats of this bridge that came by a watch",
        ingest.heartbeats,
    )?;
    counter(
        "source_heartbeats_missed",
        "Watches opened anew because they did not bring our own heartbeat in time",
        ingest.heartbeats_missed,
    )?;
    counter("source_gaps", "Gaps that hid something", ingest.gaps)?;
    counter(
        "source_skipped_increments",
        "Increments seen only as part of a larger one",
        ingest.skipped_increments,
    )?;
    counter(
        "source_epochs",
        "Times that the API server was another or a restored one",
        ingest.epochs,
    )?;
    if let Some(requests) = ingest.object_requests {
        counter("object_requests", "Requests for single objects, and for their kinds", requests)?;
    }
    let last = |end: fn(&GapStatus) -> f64| {
        let gaps = ingest.last_gaps.iter();
        gaps.map(move |gap| ([("source", &*gap.source)], ConstGauge::new(end(gap))))
    };
    let values = last(|gap| gap.from_seconds);
    let help = "When the last gap began, in seconds since the epoch";
    family(encoder, "source_last_gap_start_timestamp", help, Some(&Unit::Seconds), values)?;
    let values = last(|gap| gap.to_seconds);
    let help = "When the last gap ended, in seconds since the epoch";
    family(encoder, "source_last_gap_end_timestamp", help, Some(&Unit::Seconds), values)?;
    let gap = ConstCounter::new(ingest.gap_seconds);
    single(encoder, "source_gap", "Length of all gaps", Some(&Unit::Seconds), &gap)
}

fn journal(encoder: &mut DescriptorEncoder<'_>, now: &Status) -> fmt::Result {
    let journal = &now.journal;
    let size = ConstGauge::new(journal.bytes);
    let help = "The journal on disk, all files told";
    single(encoder, "journal_size", help, Some(&Unit::Bytes), &size)?;
    let records = ConstGauge::new(journal.records);
    single(encoder, "journal_records", "Events that the journal holds", None, &records)?;
    let (places, records) = journal.damage.as_ref().map_or((0, 0), |d| (d.places, d.records));
    let help = "Damaged places found in the journal";
    single(encoder, "journal_damage", help, None, &ConstCounter::new(places))?;
    let help = "Records missing in damaged places of the journal, at most";
    single(encoder, "journal_damage_records", help, None, &ConstCounter::new(records))?;
    let writable = ConstGauge::new(i64::from(journal.error.is_none()));
    single(
        encoder,
        "journal_writable",
        "Whether the journal can be written, and so that it stays",
        None,
        &writable,
    )?;
    let blocking = now.sinks.iter().filter(|sink| sink.overflow == Overflow::Block);
    let values = blocking.map(|sink| {
        let blocks = journal.blocked_by.iter().any(|blocked| blocked.sink == sink.name);
        ([("sink", &*sink.name)], ConstGauge::new(i64::from(blocks)))
    });
    let help = "Whether intake stands still for what a sink with overflow: block has not had";
    family(encoder, "journal_blocked", help, None, values)
}

fn configuration(encoder: &mut DescriptorEncoder<'_>, now: &Status) -> fmt::Result {
    let Some(configuration) = &now.configuration else { return Ok(()) };
    let rejected = ConstGauge::new(i64::from(configuration.rejected.is_some()));
    let help = "Whether the file is rejected, and an earlier content of it is in force";
    single(encoder, "config_rejected", help, None, &rejected)?;
    let since = ConstGauge::new(configuration.since_seconds);
    let help = "Since when the configuration has been in force, in seconds since the epoch";
    single(encoder, "config_in_force_since_timestamp", help, Some(&Unit::Seconds), &since)
}

fn stuck(encoder: &mut DescriptorEncoder<'_>, now: &Status) -> fmt::Result {
    let values = now.parts.iter().map(|part| {
        ([("part", &*part.part)], ConstGauge::new(i64::from(part.stuck_seconds.is_some())))
    });
    let help = "Whether a part of the bridge is at work on something that should long be done";
    family(encoder, "stuck", help, None, values)
}

fn tasks(encoder: &mut DescriptorEncoder<'_>, of_bridge: &Handle) -> fmt::Result {
    // Who asks may be served on a runtime of its own.
    let here = Handle::try_current().ok().filter(|here| here.id() != of_bridge.id());
    let runtimes = here.iter().chain([of_bridge]);
    let alive = runtimes.map(|runtime| runtime.metrics().num_alive_tasks()).sum::<usize>();
    let alive = ConstGauge::new(i64::try_from(alive).unwrap_or(0));
    let help = "Tasks that have not ended: of the bridge, and one a connection to the admin server";
    single(encoder, "runtime_tasks", help, None, &alive)
}

struct Histogram<'a>(&'a Latencies);

impl EncodeMetric for Histogram<'_> {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        let buckets: Vec<_> = self.0.buckets().collect();
        let count = buckets.iter().map(|(_, count)| count).sum();
        encoder.encode_histogram::<NoLabelSet>(self.0.sum_seconds(), count, &buckets, None)
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Histogram
    }
}

/// One metric: its name and help, and a value for each label set.
fn family<L: EncodeLabelSet, M: EncodeMetric>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    unit: Option<&Unit>,
    values: impl IntoIterator<Item = (L, M)>,
) -> fmt::Result {
    let mut values = values.into_iter().peekable();
    let Some((_, first)) = values.peek() else { return Ok(()) };
    let mut family = encoder.encode_descriptor(name, help, unit, first.metric_type())?;
    for (labels, metric) in values {
        metric.encode(family.encode_family(&labels)?)?;
    }
    Ok(())
}

/// One metric with one value.
fn single(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    unit: Option<&Unit>,
    metric: &impl EncodeMetric,
) -> fmt::Result {
    metric.encode(encoder.encode_descriptor(name, help, unit, metric.metric_type())?)
}

#[cfg(test)]
mod tests;
