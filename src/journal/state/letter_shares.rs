//! What each namespace has of the dead letters: so that one alone cannot take the place of all others'.

use std::{cmp::Reverse, collections::BTreeMap};

use serde::{Deserialize, Serialize};

use super::DeadLetter;
use crate::event::with_namespace;

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

/// The letters of each namespace that has any.
#[derive(Clone, Debug, Default)]
pub(super) struct LetterShares {
    by_namespace: BTreeMap<Box<str>, Share>,
    /// The size of all parked letters, in bytes.
    parked: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Share {
    letters: u64,
    bytes: u64,
    /// Of these, parked.
    parked: u64,
}

impl LetterShares {
    /// Counts a letter in or out.
    pub(super) fn count(&mut self, letter: &DeadLetter, size: u64, add: fn(u64, u64) -> u64) {
        let parked = if letter.is_parked() { size } else { 0 };
        self.parked = add(self.parked, parked);
        with_namespace(&letter.envelope, |namespace| {
            let share = self.by_namespace.entry(namespace.into()).or_default();
            share.letters = add(share.letters, 1);
            share.bytes = add(share.bytes, size);
            share.parked = add(share.parked, parked);
            if share.letters == 0 {
                self.by_namespace.remove(namespace);
            }
        });
    }

    /// The namespace with the most bytes in letters that are not parked, and their excess over its share of the room.
    pub(super) fn over(&self, room: u64) -> Option<(Box<str>, u64)> {
        let not_parked = |share: &Share| share.bytes - share.parked;
        let (namespace, share) =
            self.by_namespace.iter().max_by_key(|(_, share)| not_parked(share))?;
        let over = not_parked(share).saturating_sub(room / SHARE);
        (over > 0).then(|| (namespace.clone(), over))
    }

    /// Whether a namespace may have so many bytes more in parked letters, and all namespaces so many: a share of the room
    /// at most, and half of it.
    pub(super) fn has_room_to_park(&self, namespace: &str, own: u64, all: u64, room: u64) -> bool {
        let has = self.by_namespace.get(namespace).map_or(0, |share| share.parked);
        has + own <= room / SHARE && self.parked + all <= room / 2
    }

    /// The ten that have most, those first.
    pub(super) fn first(&self) -> Vec<NamespaceLetters> {
        let mut all: Vec<_> = self.by_namespace.iter().collect();
        all.sort_by_key(|(_, share)| Reverse(share.bytes));
        let first = all.into_iter().take(10);
        let first = first.map(|(namespace, share)| NamespaceLetters {
            namespace: namespace.to_string(),
            letters: share.letters,
            bytes: share.bytes,
        });
        first.collect()
    }
}

/// Whether the Event of an envelope is of a namespace. What is no envelope is of none, `""`.
pub(super) fn is_of(envelope: &[u8], namespace: &str) -> bool {
    with_namespace(envelope, |own| own == namespace)
}
