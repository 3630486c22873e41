//! What sinks with `overflow: block` have not had, held against the size of the journal.
//!
//! Nothing that such a sink has not had is dropped, so intake has to stop before the journal
//! outgrows its size, and goes on when an eighth of it is free again: or it would stop and go with
//! every frame. What a sink has not had only grows by what is appended, so it is counted anew only
//! when as much has been appended as was free at the last count.

use std::sync::Arc;

use crate::{
    bridge::{Overflow, SinkProgress, shared::BlockedBy},
    journal::{Log, LogHandle},
};

/// Intake goes on when this part of the room is free. What correlators hold leaves it free: see
/// [`correlation`](crate::bridge::correlation).
const FREE_AGAIN: u64 = 8;

/// See the [module](self).
pub(super) struct Backlog {
    /// Those that block.
    sinks: Vec<Arc<SinkProgress>>,
    log: LogHandle,
    retention_size: u64,
    /// So many bytes can be appended before any sink can be over the limit.
    free: u64,
}

impl Backlog {
    pub(super) fn new(sinks: &[Arc<SinkProgress>], log: &Log) -> Self {
        let blocks = |sink: &&Arc<SinkProgress>| sink.overflow() == Overflow::Block;
        let sinks = sinks.iter().filter(blocks).cloned().collect();
        let retention_size = log.options().retention_size;
        Self { sinks, log: log.handle(), retention_size, free: 0 }
    }

    /// The first record that has to stay in the log; nothing if none has to.
    pub(super) fn hold(&self) -> Option<u64> {
        self.sinks.iter().map(|sink| sink.keep_from()).min()
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
        if self.sinks.is_empty() || self.free > 0 { Vec::new() } else { self.over(self.limit()) }
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
