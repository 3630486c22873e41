//! The format of the log, version 1.
//!
//! # A segment
//!
//! The log is a row of files, `<first sequence, 20 digits>.log`. A segment is a header and then
//! frames without a gap. Only the last one is written to; the others are sealed, and are unlinked
//! whole. A name of any other form is not part of the log. Numbers are little endian.
//!
//! | header: at | bytes | what |
//! |---|---|---|
//! | 0 | 8 | `89 54 49 44 4c 4f 47 0a`: the magic, one byte outside of ASCII and a line feed |
//! | 8 | 4 | CRC-32C of everything after it, to the end of the header |
//! | 12 | 4 | length of the JSON |
//! | 16 | | JSON: [`SegmentHeader`] |
//!
//! The header holds the resume point of *every* source known by then, so that the last segment is
//! enough to open a log. It is written under another name and renamed, so that a segment never
//! exists without it; and before it exists, what it speaks of has been synced. A segment that has
//! no records yet would have the same name as its successor: so its frames go there with the name.
//!
//! After a sync that failed, the next segment starts with a copy of the frames which that should
//! have written, and the one before it is cut where they begin. So a copy is synced anew, which a
//! second sync of the same pages would only pretend to do.
//!
//! # A frame
//!
//! What one append writes, at once.
//!
//! | at | bytes | what |
//! |---|---|---|
//! | 0 | 8 | `f5 54 ff 69 c0 64 fe 21`: the marker. `f5`, `ff`, `c0` and `fe` occur nowhere in UTF-8, so no record of text can forge a frame |
//! | 8 | 4 | CRC-32C of everything after it, to the end of the frame |
//! | 12 | 4 | length of the body, at most 64 MiB |
//! | 16 | 8 | first sequence: that of the first record. A frame without records carries the one that comes next |
//! | 24 | 8 | skipped: how many sequence numbers below the first were never used, all told |
//! | 32 | 4 | count of records |
//! | 36 | 4 | count of forgotten keys |
//! | 40 | 8 | time that the append was given, milliseconds since the epoch |
//! | 48 | 4 | resume point: epoch |
//! | 52 | 4 | length of the source's key |
//! | 56 | 8 | resume point: resourceVersion |
//! | 64 | | body: the source's key (UTF-8); for each record its length (4) and its bytes; for each forgotten key 16 bytes |
//!
//! All records of a frame are of one source, and its resume point covers them: both survive a crash
//! or neither does. Forgotten keys tell views of the log what to drop, after the records.
//!
//! # Sequence numbers, and what is missing
//!
//! Records are numbered from 1. After a recovery that cut the log, numbers that a view still knows
//! are not used again: the next record's number is above them, and `skipped` grows by those left
//! out. So `first - 1 - skipped` is the count of records ever written before a frame (the *ordinal*
//! of its position), and it tells loss from numbers never used: where one frame's end and the next
//! one's start differ in it, that many records are lost.
//!
//! # Reading what is damaged
//!
//! A frame counts only if its marker stands, its lengths fit, its CRC holds, and it does not go back
//! behind the frame before it in sequence, skipped or ordinal. Otherwise the next marker is looked
//! for, from the byte after the bad frame's start (its length is as doubtful as the rest). In a
//! sealed segment a frame that reaches beyond the first sequence of the next segment does not count
//! either: it is the remainder of a write that failed and was made again, or has been copied there.
//!
//! Where the last segment's header is damaged, a log is opened from the last one that has a header;
//! the damaged one is read too, and a new segment states what its header said.
//!
//! At the end of the last segment what is not a frame is taken for a torn write and cut. That may
//! be a frame which was whole once and is damaged now; nothing tells the two apart. Either way the
//! resume point rolls back with it, and the source is asked for those records again.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::frame::Resume;

/// The version that this build writes, and the newest that it reads.
pub const VERSION: u32 = 1;

/// The longest body of a frame, in bytes: what a reader may have to hold at once.
pub const MAX_BODY: usize = 64 << 20;

/// The bytes of a frame before its body.
pub(super) const FRAME_HEADER: usize = 64;

/// How each frame starts.
pub(super) const MARKER: [u8; 8] = [0xF5, b'T', 0xFF, b'i', 0xC0, b'd', 0xFE, b'!'];

/// How each segment starts.
const MAGIC: [u8; 8] = *b"\x89TIDLOG\n";

/// The bytes of a segment's header before the JSON.
pub(super) const SEGMENT_PREFIX: usize = 16;

/// A header is not read beyond this many bytes of JSON: room for 100 000 sources.
const MAX_HEADER: u32 = 16 << 20;

/// What the header of a segment says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SegmentHeader {
    /// [`VERSION`].
    pub version: u32,
    /// The sequence that the segment starts at.
    pub first: u64,
    /// How many numbers below that were never used.
    pub skipped: u64,
    /// When the segment was started, milliseconds since the epoch.
    pub created_ms: u64,
    /// The time of the newest frame before this segment, milliseconds since the epoch; 0 if none.
    pub newest_ms: u64,
    /// The uid of the cluster that the records are of, once known.
    pub cluster: Option<String>,
    /// Where each source stands before this segment's first frame.
    pub resume: BTreeMap<String, Resume>,
}

/// The version alone, for a header that this build cannot read whole.
#[derive(Deserialize)]
struct Version {
    version: u32,
}

/// What the start of a segment turned out to be.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum HeaderRead {
    /// A header, and the offset of the first frame.
    Whole(SegmentHeader, u64),
    /// Of a version that this build does not know.
    Newer(u32),
    /// Not a header, or one whose CRC does not hold.
    Damaged,
}

impl SegmentHeader {
    /// The bytes that a segment starts with.
    pub(super) fn encode(&self) -> Vec<u8> {
        // A struct of numbers and strings always serialises.
        let json = serde_json::to_vec(self).unwrap_or_default();
        let mut out = Vec::with_capacity(SEGMENT_PREFIX + json.len());
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&(json.len() as u32).to_le_bytes());
        out.extend_from_slice(&json);
        let crc = crc32c::crc32c(&out[12..]);
        out[8..12].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// How long the header is whose first [`SEGMENT_PREFIX`] bytes are given, prefix included.
    pub(super) fn length(prefix: &[u8]) -> Option<usize> {
        let length = u32_at(prefix, 12)?;
        (prefix.starts_with(&MAGIC) && length <= MAX_HEADER)
            .then_some(SEGMENT_PREFIX + length as usize)
    }

    /// Reads a header from exactly its bytes.
    pub(super) fn decode(bytes: &[u8]) -> HeaderRead {
        if Self::length(bytes) != Some(bytes.len())
            || u32_at(bytes, 8) != Some(crc32c::crc32c(&bytes[12..]))
        {
            return HeaderRead::Damaged;
        }
        let json = &bytes[SEGMENT_PREFIX..];
        match serde_json::from_slice::<Version>(json) {
            Ok(Version { version }) if version > VERSION => HeaderRead::Newer(version),
            _ => serde_json::from_slice(json).map_or(HeaderRead::Damaged, |header| {
                HeaderRead::Whole(header, bytes.len() as u64)
            }),
        }
    }
}

/// The file name of the segment that starts at `first`.
pub(super) fn segment_name(first: u64) -> String {
    format!("{first:020}.log")
}

/// The first sequence of a segment by its file name; nothing for any other name.
pub fn segment_first(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(".log")?;
    let first = (digits.len() == 20 && digits.bytes().all(|b| b.is_ascii_digit()))
        .then(|| digits.parse().ok())??;
    // Half of all numbers is more than there will be records; sums of the rest do not overflow.
    (first <= u64::MAX / 2).then_some(first)
}

/// The number at an offset, if the bytes reach that far.
pub(super) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

/// The number at an offset, if the bytes reach that far.
pub(super) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> SegmentHeader {
        SegmentHeader {
            version: VERSION,
            first: 7,
            skipped: 2,
            created_ms: 1_000,
            newest_ms: 900,
            cluster: Some("uid".into()),
            resume: [("all".to_owned(), Resume { epoch: 1, resource_version: u64::MAX })].into(),
        }
    }

    #[test]
    fn a_header_reads_back_and_no_flipped_bit_passes() {
        let bytes = header().encode();
        assert_eq!(SegmentHeader::decode(&bytes), HeaderRead::Whole(header(), bytes.len() as u64));
        for bit in 0..bytes.len() * 8 {
            let mut bytes = bytes.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(SegmentHeader::decode(&bytes), HeaderRead::Damaged, "bit {bit}");
        }
        for length in 0..bytes.len() {
            assert_eq!(SegmentHeader::decode(&bytes[..length]), HeaderRead::Damaged);
        }
    }

    #[test]
    fn a_newer_version_is_not_taken_for_damage() {
        let bytes = SegmentHeader { version: VERSION + 1, ..header() }.encode();
        assert_eq!(SegmentHeader::decode(&bytes), HeaderRead::Newer(VERSION + 1));
    }

    #[test]
    fn only_segments_are_named_like_segments() {
        assert_eq!(segment_first(&segment_name(42)), Some(42));
        let most = &segment_name(u64::MAX);
        for other in
            [most, "42.log", "00000000000000000042.log.tmp", "0000000000000000004x.log", ""]
        {
            assert_eq!(segment_first(other), None, "{other}");
        }
    }
}
