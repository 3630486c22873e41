#![doc = include_str!("../README.md")]

mod access;
mod damage;
mod directory;
mod disk;
mod external_sort;
pub mod format;
mod frame;
mod handle;
mod log;
pub mod private;
mod reader;
mod recovery;
mod scan;
mod scratch;
mod segments;
mod staging;
mod survey;
#[cfg(test)]
mod tests;
mod times;
mod trail;

pub use damage::{Damage, DamageKind, Damages};
pub use directory::{Directory, OpenError};
pub use external_sort::{ExternalSort, Sorted};
pub use frame::{Frame, FrameBuilder, Position, Resume};
pub use handle::LogHandle;
pub use log::{AppendError, Log, LogOptions, Opened, Retained, Sync, SyncDone, SyncJob};
pub use reader::Reader;
pub use staging::{SortedStaging, Staging};
pub use survey::{Problem, SegmentSurvey, Survey, SurveyError};
