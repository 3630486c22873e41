//! What gathering hands to delivery.

use crate::{bridge::progress::Settled, event::Batch, journal::Standing};

/// A batch, and what is settled with it.
#[derive(Debug, Default)]
pub(in crate::bridge) struct Work {
    /// What is to be delivered; may be empty.
    pub(in crate::bridge) batch: Batch,
    /// All that is settled with it, but for the fates of its records.
    pub(in crate::bridge) settled: Settled,
    /// If not, it is settled with the next work.
    pub(in crate::bridge) settles: bool,
    /// The ingest time of its first record, in milliseconds since the epoch.
    pub(in crate::bridge) oldest_ms: u64,
}

impl Work {
    /// An empty one, from where the sink stands.
    pub(super) fn standing_at(standing: Standing, read_bytes: u64) -> Self {
        let settled = Settled { standing, read_bytes, ..Settled::default() };
        Self { settled, ..Self::default() }
    }
}
