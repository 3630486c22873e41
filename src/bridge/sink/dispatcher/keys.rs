//! Keys: which records are about one object, and of one namespace.

use std::hash::{BuildHasher as _, RandomState};

use crate::{
    bridge::sink::delivery::Ticket,
    event::{ObjectReference, Origin, Record},
};

/// See the [module](self). Random, because who may create Events chooses the names.
#[derive(Clone, Debug, Default)]
pub(super) struct Keys(RandomState);

impl Keys {
    /// The ticket of a record, which is for a part of the receiver that follows from its origin.
    pub(super) fn ticket(
        &self,
        record: &Record,
        destination: impl FnOnce(&Origin<'_>) -> u64,
    ) -> Ticket {
        let bytes = u32::try_from(record.envelope.len()).unwrap_or(u32::MAX);
        // One that cannot be read is of an object of its own kind.
        let Some(origin) = Origin::of(&record.envelope) else {
            return Ticket { key: 1, namespace: 1, destination: 0, bytes };
        };
        let (key, namespace) = self.keys(&origin.involved_object);
        Ticket { key, namespace, destination: destination(&origin), bytes }
    }

    /// The keys of the object and of the namespace. An Event is of the namespace that its object is in: the
    /// API server sees to that.
    fn keys(&self, object: &ObjectReference<'_>) -> (u64, u64) {
        let (namespace, uid) = (&*object.namespace, &*object.uid);
        let key = if uid.is_empty() {
            self.0.hash_one((namespace, &*object.kind, &*object.name))
        } else {
            self.0.hash_one((namespace, uid))
        };
        (key, self.0.hash_one(namespace))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Change, EnvelopeHead, Incoming};

    /// The record of an Event as an API server sends it.
    fn record(event: &str) -> Record {
        let event = Incoming::decode(event.as_bytes()).unwrap();
        let head = EnvelopeHead {
            cluster_json: r#"{"name":"involvedObject"}"#,
            change: Change::Created,
            observed_time: "2026-11-21T10:00:01.5Z",
            delta: 1,
            replayed: false,
        };
        let mut envelope = Vec::new();
        head.write(&event, usize::MAX, &mut envelope);
        Record { seq: 1, envelope: envelope.into() }
    }

    fn ticket(keys: &Keys, record: &Record) -> Ticket {
        keys.ticket(record, |_| 0)
    }

    fn about(object: &str) -> Record {
        record(&format!(
            r#"{{"metadata":{{"uid":"e","resourceVersion":"1"}},"involvedObject":{object}}}"#
        ))
    }

    #[test]
    fn records_of_one_object_have_one_key() {
        let keys = Keys::default();
        let key = |object| ticket(&keys, &about(object)).key;
        let web = key(r#"{"kind":"Pod","namespace":"shop","name":"web","uid":"u1"}"#);
        let part = r#"{"uid":"u1","name":"web","namespace":"shop","kind":"Pod","fieldPath":"x"}"#;
        assert_eq!(web, key(part));
        let nameless = key(r#"{"kind":"Pod","namespace":"shop","name":"web"}"#);
        assert_eq!(nameless, key(r#"{"name":"web","namespace":"shop","kind":"Pod"}"#));
        let others = [
            nameless,
            key(r#"{"kind":"Pod","namespace":"other","name":"web","uid":"u1"}"#),
            key(r#"{"kind":"Pod","namespace":"shop","name":"web","uid":"u2"}"#),
            key(r#"{"kind":"Job","namespace":"shop","name":"web"}"#),
        ];
        assert!(others.iter().all(|other| *other != web));
        let of = |object| ticket(&keys, &about(object)).namespace;
        let shop = of(r#"{"kind":"Pod","namespace":"shop"}"#);
        assert_eq!(shop, of(r#"{"kind":"Job","namespace":"shop"}"#));
        assert_ne!(shop, of(r#"{"kind":"Pod","namespace":"other"}"#));
        let nonsense = Record { seq: 1, envelope: "nonsense".into() };
        assert_eq!(ticket(&keys, &nonsense).key, 1);
    }

    #[test]
    fn a_key_is_that_of_the_event_s_own_object_however_its_json_is_written() {
        let keys = Keys::default();
        let own = r#"{"kind":"Pod","namespace":"shop","name":"web","uid":"u1"}"#;
        let other = r#"{"kind":"Pod","namespace":"victim","name":"db","uid":"u2"}"#;
        let known = ticket(&keys, &about(own));
        let meta = r#""uid":"e","resourceVersion":"1""#;
        let spaced = own.replace(':', " : ").replace(',', " ,\n\t");
        let escaped = own.replace("kind", "k\\u0069nd").replace("shop", "\\u0073hop");
        let managed = format!(r#"[{{"fieldsV1":{{"involvedObject":{other}}}}}]"#);
        let text = r#""\"involvedObject\":{\"uid\":\"u2\"}""#;
        let events = [
            format!(r#"{{ "metadata" : {{ {meta} }} , "involvedObject" : {spaced} }}"#),
            format!(r#"{{"involvedObject":{own},"message":"m","metadata":{{{meta}}}}}"#),
            format!(r#"{{"message":"m","metadata":{{{meta}}},"involvedObject": {own}}}"#),
            format!(r#"{{"metadata":{{{meta}}},"involved\u004fbject":{escaped}}}"#),
            // The name elsewhere: in texts,
            format!(r#"{{"message":{text},"metadata":{{{meta}}},"involvedObject":{own}}}"#),
            format!(
                r#"{{"metadata":{{{meta},"annotations":{{"a":{text},"involvedObject":"{{"}},"labels":{{"involvedObject":"x"}}}},"involvedObject":{own}}}"#
            ),
            // deeper within,
            format!(
                r#"{{"metadata":{{{meta},"annotations":{{"involvedObject":{other}}}}},"involvedObject":{own}}}"#
            ),
            format!(
                r#"{{"metadata":{{{meta},"managed\u0046ields":{managed}}},"involvedObject": {own}}}"#
            ),
            format!(
                r#"{{"related":{{"involvedObject":{other}}},"metadata":{{{meta}}},"involvedObject":{own}}}"#
            ),
            // and as the end of another name.
            format!(
                r#"{{"metadata":{{{meta}}},"\"involvedObject":{other},"involvedObject":{own}}}"#
            ),
        ];
        for event in events {
            let ticket = ticket(&keys, &record(&event));
            let Ticket { key, namespace, .. } = ticket;
            assert_eq!((key, namespace), (known.key, known.namespace), "{event}");
        }
    }
}
