//! A record in the place of an Event that there was no room for: `{"id":"…","shed":{"namespace":"…"}}`.
//!
//! It has a sequence like any other, and is lost for every sink. Which Event it was is in its id; the
//! increments come with the next version, because the view `seen` does not know this one.

use std::io::Write as _;

use super::{Incoming, Record, record::ID_PREFIX};

const SHED: &[u8] = b",\"shed\":";
/// No such record is longer, in bytes; most envelopes are.
const MOST: usize = 1 << 10;

impl Incoming<'_> {
    /// Appends the record that stands in the place of the Event.
    pub fn write_shed(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(ID_PREFIX.as_bytes());
        let namespace = &*self.fields.metadata.namespace;
        let namespace = &namespace[..namespace.floor_char_boundary(64)];
        // Writing to a vector cannot fail; the uid was checked to need no escapes.
        let _ = write!(out, "{}-{}\"", &*self.fields.metadata.uid, self.resource_version);
        out.extend_from_slice(SHED);
        out.extend_from_slice(b"{\"namespace\":");
        let _ = serde_json::to_writer(&mut *out, namespace);
        out.extend_from_slice(b"}}");
    }
}

impl Record {
    /// Whether it stands in the place of an Event that there was no room for.
    pub fn is_shed(&self) -> bool {
        if self.envelope.len() > MOST {
            return false;
        }
        let id = self.id();
        let behind = self.envelope.get(ID_PREFIX.len() + id.len() + 1..);
        !id.is_empty() && behind.is_some_and(|rest| rest.starts_with(SHED))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Change, EnvelopeHead, EnvelopeParts};

    #[test]
    fn a_shed_record_is_small_and_no_envelope_passes_for_one() {
        let namespace = "\u{1}".repeat(253);
        for namespace in ["loud", &namespace] {
            let uid = "u".repeat(253);
            let json = serde_json::json!({
                "metadata": {"uid": uid, "resourceVersion": u64::MAX.to_string(), "namespace": namespace},
                "message": ",\"shed\":{}",
            });
            let json = json.to_string();
            let event = Incoming::decode(json.as_bytes()).unwrap();
            let mut out = Vec::new();
            event.write_shed(&mut out);
            assert!(out.len() <= MOST);
            let record = Record { seq: 1, envelope: out.into() };
            assert!(record.is_shed() && record.id() == event.id());
            assert!(EnvelopeParts::of(&record.envelope).is_none());
            let mut out = Vec::new();
            let head = EnvelopeHead {
                cluster_json: r#"{"name":"x","shed":{}}"#,
                change: Change::Created,
                observed_time: "2026-11-21T10:00:01.5Z",
                delta: 2,
                replayed: false,
            };
            head.write(&event, usize::MAX, &mut out);
            assert!(!Record { seq: 1, envelope: out.into() }.is_shed());
        }
        for other in ["", "{\"id\":\"", "{\"id\":\"\",\"shed\":{}}", "{\"id\":\"a\"}"] {
            assert!(!Record { seq: 1, envelope: other.into() }.is_shed(), "{other}");
        }
    }
}
