//! What gathering hands to delivery.

use std::sync::Arc;

use tokio::sync::oneshot;

use crate::{
    event::Batch,
    journal::{Inputs, Resume, SavedCorrelator, Standing},
};

/// A batch and all that is settled with it.
#[derive(Debug, Default)]
pub(in crate::bridge) struct Work {
    /// What is to be delivered; may be empty.
    pub(in crate::bridge) batch: Batch,
    /// What it comes to, with all that is in it.
    pub(in crate::bridge) reached: Reached,
    /// Resume points that are covered with it.
    pub(in crate::bridge) resumes: Vec<(Arc<str>, Resume)>,
    /// The correlator, at a position that is not beyond this one's.
    pub(in crate::bridge) correlator: Option<SavedCorrelator>,
    /// What the correlator decided by.
    pub(in crate::bridge) inputs: Inputs,
    /// Is told when all of this is on the disk.
    pub(in crate::bridge) saved: Option<oneshot::Sender<()>>,
    /// If not, the next work belongs to it, and what is behind the last mark is settled with that.
    pub(in crate::bridge) settles: bool,
    /// Where it can be settled before its end, in order.
    pub(in crate::bridge) marks: Vec<Mark>,
    /// The ingest time of its first record, in milliseconds since the epoch.
    pub(in crate::bridge) oldest_ms: u64,
}

/// What has been gathered of a work up to a place in it.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::bridge) struct Reached {
    /// Where the sink stands once the batch has its fates up to there.
    pub(in crate::bridge) standing: Standing,
    /// What all records so far took in the log; 0 without a correlator.
    pub(in crate::bridge) read_bytes: u64,
    /// Records between that `match` did not want.
    pub(in crate::bridge) filtered: u64,
    /// Versions whose increments are announced with a later one.
    pub(in crate::bridge) correlated_away: u64,
    /// Records that were gone before they could be read.
    pub(in crate::bridge) lost: u64,
    /// Records that are gone, or that `match` does not want any more, and had been delivered by a run that
    /// a crash kept from saving it.
    pub(in crate::bridge) delivered_before: u64,
}

/// A place in a work up to which it can be settled by itself: between two records, with what either
/// brought about on its own side.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::bridge) struct Mark {
    /// So many records of the batch come before it.
    pub(in crate::bridge) at: usize,
    /// What the work comes to there.
    pub(in crate::bridge) reached: Reached,
    /// So many of its resume points are covered.
    pub(in crate::bridge) resumes: usize,
    /// So many of its inputs were decided on.
    pub(in crate::bridge) inputs: usize,
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
    pub(in crate::bridge) fn end(&self) -> Mark {
        Mark {
            at: self.batch.records.len(),
            reached: self.reached,
            resumes: self.resumes.len(),
            inputs: self.inputs.len(),
        }
    }
}
