//! `Metadata` from and to JSON.

use std::collections::BTreeMap;

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    ser::{SerializeMap, SerializeStruct},
};

use super::{Metadata, OwnerReference, Parts};
use crate::event::Text;

/// The type of an object that is only metadata. It does not say of what.
const PARTIAL: (&str, &str) = ("meta.k8s.io/v1", "PartialObjectMetadata");

/// By key, and of two under one key the last, as Go reads it.
type Map<'a> = BTreeMap<Text<'a>, Text<'a>>;

/// What is read of an object. Everything else is skipped while it is parsed, `managedFields` among
/// it.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Object<'a> {
    #[serde(borrow)]
    api_version: Text<'a>,
    #[serde(borrow)]
    kind: Text<'a>,
    #[serde(borrow)]
    metadata: Option<ObjectMeta<'a>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ObjectMeta<'a> {
    #[serde(borrow)]
    name: Text<'a>,
    #[serde(borrow)]
    namespace: Text<'a>,
    #[serde(borrow)]
    uid: Text<'a>,
    #[serde(borrow)]
    resource_version: Text<'a>,
    #[serde(borrow)]
    deletion_timestamp: Text<'a>,
    #[serde(borrow)]
    labels: Option<Map<'a>>,
    #[serde(borrow)]
    annotations: Option<Map<'a>>,
    #[serde(borrow)]
    owner_references: Option<Vec<Owner<'a>>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Owner<'a> {
    #[serde(borrow)]
    api_version: Text<'a>,
    #[serde(borrow)]
    kind: Text<'a>,
    #[serde(borrow)]
    name: Text<'a>,
    #[serde(borrow)]
    uid: Text<'a>,
    controller: Option<bool>,
}

fn pairs<'t>(map: Option<&'t Map<'_>>) -> impl Iterator<Item = (&'t str, &'t str)> + Clone {
    map.into_iter().flatten().map(|(key, value)| (&**key, &**value))
}

impl Object<'_> {
    fn pack(self) -> Metadata {
        let (mut api_version, mut kind) = (&*self.api_version, &*self.kind);
        if (api_version, kind) == PARTIAL {
            (api_version, kind) = ("", "");
        }
        let meta = self.metadata.unwrap_or_default();
        let owners = meta.owner_references.iter().flatten().map(|owner| OwnerReference {
            api_version: &owner.api_version,
            kind: &owner.kind,
            name: &owner.name,
            uid: &owner.uid,
            controller: owner.controller.unwrap_or(false),
        });
        let parts = Parts {
            api_version,
            kind,
            name: &meta.name,
            namespace: &meta.namespace,
            uid: &meta.uid,
            resource_version: &meta.resource_version,
            deletion_timestamp: &meta.deletion_timestamp,
            labels: pairs(meta.labels.as_ref()),
            annotations: pairs(meta.annotations.as_ref()),
            owners,
        };
        parts.pack()
    }
}

impl<'de> Deserialize<'de> for Metadata {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Object::deserialize(deserializer).map(Object::pack)
    }
}

/// As an object with nothing but metadata, and that without what is empty.
impl Serialize for Metadata {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (api_version, kind) =
            if self.kind().is_empty() { PARTIAL } else { (self.api_version(), self.kind()) };
        let mut object = serializer.serialize_struct("Metadata", 3)?;
        object.serialize_field("apiVersion", api_version)?;
        object.serialize_field("kind", kind)?;
        object.serialize_field("metadata", &Meta(self))?;
        object.end()
    }
}

struct Meta<'a>(&'a Metadata);

impl Serialize for Meta<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(of) = self;
        let mut meta = serializer.serialize_map(None)?;
        let texts = [
            ("name", of.name()),
            ("namespace", of.namespace().unwrap_or_default()),
            ("uid", of.uid().unwrap_or_default()),
            ("resourceVersion", of.resource_version()),
            ("deletionTimestamp", of.deletion_timestamp().unwrap_or_default()),
        ];
        for (name, text) in texts.iter().filter(|(_, text)| !text.is_empty()) {
            meta.serialize_entry(name, text)?;
        }
        let labels: BTreeMap<_, _> = of.labels().collect();
        let annotations: BTreeMap<_, _> = of.annotations().collect();
        for (name, map) in [("labels", labels), ("annotations", annotations)] {
            if !map.is_empty() {
                meta.serialize_entry(name, &map)?;
            }
        }
        let owners: Vec<_> = of.owners().collect();
        if !owners.is_empty() {
            meta.serialize_entry("ownerReferences", &owners)?;
        }
        meta.end()
    }
}
