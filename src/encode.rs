//! The formats that events leave in, a file each. A format is a pure function of an envelope; how the
//! bytes travel is a sink's.

mod cloudevents;
mod ecs;
mod event;
#[cfg(feature = "splunk")]
pub(crate) mod hec;
mod kinds;
#[cfg(feature = "loki")]
pub(crate) mod loki;
#[cfg(feature = "otlp")]
pub(crate) mod metrics;
#[cfg(feature = "otlp")]
pub(crate) mod otlp;
mod parsed;
#[cfg(feature = "otlp")]
mod protobuf;
#[cfg(any(feature = "loki", feature = "splunk"))]
mod stable;
#[cfg(feature = "syslog")]
pub(crate) mod syslog;
#[cfg(test)]
mod tests;

use bytes::Bytes;
use schemars::JsonSchema;
use serde::Deserialize;

pub(crate) use self::kinds::kind_words;
use crate::event::Record;

/// The format of an event, for the kinds of sinks that have none of their own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// The envelope: the Event, its id, cluster, occurrences, and what was added on its way.
    #[default]
    Envelope,
    /// The Kubernetes Event alone, with its id, cluster and delta as annotations `tidings.dev/…`.
    Event,
    /// A document of the Elastic Common Schema.
    Ecs,
    /// A CloudEvent 1.0 in structured mode, with the Event as its data.
    CloudEvents,
}

/// A record that is no envelope.
#[derive(Debug, thiserror::Error)]
#[error("record {seq} is not an envelope: {source}")]
pub(crate) struct EncodeError {
    /// Its place in the journal.
    pub(crate) seq: u64,
    pub(crate) source: serde_json::Error,
}

impl Format {
    /// A record in this format, as one line of JSON.
    pub(crate) fn encode(self, record: &Record) -> Result<Bytes, EncodeError> {
        let encode = match self {
            Self::Envelope => return Ok(record.envelope.clone()),
            Self::Event => event::encode,
            Self::Ecs => ecs::encode,
            Self::CloudEvents => cloudevents::encode,
        };
        let encoded = encode(&record.envelope);
        encoded.map(Bytes::from).map_err(|source| EncodeError { seq: record.seq, source })
    }

    /// The media type of one event, and of an array of them where the format has none of its own for that.
    #[cfg(any(feature = "kafka", feature = "webhook"))]
    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Self::Envelope | Self::Event | Self::Ecs => "application/json",
            Self::CloudEvents => "application/cloudevents+json; charset=UTF-8",
        }
    }
}
