//! Dead letters as those outside the store speak of them: what is asked for, what became of one, why
//! nothing was done, and how many there are.

use serde::{Deserialize, Serialize};

use super::CommitError;

/// Where a letter is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LetterState {
    /// It stays until somebody decides about it.
    #[default]
    Kept,
    /// To be sent again, because somebody wants that or because it is parked; kept until that has succeeded.
    RetryRequested,
}

/// Which letters are asked for. The newest come first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LetterQuery {
    /// Of one sink; `None`: of all, also of those that are not configured any more.
    pub sink: Option<String>,
    /// Of one class.
    pub class: Option<String>,
    /// So many at most.
    pub limit: usize,
    /// Only those with a lower number: the last one of the page before.
    pub before: Option<u64>,
}

/// Which letters something is done with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Letters {
    /// By number; all of them, or nothing is done.
    Numbers(Vec<u64>),
    /// All that are of a sink and of a class; `None` is any.
    Of {
        /// The sink.
        sink: Option<String>,
        /// The class.
        class: Option<String>,
    },
}

/// Why nothing was done with letters.
#[derive(Debug, thiserror::Error)]
pub enum LetterError {
    /// There is no letter of this number.
    #[error(
        "there is no dead letter {0}\nhint: `tidings dead-letters list` shows those that are kept"
    )]
    NoSuchLetter(u64),
    /// The receiver did not say which events it refused.
    #[error(
        "dead letter {0} cannot be sent again: the receiver did not say which events of the batch it refused\n\
         hint: the reason is in the letter; `tidings replay` sends a stretch of time again"
    )]
    Unidentified(u64),
    /// There is no sink to send it to.
    #[error(
        "dead letter {number} cannot be sent again: the sink `{sink}` is not configured any more\n\
         hint: configure a sink of this name, or drop the letter"
    )]
    NotConfigured {
        /// The letter.
        number: u64,
        /// Its sink.
        sink: String,
    },
    /// The state cannot be read or written.
    #[error(transparent)]
    Store(#[from] CommitError),
}

/// What became of a letter that was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LetterFate {
    /// Which letter.
    pub number: u64,
    /// What became of it.
    pub outcome: LetterOutcome,
}

/// See [`LetterFate`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LetterOutcome {
    /// Its own sink has it: it goes.
    Delivered,
    /// Its own sink fails for it: it stays, and is sent again.
    Failed {
        /// The receiver's words.
        reason: String,
        /// When that was, milliseconds since the epoch.
        time_ms: u64,
    },
    /// Its own sink has refused it once more: it stays.
    Refused {
        /// `invalid`, `too-large` and the like.
        class: String,
        /// The receiver's words.
        reason: String,
        /// When it was given up, milliseconds since the epoch.
        time_ms: u64,
    },
    /// The sink that it was forwarded to has it, or does not want it: it stays.
    Forwarded,
}

/// What is kept of one sink's letters, and what is gone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LetterCounts {
    /// Letters that are kept.
    pub letters: u64,
    /// Events in them: a letter stands for several where the receiver did not name them.
    pub events: u64,
    /// What they take of `journal.deadLetters`, in bytes.
    pub bytes: u64,
    /// Letters of events that are parked.
    #[serde(skip)]
    pub parked: u64,
    /// Letters that this sink is to be sent: its own again, and those of sinks that forward to it.
    pub due: u64,
    /// Events in letters that went because there was no room.
    pub overflowed: u64,
    /// Events in letters that were dropped by command.
    pub dropped: u64,
    /// Of these two, events that were on their way to the sink then, and that it has taken.
    pub arrived: u64,
}
