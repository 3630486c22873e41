//! The log as everyone but its writer has it.

use std::{io, sync::Arc};

use bytes::Bytes;

use super::{Damages, Position, Reader, segments::Shared};

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

    /// One record; nothing if the log no longer has it. Reads up to 256 KiB before it; in a segment
    /// that was sealed before the log was opened, the first time, up to all of it.
    ///
    /// # Errors
    ///
    /// What the operating system answers to opening or reading a file that is there.
    pub fn record(&self, sequence: u64) -> io::Result<Option<Bytes>> {
        let mut reader = self.reader(sequence);
        let mut frames = reader.read(1)?;
        // Those without records stand at the same sequence as the one that holds it.
        while frames.first().is_some_and(|frame| frame.next() <= sequence) {
            frames = reader.read(1)?;
        }
        let mut records = frames.first().into_iter().flat_map(|frame| frame.records());
        Ok(records.find(|(seq, _)| *seq == sequence).map(|(_, bytes)| bytes))
    }

    /// The position after the last record.
    pub fn tail(&self) -> Position {
        self.shared.lock().tail
    }

    /// The position before the oldest record that is kept.
    pub fn oldest(&self) -> Position {
        self.shared.lock().oldest()
    }

    /// The damage that was found since the start of the process: by opening, and by readers.
    pub fn damages(&self) -> &Damages {
        &self.shared.damages
    }

    /// What the whole directory takes on disk, in bytes: the log as of now, everything else as of
    /// the last [`Log::retain`](super::Log::retain).
    pub fn disk_bytes(&self) -> u64 {
        let row = self.shared.lock();
        row.log_bytes() + row.other_bytes
    }

    /// What everything beside the log takes of it, as of the last
    /// [`Log::retain`](super::Log::retain).
    pub fn other_bytes(&self) -> u64 {
        self.shared.lock().other_bytes
    }

    /// The bytes of the log from the record `sequence` to the tail. Never too few, and too many by
    /// at most 256 KiB and a frame; in segments that were sealed before the log was opened, until they
    /// are read, by up to the segment.
    pub fn bytes_from(&self, sequence: u64) -> u64 {
        self.shared.lock().bytes_from(sequence)
    }

    /// When the record `sequence` was appended, about, in milliseconds since the epoch: at a time a
    /// hundredth of its age before that at most, or, if it was appended before the log was opened,
    /// up to an hour after it. Nothing for one that does not exist.
    pub fn time_of(&self, sequence: u64) -> Option<u64> {
        self.shared.lock().time_of(sequence)
    }
}
