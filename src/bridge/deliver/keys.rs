//! Keys: which records are about one object, and of one namespace.

use std::hash::{BuildHasher as _, RandomState};

use serde::Deserialize;

use crate::{
    bridge::delivery::Ticket,
    event::{EnvelopeParts, ObjectReference, Record, Text},
};

/// See the [module](self). Random, because who may create Events chooses the names.
#[derive(Debug, Default)]
pub(in crate::bridge) struct Keys(RandomState);

/// The members of an Event that a key is made of.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Parts<'a> {
    #[serde(borrow, default)]
    metadata: Option<Place<'a>>,
    #[serde(borrow, default)]
    involved_object: Option<ObjectReference<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Place<'a> {
    #[serde(borrow)]
    namespace: Text<'a>,
}

impl Keys {
    /// What delivery has to know of a record, with its keys if they are `wanted`.
    pub(in crate::bridge) fn ticket(&self, record: &Record, wanted: bool) -> Ticket {
        let bytes = u32::try_from(record.envelope.len()).unwrap_or(u32::MAX);
        if !wanted {
            return Ticket { key: 0, namespace: 0, destination: 0, bytes };
        }
        // One that cannot be read is of an object of its own kind.
        let (key, namespace) = self.keys(&record.envelope).unwrap_or((1, 1));
        Ticket { key, namespace, destination: 0, bytes }
    }

    /// The keys of the object and of the namespace.
    fn keys(&self, envelope: &[u8]) -> Option<(u64, u64)> {
        let event = std::str::from_utf8(EnvelopeParts::of(envelope)?.event).ok()?;
        let Parts { metadata, involved_object } = serde_json::from_str(event).ok()?;
        let (place, object) = (metadata.unwrap_or_default(), involved_object.unwrap_or_default());
        let namespace = &*place.namespace;
        let key = if object.uid.is_empty() {
            self.0.hash_one((namespace, &*object.kind, &*object.name))
        } else {
            self.0.hash_one((namespace, &*object.uid))
        };
        Some((key, self.0.hash_one(namespace)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(namespace: &str, object: &str) -> Record {
        let envelope = format!(
            r#"{{"id":"e-1","cluster":{{}},"change":"created","time":"t","observedTime":"t","occurrences":1,"delta":1,"replayed":false,"event":{{"metadata":{{"namespace":"{namespace}","name":"x"}},"involvedObject":{object},"message":"m"}}}}"#
        );
        Record { seq: 1, envelope: envelope.into() }
    }

    #[test]
    fn records_of_one_object_have_one_key() {
        let keys = Keys::default();
        let key = |namespace, object| keys.ticket(&record(namespace, object), true).key;
        let web = key("shop", r#"{"kind":"Pod","name":"web","uid":"u1"}"#);
        assert_eq!(web, key("shop", r#"{"kind":"Pod","name":"web","uid":"u1","fieldPath":"x"}"#));
        let nameless = key("shop", r#"{"kind":"Pod","name":"web"}"#);
        assert_eq!(nameless, key("shop", r#"{"name":"web","kind":"Pod"}"#));
        let others = [
            nameless,
            key("other", r#"{"kind":"Pod","name":"web","uid":"u1"}"#),
            key("shop", r#"{"kind":"Pod","name":"web","uid":"u2"}"#),
            key("shop", r#"{"kind":"Job","name":"web"}"#),
        ];
        assert!(others.iter().all(|other| *other != web));
        let of = |namespace| keys.ticket(&record(namespace, "{}"), true).namespace;
        assert!(of("shop") == of("shop") && of("shop") != of("other"));
        let nonsense = Record { seq: 1, envelope: "nonsense".into() };
        assert_eq!(keys.ticket(&nonsense, true).key, 1);
    }
}
