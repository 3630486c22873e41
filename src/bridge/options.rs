//! What a bridge is made of, and how each sink's watcher batches, retries and starts.

use std::{path::PathBuf, sync::Arc, time::Duration};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tidings_log::LogOptions;

use super::{Enrich, EventCounter, Filter, Heartbeat, ObjectOptions, OwnEvents, Sink};
use crate::event::Cluster;

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
    /// After how many attempts a batch goes to the dead letters; at least 1. `None`: never. What
    /// somebody has to mend does not count: that is tried for ever.
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

/// Where a sink starts that is new to a journal with a past.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SinkStart {
    /// With the next event.
    #[default]
    Now,
    /// With the oldest event that the journal holds.
    Oldest,
}

/// The policy when a sink lags by more than the journal holds.
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
    /// Versions that such a recorder would not have written are held back, and their increments come
    /// out with a later version.
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

/// What the bridge reads.
#[derive(Clone, Debug, PartialEq)]
pub struct SourceOptions {
    /// One source each; empty for one source of all namespaces.
    pub namespaces: Vec<String>,
    /// As in `kubectl --field-selector`; empty for none.
    pub field_selector: String,
    /// Where to start without a resume point.
    pub start: SourceStart,
}

/// Where the bridge keeps what it reads.
#[derive(Clone, Debug, PartialEq)]
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

/// One sink and how its watcher treats it. A configuration has the options of a transport in the place
/// of the transport.
#[derive(Clone, Debug, PartialEq)]
pub struct SinkOptions<S = Arc<dyn Sink>> {
    /// Its name; a plain file name too.
    pub name: String,
    /// Its transport, for the status page.
    pub kind: &'static str,
    /// The transport itself.
    pub sink: S,
    /// What it wants; `None` for everything.
    pub filter: Option<Filter>,
    /// What it is told of the objects that events are about; `None` for nothing.
    pub enrich: Option<Enrich>,
    /// What is done about repeats.
    pub correlate: CorrelateMode,
    /// When a batch is full.
    pub batch: BatchOptions,
    /// The waits between attempts.
    pub retry: RetryOptions,
    /// How long one attempt may take.
    pub timeout: Duration,
    /// How many attempts are under way at once; at least 1. Events of one object are delivered in order
    /// however many there are.
    pub concurrency: usize,
    /// An Event is cut so that the envelope which it is sent in takes no more bytes than this, where
    /// that is less than [`JournalOptions::max_event`]; `None`: it is sent as it was journalled.
    pub max_event: Option<usize>,
    /// How many values a day, of UTC, the templates of its destination may make; one namespace an eighth of them.
    pub max_destinations: usize,
    /// Where it starts in a journal with a past.
    pub start: SinkStart,
    /// What happens when it has not had more than the journal is to hold.
    pub overflow: Overflow,
    /// The sink that its dead letters are sent to, beside being kept.
    pub forward_dead_letters: Option<String>,
}

/// How long one attempt may take unless it is said otherwise.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(10);
/// How many destinations a day templates make unless it is said otherwise.
pub(crate) const MAX_DESTINATIONS: usize = 200;

impl<S> SinkOptions<S> {
    /// The default options of a sink: all events, annotated, from now on, one batch after the other.
    pub fn new(name: impl Into<String>, kind: &'static str, sink: S) -> Self {
        Self {
            name: name.into(),
            kind,
            sink,
            filter: None,
            enrich: None,
            correlate: CorrelateMode::default(),
            batch: BatchOptions::default(),
            retry: RetryOptions::default(),
            timeout: TIMEOUT,
            concurrency: 1,
            max_event: None,
            max_destinations: MAX_DESTINATIONS,
            start: SinkStart::default(),
            overflow: Overflow::default(),
            forward_dead_letters: None,
        }
    }

    /// The same options for another transport.
    pub fn with_sink<T>(self, sink: T) -> SinkOptions<T> {
        SinkOptions {
            name: self.name,
            kind: self.kind,
            sink,
            filter: self.filter,
            enrich: self.enrich,
            correlate: self.correlate,
            batch: self.batch,
            retry: self.retry,
            timeout: self.timeout,
            concurrency: self.concurrency,
            max_event: self.max_event,
            max_destinations: self.max_destinations,
            start: self.start,
            overflow: self.overflow,
            forward_dead_letters: self.forward_dead_letters,
        }
    }
}

/// Everything that a bridge is made of.
pub struct BridgeOptions {
    /// Which cluster; without a uid the API server is asked for it.
    pub cluster: Cluster,
    /// What to read.
    pub source: SourceOptions,
    /// Where to keep it.
    pub journal: JournalOptions,
    /// Where to send it.
    pub sinks: Vec<SinkOptions>,
    /// The counters that are made of it.
    pub counters: Vec<EventCounter>,
    /// How objects are read that events are about, if a sink is told of them.
    pub objects: ObjectOptions,
    /// Where to record what the bridge says of itself; `None`: it is logged only.
    pub own_events: Option<OwnEvents>,
    /// By what it notices that a watch is dead; `None`: only the watch's own end tells.
    pub heartbeat: Option<Heartbeat>,
}
