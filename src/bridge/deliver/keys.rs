//! Keys: which records are about one object.

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
pub(super) struct Keys(RandomState);

impl Keys {
    /// The ticket of a record, by which delivery knows it. With one lane all are in order, without keys.
    pub(super) fn ticket(&self, record: &Record, lanes: usize) -> Ticket {
        let bytes = u32::try_from(record.envelope.len()).unwrap_or(u32::MAX);
        let key = if lanes > 1 { self.key(&record.envelope) } else { None };
        Ticket { key: key.unwrap_or_default(), bytes }
    }

    fn key(&self, envelope: &[u8]) -> Option<u64> {
        let object = &envelope[FIND_OBJECT.find(envelope)? + OBJECT.len() - 1..];
        let mut object = serde_json::Deserializer::from_slice(object);
        let ObjectReference { kind, namespace, name, uid, .. } =
            ObjectReference::deserialize(&mut object).ok()?;
        let (namespace, uid) = (&*namespace, &*uid);
        Some(if uid.is_empty() {
            self.0.hash_one((namespace, &*kind, &*name))
        } else {
            self.0.hash_one((namespace, uid))
        })
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
        let key = |namespace, object| keys.ticket(&record(namespace, object), 8).key;
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
        let nonsense = Record { seq: 1, envelope: "nonsense".into() };
        assert_eq!(keys.ticket(&nonsense, 8).key, 0);
    }
}
