//! Keys: which records are about one object, and of one namespace.

use std::{
    hash::{BuildHasher as _, RandomState},
    sync::LazyLock,
};

use memchr::memmem::Finder;
use serde::Deserialize as _;

use crate::{
    bridge::delivery::Ticket,
    event::{ObjectReference, Record},
};

/// Where the Event in an envelope names its object. No text can hold that, as its quotes would be escaped there,
/// and a label or annotation of that name is no object.
const OBJECT: &[u8] = b"\"involvedObject\":{";
static FIND_OBJECT: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(OBJECT));

/// See the [module](self). Random, because who may create Events chooses the names.
#[derive(Debug, Default)]
pub(in crate::bridge) struct Keys(RandomState);

impl Keys {
    /// The ticket of a record, by which delivery knows it, with its keys if they are `wanted`.
    pub(in crate::bridge) fn ticket(&self, record: &Record, wanted: bool) -> Ticket {
        let bytes = u32::try_from(record.envelope.len()).unwrap_or(u32::MAX);
        if !wanted {
            return Ticket { key: 0, namespace: 0, destination: 0, bytes };
        }
        // One that cannot be read is of an object of its own kind.
        let (key, namespace) = self.keys(&record.envelope).unwrap_or((1, 1));
        Ticket { key, namespace, destination: 0, bytes }
    }

    /// The keys of the object and of the namespace. An Event is of the namespace that its object is in: the
    /// API server sees to that.
    fn keys(&self, envelope: &[u8]) -> Option<(u64, u64)> {
        let object = &envelope[FIND_OBJECT.find(envelope)? + OBJECT.len() - 1..];
        let mut object = serde_json::Deserializer::from_slice(object);
        let ObjectReference { kind, namespace, name, uid, .. } =
            ObjectReference::deserialize(&mut object).ok()?;
        let (namespace, uid) = (&*namespace, &*uid);
        let key = if uid.is_empty() {
            self.0.hash_one((namespace, &*kind, &*name))
        } else {
            self.0.hash_one((namespace, uid))
        };
        Some((key, self.0.hash_one(namespace)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(namespace: &str, object: &str) -> Record {
        let object = format!(r#"{{"namespace":"{namespace}",{}"#, &object[1..]);
        let annotations = r#"{"involvedObject":"{}","note":"\"involvedObject\":{"}"#;
        let envelope = format!(
            r#"{{"id":"e-1","cluster":{{}},"change":"created","time":"t","observedTime":"t","occurrences":1,"delta":1,"replayed":false,"event":{{"metadata":{{"namespace":"{namespace}","annotations":{annotations}}},"involvedObject":{object},"message":"m"}}}}"#
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
        let of = |namespace| keys.ticket(&record(namespace, r#"{"kind":"Pod"}"#), true).namespace;
        assert!(of("shop") == of("shop") && of("shop") != of("other"));
        let nonsense = Record { seq: 1, envelope: "nonsense".into() };
        assert_eq!(keys.ticket(&nonsense, true).key, 1);
    }
}
