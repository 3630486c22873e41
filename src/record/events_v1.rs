//! The recorder of events.k8s.io/v1 events.

mod attempt;
mod broadcaster;
mod key;
mod lane;
mod options;
mod recorder;
mod recording;
mod series;
mod sink;
mod state;
mod tally;

#[cfg(test)]
mod tests;

pub use broadcaster::{EventBroadcaster, RecordingHandle, SHUTDOWN_DEADLINE, ShutdownReport};
pub use options::{EventBroadcasterOptions, RecordingOptions};
pub use recorder::EventRecorder;
pub use sink::EventSink;
pub use tally::Tally;
