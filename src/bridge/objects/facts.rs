//! An object as it is read: its metadata.

use serde::Deserialize;
use std::collections::BTreeMap;

use crate::event::Owner;

/// The metadata of an object.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Facts {
    metadata: Meta,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Meta {
    name: String,
    namespace: String,
    uid: String,
    resource_version: String,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
    owner_references: Vec<OwnerReference>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct OwnerReference {
    #[serde(flatten)]
    owner: Owner,
    controller: bool,
}

impl Facts {
    pub(super) fn namespace(&self) -> &str {
        &self.metadata.namespace
    }
    pub(super) fn uid(&self) -> &str {
        &self.metadata.uid
    }
    pub(super) fn resource_version(&self) -> &str {
        &self.metadata.resource_version
    }
    pub(super) fn labels(&self) -> impl Iterator<Item = (&str, &str)> {
        self.metadata.labels.iter().map(|(key, value)| (&**key, &**value))
    }
    pub(super) fn annotations(&self) -> impl Iterator<Item = (&str, &str)> {
        self.metadata.annotations.iter().map(|(key, value)| (&**key, &**value))
    }
    pub(super) fn controller(&self) -> Option<Owner> {
        let mut owners = self.metadata.owner_references.iter();
        owners.find(|owner| owner.controller).map(|owner| owner.owner.clone())
    }
}
