//! What the program runs by: references resolved, defaults applied, everything checked.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

pub use super::model::{LogFormat, LogLevel, ServerDetail};
use crate::{
    bridge::{
        BatchOptions, CorrelateMode, Enrich, Filter, ObjectOptions, Overflow, RetryOptions,
        SinkStart,
    },
    sinks::{KafkaOptions, OtlpOptions, Proxy, Secret, WebhookOptions},
};

/// A whole configuration.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Which cluster the events are of.
    pub cluster: ClusterSettings,
    /// Where they come from.
    pub source: SourceSettings,
    /// The journal between.
    pub journal: JournalSettings,
    /// Where they go; at least one, in the order of the file, names unique.
    pub sinks: Vec<SinkSettings>,
    /// Where a secret stands in the file itself, and not a reference to one.
    pub plain_secrets: Vec<String>,
    /// How objects are read that events are about, if a sink is told of them.
    pub objects: ObjectOptions,
    /// The admin server.
    pub server: ServerSettings,
    /// The log.
    pub log: LogSettings,
}

/// Which cluster the events are of.
#[derive(Clone, Debug, Default)]
pub struct ClusterSettings {
    /// The name from the configuration.
    pub name: Option<String>,
    /// The uid from the configuration; without one, ask for that of the namespace kube-system.
    pub uid: Option<String>,
}

/// Where the events come from.
#[derive(Clone, Debug)]
pub struct SourceSettings {
    /// The kubeconfig file, where one is named.
    pub kubeconfig: Option<PathBuf>,
    /// Through which the API server is reached; none: the kubeconfig's own, where it names one.
    pub proxy: Proxy,
    /// A watch for each; empty: one over all.
    pub namespaces: Vec<String>,
    /// Empty: all Events.
    pub field_selector: String,
    /// What to take at the first start.
    pub start: SourceStart,
    /// The time between two heartbeats, where there is a Pod to write them about.
    pub heartbeat: Option<Duration>,
}

/// What to take of the Events that exist when a source without a resume point starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SourceStart {
    /// All of them.
    #[default]
    All,
    /// None.
    Now,
    /// Those that last occurred within this time.
    Since(Duration),
}

/// The journal.
#[derive(Clone, Debug)]
pub struct JournalSettings {
    /// Its directory.
    pub path: PathBuf,
    /// Bytes on disk, all told.
    pub retention_size: u64,
    /// How old a record may get.
    pub retention_age: Duration,
    /// When it is forced to disk.
    pub sync: SyncPolicy,
    /// How many bytes the dead letters may take.
    pub dead_letters: u64,
    /// How many bytes the envelope of an Event may take; what is larger is cut.
    pub max_event: usize,
}

/// When the journal is forced to disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncPolicy {
    /// After every write.
    Always,
    /// By the operating system, when it likes.
    Never,
    /// At this interval, never zero.
    Every(Duration),
}

/// A sink.
#[derive(Clone, Debug)]
pub struct SinkSettings {
    /// Unique; fit for a metric's label and a file's name.
    pub name: String,
    /// The transport and its options.
    pub kind: SinkKind,
    /// Which events it wants; without one, all.
    pub filter: Option<Filter>,
    /// What it is told of the objects that events are about; without it, nothing.
    pub enrich: Option<Enrich>,
    /// What is done about repeats.
    pub correlate: CorrelateMode,
    /// How events are batched.
    pub batch: BatchOptions,
    /// How attempts follow each other.
    pub retry: RetryOptions,
    /// How long one attempt may take; never zero.
    pub timeout: Duration,
    /// How many attempts are under way at once; never zero.
    pub concurrency: usize,
    /// How many bytes the envelope of an Event may take on its way there; none: as many as in the
    /// journal.
    pub max_event: Option<usize>,
    /// Where it starts in a journal with a past.
    pub start: SinkStart,
    /// What happens when it lags by more than the journal holds.
    pub overflow: Overflow,
    /// The sink that its dead letters are sent to as well.
    pub forward_dead_letters: Option<String>,
}

/// A transport and its options.
#[derive(Clone, Debug)]
pub enum SinkKind {
    /// Kafka.
    Kafka(KafkaOptions),
    /// OTLP logs.
    Otlp(OtlpOptions),
    /// A webhook.
    Webhook(WebhookOptions),
    /// Standard output.
    Stdout,
}

impl SinkKind {
    /// The key of the kind in a configuration.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Kafka(_) => "kafka",
            Self::Otlp(_) => "otlp",
            Self::Webhook(_) => "webhook",
            Self::Stdout => "stdout",
        }
    }
}

/// The admin server.
#[derive(Clone, Debug)]
pub struct ServerSettings {
    /// What it listens on; port 0 takes any.
    pub listen: SocketAddr,
    /// What it shows to requests that do not come from loopback.
    pub detail: ServerDetail,
    /// What a request shows to see everything.
    pub token: Option<Secret>,
}

impl From<SocketAddr> for ServerSettings {
    /// Details for loopback alone.
    fn from(listen: SocketAddr) -> Self {
        Self { listen, detail: ServerDetail::Loopback, token: None }
    }
}

/// The log.
#[derive(Clone, Copy, Debug)]
pub struct LogSettings {
    /// How much.
    pub level: LogLevel,
    /// How a line is written.
    pub format: LogFormat,
}
