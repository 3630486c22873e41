//! Lines: records that go one batch after the other, in order.

use std::collections::VecDeque;

use super::{
    super::{Failure, Status},
    places::Unit,
    shelf::{Shelf, Trial},
    ticket::{Millis, Moment, Number},
};

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
    /// It sends nothing before that.
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
    /// The moment of the failure that made it part a batch.
    pub(super) round_at: Moment,
    /// Failures in a row.
    pub(super) in_a_row: u32,
    /// The trial of the errand that goes first.
    pub(super) trial: Option<(Number, Trial)>,
    /// When it sent last.
    pub(super) sent: Millis,
    /// The last answer took long, or did not come.
    pub(super) slow: bool,
}

/// What a line is for.
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
    /// What is set aside of it.
    Shelf(Unit, Shelf),
    /// Errands that failed.
    Errands,
}

/// A record that is tried beside one that fails.
#[derive(Clone, Copy, Debug)]
pub(super) struct Witness {
    pub(super) ticket: [Number; 1],
    pub(super) key: u64,
    /// It waited in the line itself, behind what fails, and those of its object behind it still do.
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
            round_at: 0,
            in_a_row: 0,
            trial: None,
            sent: 0,
            slow: false,
        }
    }

    /// Whether its first batch has failed since a time or longer.
    pub(super) fn has_failed_since(&self, time: Millis) -> bool {
        let piece = self.failed_parts.first().or(self.pieces.front());
        piece.and_then(|piece| piece.stuck).is_some_and(|(since, _)| since <= time)
    }

    /// Whether nothing is in it.
    pub(super) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
            && self.backlog.is_empty()
            && self.failed_parts.is_empty()
            && self.witness.is_none()
            && !matches!(&self.kind, Kind::Shelf(_, shelf) if !shelf.is_empty())
    }
}

/// Records that are sent as one batch.
#[derive(Debug)]
pub(super) struct Piece {
    pub(super) tickets: Vec<Number>,
    /// How often its records were sent since it was halved out of a larger one.
    pub(super) attempts: u32,
    /// Of these, the failures that mend themselves, which `retry.maxAttempts` bounds.
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
    /// Its last failure, if it has had the same records since.
    pub(super) failure: Option<Failure>,
    /// Failures in a row that may be a record's and are alike, and when the first of them was.
    pub(super) alike: u32,
    pub(super) alike_since: Millis,
    pub(super) status: Option<Status>,
    /// When it failed first of all, and at which moment.
    pub(super) stuck: Option<(Millis, Moment)>,
    /// It is all of a batch that one namespace has in it, or one object.
    pub(super) is_part: bool,
    /// Rounds that decided nothing.
    pub(super) rounds: u32,
    /// No other namespace had a record to try in them: its objects are held against each other.
    pub(super) by_object: bool,
    /// Others failed in the last of them: it may be that nothing is taken.
    pub(super) all_fail: bool,
    /// Its records failed one by one, and not alike.
    pub(super) is_mixed: bool,
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
            alike: 0,
            alike_since: 0,
            status: None,
            stuck: None,
            is_part: false,
            rounds: 0,
            by_object: false,
            all_fail: false,
            is_mixed: false,
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

    /// Counts failures that may be a record's and are alike.
    pub(super) fn count_alike(&mut self, failure: &Failure, now: Millis) {
        if self.status == Some(failure.status) {
            self.alike += 1;
        } else {
            (self.alike, self.alike_since) = (1, now);
            self.status = Some(failure.status);
        }
    }
}
