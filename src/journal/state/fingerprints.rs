//! Which uids the table `seen` may have, in memory: so that an Event seen for the first time,
//! which most are, costs no read.

use hashbrown::HashTable;

use crate::event::UidKey;

/// A bag of 32-bit fingerprints, one for each uid in the table: 5 to 12 bytes of memory for each.
///
/// Two uids may have the same one, so a uid may seem to be there that is not: of a hundred
/// thousand, one in forty thousand. The other way round does not happen, because a fingerprint is
/// there once for each uid that has it.
#[derive(Debug, Default)]
pub(super) struct Fingerprints(HashTable<u32>);

/// Of a UUID any 32 bits are as random as others, but for six.
fn fingerprint(uid: UidKey) -> u32 {
    uid.0 as u32
}

/// Spreads them over 64 bits, of which the table uses the upper for one thing and the lower for
/// another.
fn hash(fingerprint: u32) -> u64 {
    let spread = u64::from(fingerprint).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    spread ^ (spread >> 32)
}

impl Fingerprints {
    pub(super) fn with_capacity(count: usize) -> Self {
        Self(HashTable::with_capacity(count))
    }

    /// Whether the table may have a uid; `false` is certain.
    pub(super) fn may_contain(&self, uid: UidKey) -> bool {
        let own = fingerprint(uid);
        self.0.find(hash(own), |other| *other == own).is_some()
    }

    /// The table has a uid that it had not.
    pub(super) fn insert(&mut self, uid: UidKey) {
        let own = fingerprint(uid);
        self.0.insert_unique(hash(own), own, |other| hash(*other));
    }

    /// The table has not a uid any more that it had.
    pub(super) fn remove(&mut self, uid: UidKey) {
        let own = fingerprint(uid);
        if let Ok(found) = self.0.find_entry(hash(own), |other| *other == own) {
            found.remove();
        }
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}
