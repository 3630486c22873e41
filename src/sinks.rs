//! The transports: each is one [`Sink`](crate::bridge::Sink), a folder or file of its own, and
//! behind a feature of its own where it brings dependencies.
//!
//! Building a sink checks all that can be checked without asking anyone: addresses, certificates,
//! headers. The network is first touched by the first attempt to deliver.

#[cfg(feature = "http-client")]
mod credentials;
#[cfg(all(test, any(feature = "http-client", feature = "kafka")))]
mod fixtures;
#[cfg(all(fuzzing, feature = "otlp", feature = "webhook"))]
#[doc(hidden)]
pub mod fuzzing;
#[cfg(feature = "http-client")]
mod http;
#[cfg(feature = "kafka")]
mod kafka;
#[cfg(feature = "http-client")]
mod net_error;
mod options;
#[cfg(feature = "otlp")]
mod otlp;
pub(crate) mod secrets;
mod signing_key;
mod stdout;
#[cfg(all(test, feature = "http-client"))]
#[cfg_attr(not(feature = "webhook"), allow(dead_code, reason = "the webhook tests use all of it"))]
mod test_server;
#[cfg(feature = "http-client")]
mod tls;
#[cfg(feature = "webhook")]
mod webhook;

use crate::bridge::Reason;

#[cfg(feature = "kafka")]
pub use kafka::KafkaSink;
pub(crate) use options::is_reserved_header;
pub use options::{
    Compression, KafkaKey, KafkaOptions, OtlpOptions, OtlpProtocol, Proxy, SaslMechanism,
    SaslOptions, Secret, TlsOptions, WebhookOptions,
};
#[cfg(feature = "otlp")]
pub use otlp::OtlpSink;
pub use signing_key::SigningKeyError;
pub(crate) use signing_key::{parse as parse_signing_key, prefixed as prefixed_signing_key};
pub use stdout::StdoutSink;
#[cfg(feature = "webhook")]
pub use webhook::WebhookSink;

/// Why a sink cannot be built from its options. The messages name the key of the configuration,
/// and never a secret.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum SinkBuildError {
    /// An address that is none.
    #[error("{key}: {reason}")]
    Address {
        /// `url`, `endpoint` or `brokers`.
        key: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// A header that HTTP does not allow, or that is ours to set.
    #[error("headers: {name:?}: {reason}")]
    Header {
        /// Its name.
        name: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A proxy that cannot be used.
    #[error("proxy: {0}")]
    Proxy(&'static str),
    /// A certificate or key that cannot be used.
    #[error("tls.{key}: {reason}")]
    Tls {
        /// `ca`, `cert`, `key` or `serverName`.
        key: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// A secret that receivers could not read.
    #[error("signing.secret: {0}")]
    SigningSecret(SigningKeyError),
    /// The HTTP or gRPC client refuses the options.
    #[error("cannot set up the client: {0}")]
    Client(Reason),
    /// librdkafka refuses the options.
    #[error("librdkafka refuses the configuration: {0}")]
    Kafka(Reason),
    /// The system gives no thread.
    #[error("cannot start a thread: {0}")]
    Thread(String),
}

/// The deadline that a sink sets itself within the time that one attempt may take: a little
/// before the bridge gives up, because the sink knows the reason and the bridge does not.
#[cfg(any(feature = "http-client", feature = "kafka"))]
fn own_deadline(timeout: std::time::Duration) -> std::time::Duration {
    timeout.saturating_sub((timeout / 10).min(std::time::Duration::from_millis(250)))
}
