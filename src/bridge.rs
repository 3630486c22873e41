//! From the API server to the sinks: ingest into the journal, a watcher for each sink, delivery
//! with retry, and the fate of every record.
//!
//! [`Bridge::start`] puts it together; [`Sink`] is the trait of a transport. The rooms, in the order in which an
//! event meets them:
//!
//! ```text
//! source   from the API server to the log
//! objects  what is known of the objects that events are about, for sinks that ask for it
//! filter   the events that a sink wants
//! sink     from the log to a receiver
//! state    what survives a bridge, and how it is saved and restored
//! ```
//!
//! Several of them use the parts below:
//!
//! ```text
//! correlation  the algorithm of client-go's recorder on what the journal holds
//! progress     the position of a sink and its totals, always together
//! control      what may be asked of a bridge while it runs
//! own events   what of all this is worth an Event about the bridge itself
//! watchdog     which part is stuck, if one is
//! run          all of it put together, and stopped in order
//! ```

mod control;
mod correlation;
mod error;
mod failure;
mod filter;
mod frames;
mod gap;
#[cfg(test)]
pub(crate) mod heard;
mod log_lines;
mod namespaces;
mod objects;
mod options;
mod own_events;
mod own_writes;
mod progress;
mod published;
mod reason;
mod run;
mod setup;
mod shared;
mod sink;
mod source;
mod sparse;
mod state;
mod stop;
mod tasks;
mod transport;
mod view;
mod watchdog;

pub use control::{
    Control, ControlError, Replay, ReplayFrom, ReplayProgress, ReplayRun, ReplayState,
};
pub use error::{BridgeError, ClusterError, TaskEnd};
pub use failure::{Failure, FailureClass, Fault, RefusedClass, Status};
pub use filter::{EvalError, Filter, FilterError};
pub use gap::Gap;
#[cfg(feature = "kafka")]
pub(crate) use log_lines::LogLines;
pub use namespaces::NamespaceCounts;
pub use objects::{Enrich, KeyPatterns, ObjectOptions, ParseResourceError, ResourceName};
pub use options::{
    BatchOptions, CorrelateMode, JournalOptions, Overflow, RetryOptions, SendOptions, SinkStart,
    SourceOptions, SourceStart,
};
pub use own_events::{COMPONENT, OwnEvents};
pub use own_writes::OwnWrites;
pub use progress::{
    Enrichments, HeldBy, HeldUp, NamespaceSetAside, ResendCounts, SinkCondition, SinkProgress,
    SinkSnapshot,
};
pub use reason::{Reason, Secrets};
pub use run::{Bridge, SinkHandle, SinkHandleError};
pub use setup::{BridgeOptions, SinkOptions};
#[cfg(feature = "http-client")]
pub(crate) use shared::lock;
pub(crate) use shared::now_ms;
pub use shared::{BlockedBy, IngestCounters};
pub use source::Heartbeat;
pub use transport::{EventFate, Outcome, Sink};
pub use view::{BridgeView, SourceView};
pub use watchdog::{Stuck, Watchdog};
