//! The journal: one durable, ordered copy of every change, and what is known about it.
//!
//! A journal is a directory with the log of [`tidings_log`] in it, and beside that:
//!
//! ```text
//! state.redb          cursors, fates, views and dead letters               state
//! positions.json      what stands when all of the above is gone            positions
//! delivered/<sink>    what a sink has had that its cursor may not know of  delivered, ranges, inputs
//! ```
//!
//! *The log is the truth.* Every other state is a view that knows up to which sequence it has been
//! applied, and is brought up from there at start. So nothing may be ahead of the log: sync the log
//! ([`Log::sync`](tidings_log::Log::sync)), then commit the state ([`State::commit`]), in that order.
//!
//! At start the order is: [`open`], [`State::open`], then [`Log::open`](tidings_log::Log::open) with
//! [`Loaded::highest_sequence`] as its floor.
//!
//! Everything here blocks; callers give it a thread of its own. Nothing here reads a clock: what
//! needs the time is given it, in milliseconds since the Unix epoch.

mod delivered;
mod hint;
mod inputs;
mod open_error;
mod positions;
mod ranges;
mod standing;
mod state;
mod survey;

use std::path::Path;

use tidings_log::Directory;

pub(crate) use delivered::{Delivered, Noted};
pub(crate) use hint::{append_failed, disk_hint, not_in_place};
pub(crate) use ranges::Ranges;

pub use inputs::{InputBytes, Inputs};
pub use open_error::OpenError;
pub use positions::{NAME as POSITIONS, Positions, PositionsError, Version};
pub use standing::{Holding, Standing};
pub use state::{
    CommitError, CorrelatorInputs, DeadLetter, DeadLettersReader, Destinations, LetterCounts,
    LetterError, LetterFate, LetterOutcome, LetterQuery, LetterState, Letters, Loaded,
    NamespaceLetters, ObjectsCommit, ObjectsReader, ObjectsView, ReadError, SavedCorrelator,
    SavedObject, SavedWitness, SeenTable, SinkState, SinksReader, SourceState, State, StateCommit,
    Totals, Unfinished,
};
pub use survey::{SinkSurvey, StateSurvey, Survey};

/// Opens the directory of a journal, which is made if it is not there.
///
/// # Errors
///
/// [`OpenError::Log`].
pub fn open(path: &Path) -> Result<Directory, OpenError> {
    Ok(Directory::open(path, &[state::NAME, positions::NAME, delivered::DIR])?)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_file_that_a_crash_left_half_done_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["state.redb.tmp", "positions.json.tmp", "notes.tmp"] {
            fs::write(dir.path().join(name), "x").unwrap();
        }
        open(dir.path()).unwrap();
        let left = ["state.redb.tmp", "positions.json.tmp", "notes.tmp"]
            .map(|name| dir.path().join(name).exists());
        assert_eq!(left, [false, false, true]);
    }
}
