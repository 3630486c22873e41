//! Following the frames of a log, to see where something is missing between them.

use super::{Damage, DamageKind, Frame, Position};

/// Where a walk along the frames is. It is told of each segment that the walk enters and leaves and
/// of each frame that counts, and answers what is missing before it.
#[derive(Debug, Default)]
pub(super) struct Trail {
    file: String,
    /// Behind the last frame: in the file,
    offset: u64,
    /// in the log,
    end: Position,
    /// and its time; nothing if there was none.
    time_ms: Option<u64>,
}

impl Trail {
    /// The walk begins, or goes on, at an offset of a file. It is known which position that is, and
    /// the time of the last frame before it.
    pub(super) fn enter(&mut self, file: String, offset: u64, at: Position, time_ms: u64) {
        let time_ms = self.time_ms.max((time_ms > 0).then_some(time_ms));
        *self = Self { file, offset, end: at, time_ms };
    }

    /// Where in the file the last frame ends.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// Whether a frame may follow.
    pub(super) fn admits(&self, frame: &Frame) -> bool {
        self.end.admits(frame)
    }

    /// A frame that counts is at an offset: what is missing before it?
    pub(super) fn frame(&mut self, at: u64, frame: &Frame) -> Option<Damage> {
        let missing = self.missing(at, frame.start(), frame.time_ms);
        self.offset = at + frame.bytes() as u64;
        self.end = frame.end();
        self.time_ms = self.time_ms.max(Some(frame.time_ms));
        missing.filter(|damage| damage.bytes > 0 || damage.records > 0)
    }

    /// The file ends, and the next one starts at a position: what is missing at its end? What has no
    /// records is the remainder of a write that failed.
    pub(super) fn leave(&mut self, length: u64, next: Position, to_ms: u64) -> Option<Damage> {
        let missing = self.missing(length, next, to_ms);
        self.offset = length;
        self.end = next;
        missing.filter(|damage| damage.records > 0)
    }

    fn missing(&self, offset: u64, next: Position, to_ms: u64) -> Option<Damage> {
        let bytes = offset.saturating_sub(self.offset);
        let records = next.ordinal().saturating_sub(self.end.ordinal());
        (bytes > 0 || records > 0).then(|| Damage {
            kind: DamageKind::Records,
            file: self.file.clone(),
            offset: self.offset,
            bytes,
            from_ms: self.time_ms,
            to_ms: self.time_ms.unwrap_or(0).max(to_ms),
            records,
            reason: String::new(),
        })
    }
}
