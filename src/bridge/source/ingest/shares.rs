//! Each namespace's share of the backlog: of what the log keeps for a sink that has not had it.
//!
//! A log drops whole segments, so a namespace's share of it is kept where records come in. While the
//! backlog takes more than half of the journal, the Events of a namespace that takes more than a
//! quarter of the backlog are cut to [`LITTLE`], and those of one that takes more than twice that are
//! [shed](crate::event::Shed). Nothing is shed where a sink is to lose nothing (`overflow: block`). A
//! namespace that is alone in the backlog has all of it, and so has everybody while every sink keeps up.
//!
//! The backlog is counted in [parts](Part), from the one on that the first sink stands in. While it is
//! small nothing is counted but its bytes. What it had by then, and what is from before this process, is
//! read when the journal is so full that it matters, some with each frame that comes. Until all is,
//! nobody is taken for more than is known.

use std::{
    collections::{HashMap, VecDeque},
    hash::BuildHasherDefault,
    sync::Arc,
    time::{Duration, Instant},
};

use rustc_hash::FxHasher;

use crate::{
    bridge::{Overflow, SinkProgress},
    event::{LEAST_ENVELOPE, Origin, Record, Shed, Text},
    journal::{Frame, LogHandle, Reader},
};

/// The bytes that an envelope takes of a namespace that has more than its share.
pub(super) const LITTLE: usize = LEAST_ENVELOPE;
/// The journal is full of a backlog by more than this part of it.
const FULL: u64 = 2;
/// Records are counted by namespace while the backlog takes more than this part of the journal.
const COUNTED: u64 = 8;
/// A namespace has more than its share with more than this part of the backlog.
const SHARE: u64 = 4;
/// A part takes this part of what a backlog may take, and the end of a frame.
const PARTS: u64 = 32;
/// So many namespaces are told apart in a part at least, and no more than twice as many.
const KNOWN: usize = 64;
/// While the journal is full, where sinks stand is looked at again after this time.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// So much of the log is read at a time, in bytes, once for each frame and
const READ: usize = 1 << 20;
/// so many times what it takes: a flood that is not known for one does not get far.
const AHEAD: usize = 4;

/// The room that the log has for a namespace's Event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    /// As much as an Event may take.
    Whole,
    /// [`LITTLE`].
    Little,
    /// Nothing but which Event it was.
    Nothing,
}

/// A stretch of the log, and what namespaces have of it.
///
/// Those that have most are known, in bounded memory: where there are too many, so much is taken off each
/// that half of them have nothing left. That is a sixty-fifth of the part at most, so no namespace is taken
/// for more than it has, or for much less.
#[derive(Debug, Default)]
struct Part {
    /// The sequence that it starts at.
    first: u64,
    /// The bytes of its records, and those of its frames.
    bytes: u64,
    on_disk: u64,
    of: HashMap<Box<str>, u64, BuildHasherDefault<FxHasher>>,
}

/// The part of the log from before the count, being read.
struct Earlier {
    reader: Reader,
    parts: VecDeque<Part>,
    /// Whether the last read failed; the next tick reads again.
    failed: bool,
}

/// The shares of all namespaces. See the [module](self).
pub(super) struct Shares {
    sinks: Vec<Arc<SinkProgress>>,
    log: LogHandle,
    /// The bytes that a backlog may take.
    limit: u64,
    /// No sink is to lose nothing.
    may_shed: bool,
    /// Of all records from the first of them on, oldest first, and never empty.
    parts: VecDeque<Part>,
    /// Of those before, where that matters.
    earlier: Option<Earlier>,
    /// The bytes of the backlog on disk, those that nobody has counted included.
    bytes: u64,
    /// When sinks were last looked at.
    looked: Instant,
}

impl Shares {
    /// Nothing of what the log has is counted yet.
    pub(super) fn new(sinks: &[Arc<SinkProgress>], log: LogHandle) -> Self {
        let mut shares = Self {
            sinks: sinks.to_vec(),
            limit: log.room(),
            may_shed: sinks.iter().all(|sink| sink.overflow() == Overflow::DropOldest),
            parts: VecDeque::from([Part::new(log.tail().next)]),
            log,
            earlier: None,
            bytes: 0,
            looked: Instant::now(),
        };
        shares.look();
        shares
    }

    fn is_full(&self) -> bool {
        self.bytes > self.limit / FULL
    }

    fn is_counted(&self) -> bool {
        self.bytes > self.limit / COUNTED
    }

    /// The room that there is for an Event of a namespace.
    pub(super) fn room(&mut self, namespace: &str) -> Room {
        if self.is_full() && self.looked.elapsed() >= LOOK_EVERY {
            self.look();
        }
        if !self.is_full() {
            return Room::Whole;
        }
        let earlier = self.earlier.iter().flat_map(|earlier| &earlier.parts);
        let (own, all) = self.parts.iter().chain(earlier).fold((0, 0), |(own, all), part| {
            (own + part.of.get(namespace).copied().unwrap_or(0), all + part.bytes)
        });
        let share = self.bytes / SHARE;
        if own <= share || own == all {
            Room::Whole
        } else if own <= 2 * share || !self.may_shed {
            Room::Little
        } else {
            Room::Nothing
        }
    }

    /// Counts a record that is appended with the next frame, and takes so many bytes of it.
    pub(super) fn count(&mut self, namespace: &str, bytes: usize) {
        if self.is_counted()
            && let Some(last) = self.parts.back_mut()
        {
            last.count(namespace, bytes as u64);
        }
    }

    /// The frame with the records that were counted has been appended. Blocks on the disk where earlier
    /// ones are to be counted.
    pub(super) fn appended(&mut self, frame: &Frame) {
        if frame.count() == 0 {
            // A resume point takes next to nothing.
            return;
        }
        let (on_disk, was_full) = (frame.bytes() as u64, self.is_full());
        if !self.is_counted() {
            self.begin_at(frame.next());
        } else if let Some(last) = self.parts.back_mut() {
            last.on_disk += on_disk;
            if last.on_disk > self.limit / PARTS {
                self.parts.push_back(Part::new(frame.next()));
            }
        }
        self.bytes += on_disk;
        for _ in 0..=AHEAD * frame.bytes() / READ {
            self.read_earlier();
        }
        if self.is_full() && !was_full {
            self.look();
        }
    }

    /// To be called once a second.
    pub(super) fn tick(&mut self) {
        self.earlier.iter_mut().for_each(|earlier| earlier.failed = false);
        self.look();
    }

    fn look(&mut self) {
        self.looked = Instant::now();
        self.limit = self.log.room();
        let tail = self.log.tail().next;
        let from = self.sinks.iter().map(|sink| sink.unsettled_from()).min().unwrap_or(tail);
        let from = from.max(self.log.oldest().next);
        if from >= tail {
            self.begin_at(tail);
            (self.earlier, self.bytes) = (None, 0);
            return;
        }
        forget(&mut self.parts, from);
        self.bytes = on_disk(&self.parts);
        let first = self.parts.front().map_or(tail, |part| part.first);
        if from >= first {
            self.earlier = None;
            return;
        }
        let uncounted = self.log.bytes_from(from).saturating_sub(self.log.bytes_from(first));
        if let Some(Earlier { parts, .. }) = &mut self.earlier {
            forget(parts, from);
            self.bytes += uncounted.max(on_disk(parts));
            return;
        }
        self.bytes += uncounted;
        if self.is_full() {
            let (reader, parts) = (self.log.reader(from), VecDeque::from([Part::new(from)]));
            self.earlier = Some(Earlier { reader, parts, failed: false });
        }
    }

    /// Nothing before a sequence is counted.
    fn begin_at(&mut self, first: u64) {
        self.parts.truncate(1);
        match self.parts.front_mut() {
            Some(part) if part.of.is_empty() => part.first = first,
            _ => self.parts = VecDeque::from([Part::new(first)]),
        }
    }

    /// Reads on in what was in the log before.
    fn read_earlier(&mut self) {
        let Some(earlier) = self.earlier.as_mut().filter(|earlier| !earlier.failed) else { return };
        let Ok(frames) = earlier.reader.read(READ) else {
            // What it has open may be what cannot be read.
            earlier.reader = self.log.reader(earlier.reader.position().next);
            earlier.failed = true;
            return;
        };
        let until = self.parts.front().map_or(0, |part| part.first);
        for frame in frames.iter().filter(|frame| frame.count() > 0 && frame.first < until) {
            earlier.take(frame, self.limit / PARTS);
        }
        if frames.last().is_none_or(|frame| frame.next() >= until)
            && let Some(mut earlier) = self.earlier.take()
        {
            earlier.parts.append(&mut self.parts);
            self.parts = earlier.parts;
            self.look();
        }
    }
}

impl Earlier {
    fn take(&mut self, frame: &Frame, most: u64) {
        if self.parts.back().is_none_or(|last| last.on_disk > most) {
            self.parts.push_back(Part::new(frame.first));
        }
        let Some(last) = self.parts.back_mut() else { return };
        last.on_disk += frame.bytes() as u64;
        for record in frame.records() {
            last.count(&namespace_of(&record), in_frame(&record));
        }
    }
}

impl Part {
    fn new(first: u64) -> Self {
        Self { first, ..Self::default() }
    }

    fn count(&mut self, namespace: &str, bytes: u64) {
        self.bytes += bytes;
        if let Some(sum) = self.of.get_mut(namespace) {
            *sum += bytes;
            return;
        }
        if self.of.len() >= 2 * KNOWN {
            let mut sums: Vec<u64> = self.of.values().copied().collect();
            sums.sort_unstable();
            let least = sums[sums.len() - 1 - KNOWN];
            self.of.retain(|_, sum| {
                *sum = sum.saturating_sub(least);
                *sum > 0
            });
        }
        self.of.insert(namespace.into(), bytes);
    }
}

/// Every sink has had what is before a sequence, or the log has it no longer.
fn forget(parts: &mut VecDeque<Part>, before: u64) {
    while parts.get(1).is_some_and(|next| next.first <= before) {
        parts.pop_front();
    }
}

fn on_disk(parts: &VecDeque<Part>) -> u64 {
    parts.iter().map(|part| part.on_disk).sum()
}

/// The bytes that a record takes in a frame.
fn in_frame(record: &Record) -> u64 {
    record.envelope.len() as u64 + 4
}

fn namespace_of(record: &Record) -> Text<'_> {
    let shed = Shed::parse(&record.envelope).map(|shed| shed.namespace);
    shed.unwrap_or_else(|| Origin::namespace_of(&record.envelope))
}

#[cfg(test)]
mod tests;
