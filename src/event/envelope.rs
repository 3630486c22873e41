//! The envelope: what a record of the journal holds and what sinks send. One line of JSON:
//! `{"id","cluster":{"name","uid"},"change","time","observedTime","occurrences","delta",
//! "replayed","event":{…}}`.

use std::io::Write as _;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{Change, EventFields, Incoming, Text, record::ID_PREFIX};

/// Which cluster the events are of. A member that is not known is left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cluster {
    /// The name from the configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The uid of the namespace kube-system.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
}

/// What ingest knows of a change beyond the Event itself.
#[derive(Clone, Copy, Debug)]
pub struct EnvelopeHead<'a> {
    /// [`Cluster`] as JSON.
    pub cluster_json: &'a str,
    /// First version or a later one.
    pub change: Change,
    /// When the change reached the bridge, RFC 3339, UTC.
    pub observed_time: &'a str,
    /// By how much the occurrences rose.
    pub delta: u64,
    /// Whether it comes from a list that closed a gap rather than from the watch.
    pub replayed: bool,
}

impl EnvelopeHead<'_> {
    /// Appends the envelope of `event` to `out`, without a line feed.
    pub fn write(&self, event: &Incoming<'_>, out: &mut Vec<u8>) {
        let (before, after) = event.json();
        out.reserve(before.len() + after.len() + 320);
        out.extend_from_slice(ID_PREFIX.as_bytes());
        // Writing to a vector cannot fail; the uid was checked to need no escapes.
        let _ = write!(
            out,
            "{}-{}\",\"cluster\":{},\"change\":\"{}\",\"time\":",
            &*event.fields.metadata.uid,
            event.resource_version,
            self.cluster_json,
            self.change.as_str(),
        );
        let _ = serde_json::to_writer(&mut *out, event.fields.time());
        let _ = write!(
            out,
            ",\"observedTime\":\"{}\",\"occurrences\":{},\"delta\":{},\"replayed\":{},\"event\":",
            self.observed_time,
            event.fields.occurrences(),
            self.delta,
            self.replayed,
        );
        // A line feed between members is white space; inside a string JSON does not allow one.
        // So dropping them keeps the envelope on one line without changing what it says.
        for piece in [before, after] {
            let mut rest = piece.as_bytes();
            while let Some(at) = memchr::memchr2(b'\n', b'\r', rest) {
                out.extend_from_slice(&rest[..at]);
                rest = &rest[at + 1..];
            }
            out.extend_from_slice(rest);
        }
        out.push(b'}');
    }
}

/// An envelope as a sink reads it, borrowed from a record's bytes.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Envelope<'a> {
    /// `<event uid>-<resourceVersion>`.
    #[serde(borrow)]
    pub id: Text<'a>,
    /// Where the Event is from.
    pub cluster: Cluster,
    /// `created` or `updated`.
    #[serde(borrow)]
    pub change: Text<'a>,
    /// When the Event last occurred, RFC 3339.
    #[serde(borrow)]
    pub time: Text<'a>,
    /// When the bridge received it, RFC 3339.
    #[serde(borrow)]
    pub observed_time: Text<'a>,
    /// How often it occurred so far.
    pub occurrences: u64,
    /// By how much that rose with this change.
    pub delta: u64,
    /// Whether it comes from a list that closed a gap.
    pub replayed: bool,
    /// The Event as the API server sent it, without `managedFields`.
    #[serde(borrow, rename = "event")]
    pub event_json: &'a RawValue,
}

impl<'a> Envelope<'a> {
    /// Reads an envelope.
    pub fn parse(envelope: &'a [u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(envelope)
    }

    /// The Event's members that the bridge knows.
    pub fn event(&self) -> Result<EventFields<'a>, serde_json::Error> {
        serde_json::from_str(self.event_json.get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Record;

    #[test]
    fn an_envelope_is_one_line_and_reads_back() {
        let json = "{\n \"metadata\": {\"uid\":\"0b8e\",\"resourceVersion\":\"12\",\"managedFields\":[]},\r\n\
            \"message\":\"two\\nlines\",\"count\":3,\"lastTimestamp\":\"2026-11-21T10:00:00Z\"}";
        let event = Incoming::decode(json.as_bytes()).unwrap();
        let head = EnvelopeHead {
            cluster_json: r#"{"name":"prod"}"#,
            change: Change::Updated,
            observed_time: "2026-11-21T10:00:01.5Z",
            delta: 2,
            replayed: true,
        };
        let mut out = Vec::new();
        head.write(&event, &mut out);
        assert!(!out.contains(&b'\n'));
        let record = Record { seq: 1, envelope: out.into() };
        assert_eq!(record.id(), "0b8e-12");
        let envelope = Envelope::parse(&record.envelope).unwrap();
        assert_eq!(&*envelope.id, "0b8e-12");
        assert_eq!(envelope.cluster, Cluster { name: Some("prod".into()), uid: None });
        assert_eq!((&*envelope.change, &*envelope.time), ("updated", "2026-11-21T10:00:00Z"));
        assert_eq!((envelope.occurrences, envelope.delta, envelope.replayed), (3, 2, true));
        assert_eq!(&*envelope.event().unwrap().message, "two\nlines");
        assert!(!envelope.event_json.get().contains("managedFields"));
    }

    #[test]
    fn an_id_is_read_only_from_an_envelope() {
        for bytes in ["", "{}", "{\"id\":\"", "{\"id\":12}"] {
            assert_eq!(Record { seq: 1, envelope: bytes.into() }.id(), "");
        }
    }
}
