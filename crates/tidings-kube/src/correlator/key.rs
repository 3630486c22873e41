//! Fingerprints of keys.

use std::{
    fmt,
    hash::{BuildHasher as _, Hasher as _, RandomState},
};

use siphasher::sip128::{Hasher128 as _, SipHasher13};

use super::saved::{Damaged, Reader};

/// The fingerprint of a key: 16 bytes, however long the key's parts are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(u128);

impl Key {
    /// For storing it beside its [`Keys`].
    pub fn to_bytes(self) -> [u8; 16] {
        self.0.to_le_bytes()
    }

    /// What [`to_bytes`](Self::to_bytes) gave.
    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(u128::from_le_bytes(bytes))
    }
}

/// Makes [`Key`]s: SipHash-1-3 in 128 bits, under a secret.
///
/// The parts of a key come from whoever may create objects; without the secret nobody can make two
/// of them meet. Two `Keys` give different fingerprints, so they are saved with what is kept under
/// them. Nothing is allocated.
#[derive(Clone)]
pub struct Keys(SipHasher13);

impl Keys {
    /// With a new secret, from the same source as that of the standard library's hash maps.
    pub fn random() -> Self {
        let random = RandomState::new();
        Self(SipHasher13::new_with_keys(random.hash_one(0), random.hash_one(1)))
    }

    /// With a secret of one's own.
    pub fn with_secret(secret: [u8; 16]) -> Self {
        Self(SipHasher13::new_with_key(&secret))
    }

    /// The key of the parts set end to end, as client-go makes its keys: "shop" and "1web" are the
    /// same as "shop1" and "web".
    pub fn joined(&self, parts: &[&str]) -> Key {
        let mut hasher = self.0;
        for part in parts {
            hasher.write(part.as_bytes());
        }
        Key(hasher.finish128().as_u128())
    }

    /// The key of the parts, each behind its length, so that no text of one can pass for that of
    /// another.
    pub fn separated(&self, parts: &[&str]) -> Key {
        self.prefix(parts).key(&[])
    }

    /// What several keys begin with, for the work to be done once: `keys.prefix(a).key(b)` is
    /// `keys.separated` of `a` and `b` together.
    pub fn prefix(&self, parts: &[&str]) -> KeyPrefix {
        KeyPrefix(self.0).and(parts)
    }

    /// Appends the secret: 16 bytes.
    pub fn save(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0.key());
    }

    /// What [`save`](Self::save) left at the front of the bytes, and the rest of them.
    ///
    /// # Errors
    ///
    /// The bytes end too early.
    pub fn load(bytes: &[u8]) -> Result<(Self, &[u8]), Damaged> {
        let mut bytes = Reader::new(bytes);
        Ok((Self::with_secret(bytes.array()?), bytes.rest()))
    }
}

/// The first parts of [separated](Keys::separated) keys.
#[derive(Clone, Copy)]
pub struct KeyPrefix(SipHasher13);

impl KeyPrefix {
    /// These parts and `parts`.
    #[must_use]
    pub fn and(mut self, parts: &[&str]) -> Self {
        for part in parts {
            self.0.write(&(part.len() as u64).to_le_bytes());
            self.0.write(part.as_bytes());
        }
        self
    }

    /// The key of these parts and `parts`.
    pub fn key(self, parts: &[&str]) -> Key {
        Key(self.and(parts).0.finish128().as_u128())
    }
}

impl fmt::Debug for KeyPrefix {
    /// Without the secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyPrefix").finish_non_exhaustive()
    }
}

impl PartialEq for Keys {
    /// Whether they give the same fingerprints.
    fn eq(&self, other: &Self) -> bool {
        self.0.key() == other.0.key()
    }
}

impl Eq for Keys {}

impl fmt::Debug for Keys {
    /// Without the secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keys").finish_non_exhaustive()
    }
}
