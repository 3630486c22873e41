//! Events for Splunk's HTTP Event Collector, one object each.
//!
//! | member | value |
//! |---|---|
//! | `time` | the envelope's `time`, if that is at most an hour before and 30 days after `metadata.creationTimestamp`, else that; seconds since 1970, with milliseconds |
//! | `host`, `source`, `sourcetype`, `index` | of the configuration; `host` is `fields.cluster` where that has none |
//! | `event` | the event in the sink's format; an envelope is without `observedTime`, `replayed` and `correlation`, so that it is the same whenever it is sent |
//! | `fields.event_id` | the envelope's id |
//! | `fields.cluster` | the cluster's name, else its uid |
//! | `fields.namespace` | `metadata.namespace` |
//! | `fields.truncated` | only where the Event was cut: `field=bytes`, separated by commas |
//!
//! `fields` are indexed, so they are few. Empty ones are left out: a field has to be a text that is not empty.

use serde::Serialize;
use serde_json::value::RawValue;

use super::{EncodeError, Format, parsed::Parsed, stable::Stable};
use crate::event::{Record, stable_time};

/// The members that are the configuration's.
#[derive(Clone, Copy, Default, Serialize)]
pub(crate) struct Metadata<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(crate) host: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(crate) source: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(crate) sourcetype: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(crate) index: &'a str,
}

#[derive(Serialize)]
struct Object<'a, E> {
    time: f64,
    #[serde(flatten)]
    metadata: Metadata<'a>,
    event: E,
    fields: Fields<'a>,
}

#[derive(Serialize)]
struct Fields<'a> {
    event_id: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    cluster: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    namespace: &'a str,
    #[serde(skip_serializing_if = "String::is_empty")]
    truncated: String,
}

/// Appends the object of a record to a body.
pub(crate) fn write(
    record: &Record,
    format: Format,
    metadata: Metadata<'_>,
    body: &mut Vec<u8>,
) -> Result<(), EncodeError> {
    let written = || -> Result<(), serde_json::Error> {
        let parsed = Parsed::of(&record.envelope)?;
        let fields = Fields {
            event_id: &parsed.id,
            cluster: parsed.cluster(),
            namespace: &parsed.event.metadata.namespace,
            truncated: parsed.cut(),
        };
        let created = &parsed.event.metadata.creation_timestamp;
        let time = stable_time(&parsed.time, created).as_millisecond() as f64 / 1000.0;
        let host = if metadata.host.is_empty() { fields.cluster } else { metadata.host };
        let metadata = Metadata { host, ..metadata };
        if format == Format::Envelope {
            let event = Stable::of(&record.envelope)?;
            return serde_json::to_writer(body, &Object { time, metadata, event, fields });
        }
        let encoded = format.encode(record).map_err(|error| error.source)?;
        let event: &RawValue = serde_json::from_slice(&encoded)?;
        serde_json::to_writer(body, &Object { time, metadata, event, fields })
    };
    written().map_err(|source| EncodeError { seq: record.seq, source })
}
