//! What became of the events, sink by sink.

use std::sync::atomic::{AtomicU64, Ordering};

use super::intake::RecorderCounts;

/// The events that one sink has seen, by what became of them.
///
/// Once the recording has ended, their sum is the number of events that were recorded since it
/// began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SinkCounts {
    /// Created or patched; also if the answer to that was lost, and a later try found the event.
    pub written: u64,
    /// Held back by the spam filter.
    pub skipped: u64,
    /// Given up: refused by the API server, or tried too often.
    pub given_up: u64,
    /// Lost before they were looked at: the queue of this sink was full. As of the last write.
    pub dropped: u64,
    /// Not written when the time of the shutdown was up. Of the one in hand it is not known whether
    /// the API server took it.
    pub not_written: u64,
    /// Lost: the sink, handler or log panicked on them. The log has its name and the message.
    pub panicked: u64,
    /// Tries after the first, over all events. No part of the sum.
    pub retries: u64,
}

impl SinkCounts {
    /// All that was seen and has a fate.
    pub fn total(&self) -> u64 {
        let Self { written, skipped, given_up, dropped, not_written, panicked, retries: _ } = self;
        written + skipped + given_up + dropped + not_written + panicked
    }
}

/// What a shutdown leaves behind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShutdownReport {
    /// What was recorded, and what was dropped before it came to any sink.
    pub recorders: RecorderCounts,
    /// What became of it in each sink, in the order in which they were started. Sinks that had been
    /// stopped before, and had ended, are left out.
    pub sinks: Vec<SinkCounts>,
    /// The same of event watchers and logs. What they were told counts as written.
    pub watchers: Vec<SinkCounts>,
}

impl ShutdownReport {
    /// Whether everything that was recorded was written, or held back on purpose, and no event watcher
    /// panicked.
    pub fn is_complete(&self) -> bool {
        self.recorders.dropped() == 0
            && self.sinks.iter().all(|sink| sink.total() == sink.written + sink.skipped)
            && self.watchers.iter().all(|watcher| watcher.panicked == 0)
    }
}

/// What became of one event that was taken from the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Written,
    Skipped,
    GivenUp,
    NotWritten,
    Panicked,
}

/// The same as [`SinkCounts`], while it happens.
#[derive(Debug, Default)]
pub(super) struct Tally {
    written: AtomicU64,
    skipped: AtomicU64,
    given_up: AtomicU64,
    dropped: AtomicU64,
    not_written: AtomicU64,
    panicked: AtomicU64,
    retries: AtomicU64,
}

impl Tally {
    pub(super) fn add(&self, fate: Fate) {
        let place = match fate {
            Fate::Written => &self.written,
            Fate::Skipped => &self.skipped,
            Fate::GivenUp => &self.given_up,
            Fate::NotWritten => &self.not_written,
            Fate::Panicked => &self.panicked,
        };
        place.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn add_retry(&self) {
        self.retries.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn set_dropped(&self, dropped: u64) {
        self.dropped.store(dropped, Ordering::Relaxed);
    }

    pub(super) fn counts(&self) -> SinkCounts {
        let of = |place: &AtomicU64| place.load(Ordering::Relaxed);
        SinkCounts {
            written: of(&self.written),
            skipped: of(&self.skipped),
            given_up: of(&self.given_up),
            dropped: of(&self.dropped),
            not_written: of(&self.not_written),
            panicked: of(&self.panicked),
            retries: of(&self.retries),
        }
    }
}
