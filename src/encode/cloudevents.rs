//! CloudEvents 1.0 in structured mode, after the [JSON event format].
//!
//! | attribute | value |
//! |---|---|
//! | `id` | the envelope's id |
//! | `source` | `//k8s/<cluster uid>`; the cluster's name stands in for a uid that is not known |
//! | `type` | `io.k8s.event.created` or `io.k8s.event.updated` |
//! | `subject` | the involved object: `<namespace>/<kind>/<name>`, without a namespace where it has none |
//! | `time` | when the Event last occurred, not before its creation − 1 h and not after it was observed |
//! | `occurrences`, `delta` | those of the envelope |
//! | `replayed` | only when true |
//! | `truncated` | only where the Event was cut: `field=bytes`, separated by commas |
//! | `data` | the Event |
//!
//! [JSON event format]: https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/formats/json-format.md

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;
use serde_json::value::RawValue;

use crate::event::{Envelope, ObjectReference, bounded};

/// All but the unreserved characters of a URI.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

#[derive(Serialize)]
struct CloudEvent<'a> {
    specversion: &'static str,
    id: &'a str,
    source: String,
    r#type: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    subject: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    time: Option<String>,
    datacontenttype: &'static str,
    occurrences: u64,
    delta: u64,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    replayed: bool,
    #[serde(skip_serializing_if = "String::is_empty")]
    truncated: String,
    data: &'a RawValue,
}

pub(super) fn encode(envelope: &[u8]) -> Result<Vec<u8>, serde_json::Error> {
    let envelope = Envelope::parse(envelope)?;
    let event = envelope.event()?;
    let cluster = envelope.cluster.uid.as_deref().or(envelope.cluster.name.as_deref());
    let created = &event.metadata.creation_timestamp;
    let cut = envelope.truncated.iter().map(|(field, bytes)| format!("{field}={bytes}"));
    serde_json::to_vec(&CloudEvent {
        specversion: "1.0",
        id: &envelope.id,
        source: format!("//k8s/{}", utf8_percent_encode(cluster.unwrap_or_default(), RESERVED)),
        r#type: format!("io.k8s.event.{}", &*envelope.change),
        subject: subject(&event.involved_object),
        time: bounded(&envelope.time, created, &envelope.observed_time).map(|t| t.to_string()),
        datacontenttype: "application/json",
        occurrences: envelope.occurrences,
        delta: envelope.delta,
        replayed: envelope.replayed,
        truncated: cut.collect::<Vec<_>>().join(","),
        data: envelope.event_json,
    })
}

/// The object, without characters that an attribute may not have: those that control, and no characters at all.
fn subject(object: &ObjectReference<'_>) -> String {
    let parts = [&object.namespace, &object.kind, &object.name];
    let parts: Vec<&str> =
        parts.into_iter().map(|part| &**part).filter(|p| !p.is_empty()).collect();
    let is_character = |c: &char| {
        !c.is_control()
            && (u32::from(*c) & 0xfffe) != 0xfffe
            && !('\u{fdd0}'..='\u{fdef}').contains(c)
    };
    parts.join("/").chars().filter(is_character).collect()
}
