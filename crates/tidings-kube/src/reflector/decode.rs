//! From the API server's JSON to an object, with a look at what it says that it is.

use std::any::Any;

use kube::core::{ApiResource, DynamicObject, TypeMeta};
use serde::de::DeserializeOwned;

use super::head::ObjectHead;
use crate::{foreign::caught, object::Object};

/// Why an object of a list or a watch cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    /// It is something else.
    #[error("expected {expected}, found {found}")]
    AnotherKind {
        /// `apiVersion/kind` of what was asked for.
        expected: String,
        /// `apiVersion/kind` of what came, as far as it is stated.
        found: String,
    },
    /// It is no JSON, or not the JSON of this type.
    #[error("not a {kind}: {error}")]
    Malformed {
        /// What was asked for.
        kind: String,
        /// The parser's words.
        error: serde_json::Error,
    },
    /// Reading it panicked: a bug of the type's own code.
    #[error("reading a {kind} panicked: {panic}")]
    Panicked {
        /// The kind that was asked for.
        kind: String,
        /// The message.
        panic: String,
    },
    /// It has no name, so nothing can be kept of it.
    #[error("a {kind} without a name")]
    Nameless {
        /// What was asked for.
        kind: String,
    },
}

/// What an informer can read: any [`Object`] that serde can, which is every type of the Kubernetes
/// API, typed or dynamic, [`Metadata`](crate::object::Metadata), and types of one's own.
pub trait Decode: Object + Sized {
    /// Reads one object. `expected` is its type; the objects of a list do not state theirs, so only
    /// what is stated is held against it.
    fn decode(json: &[u8], expected: &ApiResource) -> Result<Self, DecodeError>;
}

impl<K: Object + DeserializeOwned> Decode for K {
    fn decode(json: &[u8], expected: &ApiResource) -> Result<Self, DecodeError> {
        read_head(json, expected)?;
        let object: K = serde_json::from_slice(json).map_err(|e| malformed(expected, e))?;
        if object.name().is_empty() {
            return Err(DecodeError::Nameless { kind: expected.kind.clone() });
        }
        Ok(object)
    }
}

/// Reads what JSON says of itself, and checks that it states no other type than this.
pub(crate) fn read_head<'a>(
    json: &'a [u8],
    expected: &ApiResource,
) -> Result<ObjectHead<'a>, DecodeError> {
    let head = ObjectHead::read(json).map_err(|error| malformed(expected, error))?;
    if !head.is_a(expected) {
        return Err(DecodeError::AnotherKind {
            expected: format!("{}/{}", expected.api_version, expected.kind),
            found: format!("{}/{}", head.api_version, head.kind),
        });
    }
    Ok(head)
}

/// Reads an object of a watch; a panic of the type's own code is an error.
pub(crate) fn decode<K: Decode>(json: &[u8], expected: &ApiResource) -> Result<K, DecodeError> {
    caught(|| K::decode(json, expected))
        .unwrap_or_else(|panic| Err(DecodeError::Panicked { kind: expected.kind.clone(), panic }))
}

/// The same of an object of a list, which does not say what it is. A dynamic object has to: client-go's
/// `UnstructuredList` gives each the type of the list.
pub(crate) fn decode_listed<K: Decode>(
    json: &[u8],
    expected: &ApiResource,
) -> Result<K, DecodeError> {
    let mut object: K = decode(json, expected)?;
    let dynamic: &mut dyn Any = &mut object;
    if let Some(object) = dynamic.downcast_mut::<DynamicObject>() {
        object.types.get_or_insert_with(|| TypeMeta {
            api_version: expected.api_version.clone(),
            kind: expected.kind.clone(),
        });
    }
    Ok(object)
}

fn malformed(expected: &ApiResource, error: serde_json::Error) -> DecodeError {
    DecodeError::Malformed { kind: expected.kind.clone(), error }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::core::DynamicObject;

    use super::*;

    fn config_maps() -> ApiResource {
        ApiResource::erase::<ConfigMap>(&())
    }

    fn read<K: Decode>(json: &str) -> Result<K, DecodeError> {
        K::decode(json.as_bytes(), &config_maps())
    }

    #[test]
    fn an_object_of_a_list_does_not_state_its_type() {
        let object: ConfigMap = read(r#"{"metadata":{"name":"a","namespace":"b"}}"#).unwrap();
        assert_eq!((Object::name(&object), Object::namespace(&object)), ("a", Some("b")));
        let text =
            r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"x":"y"}}"#;
        let object: DynamicObject = read(text).unwrap();
        assert_eq!(object.data["data"]["x"], "y");
    }

    #[test]
    fn what_is_not_what_was_asked_for_is_refused() {
        let secret = r#"{"apiVersion":"v1","kind":"Secret","metadata":{"name":"a"}}"#;
        let error = read::<DynamicObject>(secret).unwrap_err();
        assert_eq!(error.to_string(), "expected v1/ConfigMap, found v1/Secret");
        assert!(matches!(read::<ConfigMap>("<html>"), Err(DecodeError::Malformed { .. })));
        assert!(matches!(read::<ConfigMap>("[]"), Err(DecodeError::Malformed { .. })));
        let nameless = r#"{"kind":"ConfigMap","metadata":{}}"#;
        assert!(matches!(read::<ConfigMap>(nameless), Err(DecodeError::Nameless { .. })));
    }
}
