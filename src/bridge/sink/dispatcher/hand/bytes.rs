//! The bytes of records that are not sent soon: in memory for as long as there is room, and else read again
//! when they are sent, a copy from the state, and others from the log.

use std::{collections::HashMap, sync::Arc};

use ::bytes::Bytes;

use crate::{
    event::{EnvelopeParts, Record},
    journal::{LogHandle, ReadError, SetAsideReader},
};

/// So many bytes of a sink's records stay in memory while these wait.
pub(crate) const ROOM: usize = 8 << 20;
/// With what sinks are told before Events whose own bytes do not stay, it is so many. Beyond that such Events are
/// sent without it, but for their deltas, and counted: nobody else has it, and a flood may have a new text for each.
pub(super) const MOST: usize = 4 * ROOM;
/// Each such Event takes so many besides.
const ENTRY: usize = 64;

/// The room that kept records take, and what sinks are told before Events: many are told the same.
#[derive(Debug, Default)]
pub(super) struct Room {
    bytes: usize,
    added: HashMap<Arc<[u8]>, usize>,
    /// Records for whose members there was no room, since these were last asked for.
    dropped: u64,
}

impl Room {
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    fn has_room(&self, record: &Record) -> bool {
        self.bytes + record.envelope.len() <= ROOM
    }

    /// The members that a sink is told, which take room once, if there is room.
    fn take(&mut self, added: &[u8]) -> Option<Arc<[u8]>> {
        let known = self.added.get_key_value(added).map(|(known, _)| Arc::clone(known));
        let bytes = ENTRY + if known.is_some() { 0 } else { added.len() };
        if self.bytes + bytes > MOST {
            self.dropped += 1;
            return None;
        }
        self.bytes += bytes;
        let added = known.unwrap_or_else(|| added.into());
        *self.added.entry(Arc::clone(&added)).or_default() += 1;
        Some(added)
    }

    /// How many records have lost their members since the last call.
    pub(super) fn take_dropped(&mut self) -> u64 {
        std::mem::take(&mut self.dropped)
    }

    fn give_back(&mut self, added: &[u8]) {
        let Some(records) = self.added.get_mut(added) else { return };
        *records -= 1;
        self.bytes -= ENTRY;
        if *records == 0 {
            self.bytes -= added.len();
            self.added.remove(added);
        }
    }
}

/// The bytes of one record, or where they are read. See the [module](self).
#[derive(Debug)]
pub(super) enum Kept {
    Record(Box<Record>),
    /// The state has it under that sequence.
    Saved(u64),
    /// The log has it under that sequence, but for what a sink is told before its Event.
    Added(Box<(u64, Added)>),
}

/// The members that a sink is told before an Event and that the log does not have, and the delta.
#[derive(Clone, Debug)]
pub(crate) struct Added {
    pub(super) delta: u64,
    pub(super) members: Arc<[u8]>,
}

impl Added {
    /// Nothing but the delta.
    pub(super) fn delta(delta: u64) -> Self {
        Self { delta, members: Arc::default() }
    }
}

impl Kept {
    /// A record that the log has.
    ///
    /// # Errors
    ///
    /// There is no room for it: its sequence, and its delta if that may be another one than in the log.
    pub(super) fn logged(record: Record, room: &mut Room) -> Result<Self, (u64, Option<u64>)> {
        let Some(parts) = EnvelopeParts::of(&record.envelope).filter(|_| !room.has_room(&record))
        else {
            return Ok(Self::record(record, room));
        };
        let (sequence, delta, added) = (record.seq, parts.delta, parts.added());
        if added.is_empty() {
            return Err((sequence, None));
        }
        match room.take(added) {
            Some(members) => Ok(Self::Added(Box::new((sequence, Added { delta, members })))),
            None => Err((sequence, Some(delta))),
        }
    }

    /// A record that the state has. Without bytes, they are not at hand.
    pub(super) fn saved(record: Record, room: &mut Room) -> Self {
        if !record.envelope.is_empty() && room.has_room(&record) {
            Self::record(record, room)
        } else {
            Self::Saved(record.seq)
        }
    }

    fn record(mut record: Record, room: &mut Room) -> Self {
        room.bytes += record.envelope.len();
        // It may lie in a larger allocation.
        record.envelope = Bytes::copy_from_slice(&record.envelope);
        Self::Record(Box::new(record))
    }

    /// Answers its sequence.
    pub(super) fn drop(self, room: &mut Room) -> u64 {
        match &self {
            Self::Record(record) => room.bytes -= record.envelope.len(),
            Self::Saved(_) => {}
            Self::Added(added) => room.give_back(&added.1.members),
        }
        self.content().sequence()
    }

    pub(super) fn content(&self) -> Content {
        match self {
            Self::Record(record) => Content::Record((**record).clone()),
            Self::Saved(sequence) => Content::Saved(*sequence),
            Self::Added(added) => Content::Logged(added.0, Some(added.1.clone())),
        }
    }
}

/// A record of a batch, or where it is read.
#[derive(Clone, Debug)]
pub(crate) enum Content {
    Record(Record),
    /// The state has it under that sequence.
    Saved(u64),
    /// The log has it under that sequence, but for what is added.
    Logged(u64, Option<Added>),
}

/// Reads records that are not in memory. Clones are cheap.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    pub(crate) sink: String,
    pub(crate) log: LogHandle,
    pub(crate) set_aside: SetAsideReader,
}

impl Content {
    /// The record's sequence.
    pub(crate) fn sequence(&self) -> u64 {
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
    pub(crate) fn read(self, from: &Source) -> Result<Option<Record>, String> {
        match self {
            Self::Record(record) => Ok(Some(record)),
            Self::Saved(seq) => {
                let saved = from.set_aside.get(&from.sink, seq);
                let saved = saved.map_err(|error: ReadError| error.to_string())?;
                Ok(saved.map(|saved| Record { seq, envelope: saved.envelope }))
            }
            Self::Logged(seq, added) => {
                let logged = from.log.record(seq).map_err(|error| error.to_string())?;
                Ok(logged.map(|logged| with(logged, added.as_ref())))
            }
        }
    }
}

/// A record of the log with what a sink is told before its Event.
fn with(record: Record, added: Option<&Added>) -> Record {
    let (Some(parts), Some(added)) = (EnvelopeParts::of(&record.envelope), added) else {
        return record;
    };
    let envelope = parts.with_added(added.delta, &added.members);
    Record { envelope, ..record }
}
