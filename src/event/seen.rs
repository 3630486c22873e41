//! The view `seen`: for each Event that exists, which version was last journalled and how often
//! it had occurred by then. It turns absolute counts into increments.

use std::{collections::HashMap, hash::BuildHasherDefault, num::NonZero};

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

/// What is known of one live Event, in 16 bytes; so is an `Option` of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeenEntry {
    /// The version last journalled.
    pub resource_version: u64,
    /// Its occurrences, saturated at `u32::MAX`.
    pub occurrences: u32,
    /// The source's number, counted from one.
    source: NonZero<u16>,
}

impl SeenEntry {
    /// An entry for an Event of a source, which the owner of the view numbers from zero to 65 534.
    pub fn new(resource_version: u64, occurrences: u64, source: u16) -> Self {
        Self {
            resource_version,
            occurrences: u32::try_from(occurrences).unwrap_or(u32::MAX),
            source: NonZero::<u16>::MIN.saturating_add(source),
        }
    }

    /// The number of the source that it belongs to.
    pub fn source(self) -> u16 {
        self.source.get() - 1
    }

    /// By how much a version raises what was seen before.
    ///
    /// Without a predecessor: all of its occurrences when the Event was created after the source's
    /// first start, else 1, because what came before that start is not ours to announce. Fewer
    /// occurrences than before (a recorder that started over): 0.
    pub fn delta(
        before: Option<Self>,
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

/// Changes of the view, one for each Event at most: what is known now, or nothing where the Event
/// no longer exists.
pub type SeenChanges = HashMap<UidKey, Option<SeenEntry>, BuildHasherDefault<FxHasher>>;

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
