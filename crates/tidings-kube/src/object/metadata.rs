//! What an informer keeps of an object when its metadata is enough.
//!
//! It is what client-go's metadata informers keep as `PartialObjectMetadata`, in one piece of memory
//! and without `managedFields`, which are most of it there:
//!
//! ```text
//! Metadata ──▶ "2v1 3Pod 5web-0 7default 36… 1 3app3web …"
//! ```
//!
//! A Pod with the usual 6 labels, 3 annotations and an owner takes 528 bytes, with or without
//! `managedFields` in what the API server sends: 16 of the handle, the rest in one allocation of
//! exactly that size (`metadata/tests.rs` has that Pod, and holds the number). The texts alone are
//! 478 of them. To read a part of it is to step over those before it, which is a few nanoseconds
//! each, and copies nothing.
//!
//! ```
//! use tidings_kube::object::Metadata;
//!
//! let pod = br#"{"apiVersion": "v1", "kind": "Pod", "spec": {"nodeName": "node-1"}, "metadata": {
//!     "name": "web-0", "namespace": "default", "resourceVersion": "7", "labels": {"app": "web"},
//!     "annotations": {"example.com/team": "a", "example.com/notes": "a long text"}}}"#;
//! let mut pod: Metadata = serde_json::from_slice(pod)?;
//! // What nobody asks for need not be kept: this is for an informer's transform.
//! pod.retain_annotations(|key| key == "example.com/team");
//! assert_eq!((pod.name(), pod.label("app")), ("web-0", Some("web")));
//! assert_eq!(pod.annotations().collect::<Vec<_>>(), [("example.com/team", "a")]);
//! # Ok::<_, serde_json::Error>(())
//! ```

mod json;
mod packed;
#[cfg(test)]
mod tests;

use std::fmt;

use packed::{Reader, push_number, push_text};
use serde::Serialize;

use super::Object;

/// The part of an object's metadata that others ask for, in one piece of memory. It is read from the
/// JSON of a whole object or of a `PartialObjectMetadata`, and written as the latter.
///
/// What the object has not is empty, as it is in Go.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Metadata {
    /// The texts of [`Parts`] in their order, the maps and lists with their lengths before them.
    packed: Box<str>,
}

/// The texts before labels, annotations and owners, in this order.
const API_VERSION: usize = 0;
const KIND: usize = 1;
const NAME: usize = 2;
const NAMESPACE: usize = 3;
const UID: usize = 4;
const RESOURCE_VERSION: usize = 5;
const DELETION_TIMESTAMP: usize = 6;
const LABELS: usize = 7;

/// Who an object belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OwnerReference<'a> {
    /// Its group and version, such as `apps/v1`.
    pub api_version: &'a str,
    /// Such as `ReplicaSet`.
    pub kind: &'a str,
    /// In the namespace of the object, or in none.
    pub name: &'a str,
    /// Tells it from others that had or will have its name.
    pub uid: &'a str,
    /// Whether it is the one that manages the object. There is one at most.
    pub controller: bool,
}

impl Metadata {
    /// The group and version, such as `apps/v1`; empty where the [kind](Self::kind) is.
    pub fn api_version(&self) -> &str {
        self.text(API_VERSION)
    }

    /// The kind, such as `Pod`. It is empty where the API server does not say it: in a
    /// `PartialObjectMetadata`, and in the items of a list.
    pub fn kind(&self) -> &str {
        self.text(KIND)
    }

    /// The name, unique in kind and namespace.
    pub fn name(&self) -> &str {
        self.text(NAME)
    }

    /// The namespace, if it lies in one.
    pub fn namespace(&self) -> Option<&str> {
        some(self.text(NAMESPACE))
    }

    /// Tells it from others that had or will have its name.
    pub fn uid(&self) -> Option<&str> {
        some(self.text(UID))
    }

    /// The version of the object.
    pub fn resource_version(&self) -> &str {
        self.text(RESOURCE_VERSION)
    }

    /// Since when it is being deleted, in RFC 3339, as the API server has written it.
    pub fn deletion_timestamp(&self) -> Option<&str> {
        some(self.text(DELETION_TIMESTAMP))
    }

    /// All labels, by key.
    pub fn labels(&self) -> impl Iterator<Item = (&str, &str)> + Clone {
        pairs(&mut self.reader(LABELS))
    }

    /// The value of one label.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.labels().find(|(other, _)| *other == key).map(|(_, value)| value)
    }

    /// The annotations that are kept, by key.
    pub fn annotations(&self) -> impl Iterator<Item = (&str, &str)> + Clone {
        pairs(&mut self.behind_labels())
    }

    /// The value of one annotation.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.annotations().find(|(other, _)| *other == key).map(|(_, value)| value)
    }

    /// Who it belongs to.
    pub fn owners(&self) -> impl Iterator<Item = OwnerReference<'_>> + Clone {
        let mut reader = self.behind_labels();
        skip_pairs(&mut reader);
        let count = reader.number();
        (0..count).map(move |_| OwnerReference {
            api_version: reader.text(),
            kind: reader.text(),
            name: reader.text(),
            uid: reader.text(),
            controller: reader.number() == 1,
        })
    }

    /// Who manages it; client-go's `metav1.GetControllerOf`.
    pub fn controller(&self) -> Option<OwnerReference<'_>> {
        self.owners().find(|owner| owner.controller)
    }

    /// Forgets the labels that are not wanted.
    pub fn retain_labels(&mut self, mut wanted: impl FnMut(&str) -> bool) {
        let labels: Vec<_> = self.labels().filter(|(key, _)| wanted(key)).collect();
        *self = self.parts(labels.into_iter(), self.annotations()).pack();
    }

    /// Forgets the annotations that are not wanted. They can be long: what `kubectl apply` leaves
    /// there is the object once more.
    pub fn retain_annotations(&mut self, mut wanted: impl FnMut(&str) -> bool) {
        let annotations: Vec<_> = self.annotations().filter(|(key, _)| wanted(key)).collect();
        *self = self.parts(self.labels(), annotations.into_iter()).pack();
    }

    fn reader(&self, texts: usize) -> Reader<'_> {
        Reader(&self.packed).skip(texts)
    }

    fn behind_labels(&self) -> Reader<'_> {
        let mut reader = self.reader(LABELS);
        skip_pairs(&mut reader);
        reader
    }

    fn text(&self, nth: usize) -> &str {
        self.reader(nth).text()
    }

    fn parts<L, A>(
        &self,
        labels: L,
        annotations: A,
    ) -> Parts<'_, L, A, impl Iterator<Item = OwnerReference<'_>> + Clone> {
        let mut reader = self.reader(0);
        Parts {
            api_version: reader.text(),
            kind: reader.text(),
            name: reader.text(),
            namespace: reader.text(),
            uid: reader.text(),
            resource_version: reader.text(),
            deletion_timestamp: reader.text(),
            labels,
            annotations,
            owners: self.owners(),
        }
    }
}

impl Object for Metadata {
    fn namespace(&self) -> Option<&str> {
        self.namespace()
    }

    fn name(&self) -> &str {
        self.name()
    }

    fn uid(&self) -> Option<&str> {
        self.uid()
    }

    fn resource_version(&self) -> &str {
        self.resource_version()
    }

    fn label(&self, key: &str) -> Option<&str> {
        self.label(key)
    }
}

impl fmt::Debug for Metadata {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metadata")
            .field("api_version", &self.api_version())
            .field("kind", &self.kind())
            .field("namespace", &self.namespace())
            .field("name", &self.name())
            .field("uid", &self.uid())
            .field("resource_version", &self.resource_version())
            .finish_non_exhaustive()
    }
}

fn some(text: &str) -> Option<&str> {
    Some(text).filter(|text| !text.is_empty())
}

/// The pairs that come next.
fn pairs<'a>(
    reader: &mut Reader<'a>,
) -> impl Iterator<Item = (&'a str, &'a str)> + Clone + use<'a> {
    let count = reader.number();
    let mut reader = reader.clone();
    (0..count).map(move |_| (reader.text(), reader.text()))
}

fn skip_pairs(reader: &mut Reader<'_>) {
    for _ in 0..reader.number() {
        reader.text();
        reader.text();
    }
}

/// What makes up a [`Metadata`].
struct Parts<'a, L, A, O> {
    api_version: &'a str,
    kind: &'a str,
    name: &'a str,
    namespace: &'a str,
    uid: &'a str,
    resource_version: &'a str,
    deletion_timestamp: &'a str,
    labels: L,
    annotations: A,
    owners: O,
}

impl<'a, L, A, O> Parts<'a, L, A, O>
where
    L: Iterator<Item = (&'a str, &'a str)> + Clone,
    A: Iterator<Item = (&'a str, &'a str)> + Clone,
    O: Iterator<Item = OwnerReference<'a>> + Clone,
{
    fn pack(self) -> Metadata {
        let mut packed = String::new();
        for text in [
            self.api_version,
            self.kind,
            self.name,
            self.namespace,
            self.uid,
            self.resource_version,
            self.deletion_timestamp,
        ] {
            push_text(&mut packed, text);
        }
        push_pairs(&mut packed, self.labels);
        push_pairs(&mut packed, self.annotations);
        push_number(&mut packed, self.owners.clone().count());
        for owner in self.owners {
            for text in [owner.api_version, owner.kind, owner.name, owner.uid] {
                push_text(&mut packed, text);
            }
            push_number(&mut packed, usize::from(owner.controller));
        }
        Metadata { packed: packed.into_boxed_str() }
    }
}

fn push_pairs<'a>(packed: &mut String, pairs: impl Iterator<Item = (&'a str, &'a str)> + Clone) {
    push_number(packed, pairs.clone().count());
    for (key, value) in pairs {
        push_text(packed, key);
        push_text(packed, value);
    }
}
