//! `Metadata` from and to JSON.

use std::{borrow::Cow, collections::BTreeMap};

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    ser::{SerializeMap, SerializeStruct},
};

use super::{Metadata, OwnerReference, Parts};

/// The type of an object that is only metadata. It does not say of what.
const PARTIAL: (&str, &str) = ("meta.k8s.io/v1", "PartialObjectMetadata");

/// A text of the input as it stands there, where it needs no unescaping.
#[derive(Debug, Default, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(transparent)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

/// By key, and of two under one key the last, as Go reads it.
type Map<'a> = BTreeMap<Text<'a>, Option<Text<'a>>>;

/// What is read of an object. Everything else is skipped while it is parsed, `managedFields` among
/// it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Object<'a> {
    #[serde(borrow)]
    api_version: Option<Text<'a>>,
    kind: Option<Text<'a>>,
    metadata: Option<ObjectMeta<'a>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ObjectMeta<'a> {
    #[serde(borrow)]
    name: Option<Text<'a>>,
    namespace: Option<Text<'a>>,
    uid: Option<Text<'a>>,
    resource_version: Option<Text<'a>>,
    deletion_timestamp: Option<Text<'a>>,
    labels: Option<Map<'a>>,
    annotations: Option<Map<'a>>,
    owner_references: Option<Vec<Owner<'a>>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Owner<'a> {
    #[serde(borrow)]
    api_version: Option<Text<'a>>,
    kind: Option<Text<'a>>,
    name: Option<Text<'a>>,
    uid: Option<Text<'a>>,
    controller: Option<bool>,
}

fn text<'t>(text: Option<&'t Text<'_>>) -> &'t str {
    text.map(|text| &*text.0).unwrap_or_default()
}

fn pairs<'t>(map: Option<&'t Map<'_>>) -> impl Iterator<Item = (&'t str, &'t str)> + Clone {
    map.into_iter().flatten().map(|(key, value)| (&*key.0, text(value.as_ref())))
}

impl Object<'_> {
    fn pack(self) -> Metadata {
        let (mut api_version, mut kind) =
            (text(self.api_version.as_ref()), text(self.kind.as_ref()));
        if (api_version, kind) == PARTIAL {
            (api_version, kind) = ("", "");
        }
        let meta = self.metadata.unwrap_or_default();
        let owners = meta.owner_references.iter().flatten().map(|owner| OwnerReference {
            api_version: text(owner.api_version.as_ref()),
            kind: text(owner.kind.as_ref()),
            name: text(owner.name.as_ref()),
            uid: text(owner.uid.as_ref()),
            controller: owner.controller.unwrap_or(false),
        });
        let parts = Parts {
            api_version,
            kind,
            name: text(meta.name.as_ref()),
            namespace: text(meta.namespace.as_ref()),
            uid: text(meta.uid.as_ref()),
            resource_version: text(meta.resource_version.as_ref()),
            deletion_timestamp: text(meta.deletion_timestamp.as_ref()),
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
