//! Keys: which records are about one object, and which of one namespace.

use std::{
    hash::{BuildHasher as _, RandomState},
    sync::LazyLock,
};

use memchr::memmem::Finder;
use serde::Deserialize as _;

use crate::event::ObjectReference;

/// Where the Event in an envelope names its object. No text can hold that, as its quotes would be escaped there,
/// and a label or annotation of that name is no object.
const OBJECT: &[u8] = b"\"involvedObject\":{";
static FIND_OBJECT: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(OBJECT));

/// Hashes of the object that a record is about, with its namespace, and of the namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Keys {
    pub(super) object: u64,
    pub(super) namespace: u64,
}

/// Makes [`Keys`]. Random, because who may create Events chooses the names.
#[derive(Debug, Default)]
pub(super) struct Hashes(RandomState);

impl Hashes {
    /// Those of an envelope. All that name no object have the same.
    pub(super) fn of(&self, envelope: &[u8]) -> Keys {
        self.find(envelope).unwrap_or_default()
    }

    fn find(&self, envelope: &[u8]) -> Option<Keys> {
        let object = &envelope[FIND_OBJECT.find(envelope)? + OBJECT.len() - 1..];
        let mut object = serde_json::Deserializer::from_slice(object);
        let ObjectReference { kind, namespace, name, uid, .. } =
            ObjectReference::deserialize(&mut object).ok()?;
        let (namespace, uid) = (&*namespace, &*uid);
        let object = if uid.is_empty() {
            self.0.hash_one((namespace, &*kind, &*name))
        } else {
            self.0.hash_one((namespace, uid))
        };
        Some(Keys { object, namespace: self.0.hash_one(namespace) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn envelope(namespace: &str, object: &str) -> String {
        let object = format!(r#"{{"namespace":"{namespace}",{}"#, &object[1..]);
        let annotations = r#"{"involvedObject":"{}","note":"\"involvedObject\":{"}"#;
        format!(
            r#"{{"id":"e-1","cluster":{{}},"change":"created","time":"t","observedTime":"t","occurrences":1,"delta":1,"replayed":false,"event":{{"metadata":{{"namespace":"{namespace}","annotations":{annotations}}},"involvedObject":{object},"message":"m"}}}}"#
        )
    }

    #[test]
    fn records_of_one_object_have_one_key() {
        let hashes = Hashes::default();
        let keys = |namespace, object| hashes.of(envelope(namespace, object).as_bytes());
        let web = keys("shop", r#"{"kind":"Pod","name":"web","uid":"u1"}"#);
        assert_eq!(web, keys("shop", r#"{"kind":"Pod","name":"web","uid":"u1","fieldPath":"x"}"#));
        let nameless = keys("shop", r#"{"kind":"Pod","name":"web"}"#);
        assert_eq!(nameless, keys("shop", r#"{"name":"web","kind":"Pod"}"#));
        let job = keys("shop", r#"{"kind":"Job","name":"web"}"#);
        let other = keys("other", r#"{"kind":"Pod","name":"web","uid":"u1"}"#);
        let second = keys("shop", r#"{"kind":"Pod","name":"web","uid":"u2"}"#);
        assert!([nameless, job, other, second].iter().all(|keys| keys.object != web.object));
        assert!([nameless, job, second].iter().all(|keys| keys.namespace == web.namespace));
        assert_ne!(other.namespace, web.namespace);
        assert_eq!(hashes.of(b"nonsense"), Keys::default());
    }
}
