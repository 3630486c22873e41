//! A lane: records that go one batch after the other, in order.

use std::collections::VecDeque;

use super::{
    super::Failure,
    ticket::{Millis, Number},
};

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Lane {
    /// The batch that is sent next or under way, and what it was halved into, in order.
    pub(super) pieces: VecDeque<Piece>,
    /// Records of its keys that came after.
    pub(super) backlog: VecDeque<Number>,
    /// Its first piece is under way.
    pub(super) sending: bool,
    /// Nothing is sent before that.
    pub(super) due: Millis,
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
    /// The last failure.
    pub(super) failure: Option<Failure>,
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
            failure: None,
        }
    }

    /// The second half. Both are tried anew, and at once: the receiver is there.
    pub(super) fn split_off_half(&mut self) -> Self {
        (self.attempts, self.failures, self.in_a_row) = (0, 0, 0);
        self.failure = None;
        let tickets = self.tickets.split_off(self.tickets.len() / 2);
        Self { tickets, failure: None, ..*self }
    }
}
