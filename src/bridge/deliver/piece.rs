//! Records of a batch that are sent as one.

use crate::{
    bridge::shared::now_ms,
    event::{Batch, Record},
};

/// See the [module](self).
pub(super) struct Piece {
    pub(super) batch: Batch,
    /// Where in the whole batch each of them is.
    pub(super) places: Vec<usize>,
    /// Since it was halved out of a larger one.
    pub(super) attempts: u32,
    /// Of these, the failures that mend themselves, which `retry.maxAttempts` bounds.
    pub(super) failures: u32,
    pub(super) first_ms: u64,
}

impl Piece {
    /// A whole batch.
    pub(super) fn whole(batch: Batch) -> Self {
        let places = (0..batch.records.len()).collect();
        Self { batch, places, attempts: 0, failures: 0, first_ms: now_ms() }
    }

    /// What has not had its fate yet comes back.
    pub(super) fn push(&mut self, record: Record, place: usize) {
        self.batch.records.push(record);
        self.places.push(place);
    }

    /// The second half; both are tried anew.
    pub(super) fn split_off_half(&mut self) -> Self {
        let half = self.places.len() / 2;
        (self.attempts, self.failures) = (0, 0);
        Self {
            batch: Batch { records: self.batch.records.split_off(half) },
            places: self.places.split_off(half),
            attempts: 0,
            failures: 0,
            first_ms: self.first_ms,
        }
    }
}
