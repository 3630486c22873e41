//! Works, which gathering hands to delivery.

use std::sync::Arc;

use tokio::sync::oneshot;

use crate::{
    event::Batch,
    journal::{Inputs, Resume, SavedCorrelator, Standing},
};

/// A batch and all that is settled with it.
#[derive(Debug, Default)]
pub(crate) struct Work {
    /// The records that are to be delivered; may be empty.
    pub(crate) batch: Batch,
    /// The place that it comes to, with all that is in it.
    pub(crate) reached: Reached,
    /// Resume points that are covered with it.
    pub(crate) resumes: Vec<(Arc<str>, Resume)>,
    /// The correlator, at a position that is not beyond this one's.
    pub(crate) correlator: Option<SavedCorrelator>,
    /// The inputs that the correlator decided by.
    pub(crate) inputs: Inputs,
    /// Is told when all of this is on the disk.
    pub(crate) saved: Option<oneshot::Sender<()>>,
    /// If not, the next work belongs to it, and what is behind the last mark is settled with that.
    pub(crate) settles: bool,
    /// Where it can be settled before its end, in order.
    pub(crate) marks: Vec<SettlePoint>,
    /// The ingest time of its first record, in milliseconds since the epoch.
    pub(crate) oldest_ms: u64,
}

/// Counts of what has been gathered of a work up to a place in it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Reached {
    /// Where the sink stands once the batch has its fates up to there.
    pub(crate) standing: Standing,
    /// The bytes that all records so far took in the log; 0 without a correlator.
    pub(crate) read_bytes: u64,
    /// Records between that `match` did not want.
    pub(crate) filtered: u64,
    /// Versions whose increments are announced with a later one.
    pub(crate) correlated_away: u64,
    /// Records that were gone before they could be read.
    pub(crate) lost: u64,
    /// Records that are gone, or that `match` does not want any more, and had been delivered by a run that
    /// a crash kept from saving it.
    pub(crate) delivered_before: u64,
}

/// A place in a work up to which it can be settled by itself: between two records, with what either
/// brought about on its own side.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SettlePoint {
    /// So many records of the batch come before it.
    pub(crate) at: usize,
    /// The counts of the work there.
    pub(crate) reached: Reached,
    /// So many of its resume points are covered.
    pub(crate) resumes: usize,
    /// So many of its inputs were decided on.
    pub(crate) inputs: usize,
}

impl Work {
    /// An empty one, from where the sink stands.
    pub(super) fn standing_at(standing: Standing, read_bytes: u64) -> Self {
        let reached = Reached { standing, read_bytes, ..Reached::default() };
        Self { reached, ..Self::default() }
    }

    /// Notes that it can be settled up to here, which is nothing new before its first record.
    pub(super) fn mark(&mut self) {
        if !self.batch.records.is_empty() {
            self.marks.push(self.end());
        }
    }

    /// The place behind all that is in it.
    pub(crate) fn end(&self) -> SettlePoint {
        SettlePoint {
            at: self.batch.records.len(),
            reached: self.reached,
            resumes: self.resumes.len(),
            inputs: self.inputs.len(),
        }
    }
}
