//! A record of the journal and a batch of them.

use bytes::Bytes;

/// One change of one Event: its place in the journal and its [envelope](super::Envelope).
///
/// Cloning is cheap; the bytes are shared with the journal frame that the record came in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Place in the journal, from 1, without repeats.
    pub seq: u64,
    /// The envelope: one line of JSON without the line feed.
    pub envelope: Bytes,
}

/// What every envelope starts with; the id follows.
pub(super) const ID_PREFIX: &str = "{\"id\":\"";

/// A record of the log, with its sequence.
impl From<(u64, Bytes)> for Record {
    fn from((seq, envelope): (u64, Bytes)) -> Self {
        Self { seq, envelope }
    }
}

impl Record {
    /// Records from this `seq` on have no place in the journal's order: they are sent beside it, and
    /// their number only tells them from others.
    pub const FIRST_ERRAND: u64 = 1 << 63;

    /// The id of the change, `<event uid>-<resourceVersion>`, without decoding the envelope.
    ///
    /// Ingest writes the id first and admits no uid that JSON would have to escape; for bytes
    /// that are no envelope the answer is empty.
    pub fn id(&self) -> &str {
        self.envelope
            .strip_prefix(ID_PREFIX.as_bytes())
            .and_then(|rest| Some(&rest[..memchr::memchr(b'"', rest)?]))
            .and_then(|id| std::str::from_utf8(id).ok())
            .unwrap_or_default()
    }
}

/// Records on their way to one sink, in journal order.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// The records; never empty when a sink is given the batch.
    pub records: Vec<Record>,
}

impl Batch {
    /// The size of all envelopes together, in bytes.
    pub fn bytes(&self) -> usize {
        self.records.iter().map(|record| record.envelope.len()).sum()
    }
}
