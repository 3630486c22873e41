//! `Metadata` from and to JSON.

use std::{borrow::Cow, collections::BTreeMap};

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    ser::{SerializeMap, SerializeStruct},
};

use super::{Metadata, OwnerReference, Parts};

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

fn text<'t>(text: &'t Option<Text<'_>>) -> &'t str {
    text.as_ref().map(|text| &*text.0).unwrap_or_default()
}

fn pairs<'t>(map: &'t Option<Map<'_>>) -> impl Iterator<Item = (&'t str, &'t str)> + Clone {
    map.iter().flatten().map(|(key, value)| (&*key.0, text(value)))
}

impl<'de> Deserialize<'de> for Metadata {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let object = Object::deserialize(deserializer)?;
        let meta = object.metadata.unwrap_or_default();
        let owners = meta.owner_references.iter().flatten().map(|owner| OwnerReference {
            api_version: text(&owner.api_version),
            kind: text(&owner.kind),
            name: text(&owner.name),
            uid: text(&owner.uid),
            controller: owner.controller.unwrap_or(false),
        });
        Ok(Parts {
            api_version: text(&object.api_version),
            kind: text(&object.kind),
            name: text(&meta.name),
            namespace: text(&meta.namespace),
            uid: text(&meta.uid),
            resource_version: text(&meta.resource_version),
            deletion_timestamp: text(&meta.deletion_timestamp),
            labels: pairs(&meta.labels),
            annotations: pairs(&meta.annotations),
            owners,
        }
        .pack())
    }
}

/// As an object with nothing but metadata, and that without what is empty.
impl Serialize for Metadata {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_struct("Metadata", 3)?;
        object.serialize_field("apiVersion", self.api_version())?;
        object.serialize_field("kind", self.kind())?;
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
