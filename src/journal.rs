//! The journal: one durable, ordered copy of every change, and what is known about it.
//!
//! A journal is a directory:
//!
//! ```text
//! lock                        held by the one process that uses the directory      directory
//! 00000000000000000001.log    segments of the log, named by their first sequence   format, log
//! state.redb                  cursors, fates, views and dead letters               state
//! positions.json              what stands when all of the above is gone            positions
//! delivered/<sink>            what a sink has had that its cursor may not know of    delivered, ranges, inputs
//! damaged-<time>/             what could not be used, set aside                    directory, damage
//! staging-*.tmp               a paged list that is not whole yet                   staging, sorted_runs
//! ```
//!
//! *The log is the truth.* Every other state is a view that knows up to which sequence it has been
//! applied, and is brought up from there at start. So nothing may be ahead of the log: sync the log
//! ([`Log::sync`]), then commit the state ([`State::commit`]), in that order.
//!
//! At start the order is: [`Directory::open`], [`State::open`], then [`Log::open`] with
//! [`Loaded::highest_sequence`] as its floor.
//!
//! Everything here blocks; callers give it a thread of its own. Nothing here reads a clock: what
//! needs the time is given it, in milliseconds since the Unix epoch.

mod access;
mod damage;
mod delivered;
mod directory;
mod disk;
pub mod format;
mod frame;
mod handle;
mod inputs;
mod log;
mod positions;
mod private;
mod ranges;
mod reader;
mod recovery;
mod scan;
mod scratch;
mod segments;
mod sorted_runs;
mod staging;
mod standing;
mod state;
mod survey;
#[cfg(test)]
mod tests;
mod times;
mod trail;

pub(crate) use delivered::{Delivered, Noted};
pub(crate) use ranges::Ranges;

pub use damage::{Damage, DamageKind, Damages};
pub use directory::{Directory, OpenError};
pub use frame::{Frame, FrameBuilder, Position, Resume};
pub use handle::LogHandle;
pub use inputs::{InputBytes, Inputs};
pub use log::{AppendError, Log, LogOptions, Opened, Retained, Sync, SyncDone, SyncJob};
pub use positions::{NAME as POSITIONS, Positions, PositionsError, Version};
pub use reader::Reader;
pub use staging::{SortedStaging, SortedUids, StagedUids, Staging};
pub use standing::{Holding, Standing};
pub use state::{
    CommitError, CorrelatorInputs, DeadLetter, DeadLettersReader, Destinations, LetterCounts,
    LetterError, LetterFate, LetterOutcome, LetterQuery, LetterState, Letters, Loaded,
    NamespaceLetters, ObjectsCommit, ObjectsReader, ObjectsView, ReadError, SavedCorrelator,
    SavedObject, SavedWitness, SeenTable, SinkState, SinksReader, SourceState, State, StateCommit,
    Totals, Unfinished,
};
pub use survey::{Problem, SegmentSurvey, SinkSurvey, StateSurvey, Survey, SurveyError};
