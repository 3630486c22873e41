//! The kinds of sinks, each a folder with its keys, what it checks, its options and its
//! [`Sink`](crate::bridge::Sink), and a line in [`KINDS`]; the sink itself is behind a feature where it
//! brings dependencies.
//!
//! Building a sink checks all that can be checked without asking anyone: addresses, certificates,
//! headers. The network is first touched by the first attempt to deliver.

pub(crate) mod elasticsearch;
mod file;
#[cfg(all(test, any(feature = "http-client", feature = "kafka")))]
mod fixtures;
#[cfg(all(fuzzing, feature = "otlp", feature = "webhook"))]
#[doc(hidden)]
pub mod fuzzing;
mod http;
mod kafka;
pub(crate) mod keys;
mod lines;
mod loki;
mod options;
mod otlp;
mod splunk;
mod stdout;
mod syslog;
mod webhook;

use std::fmt;

pub use self::http::{Auth, HttpOptions, OAuth2Options};
pub use crate::encode::Format;
pub use elasticsearch::ElasticsearchOptions;
pub use file::{FileOptions, RotateOptions};
pub use kafka::{KafkaKey, KafkaOptions, SaslMechanism, SaslOptions};
pub use keys::{BuildSink, Kind};
pub use loki::LokiOptions;
use options::is_reserved_header;
pub use options::{Compression, Proxy, Secret, TlsOptions};
pub(crate) use otlp::OtlpModel;
pub use otlp::{OtlpOptions, OtlpProtocol};
pub use splunk::SplunkOptions;
pub use stdout::StdoutSink;
pub use syslog::{SyslogFacility, SyslogOptions, SyslogTransport};
pub use webhook::{SigningKeyError, WebhookBody, WebhookMethod, WebhookOptions};

/// Every kind of sink.
pub const KINDS: &[Kind] = &[
    Kind::of::<kafka::KafkaModel>("kafka", cfg!(feature = "kafka")),
    Kind::of::<OtlpModel>("otlp", cfg!(feature = "otlp")),
    Kind::of::<webhook::WebhookModel>("webhook", cfg!(feature = "webhook")),
    Kind::of::<elasticsearch::ElasticsearchModel>("elasticsearch", cfg!(feature = "elasticsearch")),
    Kind::of::<splunk::SplunkModel>("splunk", cfg!(feature = "splunk")),
    Kind::of::<loki::LokiModel>("loki", cfg!(feature = "loki")),
    Kind::of::<syslog::SyslogModel>("syslog", cfg!(feature = "syslog")),
    Kind::of::<file::FileModel>("file", true),
    Kind::of::<stdout::StdoutModel>("stdout", true),
];

/// Why a sink cannot be built from its options; never with a secret.
#[derive(Debug, PartialEq, Eq)]
pub struct SinkBuildError {
    /// The keys that lead to the fault, from that of the kind on, or `proxy`, which is beside it; none where
    /// it is in no key.
    pub(crate) path: Vec<String>,
    pub(crate) reason: String,
}

impl SinkBuildError {
    fn at(path: &[&str], reason: impl fmt::Display) -> Self {
        let path = path.iter().map(|key| (*key).to_owned()).collect();
        Self { path, reason: reason.to_string() }
    }
}

impl fmt::Display for SinkBuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path.join("."))?;
        }
        f.write_str(&self.reason)
    }
}

impl std::error::Error for SinkBuildError {}

/// The deadline that a sink sets itself within the time that one attempt may take: a little
/// before the bridge gives up, because the sink knows the reason and the bridge does not.
#[cfg(any(feature = "http-client", feature = "kafka"))]
fn own_deadline(timeout: std::time::Duration) -> std::time::Duration {
    timeout.saturating_sub((timeout / 10).min(std::time::Duration::from_millis(250)))
}
