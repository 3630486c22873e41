//! The row of segments as the writer and the readers share it.

use std::{
    collections::VecDeque,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::{Damages, frame::Position, times::Times};

/// How far apart the places are that a segment's index knows, in bytes.
const INDEX_STEP: u64 = 256 << 10;

/// One segment of the log.
#[derive(Debug)]
pub(super) struct Segment {
    /// Grows along the row and is never used again, unlike the name.
    pub generation: u64,
    /// The sequence it starts at, as its name says.
    pub first: u64,
    /// The position it starts at.
    pub start: Position,
    pub path: Arc<PathBuf>,
    /// Where its first frame is looked for.
    pub data_start: u64,
    /// How far it may be read, in bytes: what was appended and not taken back.
    pub length: u64,
    /// The time of the newest frame before it, milliseconds since the epoch.
    pub before_ms: u64,
    /// The time of the newest frame in it or before it, milliseconds since the epoch.
    pub newest_ms: u64,
    /// Some frames by first sequence and offset, so that a reader need not start at the start.
    /// Of segments that were sealed before the log was opened it has what readers came by.
    pub index: Index,
}

/// Places of some frames of a segment.
#[derive(Clone, Debug, Default)]
pub(super) struct Index(Vec<(u64, u64)>);

impl Index {
    /// Notes a frame, if the last one noted is far enough away.
    pub(super) fn note(&mut self, first: u64, at: u64) {
        if at >= self.note_from() && self.0.last().is_none_or(|(last, _)| first >= *last) {
            self.0.push((first, at));
        }
    }

    fn note_from(&self) -> u64 {
        self.0.last().map_or(0, |(_, at)| at + INDEX_STEP)
    }

    /// The last frame noted that starts before `sequence`: its first sequence and its place. One
    /// that starts at it may follow others that do so too, without records.
    fn before(&self, sequence: u64) -> Option<(u64, u64)> {
        let after = self.0.partition_point(|(first, _)| *first < sequence);
        self.0.get(after.checked_sub(1)?).copied()
    }
}

/// What readers need to know of the log at one moment.
#[derive(Debug, Default)]
pub(super) struct Row {
    segments: VecDeque<Segment>,
    /// After the last record appended.
    pub tail: Position,
    /// When what was appended.
    pub times: Times,
    /// Bytes in the directory that are not the log's.
    pub other_bytes: u64,
    next_generation: u64,
}

/// Where a reader is to read on.
#[derive(Debug)]
pub(super) struct View {
    pub generation: u64,
    pub path: Arc<PathBuf>,
    /// Where to start in it, for one that has not been there yet,
    pub offset: u64,
    /// which position that is, or one before it,
    pub start: Position,
    /// and the time of the newest frame before the segment, milliseconds since the epoch.
    pub before_ms: u64,
    pub length: u64,
    /// The time of the newest frame up to its end, milliseconds since the epoch.
    pub newest_ms: u64,
    /// The first sequence of the next segment, and where it starts; nothing for the last one.
    pub limit: Option<(u64, Position)>,
    /// From here on a place is worth [noting](Row::note).
    pub note_from: u64,
}

/// The row behind its lock.
#[derive(Debug)]
pub(super) struct Shared {
    row: Mutex<Row>,
    /// Where readers note what they come by.
    pub damages: Damages,
}

impl Shared {
    pub(super) fn new(damages: Damages) -> Self {
        Self { row: Mutex::default(), damages }
    }

    /// The row, for a moment: no input or output while it is held.
    pub(super) fn lock(&self) -> MutexGuard<'_, Row> {
        // No holder leaves it half changed.
        self.row.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Row {
    /// Adds a segment at the end; its generation is given it here.
    pub(super) fn push(&mut self, mut segment: Segment) {
        segment.generation = self.next_generation;
        self.next_generation += 1;
        self.segments.push_back(segment);
    }

    pub(super) fn last_mut(&mut self) -> Option<&mut Segment> {
        self.segments.back_mut()
    }

    pub(super) fn pop_last(&mut self) -> Option<Segment> {
        self.segments.pop_back()
    }

    /// Takes the oldest segment out if it is sealed and `unwanted` of it and of the next one's
    /// first sequence.
    pub(super) fn pop_first_if(
        &mut self,
        unwanted: impl FnOnce(&Segment, u64) -> bool,
    ) -> Option<Segment> {
        let (oldest, next) = (self.segments.front()?, self.segments.get(1)?);
        unwanted(oldest, next.first).then(|| self.segments.pop_front())?
    }

    /// Puts back what [`pop_first_if`](Self::pop_first_if) took out.
    pub(super) fn push_first(&mut self, segment: Segment) {
        self.segments.push_front(segment);
    }

    /// Before the oldest record that is kept.
    pub(super) fn oldest(&self) -> Position {
        self.segments.front().map_or(self.tail, |segment| segment.start)
    }

    /// The bytes of the log.
    pub(super) fn log_bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.length).sum()
    }

    /// The bytes from the record `sequence` on, counted from the last place before it that is known.
    pub(super) fn bytes_from(&self, sequence: u64) -> u64 {
        let at = self.locate(sequence);
        let rest = self.segments.iter().skip(at).map(|segment| segment.length).sum::<u64>();
        let before = self.segments.get(at).map_or(0, |segment| segment.place_of(sequence).0);
        if sequence >= self.tail.next { 0 } else { rest.saturating_sub(before) }
    }

    /// When the record `sequence` was appended, or one shortly before it; of what was appended before
    /// the log was opened, when the segment ended that it is in. Nothing for one that does not exist.
    pub(super) fn time_of(&self, sequence: u64) -> Option<u64> {
        let noted = self.times.of(sequence);
        let ended = || self.segments.get(self.locate(sequence)).map(|segment| segment.newest_ms);
        let known = self.times.first().is_some_and(|first| first <= sequence);
        let time_ms = if known { noted } else { ended().into_iter().chain(noted).min() };
        time_ms.filter(|_| sequence < self.tail.next)
    }

    /// Which segment to start in to read from `sequence`: the last that starts before it. One that
    /// starts at it may follow frames without records that stand at the same sequence.
    fn locate(&self, sequence: u64) -> usize {
        self.segments.partition_point(|segment| segment.first < sequence).saturating_sub(1)
    }

    /// The generation of the segment in which reading from `sequence` starts.
    fn generation_of(&self, sequence: u64) -> u64 {
        self.segments.get(self.locate(sequence)).map_or(0, |segment| segment.generation)
    }

    /// The segment to read on in: the first of generation `from` or later or, without one, that in
    /// which `sequence` lies.
    pub(super) fn view(&self, from: Option<u64>, sequence: u64) -> Option<View> {
        let from = from.unwrap_or_else(|| self.generation_of(sequence));
        let at = self.segments.partition_point(|segment| segment.generation < from);
        let segment = self.segments.get(at)?;
        let (offset, start) = segment.place_of(sequence);
        Some(View {
            generation: segment.generation,
            path: Arc::clone(&segment.path),
            offset,
            start,
            before_ms: segment.before_ms,
            length: segment.length,
            newest_ms: segment.newest_ms,
            limit: self.segments.get(at + 1).map(|next| (next.first, next.start)),
            note_from: segment.index.note_from(),
        })
    }

    /// Whether a segment is the last one.
    pub(super) fn is_last(&self, generation: u64) -> bool {
        self.segments.back().is_some_and(|segment| segment.generation == generation)
    }

    /// Whether a segment is one that is kept.
    pub(super) fn keeps(&self, generation: u64) -> bool {
        self.segments.binary_search_by_key(&generation, |segment| segment.generation).is_ok()
    }

    /// Notes the place of a frame that a reader came by; answers from where the next is worth it.
    pub(super) fn note(&mut self, generation: u64, first: u64, at: u64) -> u64 {
        let place = self.segments.partition_point(|segment| segment.generation < generation);
        let segment = self.segments.get_mut(place).filter(|s| s.generation == generation);
        // One that is gone is read to its end by who has it open, and by nobody else.
        let Some(segment) = segment else { return u64::MAX };
        segment.index.note(first, at);
        segment.index.note_from()
    }
}

impl Segment {
    /// Where to start to read from `sequence`, and which position that is, or one before it.
    fn place_of(&self, sequence: u64) -> (u64, Position) {
        match self.index.before(sequence) {
            Some((next, at)) => (at, Position { next, skipped: self.start.skipped }),
            None => (self.data_start, self.start),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_answers_a_place_before_all_frames_of_a_sequence() {
        let mut index = Index::default();
        for (first, at) in [(5, 100), (6, 200), (9, 100 + INDEX_STEP), (9, 100 + 2 * INDEX_STEP)] {
            index.note(first, at);
        }
        assert_eq!(index.before(5), None);
        assert_eq!(
            index.before(9),
            Some((5, 100)),
            "frames without records may come before the noted"
        );
        assert_eq!(index.before(10), Some((9, 100 + 2 * INDEX_STEP)));
    }
}
