//! Frames in memory: building one in place, and reading one without copying it.

use std::{collections::HashSet, hash::BuildHasherDefault, sync::Arc};

use bytes::Bytes;
use rustc_hash::FxHasher;
use serde::{Deserialize, Serialize};

use super::format::{FRAME_HEADER, MARKER, MAX_BODY, u32_at, u64_at};

/// Where a source is to be read on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Resume {
    /// Counts the histories of the source: versions of different epochs do not compare.
    pub epoch: u32,
    /// Everything of the source up to this version is in the log.
    pub resource_version: u64,
}

/// A place between two records of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    /// The sequence of the record after it.
    pub next: u64,
    /// How many sequence numbers before it were never used.
    pub skipped: u64,
}

impl Position {
    /// Before the first record of all.
    pub const START: Self = Self { next: 1, skipped: 0 };

    /// How many records were ever written before it. Between two positions the difference of
    /// ordinals is the number of records there, those that are lost by now included.
    pub fn ordinal(&self) -> u64 {
        self.next.saturating_sub(1).saturating_sub(self.skipped)
    }

    /// Whether `frame` may follow here: nothing of it goes back.
    pub(super) fn admits(&self, frame: &Frame) -> bool {
        // And so its sequence does not either, which is the sum of these.
        frame.skipped >= self.skipped && frame.start().ordinal() >= self.ordinal()
    }
}

impl Default for Position {
    fn default() -> Self {
        Self::START
    }
}

/// One frame of the log: records of one source and the resume point that covers them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The sequence of the first record; without records, of the one that comes next.
    pub first: u64,
    /// How many sequence numbers below `first` were never used.
    pub skipped: u64,
    /// The time that its append was given, milliseconds since the epoch.
    pub time_ms: u64,
    /// The key of the source.
    pub source: Arc<str>,
    /// Where the source stands after this frame.
    pub resume: Resume,
    /// Keys that views of the log are to forget, after the records have entered them.
    pub forgotten: Vec<u128>,
    count: u32,
    size: usize,
    /// Each record's length and bytes; checked to hold exactly `count` of them.
    body: Bytes,
}

impl Frame {
    /// The records in order, each with its sequence. Their bytes are shared with the frame, not copied.
    pub fn records(&self) -> impl Iterator<Item = (u64, Bytes)> + '_ {
        let mut at = 0;
        (self.first..self.next()).map_while(move |seq| {
            let start = at + 4;
            at = start + u32_at(&self.body, at)? as usize;
            Some((seq, self.body.slice(start..at)))
        })
    }

    /// How many records it holds; a frame without any moves the resume point or forgets keys.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// The sequence of the last record; without records, of the one before the frame.
    pub fn last(&self) -> u64 {
        self.next().saturating_sub(1)
    }

    /// The sequence after the last record.
    pub fn next(&self) -> u64 {
        self.first.saturating_add(u64::from(self.count))
    }

    /// The position before its first record.
    pub fn start(&self) -> Position {
        Position { next: self.first, skipped: self.skipped }
    }

    /// The position after its last record.
    pub fn end(&self) -> Position {
        Position { next: self.next(), skipped: self.skipped }
    }

    /// Its size on disk, in bytes.
    pub fn bytes(&self) -> usize {
        self.size
    }
}

/// Source keys read before, so that frames of one source share one allocation.
pub(super) type SourceNames = HashSet<Arc<str>, BuildHasherDefault<FxHasher>>;

/// What stands at a place where a frame may start.
pub(super) enum Decoded {
    /// A frame that counts.
    Frame(Frame),
    /// As far as the bytes go it may be one; this many are needed to tell.
    Short(usize),
    /// No frame.
    Bad,
}

/// Reads the frame at the start of `bytes`, which may be longer than it.
pub(super) fn decode(bytes: &Bytes, names: &mut SourceNames) -> Decoded {
    let marker = MARKER.len().min(bytes.len());
    if bytes[..marker] != MARKER[..marker] {
        return Decoded::Bad;
    }
    let Some(length) = u32_at(bytes, 12) else { return Decoded::Short(FRAME_HEADER) };
    let size = FRAME_HEADER + length as usize;
    if length as usize > MAX_BODY {
        Decoded::Bad
    } else if bytes.len() < size {
        Decoded::Short(size)
    } else {
        decode_whole(&bytes.slice(..size), names).map_or(Decoded::Bad, Decoded::Frame)
    }
}

fn decode_whole(bytes: &Bytes, names: &mut SourceNames) -> Option<Frame> {
    if u32_at(bytes, 8)? != crc32c::crc32c(&bytes[12..]) {
        return None;
    }
    let (first, skipped) = (u64_at(bytes, 16)?, u64_at(bytes, 24)?);
    let (count, forgotten) = (u32_at(bytes, 32)?, u32_at(bytes, 36)? as usize);
    let source_end = FRAME_HEADER.checked_add(u32_at(bytes, 52)? as usize)?;
    let body_end = bytes.len().checked_sub(forgotten.checked_mul(16)?)?;
    if skipped >= first || first.checked_add(u64::from(count)).is_none() {
        return None;
    }
    let source = std::str::from_utf8(bytes.get(FRAME_HEADER..source_end)?).ok()?;
    if body_end < source_end {
        return None;
    }
    // Checked once here, so that walking the records later cannot fail.
    let body = bytes.slice(source_end..body_end);
    let mut at = 0usize;
    for _ in 0..count {
        at = at.checked_add(4)?.checked_add(u32_at(&body, at)? as usize)?;
    }
    if at != body.len() {
        return None;
    }
    let forgotten = bytes[body_end..]
        .chunks_exact(16)
        .filter_map(|key| Some(u128::from_le_bytes(key.try_into().ok()?)))
        .collect();
    let source = names.get(source).cloned().unwrap_or_else(|| {
        let name: Arc<str> = source.into();
        names.insert(Arc::clone(&name));
        name
    });
    let resume = Resume { epoch: u32_at(bytes, 48)?, resource_version: u64_at(bytes, 56)? };
    let (time_ms, size) = (u64_at(bytes, 40)?, bytes.len());
    Some(Frame { first, skipped, time_ms, source, resume, forgotten, count, size, body })
}

/// Builds a frame in the bytes that will be written, so that an append is one write and the frame
/// that is published shares them. After a successful [`Log::append`](super::Log::append) the
/// builder is empty again and stands at the same source and resume point; after a failed one it is
/// as it was.
#[derive(Debug)]
pub struct FrameBuilder {
    source: Arc<str>,
    resume: Resume,
    count: u32,
    forgotten: Vec<u128>,
    buffer: Vec<u8>,
}

impl FrameBuilder {
    /// An empty frame of a source that stands at `resume`. The keys of all sources together are to stay far below
    /// 16 MiB, the most that the header of a segment may have.
    pub fn new(source: Arc<str>, resume: Resume) -> Self {
        let buffer = Self::empty_buffer(&source, 0);
        Self { source, resume, count: 0, forgotten: Vec::new(), buffer }
    }

    fn empty_buffer(source: &str, capacity: usize) -> Vec<u8> {
        let mut buffer = Vec::with_capacity(capacity.max(FRAME_HEADER + source.len()));
        buffer.resize(FRAME_HEADER, 0);
        buffer.extend_from_slice(source.as_bytes());
        buffer
    }

    /// Makes room for records of so many bytes together.
    pub fn reserve(&mut self, bytes: usize) {
        self.buffer.reserve(bytes);
    }

    /// Adds a record; `write` appends its bytes to the buffer and touches nothing before them. UTF-8 text cannot be
    /// taken for a frame, should the frame around it be damaged; other bytes can.
    pub fn record(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let start = self.buffer.len() + 4;
        self.buffer.extend_from_slice(&[0; 4]);
        write(&mut self.buffer);
        let length = self.buffer.len().saturating_sub(start) as u32;
        self.buffer[start - 4..start].copy_from_slice(&length.to_le_bytes());
        self.count += 1;
    }

    /// Adds a key that views of the log are to forget.
    pub fn forget(&mut self, key: u128) {
        self.forgotten.push(key);
    }

    /// Moves the source's resume point; it covers every record of the frame.
    pub fn set_resume(&mut self, resume: Resume) {
        self.resume = resume;
    }

    /// How many records it holds.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Its size on disk as it stands, in bytes. Keep it below
    /// [`MAX_BODY`](super::format::MAX_BODY): a larger frame cannot be appended.
    pub fn bytes(&self) -> usize {
        self.buffer.len() + 16 * self.forgotten.len()
    }

    /// The key of the source.
    pub fn source(&self) -> &Arc<str> {
        &self.source
    }

    /// Where the source stands after this frame.
    pub fn resume(&self) -> Resume {
        self.resume
    }

    /// Completes the bytes of the frame as it is to be written at `start`.
    pub(super) fn seal(&mut self, start: Position, time_ms: u64) -> &[u8] {
        for key in &self.forgotten {
            self.buffer.extend_from_slice(&key.to_le_bytes());
        }
        let body = (self.buffer.len() - FRAME_HEADER) as u32;
        let header = &mut self.buffer[..FRAME_HEADER];
        header[..8].copy_from_slice(&MARKER);
        header[12..16].copy_from_slice(&body.to_le_bytes());
        header[16..24].copy_from_slice(&start.next.to_le_bytes());
        header[24..32].copy_from_slice(&start.skipped.to_le_bytes());
        header[32..36].copy_from_slice(&self.count.to_le_bytes());
        header[36..40].copy_from_slice(&(self.forgotten.len() as u32).to_le_bytes());
        header[40..48].copy_from_slice(&time_ms.to_le_bytes());
        header[48..52].copy_from_slice(&self.resume.epoch.to_le_bytes());
        header[52..56].copy_from_slice(&(self.source.len() as u32).to_le_bytes());
        header[56..64].copy_from_slice(&self.resume.resource_version.to_le_bytes());
        let crc = crc32c::crc32c(&self.buffer[12..]);
        self.buffer[8..12].copy_from_slice(&crc.to_le_bytes());
        &self.buffer
    }

    /// Takes back [`seal`](Self::seal), after a write that failed.
    pub(super) fn unseal(&mut self) {
        self.buffer.truncate(self.buffer.len() - 16 * self.forgotten.len());
    }

    /// Hands out the sealed frame and starts over.
    pub(super) fn take(&mut self, start: Position, time_ms: u64) -> Frame {
        let size = self.buffer.len();
        let empty = Self::empty_buffer(&self.source, 0);
        let bytes = Bytes::from(std::mem::replace(&mut self.buffer, empty));
        let forgotten = std::mem::take(&mut self.forgotten);
        let body = FRAME_HEADER + self.source.len()..size - 16 * forgotten.len();
        Frame {
            first: start.next,
            skipped: start.skipped,
            time_ms,
            source: Arc::clone(&self.source),
            resume: self.resume,
            forgotten,
            count: std::mem::take(&mut self.count),
            size,
            body: bytes.slice(body),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> (Bytes, Frame) {
        let mut builder = FrameBuilder::new("all".into(), Resume::default());
        builder.record(|out| out.extend_from_slice(b"{\"a\":1}"));
        builder.record(|_| {});
        builder.forget(7);
        builder.set_resume(Resume { epoch: 1, resource_version: 90 });
        let start = Position { next: 12, skipped: 3 };
        let size = builder.bytes();
        let bytes = Bytes::copy_from_slice(builder.seal(start, 1_000));
        assert_eq!(bytes.len(), size);
        (bytes, builder.take(start, 1_000))
    }

    #[test]
    fn a_frame_reads_back_as_it_was_published() {
        let (bytes, published) = sample();
        let mut names = SourceNames::default();
        let Decoded::Frame(frame) = decode(&bytes, &mut names) else { panic!("not read") };
        assert_eq!(frame, published);
        assert_eq!(frame.bytes(), bytes.len());
        assert_eq!((frame.first, frame.last(), frame.next(), frame.count()), (12, 13, 14, 2));
        assert_eq!((frame.start().ordinal(), frame.end().ordinal()), (8, 10));
        let records: Vec<_> = frame.records().collect();
        assert_eq!(records, [(12, Bytes::from_static(b"{\"a\":1}")), (13, Bytes::new())]);
    }

    #[test]
    fn no_flipped_bit_and_no_cut_passes_for_a_frame() {
        let (bytes, _) = sample();
        let mut names = SourceNames::default();
        for bit in 0..bytes.len() * 8 {
            let mut bytes = bytes.to_vec();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let read = decode(&bytes.into(), &mut names);
            assert!(!matches!(read, Decoded::Frame(_)), "bit {bit}");
        }
        for length in 0..bytes.len() {
            let read = decode(&bytes.slice(..length), &mut names);
            assert!(matches!(read, Decoded::Short(needed) if needed > length), "cut at {length}");
        }
    }

    #[test]
    fn a_builder_survives_a_failed_append_and_starts_over_after_a_good_one() {
        let mut builder = FrameBuilder::new("all".into(), Resume { epoch: 0, resource_version: 5 });
        builder.record(|out| out.extend_from_slice(b"{}"));
        builder.forget(1);
        let before = builder.bytes();
        builder.seal(Position::START, 1);
        builder.unseal();
        assert_eq!((builder.bytes(), builder.count()), (before, 1));
        let sealed = builder.seal(Position::START, 1).len();
        assert_eq!(builder.take(Position::START, 1).bytes(), sealed);
        assert_eq!((builder.bytes(), builder.count()), (FRAME_HEADER + 3, 0));
        assert_eq!(builder.resume().resource_version, 5);
    }
}
