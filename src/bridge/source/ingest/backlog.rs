//! The backlog, what sinks have not had, held against the size of the journal.
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

use crate::{
    bridge::{Overflow, SinkProgress, shared::BlockedBy},
    journal::{Log, LogHandle},
};

/// Intake goes on when this part of the room is free. What correlators hold leaves it free: see
/// [`correlation`](crate::bridge::correlation).
const FREE_AGAIN: u64 = 8;
/// So much stays in any journal for a sink that holds versions back, as long as it does not stand
/// still: the smallest one is less than what may come in the second before a kill and while it starts.
const SMALL: u64 = 4 << 20;
/// A sink stands still when nothing has been settled for so long.
const STANDS_STILL: Duration = Duration::from_secs(10);

/// The backlog of all sinks. See the [module](self).
pub(super) struct Backlog {
    /// Those that block.
    sinks: Vec<Arc<SinkProgress>>,
    /// The others.
    dropping: Vec<Arc<SinkProgress>>,
    log: LogHandle,
    retention_age_ms: u64,
    /// So many bytes can be appended before any sink can be over the limit.
    free: u64,
}

impl Backlog {
    pub(super) fn new(sinks: &[Arc<SinkProgress>], log: &Log) -> Self {
        let blocks = |sink: &Arc<SinkProgress>| sink.overflow() == Overflow::Block;
        let (sinks, dropping) = sinks.iter().cloned().partition(blocks);
        let age = log.options().retention_age;
        let retention_age_ms = u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
        Self { sinks, dropping, log: log.handle(), retention_age_ms, free: 0 }
    }

    /// The first record that has to stay in the log; nothing if none has to.
    pub(super) fn hold(&self, now_ms: u64) -> Option<u64> {
        let blocking = self.sinks.iter().map(|sink| sink.keep_from());
        let summing = self.dropping.iter().filter_map(|sink| {
            let bytes = self.log.bytes_from(sink.unsettled_from());
            let moves = sink.settled_at().elapsed() < STANDS_STILL;
            let fits = bytes < self.log.room() || bytes < SMALL && moves;
            // What nobody has held back goes with its time, and so does all of a sink that stands still.
            let young = |ms: u64| now_ms.saturating_sub(ms) <= self.retention_age_ms;
            let stays = || sink.holds() && moves || self.log.time_of(sink.next()).is_none_or(young);
            (sink.holds_back() && fits && stays()).then(|| sink.keep_from())
        });
        blocking.chain(summing).min()
    }

    /// So many bytes have been appended.
    pub(super) fn grown(&mut self, bytes: usize) {
        self.free = self.free.saturating_sub(bytes as u64);
    }

    /// Forgets what was free before: it may be so no longer.
    pub(super) fn count_anew(&mut self) {
        self.free = 0;
    }

    /// The sinks that intake has to stop for; as a rule none, and that is known without asking.
    pub(super) fn full(&mut self) -> Vec<BlockedBy> {
        if self.sinks.is_empty() || self.free > 0 { Vec::new() } else { self.over(self.log.room()) }
    }

    /// Once it has stopped: those that it cannot go on for yet.
    pub(super) fn not_free_again(&mut self) -> Vec<BlockedBy> {
        let limit = self.log.room();
        self.over(limit - limit / FREE_AGAIN)
    }

    fn over(&mut self, limit: u64) -> Vec<BlockedBy> {
        self.free = limit;
        let mut blocked = Vec::new();
        for sink in &self.sinks {
            let bytes = self.log.bytes_from(sink.unsettled_from());
            self.free = self.free.min(limit.saturating_sub(bytes));
            if bytes >= limit {
                blocked.push(BlockedBy { sink: sink.name(), bytes });
            }
        }
        blocked
    }
}
