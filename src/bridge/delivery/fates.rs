//! Fates of tickets.

use std::ops::Range;

use super::{
    super::{Reason, RefusedClass},
    ticket::{Millis, Number},
};

/// The fate of tickets that follow each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::bridge) struct Fated {
    pub(in crate::bridge) tickets: Range<Number>,
    pub(in crate::bridge) fate: Fate,
}

/// See the [module](self).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::bridge) enum Fate {
    Delivered,
    /// Delivered, and the receiver says that it had it before.
    Duplicate,
    DeadLetter(Letter),
}

/// Why a record is a dead letter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::bridge) struct Letter {
    pub(in crate::bridge) class: LetterClass,
    pub(in crate::bridge) reason: Reason,
    pub(in crate::bridge) attempts: u32,
    /// When it was sent first.
    pub(in crate::bridge) first: Millis,
}

/// The kinds of dead letters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::bridge) enum LetterClass {
    /// The receiver refused it by itself.
    Refused(RefusedClass),
    /// One of so many of a batch that were refused without being named. Those of one answer come one
    /// after the other, and one letter stands for them.
    PartialSuccess,
    /// It fails in itself again and again, with an answer about what it holds, while others are taken.
    Blocked,
    /// It failed as often as `retry.maxAttempts` allows.
    MaxAttempts,
}

impl LetterClass {
    /// The spelling in dead letters and metrics.
    pub(in crate::bridge) fn as_str(self) -> &'static str {
        match self {
            Self::Refused(class) => class.as_str(),
            Self::PartialSuccess => "partial-success",
            Self::Blocked => "blocked",
            Self::MaxAttempts => "max-attempts",
        }
    }
}

/// What the caller has to know of a ticket beside its fate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::bridge) enum Notice {
    /// It stands in a queue now, perhaps for long: its record may be let go, and read again from the log
    /// when the ticket is sent.
    Queued(Number),
    /// It is set aside: its record is saved as a copy with the position, which passes it then.
    SetAside(Number),
}

/// What a record that failed has been through.
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
