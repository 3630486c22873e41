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
//! deliver   attempts until each event has a fate; backoff, halving, dead letters
//! progress  the position of a sink and its totals, always together
//! keeper    saves them once a second
//! own events  what of all this is worth an Event about the bridge itself
//! ```

mod cluster;
mod correlation;
mod deliver;
mod feed;
mod filter;
mod gather;
mod heartbeat;
mod high_water;
mod ingest;
mod intake;
mod keeper;
mod objects;
mod options;
mod own_events;
mod progress;
mod published;
mod restore;
mod run;
mod seen;
mod shared;
mod sink;

pub use cluster::ClusterError;
pub use filter::{EvalError, Filter, FilterError};
pub use heartbeat::Heartbeat;
pub use objects::{Enrich, KeyPatterns, NotAResource, ObjectOptions, ResourceName};
pub use options::{BatchOptions, CorrelateMode, Overflow, RetryOptions, SinkStart};
pub use own_events::{COMPONENT, OwnEvents};
pub use progress::{Enrichments, SinkCondition, SinkProgress, SinkSnapshot};
pub use run::{
    Bridge, BridgeError, BridgeOptions, BridgeView, JournalOptions, SinkOptions, SourceOptions,
    SourceStart, SourceView,
};
pub(crate) use shared::now_ms;
pub use shared::{BlockedBy, Gap, IngestCounters};
pub use sink::{EventFate, Outcome, RefusedClass, RetryClass, Sink};
