//! The log as everyone but its writer has it.

use std::sync::Arc;

use super::{Position, Reader, segments::Shared};

/// Access to a log for reading. Clones are cheap and go to any thread; they see what was appended
/// as soon as it was.
#[derive(Clone, Debug)]
pub struct LogHandle {
    pub(super) shared: Arc<Shared>,
}

impl LogHandle {
    /// A reader of everything from the record `from` on.
    pub fn reader(&self, from: u64) -> Reader {
        Reader::new(Arc::clone(&self.shared), from)
    }

    /// The position after the last record.
    pub fn tail(&self) -> Position {
        self.shared.lock().tail
    }

    /// The position before the oldest record that is kept.
    pub fn oldest(&self) -> Position {
        self.shared.lock().oldest()
    }

    /// What the whole directory takes on disk, in bytes: the log as of now, everything else as of
    /// the last [`Log::retain`](super::Log::retain).
    pub fn disk_bytes(&self) -> u64 {
        let row = self.shared.lock();
        row.log_bytes() + row.other_bytes
    }

    /// The bytes of the log from the record `sequence` to the tail. Never too few, and too many by
    /// at most 256 KiB and a frame; in segments that were sealed before the log was opened, by up to
    /// the segment.
    pub fn bytes_from(&self, sequence: u64) -> u64 {
        self.shared.lock().bytes_from(sequence)
    }
}
