//! Lines: records that go one batch after the other, in order.

use std::collections::VecDeque;

use super::{
    places::Unit,
    shelf::{Shelf, Trial},
    ticket::{Millis, Moment, Number},
};
use crate::bridge::{Failure, Status};

/// See the [module](self). It has one attempt under way at most.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) kind: Kind,
    /// The batch that is sent next or under way, and what it was halved or parted into, in order.
    pub(super) pieces: VecDeque<Piece>,
    /// Records that came after.
    pub(super) backlog: VecDeque<Number>,
    /// An attempt is under way: the first piece, or the witness.
    pub(super) sending: bool,
    /// A record of another namespace, or object, that is tried in its turn.
    pub(super) witness: Option<Witness>,
    /// Nothing is sent before that.
    pub(super) due: Millis,
    /// The most records of a batch.
    pub(super) size: usize,
    /// Failed parts of the round that is under way.
    pub(super) failed_parts: Vec<Piece>,
    /// Namespaces, or objects, whose witnesses failed in the round.
    pub(super) failed_witnesses: Vec<u64>,
    /// The moment of the last failure,
    pub(super) failed_at: Moment,
    /// and so many of the backlog have failed with others.
    pub(super) failed_before: usize,
    /// A queue's first records failed while others were taken.
    pub(super) was_apart: bool,
    /// The one record that failed before the queue was opened for it, until anything has been answered there.
    pub(super) waits_for: Option<Number>,
    /// The moment of the failure that made it part a batch.
    pub(super) round_at: Moment,
    /// Failures in a row.
    pub(super) in_a_row: u32,
    /// So many that were silent by themselves went because there was no room for them, since a batch was taken while
    /// there was room.
    pub(super) silent: u32,
    /// The moment at which the last of these was sent.
    pub(super) silent_at: Moment,
    /// When it sent last.
    pub(super) sent: Millis,
    /// The last answer took long, or did not come.
    pub(super) slow: bool,
}

/// The purpose of a line.
#[derive(Debug)]
pub(super) enum Kind {
    /// Nothing: a number that another may have.
    Closed,
    /// A lane.
    Lane,
    /// A destination that takes nothing while others do.
    Destination(u64),
    /// A namespace, or object, whose records fail while others are taken.
    Queue(Unit),
    /// Records of it that are set aside.
    Shelf(Unit, Shelf),
    /// Resends that failed.
    Resends(Shelf),
}

/// A record that is tried beside one that fails.
#[derive(Clone, Copy, Debug)]
pub(super) struct Witness {
    pub(super) ticket: [Number; 1],
    pub(super) key: u64,
    /// Waits in the line itself, behind what fails, and keeps its place there until it is taken.
    pub(super) from_line: bool,
    /// The moment that it was sent.
    pub(super) sent_at: Moment,
}

impl Line {
    pub(super) fn new(kind: Kind, size: usize) -> Self {
        Self {
            kind,
            pieces: VecDeque::new(),
            backlog: VecDeque::new(),
            sending: false,
            witness: None,
            due: 0,
            size,
            failed_parts: Vec::new(),
            failed_witnesses: Vec::new(),
            failed_at: 0,
            failed_before: 0,
            was_apart: false,
            waits_for: None,
            round_at: 0,
            in_a_row: 0,
            silent: 0,
            silent_at: 0,
            sent: 0,
            slow: false,
        }
    }

    /// Whether its first batch has failed since a time or longer.
    pub(super) fn has_failed_since(&self, time: Millis) -> bool {
        let piece = self.failed_parts.first().or(self.pieces.front());
        piece.and_then(|piece| piece.stuck).is_some_and(|stuck| stuck.since <= time)
    }

    /// Since when it has something to send, beside what it waits for.
    pub(super) fn oldest_due(&self) -> Millis {
        match &self.kind {
            Kind::Shelf(_, shelf) | Kind::Resends(shelf) => shelf.oldest_due().unwrap_or_default(),
            _ => self.due,
        }
    }

    /// Whether nothing is in it.
    pub(super) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
            && self.backlog.is_empty()
            && self.failed_parts.is_empty()
            && self.witness.is_none()
            && !matches!(&self.kind, Kind::Shelf(_, shelf) | Kind::Resends(shelf) if !shelf.is_empty())
    }
}

/// Records that are sent as one batch.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a question of its own")]
pub(super) struct Piece {
    pub(super) tickets: Vec<Number>,
    /// How often its records were sent since it was halved out of a larger one.
    pub(super) attempts: u32,
    /// Of these, the failures that `retry.maxAttempts` bounds.
    pub(super) failures: u32,
    /// Failures in a row, which the wait grows with.
    pub(super) in_a_row: u32,
    /// When its records were sent first, by themselves or in a larger one.
    pub(super) first: Option<Millis>,
    /// How often anything had been taken when it was sent last.
    pub(super) taken_before: u64,
    /// The moment that it was sent last.
    pub(super) sent_at: Moment,
    /// The moment that it failed last, and whether its records have failed, with others perhaps.
    pub(super) failed_at: Moment,
    pub(super) failed_before: bool,
    /// Its failures as a single record.
    pub(super) trial: Trial,
    /// When it was sent last, others had been taken since its last failure.
    pub(super) others_taken: bool,
    /// Its last failure, alone or with other records.
    pub(super) failure: Option<Failure>,
    /// Failures that may be a record's, and when the first of them was.
    pub(super) suspect: u32,
    pub(super) suspect_since: Millis,
    /// How many of the last of them were alike, and the status of these.
    pub(super) alike: u32,
    pub(super) status: Option<Status>,
    /// Since when it fails, if it does.
    pub(super) stuck: Option<Stuck>,
    /// All of a batch that one namespace has in it, or one object.
    pub(super) is_part: bool,
    /// Rounds that decided nothing.
    pub(super) rounds: u32,
    /// No other namespace had a record to try in them: its objects are held against each other.
    pub(super) by_object: bool,
    /// Others failed in the last of them: it may be that nothing is taken.
    pub(super) all_fail: bool,
    /// The last failure was that of each of its records: they were answered one by one, and alike.
    pub(super) each_failed: bool,
    /// How many records failed then.
    pub(super) failed: usize,
}

/// The first failure of a piece.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stuck {
    /// When the piece was sent first.
    pub(super) since: Millis,
    /// The moment before that was sent which failed,
    pub(super) sent_at: Moment,
    /// and that of its answer.
    pub(super) answered_at: Moment,
}

impl Piece {
    pub(super) fn new(tickets: Vec<Number>) -> Self {
        Self {
            tickets,
            attempts: 0,
            failures: 0,
            in_a_row: 0,
            first: None,
            taken_before: 0,
            sent_at: 0,
            failed_at: 0,
            failed_before: false,
            trial: Trial::default(),
            others_taken: false,
            failure: None,
            suspect: 0,
            suspect_since: 0,
            alike: 0,
            status: None,
            stuck: None,
            is_part: false,
            rounds: 0,
            by_object: false,
            all_fail: false,
            each_failed: false,
            failed: 0,
        }
    }

    /// Others of its records, which have been through the same.
    pub(super) fn with(&self, tickets: Vec<Number>) -> Self {
        Self {
            attempts: self.attempts,
            failures: self.failures,
            first: self.first,
            taken_before: self.taken_before,
            failed_at: self.failed_at,
            stuck: self.stuck,
            ..Self::new(tickets)
        }
    }

    /// Takes in that so many of its records are taken: its failure may have been that of others.
    pub(super) fn keep_own_failure(&mut self, taken: usize) {
        if !self.each_failed && taken != self.failed {
            self.failure = None;
        }
    }

    /// Counts a failure that may be a record's.
    pub(super) fn count_suspect(&mut self, failure: &Failure, now: Millis) {
        if self.suspect == 0 {
            self.suspect_since = now;
        }
        self.suspect += 1;
        let is_alike = self.status.replace(failure.status) == Some(failure.status);
        self.alike = if is_alike { self.alike + 1 } else { 1 };
    }
}
