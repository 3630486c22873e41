//! From the API server's JSON to an object, with a look at what it says that it is.

use std::any::Any;

use kube::core::{ApiResource, DynamicObject, TypeMeta};
use serde::de::DeserializeOwned;

use crate::cache::{Object, exact, head::ObjectHead};

/// Why an object of a list or a watch cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The object is of another kind.
    #[error("expected {expected}, got {found}")]
    AnotherKind {
        /// `apiVersion/kind` of what was asked for.
        expected: String,
        /// `apiVersion/kind` of what came, as far as it is stated.
        found: String,
    },
    /// The bytes are no JSON, or not the JSON of this type.
    #[error("not a {kind}: {error}")]
    Malformed {
        /// The kind that was asked for.
        kind: String,
        /// The error of the parser.
        error: serde_json::Error,
    },
    /// The object has no name, so nothing can be kept of it.
    #[error("a {kind} without a name")]
    Nameless {
        /// The kind that was asked for.
        kind: String,
    },
}

/// A type that an informer can read: any [`Object`] that serde can, which is every type of the
/// Kubernetes API, typed or dynamic, [`Metadata`](crate::cache::Metadata), and types of one's own.
pub trait Decode: Object + Sized {
    /// Reads one object. `expected` is its type; the objects of a list do not state theirs, so only
    /// what is stated is held against it.
    fn decode(json: &[u8], expected: &ApiResource) -> Result<Self, DecodeError>;
}

impl<K: Object + DeserializeOwned> Decode for K {
    fn decode(json: &[u8], expected: &ApiResource) -> Result<Self, DecodeError> {
        read_head(json, expected)?;
        let mut object: K = exact::from_slice(json).map_err(|e| malformed(expected, e))?;
        state_type(&mut object, expected);
        if object.name().is_empty() {
            return Err(DecodeError::Nameless { kind: expected.kind.clone() });
        }
        Ok(object)
    }
}

/// An object without a type of Rust's says its own, which the API server leaves out of lists: client-go's
/// `UnstructuredList` does the same.
fn state_type(object: &mut dyn Any, expected: &ApiResource) {
    if let Some(DynamicObject { types: types @ None, .. }) = object.downcast_mut() {
        let ApiResource { api_version, kind, .. } = expected.clone();
        *types = Some(TypeMeta { api_version, kind });
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
    fn an_answer_of_another_type_is_refused() {
        let secret = r#"{"apiVersion":"v1","kind":"Secret","metadata":{"name":"a"}}"#;
        let error = read::<DynamicObject>(secret).unwrap_err();
        assert_eq!(error.to_string(), "expected v1/ConfigMap, got v1/Secret");
        assert!(matches!(read::<ConfigMap>("<html>"), Err(DecodeError::Malformed { .. })));
        assert!(matches!(read::<ConfigMap>("[]"), Err(DecodeError::Malformed { .. })));
        let nameless = r#"{"kind":"ConfigMap","metadata":{}}"#;
        assert!(matches!(read::<ConfigMap>(nameless), Err(DecodeError::Nameless { .. })));
    }
}
