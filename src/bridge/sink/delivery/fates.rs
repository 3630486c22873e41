//! Fates of tickets.

use std::ops::Range;

use super::ticket::{Millis, Number};
use crate::bridge::{Reason, RefusedClass};

/// The fate of tickets that follow each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fated {
    pub(crate) tickets: Range<Number>,
    pub(crate) fate: Fate,
}

/// The fate of a ticket. See the [module](self).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Delivered,
    /// Delivered, and the receiver says that it had it before.
    Duplicate,
    DeadLetter(GivenUp),
}

/// Why a record is a dead letter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GivenUp {
    pub(crate) class: DeadLetterClass,
    pub(crate) reason: Reason,
    pub(crate) attempts: u32,
    /// When it was sent first.
    pub(crate) first: Millis,
    /// Somebody has put it away.
    pub(crate) by_hand: bool,
}

/// The kinds of dead letters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeadLetterClass {
    /// The receiver refused it by itself.
    Refused(RefusedClass),
    /// One of so many of a batch that were refused without being named. Those of one answer come one
    /// after the other, and one letter stands for them.
    PartialSuccess,
    /// Failing in itself again and again, with an answer about what it holds, while others are taken.
    Blocked,
    /// Failed as often as `retry.maxAttempts` allows.
    MaxAttempts,
}

impl DeadLetterClass {
    /// The spelling in dead letters and metrics.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Refused(class) => class.as_str(),
            Self::PartialSuccess => "partial-success",
            Self::Blocked => "blocked",
            Self::MaxAttempts => "max-attempts",
        }
    }
}

/// A change of a ticket that the caller has to know beside its fate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Notice {
    /// Waiting now, perhaps for long: its record may be let go, and read again from the log
    /// when the ticket is sent.
    Queued(Number),
    /// Set aside: its record is saved as a copy with the position, which passes it then.
    SetAside(Number),
}

/// The past of a record that failed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    pub(super) attempts: u32,
    pub(super) failures: u32,
    pub(super) first: Millis,
}

/// Adds the fate of tickets that follow each other.
pub(super) fn add_all(fates: &mut Vec<Fated>, tickets: Range<Number>, fate: Fate) {
    match fates.last_mut() {
        Some(last) if last.tickets.end == tickets.start && last.fate == fate => {
            last.tickets.end = tickets.end;
        }
        _ => fates.push(Fated { tickets, fate }),
    }
}
