//! The bytes of records that are not sent soon: in memory for as long as there is room, and else read again
//! when they are sent, a copy from the state, and others from the log.

use ::bytes::{Bytes, BytesMut};

use crate::{
    event::{EnvelopeParts, Record},
    journal::{LogHandle, ReadError, SetAsideReader},
};

/// So many bytes of a sink's records stay in memory while these wait.
pub(in crate::bridge) const ROOM: usize = 8 << 20;

/// See the [module](self).
#[derive(Debug)]
pub(super) enum Kept {
    Record(Record),
    /// The state has it under that sequence.
    Saved(u64),
    /// The log has its Event under that sequence; what is before that, unless the log has it, too.
    Logged(u64, Bytes),
}

impl Kept {
    /// A record that the log has.
    pub(super) fn logged(record: Record, kept_bytes: &mut usize) -> Self {
        let Some(parts) = EnvelopeParts::of(&record.envelope) else {
            return Self::record(record, kept_bytes);
        };
        if has_room(&record, *kept_bytes) {
            return Self::record(record, kept_bytes);
        }
        let head = record.envelope.len() - parts.event.len() - 1;
        let head = if parts.is_as_journalled() { &[] } else { &record.envelope[..head] };
        *kept_bytes += head.len();
        Self::Logged(record.seq, Bytes::copy_from_slice(head))
    }

    /// A record that the state has. Without bytes, they are not at hand.
    pub(super) fn saved(record: Record, kept_bytes: &mut usize) -> Self {
        if !record.envelope.is_empty() && has_room(&record, *kept_bytes) {
            Self::record(record, kept_bytes)
        } else {
            Self::Saved(record.seq)
        }
    }

    fn record(record: Record, kept_bytes: &mut usize) -> Self {
        *kept_bytes += record.envelope.len();
        // It may lie in a larger allocation.
        let envelope = Bytes::copy_from_slice(&record.envelope);
        Self::Record(Record { envelope, ..record })
    }

    /// Answers its sequence.
    pub(super) fn drop(self, kept_bytes: &mut usize) -> u64 {
        *kept_bytes -= match &self {
            Self::Record(record) => record.envelope.len(),
            Self::Saved(_) => 0,
            Self::Logged(_, head) => head.len(),
        };
        self.content().sequence()
    }

    pub(super) fn content(&self) -> Content {
        match self {
            Self::Record(record) => Content::Record(record.clone()),
            Self::Saved(sequence) => Content::Saved(*sequence),
            Self::Logged(sequence, head) => Content::Logged(*sequence, head.clone()),
        }
    }
}

fn has_room(record: &Record, kept_bytes: usize) -> bool {
    kept_bytes + record.envelope.len() <= ROOM
}

/// A record of a batch, or where it is read.
#[derive(Clone, Debug)]
pub(in crate::bridge::deliver) enum Content {
    Record(Record),
    /// The state has it under that sequence.
    Saved(u64),
    /// The log has its Event under that sequence; what is before that, unless the log has it, too.
    Logged(u64, Bytes),
}

/// Reads records that are not in memory. Clones are cheap.
#[derive(Clone, Debug)]
pub(in crate::bridge::deliver) struct Source {
    pub(in crate::bridge::deliver) sink: String,
    pub(in crate::bridge::deliver) log: LogHandle,
    pub(in crate::bridge::deliver) set_aside: SetAsideReader,
}

impl Content {
    /// The record's sequence.
    pub(in crate::bridge::deliver) fn sequence(&self) -> u64 {
        match self {
            Self::Record(record) => record.seq,
            Self::Saved(sequence) | Self::Logged(sequence, _) => *sequence,
        }
    }

    /// Reads the record, if it is still there. Blocks on the disk.
    ///
    /// # Errors
    ///
    /// The state or the log cannot be read now, in words.
    pub(in crate::bridge::deliver) fn read(self, from: &Source) -> Result<Option<Record>, String> {
        match self {
            Self::Record(record) => Ok(Some(record)),
            Self::Saved(seq) => {
                let saved = from.set_aside.get(&from.sink, seq);
                let saved = saved.map_err(|error: ReadError| error.to_string())?;
                Ok(saved.map(|saved| Record { seq, envelope: saved.envelope }))
            }
            Self::Logged(seq, head) => {
                let logged = from.log.record(seq).map_err(|error| error.to_string())?;
                Ok(logged.map(|logged| with_head(logged, &head)))
            }
        }
    }
}

/// A record of the log with what a sink is told before its Event.
fn with_head(record: Record, head: &[u8]) -> Record {
    let Some(parts) = EnvelopeParts::of(&record.envelope).filter(|_| !head.is_empty()) else {
        return record;
    };
    let mut envelope = BytesMut::with_capacity(head.len() + parts.event.len() + 1);
    envelope.extend_from_slice(head);
    envelope.extend_from_slice(parts.event);
    envelope.extend_from_slice(b"}");
    Record { envelope: envelope.freeze(), ..record }
}
