//! What a sink has received, as it tells the bench.

use std::{
    hash::{DefaultHasher, Hasher as _},
    time::{SystemTime, UNIX_EPOCH},
};

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// How events come to the sink.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Wire {
    /// Envelopes as JSON: one, or an array.
    Json,
    /// The same, and each event says when it was written.
    StampedJson,
    /// Documents of the Elastic Common Schema.
    Ecs,
    /// A bulk request.
    Bulk,
    /// Objects for the event collector of Splunk, entries for Loki.
    Hec,
    /// Messages of syslog, each behind its length, with an envelope.
    Syslog,
    /// Lines of a file, with an envelope each.
    Lines,
    /// An OTLP export request as protobuf.
    Otlp,
}

/// Times are microseconds since 1970; server and sink share the machine's clock.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Tally {
    pub(crate) first_us: i64,
    pub(crate) last_us: i64,
    pub(crate) requests: u64,
    pub(crate) events: usize,
    /// [`hash`] of each id, in order of arrival. What repeats is found by who asks, so that the
    /// sink has as little to do as possible.
    pub(crate) ids: Vec<u64>,
    /// From write to arrival, where events say when they were written.
    pub(crate) latencies_us: Vec<i64>,
}

impl Tally {
    /// Notes that something came now.
    pub(crate) fn arrived(&mut self, events: usize, now_us: i64) {
        if self.events == 0 {
            self.first_us = now_us;
        }
        self.last_us = now_us;
        self.events += events;
    }
}

/// Of the id of a change; the same in every process.
pub(crate) fn hash(id: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(id);
    hasher.finish()
}

pub(crate) fn now_us() -> i64 {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since_1970.as_micros()).unwrap_or(i64::MAX)
}
