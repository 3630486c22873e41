//! A record in the place of an Event that there was no room for:
//! `{"shed":{"namespace":"…","uid":"…","resourceVersion":7,"occurrences":2},"delta":3,"replayed":false}`.
//!
//! A shed record has a sequence like any other, and is lost for every sink. Its occurrences are those before the
//! Event: the increments come with the next version. The delta is what the Event would have come with, and
//! `replayed` says whether a list brought it: both are where an envelope has them, for whoever adds up what
//! a gap hid. No Event passes for one, because an envelope begins with its id.

use std::io::Write as _;

use serde::Deserialize;

use super::{Incoming, Record, Text};

const START: &[u8] = b"{\"shed\":";

/// The part that is kept of an Event that was shed.
#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
pub struct Shed<'a> {
    /// Its namespace.
    pub namespace: Text<'a>,
    /// `metadata.uid`.
    pub uid: Text<'a>,
    /// `metadata.resourceVersion`.
    pub resource_version: u64,
    /// How often it had occurred by the version before, as far as that is announced.
    pub occurrences: u64,
    /// By how much more it had by this one.
    #[serde(skip)]
    pub delta: u64,
}

impl<'a> Shed<'a> {
    /// Parses a record's bytes; nothing if they stand for themselves.
    pub fn parse(record: &'a [u8]) -> Option<Self> {
        #[derive(Deserialize)]
        #[serde(bound(deserialize = "'de: 'a"))]
        struct Whole<'a> {
            shed: Shed<'a>,
            delta: u64,
        }
        let whole = record.starts_with(START).then(|| serde_json::from_slice(record));
        whole?.ok().map(|Whole { shed, delta }| Shed { delta, ..shed })
    }
}

impl Incoming<'_> {
    /// Appends the record that stands in the place of the Event; `occurrences` are those before it.
    pub fn write_shed(&self, occurrences: u64, delta: u64, replayed: bool, out: &mut Vec<u8>) {
        out.extend_from_slice(START);
        out.extend_from_slice(b"{\"namespace\":");
        // Writing to a vector cannot fail; the uid was checked to need no escapes.
        let _ = serde_json::to_writer(&mut *out, &*self.fields.metadata.namespace);
        let _ = write!(
            out,
            ",\"uid\":\"{}\",\"resourceVersion\":{},\"occurrences\":{occurrences}}},\
             \"delta\":{delta},\"replayed\":{replayed}}}",
            &*self.fields.metadata.uid, self.resource_version
        );
    }
}

impl Record {
    /// Whether it stands in the place of an Event that there was no room for.
    pub fn is_shed(&self) -> bool {
        self.envelope.starts_with(START)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Change, EnvelopeHead, EnvelopeParts};

    #[test]
    fn a_shed_record_is_small_and_reads_back_and_no_envelope_passes_for_one() {
        let uid = "3f0c2f9e-6d8b-4b3c-9a54-0d1f3e5a7b11";
        let json = serde_json::json!({
            "metadata": {"uid": uid, "resourceVersion": "123456", "namespace": "loud \"\u{1}"},
            "message": "{\"shed\":{}}".repeat(1000),
        });
        let json = json.to_string();
        let event = Incoming::decode(json.as_bytes()).unwrap();
        let mut out = Vec::new();
        event.write_shed(7, 3, true, &mut out);
        assert!(out.len() < 170, "{}", out.len());
        let json: serde_json::Value = serde_json::from_slice(&out).unwrap();
        assert_eq!((&json["delta"], &json["replayed"]), (&3.into(), &true.into()));
        let shed = Shed::parse(&out).unwrap();
        assert_eq!((&*shed.namespace, &*shed.uid), ("loud \"\u{1}", uid));
        assert_eq!((shed.resource_version, shed.occurrences, shed.delta), (123_456, 7, 3));
        let record = Record { seq: 1, envelope: out.into() };
        assert!(record.is_shed() && record.id().is_empty());
        assert!(EnvelopeParts::of(&record.envelope).is_none());
        let head = EnvelopeHead {
            cluster_json: r#"{"name":"x"}"#,
            change: Change::Created,
            observed_time: "2026-11-21T10:00:01.5Z",
            delta: 2,
            replayed: false,
        };
        let mut out = Vec::new();
        head.write(&event, usize::MAX, &mut out);
        assert!(!Record { seq: 1, envelope: out.clone().into() }.is_shed());
        for other in [&*out, b"", b"{\"shed\":", b"{\"shed\":{}}", b"{\"shed\":{\"uid\":1}}"] {
            assert_eq!(Shed::parse(other), None);
        }
    }
}
