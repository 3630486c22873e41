//! What each namespace has of the dead letters: so that one alone cannot take the place of all others'.

use std::{cmp::Reverse, collections::BTreeMap};

use serde::{Deserialize, Serialize};

use crate::event::EnvelopeParts;

/// A namespace with more than this part of the room gives way first.
const SHARE: u64 = 4;

/// The dead letters of one namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NamespaceLetters {
    /// The namespace.
    pub namespace: String,
    /// Letters that are kept.
    pub letters: u64,
    /// What they take of `journal.deadLetters`, in bytes.
    pub bytes: u64,
}

/// Letters and bytes by namespace, of those that have any.
#[derive(Clone, Debug, Default)]
pub(super) struct LetterShares(BTreeMap<Box<str>, (u64, u64)>);

impl LetterShares {
    /// Counts a letter in or out.
    pub(super) fn count(&mut self, envelope: &[u8], size: u64, add: fn(u64, u64) -> u64) {
        with_namespace(envelope, |namespace| {
            let (letters, bytes) = self.0.entry(namespace.into()).or_default();
            (*letters, *bytes) = (add(*letters, 1), add(*bytes, size));
            if *letters == 0 {
                self.0.remove(namespace);
            }
        });
    }

    /// The namespace that has most, where that is more than its share of so many bytes, and by how
    /// much.
    pub(super) fn over(&self, room: u64) -> Option<(Box<str>, u64)> {
        let (namespace, (_, bytes)) = self.0.iter().max_by_key(|(_, (_, bytes))| *bytes)?;
        let over = bytes.saturating_sub(room / SHARE);
        (over > 0).then(|| (namespace.clone(), over))
    }

    /// The ten that have most, those first.
    pub(super) fn first(&self) -> Vec<NamespaceLetters> {
        let mut all: Vec<_> = self.0.iter().collect();
        all.sort_by_key(|(_, (_, bytes))| Reverse(*bytes));
        let first = all.into_iter().take(10);
        let first = first.map(|(namespace, (letters, bytes))| NamespaceLetters {
            namespace: namespace.to_string(),
            letters: *letters,
            bytes: *bytes,
        });
        first.collect()
    }
}

/// Whether the Event of an envelope is of a namespace. What is no envelope is of none, `""`.
pub(super) fn is_of(envelope: &[u8], namespace: &str) -> bool {
    with_namespace(envelope, |own| own == namespace)
}

fn with_namespace<T>(envelope: &[u8], with: impl FnOnce(&str) -> T) -> T {
    let fields = EnvelopeParts::of(envelope).and_then(|parts| parts.fields());
    with(fields.as_ref().map_or("", |fields| &*fields.metadata.namespace))
}
