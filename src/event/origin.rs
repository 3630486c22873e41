//! The origin of a record: whose it is and what it is about, read from the front of its Event.

use std::fmt;

use serde::{
    Deserialize, Deserializer as _,
    de::{IgnoredAny, MapAccess, Visitor},
};

use super::{EnvelopeParts, Metadata, ObjectReference, Text};

/// The members of an envelope that say whose its Event is and what it is about: those by which records are
/// put in order and told apart on their way to a receiver.
///
/// The bytes are an API server's: they may be spaced, ordered and escaped in any way, and a member deeper
/// within, or a text, may have one of the names, too.
#[derive(Clone, Debug)]
pub struct Origin<'a> {
    /// The envelope in pieces.
    pub parts: EnvelopeParts<'a>,
    /// `metadata` of the Event.
    pub metadata: Metadata<'a>,
    /// `involvedObject` of the Event.
    pub involved_object: ObjectReference<'a>,
}

impl<'a> Origin<'a> {
    /// Reads the origin of an envelope; nothing for bytes that ingest did not write, or whose Event is no JSON object.
    pub fn of(envelope: &'a [u8]) -> Option<Self> {
        let parts = EnvelopeParts::of(envelope)?;
        // From text: one look at the whole is cheaper than one at each string.
        let event = std::str::from_utf8(parts.event).ok()?;
        let mut found = Found::default();
        let read = serde_json::Deserializer::from_str(event).deserialize_map(&mut found);
        // serde_json takes a visitor that stops before the end for an error; once both are found it is none.
        if read.is_err() && !found.is_whole() {
            return None;
        }
        let metadata = found.metadata.unwrap_or_default();
        Some(Self { parts, metadata, involved_object: found.object.unwrap_or_default() })
    }

    /// The namespace that the Event of an envelope is of; empty for bytes that ingest did not write.
    pub fn namespace_of(envelope: &'a [u8]) -> Text<'a> {
        Self::of(envelope).map(|origin| origin.metadata.namespace).unwrap_or_default()
    }
}

#[derive(Default)]
struct Found<'a> {
    metadata: Option<Metadata<'a>>,
    object: Option<ObjectReference<'a>>,
}

impl Found<'_> {
    fn is_whole(&self) -> bool {
        self.metadata.is_some() && self.object.is_some()
    }
}

#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "camelCase")]
enum Member {
    Metadata,
    InvolvedObject,
    #[serde(other)]
    Other,
}

impl<'de> Visitor<'de> for &mut Found<'de> {
    type Value = ();
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an Event")
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while !self.is_whole()
            && let Some(member) = map.next_key()?
        {
            match member {
                Member::Metadata => self.metadata = map.next_value()?,
                Member::InvolvedObject => self.object = map.next_value()?,
                Member::Other => _ = map.next_value::<IgnoredAny>()?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn envelope(event: &str) -> String {
        let cluster = r#"{"name":",\"time\":","uid":"c1"}"#;
        format!(
            r#"{{"id":"u-1","cluster":{cluster},"change":"created","time":"2026-11-21T10:00:00Z","observedTime":"2026-11-21T10:00:01.5Z","occurrences":1,"delta":1,"replayed":false,"correlation":{{"action":"create","count":1}},"event":{event}}}"#
        )
    }

    #[test]
    fn an_origin_is_read_without_what_stands_behind_it() {
        let (metadata, object) =
            (r#""metadata":{"namespace":"shop"}"#, r#""involvedObject":{"uid":"p1"}"#);
        for event in [
            format!("{{{metadata},{object},\"message\":not read}}"),
            format!("{{{object},{metadata},\"message\":not read}}"),
            format!("{{\"kind\":\"Event\",{metadata},\"message\":\"m\",{object}}}"),
        ] {
            let envelope = envelope(&event);
            let Origin { parts, metadata, involved_object } =
                Origin::of(envelope.as_bytes()).unwrap();
            assert_eq!((&*metadata.namespace, &*involved_object.uid), ("shop", "p1"), "{event}");
            assert_eq!(parts.cluster(), r#"{"name":",\"time\":","uid":"c1"}"#);
            assert_eq!(parts.time(), "2026-11-21T10:00:00Z");
            assert_eq!(parts.observed_time(), "2026-11-21T10:00:01.5Z");
        }
    }

    #[test]
    fn an_event_without_an_object_has_an_origin_and_no_event_has_none() {
        for event in ["{}", r#"{"metadata":null,"involvedObject":null,"message":"m"}"#] {
            let envelope = envelope(event);
            let origin = Origin::of(envelope.as_bytes()).unwrap();
            assert_eq!((&*origin.metadata.namespace, &*origin.involved_object.name), ("", ""));
        }
        for event in ["", "1", "{", r#"{"metadata":{}"#, r#"{"involvedObject":1}"#] {
            assert!(Origin::of(envelope(event).as_bytes()).is_none(), "{event}");
        }
        assert!(Origin::of(b"nonsense").is_none());
    }
}
