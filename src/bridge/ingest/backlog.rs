//! What sinks have not had, held against the size of the journal.
//!
//! Nothing that a sink with `overflow: block` has not had is dropped, so intake has to stop before the journal
//! outgrows its size, and goes on when an eighth of it is free again: or it would stop and go with
//! every frame. What a sink has not had only grows by what is appended, so it is counted anew only
//! when as much has been appended as was free at the last count.
//!
//! For a sink with `overflow: dropOldest` and a correlator that holds versions back, the log keeps what
//! it has not had and the records of what is held: or the increments that come out would not be those
//! that went in. That is little while the sink keeps up. Where what it has
//! not had outgrows the journal it goes, as everything does that such a sink has not had.

use std::{sync::Arc, time::Duration};

use tidings_log::{Log, LogHandle, LogOptions};

use crate::bridge::{Overflow, SinkProgress, Sinks, shared::BlockedBy};

/// Intake goes on when this part of the room is free. What correlators hold leaves it free: see
/// [`correlation`](crate::bridge::correlation).
const FREE_AGAIN: u64 = 8;
/// So much stays in any journal for a sink that holds versions back, as long as it does not stand
/// still: the smallest one is less than what may come in the second before a kill and while it starts.
const SMALL: u64 = 4 << 20;
/// A sink stands still when nothing has been settled for so long.
const STANDS_STILL: Duration = Duration::from_secs(10);

/// See the [module](self).
pub(super) struct Backlog {
    sinks: Sinks,
    /// Of the sinks when it was counted last.
    changes: u64,
    log: LogHandle,
    retention_size: u64,
    retention_age_ms: u64,
    /// So many bytes can be appended before any sink can be over the limit.
    free: u64,
}

impl Backlog {
    pub(super) fn new(sinks: Sinks, log: &Log) -> Self {
        let LogOptions { retention_size, retention_age, .. } = *log.options();
        let retention_age_ms = u64::try_from(retention_age.as_millis()).unwrap_or(u64::MAX);
        Self { sinks, changes: 0, log: log.handle(), retention_size, retention_age_ms, free: 0 }
    }

    /// The first record that has to stay in the log; nothing if none has to.
    pub(super) fn hold(&self, now_ms: u64) -> Option<u64> {
        let (blocking, dropping) = self.by_overflow();
        let blocking = blocking.iter().map(|sink| sink.keep_from());
        let summing = dropping.iter().filter_map(|sink| {
            let bytes = self.log.bytes_from(sink.unsettled_from());
            let moves = sink.settled_at().elapsed() < STANDS_STILL;
            let fits = bytes < self.limit() || bytes < SMALL && moves;
            // What nobody has held back goes with its time, and so does all of a sink that stands still.
            let young = |ms: u64| now_ms.saturating_sub(ms) <= self.retention_age_ms;
            let stays = || sink.holds() && moves || self.log.time_of(sink.next()).is_none_or(young);
            (sink.holds_back() && fits && stays()).then(|| sink.keep_from())
        });
        blocking.chain(summing).min()
    }

    /// Those that block, and the others.
    fn by_overflow(&self) -> (Vec<Arc<SinkProgress>>, Vec<Arc<SinkProgress>>) {
        self.sinks.now().into_iter().partition(|sink| sink.overflow() == Overflow::Block)
    }

    /// So many bytes have been appended.
    pub(super) fn grown(&mut self, bytes: usize) {
        self.free = self.free.saturating_sub(bytes as u64);
    }

    /// What was free before may be free no longer.
    pub(super) fn count_anew(&mut self) {
        self.free = 0;
    }

    /// The sinks that intake has to stop for; as a rule none, and that is known without asking.
    pub(super) fn full(&mut self) -> Vec<BlockedBy> {
        let changed = self.sinks.changes() != self.changes;
        if self.free > 0 && !changed { Vec::new() } else { self.over(self.limit()) }
    }

    /// Once it has stopped: those that it cannot go on for yet.
    pub(super) fn not_free_again(&mut self) -> Vec<BlockedBy> {
        let limit = self.limit();
        self.over(limit - limit / FREE_AGAIN)
    }

    /// What a sink may have outstanding in the log: the size of the journal but for what else is in
    /// its directory. At least half of it, or a large state would stop intake for good.
    fn limit(&self) -> u64 {
        let besides = self.log.other_bytes();
        self.retention_size.saturating_sub(besides).max(self.retention_size / 2).max(1)
    }

    fn over(&mut self, limit: u64) -> Vec<BlockedBy> {
        self.free = limit;
        self.changes = self.sinks.changes();
        let mut blocked = Vec::new();
        for sink in self.by_overflow().0 {
            let bytes = self.log.bytes_from(sink.unsettled_from());
            self.free = self.free.min(limit.saturating_sub(bytes));
            if bytes >= limit {
                blocked.push(BlockedBy { sink: sink.name(), bytes });
            }
        }
        blocked
    }
}
