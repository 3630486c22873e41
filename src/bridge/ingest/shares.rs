//! What each namespace takes of the backlog: of what the log keeps for a sink that has not had it.
//!
//! A log drops whole segments, so a namespace's share of it is kept where records come in. While the
//! backlog takes more than half of the journal, the Events of a namespace that takes more than a
//! quarter of the backlog are cut to [`LITTLE`]. One that takes more than half of it has what is larger
//! than that [shed](crate::event::Shed) instead; and what is smaller only where no sink takes anything
//! and there is no more room left than the others have taken, and an eighth of the journal. Nothing is
//! shed where a sink is to lose nothing (`overflow: block`). A namespace that is alone in the backlog has
//! all of it, and so has everybody while every sink keeps up.
//!
//! The backlog is counted by segments, as retention drops it, from where the first sink stands. What was
//! in the log before this process is not counted until the journal is so full that it matters: then it is
//! read, a piece with each frame that comes. Until it is, nobody is taken for more than is known.

use std::{
    collections::{HashMap, VecDeque},
    hash::BuildHasherDefault,
    sync::Arc,
    time::{Duration, Instant},
};

use rustc_hash::FxHasher;

use super::backlog::{STANDS_STILL, limit};
use crate::{
    bridge::{Overflow, SinkProgress},
    event::{EnvelopeParts, LEAST_ENVELOPE, Record, Shed},
    journal::{LogHandle, Reader},
};

/// What an envelope takes of a namespace that has more than its share, in bytes.
pub(super) const LITTLE: usize = LEAST_ENVELOPE;
/// The journal is full of a backlog by more than this part of it.
const FULL: u64 = 2;
/// A namespace has more than its share with more than this part of the backlog,
const SHARE: u64 = 4;
/// and more than twice that with more than this one.
const TWICE: u64 = 2;
/// So much is kept free for others at least where records of any size are shed.
const FREE: u64 = 8;
/// Where sinks stand is looked at after this part of the journal, or this time.
const LOOK_AFTER: u64 = 64;
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// So much of the log is read at a time, in bytes.
const READ: usize = 1 << 20;

/// What the log has room for of a namespace's Event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    /// As much as an Event may take.
    Whole,
    /// [`LITTLE`]; what is larger is cut,
    Little,
    /// or shed.
    LittleOrNothing,
    /// Nothing but which Event it was.
    Nothing,
}

type Map<T> = HashMap<Box<str>, T, BuildHasherDefault<FxHasher>>;

/// What a segment, or the part of one that counts, has of each namespace.
#[derive(Debug, Default)]
struct Part {
    /// The sequence that the segment starts at.
    segment: u64,
    /// What its records take, and what its frames do, in bytes.
    bytes: u64,
    on_disk: u64,
    places: Map<u32>,
    /// By place.
    of: Vec<u64>,
}

/// The records of a frame: the place of the namespace of each, and its bytes.
pub(super) type Tally = Vec<(u32, u32)>;

/// What was in the log before it was counted, being read.
struct Earlier {
    reader: Reader,
    from: u64,
    parts: VecDeque<Part>,
}

/// See the [module](self).
pub(super) struct Shares {
    sinks: Vec<Arc<SinkProgress>>,
    log: LogHandle,
    retention_size: u64,
    /// What a backlog may take.
    limit: u64,
    /// Of all records from `known_from` on, oldest first, and never empty.
    parts: VecDeque<Part>,
    known_from: u64,
    earlier: Option<Earlier>,
    /// What the backlog takes, in bytes, those included that nobody has counted.
    bytes: u64,
    /// What is counted of it, and by namespace but for the last part.
    counted: u64,
    sums: Map<u64>,
    may_shed: bool,
    stands_still: bool,
    /// When sinks were last looked at, and how much has come since.
    looked: Instant,
    since: u64,
}

impl Shares {
    /// Nothing of what the log has is counted yet.
    pub(super) fn new(sinks: &[Arc<SinkProgress>], log: LogHandle, retention_size: u64) -> Self {
        let tail = log.tail().next;
        let mut shares = Self {
            sinks: sinks.to_vec(),
            limit: limit(&log, retention_size),
            retention_size,
            parts: VecDeque::from([Part::of_segment(log.segment_of(tail))]),
            log,
            known_from: tail,
            earlier: None,
            bytes: 0,
            counted: 0,
            sums: Map::default(),
            may_shed: false,
            stands_still: false,
            looked: Instant::now(),
            since: 0,
        };
        shares.look();
        shares
    }

    fn is_full(&self) -> bool {
        self.bytes > self.limit / FULL
    }

    /// What there is room for of an Event of a namespace.
    pub(super) fn room(&self, namespace: &str) -> Room {
        if !self.is_full() {
            return Room::Whole;
        }
        let last = self.parts.back().map_or(0, |last| last.bytes_of(namespace));
        let own = self.sums.get(namespace).copied().unwrap_or_default() + last;
        let others = self.counted.saturating_sub(own);
        if own <= self.bytes / SHARE || others == 0 {
            Room::Whole
        } else if own <= self.bytes / TWICE || !self.may_shed {
            Room::Little
        } else if self.stands_still
            && self.limit.saturating_sub(self.bytes) < others.max(self.limit / FREE)
        {
            Room::Nothing
        } else {
            Room::LittleOrNothing
        }
    }

    /// Notes a record of a frame that is appended next.
    pub(super) fn note(&mut self, tally: &mut Tally, namespace: &str, bytes: usize) {
        if let Some(last) = self.parts.back_mut() {
            tally.push((last.place_of(namespace), u32::try_from(bytes).unwrap_or(u32::MAX)));
        }
    }

    /// The frame has been appended, to the segment that starts at `segment`, and takes so many bytes.
    pub(super) fn appended(&mut self, tally: &Tally, segment: u64, on_disk: usize) {
        if tally.is_empty() {
            // A resume point takes next to nothing.
            return;
        }
        if self.parts.back().is_none_or(|last| last.segment != segment) {
            self.begin(segment, tally);
        } else if let Some(last) = self.parts.back_mut() {
            for (place, bytes) in tally {
                last.of[*place as usize] += u64::from(*bytes);
                last.bytes += u64::from(*bytes);
            }
        }
        let on_disk = on_disk as u64;
        if let Some(last) = self.parts.back_mut() {
            last.on_disk += on_disk;
        }
        let was_full = self.is_full();
        self.counted += tally.iter().map(|(_, bytes)| u64::from(*bytes)).sum::<u64>();
        self.bytes += on_disk;
        self.since += on_disk;
        if self.earlier.is_some() {
            self.read_earlier();
        }
        if self.since > self.limit / LOOK_AFTER || self.is_full() != was_full {
            self.look();
        }
    }

    /// Looks where sinks are, if that is some time ago.
    pub(super) fn tick(&mut self) {
        if self.looked.elapsed() >= LOOK_EVERY {
            self.look();
        }
    }

    /// The frame is the first of another segment.
    fn begin(&mut self, segment: u64, tally: &Tally) {
        let mut part = Part::of_segment(segment);
        if let Some(last) = self.parts.back() {
            if segment < last.segment {
                // A sync failed, and the segment begins with a copy of what is counted elsewhere.
                *self = Self::new(&self.sinks, self.log.clone(), self.retention_size);
                return;
            }
            let names: HashMap<u32, &str> =
                last.places.iter().map(|(name, place)| (*place, &**name)).collect();
            for (place, bytes) in tally {
                part.add(names.get(place).copied().unwrap_or_default(), u64::from(*bytes));
            }
        }
        self.parts.push_back(part);
        self.sum_up();
    }

    fn look(&mut self) {
        (self.looked, self.since) = (Instant::now(), 0);
        self.limit = limit(&self.log, self.retention_size);
        let tail = self.log.tail().next;
        let from = self.sinks.iter().map(|sink| sink.unsettled_from()).min().unwrap_or(tail);
        let from = from.max(self.log.oldest().next);
        if from >= tail {
            self.forget_all(tail);
        } else {
            self.forget(self.log.segment_of(from));
        }
        let earlier = self.earlier.iter().flat_map(|earlier| &earlier.parts);
        let read: u64 = earlier.clone().map(|part| part.on_disk).sum();
        self.counted = self.parts.iter().chain(earlier).map(|part| part.bytes).sum();
        self.bytes = self.parts.iter().map(|part| part.on_disk).sum();
        let is_behind = self.known_from > from;
        if is_behind {
            let all = self.log.bytes_from(from);
            self.bytes += all.saturating_sub(self.log.bytes_from(self.known_from)).max(read);
        }
        if self.is_full() && is_behind && self.earlier.is_none() {
            let reader = self.log.reader(from);
            self.earlier = Some(Earlier { reader, from, parts: VecDeque::new() });
        }
        self.sum_up();
        let far = |sink: &Arc<SinkProgress>| {
            self.log.bytes_from(sink.unsettled_from()) > self.limit / FULL
        };
        let is_far_and_still =
            |sink: &Arc<SinkProgress>| sink.settled_at().elapsed() >= STANDS_STILL && far(sink);
        self.may_shed = self.sinks.iter().all(|sink| sink.overflow() == Overflow::DropOldest);
        self.stands_still = self.sinks.iter().all(is_far_and_still);
    }

    /// Every sink has had everything.
    fn forget_all(&mut self, tail: u64) {
        self.earlier = None;
        // As a rule there is little, and it is looked at again and again.
        if self.parts.iter().any(|part| part.on_disk > 0) {
            let segment = self.parts.back().map_or(tail, |last| last.segment);
            self.parts = VecDeque::from([Part::of_segment(segment)]);
        }
        self.known_from = tail;
    }

    /// Every sink has had what is before a segment, or the log has it no longer.
    fn forget(&mut self, segment: u64) {
        while self.parts.len() > 1 && self.parts.front().is_some_and(|p| p.segment < segment) {
            self.parts.pop_front();
        }
        self.known_from = self.known_from.max(segment);
        if let Some(earlier) = &mut self.earlier {
            earlier.parts.retain(|part| part.segment >= segment);
        }
    }

    /// Reads on in what was in the log before; blocks on the disk.
    fn read_earlier(&mut self) {
        let Some(earlier) = &mut self.earlier else { return };
        let frames = earlier.reader.read(READ);
        let mut ends = false;
        for frame in frames.iter().flatten() {
            let segment = self.log.segment_of(frame.first);
            if earlier.parts.back().is_none_or(|last| last.segment != segment) {
                earlier.parts.push_back(Part::of_segment(segment));
            }
            let Some(part) = earlier.parts.back_mut() else { continue };
            if frame.count() > 0 && frame.next() <= self.known_from {
                part.on_disk += frame.bytes() as u64;
            }
            for record in frame.records().filter(|record| record.seq >= earlier.from) {
                ends |= record.seq >= self.known_from;
                if !ends {
                    with_namespace(&record, |namespace| part.add(namespace, in_frame(&record)));
                }
            }
        }
        // What cannot be read is nobody's.
        if ends || frames.as_ref().map_or(true, Vec::is_empty) {
            self.end_earlier();
        }
    }

    fn end_earlier(&mut self) {
        let Some(mut earlier) = self.earlier.take() else { return };
        if let (Some(before), Some(first)) = (earlier.parts.back(), self.parts.front_mut())
            && before.segment == first.segment
        {
            for (namespace, bytes) in before.namespaces() {
                first.add(namespace, bytes);
            }
            first.on_disk += before.on_disk;
            earlier.parts.pop_back();
        }
        earlier.parts.append(&mut self.parts);
        (self.parts, self.known_from) = (earlier.parts, earlier.from);
        self.look();
    }

    /// Sums up all parts but the last.
    fn sum_up(&mut self) {
        self.sums.clear();
        if !self.is_full() {
            // Nobody asks.
            return;
        }
        let before = self.parts.range(..self.parts.len().saturating_sub(1));
        let earlier = self.earlier.iter().flat_map(|earlier| &earlier.parts);
        for (namespace, bytes) in before.chain(earlier).flat_map(Part::namespaces) {
            match self.sums.get_mut(namespace) {
                Some(sum) => *sum += bytes,
                None => _ = self.sums.insert(namespace.into(), bytes),
            }
        }
    }
}

impl Part {
    fn of_segment(segment: u64) -> Self {
        Self { segment, ..Self::default() }
    }

    fn place_of(&mut self, namespace: &str) -> u32 {
        if let Some(place) = self.places.get(namespace) {
            return *place;
        }
        let place = u32::try_from(self.of.len()).unwrap_or(u32::MAX);
        self.of.push(0);
        self.places.insert(namespace.into(), place);
        place
    }

    fn add(&mut self, namespace: &str, bytes: u64) {
        let place = self.place_of(namespace);
        self.of[place as usize] += bytes;
        self.bytes += bytes;
    }

    fn bytes_of(&self, namespace: &str) -> u64 {
        self.places.get(namespace).map_or(0, |place| self.of[*place as usize])
    }

    fn namespaces(&self) -> impl Iterator<Item = (&str, u64)> {
        self.places.iter().map(|(name, place)| (&**name, self.of[*place as usize]))
    }
}

/// What a record takes in a frame.
fn in_frame(record: &Record) -> u64 {
    record.envelope.len() as u64 + 4
}

fn with_namespace(record: &Record, with: impl FnOnce(&str)) {
    if let Some(shed) = Shed::parse(&record.envelope) {
        return with(&shed.namespace);
    }
    let fields = EnvelopeParts::of(&record.envelope).and_then(|parts| parts.fields());
    with(fields.as_ref().map_or("", |fields| &*fields.metadata.namespace));
}

#[cfg(test)]
mod tests;
