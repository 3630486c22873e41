//! Shares of namespaces in the dead letters: so that one alone cannot take the place of all others'.

use std::{cmp::Reverse, collections::BTreeMap};

use serde::Serialize;

use crate::event::Origin;

/// A namespace with more than this part of the room gives way first.
const SHARE: u64 = 4;

/// The dead letters of one namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NamespaceDeadLetters {
    /// The namespace.
    pub namespace: String,
    /// Dead letters that are kept.
    pub letters: u64,
    /// The part of `journal.deadLetters` that they take, in bytes.
    pub bytes: u64,
}

#[derive(Clone, Copy, Debug)]
struct Share {
    letters: u64,
    bytes: u64,
    /// No letter of it has a number below this.
    from: u64,
}

/// The bytes of each namespace that has any.
#[derive(Clone, Debug, Default)]
pub(super) struct LetterShares(BTreeMap<Box<str>, Share>);

impl LetterShares {
    /// Counts a letter in or out.
    pub(super) fn count(
        &mut self,
        number: u64,
        envelope: &[u8],
        size: u64,
        add: fn(u64, u64) -> u64,
    ) {
        let namespace = Origin::namespace_of(envelope);
        let share = self.0.entry((*namespace).into());
        let share = share.or_insert(Share { letters: 0, bytes: 0, from: number });
        (share.letters, share.bytes) = (add(share.letters, 1), add(share.bytes, size));
        share.from = share.from.min(number);
        if share.letters == 0 {
            self.0.remove(&*namespace);
        }
    }

    /// From which number on letters of a namespace are to be looked for.
    pub(super) fn from(&self, namespace: &str) -> u64 {
        self.0.get(namespace).map_or(0, |share| share.from)
    }

    /// All letters of a namespace with a lower number are gone.
    pub(super) fn gone_below(&mut self, namespace: &str, number: u64) {
        if let Some(share) = self.0.get_mut(namespace) {
            share.from = share.from.max(number);
        }
    }

    /// The namespace that has most, where that is more than its share of so many bytes, and by how
    /// much.
    pub(super) fn over(&self, room: u64) -> Option<(Box<str>, u64)> {
        let (namespace, share) = self.0.iter().max_by_key(|(_, share)| share.bytes)?;
        let over = share.bytes.saturating_sub(room / SHARE);
        (over > 0).then(|| (namespace.clone(), over))
    }

    /// The ten that have most, those first.
    pub(super) fn first(&self) -> Vec<NamespaceDeadLetters> {
        let mut all: Vec<_> = self.0.iter().collect();
        all.sort_by_key(|(_, share)| Reverse(share.bytes));
        let first = all.into_iter().take(10);
        let first = first.map(|(namespace, share)| NamespaceDeadLetters {
            namespace: namespace.to_string(),
            letters: share.letters,
            bytes: share.bytes,
        });
        first.collect()
    }
}

/// Whether the Event of an envelope is of a namespace. What is no envelope is of none, `""`.
pub(super) fn is_of(envelope: &[u8], namespace: &str) -> bool {
    *Origin::namespace_of(envelope) == *namespace
}
