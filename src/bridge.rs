//! From the API server to the sinks: ingest into the journal, a watcher for each sink, delivery
//! with retry, and the fate of every record.
//!
//! [`Bridge::start`] puts it together; [`Sink`] is what a transport has to be. The parts, in the
//! order in which an event meets them:
//!
//! ```text
//! intake    identifies the cluster and runs a reflector for each source
//! ingest    the one thread that writes: identity, delta, envelope, journal, publish
//! feed      the journal's frames in order for one sink: live, or from the log
//! objects   what is known of the objects that events are about, for sinks that ask for it
//! gather    match, enrichment, correlation, and batches by count, bytes and linger
//! sender    attempts, several at once, until each event has a fate
//! delivery  which events are sent next, and what the answers make of them
//! redelivery  dead letters once more, dead letters of other sinks, replays: beside the journal's order
//! progress  the position of a sink and its totals, always together
//! keeper    saves them once a second
//! control   what may be asked of all this while it runs
//! own events  what of all this is worth an Event about the bridge itself
//! watchdog  which part is stuck, if one is
//! ```

mod cluster;
mod configuration;
mod control;
mod correlation;
mod delivery;
mod destinations;
mod event_counters;
mod failure;
mod feed;
mod filter;
mod gap;
mod gather;
#[cfg(test)]
pub(crate) mod heard;
mod heartbeat;
mod ingest;
mod intake;
mod keeper;
mod latencies;
mod log_lines;
mod marks;
mod objects;
mod options;
mod own_events;
mod own_writes;
mod past;
mod progress;
mod published;
mod reason;
mod redelivery;
mod restore;
mod run;
mod seen;
mod sender;
mod shared;
mod sink;
mod sinks;
mod smaller;
mod stop;
mod tasks;
mod view;
mod watchdog;

pub use cluster::ClusterError;
pub use configuration::{Configuration, ConfigurationState, Rejected};
pub use control::{
    Control, ControlError, Replay, ReplayFrom, ReplayProgress, ReplayRun, ReplayState,
};
pub use event_counters::{EventCounter, EventCounters, EventSeries};
pub use failure::{Failure, FailureClass, Fault, RefusedClass, Status};
pub use filter::{EvalError, Filter, FilterError};
pub use gap::Gap;
pub use heartbeat::Heartbeat;
pub use latencies::Latencies;
#[cfg(feature = "kafka")]
pub(crate) use log_lines::LogLines;
pub use objects::{Enrich, KeyPatterns, NotAResource, ObjectOptions, ResourceName};
pub use options::{
    BatchOptions, BridgeOptions, CorrelateMode, JournalOptions, Overflow, RetryOptions,
    SinkOptions, SinkStart, SourceOptions, SourceStart,
};
pub(crate) use options::{MAX_DESTINATIONS, TIMEOUT};
pub use own_events::{COMPONENT, OwnEvents};
pub use own_writes::OwnWrites;
pub use progress::{
    Enrichments, ErrandCounts, OpenHead, SinkCondition, SinkProgress, SinkSnapshot,
};
pub use reason::{Reason, Secrets};
pub use run::{Bridge, BridgeError, SinkControl, SinkHandle, SinkHandleError};
pub(crate) use shared::now_ms;
pub use shared::{BlockedBy, IngestCounters};
pub use sink::{EventFate, Outcome, Sink};
pub use sinks::Sinks;
pub use tasks::TaskEnd;
pub use view::{BridgeView, SourceView};
pub use watchdog::{Stuck, Watchdog};
