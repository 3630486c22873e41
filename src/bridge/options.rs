//! Options of the parts of a bridge: how it reads, keeps, batches, retries and starts.

use std::{path::PathBuf, time::Duration};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::journal::LogOptions;

/// When a batch is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchOptions {
    /// At this many events; at least 1.
    pub events: usize,
    /// At this many bytes of envelopes; an event larger than that travels alone.
    pub bytes: u64,
    /// At the latest this long after its first event came.
    pub linger: Duration,
}

impl Default for BatchOptions {
    fn default() -> Self {
        Self { events: 500, bytes: 1 << 20, linger: Duration::from_millis(20) }
    }
}

/// How attempts follow each other: exponential, with full jitter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryOptions {
    /// The bound of the first wait; never longer than `max`.
    pub initial: Duration,
    /// The bound of every wait.
    pub max: Duration,
    /// After how many failed attempts at it an event becomes a dead letter; at least 1. `None`: never. Only
    /// those count that may be the event's fault and may pass ([`Fault::RecordForNow`](super::Fault)): a receiver that
    /// is away, asks for less, or is to be mended is waited for.
    pub max_attempts: Option<u32>,
}

impl Default for RetryOptions {
    fn default() -> Self {
        Self {
            initial: Duration::from_millis(100),
            max: Duration::from_secs(30),
            max_attempts: None,
        }
    }
}

/// How events are put into batches, and these are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendOptions {
    /// When a batch is full.
    pub batch: BatchOptions,
    /// The waits between attempts.
    pub retry: RetryOptions,
    /// How long one attempt may take.
    pub timeout: Duration,
    /// How many attempts are under way at once; at least 1. Events of one object are delivered in order
    /// however many there are, and with 1 all events are.
    pub concurrency: usize,
}

impl Default for SendOptions {
    /// One batch after the other.
    fn default() -> Self {
        Self {
            batch: BatchOptions::default(),
            retry: RetryOptions::default(),
            timeout: Duration::from_secs(10),
            concurrency: 1,
        }
    }
}

/// Where the sink starts if it is new to a journal with a past.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SinkStart {
    /// With the next event.
    #[default]
    Now,
    /// With the oldest event that the journal holds.
    Oldest,
}

/// The policy when a sink has not had more than the journal is to hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Overflow {
    /// The oldest events go, and count as lost for it.
    #[default]
    DropOldest,
    /// Intake stops for all sinks until it has had some of them; none are dropped.
    Block,
}

/// The use that a sink's watcher makes of its correlator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum CorrelateMode {
    /// Everything is sent, and the envelope says what a recorder of client-go would have done.
    #[default]
    Annotate,
    /// Versions that such a recorder would not have written are held back, and their increments come out with
    /// a later version.
    Suppress,
    /// There is no correlator.
    None,
}

/// Where a source without a resume point starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SourceStart {
    /// With every Event that exists.
    #[default]
    All,
    /// With what happens from now on.
    Now,
    /// With what occurred at most so long ago.
    Since(Duration),
}

/// The Events that the bridge reads.
#[derive(Clone, Debug)]
pub struct SourceOptions {
    /// One source each; empty for one source of all namespaces.
    pub namespaces: Vec<String>,
    /// As in `kubectl --field-selector`; empty for none.
    pub field_selector: String,
    /// Where to start without a resume point.
    pub start: SourceStart,
}

/// Where the bridge keeps what it reads.
#[derive(Clone, Debug)]
pub struct JournalOptions {
    /// The directory.
    pub path: PathBuf,
    /// Retention and sync.
    pub log: LogOptions,
    /// How many bytes the dead letters may take; the oldest go first.
    pub dead_letters: u64,
    /// An Event is cut so that its envelope takes no more bytes than this; at least
    /// [`LEAST_ENVELOPE`](crate::event::LEAST_ENVELOPE), whatever it says.
    pub max_event: usize,
}
