//! What an event is about.

use k8s_openapi::api::core::v1::ObjectReference;
use kube::{
    Resource,
    core::{DynamicObject, ObjectMeta, TypeMeta},
};

/// Why an event cannot be about this.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReferenceError {
    /// There is no object.
    #[error("no object to refer to")]
    NoObject,
    /// A dynamic object that says neither its kind nor its API version.
    #[error("the object {name:?} says neither its kind nor its apiVersion")]
    NoKind {
        /// The object's name.
        name: String,
    },
}

/// What an event can be about: client-go's `tools/reference.GetReference`.
///
/// It is implemented for every typed object of Kubernetes (`Pod`, a custom resource with
/// `#[derive(CustomResource)]`, …), for [`DynamicObject`], which has to say its kind, for an
/// [`ObjectReference`] made by hand, which is used as it is, however incomplete, and for an
/// `Option` of these, where `None` is an error. An object whose kind is known apart from it is
/// referred to by [`object_reference`].
///
/// `How` only tells these cases apart and is always inferred.
pub trait IntoReference<How> {
    /// The reference.
    fn reference(&self) -> Result<ObjectReference, ReferenceError>;
}

/// A reference to an object whose kind is `kind`, which for typed objects is `&()`: apiVersion,
/// kind, name, namespace, uid and resourceVersion.
pub fn object_reference<K: Resource>(object: &K, kind: &K::DynamicType) -> ObjectReference {
    refer(K::api_version(kind).into_owned(), K::kind(kind).into_owned(), object.meta())
}

fn refer(api_version: String, kind: String, meta: &ObjectMeta) -> ObjectReference {
    ObjectReference {
        api_version: Some(api_version),
        kind: Some(kind),
        name: meta.name.clone(),
        namespace: meta.namespace.clone(),
        uid: meta.uid.clone(),
        resource_version: meta.resource_version.clone(),
        field_path: None,
    }
}

/// See [`IntoReference`]: the kind is that of the type.
#[derive(Debug)]
pub enum ByType {}

impl<K: Resource<DynamicType: Default>> IntoReference<ByType> for K {
    fn reference(&self) -> Result<ObjectReference, ReferenceError> {
        Ok(object_reference(self, &K::DynamicType::default()))
    }
}

/// See [`IntoReference`]: the object carries its kind.
#[derive(Debug)]
pub enum ByContent {}

impl IntoReference<ByContent> for DynamicObject {
    fn reference(&self) -> Result<ObjectReference, ReferenceError> {
        let name = || self.metadata.name.clone().unwrap_or_default();
        let (api_version, kind) = self
            .types
            .as_ref()
            .and_then(parsed)
            .ok_or_else(|| ReferenceError::NoKind { name: name() })?;
        Ok(refer(api_version, kind, &self.metadata))
    }
}

/// As Go's unstructured objects read their kind: an apiVersion of more than two parts makes it
/// unknown, one without a group is the bare version.
fn parsed(types: &TypeMeta) -> Option<(String, String)> {
    let api_version = match types.api_version.split_once('/') {
        Some((_, version)) if version.contains('/') => return None,
        Some(("", version)) => version,
        _ => &types.api_version,
    };
    let known = !(api_version.is_empty() && types.kind.is_empty());
    known.then(|| (api_version.to_owned(), types.kind.clone()))
}

/// See [`IntoReference`]: a reference already.
#[derive(Debug)]
pub enum ByHand {}

impl IntoReference<ByHand> for ObjectReference {
    fn reference(&self) -> Result<ObjectReference, ReferenceError> {
        Ok(self.clone())
    }
}

/// See [`IntoReference`]: there may be nothing to refer to.
#[derive(Debug)]
pub struct IfAny<How>(How);

impl<How, T: IntoReference<How>> IntoReference<IfAny<How>> for Option<T> {
    fn reference(&self) -> Result<ObjectReference, ReferenceError> {
        self.as_ref().ok_or(ReferenceError::NoObject)?.reference()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::{apps::v1::Deployment, core::v1::Pod};
    use serde_json::{Value, json};

    fn as_json<How>(object: &impl IntoReference<How>) -> Result<Value, ReferenceError> {
        Ok(serde_json::to_value(object.reference()?).unwrap())
    }

    #[test]
    fn a_typed_object_knows_its_kind() {
        let meta = json!({"name": "web", "namespace": "shop", "uid": "u", "resourceVersion": "7"});
        let of = |api_version: &str, kind: &str| {
            json!({"apiVersion": api_version, "kind": kind, "name": "web", "namespace": "shop",
                   "uid": "u", "resourceVersion": "7"})
        };
        let pod: Pod = serde_json::from_value(json!({"metadata": meta})).unwrap();
        let deployment: Deployment = serde_json::from_value(json!({"metadata": meta})).unwrap();
        assert_eq!(as_json(&pod).unwrap(), of("v1", "Pod"));
        assert_eq!(as_json(&deployment).unwrap(), of("apps/v1", "Deployment"));
    }

    #[test]
    fn a_dynamic_object_says_its_kind_or_cannot_be_referred_to() {
        let object = |types: Option<(&str, &str)>| DynamicObject {
            types: types.map(|(a, k)| TypeMeta { api_version: a.into(), kind: k.into() }),
            metadata: ObjectMeta { name: Some("x".into()), ..ObjectMeta::default() },
            data: Value::Null,
        };
        let reference = as_json(&object(Some(("shop.example/v1", "Order")))).unwrap();
        assert_eq!(
            reference,
            json!({"apiVersion": "shop.example/v1", "kind": "Order", "name": "x"})
        );
        let unknown = Err(ReferenceError::NoKind { name: "x".into() });
        for types in [None, Some(("", "")), Some(("a/b/c", "Order"))] {
            assert_eq!(as_json(&object(types)), unknown);
        }
        // Half of it is enough.
        assert_eq!(as_json(&object(Some(("/v1", "")))).unwrap()["apiVersion"], "v1");
        assert_eq!(as_json(&object(Some(("", "Order")))).unwrap()["kind"], "Order");
    }

    #[test]
    fn a_reference_by_hand_is_used_as_it_is() {
        let by_hand =
            ObjectReference { field_path: Some("spec.x".into()), ..ObjectReference::default() };
        assert_eq!(by_hand.reference(), Ok(by_hand.clone()));
        assert_eq!(Some(by_hand.clone()).reference(), Ok(by_hand));
        assert_eq!(None::<ObjectReference>.reference(), Err(ReferenceError::NoObject));
        assert_eq!(None::<Pod>.reference(), Err(ReferenceError::NoObject));
    }
}
