//! The view `seen`: for each Event that exists, which version was last journalled and how often
//! it had occurred by then. It turns absolute counts into increments.

use std::hash::BuildHasherDefault;

use rustc_hash::FxHasher;
use sha2::{Digest, Sha256};

/// An Event's uid in 16 bytes: the UUID itself, else the start of the SHA-256 of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct UidKey(pub u128);

impl UidKey {
    /// The key of a uid as the API server writes it.
    pub fn of(uid: &str) -> Self {
        parse_uuid(uid).map_or_else(|| Self::of_digest(uid), Self)
    }

    fn of_digest(uid: &str) -> Self {
        let digest = Sha256::digest(uid.as_bytes());
        let mut first = [0; 16];
        first.copy_from_slice(&digest[..16]);
        Self(u128::from_be_bytes(first))
    }
}

/// A UUID in its canonical lower-case form; other spellings are other uids.
fn parse_uuid(text: &str) -> Option<u128> {
    let bytes = text.as_bytes();
    if bytes.len() != 36 {
        return None;
    }
    let mut value = 0u128;
    for (i, byte) in bytes.iter().enumerate() {
        let digit = match (i, byte) {
            (8 | 13 | 18 | 23, b'-') => continue,
            (8 | 13 | 18 | 23, _) => return None,
            (_, b'0'..=b'9') => byte - b'0',
            (_, b'a'..=b'f') => byte - b'a' + 10,
            _ => return None,
        };
        value = value << 4 | u128::from(digit);
    }
    Some(value)
}

/// What is known of one live Event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeenEntry {
    /// The version last journalled.
    pub resource_version: u64,
    /// Its occurrences, saturated at `u32::MAX`.
    pub occurrences: u32,
    /// Which source it belongs to, as numbered by the owner of the view.
    pub source: u16,
}

/// Whether a version is the first that the bridge exports of an Event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The first version seen.
    Created,
    /// A later version of an Event seen before.
    Updated,
}

impl Change {
    /// The spelling in the envelope.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Updated => "updated",
        }
    }
}

/// The view itself: about 40 bytes for each live Event.
#[derive(Debug, Default)]
pub struct Seen {
    entries: std::collections::HashMap<UidKey, SeenEntry, BuildHasherDefault<FxHasher>>,
}

impl Seen {
    /// What is known of an Event.
    pub fn get(&self, uid: UidKey) -> Option<SeenEntry> {
        self.entries.get(&uid).copied()
    }

    /// Notes a version as journalled.
    pub fn insert(&mut self, uid: UidKey, entry: SeenEntry) {
        self.entries.insert(uid, entry);
    }

    /// Forgets an Event that no longer exists; answers whether it was known.
    pub fn remove(&mut self, uid: UidKey) -> bool {
        self.entries.remove(&uid).is_some()
    }

    /// How many live Events are known.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether none is known.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Every entry, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (UidKey, SeenEntry)> + '_ {
        self.entries.iter().map(|(uid, entry)| (*uid, *entry))
    }

    /// By how much a version raises what was seen before.
    ///
    /// Without a predecessor: all of its occurrences when the Event was created after the source's
    /// first start, else 1, because what came before that start is not ours to announce. Fewer
    /// occurrences than before (a recorder that started over): 0.
    pub fn delta(
        before: Option<SeenEntry>,
        occurrences: u64,
        created_after_start: impl FnOnce() -> bool,
    ) -> u64 {
        match before {
            Some(entry) => occurrences.saturating_sub(u64::from(entry.occurrences)),
            None if created_after_start() => occurrences,
            None => 1,
        }
    }
}
